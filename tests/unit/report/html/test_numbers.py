"""Every cell of a page's tables and its verdict against what the rows say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from robaudit.estimates import Estimate
from robaudit.quantities import NO_INTERVAL, Interval
from robaudit.report import numbers
from robaudit.report.html.content import Content, gather
from robaudit.report.html.render import page
from robaudit.report.html.verdict import glance
from robaudit.report.legends import certainties
from robaudit.report.sections import SectionRequest
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.stats.summary import GroupSummary
from tests.unit.engine.tools import known
from tests.unit.report.html.tools import Page, hand_made, rows

DRAWS = 20
IMAGES = 12
RIGHT = {
    0.1: [20, 19, 17, 18, 16, 20, 15, 19, 20, 20, 11, 20],
    0.3: [18, 9, 12, 15, 10, 20, 4, 14, 20, 17, 6, 19],
}
NAMES = ["ant", "bee", "cow"]


def _mc(sigma: float) -> list[Row]:
    """By votes; image 10 is predicted to be of another class than it is."""
    found = []
    for i, row in enumerate(
        rows([count / DRAWS for count in RIGHT[sigma]], classes=3, level=sigma)
    ):
        wrong = i == 10
        count = RIGHT[sigma][i]
        predicted = (i + 1) % 3 if wrong else i % 3
        votes = [0, 0, 0]
        votes[predicted], votes[(predicted + 1) % 3] = count, DRAWS - count
        made = replace(
            row,
            predicted=predicted,
            correct=not wrong,
            votes=Votes(tuple(votes)),
            forwards=21 + i,
            backwards=3,
        )
        found.append(
            replace(made, lower=max(0.0, row.value - 0.15), upper=min(1.0, row.value + 0.05))
        )
    return found


def _others(sigma: float) -> list[Row]:
    """taylor without intervals, and log10 of a probability with crooked ones, of the same
    images."""
    values = [0.9 - 0.02 * i * (1 + sigma) for i in range(IMAGES)]
    taylor = rows(
        values,
        classes=3,
        level=sigma,
        estimator="taylor",
        lower=None,
        upper=None,
        interval=NO_INTERVAL,
        forwards=1,
        backwards=2,
    )
    logs = [-3.0 - 0.5 * (i % 3) - 0.01 * i + sigma for i in range(IMAGES)]
    split = rows(
        logs,
        classes=3,
        level=sigma,
        estimator="splitting",
        quantity="log10_p_fail",
        interval=Interval.parse("lognormal:4 repeats"),
    )
    crooked = [
        replace(row, lower=row.value - 0.8, upper=row.value + 0.3, forwards=5000 + 7 * i)
        for i, row in enumerate(split)
    ]
    return [*taylor, *crooked]


@pytest.fixture(scope="module")
def made() -> Run:
    found = [row for sigma in RIGHT for row in (*_mc(sigma), *_others(sigma))]
    found.sort(key=lambda row: int(row.sample_id))  # as a run has them
    data = {"where": "gone.npz", "class_names": NAMES, "labelled": IMAGES, "sha256": "1" * 64}
    seconds = {
        "mc@gaussian:sigma=0.1": 6.0,
        "taylor@gaussian:sigma=0.1": 0.24,
        "splitting@gaussian:sigma=0.3": 2400.0,
    }
    clean = {"value": 11 / 12, "count": 11, "total": 12, "lower": 0.6152, "upper": 0.9979}
    return hand_made(found, data=data, seconds=seconds, clean_accuracy=clean)


@pytest.fixture(scope="module")
def said(made: Run) -> Content:
    return gather([made])


@pytest.fixture
def found(said: Content, without_pictures: None) -> Page:
    return Page.of(page(said, images=False)[0])


def _down(value: float, digits: int) -> float:
    return float(math.floor(round(value * 10**digits, 6)) / 10**digits)


def _ends(lower: float | None, upper: float | None) -> str:
    """An interval, rounded outwards."""
    return (
        "–"
        if lower is None or upper is None
        else f"[{_down(lower, 3):.3f}, {-_down(-upper, 3):.3f}]"
    )


def _percents(one: Estimate) -> str:
    return (
        f"{100 * one.value:.1f}% [{_down(100 * known(one.lower), 1):.1f}%, "
        f"{-_down(-100 * known(one.upper), 1):.1f}%]"
    )


def _half_up(value: float) -> str:
    """Three decimals; 0.0625 is 0.063, although its neighbour in binary may be smaller."""
    return f"{value + math.copysign(1e-9, value):.3f}"


def _groups(content: Content, quantity: str) -> list[GroupSummary]:
    return [group for group in content.views[0].groups if group.key.quantity == quantity]


def _values(run: Run, estimator: str, sigma: float) -> list[float]:
    return [row.value for row in run.rows if (row.estimator, row.at.level) == (estimator, sigma)]


def test_accuracy_and_robustness_by_level(found: Page, said: Content) -> None:
    heads, clean, *lines = found.tables["mc, gaussian noise"]
    assert heads == ["sigma", "accuracy", "right stays right", "wrong is repaired", "robustness"]
    assert clean[0] == "no noise"
    for line, sigma in zip(lines, RIGHT, strict=True):
        (group,) = [
            group
            for group in _groups(said, "p_robust")
            if (group.key.estimator, group.key.at.level) == ("mc", sigma)
        ]
        one = group.noisy_accuracy
        assert one is not None
        # no vote of image 10 is for its label
        assert one.value == pytest.approx((sum(RIGHT[sigma]) - RIGHT[sigma][10]) / (DRAWS * IMAGES))
        assert line == [
            f"{sigma:g}",
            _percents(one.population),
            _percents(known(one.stays_right)),
            _percents(known(one.repaired)),
            f"{group.mean.value:.3f} "
            f"{_ends(known(group.mean.population.lower), known(group.mean.population.upper))}",
        ]


@pytest.mark.parametrize("quantity", ["p_robust", "log10_p_fail"])
def test_robustness(found: Page, said: Content, made: Run, quantity: str) -> None:
    (table,) = [
        table for caption, table in found.tables.items() if caption.startswith(f"{quantity}: ")
    ]
    shares = ["< 0.5", "< 0.9"] if quantity == "p_robust" else []
    heads, *lines = table
    tail = "5th %ile" if shares else "95th %ile"
    assert heads == [
        "estimator",
        "sigma",
        "mean [95% interval]",
        "[these images]",
        "median",
        tail,
        *shares,
        "seconds",
    ]
    groups = _groups(said, quantity)
    assert len(lines) == len(groups)
    scale = groups[0].quantity
    for line, group in zip(lines, groups, strict=True):
        values = _values(made, group.key.estimator, group.key.at.number)
        mean = group.mean
        mark = "~" if group.key.estimator == "taylor" else ""
        assert line[:2] == [group.key.estimator, f"{group.key.at.level:g}"]
        assert (
            line[2] == f"{mark}{np.mean(values):.3f} "
            f"{_ends(known(mean.population.lower), known(mean.population.upper))}"
        )
        assert line[3] == _ends(mean.measured.lower, mean.measured.upper)
        assert line[4:6] == [
            numbers.quantile_estimate(one, scale.low, scale.high)
            for one in (group.median, group.bad_end)
        ]
        assert line[6:-1] == [
            numbers.share(one) for one in (group.below_half, group.below_ninety) if one is not None
        ]
        if group.below_half is not None and group.below_ninety is not None:
            assert group.below_half.count == sum(value < 0.5 for value in values)
            assert group.below_ninety.count == sum(value < 0.9 for value in values)
    assert [line[-1] for line in lines] == (["6.00", "0.24", "", ""] if shares else ["", "2,400"])


def test_the_other_tables_are_those_of_the_sections(found: Page, said: Content) -> None:
    for part in said.parts:
        for table in part.tables:
            if table.columns:
                lines = [
                    [column.head for column in table.columns],
                    *([numbers.signs(cell.text) for cell in row] for row in table.rows),
                ]
                assert found.tables[table.heading] == [
                    [text.replace("\xa0", " ") for text in line] for line in lines
                ]


@pytest.mark.parametrize(("estimator", "worst"), [("mc", "bee"), ("splitting", "ant")])
def test_the_weakest_class_at_a_glance(made: Run, estimator: str, worst: str) -> None:
    table = glance(gather([made], SectionRequest(estimators=(estimator,))))
    place = [column.head for column in table.columns].index("least robust class")
    values = [
        row.value
        for row in made.rows
        if (row.estimator, row.at.level) == (estimator, 0.1) and row.label == NAMES.index(worst)
    ]
    (seen,) = [row[place].text for row in table.rows if row[0].text == "sigma 0.1"]
    assert seen.startswith(f"{worst}: {_half_up(float(np.mean(values)))} [")


def test_a_class_without_a_name_is_called_one() -> None:
    table = glance(gather([hand_made(rows([0.2, 0.9] * 4, classes=2))]))
    assert any(cell.text.startswith("class 0: ") for row in table.rows for cell in row)


def test_certainties_add_up(without_pictures: None) -> None:
    """Two confirmed, one of them by sampling only; two whose interval contains the threshold, one
    without an interval; two more whose value is above it."""
    ends: Sequence[tuple[float, float | None, float | None]] = (
        (0.1, 0.0, 0.2), (0.2, 0.1, 0.3), (0.45, 0.3, 0.6), (0.46, 0.3, 0.6), (0.4, None, None),
        (0.55, 0.4, 0.7), (0.6, 0.45, 0.8), (0.9, 0.8, 1.0),
    )  # fmt: skip
    made = [
        replace(row, lower=low, upper=high)
        for row, (_, low, high) in zip(rows([v for v, _, _ in ends]), ends, strict=True)
    ]
    made[1] = replace(made[1], interval=Interval.parse("jackknife:approximate"))

    def told(some: Sequence[Row], most: int = 60) -> str:
        content = gather([hand_made(some)], most=most)
        (flagged,) = content.flagged(content.views[0])
        return certainties(flagged)

    for most in (60, 1):
        assert (
            told(made, most)
            == "1 confirmed, 1 approximate, 2 likely, 1 without an interval; 2 of the others "
            "undecided"
        )
        content = gather([hand_made(made)], most=most)
        assert "5 of 8 samples are below 0.5" in Page.of(page(content, images=False)[0]).text(
            "flagged"
        )
    assert told([made[0], made[-1]]) == "1 confirmed"
    assert told([made[5], made[-1]]) == "1 undecided"
