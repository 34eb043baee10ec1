"""What does the JSON that robaudit writes for other programs look like: the published schemas, by name and version."""

from __future__ import annotations

from importlib.resources import files


def published(name: str) -> str:
    """The text of the newest schema of a document: gates or compare."""
    return (files("robaudit.report.ci") / f"{name}.v1.json").read_text(encoding="utf-8")
