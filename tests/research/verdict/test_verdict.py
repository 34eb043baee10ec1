"""Every part of the study on a few digits. No time is asserted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.research.verdict import command, gates, kills, lists, looks
from tests.research.verdict.pairs import Pair, pairs, truth_of, whole_truth_of
from tests.shared import needs_shared
from tests.specs import digits

IMAGES = 60


def pair(**more: Any) -> Pair:
    """The embedded network on its first digits."""
    sections = digits(limit=IMAGES, noise={"sigma": 0.4}, estimators=None)
    keys = {"truth_draws": 400, "whole_draws": 4, "repeats": 1, **more}
    return Pair("digits", sections, **keys)


def test_the_truth_is_computed_once(tmp_path: Path) -> None:
    first = truth_of(pair(), tmp_path)
    (folder,) = tmp_path.iterdir()
    written = (folder / "samples.json").stat().st_mtime_ns
    assert truth_of(pair(), tmp_path).values == first.values
    assert (folder / "samples.json").stat().st_mtime_ns == written
    assert len(first.values) == IMAGES
    assert first.worst_class <= first.mean <= 1


def test_the_population_is_the_whole_data_set(tmp_path: Path) -> None:
    of_all = whole_truth_of(pair(), tmp_path)
    (folder,) = tmp_path.iterdir()
    assert (folder / "samples.csv").read_text().count("\n") > 5 * IMAGES
    assert 0 < of_all < 1


@pytest.mark.parametrize(
    "question",
    [
        gates.Question("mean", 0.1),
        gates.Question("mean", 0.2, population=True),
        gates.Question("worst_class", 0.2),
    ],
    ids=lambda question: question.text,
)
def test_a_gate_beside_the_truth_is_decided_early(question: gates.Question, tmp_path: Path) -> None:
    line = gates.line(question, pair(), tmp_path)
    assert line is not None
    assert [verdict.found for verdict in line.verdicts] == ["pass", "fail"]
    assert line.all_passes == IMAGES * 1001
    assert line.largest_ratio < 0.5
    for verdict in line.verdicts:
        assert verdict.passes == verdict.images * (1 + verdict.draws)
    row = dict(zip(gates.HEADERS, line.row(), strict=True))
    assert row["right / open / wrong"] == "2 / 0 / 0"
    most, never = gates.targets(question, [line])
    assert never[-1] == "yes"
    assert most[0].endswith("median of passes")


def test_no_population_and_no_classes_without_enough_images(tmp_path: Path) -> None:
    few = pair(whole_draws=0, by_class=False)
    assert gates.line(gates.OF_POPULATION, few, tmp_path) is None
    assert gates.line(gates.WORST_CLASS, few, tmp_path) is None


def test_the_list_is_beside_that_of_all_copies(tmp_path: Path) -> None:
    line = lists.line(pair(), tmp_path, beside_all=True)
    assert line.confirmed <= IMAGES
    assert line.added == 0
    assert line.wrong == 0
    assert line.ratio < 1
    assert len(line.row()) == len(lists.HEADERS)


def test_a_watched_run_takes_all_of_its_looks(tmp_path: Path) -> None:
    mean, worst = looks.of_these_images(pair(), tmp_path, seeds=2, draws=40)
    assert (mean.audits, worst.audits) == (2, 2)
    assert mean.high + mean.low + worst.high + worst.low == 0
    assert mean.width < worst.width
    of_all = looks.of_the_population(pair(), tmp_path, seeds=2, images=IMAGES, draws=8)
    assert of_all.width > mean.width
    assert len(of_all.row()) == len(looks.HEADERS)


def test_errors_of_looks_are_counted() -> None:
    """Bounds of three audits around a truth of .5: one above it at its second look, one below at
    its first, and one that holds it and excludes thresholds on either side."""
    seen = [[(0.4, 0.7), (0.52, 0.6)], [(0.3, 0.45), (0.4, 0.6)], [(0.4, 0.6), (0.499, 0.501)]]
    found = looks.errors("these", seen, 0.5, (0.0, 0.01))
    assert (found.high, found.low) == (1, 1)
    # The first passes .51, the second fails .49.
    assert found.wrong == [2, 2]
    assert found.width == pytest.approx((0.08 + 0.2 + 0.002) / 3)


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_killed_runs_are_read_and_completed(again: bool, tmp_path: Path) -> None:
    found = kills.kills(pair().document(), tmp_path, 3, again=again)
    assert found.errors == []
    assert found.reads >= 3
    assert found.completed >= 1
    assert len(found.row()) == len(kills.HEADERS)


@pytest.mark.slow
def test_the_command_ends_with_the_verdict(tmp_path: Path) -> None:
    found = command.timed(pair(), tmp_path)
    assert [one.code for one in found] == [one.wanted for one in found] == [0, 1]
    assert len(found[0].row()) == len(command.HEADERS)


@needs_shared
def test_every_pair_has_a_spec() -> None:
    found = list(pairs())
    assert len(found) == 7
    for one in found:
        assert one.spec(subset=10).dataset.sample is not None
    assert [one.name for one in pairs("resnet20")] == ["cifar10_resnet20, sigma 0.05"]
