"""Two runs of the embedded networks, compared."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robaudit.compare.difference import compare
from robaudit.compare.gate_changes import QUANTITIES, decide
from robaudit.compare.result import GroupComparison
from robaudit.errors import RobauditError, RunError
from robaudit.gates.decide import Decision
from robaudit.runs.rows import Row, bits_of
from robaudit.runs.run import Run
from robaudit.spec.gate_grammar import parse_gate
from robaudit.stats.flags import Certainty
from robaudit.stats.reading import read_run
from tests.golden import Golden
from tests.infos import changed
from tests.states import change
from tests.unit.compare.conftest import Make
from tests.unit.compare.tools import width
from tests.unit.engine.tools import known

pytestmark = pytest.mark.families


def group_of(base: Run, new: Run, estimator: str = "mc", **options: Any) -> GroupComparison:
    return next(
        group for group in compare(base, new, **options).groups if group.key.estimator == estimator
    )


def rows_of(run: Run, estimator: str = "mc") -> list[Row]:
    return [row for row in run.rows if row.estimator == estimator]


def decided(
    base: Run, new: Run, *texts: str, population: bool = False, point: bool = False
) -> tuple[Decision, ...]:
    gates = [parse_gate(text, QUANTITIES, "--gate") for text in texts]
    return decide(compare(base, new), gates, population=population, point=point)


def test_one_run_against_itself_is_exactly_the_same(ordinary: Run) -> None:
    found = compare(ordinary, ordinary)
    assert found.matching.same_model
    assert found.clean_accuracy is not None
    for group in found.groups:
        assert group.how == "the same model"
        for one in (
            group.mean,
            *(one.difference for one in group.classes),
            *filter(None, [group.noisy_accuracy]),
        ):
            assert one.value == 0
            assert known(one.measured).ends == one.population.ends == (0, 0)
        assert (group.worse, group.better, group.changed) == (0, 0, ())
    gates = [f"{name}(estimator=mc) <= 0" for name in QUANTITIES if name != "accuracy_drop"]
    assert {one.verdict for one in decided(ordinary, ordinary, *gates, "accuracy_drop <= 0")} == {
        "pass"
    }


def test_identical_outcomes_of_another_model_are_no_proof(ordinary: Run) -> None:
    group = group_of(
        replace(ordinary, info=changed(ordinary.info, model={"sha256": "0" * 64})), ordinary
    )
    assert group.how == "common random numbers"
    assert group.mean.value == 0
    assert known(group.mean.measured).upper == pytest.approx(
        np.log(2 / 0.05) / (40 * 120), rel=0.01
    )
    info = changed(ordinary.info)
    info.spec["model"]["mean"] = [0.5]
    assert group_of(replace(ordinary, info=info), ordinary).how == "common random numbers", (
        "another normalisation is another model"
    )


def test_pairs_draw_by_draw(trained: Run, ordinary: Run) -> None:
    group = group_of(trained, ordinary)
    assert (group.how, group.draws, group.images) == ("common random numbers", 120, 40)
    bits = [
        np.array([bits_of(row) for row in rows_of(run)]).astype(int) for run in (trained, ordinary)
    ]
    change = bits[1] - bits[0]
    assert group.mean.value == pytest.approx(change.mean())
    apart = sum(one.mean(1) * (1 - one.mean(1)) for one in bits).sum()
    assert group.variance_saved == pytest.approx(1 - change.var(1).sum() / apart)
    assert known(group.variance_saved) > 0.05, (
        "two networks of one kind fail on the same noise more often than by chance"
    )
    lower, upper = known(known(group.mean.measured).bounds)
    assert lower < group.mean.value < upper
    per_class = {one.index: one for one in group.classes}
    labels = np.array([row.label for row in rows_of(trained)])
    assert {index: one.images for index, one in per_class.items()} == {
        int(k): int((labels == k).sum()) for k in np.unique(labels)
    }
    for index, one in per_class.items():
        assert one.difference.value == pytest.approx(change[labels == index].mean())
    drops = [one.difference.value for one in group.classes]
    assert drops == sorted(drops)


def test_accuracy_under_noise_is_paired_where_both_are_right(trained: Run, ordinary: Run) -> None:
    found = known(group_of(trained, ordinary).noisy_accuracy)
    assert found.measured is not None
    rows = [rows_of(run) for run in (trained, ordinary)]
    shares = [np.array([row.votes.counts[row.label] / 120 for row in side]) for side in rows]  # type: ignore[index, union-attr]
    assert found.value == pytest.approx((shares[1] - shares[0]).mean())
    lower, upper = known(found.measured.bounds)
    assert lower < found.value < upper
    apart = known(group_of(trained, read_run(ordinary.path)).noisy_accuracy)
    assert known(apart.measured).method == "unpaired, distances added: clopper-pearson:pooled"
    both = all(row.correct for side in rows for row in side)
    assert found.measured.method == (
        "paired draws"
        if both
        else "paired draws; unpaired, distances added: clopper-pearson:pooled"
    )
    assert width(found.measured) < width(known(apart.measured))


def test_turned_round_all_signs_turn(trained: Run, ordinary: Run) -> None:
    there = group_of(trained, ordinary)
    back = group_of(ordinary, trained)
    assert there.mean.value == -back.mean.value
    assert known(there.mean.measured).lower == pytest.approx(
        -known(known(back.mean.measured).upper), abs=1e-12
    )
    assert (there.worse, there.better) == (back.better, back.worse)
    assert there.flagged("newly flagged", *Certainty) == back.flagged("fixed", *Certainty)


def test_estimators_without_an_interval(trained: Run, ordinary: Run) -> None:
    group = group_of(trained, ordinary, "taylor")
    assert group.mean.measured is None
    assert group.compared == 0
    (one,) = decided(trained, ordinary, "mean_drop(estimator=taylor) <= 0.5")
    assert (one.verdict, one.estimate.covers, one.estimate.lower) == (
        "inconclusive",
        "nothing",
        None,
    )
    (one,) = decided(trained, ordinary, "mean_drop(estimator=taylor) <= 0.5", point=True)
    assert (one.verdict, one.estimate.covers, one.estimate.lower) == ("pass", "nothing", None)
    (counted,) = decided(trained, ordinary, "share_worse(estimator=taylor) <= 1", point=True)
    values = [
        np.array([row.value for row in rows_of(run, "taylor")]) for run in (trained, ordinary)
    ]
    assert counted.estimate.value == (values[1] < values[0]).mean()


def test_images_that_stop_at_a_flag_have_ends_that_add_up(make: Make) -> None:
    base = read_run(make("digits_cnn_noise", flag=0.5))
    new = read_run(make("digits_cnn", flag=0.5))
    group = group_of(base, new, "mc")
    assert group.how == "unpaired"
    rows = [rows_of(run, "mc") for run in (base, new)]
    lowest = np.mean([now.lower - before.upper for before, now in zip(*rows, strict=True)])
    assert known(group.mean.measured).lower == pytest.approx(lowest)


def test_results_of_one_run_only(trained: Run, ordinary: Run, golden: Golden) -> None:
    other = replace(
        trained,
        rows=[row if row.estimator == "mc" else replace(row, level=0.1) for row in trained.rows],
    )
    found = compare(other, ordinary)
    assert "only in the base run: taylor at sigma 0.1" in found.matching.warnings
    assert "only in the new run: taylor at sigma 0.3" in found.matching.warnings
    assert [group.key.estimator for group in found.groups] == ["mc"]
    with pytest.raises(RunError) as error:
        compare(
            ordinary, replace(ordinary, rows=[replace(row, level=0.7) for row in ordinary.rows])
        )
    golden(error.value)
    with pytest.raises(RunError) as error:
        compare(
            ordinary,
            replace(
                ordinary,
                rows=[replace(row, sample_id="x" + row.sample_id) for row in ordinary.rows],
            ),
        )
    golden(error.value)


@pytest.mark.parametrize("change", [{"clip": True}, {"kind": "blur"}, {"amount": 3}])
def test_other_noise_is_refused(change: dict[str, object], ordinary: Run, golden: Golden) -> None:
    info = changed(ordinary.info)
    info.spec["noise"][0] |= change
    with pytest.raises(RunError) as error:
        compare(ordinary, replace(ordinary, info=info))
    golden(error.value)


def test_another_image_under_one_id_is_left_out(
    tmp_path: Path, trained: Run, ordinary: Run
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(ordinary.path, folder)
    change(folder, "UPDATE samples SET digest = '00000000000000000000000000000000' WHERE id = 1")
    found = compare(trained, read_run(folder))
    assert len(found.matching.other_images) >= 1
    assert found.samples == 40 - len(found.matching.other_images)
    assert any("another image in each run" in text for text in found.matching.warnings)


def test_a_bound_on_one_side_leaves_the_difference_open(ordinary: Run) -> None:
    rows = [replace(row, votes=None) for row in rows_of(ordinary)]
    bounded = [replace(rows[0], value=rows[0].value - 1e-6, upper=None), *rows[1:]]
    above = group_of(replace(ordinary, rows=rows), replace(ordinary, rows=bounded))
    below = group_of(replace(ordinary, rows=bounded), replace(ordinary, rows=rows))
    for group, end, other in ((above, "upper", "lower"), (below, "lower", "upper")):
        for ends in (group.mean.measured, group.mean.population):
            assert ends is not None
            assert math.isinf(getattr(ends, end))
            assert math.isfinite(getattr(ends, other))
    assert above.document()["mean"]["measurement"]["upper"] is None


def test_flags_go_by_both_intervals(ordinary: Run) -> None:
    def at(value: float, half: float) -> Run:
        rows = [
            replace(row, value=value, lower=value - half, upper=value + half, votes=None)
            for row in rows_of(ordinary)[:1]
        ]
        return replace(ordinary, rows=rows)

    cases = [
        (0.9, 0.1, 0.05, "newly flagged", "confirmed"),
        (0.52, 0.48, 0.05, "newly flagged", "likely"),
        (0.1, 0.9, 0.05, "fixed", "confirmed"),
    ]
    for before, after, half, what, sure in cases:
        (one,) = group_of(at(before, half), at(after, half)).changed
        assert (one.flagged, one.certainty) == (what, sure)
    assert group_of(at(0.9, 0.05), at(0.7, 0.05)).changed[0].flagged == ""
    assert group_of(at(0.9, 0.05), at(0.89, 0.05)).changed == ()
    assert group_of(at(0.9, 0.05), at(0.7, 0.05), below=0.8).changed[0].flagged == "newly flagged"


@pytest.mark.parametrize(
    "gate",
    [
        "mean_drop <= 0.1",
        "mean_drop(estimator=mmc) <= 0.1",
        "accuracy_drop(sigma=0.3) <= 0.1",
        "noisy_accuracy_drop(estimator=taylor) <= 0.1",
    ],
)
def test_gates_that_cannot_be_decided(
    gate: str, trained: Run, ordinary: Run, golden: Golden
) -> None:
    with pytest.raises(RobauditError) as error:
        decided(trained, ordinary, gate)
    golden(error.value)
