"""Bounds of the expected information gain of a policy."""
