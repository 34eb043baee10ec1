"""Does the pilot end in time, however dear what the spec names, and are its laws possible?"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import robaudit
from robaudit.auditing import Ready, prepare
from robaudit.errors import RobauditError
from robaudit.planning import pilot as pilots
from robaudit.planning.levels import DRAWS, Level
from robaudit.planning.limits import TooLongError, grown, within
from robaudit.planning.others import _as_it_is
from robaudit.planning.pilot import pilot
from robaudit.planning.trials import Trial
from robaudit.progress import Silent
from tests.specs import digits, save_npz, write


class Slow(nn.Module):
    """A pass takes a hundredth of a second, and noise touches some images."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.linspace(-1, 1, 64 * 10).reshape(10, 64))

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.01)
        return x.flatten(1) @ self.weights.T


def ready(tmp_path: Path, estimators: list[object], model: nn.Module | None = None, **sections: object) -> Ready:
    spec = robaudit.load_spec(write(tmp_path, digits(limit=40, estimators=estimators, **sections)))
    return prepare(spec, None, "", model, None, torch.device("cpu"), Silent(), trust=False, skip_bad=True)


@pytest.mark.slow
def test_what_is_too_dear_is_left_out_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitting passes thousands of copies of an image, eight at a time here: a quarter of a minute. Taylor is still tried."""
    monkeypatch.setattr("robaudit.estimators.engine.Engine.rows", lambda *_: 8)
    monkeypatch.setattr(pilots, "_LEAST_OTHERS", 3.0)
    audit = ready(tmp_path, [{"auto": {"rare": True}}, {"splitting": {"particles": 2000, "label": "dear"}}, "taylor"], Slow())
    started = time.perf_counter()
    found = pilot(audit, 0.5)
    assert time.perf_counter() - started < 30
    assert "taylor" in {family.name for family in found.families}
    assert "splitting" not in {family.name for family in found.families}
    assert "auto" not in {family.name for family in found.families} or len(found.notes) == 1
    assert any(text.startswith(("dear is left out: one image takes longer than the ", "auto is left out")) for text in found.notes), found


def test_what_is_tried_on_fewer_than_four_images_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single image that noise does not touch says of any estimator that it is exact."""
    monkeypatch.setattr("robaudit.planning.others.grown", lambda model, attempt, most, first, seconds: (attempt(1), 1))
    found = pilot(ready(tmp_path, ["taylor"]), 0.2)
    assert {family.name for family in found.families} == {"logit_gaussian", "mc"}
    assert found.notes == ["taylor is left out: only 1 of 4 images could be tried in the time there is, too few to judge it by"]


def test_growing_stops_where_the_time_ends() -> None:
    model, counts = nn.Identity(), []

    def attempt(count: int) -> int:
        counts.append(count)
        for _ in range(count):
            model(torch.zeros(1))
            time.sleep(0.02)
        return count

    assert grown(model, attempt, 6, 10.0, 10.0) == (6, 6)
    assert counts == [1, 4, 6]
    started = time.perf_counter()
    found = grown(model, attempt, 10_000, 10.0, 0.5)
    assert found is not None
    assert 1 <= found[0] <= 25
    assert time.perf_counter() - started < 2
    assert grown(model, attempt, 100, 10.0, 0.0) == (4, 4), "up to four the other limit counts"


def test_an_attempt_is_interrupted_and_the_network_is_left_as_it_was() -> None:
    model = nn.Identity()

    def endless(count: int) -> int:
        while True:
            model(torch.zeros(count))

    assert grown(model, endless, 8, 0.05, 0.05) is None
    assert not model._forward_pre_hooks
    with pytest.raises(TooLongError), within(model, -1.0):
        model(torch.zeros(1))
    model(torch.zeros(1))


def trials(values: list[float], other: list[float]) -> Trial:
    return Trial(np.array(values), np.array(other), DRAWS, 0.01)


shares = st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=2, max_size=20)


@settings(max_examples=60, deadline=None)
@given(shares, st.floats(0, 0.5))
def test_no_image_errs_less_than_the_mean(images: list[tuple[float, float, float]], shift: float) -> None:
    """Images that all err the same way, and votes whose own variance explains most of it."""
    a, b, votes = ([one[i] for one in images] for i in range(3))
    level = Level(
        a=trials(a, [1e-4] * len(a)),
        b=trials(b, [1e-4] * len(a)),
        slow=trials(a, a),
        votes=trials(votes, a),
        mc_slow=None,
        wide=trials(votes, a),
    )
    for family in pilots._sampled({0.1: level}):
        law = family.laws[0.1]
        assert law.systematic >= law.bias**2
    shifted = _as_it_is(trials([max(0.0, x - shift) for x in a], a), level)
    assert shifted.systematic >= shifted.bias**2


def test_a_shift_that_chance_explains_for_each_image_is_still_the_images_error() -> None:
    """Thirty values are .04 too high: within the scatter of one vote count, not within that of their mean."""
    n = 30
    level = Level(
        a=trials([0.54] * n, [1e-4] * n),
        b=trials([0.54] * n, [1e-4] * n),
        slow=trials([0.54] * n, [1e-4] * n),
        votes=trials([0.5] * n, [0.0] * n),
        mc_slow=None,
        wide=trials([0.5] * n, [0.0] * n),
    )
    law = pilots._sampled({0.1: level})[0].laws[0.1]
    assert law.bias == pytest.approx(0.04)
    assert law.systematic == pytest.approx(0.04**2)


def test_one_usable_image_is_refused(tmp_path: Path) -> None:
    save_npz(tmp_path / "x.npz", count=2, labels=[0, 99])
    audit = ready(tmp_path, ["taylor"], dataset={"kind": "npz", "path": "x.npz"})
    with pytest.raises(RobauditError, match="a plan needs 2 usable images, and there is 1; give it more"):
        pilot(audit, 0.2, skip_bad=True)
