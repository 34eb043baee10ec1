"""Differences between two runs on the same samples, each with its uncertainty."""
