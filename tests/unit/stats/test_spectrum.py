"""The results of a run side by side: bands, order, and what is known of the clean image."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from robaudit.errors import NothingLeftError, RunError
from robaudit.levels import NoiseLevel
from robaudit.quantities import DIFFICULTY, P_ROBUST, Band, Interval
from robaudit.results import Certificate, CleanImage
from robaudit.runs.rows import Row
from robaudit.stats.spectrum import SampleSpectrum, spectrum
from tests.golden import Golden
from tests.infos import changed
from tests.radius_rows import row
from tests.spectrum_rows import (
    BOX,
    SIGMA,
    STRONG,
    exact,
    flip,
    loss,
    made,
    proof,
    rare,
    tolerance,
    votes,
)


@pytest.mark.parametrize(
    ("one", "band"),
    [
        (votes(9, 10), Band.AVERAGE),
        (rare(-3.0), Band.AVERAGE),
        (loss(1.0, 10), Band.BETWEEN),
        (tolerance(0.1), Band.TOLERANCE),
        (flip(1.0), Band.FOUND),
        (exact(1.0), Band.EXACT),
        (proof(1.0), Band.CERTIFIED),
        (proof(1.0, at=SIGMA, stated=Certificate(p_lower=0.9)), Band.SMOOTHED),
        (proof(1.0, at=SIGMA), Band.SMOOTHED),
        (flip(1.0, at=SIGMA), Band.SMOOTHED),
        (row("7", 1.0, estimator="mine", quantity="brightness"), Band.OTHER),
    ],
)
def test_bands(one: Row, band: Band) -> None:
    run = made([one])
    quantities = [*run.info.document()["quantities"], {**P_ROBUST.document(), "name": one.quantity}]
    (line,) = spectrum(replace(run, info=changed(run.info, quantities=quantities))).lines
    assert line.band is band


def test_lines_go_from_the_average_to_what_is_proven() -> None:
    rows = [
        proof(0.1),
        flip(0.3),
        votes(9, 10, STRONG),
        votes(10, 10, BOX),
        votes(10, 10),
        loss(1.0, 10),
        proof(0.0, at=SIGMA),
    ]
    found = spectrum(made(rows))
    assert [line.key.estimator for line in found.lines] == [
        "mc",
        "mc",
        "mc",
        "qnorm_path:q=10",
        "radius_attack:norm=l2",
        "margin_radius:norm=l2",
        "margin_radius:norm=l2",
    ]
    assert [line.key.at for line in found.lines[:3]] == [SIGMA, STRONG, BOX]
    assert [line.band for line in found.lines] == sorted(line.band for line in found.lines)


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([votes(9, 10), flip(0.3), exact(0.2)], "radius_exact:norm=l2"),
        ([votes(9, 10), flip(0.1, "linf"), flip(0.3)], "radius_attack:norm=l2"),
        ([flip(0.4, name="radius_random"), flip(0.3)], "radius_attack:norm=l2"),
        ([votes(9, 10), flip(0.3, name="radius_random")], "radius_random:norm=l2"),
        ([tolerance(0.1), votes(9, 10)], "mc"),
        ([loss(1.0, 10), proof(0.1)], "margin_radius:norm=l2"),
    ],
)
def test_what_orders_the_images(rows: list[Row], name: str) -> None:
    assert spectrum(made(rows)).ranked_by.key.estimator == name


def test_the_least_robust_first() -> None:
    rows = [
        flip(radius, sample_id=name)
        for name, radius in (("b", 0.2), ("a", 0.2), ("c", 0.1), ("lost", math.nan), ("d", 0.9))
    ]
    assert [one.id for one in spectrum(made(rows)).samples] == ["c", "b", "a", "d", "lost"], (
        "equal ones as the run has them"
    )
    assert [one.id for one in spectrum(made(rows), 2).samples] == ["c", "b"]
    assert [one.id for one in spectrum(made(rows), ids=("d", "a", "d")).samples] == ["d", "a"]


def test_losses_are_ordered_from_the_highest() -> None:
    rows = [SampleSpectrum.from_rows([loss(value, 10)]).rows for value in (0.1, 2.0)]
    by_hand = [next(iter(one.values())) for one in rows]
    run = made([replace(one, sample_id=name) for one, name in zip(by_hand, "ab", strict=True)])
    assert [one.id for one in spectrum(run).samples] == ["b", "a"]


def test_margin_and_difficulty_are_those_of_the_clean_logits() -> None:
    easy = row(
        "7",
        3.0,
        NoiseLevel(),
        estimator="difficulty",
        quantity=DIFFICULTY.name,
        interval=Interval.parse("exact"),
        clean=CleanImage(2.0),
    )
    certificate = proof(0.1, clean=CleanImage(9.0))
    one = SampleSpectrum.from_rows([certificate, easy])
    assert (one.margin, one.difficulty) == (2.0, 3.0)
    other = SampleSpectrum.from_rows([certificate, flip(0.2, clean=CleanImage(4.0, 5.0))])
    assert (other.margin, other.difficulty) == (4.0, 5.0)
    assert SampleSpectrum.from_rows([certificate]).margin is None


def test_refusals(golden: Golden) -> None:
    with pytest.raises(NothingLeftError) as error:
        spectrum(made([]))
    golden(error.value)
    with pytest.raises(RunError) as unknown:
        spectrum(made([flip(0.1)]), ids=("x",))
    golden(unknown.value)
