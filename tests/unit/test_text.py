"""Docstrings as one-line texts."""

from __future__ import annotations

from robaudit.text import first_paragraph, first_synonyms, unwrapped


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


def test_classes_are_named_by_their_first_synonym_where_it_is_unique() -> None:
    names = ["tench, Tinca tinca", "crane", "crane", "bass, pipe", "bass, fish", ", odd", "plain"]
    ids = [f"n{i}" for i in range(7)]
    assert first_synonyms(names, ids) == (
        "tench", "crane (n1)", "crane (n2)", "bass, pipe", "bass, fish", ", odd", "plain",
    )  # fmt: skip
    assert first_synonyms(["crane", "crane"]) == ("crane (0)", "crane (1)")
