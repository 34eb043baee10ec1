"""Rules for the operations of a network: how far each stretches a perturbation, if it is affine.

A new layer needs one entry in :data:`RULES`, under the name of torch's operator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.models.graph import Operand, Step
from robaudit.numerics import layer_norms
from robaudit.numerics.layer_norms import Norms, dense, rounded_up

_FLOAT32_SUM = 1e-5  # relative error of a sum in float32
# The threshold of softplus from which its step is harmless; torch's own default. There, a step of
# 2e-9 / beta at a value of 20 / beta is less than the rounding of float32.
_NO_STEP = 20.0
_ONE = Norms(1.0, 1.0, 1.0)


class NoRuleError(Exception):
    """An operation cannot be followed; the text is the reason, or empty for an unknown one."""


class Reach(NamedTuple):
    """The largest change of a tensor, for a perturbation of the pixels of norm 1.

    Attributes:
        l2, linf: the change in these norms.
    """

    l2: float
    linf: float

    def through(self, norms: Norms, values: int) -> Reach:
        """The reach after a layer with ``values`` outputs.

        It is the smallest bound that follows from the layer's norms and from |v|_inf <= |v|_2 <=
        sqrt(values) |v|_inf.
        """
        linf = min(norms.linf * self.linf, norms.rows * self.l2)
        l2 = min(norms.l2 * self.l2, math.sqrt(values) * linf)
        return Reach(l2, min(linf, l2))


def _added(parts: Sequence[Reach]) -> Reach:
    """The reach of a sum, by the triangle inequality."""
    l2 = math.fsum(part.l2 for part in parts)
    linf = math.fsum(part.linf for part in parts)
    return Reach(l2, linf)


def _joined(parts: Sequence[Reach]) -> Reach:
    """The reach of a tensor that takes each value from some part."""
    l2 = math.hypot(*(part.l2 for part in parts))
    linf = max(part.linf for part in parts)
    return Reach(l2, linf)


NormsOf = Callable[[Step, Operand], Norms]
"""The norms of an operation as a function of one operand."""


@dataclass(frozen=True)
class Rule:
    """The known properties of an operation.

    Attributes:
        norms: of the operation as a function of one operand, with the other arguments fixed.
        affine: whether it is affine in all operands together.
        moves: whether it is linear, and every input goes to at most one output.
        several: combines the reaches of several operands that depend on the pixels; None: an
            operation with several has no rule.
        either: whether another argument than the first may depend on the pixels instead; with
            ``several``, it always may.
        unless: the reason why an operation with these arguments has no rule, or ''.
    """

    norms: NormsOf
    affine: bool = False
    moves: Callable[[Step, Operand], bool] = lambda _step, _operand: False
    several: Callable[[Sequence[Reach]], Reach] | None = None
    either: bool = False
    unless: Callable[[Step], str] = lambda _: ""


def rule_of(step: Step) -> Rule:
    """The rule of an operation.

    Raises:
        NoRuleError: there is none.
    """
    rule = RULES.get(step.name)
    operands = step.operands
    # `graph.py` gives such a name to the other views of a memory that was written to.
    if step.name.endswith("_"):
        raise NoRuleError("it writes into the memory of another tensor")
    if rule is None:
        raise NoRuleError
    if not all(operand.is_number for operand in operands):
        raise NoRuleError("it takes whole numbers that depend on the pixels")
    if len(operands) > 1 and rule.several is None:
        raise NoRuleError("several of its operands depend on the pixels")
    reason = rule.unless(step)
    if reason:
        raise NoRuleError(reason)
    # Most rules are for the first argument: a weight that depends on the pixels has none.
    first_argument = next(iter(step.arguments))
    any_argument = rule.several or rule.either
    if not any_argument and operands[0].argument != first_argument:
        raise NoRuleError(f"its {operands[0].argument} depends on the pixels")
    return rule


def is_affine(step: Step) -> bool:
    """Whether an operation is affine in all its operands together."""
    try:
        return rule_of(step).affine
    except NoRuleError:
        return False


def _always(factor: float) -> NormsOf:
    """The same norms for all arguments."""
    return lambda _step, _operand: _ONE.times(factor)


def _slope(largest: Callable[[Step], float]) -> NormsOf:
    """The norms of a function of single values, from sup |f'|."""
    return lambda step, _: _ONE.times(largest(step))


def _always_moves(_step: Step, _operand: Operand) -> bool:
    return True


def _moves_unrepeated(step: Step, operand: Operand) -> bool:
    """Whether an operation repeats no input: broadcasting would."""
    return step.shape == operand.shape


def _column_sums(step: Step, operand: Operand) -> float:
    """The largest column sum of a nonnegative matrix: what an input contributes to all outputs."""
    ones = torch.ones(1, math.prod(step.shape), dtype=torch.float64)
    return float(step.pulled_back(operand, ones).amax())


def _repeats(step: Step, operand: Operand) -> Norms:
    """Norms where every output is a copy of one input, at fixed places."""
    return Norms(math.sqrt(_column_sums(step, operand)), 1.0, 1.0)


def _interpolates(step: Step, operand: Operand) -> Norms:
    """Norms where every output is a weighted mean, with fixed weights.

    |A|_2^2 <= |A|_1 |A|_inf, and no row sums to more than 1, up to rounding.
    """
    row_sum = 1.0 + _FLOAT32_SUM
    return Norms(math.sqrt(_column_sums(step, operand) * row_sum), row_sum, row_sum)


_PRODUCTS = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
    "addmm": ("mat1", "mat2"),
    "addmv": ("mat", "vec"),
    "baddbmm": ("batch1", "batch2"),
}
"""The names of the two factors, by operation."""


def fixed_matrix(step: Step, operand: Operand) -> Tensor | None:
    """The matrix by which a product multiplies each row or column of its operand.

    Returns:
        (..., outputs, inputs), float64; None for other operations.
    """
    left, right = _PRODUCTS.get(step.name, ("", ""))
    if operand.argument not in (left, right):
        return None
    is_left = operand.argument == left
    other: Tensor = step[right if is_left else left].double()
    # For a row x, X v has the one output v^T x, and X M has the row (M^T x)^T. For a column x, M X
    # has the column M x.
    if other.dim() == 1:
        other = other[None]
    elif is_left:
        other = other.mT
    return float(step.arguments.get("alpha", 1)) * other


def _product(step: Step, operand: Operand) -> Norms:
    matrix = fixed_matrix(step, operand)
    # The third operand of addmm and its kind is added to the product, times beta.
    if matrix is None:
        return _repeated(step, operand).times(float(step["beta"]))
    return dense(matrix)


def _repeated(step: Step, operand: Operand) -> Norms:
    """The norms of repeating an operand until it has the shape of the result."""
    copies = math.prod(step.shape) / math.prod(operand.shape)
    return Norms(math.sqrt(copies), 1.0, 1.0)


def _term(step: Step, operand: Operand) -> Norms:
    """The norms for a term of a sum or difference."""
    # self + alpha other, and of rsub other - alpha self.
    scaled_argument = "self" if step.name == "rsub" else "other"
    factor = float(step["alpha"]) if operand.argument == scaled_argument else 1.0
    return _repeated(step, operand).times(factor)


def _scale(step: Step, operand: Operand) -> Norms:
    """The norms for a product with fixed numbers, which may broadcast the operand."""
    other = step["other" if operand.argument == "self" else "self"]
    if isinstance(other, Tensor):
        number = other.double()
    else:
        number = torch.tensor(float(other), dtype=torch.float64)
    factor = (1.0 / number if step.name == "div" else number).expand(step.shape)
    largest = rounded_up(float(factor.abs().amax()), 1)
    # A^T A is diagonal: for each input, the sum of the squares of its factors.
    squares = float(factor.square().sum_to_size(operand.shape).amax())
    terms = math.prod(step.shape) / math.prod(operand.shape)
    return Norms(rounded_up(math.sqrt(squares), terms), largest, largest)


def _no_division(step: Step) -> str:
    if isinstance(step["other"], Operand):
        return "it divides by something that depends on the pixels"
    return "it rounds" if step.arguments.get("rounding_mode") is not None else ""


def channel_scale(step: Step) -> Tensor:
    """gamma / sqrt(var + eps) of a batch norm with fixed statistics (channels,), float64."""
    weight = step["weight"]
    variance = step["running_var"].double()
    gamma = torch.ones_like(variance) if weight is None else weight.double()
    eps = step.arguments.get("eps", step.arguments.get("epsilon"))  # cuDNN's name
    scale: Tensor = gamma / (variance + eps).sqrt()
    return scale


def _batch_norm(step: Step, _: Operand) -> Norms:
    # Fewer than four operations round: the sum, the root and the quotient.
    largest = float(channel_scale(step).abs().amax())
    return _ONE.times(rounded_up(largest, 4))


def _no_batch_norm(step: Step) -> str:
    return "its mean and variance come from the image" if step.arguments.get("training") else ""


def convolution_norms(step: Step, operand: Operand, scale: Tensor | None = None) -> Norms:
    """The norms of a convolution with output channels multiplied by ``scale`` (channels,)."""
    weight = step["weight"].double()
    transposed = bool(step["transposed"])
    groups = int(step["groups"])
    dims = weight.dim() - 2
    if scale is not None and transposed:
        # The weight is (in, out / groups, ...), and the groups' outputs follow each other.
        inputs = weight.shape[0]
        by_group = scale.reshape(groups, 1, -1).expand(groups, inputs // groups, -1)
        by_input = by_group.reshape(inputs, -1)
        weight = weight * by_input.reshape(*weight.shape[:2], *[1] * dims)
    elif scale is not None:
        # The weight is (out, in / groups, ...).
        weight = weight * scale.reshape(-1, *[1] * (dims + 1))
    # A transposed convolution is the transpose of the convolution from its outputs to its inputs.
    size = (step.shape if transposed else operand.shape)[-dims:]
    return layer_norms.convolution(
        weight,
        size,
        stride=step["stride"],
        padding=step["padding"],
        dilation=step["dilation"],
        groups=groups,
        transposed=transposed,
    )


def _along(step: Step, *names: str) -> list[list[int]]:
    """Pooling options by dimension; an empty stride means the kernel size."""
    dims = _dims(step)
    options = []
    for name in names:
        value = step[name] or step["kernel_size"]
        values = list(value) if isinstance(value, Sequence) else [value]
        options.append(values * dims if len(values) == 1 else values)
    return options


def _dims(step: Step) -> int:
    """The number of dimensions of a pooling, from its name: 2 for avg_pool2d."""
    return int(re.findall(r"(\d)d", step.name)[0])


def _average_pool(step: Step, operand: Operand) -> Norms:
    dims = _dims(step)
    kernel, stride = _along(step, "kernel_size", "stride")
    padding = list(step["padding"])
    if len(padding) == 1:
        padding *= dims
    options = {"ceil_mode": step["ceil_mode"], "count_include_pad": step["count_include_pad"]}
    windows = zip(operand.shape[-dims:], kernel, stride, padding, strict=True)
    factors = [layer_norms.average_windows(*window, **options) for window in windows]
    divisor = step.arguments.get("divisor_override")
    if divisor is None:
        return layer_norms.separable(factors)
    # Sums over the windows, divided by a number that the user has chosen.
    sums = [(factor > 0).double() for factor in factors]
    return layer_norms.separable(sums).times(1.0 / divisor)


def _adaptive_average_pool(step: Step, operand: Operand) -> Norms:
    dims = _dims(step)
    pairs = zip(operand.shape[-dims:], step.shape[-dims:], strict=True)
    factors = [layer_norms.adaptive_windows(size, outputs) for size, outputs in pairs]
    return layer_norms.separable(factors)


def _max_pool(step: Step, _: Operand) -> Norms:
    return layer_norms.largest_of_windows(*_along(step, "kernel_size", "stride", "dilation"))


def _adaptive_max_pool(step: Step, operand: Operand) -> Norms:
    return layer_norms.largest_of_adaptive_windows(
        operand.shape[-_dims(step) :], step.shape[-_dims(step) :]
    )


def _mean(step: Step, operand: Operand) -> Norms:
    """The norms of means over n values: |(1/n, ..., 1/n)|_2 = 1 / sqrt(n)."""
    terms = math.prod(operand.shape) / math.prod(step.shape)
    length = rounded_up(1.0 / math.sqrt(terms), 1)
    return Norms(length, 1.0, length)


def _sum(step: Step, operand: Operand) -> Norms:
    """The norms of sums over n values: |(1, ..., 1)|_2 = sqrt(n)."""
    terms = math.prod(operand.shape) / math.prod(step.shape)
    length = rounded_up(math.sqrt(terms), 1)
    return Norms(length, terms, length)


def _log_softmax(step: Step, operand: Operand) -> Norms:
    """The norms of log-softmax over n values, with the Jacobian J = I - 1 p^T.

    J is a projection with |J|_2 = sqrt(n) |p|_2 <= sqrt(n). The entries of a row are 1 - p_i and
    -p_j: they sum to at most 2 in absolute value, and their squares to at most 2.
    """
    values = operand.shape[step["dim"]]
    l2 = rounded_up(math.sqrt(values), 1)
    rows = math.sqrt(2.0) * (1 + _FLOAT32_SUM)
    return Norms(l2, 2.0, rows)


def _gelu(step: Step) -> float:
    return layer_norms.GELU_TANH if step["approximate"] == "tanh" else layer_norms.GELU


def _prelu(step: Step) -> float:
    largest = float(step["weight"].double().abs().amax())
    return max(1.0, largest)


def _elu(step: Step) -> float:
    """The largest slope of scale x for x > 0, and scale alpha (exp(input_scale x) - 1) below."""
    scale = abs(float(step["scale"]))
    slope_at_zero = abs(float(step["alpha"] * step["input_scale"]))
    return scale * max(1.0, slope_at_zero)


def _no_softplus(step: Step) -> str:
    """The reason why softplus has no rule: a step at a low threshold.

    Its derivative is at most 1, but above the threshold torch returns x itself: a step down by
    log(1 + exp(-threshold)) / beta.
    """
    return "it has a step at its threshold" if step["threshold"] < _NO_STEP else ""


def _rules(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


CONVOLUTIONS = frozenset({"convolution", "convolution_overrideable"})
NORMALISATIONS = frozenset(
    {
        "native_batch_norm",
        "native_batch_norm_legit",
        "native_batch_norm_legit_no_training",
        "cudnn_batch_norm",
        "miopen_batch_norm",
    }
)
RULES: dict[str, Rule] = {
    # Every input goes to at most one output.
    **_rules(
        Rule(_always(1.0), affine=True, moves=_always_moves),
        """
        clone to_copy alias detach view unsafe_view reshape_alias t transpose permute
        squeeze unsqueeze flip roll slice select split split_with_sizes unbind constant_pad_nd
        pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
        """,
    ),
    # Every output is one input; inputs may be repeated.
    **_rules(
        Rule(_repeats, affine=True),
        """
        expand repeat as_strided
        reflection_pad1d reflection_pad2d reflection_pad3d
        replication_pad1d replication_pad2d replication_pad3d
        index index_select gather im2col unfold
        upsample_nearest1d upsample_nearest2d upsample_nearest3d
        upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d
        """,
    ),
    **_rules(
        Rule(_interpolates, affine=True),
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d",
    ),
    # Sums, products and means.
    **_rules(Rule(_term, affine=True, moves=_moves_unrepeated, several=_added), "add sub rsub"),
    **_rules(Rule(_scale, affine=True, moves=_moves_unrepeated, either=True), "mul"),
    **_rules(Rule(_scale, affine=True, moves=_moves_unrepeated, unless=_no_division), "div"),
    **_rules(Rule(_always(1.0), affine=True, moves=_always_moves), "neg"),
    **_rules(Rule(_product, affine=True, either=True), " ".join(_PRODUCTS)),
    **_rules(Rule(convolution_norms, affine=True), " ".join(CONVOLUTIONS)),
    **_rules(
        Rule(_batch_norm, affine=True, moves=_always_moves, unless=_no_batch_norm),
        " ".join(NORMALISATIONS),
    ),
    **_rules(Rule(_average_pool, affine=True), "avg_pool2d avg_pool3d"),
    **_rules(
        Rule(_adaptive_average_pool, affine=True),
        "adaptive_avg_pool2d adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d",
    ),
    **_rules(Rule(_mean, affine=True), "mean"),
    **_rules(Rule(_sum, affine=True), "sum"),
    **_rules(Rule(_always(1.0), affine=True, several=_joined), "cat stack"),
    # No output moves further than the inputs, in any norm.
    **_rules(Rule(_repeated, several=_joined), "maximum minimum clamp clamp_min clamp_max"),
    **_rules(Rule(_always(1.0)), "max amax min amin sort topk logsumexp"),
    **_rules(Rule(_max_pool), "max_pool2d_with_indices max_pool3d_with_indices"),
    **_rules(Rule(_adaptive_max_pool), "adaptive_max_pool2d adaptive_max_pool3d"),
    # J = diag(p) - p p^T has eigenvalues and row sums 2 p (1 - p) of at most 1/2.
    "softmax": Rule(_always(0.5)),
    "log_softmax": Rule(_log_softmax),
    # Functions of single values, with their largest slopes.
    **_rules(
        Rule(_always(1.0)),
        "relu abs tanh hardtanh log_sigmoid_forward softshrink sin cos atan asinh",
    ),
    "sigmoid": Rule(_always(0.25)),
    "hardsigmoid": Rule(_always(rounded_up(1 / 6, 1))),
    "hardswish": Rule(_always(1.5)),
    "silu": Rule(_always(layer_norms.SILU)),
    "mish": Rule(_always(layer_norms.MISH)),
    "erf": Rule(_always(rounded_up(2 / math.sqrt(math.pi), 2))),
    "gelu": Rule(_slope(_gelu)),
    "leaky_relu": Rule(_slope(lambda step: max(1.0, abs(step["negative_slope"])))),
    "prelu_kernel": Rule(_slope(_prelu)),
    "elu": Rule(
        _slope(_elu),
        unless=lambda step: "" if step["input_scale"] > 0 else "its input scale is not positive",
    ),
    "celu": Rule(
        _always(1.0), unless=lambda step: "" if step["alpha"] > 0 else "its alpha is not positive"
    ),
    "softplus": Rule(_always(1.0), unless=_no_softplus),
}
"""The rules by torch's operator names, without underscores around them."""
