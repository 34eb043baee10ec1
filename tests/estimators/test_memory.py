"""Chunks of any size give the same bits, and passes are sized by what they were measured to take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from robaudit.estimators import engine
from robaudit.estimators.base import Estimate
from robaudit.estimators.engine import Engine, Fitting, fitting_passes, fitting_rows, pass_bytes, rows_by_rule
from robaudit.memory import CPU
from robaudit.models import from_module
from robaudit.noise.registry import gaussian_source
from tests.estimators.tools import SHAPE, build, curved, work_on

MB = 10**6
measurable = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not count peaks")


@pytest.mark.parametrize(("classes", "most"), [(4, None), (50, 8)])
@pytest.mark.parametrize("name", ["mc", "softmax", "taylor_mvs", "mmse_mvs"])
@pytest.mark.bits
def test_smaller_chunks_change_no_bit(name: str, classes: int, most: int | None) -> None:
    """Chunks are halved where memory runs out. (The normal CDF of the other estimators rounds by its neighbours, beyond seven digits.)"""
    options = {"samples": 6} if name in ("mc", "mmse_mvs") else {}
    estimator = build(name, **options, **({"classes": most} if most and name.endswith("mvs") else {}))

    def estimates(first: int, images: int) -> list[Estimate]:
        return list(estimator.estimate(work_on(curved(classes), images=images, first=first, gradients=estimator.linearises_clean)))

    whole = estimates(0, 11)
    for size in (1, 3, 8):
        assert [e for first in range(0, 11, size) for e in estimates(first, min(size, 11 - first))] == whole


class Hungry(nn.Module):
    """Takes a number of MB for each row, and some more whatever their number, on its way to two logits.

    The system counts what the C library asks for beside it, too (a few MB now and then): the numbers stay well above that.
    """

    def __init__(self, each: int, fixed: int) -> None:
        super().__init__()
        self.each, self.fixed = each, fixed

    def forward(self, x: Tensor) -> Tensor:
        held = torch.ones(self.fixed * 250_000), torch.ones(len(x), self.each * 250_000)
        return x.flatten(1)[:, :2] * held[1].mean(1, keepdim=True) * held[0].mean()


@measurable
@pytest.mark.parametrize("gradient", [False, True])
def test_passes_are_measured(gradient: bool) -> None:
    model, image = from_module(Hungry(16, 128)), torch.zeros(1, 2, 2)
    for rows in (1, 8):
        found = pass_bytes(model, image, rows, gradient=gradient)
        assert found == pytest.approx((128 + 16 * rows) * MB, abs=8 * MB)


@measurable
def test_fewer_rows_where_memory_is_short() -> None:
    model, image = from_module(Hungry(16, 0)), torch.zeros(3, 32, 32)
    assert rows_by_rule(image.shape, CPU) == 64
    rows = {
        free: Engine(model, gaussian_source(0, CPU), 2, fitting=fitting_passes(model, None, image, free * MB)).rows(image.shape)
        for free in (40_000, 2400, 1200, 600, 300, 160)
    }
    assert rows == {40_000: 64, 2400: 32, 1200: 16, 600: 8, 300: 8, 160: 2}


@measurable
def test_fewer_rows_are_differentiated_where_memory_is_short() -> None:
    model, image = from_module(Hungry(16, 0)), torch.zeros(3, 32, 32)

    def rows(free: int) -> int:
        fits = fitting_passes(model, model, image, free * MB)
        return Engine(model, gaussian_source(0, CPU), 2, fitting=fits).gradient_rows(image.shape, 1)

    assert [rows(free) for free in (40_000, 1200, 560, 300)] == [64, 9, 8, 2]


def test_gradients_of_a_pass_are_bounded() -> None:
    model = from_module(curved())
    plain, short = (Engine(model, gaussian_source(0, CPU), 4, fitting=fitting) for fitting in (None, Fitting(gradient_bytes=10**6)))
    assert plain.gradient_rows((3, 32, 32), 9) == 16
    assert short.gradient_rows((3, 32, 32), 9) == 9
    assert short.gradient_rows((3, 224, 224), 9) == 1


@pytest.mark.parametrize(("tight", "times"), [(True, [1, 1, 2]), (False, [0, 0, 0])])
def test_freed_memory_is_given_back_now_and_then_where_it_is_short(tight: bool, times: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    given, now, found = [], [100.0], []
    monkeypatch.setattr(engine, "give_back", lambda: given.append(now[0]))
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    asked = Engine(from_module(curved()), gaussian_source(0, CPU), 4, fitting=Fitting(tight=tight))
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
        (0, 10, 64, 100_000, 64),  # plenty: a pass of one row says so
        (0, 10, 64, 1280, 64),  # just: half of it
        (0, 10, 64, 1270, 63),
        (100, 10, 64, 1000, 40),
        (100, 10, 64, 250, 8),  # not in half, but in all of it
        (100, 10, 64, 170, 1),
        (0, 10, 8, 160, 8),
        (0, 10, 8, 159, 8),
        (0, 10, 8, 79, 3),
        (1000, 10, 64, 10, 1),
        (0, 10, 1, 1, 1),  # there is nothing less than one
    ],
)
def test_rows_by_a_straight_line(fixed: int, each: int, wanted: int, free: int, rows: int) -> None:
    assert fitting_rows(line(fixed, each), wanted, free, 0.5, 1, 8) == rows


@pytest.mark.parametrize(
    ("free", "fixed", "rows"),
    [
        (2_000, 0, 100),  # 10 bytes a row, nothing fixed: half of the memory
        (2_000, 200, 80),
        (100, 0, 8),
        (10, 200, 1),  # less than nothing is left: a row has to fit, or the run ends with the allocator's message
    ],
)
def test_rows_on_a_device(free: int, fixed: int, rows: int) -> None:
    assert fitting_rows(line(fixed, 10), 1024, free, 0.5, 8, 64) == rows


def test_with_plenty_of_memory_only_a_single_row_is_tried() -> None:
    log: list[int] = []
    assert fitting_rows(line(0, 10, log), 64, 10**6, 0.5, 1, 8) == 64
    assert log == [1]


def test_a_trial_that_does_not_fit_is_no_failure() -> None:
    def measure(rows: int) -> int:
        if rows > 1:
            raise MemoryError
        return 100

    assert fitting_rows(measure, 64, 1600, 0.5, 1, 8) == 8


def test_other_failures_are_told() -> None:
    def measure(rows: int) -> int:
        if rows > 1:
            raise RuntimeError("the network takes one image at a time")
        return 100

    with pytest.raises(RuntimeError, match="one image"):
        fitting_rows(measure, 64, 1600, 0.5, 1, 8)
