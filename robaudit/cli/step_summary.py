"""How does a Markdown text reach the step summary of a GitHub job?"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "GITHUB_STEP_SUMMARY"


def append_step_summary(text: str) -> str | None:
    """Append the text to the file that ``$GITHUB_STEP_SUMMARY`` names, as far as there is room in it; does nothing where it is not set.

    Returns:
        Why it could not be written, for a warning (the gates are decided all the same); None where all is well.
    """
    from robaudit.report.ci.github import LARGEST, LEFT_OUT
    from robaudit.report.tables import within

    name = os.environ.get(VARIABLE)
    if not name:
        return None
    path = Path(name)
    try:
        there = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(within(text, max(0, LARGEST - there), LEFT_OUT).encode())
    except OSError as error:
        return f"{VARIABLE}: {path} cannot be written: {error.strerror or error}"
    return None
