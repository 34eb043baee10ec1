"""The page on corruptions agrees with the code: parameters, AlexNet's errors, options and examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from robaudit.noise.corruption import FORMS
from robaudit.stats.corruption import ALEXNET, mce, mean_error, relative_mce

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


def test_the_errors_of_alexnet() -> None:
    cells = [cell for row in rows("[a-z]+_noise|.*_blur") for cell in row]
    assert {name: float(error) for name, error in zip(cells[::2], cells[1::2], strict=True)} == dict(ALEXNET.mean)


def test_the_examples() -> None:
    code = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "mce(errors)" in block]
    scope: dict[str, object] = {}
    exec(code[0], scope)  # noqa: S102  our own page
    errors = {"fog": [0.36, 0.42, 0.50, 0.58, 0.71], "snow": [0.45, 0.66, 0.65, 0.77, 0.82]}
    assert scope["errors"] == errors
    found = mce(errors)
    assert f"found.value {found.value:.3f}" in code[0]
    assert ", ".join(f'"{name}": {value:.3f}' for name, value in found.by_corruption.items()) in code[0]
    assert f"the {len(found.missing)} corruptions" in code[0]
    assert f".value {relative_mce(errors, 0.239).value:.3f}" in code[0]
    assert mean_error({"fog": [0.06, 0.08, 0.11, 0.16, 0.31], "snow": [0.13, 0.22, 0.19, 0.23, 0.28]}) == pytest.approx(0.177)
