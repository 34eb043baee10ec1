"""The picture of an image: what is drawn, and that nothing is hidden or overlaps."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from robaudit.errors import NothingLeftError
from robaudit.names import CERTIFIED_CLASS, P_LOWER
from robaudit.report.pictures import spectrum as module
from robaudit.report.pictures.kinds import drawn
from robaudit.report.pictures.page import Look, measured
from robaudit.report.pictures.spectrum import Mark, Point, Portrait, Tolerated, Vote, portrait_of, sketch
from robaudit.rows import Row
from robaudit.stats.spectrum import Sample
from robaudit.store.run import Run
from tests.spectrum_rows import BOX, SIGMA, STRONG, exact, flip, made, proof, rare, tolerance, votes

pytest.importorskip("matplotlib")
ROWS = (
    proof(0.04),
    proof(0.03, "linf", name="other"),
    flip(0.2),
    flip(0.05, "linf"),
    flip(0.5, name="radius_random"),
    votes(990, 1000),
    votes(700, 1000, STRONG),
    votes(1000, 1000, BOX),
    rare(-2.0),
    tolerance(0.15),
    proof(0.12, at=SIGMA, name="certified_radius", details={P_LOWER: 0.9}),
    flip(0.4, at=SIGMA, name="smoothed_attack", details={CERTIFIED_CLASS: 0}),
    proof(0.0, at=STRONG, name="certified_radius", details={P_LOWER: 0.4}),
)


@pytest.fixture(autouse=True)
def no_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs made by hand have no images."""
    monkeypatch.setattr(module, "_with_images", lambda made, run, trust: made)


def of(*rows: Row) -> tuple[Sample, Run]:
    return Sample.of(rows), made(rows)


def alone(*rows: Row) -> Portrait:
    sample, run = of(*rows)
    return portrait_of(run, sample)


def test_what_is_drawn() -> None:
    sample, run = of(*ROWS)
    found = portrait_of(run, sample)
    assert found.certified == Mark(0.04, "margin_radius:norm=l2")
    assert (found.attacked, found.random) == (Mark(0.2, "radius_attack:norm=l2"), Mark(0.5, "radius_random:norm=l2"))
    assert found.exact is None
    two = math.sqrt(4)
    assert [(point.at, point.value) for point in found.points] == [(SIGMA, 0.99), (STRONG, 0.7), (BOX, 1.0)]
    assert [point.size for point in found.points] == pytest.approx([0.1 * two, 0.3 * two, 0.1 * two / math.sqrt(3)])
    assert found.points[0].lower < 0.99 < found.points[0].upper
    (one,) = found.tolerated
    assert (one.kept, one.censored) == (0.95, False)
    assert (one.size, one.lower) == pytest.approx((0.3, 0.297))
    assert found.votes == (Vote(SIGMA, 0.12, 0.4), Vote(STRONG, 0.0, None))
    assert found.words == ("Radii in linf: other >= 0.0300, radius_attack <= 0.0500.", "log10 p_fail: -2.00 at sigma 0.1.")
    assert min(found.sizes) == 0.04
    assert max(found.sizes) == pytest.approx(0.6)


def test_a_certificate_in_another_norm_is_one_in_l2() -> None:
    assert alone(proof(0.1, "linf"), proof(0.05)).certified == Mark(0.1, "margin_radius:norm=linf")
    assert alone(proof(0.1, "l1"), proof(0.01)).certified == Mark(0.05, "margin_radius:norm=l1")


def test_one_result_at_each_level() -> None:
    loose = replace(votes(500, 1000), estimator="loose", interval=type(votes(1, 2).interval).parse("jackknife:approximate"))
    sample, run = of(loose, votes(990, 1000), votes(10, 1000, name="second"))
    (point,) = portrait_of(run, sample).points
    assert (type(point), point.value) == (Point, 0.99)


def test_a_tolerance_beyond_its_cap() -> None:
    beyond = replace(tolerance(0.5), lower=0.5, upper=None, interval=type(tolerance(1.0).interval).parse("censored"))
    (one,) = alone(beyond).tolerated
    assert (one.upper, one.censored) == (math.inf, True)
    assert isinstance(one, Tolerated)


def test_nothing_with_a_size() -> None:
    sample, run = of(flip(0.05, "linf"))
    with pytest.raises(NothingLeftError, match="none of its results has a size to draw"):
        portrait_of(run, sample)


SELECTIONS: list[tuple[Row, ...]] = [ROWS, ROWS[2:3], ROWS[5:6], ROWS[-3:], (*ROWS, exact(0.1)), (proof(1e-7), flip(10.0))]


@pytest.mark.parametrize(
    ("rows", "ending"),
    [
        (ROWS, "png"),
        *((rows, "svg") for rows in SELECTIONS),
        *(pytest.param(rows, "png", marks=pytest.mark.slow) for rows in SELECTIONS[1:]),
    ],
)
def test_the_same_bytes_every_time(rows: tuple[Row, ...], ending: str) -> None:
    sample, run = of(*rows)
    first = drawn(sketch(portrait_of(run, sample)), ending)
    assert first == drawn(sketch(portrait_of(run, sample)), ending)


@pytest.mark.parametrize("width", [4.5, 7.0, 12.0])
def test_the_legend_fits(width: float) -> None:
    look = Look(width)
    sample, run = of(*ROWS, exact(0.1))
    lines = module._places(portrait_of(run, sample), look)
    for line in lines:
        ends = [(x, x + 0.28 + measured(words, look.size)) for x, _, words in line]
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(ends))
        assert ends[-1][1] <= look.body + 1e-9
