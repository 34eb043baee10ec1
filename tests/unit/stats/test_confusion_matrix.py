"""Which class turns into which: shares by hand, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robaudit.errors import RunError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.numerics.intervals import mean_interval
from robaudit.quantities import P_ROBUST, Interval
from robaudit.report.confusion_section import ConfusionSection
from robaudit.report.sections import SectionRequest
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.stats.confusion_matrix import confusions
from tests.golden import Golden
from tests.radius_rows import radius, row, run_of

AT = NoiseLevel("gaussian", 0.1, LevelName.SIGMA)


def counted(
    index: int,
    votes: tuple[int, ...],
    label: int | None,
    predicted: int = 0,
    interval: str = "clopper-pearson",
) -> Row:
    about = {
        "estimator": "mc",
        "quantity": P_ROBUST.name,
        "interval": Interval.parse(interval),
        "lower": 0.0,
        "upper": 1.0,
    }
    return row(
        index,
        votes[predicted] / 10,
        AT,
        votes=Votes(votes),
        label=label,
        predicted=predicted,
        correct=None,
        **about,
    )


ROWS = [counted(0, (8, 0, 2, 0), 0), counted(1, (4, 0, 6, 0), 0), counted(2, (0, 0, 10, 0), 2, 2)]


def test_shares_by_hand() -> None:
    (found,) = confusions(run_of([*ROWS, radius(0, 1.0)]))
    assert (found.by, found.classes, found.images) == ("predicted", (0, 2), (2, 1))
    assert np.asarray(found.shares) == pytest.approx(np.array([[0.6, 0.4], [0.0, 1.0]]))
    (turn,) = found.turns
    assert (turn.start, turn.to, turn.images) == (0, 2, 2)
    assert (turn.share, *turn.estimate.ends) == pytest.approx(
        (0.4, *mean_interval([0.2, 0.6], 0.0, 1.0))
    )


def test_what_is_wrong_without_noise_is_no_change() -> None:
    """An image that is misclassified and never flips."""
    wrong = counted(3, (0, 0, 10, 0), 0, 2)
    (found,) = confusions(run_of([*ROWS[1:], wrong]))
    assert [(turn.start, turn.to, turn.share) for turn in found.turns] == [(0, 2, 0.6)]
    (by_label,) = confusions(run_of([*ROWS[1:], wrong]), by="label")
    assert [(turn.start, turn.to, turn.share) for turn in by_label.turns] == [(0, 2, 0.8)]


def test_pairs_beyond_the_most_frequent_are_counted() -> None:
    rows = []
    for i in range(40):
        votes = [1] * 20
        votes[i % 20] = 5
        rows.append(counted(i, tuple(votes), i % 20, i % 20))
    (found,) = confusions(run_of(rows))
    assert (len(found.turns), found.pairs) == (100, 380)
    run = run_of(rows)
    section = ConfusionSection()
    request = SectionRequest()
    (table,) = section.tables(section.find([run], request), request)
    assert "... and 85 more pairs: --format csv has them." in table.notes
    assert "380 pairs in all; --format csv has the 100 largest." in table.notes


def test_turns_of_classes_with_a_single_image_are_in_csv_only() -> None:
    run = run_of([counted(0, (8, 2), 0), counted(1, (1, 9), 1, 1), counted(2, (1, 9), 1, 1)])
    section = ConfusionSection()
    request = SectionRequest()
    entries = section.find([run], request)
    (table,) = section.tables(entries, request)
    assert [row[0].text for row in table.rows] == ["1"]
    assert "1 pair of classes with a single image not shown: --format csv has them." in table.notes
    assert len(list(section.lines(entries[0], request))) == 2
    alone = section.find([run_of([counted(0, (8, 2, 0), 0)])], request)
    (table,) = section.tables(alone, request)
    assert not table.rows
    assert table.conclusions[0].text == "No class with two images or more turns into another."


def test_a_class_without_images_has_no_shares() -> None:
    (found,) = confusions(run_of([counted(0, (8, 1, 1), 0)]))
    assert found.images == (1, 0, 0)
    assert np.isnan(found.shares[1]).all()
    assert [(turn.to, turn.share) for turn in found.turns] == [(1, 0.1), (2, 0.1)]


def test_copies_without_a_class_count_as_copies() -> None:
    (found,) = confusions(run_of([replace(ROWS[0], votes=Votes((6, 2), lost=2))]))
    assert np.asarray(found.shares[0]) == pytest.approx(np.array([0.6, 0.2]))


def test_by_prediction(golden: Golden) -> None:
    unlabelled = [counted(0, (8, 2), None), counted(1, (3, 7), None, 1)]
    (found,) = confusions(run_of(unlabelled))
    assert found.by == "predicted"
    assert [turn.start for turn in found.turns] == [1, 0]
    (asked,) = confusions(run_of(ROWS), by="predicted")
    assert asked.images == (2, 1)
    with pytest.raises(RunError) as error:
        confusions(run_of(unlabelled), by="label")
    golden(error.value)


def test_without_votes_it_says_what_to_do(golden: Golden) -> None:
    adaptive = counted(0, (8, 2), 0, interval="confidence-sequence")
    for rows in ([radius(0, 1.0)], [adaptive]):
        with pytest.raises(RunError) as error:
            confusions(run_of(rows))
        golden(error.value)
