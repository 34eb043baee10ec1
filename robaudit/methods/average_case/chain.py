"""A network as a chain of affine maps and ReLUs, recorded from one pass and run again on other
values in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.errors import ModelError
from robaudit.models.graph import Shape, Step, record
from robaudit.models.logits import LogitModel, cached_by_model
from robaudit.models.operations import NoRuleError, rule_of

Function = Callable[[Tensor], Tensor]

_FAR = 1e-3  # relative difference of logits that float32 passes do not explain


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
        *hidden, last = self.affine
        for function, shape in zip(hidden, self.shapes[:-1], strict=True):
            x = function(x.reshape(-1, *shape)).clamp_min(0)
        return last(x)


@cached_by_model
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
    steps = graph.steps[1:]  # the first is the input
    ends_in_softmax = bool(steps) and steps[-1].name == "log_softmax"
    if ends_in_softmax:
        steps = steps[:-1]
    chain = _from_steps(steps, tuple(image.shape), model)
    _compare(chain, model, image, ends_in_softmax=ends_in_softmax)
    return chain


def _compare(chain: Chain, model: LogitModel, image: Tensor, *, ends_in_softmax: bool) -> None:
    """Compare the chain with the network on images that the recording has not seen.

    Raises:
        ModelError: they differ.
    """
    # A network may branch on its input, which a single pass does not show.
    others = torch.stack([1 - image, image.flip(-1), image * 0.5]).to(model.device, model.dtype)
    with torch.no_grad():
        expected = model(others).double()
        try:
            actual = chain.logits(others.double())
        except RuntimeError as error:
            why = "it splits or joins images in a way that only works for a single image"
            raise _refusal(model, why) from error
    if ends_in_softmax:
        # A log-softmax fixes the sum of exponentials, which the chain leaves free.
        expected = expected - expected.logsumexp(1, keepdim=True)
        actual = actual - actual.logsumexp(1, keepdim=True)
    tolerated = _FAR * expected.abs().amax().clamp_min(1e-6)
    if bool(((expected - actual).abs() > tolerated).any()):
        why = "what it computes depends on more than the operations of one pass show"
        raise _refusal(model, why)


def _from_steps(steps: Sequence[Step], pixels: Shape, model: LogitModel) -> Chain:
    """The affine maps between ReLUs, and the input shape of each.

    Raises:
        ModelError: an operation has no place in a chain.
    """
    groups = list[list[Function]]([[]])
    shapes = [pixels]
    for step in steps:
        try:
            affine = rule_of(step).affine
        except NoRuleError as error:
            reason = f": {error}" if str(error) else ""
            raise _refusal(model, f"the operation {step.name}{reason}") from error
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
    """The error for a network that is not a chain."""
    what = f"moments cannot follow noise through it: {why}"
    remedy = (
        "it needs a plain chain of linear layers, convolutions, batch norms, average "
        "pooling and ReLU; use logit_gaussian"
    )
    return ModelError(model.name, what, remedy)


def _composed(functions: Sequence[Function]) -> Function:
    """The functions, one after the other."""

    def run(x: Tensor) -> Tensor:
        for function in functions:
            x = function(x)
        return x

    return run
