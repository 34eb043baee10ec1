"""Decided gates for CI systems: JUnit XML, GitHub's annotations and step summary, and JSON.

Functions from decisions to text; none of them reads or writes anything.
"""

from __future__ import annotations

from robaudit.report.ci.document import CompareDocument, Subject, counted, gates_json, json_text, published
from robaudit.report.ci.github import github, step_summary
from robaudit.report.ci.junit import junit

__all__ = [
    "CompareDocument",
    "Subject",
    "counted",
    "gates_json",
    "github",
    "json_text",
    "junit",
    "published",
    "step_summary",
]
