"""Runs whose models call the same classes differently, or have other classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from robaudit.errors import RunError
from robaudit.report.html.content import gather
from robaudit.report.sections import SectionRequest, section_of
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.golden import Golden
from tests.infos import changed
from tests.unit.report.html.tools import hand_made, rows

NAMES = ("great white shark", "tench", "sea lion", "eel")
UNDERSCORES = ("great_white_shark", "tench", "sea_lion", "eel")
# Of each class two images, a tenth of whose copies turn into the next class.
TURNING = tuple(
    replace(
        row,
        votes=Votes(
            tuple(9 * (i == row.label) + (i == ((row.label or 0) + 1) % 4) for i in range(4))
        ),
    )
    for row in rows([0.9] * 8)
)


def run(name: str, class_names: Sequence[str], held: Sequence[Row] = TURNING) -> Run:
    noisy = {
        "estimator": "mc",
        "noise": "gaussian",
        "level_name": "sigma",
        "level": 0.1,
        "value": 0.9,
        "lower": 0.8,
        "upper": 1.0,
    }
    made = hand_made(held, name=name, noisy_accuracy=[noisy])
    return replace(made, info=changed(made.info, data={"class_names": [*class_names]}))


@pytest.mark.parametrize("section", ["classes", "confusion"])
def test_names_that_differ_by_an_underscore_are_one_class(section: str) -> None:
    shown = section_of(section)
    runs = [run("a", NAMES), run("b", UNDERSCORES)]
    request = SectionRequest()
    (table, *_) = shown.tables(shown.find(runs, request), request)
    assert [row[0].text for row in table.rows] == [*NAMES]
    assert all(cell.text != "-" for row in table.rows for cell in row)


def moved(held: Sequence[Row]) -> list[Row]:
    """The rows of a network whose classes have other indices."""
    return [replace(row, label=(row.label or 0) ^ 1, predicted=row.predicted ^ 1) for row in held]


@pytest.mark.parametrize("section", ["classes", "confusion"])
def test_other_classes_are_refused(section: str, golden: Golden) -> None:
    runs = [run("a", NAMES), run("b", UNDERSCORES, moved(TURNING))]
    with golden.raises(RunError):
        section_of(section).find(runs, SectionRequest())


def test_a_page_has_the_classes_of_the_first_run_only() -> None:
    content = gather([run("a", NAMES), run("b", UNDERSCORES, moved(TURNING))])
    assert "b: other classes than a, so not beside it by class" in content.problems
    part: Any = content.part("classes")
    assert {entry.name for entry in part.entries} == {"a"}
    assert {entry.name for entry in (content.part("summary") or part).entries} == {"a", "b"}


def test_some_corrected_labels_are_no_other_classes() -> None:
    corrected = [replace(TURNING[0], label=1), *TURNING[1:]]
    section_of("classes").find([run("a", NAMES), run("b", NAMES, corrected)], SectionRequest())
