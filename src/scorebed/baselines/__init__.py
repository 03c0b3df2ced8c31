"""Designers to compare with: methods that are no gradient estimator inside the common training."""
