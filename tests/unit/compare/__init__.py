"""Tests of comparisons of two runs."""
