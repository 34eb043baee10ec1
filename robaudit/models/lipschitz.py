"""A Lipschitz bound of the margins of a network, from its operations and their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robaudit.errors import ModelError
from robaudit.models.graph import Graph, is_function, operation, shape_of_result, shapes_of_results, trace
from robaudit.models.logits import LogitModel, once_a_model
from robaudit.models.operations import (
    IN_ORDER,
    JOINED,
    LARGER,
    NORMALISATIONS,
    SUMS,
    Input,
    NoBoundError,
    channel_scale,
    convolution_norms,
    fixed_factor,
    fixed_matrix,
    norms_of,
    repeated,
)
from robaudit.numerics.lipschitz import Norms, differences, rounded_up

_MOST_CLASSES = 2048
"""With more classes, a pair is bounded by the sum of both."""
_FEW = 16
_MANY_LAYERS = 1 << 12  # rounding of products of the layers' norms


@dataclass(frozen=True)
class Lipschitz:
    """Lipschitz constants of the logits z and of their differences.

    Attributes:
        constant: K with |z(x) - z(y)| <= K |x - y| for all x and y, both in l2 or both in linf, by norm.
        margins: constants of z_c - z_j with respect to a norm of the pixels (classes, classes), float64, by norm; 0 on the diagonal.
        declared: whether the user gave them.
        span: how large intermediate results are, in l2, in units of what a perturbation of the pixels of norm 1 does to them at most: a
            perturbation of eps span is as large as what rounding them does. 0: not known.
    """

    constant: dict[str, float]
    margins: dict[str, Tensor]
    declared: bool
    span: float = 0.0

    @staticmethod
    def of_declared(constant: dict[str, float], classes: int, pixels: int) -> Lipschitz:
        """Declared constants of the logits, in one or both norms: z_c - z_j changes by at most sqrt(2) K |x - y|_2 and 2 K |x - y|_inf.

        A norm without a constant takes the other's: |d|_inf <= |d|_2 <= sqrt(pixels) |d|_inf.
        """
        own = {"l2": math.sqrt(2.0) * constant.get("l2", math.inf), "linf": 2.0 * constant.get("linf", math.inf)}
        best = {"l2": min(own["l2"], own["linf"]), "linf": min(own["linf"], math.sqrt(pixels) * own["l2"])}
        of_logits = {"l2": min(constant.get("l2", math.inf), math.sqrt(classes) * constant.get("linf", math.inf))}
        of_logits["linf"] = min(constant.get("linf", math.inf), math.sqrt(pixels) * constant.get("l2", math.inf))
        other = 1.0 - torch.eye(classes, dtype=torch.float64)
        margins = {norm: rounded_up(value, 4) * other for norm, value in best.items()}
        return Lipschitz(of_logits, margins, declared=True)

    def of_margins(self, norm: str, predicted: Tensor) -> Tensor:
        """Constants of z_y - z_j for every class j (images, classes), y the predicted class (images,)."""
        return self.margins[norm].to(predicted.device)[predicted]

    def of_loss(self, norm: str, predicted: Tensor) -> Tensor:
        """Constants of max over j of z_j - z_y (images,): the largest constant of its terms."""
        return self.of_margins(norm, predicted).amax(1)


class _Reach(NamedTuple):
    """The largest change of a tensor, in its l2 and linf norm, for a perturbation of the pixels of norm 1."""

    l2: float
    linf: float

    def through(self, norms: Norms, values: int) -> _Reach:
        """After a layer with ``values`` outputs, by the smallest bound: |v|_inf <= |v|_2 <= sqrt(values) |v|_inf."""
        linf = min(norms.linf * self.linf, norms.rows * self.l2)
        l2 = min(norms.l2 * self.l2, math.sqrt(values) * linf)
        return _Reach(l2, min(linf, l2))


_Both = tuple[_Reach, _Reach]
"""For perturbations of l2 norm 1, and of linf norm 1."""


@once_a_model
def lipschitz_bound(model: LogitModel, image: Tensor) -> Lipschitz:
    """Constants of the map from pixels to logits, the model's own normalisation included; computed once for a model.

    Every operation between pixels and logits is bounded separately, and the bounds are multiplied along the graph that autograd records
    of one pass: products with fixed weights by their largest singular value (convolutions:
    :func:`robaudit.numerics.lipschitz.convolution`), batch norms together with the convolution in front of them, sums by the sum of the
    branches, concatenations by the root of their squares. Two bounds are carried along, of the l2 and of the linf norm, and the lesser of
    what follows from either is taken. Clipping of pixels is 1-Lipschitz. A margin z_c - z_j takes |w_c - w_j| in place of the norm of the
    last linear layer, so that the bound of a linear network is exact, and never more than sqrt(2) K in l2 and 2 K in linf; a log-softmax
    at the end does not change margins.

    The bound holds for the network in exact arithmetic. A network that uses pixels in ways that autograd does not see, such as
    comparisons, or numbers taken out of tensors, is refused if torch's dispatcher shows them.

    Args:
        model: pixels to logits.
        image: one image (channels, height, width); its shape matters.

    Raises:
        ModelError: an operation has no bound; it is named.
    """
    if not model.differentiable:
        raise _refusal(model, "its operations cannot be seen in this format")
    graph = trace(model, torch.full(image.shape, 0.5, dtype=model.dtype, device=model.device))
    if graph.unseen and not any(map(is_function, graph.nodes)):  # these compute outside autograd, and are named below
        raise _refusal(model, f"it uses pixels in a way that has no gradient (the operation {graph.unseen})")
    if not graph.nodes:
        raise _refusal(model, "its logits have no gradient")
    walk = _Walk(graph, image.numel(), torch.finfo(model.dtype).eps)
    for node in graph.nodes:
        try:
            walk.visit(node)
        except NoBoundError as error:
            why = f": {error}" if str(error) else ""
            raise _refusal(model, f"the operation {operation(node)} has none{why}") from error
    return _margins(walk, graph)


def _refusal(model: LogitModel, why: str) -> ModelError:
    remedy = "declare it, if you know one: lipschitz: {l2: K, source: where it is from}"
    return ModelError(model.name, f"has no Lipschitz constant that could be computed: {why}", remedy)


class _Walk:
    """The reach of every operation, inputs before outputs."""

    def __init__(self, graph: Graph, pixels: int, eps: float) -> None:
        self.graph, self._eps = graph, eps
        self.reach: dict[Any, _Both] = {graph.pixels: (_Reach(1.0, 1.0), _Reach(math.sqrt(pixels), 1.0))}
        self.span = 0.0
        users = graph.consumers()
        self._folded = {
            node
            for node in graph.nodes
            if operation(node) == "Convolution"
            and [operation(user) in NORMALISATIONS and len(graph.operands(user)) == 1 for user in users[node]] == [True]
            and len(graph.operands(node)) == 1
        }

    def part(self, node: Any, operand: Any) -> Input:
        """An operation as a function of one of its operands."""
        shapes = (shape_of_result(operand.node, operand.output), shape_of_result(node))
        return Input(node, operand.place, *(self._of_one(shape) for shape in shapes))

    def _of_one(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape for a single image."""
        return (1, *shape[1:]) if shape and shape[0] == self.graph.images else shape

    def _values(self, node: Any) -> int:
        """The number of values of a single image; the largest of several results."""
        return max(math.prod(shape) for shape in shapes_of_results(node)) // self.graph.images

    def visit(self, node: Any) -> None:
        """Bound an operation from the bounds of its operands."""
        if node not in self.reach and node not in self._folded:
            self._bound(node)
            self._compare(node, 1.0)

    def _compare(self, node: Any, scale: float, at: Any = None) -> None:
        """Account for the size of a result, times the gain behind it, up to an operation of known reach."""
        reach = self.reach[node if at is None else at][0].l2
        if reach > 0:
            self.span = max(self.span, scale * self.graph.size(node) / reach)

    def _bound(self, node: Any) -> None:
        if any(one.dtype.is_floating_point and torch.finfo(one.dtype).eps > self._eps for one in node._input_metadata):
            raise NoBoundError("it rounds to less precision than the model's")
        operands = self.graph.operands(node)
        parts = [self.part(node, operand) for operand in operands]
        values, name = self._values(node), operation(node)
        before = None if operands[0].node in self._folded else [self.reach[operand.node] for operand in operands]
        if before is None:
            self._visit_folded(node, operands[0].node, parts[0])
        elif name in SUMS:
            factors = SUMS[name](node)
            moved = [repeated(part).times(factors[part.place]) for part in parts]
            self.reach[node] = _added(before, moved, values)
        elif name in JOINED:
            self.reach[node] = (_joined([one[0] for one in before]), _joined([one[1] for one in before]))
        elif name in LARGER:
            moved = [repeated(part) for part in parts]
            stretched = [[one[i].through(norms, values) for one, norms in zip(before, moved, strict=True)] for i in range(2)]
            self.reach[node] = (_joined(stretched[0]), _joined(stretched[1]))
        elif len(operands) == 1:
            self._enter(node, norms_of(parts[0]), before[0])
        elif name in ("Addmm", "Addmv", "Baddbmm") and sum(part.place > 0 for part in parts) == 1:
            self.reach[node] = _added(before, [norms_of(part) for part in parts], values)
        else:
            raise NoBoundError("several of its operands depend on the pixels")

    def _visit_folded(self, node: Any, inner: Any, part: Input) -> None:
        """A batch norm and the convolution in front of it, as one convolution."""
        (operand,) = self.graph.operands(inner)
        scale = channel_scale(part)
        self._enter(node, convolution_norms(self.part(inner, operand), scale), self.reach[operand.node])
        self._compare(inner, float(scale.abs().amax()), node)

    def _enter(self, node: Any, norms: Norms, before: _Both) -> None:
        values = self._values(node)
        self.reach[node] = (before[0].through(norms, values), before[1].through(norms, values))


def _added(before: Sequence[_Both], moved: Sequence[Norms], values: int) -> _Both:
    """The reach of a sum."""
    found = []
    for i in range(2):
        each = [one[i].through(norms, values) for one, norms in zip(before, moved, strict=True)]
        found.append(_Reach(math.fsum(one.l2 for one in each), math.fsum(one.linf for one in each)))
    return found[0], found[1]


def _joined(parts: Sequence[_Reach]) -> _Reach:
    """The reach of a concatenation."""
    return _Reach(math.hypot(*(one.l2 for one in parts)), max(one.linf for one in parts))


def _margins(walk: _Walk, graph: Graph) -> Lipschitz:
    """Pull the differences of logits back through the last linear operations, and take the least bound of all places on the way."""
    classes = graph.classes
    node = graph.nodes[-1]
    device = graph.device
    rows = torch.eye(classes, dtype=torch.float64, device=device)  # (classes, values)
    constant = [walk.reach[node][0].l2, walk.reach[node][1].linf]
    best = [torch.full((classes, classes), math.inf, dtype=torch.float64, device=device) for _ in range(2)]
    selects = True  # every row has at most one nonzero: products are exact
    while True:
        if node not in walk.reach:  # folded into the preceding batch norm
            break
        l2, l1 = _apart(rows, 2.0), _apart(rows, 1.0)
        for i in range(2):
            best[i] = torch.minimum(best[i], torch.minimum(l2 * walk.reach[node][i].l2, l1 * walk.reach[node][i].linf))
        operands = graph.operands(node)
        if len(operands) != 1:
            break
        part = walk.part(node, operands[0])
        name, below = operation(node), operands[0].node
        pulled: Tensor | None
        if name == "LogSoftmax" and part.inside == (1, rows.shape[1]) and bool((rows.sum(1) == rows[0].sum()).all()):
            pulled = rows
            constant = [walk.reach[below][0].l2, walk.reach[below][1].linf]
        else:
            pulled = _pulled(rows, part, name, selects)
        if pulled is None:
            break
        selects = selects and fixed_matrix(part) is None
        rows, node = pulled, below
    other = 1.0 - torch.eye(classes, dtype=torch.float64)
    up = rounded_up(1.0, _MANY_LAYERS)
    margins = {norm: (found * up).cpu() * other for norm, found in zip(("l2", "linf"), best, strict=True)}
    of_logits = {norm: value * up for norm, value in zip(("l2", "linf"), constant, strict=True)}
    return Lipschitz(of_logits, margins, declared=False, span=walk.span)


def _pulled(rows: Tensor, part: Input, name: str, selects: bool) -> Tensor | None:
    """The rows in terms of an operation's operand; None where it is not linear, or this would not be exact."""
    same = part.inside == part.outside
    factor: Tensor | float | None = None
    if name in IN_ORDER:
        factor = 1.0
    elif name in SUMS and same:
        factor = SUMS[name](part.node)[part.place]
    elif name in ("Mul", "Div") and same:
        factor = fixed_factor(part).flatten()
    elif name in NORMALISATIONS:
        factor = channel_scale(part).reshape(1, -1, *[1] * (len(part.outside) - 2)).expand(part.outside).flatten()
    if factor is not None:
        return rows * factor
    if name == "ConstantPadNd" and len(rows) <= _FEW:  # one logit z as the two classes (0, z)
        metadata = part.node._input_metadata[0]
        with torch.no_grad():
            found = [part.node(row.reshape(part.outside).to(metadata.dtype).expand(tuple(metadata.shape))) for row in rows]
        return torch.stack([(one if isinstance(one, Tensor) else one[0])[0].flatten().double() for one in found])
    matrix = fixed_matrix(part)
    if matrix is not None and matrix.dim() == 2 and selects and rows.shape[1] == matrix.shape[0]:
        return rows @ matrix
    return None


def _apart(rows: Tensor, order: float) -> Tensor:
    """Bounds of |a_i - a_j| in l1 or l2 of rows whose numbers are rounded once or twice (rows, rows)."""
    size: Tensor = torch.linalg.vector_norm(rows, order, dim=1)
    sums = size[:, None] + size
    if len(rows) > _MOST_CLASSES:
        return sums * rounded_up(1.0, rows.shape[1])
    return differences(rows, order) + sums * (rounded_up(1.0, 4) - 1.0)
