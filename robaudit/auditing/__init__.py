"""Carry out an audit: from a spec to a finished run."""
