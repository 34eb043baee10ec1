"""Every interval that is claimed covers: nominal minus two binomial errors at the least, or it is
documented to fall short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from tests.research.coverage import audits, counts, networks
from tests.research.coverage.study import NOMINAL, PROBABILITIES, Line
from tests.research.coverage.subjects import subject

PAIRS = [
    (setting, curve) for setting, (_, _, curves) in networks.SETTINGS.items() for curve in curves
]
FEW = 300


def check(lines: Iterable[Line]) -> None:
    for line in lines:
        assert line.holds or (
            line.exempt and line.covered >= networks.FEW_FLOOR - (NOMINAL - line.floor)
        ), line
        assert 0 < line.width <= 1, line


@pytest.mark.parametrize(
    ("part", "cases"),
    [(counts.fixed, FEW), (counts.flagged, FEW), (counts.means, 15), (networks.votes, FEW)],
)
@pytest.mark.parametrize("p", [0.01, 0.9])
def test_some_cases(part: Callable[[float, int], Iterator[Line]], cases: int, p: float) -> None:
    check(part(p, cases))


@pytest.mark.parametrize("p", [0.01, 0.9])
def test_some_sequences(p: float) -> None:
    check(counts.sequences(p, FEW, horizon=300))


@pytest.mark.parametrize(
    ("setting", "curve"), [("logit_gaussian", networks.GENTLE), ("mmse in pairs", networks.GENTLE)]
)
def test_some_jackknives(setting: str, curve: networks.Curve) -> None:
    check(networks.jackknife(setting, curve, 0.9, FEW))


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [counts.fixed, counts.sequences, counts.flagged, counts.means, networks.votes]
)
@pytest.mark.parametrize("p", PROBABILITIES)
def test_counts(part: Callable[[float], Iterator[Line]], p: float) -> None:
    check(part(p))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "curve"), PAIRS, ids=lambda x: x if isinstance(x, str) else x.name
)
@pytest.mark.parametrize("p", PROBABILITIES)
def test_jackknives(setting: str, curve: networks.Curve, p: float) -> None:
    check(networks.jackknife(setting, curve, p))


@pytest.mark.slow
def test_no_verdict_rests_on_an_approximation() -> None:
    """A ReLU network whose normal fit is biased: gates at the truth are wrong at most 2.5 % of the
    time each way."""
    found = list(audits.study(subject("4 layers, ReLU", 100), 20, 10_000))
    for estimator in dict.fromkeys(one.estimator for one in found):
        some = [
            replace(one, width=0.0) for one in found if one.estimator == estimator and not one.rows
        ]
        if some:
            one = audits.together(some)
            assert max(one.up, one.down) <= 0.025 * one.cases + 3 * (0.025 * one.cases) ** 0.5, one
    for one in found:
        if one.rows and (one.estimator.startswith("mc") or one.estimator.endswith("its votes")):
            assert (
                max(one.up, one.down) <= 0.025 * one.cases + 4 * (0.025 * one.cases) ** 0.5 + 2
            ), one
