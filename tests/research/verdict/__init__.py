"""Passes to a verdict of audits in rounds, and whether these verdicts hold."""
