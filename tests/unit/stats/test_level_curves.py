"""Curves over the noise level agree with the summaries, from weak to strong."""

from __future__ import annotations

import pytest

from robaudit.errors import RunError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.quantities import P_ROBUST, Interval
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.stats.level_curves import level_curves
from tests.golden import Golden
from tests.radius_rows import radius, row, run_of
from tests.rows import summarise

SIGMAS = [NoiseLevel("gaussian", sigma, LevelName.SIGMA) for sigma in (0.2, 0.1)]
PHOTONS = [NoiseLevel("photon", number, LevelName.PHOTONS) for number in (100.0, 1000.0)]


def counted(index: int, at: NoiseLevel, hits: int, estimator: str = "mc") -> Row:
    about = {
        "estimator": estimator,
        "quantity": P_ROBUST.name,
        "interval": Interval.parse("clopper-pearson"),
        "lower": 0.0,
        "upper": 1.0,
    }
    return row(index, hits / 10, at, votes=Votes((hits, 10 - hits)), **about)


RUN = run_of(
    [
        *(counted(i, at, 9 - i - k) for i in range(3) for k, at in enumerate([*SIGMAS, *PHOTONS])),
        radius(0, 1.0),
    ]
)


def test_points_are_the_summaries_from_weak_to_strong() -> None:
    gaussian, photon = level_curves(RUN)
    assert [point.key.at.level for point in gaussian] == [0.1, 0.2]
    assert [point.key.at.level for point in photon] == [1000.0, 100.0]
    groups = {group.key.at: group for group in summarise(RUN.rows, RUN.quantities)}
    assert [*gaussian, *photon] == [groups[point.key.at] for point in (*gaussian, *photon)]


def test_choices_and_refusals(golden: Golden) -> None:
    (only,) = level_curves(RUN, ["mc"], [0.1])
    assert [point.key.at for point in only] == [SIGMAS[1]]
    with pytest.raises(RunError) as error:
        level_curves(run_of([radius(0, 1.0)]))
    golden(error.value)
    with pytest.raises(RunError) as error:
        level_curves(RUN, ["mmse"])
    golden(error.value)
