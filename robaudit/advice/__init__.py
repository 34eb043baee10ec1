"""Advice before a long run: whether the estimators suit the model, and what fits the time."""
