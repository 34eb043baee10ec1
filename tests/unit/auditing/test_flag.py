"""`flag`: images that are certain to lie on one side of it take no more copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robaudit import audit
from robaudit.auditing.main_loop import Ending, compute_missing, task_names
from robaudit.auditing.prepare import PreparedAudit, Request, prepare
from robaudit.auditing.rounds import Work, draws_of_rounds, looks_of, rounds_of
from robaudit.auditing.verification import verify
from robaudit.engine.registry import Task
from robaudit.numerics.intervals import clopper_pearson
from robaudit.numerics.looks import confidence_of_each
from robaudit.progress import Listener
from robaudit.quantities import LOSS, Interval
from robaudit.results import Votes
from robaudit.runs.rows import Row, bits_of_votes, decided
from robaudit.runs.run import Run
from robaudit.runs.state import State
from robaudit.spec.model import AuditSpec
from robaudit.stats.flags import Certainty
from robaudit.stats.reading import read_run
from tests.rows import ROW, flag
from tests.specs import digits, located
from tests.unit.auditing.coins import counted, flagged_coins
from tests.unit.engine.tools import build, known
from tests.unit.numerics.test_looks import misses

FLAG = 0.5
MOST = 256
SIGMA = 0.45


def spec_of(folder: Path, *, name: str = "spec", **sections: Any) -> AuditSpec:
    document = digits(
        **{
            "limit": 24,
            "noise": {"sigma": [SIGMA]},
            "estimators": [{"mc": {"draws": MOST}}],
            **sections,
        }
    )
    return located(document, folder, name)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with all copies of each image."""
    folder = tmp_path_factory.mktemp("full")
    return read_run(audit(spec_of(folder), out=folder / "run").path, kept=True)


@pytest.fixture(scope="module")
def flagged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same run with a flag."""
    folder = tmp_path_factory.mktemp("flagged")
    return read_run(audit(spec_of(folder, flag=FLAG), out=folder / "run").path, kept=True)


def kept_of(row: Row) -> Sequence[int]:
    """How many of the first copies kept the class, for each number of copies."""
    bits = bits_of_votes(known(row.votes), row.predicted)
    assert bits is not None
    return [0, *np.cumsum(bits).tolist()]


def test_an_image_stops_at_the_first_round_that_decides_it(flagged: Run) -> None:
    each = confidence_of_each(0.95, looks_of(MOST))
    for row in flagged.rows:
        kept = kept_of(row)
        draws = row.forwards - 1
        assert draws in draws_of_rounds(MOST)
        for looked in draws_of_rounds(draws):
            lower, upper = clopper_pearson(kept[looked], looked, each)
            is_decided = bool(lower >= FLAG or upper < FLAG)
            assert is_decided == (looked == draws) or looked == draws == MOST
        assert (row.lower, row.upper) == (float(lower), float(upper))
        assert row.interval == Interval.parse("confidence-sequence")
        assert row.value == kept[draws] / draws
    assert {row.forwards - 1 for row in flagged.rows} >= {8, 32, MOST}


def test_its_copies_are_the_first_of_a_fixed_number(flagged: Run, full: Run) -> None:
    for row, of_all in zip(flagged.rows, full.rows, strict=True):
        kept = kept_of(row)
        assert kept == kept_of(of_all)[: len(kept)]
        assert row.predicted == of_all.predicted


def test_the_same_images_are_confirmed(flagged: Run, full: Run) -> None:
    """By less than half of the copies, although many images lie near the flag."""
    confirmed = [
        {
            sample.id
            for sample in flag(run.rows, below=FLAG).samples
            if sample.certainty is Certainty.CONFIRMED
        }
        for run in (flagged, full)
    ]
    assert confirmed[0] == confirmed[1]
    assert len(confirmed[0]) >= 3
    assert flagged.info.totals.forwards < full.info.totals.forwards / 2


# --- sessions


def lines_of(state: State) -> list[str]:
    return [line for sample in state.results() for line in sample.lines]


def ready(folder: Path) -> PreparedAudit:
    spec = spec_of(folder, noise={"sigma": [0.3, SIGMA]}, flag=FLAG)
    return prepare(Request(spec), torch.device("cpu"), Listener())


def session(state: State, opened: PreparedAudit, rounds: int | None = None) -> Ending:
    """A session that ends after so many rounds that were not there before."""
    state.begin(opened.data, task_names(opened.tasks))
    reported = 0

    def after_round(is_last: bool) -> bool:
        nonlocal reported
        reported += 1
        return rounds is not None and reported >= rounds

    return compute_missing(
        state,
        opened.data,
        opened.tasks,
        opened.worker(),
        Listener(),
        rounds=rounds_of(opened.tasks),
        after_round=after_round,
        flag=opened.spec.flag,
    )


def test_a_run_is_the_same_in_however_many_sessions(tmp_path: Path) -> None:
    opened = ready(tmp_path)
    with State() as state:
        assert session(state, opened) is Ending.COMPLETE
        at_once = lines_of(state)
    path = tmp_path / "state.db"
    sessions = 0
    ending = Ending.ENOUGH
    while ending is Ending.ENOUGH:
        with State.create(path, lambda: None) as state:
            # The round that a session ended with is reported again by the next.
            ending = session(state, opened, rounds=2 if sessions else 1)
            lines = lines_of(state)
        sessions += 1
    assert ending is Ending.COMPLETE
    assert sessions > 4
    assert lines == at_once


# --- what holds


@pytest.mark.parametrize("p", [0.003, 0.45, 0.5, 0.62, 0.97])
@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_intervals_hold_at_all_rounds_together(p: float, threshold: float) -> None:
    images = 500
    found = flagged_coins(p, threshold, 1000, images, [3, round(1000 * p)])
    error = math.sqrt(0.95 * 0.05 / images)
    assert found.held.mean() >= 0.95 - 3 * error
    above = (found.lower >= threshold).mean()
    below = (found.upper < threshold).mean()
    assert (below if p >= threshold else above) <= 0.05 + 3 * error
    is_decided = (found.lower >= threshold) | (found.upper < threshold)
    assert (is_decided | (found.draws == 1000)).all()


@pytest.mark.parametrize("most", [1, 2, 7, 8, 9, 16, 100, 1000])
def test_intervals_miss_at_any_round_no_more_often_than_stated(most: int) -> None:
    """Exactly, at all rounds, although the first takes no part of the error.

    Between two ends of intervals the probability of a miss has no jump.
    """
    rounds = draws_of_rounds(most)
    each = confidence_of_each(0.95, looks_of(most))
    ends = [clopper_pearson(np.arange(draws + 1), draws, each) for draws in rounds]
    jumps = np.unique(np.concatenate([np.concatenate(pair) for pair in ends]))
    jumps = jumps[(jumps > 0) & (jumps < 0.5)]
    beside = [jumps[:: max(1, len(jumps) // 150)], jumps[:20]]
    rates = np.concatenate(
        [np.geomspace(1e-6, 0.5, 150), *beside, *(x * (1 + 1e-9) for x in beside)]
    )
    # Counts of 1 - p mirror those of p.
    assert max(misses(rounds, ends, p) for p in rates.tolist()) <= 0.05


def test_eight_equal_copies_of_a_thousand_decide_at_one_half() -> None:
    each = confidence_of_each(0.95, looks_of(1000))
    assert clopper_pearson(8, 8, each)[0] >= 0.5
    assert clopper_pearson(0, 8, each)[1] < 0.5


# --- what does not change


def test_other_estimators_and_noise_that_never_varies(tmp_path: Path) -> None:
    sections = {
        "limit": 6,
        "noise": [{"sigma": [SIGMA]}, {"kind": "corruption", "name": "contrast", "severity": [3]}],
        "estimators": [{"mc": {"draws": 20}}, {"logit_gaussian": {"draws": 16}}, "softmax"],
    }
    plain, with_flag = (
        audit(spec_of(tmp_path, name=name, **sections, **keys), out=tmp_path / name)
        for name, keys in (("plain", {}), ("with-flag", {"flag": FLAG}))
    )
    same = [
        (before, now)
        for before, now in zip(plain.rows, with_flag.rows, strict=True)
        if before.estimator != "mc" or before.noise != "gaussian"
    ]
    assert any(row.estimator == "mc" and row.interval.text == "exact" for row, _ in same)
    for before, now in same:
        assert before == now


class Losses(type(build("mc"))):  # type: ignore[misc]
    """Copies in rounds whose values are no probabilities of staying robust."""

    quantity = LOSS


def test_a_flag_is_about_p_robust() -> None:
    results = [counted(Votes((0, 64)))]
    work = Work(Task(Losses(draws=100), "losses"), 0, 64, FLAG)
    assert work.at_look(results, [0]) == results


def test_an_interval_of_a_single_look_decides_nothing() -> None:
    """It would be wrong more often, if an image could stop after any of several."""
    work = Work(Task(build("mc", draws=100), "mc"), 0, 16, FLAG)
    row = replace(ROW, value=0.0, lower=0.0, upper=0.1, votes=Votes((0, 16)))
    assert not decided(row, FLAG)
    assert work.open_draws(row) == 16
    assert work.open_draws(replace(row, interval=Interval.parse("confidence-sequence"))) is None


@pytest.mark.parametrize(("ends", "is_decided"), [((0.5, 1.0), True), ((0.0, 0.5), False)])
def test_the_flag_itself_counts_as_above(ends: tuple[float, float], is_decided: bool) -> None:
    row = replace(ROW, interval=Interval.parse("confidence-sequence"), lower=ends[0], upper=ends[1])
    assert decided(row, 0.5) == is_decided


# --- verification


def test_a_run_with_a_flag_is_verified(flagged: Run) -> None:
    found = verify(flagged, None)
    assert found.good
    assert found.identical == found.rows == len(flagged.rows)
