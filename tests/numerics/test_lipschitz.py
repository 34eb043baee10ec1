"""Bounds of single layers: goldens, never below the exact norm, and close to it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robaudit.numerics import lipschitz
from robaudit.numerics.lipschitz import (
    Norms,
    adaptive_windows,
    average_windows,
    convolution,
    dense,
    differences,
    largest_of_adaptive_windows,
    largest_of_windows,
    rounded_up,
    separable,
)
from tests.convolutions import dense_convolution


def exact(matrix: Tensor) -> Norms:
    a = matrix.double()
    return Norms(float(torch.linalg.svdvals(a)[0]), float(a.abs().sum(1).max()), float(a.norm(dim=1).max()))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def at_least(found: Norms, truth: Norms) -> bool:
    """Exact norms computed by an SVD are themselves rounded."""
    return all(a >= b * (1 - 1e-12) for a, b in zip(found, truth, strict=True))


GOLDENS = [
    ((4, 3, 3), 8, 1, 1, 2.03208, 2.13026),
    ((4, 3, 3), 8, 2, 1, 1.55450, 2.21334),
    ((8, 4, 5), 10, 1, 2, 2.25021, 2.44467),
]
"""Channels out and in, and kernel; size, stride, padding; exact norm, and bound by FFT on (n + k - 1)^2 places."""


def test_the_goldens() -> None:
    """Weights N(0, 1 / inputs), one after another from one generator, with 768 other numbers in between."""
    generator = torch.Generator().manual_seed(0)
    for (out, inside, kernel), size, stride, padding, truth, bound in GOLDENS:
        weight = torch.randn(out, inside, kernel, kernel, generator=generator).double() / math.sqrt(inside * kernel**2)
        torch.rand(768, generator=generator)
        assert exact(dense_convolution(weight, (size, size), stride=stride, padding=padding)).l2 == pytest.approx(truth, abs=6e-6)
        options = {"stride": stride, "padding": padding}
        assert convolution(weight, (size, size), polyphase=False, **options).l2 == pytest.approx(bound, abs=6e-6)  # type: ignore[arg-type]
        assert truth <= convolution(weight, (size, size), **options).l2 <= bound + 6e-6  # type: ignore[arg-type]


def test_a_mean_kernel_has_norm_one() -> None:
    weight = torch.full((1, 1, 3, 3), 1 / 9, dtype=torch.float64)
    for padding, stride in ((0, 1), (1, 1), (2, 1)):
        found = convolution(weight, (8, 8), padding=padding, stride=stride)
        assert found == pytest.approx(Norms(1.0, 1.0, 1 / 3), rel=1e-12)
        assert found.l2 >= 1.0


def test_windows_side_by_side_have_norm_one_over_k() -> None:
    weight = torch.full((1, 1, 3, 3), 1 / 9, dtype=torch.float64)
    assert convolution(weight, (9, 9), stride=3).l2 == pytest.approx(1 / 3, rel=1e-12)
    assert convolution(weight, (9, 9), stride=3, polyphase=False).l2 == pytest.approx(1.0, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(4, 7), st.integers(4, 7)),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(0, 10**6),
)
def test_a_convolution_is_never_below_its_exact_norm(
    out: int,
    inside: int,
    kernel: tuple[int, int],
    size: tuple[int, int],
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    seed: int,
) -> None:
    """Nor is the bound that ignores the stride, for dilation, groups, rectangles and padding wider than the kernel, too."""
    weight = drawn(out * groups, inside, *kernel, seed=seed)
    if any(dilation * (k - 1) + 1 > n + 2 * padding for k, n in zip(kernel, size, strict=True)):
        return  # no output
    each = torch.eye(math.prod(size) * inside * groups, dtype=torch.float64).reshape(-1, inside * groups, *size)
    matrix = F.conv2d(each, weight.double(), None, stride, padding, dilation, groups).flatten(1).T
    truth = exact(matrix)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    assert at_least(convolution(weight, size, **options), truth)  # type: ignore[arg-type]
    assert at_least(convolution(weight, size, **options, polyphase=False), truth)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(2, 5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(0, 10**6),
)
def test_a_transposed_convolution(out: int, inside: int, kernel: int, size: int, stride: int, padding: int, groups: int, seed: int) -> None:
    weight = drawn(inside * groups, out, kernel, kernel, seed=seed).double()
    target = (size - 1) * stride - 2 * padding + kernel
    if target < 1:
        return
    each = torch.eye(size * size * inside * groups, dtype=torch.float64).reshape(-1, inside * groups, size, size)
    matrix = F.conv_transpose2d(each, weight, None, stride, padding, 0, groups).flatten(1).T
    found = convolution(weight, (target, target), stride=stride, padding=padding, groups=groups, transposed=True)
    assert at_least(found, exact(matrix))


@pytest.mark.parametrize("dims", [1, 3])
def test_convolutions_of_one_and_three_dimensions(dims: int) -> None:
    size = (7,) * dims if dims == 1 else (4, 3, 4)
    weight = drawn(3, 2, *[3] * dims, seed=3).double()
    each = torch.eye(2 * math.prod(size), dtype=torch.float64).reshape(-1, 2, *size)
    for stride in (1, 2):
        function = F.conv1d if dims == 1 else F.conv3d
        truth = exact(function(each, weight, None, stride, 1).flatten(1).T)
        assert at_least(convolution(weight, size, stride=stride, padding=1), truth)


def test_the_bound_is_near_and_the_stride_counts() -> None:
    """On larger images the border matters less; with a stride the bound that ignores it is a third too large."""
    weight = drawn(6, 3, 3, 3)
    ratios = [convolution(weight, (n, n), padding=1).l2 / exact(dense_convolution(weight, (n, n), padding=1)).l2 for n in (4, 8, 16)]
    assert all(1 <= b <= a for a, b in pairwise(ratios))
    assert ratios[-1] < 1.02
    strided = exact(dense_convolution(weight, (16, 16), stride=2, padding=1)).l2
    assert convolution(weight, (16, 16), stride=2, padding=1).l2 < 1.03 * strided
    assert convolution(weight, (16, 16), stride=2, padding=1, polyphase=False).l2 > 1.15 * strided


def test_frequencies_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = drawn(4, 3, 3, 3)
    whole = convolution(weight, (8, 9), padding=1)
    monkeypatch.setattr(lipschitz, "_ENTRIES", 24)
    assert convolution(weight, (8, 9), padding=1) == pytest.approx(whole, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_dense(rows: int, columns: int, seed: int) -> None:
    matrix = drawn(rows, columns, seed=seed)
    truth, found = exact(matrix), dense(matrix)
    assert at_least(found, truth)
    assert found == pytest.approx(truth, rel=1e-9)


def test_of_several_matrices_the_largest() -> None:
    matrices = drawn(3, 4, 5)
    found = [exact(one) for one in matrices]
    assert dense(matrices) == pytest.approx(Norms(*(max(getattr(one, name) for one in found) for name in Norms._fields)), rel=1e-9)
    assert dense(torch.zeros(0, 4)) == Norms(0.0, 0.0, 0.0)


def test_rounding_is_upwards() -> None:
    assert rounded_up(1.0, 1) > 1.0
    assert rounded_up(1.0, 10**6) < 1 + 1e-8
    assert rounded_up(0.0, 5) == 0.0


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(3, 8), st.integers(3, 8)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.integers(0, 1),
    st.booleans(),
    st.booleans(),
)
def test_average_pooling(size: tuple[int, int], kernel: tuple[int, int], stride: int, padding: int, ceil: bool, counted: bool) -> None:
    """Exact: the Kronecker product of two small matrices has the product of their norms."""
    padding = min(padding, min(kernel) // 2)
    each = torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, 1, *size)
    matrix = F.avg_pool2d(each, kernel, stride, padding, ceil, counted).flatten(1).T
    factors = [average_windows(n, k, stride, padding, ceil_mode=ceil, count_include_pad=counted) for n, k in zip(size, kernel, strict=True)]
    truth, found = exact(matrix), separable(factors)
    assert at_least(found, truth)
    assert found == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(("size", "outputs"), [((6, 6), (3, 3)), ((7, 5), (3, 4)), ((4, 4), (1, 1)), ((3, 4), (5, 6))])
def test_adaptive_pooling(size: tuple[int, int], outputs: tuple[int, int]) -> None:
    each = torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, 1, *size)
    matrix = F.adaptive_avg_pool2d(each, outputs).flatten(1).T
    found = separable([adaptive_windows(n, o) for n, o in zip(size, outputs, strict=True)])
    assert found == pytest.approx(exact(matrix), rel=1e-9)
    assert largest_of_adaptive_windows(size, outputs).l2 ** 2 == pytest.approx(float((matrix > 0).sum(0).max()))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_max_pooling_counts_the_windows_of_a_pixel(kernel: int, stride: int, dilation: int, padding: int) -> None:
    """Exactly, on images that are wide enough: a pixel that is the largest of all its windows moves all of their maxima."""
    padding, size = min(padding, kernel // 2), 24
    each = torch.eye(size, dtype=torch.float64).reshape(-1, 1, 1, size)
    pooled = F.max_pool2d(each, (1, kernel), (1, stride), (0, padding), (1, dilation)).flatten(1)
    windows = int(pooled.sum(1).max())
    assert largest_of_windows((1, kernel), (1, stride), (1, dilation)).l2 ** 2 == pytest.approx(windows)


@pytest.mark.parametrize(
    ("function", "constant"),
    [
        (F.gelu, lipschitz.GELU),
        (lambda x: F.gelu(x, approximate="tanh"), lipschitz.GELU_TANH),
        (F.silu, lipschitz.SILU),
        (F.mish, lipschitz.MISH),
    ],
)
def test_activations_are_bounded_and_no_more(function: object, constant: float) -> None:
    x = torch.linspace(-10, 10, 2_000_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function(x).sum(), x)  # type: ignore[operator]
    assert float(slope.abs().max()) < constant < float(slope.abs().max()) + 2e-9


def test_differences_of_rows() -> None:
    rows = drawn(5, 7).double()
    for order in (1.0, 2.0):
        found = differences(rows, order)
        truth = torch.linalg.vector_norm(rows[:, None] - rows, order, dim=2)
        assert (found >= truth).all()
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=0)
