"""Norms of single operations of a recorded graph: how far they stretch a perturbation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robaudit.models.graph import operation
from robaudit.numerics import lipschitz
from robaudit.numerics.lipschitz import Norms, dense, rounded_up

_SINGLE = 1e-5  # relative; sums in float32 are no better
_NO_STEP = 20.0  # torch's own threshold: a step of 2e-9 / beta where the value is 20 / beta is less than float32 rounds
_ONE = Norms(1.0, 1.0, 1.0)

NORMALISATIONS = frozenset({"NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm"})
REARRANGED = frozenset(
    """Clone Copy ToCopy Alias View UnsafeView ReshapeAlias Reshape T Transpose Permute Squeeze Unsqueeze Flip Roll Slice Select Narrow
    Split SplitWithSizes Unbind ConstantPadNd PixelShuffle PixelUnshuffle ChannelShuffle Contiguous""".split()  # noqa: SIM905  a list of one name a line would fill a screen
)
"""Every input goes to at most one output."""
IN_ORDER = frozenset("Clone Copy ToCopy Alias View UnsafeView ReshapeAlias Reshape Squeeze Unsqueeze Contiguous".split())  # noqa: SIM905  likewise
"""The values stay as they are, and in their order."""
_REPEATED = frozenset(
    """Expand Repeat AsStrided ReflectionPad1D ReflectionPad2D ReflectionPad3D ReplicationPad1D ReplicationPad2D ReplicationPad3D Index
    IndexSelect Gather Im2Col Unfold UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D UpsampleNearestExact1D
    UpsampleNearestExact2D UpsampleNearestExact3D""".split()  # noqa: SIM905  likewise
)
"""Every output is one input, at fixed places."""
_INTERPOLATED = frozenset({"UpsampleLinear1D", "UpsampleBilinear2D", "UpsampleTrilinear3D"})
"""Every output is a weighted mean of inputs, with fixed weights."""
_WINDOWS = frozenset({"AvgPool2D", "AvgPool3D"})
_ADAPTIVE_WINDOWS = frozenset({"AdaptiveAvgPool2D", "AdaptiveAvgPool3D", "MkldnnAdaptiveAvgPool2D"})
_LARGEST = frozenset({"Max", "Amax", "Min", "Amin", "Sort", "Topk", "Logsumexp"})
"""Operations that select by order; no output moves further than the inputs, in any norm."""


class NoBoundError(Exception):
    """An operation has no bound; the text is the reason, if there is more than its name."""


@dataclass(frozen=True, slots=True)
class Input:
    """An operation as a function of one of its operands.

    Attributes:
        node: of the operation.
        place: of the operand.
        inside, outside: shapes of the operand and of the result, for one image.
    """

    node: Any
    place: int
    inside: tuple[int, ...]
    outside: tuple[int, ...]

    def saved(self, name: str) -> Any:
        """A value that autograd saved for the operation.

        Raises:
            NoBoundError: nothing is saved under this name.
        """
        value = getattr(self.node, f"_saved_{name}", None)
        if value is None:
            raise NoBoundError(f"torch records no {name} of it")
        return value


def norms_of(part: Input) -> Norms:
    """The norms of an operation as a function of one operand, with the others fixed.

    Raises:
        NoBoundError: there is no bound, or it is unknown.
    """
    name = operation(part.node)
    if name in _LARGEST or name in REARRANGED:
        return _ONE
    if name in _FACTORS:
        return _ONE.times(_FACTORS[name](part))
    if name in _RULES:
        return _RULES[name](part)
    if name in _REPEATED:
        return Norms(math.sqrt(float(_arrivals(part))), 1.0, 1.0)
    if name in _INTERPOLATED:  # |A|_2^2 <= |A|_1 |A|_inf, and no row sums to more than 1
        return Norms(math.sqrt(float(_arrivals(part)) * (1 + _SINGLE)), 1.0 + _SINGLE, 1.0 + _SINGLE)
    raise NoBoundError


def _arrivals(part: Input) -> Tensor:
    """The largest total contribution of an input to the outputs: the largest column sum of a nonnegative matrix."""
    metadata = part.node._input_metadata[0]
    ones = torch.ones(tuple(metadata.shape), dtype=metadata.dtype, device=metadata.device)
    with torch.no_grad():
        sums = part.node(ones)
    found: Tensor = (sums if isinstance(sums, Tensor) else sums[part.place]).amax()
    return found


def fixed_matrix(part: Input) -> Tensor | None:
    """A (..., outputs, inputs) of an operation that multiplies each row, or column, of its operand with it; None for other operations."""
    name = operation(part.node)
    if name not in _PRODUCTS:
        return None
    first, second, add = _PRODUCTS[name]
    factor = float(getattr(part.node, "_saved_alpha", 1)) if add else 1.0
    if part.place == add:  # the left factor depends on the pixels
        matrix: Tensor = part.saved(second).detach().double()
        return factor * (matrix[None] if matrix.dim() == 1 else matrix if name == "Linear" else matrix.mT)
    if part.place == add + 1 and name != "Linear":
        return factor * part.saved(first).detach().double()  # type: ignore[no-any-return]
    return None


_PRODUCTS = {
    "Mm": ("self", "mat2", 0),
    "Bmm": ("self", "mat2", 0),
    "Mv": ("self", "vec", 0),
    "Linear": ("input", "weight", 0),
    "Addmm": ("mat1", "mat2", 1),
    "Addmv": ("mat", "vec", 1),
    "Baddbmm": ("batch1", "batch2", 1),
}
"""Names of the factors that autograd saves, and the position of the left one."""


def _product(part: Input) -> Norms:
    matrix = fixed_matrix(part)
    if matrix is not None:
        return dense(matrix)
    if part.place == 0 and operation(part.node).startswith("Add"):  # what is added to the product
        return repeated(part).times(float(getattr(part.node, "_saved_beta", 1)))
    raise NoBoundError


def repeated(part: Input) -> Norms:
    """The norms of repeating an operand until it has the shape of the result."""
    return Norms(math.sqrt(math.prod(part.outside) / math.prod(part.inside)), 1.0, 1.0)


def fixed_factor(part: Input) -> Tensor:
    """The numbers that an operation multiplies its operand with, in the shape and on the device of the result: autograd keeps a constant
    of the network where it is, on the CPU.
    """
    if operation(part.node) == "Div":
        if part.place != 0:
            raise NoBoundError("it divides by something that depends on the pixels")
        if getattr(part.node, "_saved_rounding_mode", None) is not None:
            raise NoBoundError("it rounds")
        factor = 1.0 / _number(part.saved("other"))
    else:
        factor = _number(part.saved("other" if part.place == 0 else "self"))
    return factor.to(part.node._input_metadata[0].device).expand(part.outside)


def _number(saved: Tensor | float) -> Tensor:
    """What was saved in float64; TorchScript saves plain numbers."""
    return saved.detach().double() if isinstance(saved, Tensor) else torch.tensor(float(saved), dtype=torch.float64)


def _scale(part: Input) -> Norms:
    factor = fixed_factor(part)
    largest = rounded_up(float(factor.abs().amax()), 1)
    squares = float(factor.square().sum_to_size(part.inside).amax())
    return Norms(rounded_up(math.sqrt(squares), math.prod(part.outside) / math.prod(part.inside)), largest, largest)


def channel_scale(part: Input) -> Tensor:
    """gamma / sqrt(var + eps) of a batch norm with fixed statistics (channels,), float64.

    Raises:
        NoBoundError: it uses the image's statistics.
    """
    node = part.node
    if getattr(node, "_saved_training", True) is not False or part.place != 0:
        raise NoBoundError("its mean and variance come from the image")
    eps = getattr(node, "_saved_eps", getattr(node, "_saved_epsilon", None))
    weight, variance = getattr(node, "_saved_weight", None), part.saved("running_var").detach().double()
    if eps is None:
        raise NoBoundError("torch records no eps of it")
    gamma = torch.ones_like(variance) if weight is None else weight.detach().double()
    return gamma / (variance + eps).sqrt()  # type: ignore[no-any-return]


def _batch_norm(part: Input) -> Norms:
    return _ONE.times(rounded_up(float(channel_scale(part).abs().amax()), 4))


def convolution_norms(part: Input, scale: Tensor | None = None) -> Norms:
    """The norms of a convolution, its output channels multiplied with ``scale`` (channels,)."""
    node = part.node
    if part.place != 0:
        raise NoBoundError("its weights depend on the pixels")
    weight, transposed, groups = part.saved("weight").detach().double(), bool(node._saved_transposed), int(node._saved_groups)
    dims = weight.dim() - 2
    if scale is not None:
        if transposed:  # (in, out / groups, ...): the groups' outputs follow each other
            each = scale.reshape(groups, 1, -1).expand(groups, weight.shape[0] // groups, -1).reshape(weight.shape[0], -1)
            weight = weight * each.reshape(*weight.shape[:2], *[1] * dims)
        else:
            weight = weight * scale.reshape(-1, *[1] * (dims + 1))
    return lipschitz.convolution(
        weight,
        (part.outside if transposed else part.inside)[-dims:],
        stride=list(node._saved_stride),
        padding=list(node._saved_padding),
        dilation=list(node._saved_dilation),
        groups=groups,
        transposed=transposed,
    )


def _average_pool(part: Input) -> Norms:
    node = part.node
    kernel, stride, padding = (list(getattr(node, f"_saved_{name}")) for name in ("kernel_size", "stride", "padding"))
    dims = 3 if "3D" in operation(node) else 2
    sizes = part.inside[-dims:]
    kernel, padding = kernel * (dims if len(kernel) == 1 else 1), padding * (dims if len(padding) == 1 else 1)
    stride = (stride or kernel) * (dims if len(stride) == 1 else 1)
    options = {"ceil_mode": bool(node._saved_ceil_mode), "count_include_pad": bool(node._saved_count_include_pad)}
    factors = [lipschitz.average_windows(*one, **options) for one in zip(sizes, kernel, stride, padding, strict=True)]
    divisor = getattr(node, "_saved_divisor_override", None)
    if divisor is None:
        return lipschitz.separable(factors)
    return lipschitz.separable([(factor > 0).double() for factor in factors]).times(1.0 / divisor)


def _adaptive_average_pool(part: Input) -> Norms:
    dims = 3 if "3D" in operation(part.node) else 2
    pairs = zip(part.inside[-dims:], part.outside[-dims:], strict=True)
    return lipschitz.separable([lipschitz.adaptive_windows(size, outputs) for size, outputs in pairs])


def _max_pool(part: Input) -> Norms:
    node = part.node
    kernel, stride, dilation = (list(getattr(node, f"_saved_{name}")) for name in ("kernel_size", "stride", "dilation"))
    dims = 3 if "3D" in operation(node) else 2
    kernel, stride, dilation = (v * (dims if len(v) == 1 else 1) for v in (kernel, stride or kernel, dilation))
    return lipschitz.largest_of_windows(kernel, stride, dilation)


def _adaptive_max_pool(part: Input) -> Norms:
    dims = 3 if "3D" in operation(part.node) else 2
    return lipschitz.largest_of_adaptive_windows(part.inside[-dims:], part.outside[-dims:])


def _mean(part: Input) -> Norms:
    each = math.prod(part.inside) / math.prod(part.outside)
    return Norms(rounded_up(1.0 / math.sqrt(each), 1), 1.0, rounded_up(1.0 / math.sqrt(each), 1))


def _sum(part: Input) -> Norms:
    each = math.prod(part.inside) / math.prod(part.outside)
    return Norms(rounded_up(math.sqrt(each), 1), each, rounded_up(math.sqrt(each), 1))


def _log_softmax(part: Input) -> Norms:
    """J = I - 1 p^T is a projection with |J|_2 = sqrt(n) |p|_2; its rows are (1 - p_i) and -p_j."""
    values = part.inside[int(part.node._saved_dim) % len(part.inside) if part.node._saved_dim < 2**31 else -1]
    return Norms(rounded_up(math.sqrt(values), 1), 2.0, math.sqrt(2.0) * (1 + _SINGLE))


def _elu(part: Input) -> float:
    node = part.node
    if node._saved_input_scale <= 0:
        raise NoBoundError("its input scale is not positive")
    return abs(float(node._saved_scale)) * max(1.0, abs(float(node._saved_alpha) * float(node._saved_input_scale)))


def _celu(part: Input) -> float:
    if part.node._saved_alpha <= 0:
        raise NoBoundError("its alpha is not positive")
    return 1.0


def _softplus(part: Input) -> float:
    """Its derivative is at most 1, but above the threshold torch returns x itself: a step down by log(1 + exp(-threshold)) / beta."""
    if float(part.node._saved_threshold) < _NO_STEP:
        raise NoBoundError("it has a step at its threshold")
    return 1.0


def _always(factor: float) -> Callable[[Input], float]:
    return lambda _: factor


_FACTORS: dict[str, Callable[[Input], float]] = {
    **dict.fromkeys(
        "Relu Abs Neg Tanh Hardtanh Clamp ClampMin ClampMax LogSigmoid Softshrink Sin Cos Atan Asinh".split(),  # noqa: SIM905  likewise
        _always(1.0),
    ),
    "Sigmoid": _always(0.25),
    "Hardsigmoid": _always(rounded_up(1 / 6, 1)),
    "Hardswish": _always(1.5),
    "Silu": _always(lipschitz.SILU),
    "Mish": _always(lipschitz.MISH),
    "Gelu": lambda part: lipschitz.GELU_TANH if part.saved("approximate") == "tanh" else lipschitz.GELU,
    "Erf": _always(rounded_up(2 / math.sqrt(math.pi), 2)),
    "LeakyRelu": lambda part: max(1.0, abs(float(part.node._saved_negative_slope))),
    "PreluKernel": lambda part: max(1.0, float(part.saved("weight").detach().double().abs().amax())),
    "Elu": _elu,
    "Celu": _celu,
    "Softplus": _softplus,
}
"""sup |f'| of functions of single values."""

_RULES: dict[str, Callable[[Input], Norms]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(NORMALISATIONS, _batch_norm),
    **dict.fromkeys(("Mul", "Div"), _scale),
    "Convolution": convolution_norms,
    **dict.fromkeys(_WINDOWS, _average_pool),
    **dict.fromkeys(_ADAPTIVE_WINDOWS, _adaptive_average_pool),
    **dict.fromkeys(("MaxPool2DWithIndices", "MaxPool3DWithIndices"), _max_pool),
    **dict.fromkeys(("AdaptiveMaxPool2D", "AdaptiveMaxPool3D"), _adaptive_max_pool),
    "Mean": _mean,
    "Sum": _sum,
    "Softmax": lambda _: _ONE.times(0.5),  # J = diag(p) - p p^T has eigenvalues and row sums 2 p (1 - p) of at most 1/2
    "LogSoftmax": _log_softmax,
}

SUMS: dict[str, Callable[[Any], Sequence[float]]] = {
    "Add": lambda node: (1.0, float(getattr(node, "_saved_alpha", 1))),
    "Sub": lambda node: (1.0, -float(getattr(node, "_saved_alpha", 1))),
    "Rsub": lambda node: (-float(getattr(node, "_saved_alpha", 1)), 1.0),
}
"""Factors of the operands of sums."""
JOINED = frozenset({"Cat", "Stack"})
"""The result has all of the operands."""
_LINEAR = REARRANGED | _REPEATED | _INTERPOLATED | _WINDOWS | _ADAPTIVE_WINDOWS | JOINED | SUMS.keys() | {"Neg", "Mean", "Sum"}
"""Linear in all of the operands together."""
LARGER = frozenset({"Maximum", "Minimum"})
"""Every output is one of two values."""


def is_affine(node: Any, places: Sequence[int]) -> bool:
    """Whether an operation is affine in the operands at these positions, with the others fixed."""
    name = operation(node)
    if name in _LINEAR:
        return True
    if name == "Div":
        return list(places) == [0] and getattr(node, "_saved_rounding_mode", None) is None
    if name in NORMALISATIONS:
        return list(places) == [0] and getattr(node, "_saved_training", True) is False
    return len(places) == 1 and (name in _PRODUCTS or name in ("Mul", "Dot", "Convolution"))
