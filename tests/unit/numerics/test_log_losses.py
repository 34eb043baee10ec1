"""The logarithm of the cross-entropy is exact from e^-1000 to 1000, and so is its gradient."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch

from robaudit.numerics.log_losses import log_cross_entropy, log_norm
from robaudit.numerics.margins import NEVER

EPSILON = torch.finfo(torch.float64).eps
MARGINS = [
    -1000.0,
    -700.5,
    -699.5,
    -41.0,
    -40.0,
    -39.0,
    -20.0,
    -1.0,
    0.0,
    1.0,
    16.0,
    20.0,
    45.0,
    699.5,
    700.5,
    1000.0,
]


@pytest.mark.parametrize("margin", MARGINS)
def test_value_and_gradient_against_exact_arithmetic(margin: float) -> None:
    """Logits (margin, 0) against class 0: CE = log(1 + e^-margin)."""
    with localcontext() as context:
        context.prec = 1000
        e = Decimal(-margin).exp()
        ce = (1 + e).ln()
        wanted = float(ce.ln())
        rate = float(e / (1 + e) / ce)
    value, gradient = log_cross_entropy(
        torch.tensor([[margin, 0.0]], dtype=torch.float64), torch.tensor([0])
    )
    assert value.item() == pytest.approx(wanted, rel=8 * EPSILON, abs=8 * EPSILON)
    assert gradient[0].tolist() == pytest.approx([-rate, rate], rel=8 * EPSILON)


def test_a_target_that_never_wins_has_no_loss() -> None:
    logits = torch.tensor([[0.0, 1.0, NEVER], [0.0, 1.0, NEVER]])
    value, gradient = log_cross_entropy(logits, torch.tensor([2, 0]))
    assert value.isnan().tolist() == [True, False]
    assert gradient.isnan().all(1).tolist() == [True, False]
    assert value[1] == log_cross_entropy(logits[1:, :2], torch.tensor([0]))[0]


def test_gradient_is_that_of_many_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 4, dtype=torch.float64, generator=generator).requires_grad_(True)
    target = torch.tensor([0, 1, 2, 3, 0])
    expected = torch.nn.functional.cross_entropy(logits, target, reduction="none").log()
    (slope,) = torch.autograd.grad(expected.sum(), logits)
    value, gradient = log_cross_entropy(logits.detach(), target)
    torch.testing.assert_close(value, expected.detach(), rtol=100 * EPSILON, atol=100 * EPSILON)
    torch.testing.assert_close(gradient, slope, rtol=100 * EPSILON, atol=100 * EPSILON)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_row_with_a_bad_logit_is_nan_and_the_others_are_not(bad: float, place: int) -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    alone, _ = log_cross_entropy(logits[:1], torch.tensor([1]))
    logits[1, place] = bad
    value, gradient = log_cross_entropy(logits, torch.tensor([1, 1]))
    assert value[0] == alone[0]
    assert value[1].isnan()
    assert gradient[0].isfinite().all()
    assert gradient[1].isnan().all()


def test_q_norm_by_hand() -> None:
    """Of the losses 1, 2 and 4: ((1 + 4 + 16) / 3)^(1/2) for q = 2; of losses e^-2000 times as
    large the same, times that."""
    losses = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64).log()
    for shift in (0.0, -2000.0):
        value, size, largest = log_norm(losses + shift, 2.0)
        assert value.item() == pytest.approx(math.log(7) / 2 + shift, abs=1e-12)
        assert size.item() == pytest.approx(21**2 / (1 + 16 + 256))
        assert largest.item() == pytest.approx(16 / 21)
