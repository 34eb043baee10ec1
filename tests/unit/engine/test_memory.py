"""Passes are sized by what they were measured to take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from robaudit.engine.passes import Engine, Fit, fitting_passes, pass_bytes, rows_that_fit
from robaudit.memory import CPU
from robaudit.models import from_module
from tests.levels import gaussian_process
from tests.unit.engine.tools import curved

MB = 10**6
measurable = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the system does not count peaks"
)


class Hungry(nn.Module):
    """Takes a number of MB for each row, and some more whatever their number, on its way to two
    logits.

    The system counts what the C library asks for beside it, too (a few MB now and then): the
    numbers stay well above that.
    """

    def __init__(self, each: int, fixed: int) -> None:
        super().__init__()
        self.each = each
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        held = torch.ones(self.fixed * 250_000), torch.ones(len(x), self.each * 250_000)
        return x.flatten(1)[:, :2] * held[1].mean(1, keepdim=True) * held[0].mean()


@measurable
@pytest.mark.parametrize("gradient", [False, True])
def test_passes_are_measured(gradient: bool) -> None:
    model = from_module(Hungry(16, 128))
    image = torch.zeros(1, 2, 2)
    for rows in (1, 8):
        found = pass_bytes(model, image, rows, gradient=gradient)
        assert found == pytest.approx((128 + 16 * rows) * MB, abs=8 * MB)


@measurable
@pytest.mark.parametrize("gradient", [False, True])
def test_fewer_rows_where_memory_is_short(gradient: bool) -> None:
    model = from_module(Hungry(16, 0))
    image = torch.zeros(3, 32, 32)
    fit = fitting_passes(model, model if gradient else None, image, 300 * MB)
    assert (fit.rows, fit.gradient_rows) == (4, 4)


def test_gradients_of_a_pass_are_bounded() -> None:
    model = from_module(curved())
    plain, short = (
        Engine(model, gaussian_process(0, CPU), 4, fit=fit) for fit in (None, Fit(64, 64, MB))
    )
    assert plain.gradient_rows((3, 32, 32), 9) == 16
    assert plain.gradient_rows((3, 32, 32), 2000) == 10
    assert short.gradient_rows((3, 32, 32), 9) == 9
    assert short.gradient_rows((3, 224, 224), 9) == 1


@pytest.mark.parametrize(
    ("fixed", "each", "wanted", "budget", "rows", "asked"),
    [
        (0, 10, 64, 10_000, 64, [1]),  # plenty: a pass of a single row says so
        (0, 10, 64, 640, 64, [1, 2, 4, 8, 16, 32]),
        (0, 10, 64, 639, 32, [1, 2, 4, 8, 16, 32]),
        (100, 10, 64, 500, 16, [1, 2, 4, 8, 16]),
        (1000, 10, 64, 10, 1, [1]),  # there is nothing less than one
        (0, 10, 1, 1, 1, []),
    ],
)
def test_rows_double_while_they_fit(
    fixed: int, each: int, wanted: int, budget: int, rows: int, asked: list[int]
) -> None:
    tried: list[int] = []

    def measure(rows: int) -> int:
        tried.append(rows)
        return fixed + each * rows

    assert rows_that_fit(measure, wanted, budget) == rows
    assert tried == asked
