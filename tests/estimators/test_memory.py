"""What estimators say they hold against what they take, and passes that are sized by what they were measured to take."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robaudit.estimators import engine
from robaudit.estimators.base import Estimate, Estimator
from robaudit.estimators.engine import Engine, Fitting, rows_by_rule
from robaudit.estimators.pilot import _fitting, fitting_passes, pass_bytes
from robaudit.estimators.sizes import frames
from robaudit.machine_memory import extra_peak
from robaudit.models import from_module
from robaudit.noise import GaussianNoise
from robaudit.noise.frames import orthogonal_frame
from tests.estimators.tools import SHAPE, build, curved, installed_estimators, work_on

CPU = torch.device("cpu")
MB = 10**6
ROOT = Path(__file__).resolve().parents[2]
measurable = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not count peaks")

SMALL, LARGE, HUGE = ((3, 32, 32), 10), ((3, 64, 64), 100), ((3, 128, 128), 1000)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {}),
    ("mc", {"samples": 4}),
    ("mc", {"tolerance": 0.001, "max_samples": 24}),
    ("logit_gaussian", {}),
    ("logit_gaussian", {"tolerance": 0.05, "max_samples": 128}),
    ("taylor", {}),
    ("taylor_mvs", {}),
    ("mmse", {}),
    ("mmse_mvs", {"samples": 32}),
    ("splitting", {"particles": 20, "moves": 1}),
    ("importance", {"particles": 20, "samples": 20, "moves": 2, "steps": 2}),
    ("auto", {"max_samples": 24}),
]
SOME = [CASES[i] for i in (2, 3, 7)]
MOST = {"splitting": 200}  # images: each takes so many passes
SEEN = 16 * MB  # the kernel counts a process's pages apart on each core and adds them up later: a MB or two is no measurement


def test_every_estimator_of_ours_is_measured() -> None:
    ours = {name for name, cls in installed_estimators().items() if cls.__module__.startswith("robaudit.")}
    assert ours == {name for name, _ in CASES}


def check(cases: list[tuple[str, dict[str, Any]]], shape: tuple[int, ...], classes: int, *, size: int, most: int, strict: bool) -> None:
    """Measure few images (``size`` bytes by the rule, ``most`` at most) and four times as many.

    Each image more takes a fifth at least of what is said, where that is enough to be seen or if strict; all together take no more.
    If strict each takes no more, either: that needs so many that what is taken once does not grow any more.
    """
    asked, said, counts = [], [], []
    for name, options in cases:
        estimator, values = installed_estimators()[name].model_validate(options), shape[0] * shape[1] * shape[2]
        held = estimator.held(classes, values)
        few = min(most, MOST.get(name, most) // (1 if strict else 4), max(2, size // held))
        asked.append(
            {"name": name, "options": options, "shape": shape, "classes": classes, "images": [few, 4 * few], "times": 1 if strict else 3}
        )
        counts.append(few)
        said.append((held, estimator.held_once(classes, values)))
    command = [sys.executable, "-m", "tests.estimators.peaks"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    for case, few, (held, once), (low, high) in zip(asked, counts, said, json.loads(done.stdout), strict=True):
        grown = (high - low) / (3 * few)
        assert held / 5 <= grown or (not strict and 3 * few * held < SEEN), (case, grown, held)
        assert grown <= held or not strict, (case, grown, held)
        assert high <= 4 * few * held + once, (case, high, held, once)


@measurable
def test_some_small_images() -> None:
    """One estimator of each kind; all of them, and more images, are slow tests."""
    check([case for case in CASES if case in SOME], *SMALL, size=8 * MB, most=1000, strict=False)


@measurable
@pytest.mark.slow
def test_small_images() -> None:
    check(CASES, *SMALL, size=32 * MB, most=4000, strict=True)


@measurable
@pytest.mark.slow
def test_large_images() -> None:
    check(CASES, *LARGE, size=48 * MB, most=4000, strict=True)


@measurable
@pytest.mark.slow
def test_huge_images() -> None:
    check([case for case in CASES if case[0] != "softmax"], *HUGE, size=96 * MB, most=400, strict=True)


@measurable
@pytest.mark.parametrize("side", [64, 128])
def test_a_frame_of_noise(side: int) -> None:
    taken = extra_peak(lambda: orthogonal_frame((3, side, side), torch.Generator().manual_seed(0)))
    kept = 2**26
    said = frames(3 * side * side) - kept
    assert taken is not None
    assert said / 5 <= taken <= said


@pytest.mark.parametrize("name", sorted(installed_estimators()))
@pytest.mark.parametrize(("classes", "values"), [(2, 64), (10, 3072), (100, 12288), (1000, 150528)])
def test_the_rule_for_plugins_is_safe(name: str, classes: int, values: int) -> None:
    """An estimator that says nothing is taken to hold more than any of ours does."""
    estimator = build(name)
    assert Estimator.held(estimator, classes, values) >= estimator.held(classes, values) > 0


def test_more_is_held_with_more_of_anything() -> None:
    for name in installed_estimators():
        estimator = build(name)
        assert estimator.held(10, 3072) <= estimator.held(20, 3072) <= estimator.held(20, 6144)
        assert estimator.held_once(10, 3072) <= estimator.held_once(20, 6144)
    assert build("mmse", samples=32).held(10, 3072) > build("mmse", samples=4).held(10, 3072)
    assert build("logit_gaussian", samples=128).held(10, 3072) > build("logit_gaussian", samples=64).held(10, 3072)


@pytest.mark.parametrize(("classes", "most"), [(4, None), (50, 8)])
@pytest.mark.parametrize("name", ["mc", "softmax", "taylor_mvs", "mmse_mvs"])
def test_smaller_chunks_change_no_bit(name: str, classes: int, most: int | None) -> None:
    """Chunks are halved for want of memory. (The normal CDF of the other estimators rounds by its neighbours, beyond seven digits.)"""
    options = {"samples": 6} if name in ("mc", "mmse_mvs") else {}
    estimator = build(name, **options, **({"classes": most} if most and name.endswith("mvs") else {}))

    def estimates(first: int, images: int) -> list[Estimate]:
        return list(estimator.estimate(work_on(curved(classes), images=images, first=first, gradients=estimator.linearises_clean)))

    whole = estimates(0, 11)
    for size in (1, 3, 8):
        assert [e for first in range(0, 11, size) for e in estimates(first, min(size, 11 - first))] == whole


class Hungry(nn.Module):
    """Takes a number of MB for each row, and some more whatever their number, on its way to two logits."""

    def __init__(self, each: int, fixed: int) -> None:
        super().__init__()
        self.each, self.fixed = each, fixed

    def forward(self, x: Tensor) -> Tensor:
        held = torch.ones(self.fixed * 250_000), torch.ones(len(x), self.each * 250_000)
        return x.flatten(1)[:, :2] * held[1].mean(1, keepdim=True) * held[0].mean()


@measurable
@pytest.mark.parametrize("gradient", [False, True])
def test_passes_are_measured(gradient: bool) -> None:
    model, image = from_module(Hungry(4, 32)), torch.zeros(1, 2, 2)
    for rows in (1, 8):
        found = pass_bytes(model, image, rows, gradient=gradient)
        assert found == pytest.approx((32 + 4 * rows) * MB, abs=2 * MB)


@measurable
def test_fewer_rows_where_memory_is_short() -> None:
    model, image = from_module(Hungry(4, 0)), torch.zeros(3, 32, 32)
    assert rows_by_rule(image.shape, CPU) == 64
    rows = {
        free: Engine(model, GaussianNoise(0, CPU), 2, fitting=fitting_passes(model, None, image, 2, free * MB)).rows(image.shape)
        for free in (10_000, 300, 150, 75, 40, 20)
    }
    assert rows == {10_000: 64, 300: 32, 150: 16, 75: 8, 40: 8, 20: 2}


@measurable
def test_fewer_rows_are_differentiated_where_memory_is_short() -> None:
    model, image = from_module(Hungry(4, 0)), torch.zeros(3, 32, 32)

    def rows(free: int) -> int:
        return Engine(model, GaussianNoise(0, CPU), 2, fitting=fitting_passes(model, model, image, 2, free * MB)).gradient_rows(
            image.shape, 1
        )

    assert [rows(free) for free in (10_000, 150, 70)] == [16, 4, 2]


def test_gradients_of_a_pass_are_bounded() -> None:
    model = from_module(curved())
    plain, short = (Engine(model, GaussianNoise(0, CPU), 4, fitting=fitting) for fitting in (None, Fitting(gradient_bytes=10**6)))
    assert plain.gradient_rows((3, 32, 32), 9) == 16
    assert short.gradient_rows((3, 32, 32), 9) == 9
    assert short.gradient_rows((3, 224, 224), 9) == 1


@pytest.mark.parametrize(("tight", "times"), [(True, [1, 1, 2]), (False, [0, 0, 0])])
def test_freed_memory_is_given_back_now_and_then_where_it_is_short(tight: bool, times: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    given, now, found = [], [100.0], []
    monkeypatch.setattr(engine, "give_back", lambda: given.append(now[0]))
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    asked = Engine(from_module(curved()), GaussianNoise(0, CPU), 4, fitting=Fitting(tight=tight))
    for seconds in (0.0, 0.1, 1.0):
        now[0] += seconds
        asked.logits(torch.zeros(1, *SHAPE))
        found.append(len(given))
    assert found == times


def line(fixed: int, each: int, log: list[int] | None = None) -> Callable[[int], int]:
    def measure(rows: int) -> int:
        if log is not None:
            log.append(rows)
        return fixed + each * rows

    return measure


@pytest.mark.parametrize(
    ("fixed", "each", "wanted", "free", "rows"),
    [
        (0, 10, 64, 100_000, None),  # plenty: passes of one row say so
        (0, 10, 64, 1280, None),  # just: half of it
        (0, 10, 64, 1270, 63),
        (100, 10, 64, 1000, 40),
        (100, 10, 64, 250, 8),  # not in half, but in all of it
        (100, 10, 64, 170, 1),
        (0, 10, 8, 80, None),
        (0, 10, 8, 79, 3),
        (1000, 10, 64, 10, 1),
        (0, 10, 1, 1, None),  # there is nothing less than one
    ],
)
def test_rows_by_a_straight_line(fixed: int, each: int, wanted: int, free: int, rows: int | None) -> None:
    found, taken = _fitting(line(fixed, each), wanted, free)
    assert found == rows
    assert taken >= fixed + each * (found or wanted)


def test_with_plenty_of_memory_only_single_rows_are_tried() -> None:
    log: list[int] = []
    assert _fitting(line(0, 10, log), 64, 10**6) == (None, 4 * 64 * 10)
    assert log == [1, 1]


def test_a_trial_that_does_not_fit_is_no_failure() -> None:
    def measure(rows: int) -> int:
        if rows > 1:
            raise MemoryError
        return 100

    assert _fitting(measure, 64, 1600) == (8, 800)


def test_other_failures_are_told() -> None:
    def measure(rows: int) -> int:
        if rows > 1:
            raise RuntimeError("the network takes one image at a time")
        return 100

    with pytest.raises(RuntimeError, match="one image"):
        _fitting(measure, 64, 1600)


def test_where_the_system_does_not_tell_nothing_changes() -> None:
    assert _fitting(lambda _: None, 64, 1) == (None, 0)
