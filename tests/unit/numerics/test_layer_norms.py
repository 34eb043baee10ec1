"""Bounds of single layers: goldens, never below the exact norm, and close to it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robaudit.numerics import layer_norms
from robaudit.numerics.layer_norms import (
    Norms,
    adaptive_windows,
    average_windows,
    convolution,
    dense,
    largest_of_adaptive_windows,
    largest_of_windows,
    rounded_up,
    separable,
)


def dense_convolution(
    weight: Tensor, size: tuple[int, int], *, stride: int, padding: int
) -> Tensor:
    """The matrix of a convolution for inputs of a height and width (outputs, inputs), float64."""
    shape = (weight.shape[1], *size)
    each = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    return F.conv2d(each, weight.double(), None, stride, padding).flatten(1).T


def exact(matrix: Tensor) -> Norms:
    a = matrix.double()
    return Norms(
        float(torch.linalg.svdvals(a)[0]), float(a.abs().sum(1).max()), float(a.norm(dim=1).max())
    )


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
"""Channels out and in, and kernel; size, stride, padding; exact norm, and bound by FFT on (n + k -
1)^2 places."""


def test_the_goldens() -> None:
    """Weights N(0, 1 / inputs), one after another from one generator, with 768 other numbers in
    between."""
    generator = torch.Generator().manual_seed(0)
    for (out, inside, kernel), size, stride, padding, truth, bound in GOLDENS:
        weight = torch.randn(out, inside, kernel, kernel, generator=generator).double() / math.sqrt(
            inside * kernel**2
        )
        torch.rand(768, generator=generator)
        assert exact(
            dense_convolution(weight, (size, size), stride=stride, padding=padding)
        ).l2 == pytest.approx(truth, abs=6e-6)
        assert convolution(weight, (size, size), padding=padding).l2 == pytest.approx(
            bound, abs=6e-6
        )
        assert (
            truth
            <= convolution(weight, (size, size), stride=stride, padding=padding).l2
            <= bound + 6e-6
        )


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
    """Nor is the bound that ignores the stride, for dilation, groups, rectangles and padding wider
    than the kernel, too."""
    weight = drawn(out * groups, inside, *kernel, seed=seed)
    if any(dilation * (k - 1) + 1 > n + 2 * padding for k, n in zip(kernel, size, strict=True)):
        return  # no output
    each = torch.eye(math.prod(size) * inside * groups, dtype=torch.float64).reshape(
        -1, inside * groups, *size
    )
    matrix = F.conv2d(each, weight.double(), None, stride, padding, dilation, groups).flatten(1).T
    truth = exact(matrix)
    found, plain = (
        convolution(weight, size, stride=s, padding=padding, dilation=dilation, groups=groups)
        for s in (stride, 1)
    )
    assert at_least(found, truth)
    assert at_least(plain, truth)


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
def test_a_transposed_convolution(
    out: int, inside: int, kernel: int, size: int, stride: int, padding: int, groups: int, seed: int
) -> None:
    weight = drawn(inside * groups, out, kernel, kernel, seed=seed).double()
    target = (size - 1) * stride - 2 * padding + kernel
    if target < 1:
        return
    each = torch.eye(size * size * inside * groups, dtype=torch.float64).reshape(
        -1, inside * groups, size, size
    )
    matrix = F.conv_transpose2d(each, weight, None, stride, padding, 0, groups).flatten(1).T
    found = convolution(
        weight, (target, target), stride=stride, padding=padding, groups=groups, transposed=True
    )
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


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_dense(rows: int, columns: int, seed: int) -> None:
    matrix = drawn(rows, columns, seed=seed)
    truth = exact(matrix)
    found = dense(matrix)
    assert at_least(found, truth)
    assert found == pytest.approx(truth, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(3, 8), st.integers(3, 8)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.integers(0, 1),
    st.booleans(),
    st.booleans(),
)
def test_average_pooling(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    ceil: bool,
    counted: bool,
) -> None:
    """Exact: the Kronecker product of two small matrices has the product of their norms."""
    padding = min(padding, min(kernel) // 2)
    each = torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, 1, *size)
    matrix = F.avg_pool2d(each, kernel, stride, padding, ceil, counted).flatten(1).T
    factors = [
        average_windows(n, k, stride, padding, ceil_mode=ceil, count_include_pad=counted)
        for n, k in zip(size, kernel, strict=True)
    ]
    truth = exact(matrix)
    found = separable(factors)
    assert at_least(found, truth)
    assert found == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(
    ("size", "outputs"), [((6, 6), (3, 3)), ((7, 5), (3, 4)), ((4, 4), (1, 1)), ((3, 4), (5, 6))]
)
def test_adaptive_pooling(size: tuple[int, int], outputs: tuple[int, int]) -> None:
    each = torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, 1, *size)
    matrix = F.adaptive_avg_pool2d(each, outputs).flatten(1).T
    found = separable([adaptive_windows(n, o) for n, o in zip(size, outputs, strict=True)])
    assert found == pytest.approx(exact(matrix), rel=1e-9)
    assert largest_of_adaptive_windows(size, outputs).l2 ** 2 == pytest.approx(
        float((matrix > 0).sum(0).max())
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_max_pooling_counts_the_windows_of_a_pixel(
    kernel: int, stride: int, dilation: int, padding: int
) -> None:
    """Exactly, on images that are wide enough: a pixel that is the largest of all its windows moves
    all of their maxima."""
    padding = min(padding, kernel // 2)
    size = 24
    each = torch.eye(size, dtype=torch.float64).reshape(-1, 1, 1, size)
    pooled = F.max_pool2d(each, (1, kernel), (1, stride), (0, padding), (1, dilation)).flatten(1)
    windows = int(pooled.sum(1).max())
    assert largest_of_windows((1, kernel), (1, stride), (1, dilation)).l2 ** 2 == pytest.approx(
        windows
    )


@pytest.mark.parametrize(
    ("function", "constant"),
    [
        (F.gelu, layer_norms.GELU),
        (lambda x: F.gelu(x, approximate="tanh"), layer_norms.GELU_TANH),
        (F.silu, layer_norms.SILU),
        (F.mish, layer_norms.MISH),
    ],
)
def test_activations_are_bounded_and_no_more(function: object, constant: float) -> None:
    x = torch.linspace(-10, 10, 2_000_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function(x).sum(), x)  # type: ignore[operator]
    assert float(slope.abs().max()) < constant < float(slope.abs().max()) + 2e-9


def test_rounding_is_upwards() -> None:
    assert 1.0 < rounded_up(1.0, 1) < rounded_up(1.0, 10**6) < 1 + 1e-8
    assert rounded_up(0.0, 5) == 0.0
