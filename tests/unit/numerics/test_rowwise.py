"""A row has the same bits whatever stands beside it: in sums and products, and in normal
probabilities of any kind."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from robaudit.numerics import rowwise
from robaudit.numerics.margins import mv_sigmoid, pair_moments, shape_of_pairs, standardise

Random = Callable[..., Tensor]


def normal(seed: int, kind: torch.dtype = torch.float64) -> Random:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).to(kind)


def same_bits(some: Tensor, others: Tensor) -> bool:
    """Equal, and NaN where the other is."""
    return torch.equal(some.nan_to_num(7.25), others.nan_to_num(7.25)) and torch.equal(
        some.isnan(), others.isnan()
    )


def cuts(rows: int, seed: int) -> list[Tensor]:
    """All rows in random order, half of them alone and the others in pieces of 2 to 8."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(rows, generator=generator)
    found = list(order[rows // 2 :].split(1))
    order = order[: rows // 2]
    while len(order):
        size = int(torch.randint(2, 9, (1,), generator=generator))
        found.append(order[:size])
        order = order[size:]
    return found


def assert_each_row_alone(
    f: Callable[..., Tensor | tuple[Tensor, ...]], *inputs: Tensor, seed: int = 0
) -> None:
    """f of any selection of rows is the selection of f, bit for bit."""

    def results(*given: Tensor) -> tuple[Tensor, ...]:
        out = f(*given)
        return (out,) if isinstance(out, Tensor) else tuple(out)

    together = results(*inputs)
    for index in cuts(len(inputs[0]), seed):
        for whole, part in zip(together, results(*(x[index] for x in inputs)), strict=True):
            assert same_bits(whole[index], part)


# --- sums and products


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 2, 17, 784, 3073, 20_000])
def test_sums_have_the_same_bits_in_any_batch(length: int, kind: torch.dtype) -> None:
    x = normal(31, kind)(40, length)
    for wanted in (None, torch.float64):
        assert_each_row_alone(lambda some, wanted=wanted: rowwise.sums(some, wanted), x)
        assert_each_row_alone(
            lambda some, wanted=wanted: rowwise.sums(torch.stack([some, some]), wanted)[1], x
        )
    expected = rowwise.total(x, dtype=torch.float64)
    assert (
        (rowwise.sums(x, torch.float64) - expected).abs()
        <= length * torch.finfo(torch.float64).eps * x.double().abs().sum(1)
    ).all()


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 2, 9, 17, 64])
def test_linear_algebra_row_by_row(k: int, kind: torch.dtype) -> None:
    draw = normal(k, kind)
    for m in (1, 7, 16, 28, 64):
        a = draw(21, k, m)
        b = draw(21, m, 13)
        assert_each_row_alone(rowwise.product, a, b)
        assert_each_row_alone(rowwise.gram, a)
        assert_each_row_alone(lambda x: rowwise.gram(x.transpose(1, 2)), a)
        assert_each_row_alone(
            lambda x: rowwise.gram(
                x.permute(2, 0, 1).clone(memory_format=torch.contiguous_format).permute(1, 2, 0)
            ),
            a,
        )
        shared = draw(48, k)
        assert_each_row_alone(lambda x, shared=shared: rowwise.product(shared, x), a)
    matrix = rowwise.gram(draw(21, k, 2 * k + 3))
    assert_each_row_alone(rowwise.cholesky, matrix)
    lower, failed = rowwise.cholesky(matrix)
    assert not failed.any()
    right = draw(21, k)
    assert_each_row_alone(rowwise.cholesky_solve, right, lower)
    solution = rowwise.cholesky_solve(right, lower).double()
    tolerance = 200 * k * torch.finfo(kind).eps * float(torch.linalg.cond(matrix.double()).max())
    torch.testing.assert_close(
        (matrix.double() @ solution.unsqueeze(-1)).squeeze(-1),
        right.double(),
        rtol=0,
        atol=tolerance,
    )


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 28, 31])
def test_sums_row_by_row(n: int) -> None:
    x = normal(n)(21, n, 5)
    exact = torch.tensor(
        [[math.fsum(x[i, :, j].tolist()) for j in range(5)] for i in range(21)], dtype=torch.float64
    )
    for found in (
        rowwise.total(x, 1),
        rowwise.fold(x.transpose(0, 1).clone()),
        n * rowwise.mean_over(x, 1),
    ):
        torch.testing.assert_close(found, exact, rtol=0, atol=1e-14 * n)
    assert_each_row_alone(lambda y: rowwise.total(y, 1), x)
    assert_each_row_alone(lambda y: rowwise.mean_over(y, 1), x)
    assert_each_row_alone(lambda y: rowwise.mean_over(y.T.contiguous(), 0), x[:, :, 0])
    if n > 1:
        torch.testing.assert_close(rowwise.variance_over(x, 1), x.var(1), rtol=1e-12, atol=0)
        assert_each_row_alone(lambda y: rowwise.variance_over(y, 1), x)
        assert_each_row_alone(lambda y: rowwise.variance_over(y.T.contiguous(), 0), x[:, :, 0])
        assert_each_row_alone(lambda y: rowwise.variance_over(y, 1), x[:, :, 0].contiguous())


# --- probabilities


@pytest.mark.parametrize("k", [1, 2, 9, 40])
@pytest.mark.parametrize("pairs", [8, 13])
def test_moments_row_by_row(k: int, pairs: int) -> None:
    draw = normal(k + pairs)
    even = draw(21, pairs, k) + 1
    odd = draw(21, pairs, k)
    assert_each_row_alone(pair_moments, even, odd)
    assert_each_row_alone(lambda e, o: shape_of_pairs(e[:, :, 0], o[:, :, 0]), even, odd)
    moments = pair_moments(even, odd)
    assert_each_row_alone(standardise, moments.mean, moments.covariance)
    assert_each_row_alone(mv_sigmoid, draw(21, k) * 3)
    torch.testing.assert_close(moments.mean, even.mean(1), rtol=0, atol=1e-14)
    centred = even - even.mean(1, keepdim=True)
    expected = centred.transpose(1, 2) @ centred / (pairs - 1) + odd.transpose(1, 2) @ odd / pairs
    torch.testing.assert_close(moments.covariance, expected, rtol=0, atol=1e-13)
