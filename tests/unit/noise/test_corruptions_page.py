"""The page on corruptions agrees with the code: parameters and options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from robaudit.noise.corrupted_set import CorruptedSet
from robaudit.noise.corruption import FORMS, Corruption
from robaudit.noise.spatial import Spatial

PAGE = (Path(__file__).parents[3] / "docs" / "noise.md").read_text(encoding="utf-8")


def rows(first: str) -> list[list[str]]:
    """The cells of the table rows that begin with a match of this pattern."""
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
    return [cells for cells in table if re.fullmatch(first, cells[0])]


@pytest.mark.parametrize("name", FORMS)
def test_the_parameters(name: str) -> None:
    (cells,) = (cells for cells in rows(f"`{name}`") if len(cells) == 5)
    for written, numbers, factor in (
        (cells[2], FORMS[name].imagenet, 244 / 224 if name == "elastic" else 1),
        (cells[3], FORMS[name].cifar, 1),
    ):
        found = [[float(number) * factor for number in part.split(",")] for part in written.split(" / ")]
        assert [pytest.approx(part) for part in found] == [list(part) for part in numbers]


@pytest.mark.parametrize("kind", [Spatial, Corruption, CorruptedSet])
def test_the_options(kind: type[BaseModel]) -> None:
    for name, field in kind.model_fields.items():
        if name not in ("name", "clip") or (name == "name" and kind is not Spatial):
            described = rows(f"`{name}`")
            assert described
            if not field.is_required():
                default = str(field.default).lower().removesuffix(".0")
                assert any(default in row[1] for row in described)
