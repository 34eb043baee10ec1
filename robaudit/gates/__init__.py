"""Thresholds that an audit must meet: a gate passes, fails, or is inconclusive on the evidence
available."""
