"""Comparison of two runs on the same samples: what changed, and how certain that is."""
