"""How does a pipeline read what became of the gates: JUnit XML, GitHub's annotations and step summary, or JSON?

Functions from decisions to text; none of them reads or writes anything.
"""

from __future__ import annotations

from robaudit.report.ci.document import decisions_document, document
from robaudit.report.ci.github import github, step_summary, within
from robaudit.report.ci.junit import junit
from robaudit.report.ci.subject import Subject, counted
from robaudit.report.ci.words import found, sentence

__all__ = ["Subject", "counted", "decisions_document", "document", "found", "github", "junit", "sentence", "step_summary", "within"]
