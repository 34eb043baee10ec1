"""Thresholds that an audit must meet: a gate passes, fails, or cannot be told from the evidence there is."""
