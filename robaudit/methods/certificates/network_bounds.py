"""A Lipschitz bound of the margins of a network, from its operations and their weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.errors import ModelError
from robaudit.models.graph import Graph, Operand, Step, record
from robaudit.models.logits import LogitModel, cached_by_model
from robaudit.models.operations import (
    CONVOLUTIONS,
    NORMALISATIONS,
    NoRuleError,
    Reach,
    channel_scale,
    convolution_norms,
    fixed_matrix,
    rule_of,
)
from robaudit.numerics.layer_norms import Norms, differences, rounded_up

_MOST_CLASSES = 2048
"""With more classes, a difference is bounded by the sum of both norms: all pairs take too long."""
_MANY_LAYERS = 1 << 12  # operations behind a product of the layers' norms, for its rounding


@dataclass(frozen=True)
class Lipschitz:
    """Lipschitz constants of the logits z and of their differences.

    Attributes:
        constant: K with |z(x) - z(y)| <= K |x - y| for all x and y, both in l2 or both in linf, by
            norm.
        margins: constants of z_c - z_j with respect to a norm of the pixels (classes, classes),
            float64, by norm; 0 on the diagonal.
        declared: whether the user declared them.
        span: the largest l2 norm of an intermediate result, relative to the bound on its change by
            a pixel perturbation of norm 1. A perturbation of norm eps * span is as large as the
            effect of rounding. 0: not known.
    """

    constant: dict[str, float]
    margins: dict[str, Tensor]
    declared: bool
    span: float = 0.0

    @staticmethod
    def from_declared(constant: dict[str, float], classes: int, pixels: int) -> Lipschitz:
        """Declared constants of the logits, in one or both norms.

        z_c - z_j changes by at most sqrt(2) K |x - y|_2 and 2 K |x - y|_inf. A norm without a
        constant takes the other's: |d|_inf <= |d|_2 <= sqrt(pixels) |d|_inf, and for logits
        |z|_2 <= sqrt(classes) |z|_inf.
        """
        l2 = constant.get("l2", math.inf)
        linf = constant.get("linf", math.inf)
        margin_l2 = math.sqrt(2.0) * l2
        margin_linf = 2.0 * linf
        best = {
            "l2": min(margin_l2, margin_linf),
            "linf": min(margin_linf, math.sqrt(pixels) * margin_l2),
        }
        of_logits = {
            "l2": min(l2, math.sqrt(classes) * linf),
            "linf": min(linf, math.sqrt(pixels) * l2),
        }
        other = 1.0 - torch.eye(classes, dtype=torch.float64)
        # Off the diagonal; each constant is a product of a few rounded numbers.
        margins = {norm: rounded_up(value, 4) * other for norm, value in best.items()}
        return Lipschitz(of_logits, margins, declared=True)

    def of_margins(self, norm: str, predicted: Tensor) -> Tensor:
        """Constants of z_y - z_j for every class j (images, classes).

        y is the predicted class of each image (images,).
        """
        return self.margins[norm].to(predicted.device)[predicted]

    def of_loss(self, norm: str, predicted: Tensor) -> Tensor:
        """Constants of max over j of z_j - z_y (images,): the largest constant of its terms."""
        return self.of_margins(norm, predicted).amax(1)


_Both = tuple[Reach, Reach]
"""The reach for perturbations of l2 norm 1, and of linf norm 1."""


@cached_by_model
def lipschitz_bound(model: LogitModel, image: Tensor) -> Lipschitz:
    """Constants of the map from pixels to logits, including the model's normalisation.

    They are computed once per model. Every operation between pixels and logits is bounded
    separately, and the bounds are multiplied along the graph of one pass: products with fixed
    weights by their largest singular value (convolutions:
    :func:`robaudit.numerics.layer_norms.convolution`), batch norms together with the convolution in
    front of them, sums by the sum of the branches, concatenations by the root of their squares.
    Bounds in l2 and in linf are carried along, and each step takes the smallest bound that follows
    from either. Clipping of pixels is 1-Lipschitz. A margin z_c - z_j takes |w_c - w_j| in place of
    the norm of the last linear layer, so that the bound of a linear network is exact, and never
    more than sqrt(2) K in l2 and 2 K in linf. A log-softmax at the end does not change margins.

    The bound holds for the network in exact arithmetic. Operations without a rule, such as
    comparisons, are refused, and so are numbers taken out of tensors, as far as torch shows it.

    Args:
        model: pixels to logits.
        image: one image (channels, height, width); its shape matters.

    Raises:
        ModelError: an operation, which is named, has no bound.
    """
    # The bound holds for all images, so any image will do.
    grey = torch.full(image.shape, 0.5, dtype=model.dtype, device=model.device)
    graph = record(model, grey)
    if graph.obstacle:
        raise _refusal(model, graph.obstacle)
    if not graph.steps:
        raise _refusal(model, "its logits do not depend on the pixels")
    # Inputs come before outputs, so every operand has been bounded.
    walk = _Walk(graph, image.numel(), torch.finfo(model.dtype).eps)
    for step in graph.steps[1:]:
        try:
            walk.visit(step)
        except NoRuleError as error:
            why = f": {error}" if str(error) else ""
            raise _refusal(model, f"the operation {step.name} has none{why}") from error
    return _margins(walk, graph)


def _refusal(model: LogitModel, why: str) -> ModelError:
    """The error for a network without a constant."""
    remedy = "declare it, if you know one: lipschitz: {l2: K, source: where it is from}"
    return ModelError(
        model.name, f"has no Lipschitz constant that could be computed: {why}", remedy
    )


class _Walk:
    """The reach of every operation, inputs before outputs."""

    def __init__(self, graph: Graph, pixels: int, eps: float) -> None:
        self._eps = eps
        pixels_reach = (Reach(1.0, 1.0), Reach(math.sqrt(pixels), 1.0))
        self.reach: dict[Step, _Both] = {graph.steps[0]: pixels_reach}
        self.span = 0.0
        # Convolutions whose only user is a batch norm: both are bounded as one convolution.
        self._folded = set()
        for step, users in graph.users().items():
            normalised = [user.name in NORMALISATIONS for user in users] == [True]
            if step.name in CONVOLUTIONS and normalised:
                self._folded.add(step)

    def visit(self, step: Step) -> None:
        """Bound an operation from the bounds of its operands."""
        rule = rule_of(step)
        operands = step.operands
        # The bound allows for the rounding of the model's own precision only.
        if step.eps > self._eps:
            raise NoRuleError("it rounds to less precision than the model's")
        if step in self._folded:
            return
        inner = operands[0].step
        if inner in self._folded:
            (before,) = inner.operands
            # The batch norm scales the channels of the convolution's kernel, which is bounded anew.
            scale = channel_scale(step)
            norms = convolution_norms(inner, before, scale)
            reach = _through(self.reach[before.step], norms, step.values)
            self._enter(step, reach)
            self._compare(inner, float(scale.abs().amax()), step)
            return
        moved = []
        for operand in operands:
            norms = rule.norms(step, operand)
            moved.append(_through(self.reach[operand.step], norms, step.values))
        if rule.several is None:
            self._enter(step, moved[0])
        else:
            l2_reaches = [l2 for l2, _ in moved]
            linf_reaches = [linf for _, linf in moved]
            self._enter(step, (rule.several(l2_reaches), rule.several(linf_reaches)))

    def _enter(self, step: Step, reach: _Both) -> None:
        """Record the reach of an operation."""
        self.reach[step] = reach
        self._compare(step, 1.0, step)

    def _compare(self, step: Step, scale: float, known: Step) -> None:
        """Raise the span to the size of a result, relative to the reach of a known operation.

        ``scale`` is the gain from the result to that operation.
        """
        # Where the network is constant, nothing is reached and nothing can be compared.
        reach = self.reach[known][0].l2
        if reach > 0:
            self.span = max(self.span, scale * step.size / reach)


def _through(reach: _Both, norms: Norms, values: int) -> _Both:
    """The reach after a layer with ``values`` outputs."""
    return reach[0].through(norms, values), reach[1].through(norms, values)


def _margins(walk: _Walk, graph: Graph) -> Lipschitz:
    """The constants of the logits and their differences.

    The differences of logits are pulled back through the last linear operations; the smallest bound
    on the way is taken.
    """
    # rows holds z as a linear function of the result of the present step; the walk is backwards.
    classes = graph.classes
    step = graph.steps[-1]
    output = 0
    rows = torch.eye(classes, dtype=torch.float64, device=step.device)  # (classes, values)
    constant = [walk.reach[step][0].l2, walk.reach[step][1].linf]
    unbounded = torch.full((classes, classes), math.inf, dtype=torch.float64, device=step.device)
    best = [unbounded, unbounded]
    selects = True  # every row has at most one nonzero value: products are exact
    # A convolution that is folded into the batch norm behind it has no reach of its own.
    while step in walk.reach:
        # Hoelder: |(a_i - a_j) . v| <= |a_i - a_j|_2 |v|_2 and <= |a_i - a_j|_1 |v|_inf.
        l2 = _apart(rows, 2.0)
        l1 = _apart(rows, 1.0)
        for i in range(2):
            reach = walk.reach[step][i]
            bound = torch.minimum(l2 * reach.l2, l1 * reach.linf)
            best[i] = torch.minimum(best[i], bound)
        if len(step.operands) != 1:
            break
        (operand,) = step.operands
        matrix = fixed_matrix(step, operand)
        is_product = matrix is not None and matrix.dim() == 2 and rows.shape[1] == matrix.shape[0]
        if _is_final_log_softmax(step, operand, rows):
            # It changes no margin, so the constant of all logits is the constant of its operand.
            constant = [walk.reach[operand.step][0].l2, walk.reach[operand.step][1].linf]
        elif rule_of(step).moves(step, operand):
            rows = step.pulled_back(operand, rows, output)
        elif matrix is not None and is_product and selects:
            rows = rows @ matrix
            selects = False
        else:
            break
        step = operand.step
        output = operand.output
    off_diagonal = 1.0 - torch.eye(classes, dtype=torch.float64)
    up = rounded_up(1.0, _MANY_LAYERS)
    margins = {}
    of_logits = {}
    for i, norm in enumerate(("l2", "linf")):
        margins[norm] = (best[i] * up).cpu() * off_diagonal
        of_logits[norm] = constant[i] * up
    return Lipschitz(of_logits, margins, declared=False, span=walk.span)


def _is_final_log_softmax(step: Step, operand: Operand, rows: Tensor) -> bool:
    """Whether an operation is a log-softmax that subtracts the same number from all logits."""
    if step.name != "log_softmax" or operand.shape != (1, rows.shape[1]):
        return False
    # Rows with one sum weigh the subtracted number alike, so it cancels in every difference.
    return bool((rows.sum(1) == rows[0].sum()).all())


def _apart(rows: Tensor, order: float) -> Tensor:
    """Bounds of |a_i - a_j| in l1 or l2 for rows whose numbers were rounded once or twice (rows,
    rows)."""
    size: Tensor = torch.linalg.vector_norm(rows, order, dim=1)
    sums = size[:, None] + size
    if len(rows) > _MOST_CLASSES:
        return sums * rounded_up(1.0, rows.shape[1])
    return differences(rows, order) + sums * (rounded_up(1.0, 4) - 1.0)
