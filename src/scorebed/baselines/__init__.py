"""Designers to compare with that are not trained by a gradient estimator."""
