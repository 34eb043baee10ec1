"""Runs side by side: each is compared with the first as two runs are, or a line says that it cannot
be."""

from __future__ import annotations

from dataclasses import replace

from robaudit.compare.difference import compare
from robaudit.compare.side_by_side import comparisons, differences_from_first, not_compared
from robaudit.errors import RunError
from robaudit.runs.run import Run
from tests.infos import changed
from tests.unit.compare.tools import made, shares


def run(kept: int) -> Run:
    return made(shares([kept, kept + 1], 100), model=str(kept))


def with_clipped_noise(base: Run) -> Run:
    noise = [{"kind": "gaussian", "name": "gaussian", "clip": True}]
    return replace(base, info=changed(base.info, spec={**base.info.spec, "noise": noise}))


def test_each_further_run_is_compared_with_the_first_as_two_runs_are() -> None:
    runs = {"old": run(90), "new": run(80), "newest": run(70)}
    assert not_compared(runs) == ""
    found = comparisons(runs)
    assert list(found) == ["new", "newest"]
    for name, of_run in found.items():
        (group,) = compare(runs["old"], runs[name]).groups
        assert dict(of_run) == {(group.key.estimator, group.key.at): group}
    assert comparisons(runs)["new"] is found["new"], "computed once"


def test_runs_that_cannot_be_compared_are_named_and_have_no_differences() -> None:
    other_images = made(
        [replace(row, sample_id=f"other {row.sample_id}") for row in shares([90], 100)]
    )
    runs = {
        "old": run(90),
        "noisy": with_clipped_noise(run(80)),
        "apart": other_images,
        "new": run(70),
    }
    assert (
        not_compared(runs)
        == "noisy, apart: other images or other noise than old, so nothing is compared."
    )
    assert {name: bool(of_run) for name, of_run in comparisons(runs).items()} == {
        "noisy": False,
        "apart": False,
        "new": True,
    }


def test_runs_without_a_result_in_common_have_no_differences() -> None:
    def refuse(base: Run, new: Run) -> dict[str, float]:
        raise RunError(str(new.path), "has no losses")

    assert differences_from_first({"old": run(90), "new": run(80)}, refuse) == {"new": {}}
