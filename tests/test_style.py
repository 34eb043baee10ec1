"""Code is read one step at a time; line length is ruff's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "robaudit"


def dense(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines of a module that do several things at once."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            if any(isinstance(target, ast.Tuple) for target in node.targets):
                yield node.lineno, "assigns several values; give each a line"
        elif isinstance(node, ast.IfExp):
            if any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse)):
                yield node.lineno, "has a conditional expression inside another"
        elif isinstance(node, ast.Starred) and isinstance(node.value, ast.IfExp):
            yield node.lineno, "unpacks a conditional expression"


def test_one_step_a_line() -> None:
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line} {what}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, what in dense(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


def test_what_is_dense() -> None:
    lines = (
        "a, b = b, a",
        "a = b if c else d if e else f",
        "call(*(a if b else c))",
        "a, b = interval()",
        "a = b if c else d",
        "call(*(part for part in whole if part))",
    )
    assert [line for line, _ in dense(ast.parse("\n".join(lines)))] == [1, 2, 3]
