"""Docstrings as one-line texts."""

from __future__ import annotations

from robaudit.text import first_paragraph, unwrapped


def test_paragraphs_are_lines() -> None:
    def documented() -> None:
        """A first paragraph
        on two lines.

            a formula,
            on two lines

        Source: somebody
            and others.

        Attributes:
            name: of it.
            level: of it.
        """

    assert first_paragraph(documented) == "A first paragraph on two lines."
    assert unwrapped(documented.__doc__ or "").split("\n\n") == [
        "A first paragraph on two lines.",
        "    a formula,\n    on two lines",
        "Source: somebody and others.",
        "Attributes:\n    name: of it.\n    level: of it.",
    ]
