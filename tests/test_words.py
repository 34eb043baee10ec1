"""One vocabulary: what the program prints and the pages say keeps to the words of
docs/glossary.md."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OTHERWISE = {
    r"\b(surely|on the edge|straddl\w+)\b": "confirmed, likely, undecided",
    r"\b(of this kind|these very images)\b": "images like these, these images",
    r"\b(chance may|chance would|beyond chance|by chance|chance alone|with a chance)\b": (
        "significant, probability"
    ),
    r"\b([Rr]ight|[Cc]orrect) answers?\b|\bits answer\b": "accuracy, prediction",
    r"\b[Ww]eakest\b": "least robust",
}
"""Words that are not used, and those that are."""


@functools.cache
def printed() -> tuple[tuple[str, str], ...]:
    """Everything that the package may print, with its place: strings that are no docstrings,
    templates and schemas."""
    return tuple(_printed())


def _printed() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "robaudit").rglob("*")):
        where = str(path.relative_to(ROOT))
        if path.suffix in (".j2", ".js", ".json"):
            yield where, path.read_text(encoding="utf-8")
        elif path.suffix == ".py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            documentation = {
                id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
            }
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and id(node) not in documentation
                ):
                    yield f"{where}:{node.lineno}", node.value


@pytest.mark.parametrize("pattern", OTHERWISE)
def test_the_program_says_it_in_the_words_of_the_glossary(pattern: str) -> None:
    assert [
        f"{where}: {text[:80]}" for where, text in printed() if re.search(pattern, text)
    ] == [], f"write {OTHERWISE[pattern]}"


@pytest.mark.parametrize("pattern", OTHERWISE)
def test_so_do_the_pages(pattern: str) -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        f"{page.name}: {line[:80]}"
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(pattern, line)
    ]
    assert found == [], f"write {OTHERWISE[pattern]}"


def test_the_glossary_has_the_words() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    for words in OTHERWISE.values():
        for word in words.split(", "):
            assert f"**{word}**" in glossary or word == "probability", word
