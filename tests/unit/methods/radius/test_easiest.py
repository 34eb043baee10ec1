"""Errors on the easiest images: order, means and what is put last."""

from __future__ import annotations

import numpy as np
import pytest

from robaudit.errors import RunError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.methods.radius.easiest import easiest_errors, error_by_share
from robaudit.quantities import DIFFICULTY, Interval
from robaudit.results import Votes
from robaudit.runs.rows import Row
from tests.golden import Golden
from tests.radius_rows import row, run_of

RAIN = [NoiseLevel("rain", float(severity), LevelName.SEVERITY) for severity in (1, 2)]
SNOW = [NoiseLevel("snow", 1.0, LevelName.SEVERITY)]
EASE = (0.5, 3.0, -1.0, 2.0)
"""Of four images; the third is misclassified."""


def counted(index: int, at: NoiseLevel, hits: int, estimator: str = "mc") -> Row:
    wrong = EASE[index] < 0
    about = {
        "estimator": estimator,
        "quantity": "p_robust",
        "interval": Interval.parse("clopper-pearson"),
        "lower": 0.0,
        "upper": 1.0,
    }
    return row(
        index,
        hits / 10,
        at,
        votes=Votes((hits, 10 - hits)),
        predicted=int(wrong),
        correct=not wrong,
        **about,
    )


def difficulty(index: int) -> Row:
    return row(
        index,
        EASE[index],
        estimator="difficulty",
        quantity=DIFFICULTY.name,
        correct=EASE[index] > 0,
    )


HITS = {0: 6, 1: 10, 2: 1, 3: 9}
ROWS = [
    *(
        counted(i, at, max(0, hits - 2 * k))
        for i, hits in HITS.items()
        for k, at in enumerate(RAIN)
    ),
    *(counted(i, SNOW[0], hits - 1) for i, hits in HITS.items()),
    *map(difficulty, range(4)),
]
LABEL = [{"name": "difficulty", "options": {"target": "label"}}]


def test_the_easiest_come_first() -> None:
    found = easiest_errors(run_of(ROWS, LABEL))
    assert (found.estimator, found.levels, found.images, found.clean, found.last) == (
        "mc",
        tuple(RAIN),
        4,
        0.25,
        0,
    )
    assert found.errors[:, 0] == pytest.approx([0.0, 0.1, 0.4, 0.9])  # images 1, 3, 0, 2
    assert found.errors[:, 1] == pytest.approx([0.2, 0.3, 0.6, 1.0])
    assert found.kept()[:, 0] == pytest.approx(np.cumsum([0.0, 0.1, 0.4, 0.9]) / np.arange(1, 5))
    assert found.others == 1  # snow


def test_misclassified_images_without_a_known_loss_are_last() -> None:
    relative_to_predicted = easiest_errors(run_of(ROWS))
    assert relative_to_predicted.last == 1
    assert relative_to_predicted.errors[-1, 0] == pytest.approx(0.9)


def test_mean_over_noises_and_severities() -> None:
    curve = error_by_share(run_of(ROWS, LABEL))
    assert curve.labels == ("rain", "snow")
    rain = np.array([0.1, 0.2, 0.5, 0.95])
    snow = np.array([0.1, 0.2, 0.5, 1.0])
    assert curve.by_noise[0] == pytest.approx(rain.cumsum() / np.arange(1, 5))
    assert curve.mean == pytest.approx(((rain + snow) / 2).cumsum() / np.arange(1, 5))
    assert curve.shares.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert all(ends[0] <= ends[1] for _, ends in curve.band)
    whole = dict(curve.band)[1.0]
    assert whole[0] <= curve.mean[-1] <= whole[1]


def test_what_is_lacking(golden: Golden) -> None:
    with pytest.raises(RunError) as caught:
        easiest_errors(run_of([difficulty(0)]))
    golden(caught.value)
    with pytest.raises(RunError) as caught:
        easiest_errors(run_of(ROWS[:4]))
    golden(caught.value)
    plain = [counted(0, NoiseLevel("gaussian", 0.1, LevelName.SIGMA), 5), difficulty(0)]
    with pytest.raises(RunError) as caught:
        error_by_share(run_of(plain))
    golden(caught.value)
