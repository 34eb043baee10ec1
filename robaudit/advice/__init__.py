"""Advice before a long run: whether the estimators fit the model, and what fits the time."""
