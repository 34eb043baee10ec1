"""A network as a chain of affine maps and ReLUs, recorded from one pass and run again on other
values in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.errors import ModelError
from robaudit.models.graph import Shape, Step, record
from robaudit.models.logits import LogitModel, once_a_model
from robaudit.models.operations import NoRuleError, rule_of

Function = Callable[[Tensor], Tensor]

_FAR = 1e-3


@dataclass(frozen=True)
class Chain:
    """logits = A_n relu(... relu(A_1 x + b_1) ...) + b_n.

    Attributes:
        affine: the maps x -> A x + b (n, *shape) -> (n, *other shape), float64: one more than the
            ReLUs.
        shapes: the input shape of each map, without the batch.
    """

    affine: Sequence[Function]
    shapes: Sequence[Shape]

    @property
    def widest(self) -> int:
        """The largest input of a map, in values."""
        return max(torch.Size(shape).numel() for shape in self.shapes)

    def logits(self, x: Tensor) -> Tensor:
        """Run the network again, in float64."""
        for i, function in enumerate(self.affine):
            x = (
                function(x.reshape(-1, *self.shapes[i])).clamp_min(0)
                if i < len(self.affine) - 1
                else function(x)
            )
        return x


@once_a_model
def chain_of(model: LogitModel, image: Tensor) -> Chain:
    """The chain of a network, including its normalisation; recorded once per model.

    Linear layers, convolutions, batch norms with fixed statistics, average pooling and changes of
    shape make up the affine maps; a log-softmax at the end, which does not change margins, is left
    out. The chain is compared with the network on other values.

    Args:
        model: pixels to logits.
        image: one image (channels, height, width).

    Raises:
        ModelError: the network is not a chain; the message names the operation.
    """
    graph = record(model, image.to(model.device, model.dtype))
    if graph.obstacle:
        raise _refusal(model, graph.obstacle)
    steps = graph.steps[1:]
    cut = bool(steps) and steps[-1].name == "log_softmax"
    chain = _of_steps(steps[:-1] if cut else steps, tuple(image.shape), model)
    other = torch.stack([1 - image, image.flip(-1), image * 0.5]).to(model.device, model.dtype)
    with torch.no_grad():
        expected = model(other).double()
        try:
            actual = chain.logits(other.double())
        except RuntimeError as error:
            raise _refusal(
                model, "it splits or joins images in a way that only works for a single image"
            ) from error
    if cut:
        expected, actual = (
            logits - logits.logsumexp(1, keepdim=True) for logits in (expected, actual)
        )
    if bool(((expected - actual).abs() > _FAR * expected.abs().amax().clamp_min(1e-6)).any()):
        raise _refusal(
            model, "what it computes depends on more than the operations of one pass show"
        )
    return chain


def _of_steps(steps: Sequence[Step], pixels: Shape, model: LogitModel) -> Chain:
    """The affine maps between ReLUs, and the input shape of each."""
    groups = list[list[Function]]([[]])
    shapes = [pixels]
    for step in steps:
        try:
            affine = rule_of(step).affine
        except NoRuleError as error:
            raise _refusal(
                model, f"the operation {step.name}" + (f": {error}" if str(error) else "")
            ) from error
        if len(step.operands) > 1:
            raise _refusal(model, f"two branches meet in the operation {step.name}")
        (operand,) = step.operands
        if affine:
            groups[-1].append(step.again(operand))
        elif step.name == "relu":
            groups.append([])
            shapes.append(step.shape[1:])
        else:
            raise _refusal(model, f"the operation {step.name}")
    return Chain([_composed(group) for group in groups], shapes)


def _refusal(model: LogitModel, why: str) -> ModelError:
    what = f"moments cannot follow noise through it: {why}"
    remedy = (
        "it needs a plain chain of linear layers, convolutions, batch norms, average "
        "pooling and ReLU; use logit_gaussian"
    )
    return ModelError(model.name, what, remedy)


def _composed(functions: Sequence[Function]) -> Function:
    def run(x: Tensor) -> Tensor:
        for function in functions:
            x = function(x)
        return x

    return run
