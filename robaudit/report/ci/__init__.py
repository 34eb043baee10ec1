"""Decided gates for CI systems: JUnit XML, GitHub's annotations and step summary, and JSON.

Functions from decisions to text; none of them reads or writes anything.
"""
