"""Validation of estimators against Monte Carlo, and advice on which to use."""
