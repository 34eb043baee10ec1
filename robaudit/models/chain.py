"""A network as a chain of affine maps and ReLUs, recorded from one pass and run again on other values in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from robaudit.errors import ModelError
from robaudit.models.graph import fewest_images, tensors_in
from robaudit.models.logits import LogitModel, once_a_model

Function = Callable[[Tensor], Tensor]

_RESHAPING = frozenset({"view", "_unsafe_view", "reshape", "_reshape_alias"})
_UNCHANGED = frozenset({"clone", "_to_copy", "alias", "detach", "contiguous", "lift_fresh", "to"})
_AFFINE = frozenset(
    """convolution _convolution addmm mm linear native_batch_norm cudnn_batch_norm _native_batch_norm_legit_no_training avg_pool2d
    _adaptive_avg_pool2d mean sum add add_ sub sub_ rsub mul mul_ div div_ neg permute transpose squeeze unsqueeze flatten constant_pad_nd
    upsample_nearest2d upsample_bilinear2d slice select""".split()  # noqa: SIM905  a list of one name a line would fill a screen
)
_BATCH_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm"})
_TRAINING = 5  # the position of this argument
_RELU = frozenset({"relu", "relu_"})
_FAR = 1e-3


@dataclass(frozen=True)
class Chain:
    """logits = A_n relu(... relu(A_1 x + b_1) ...) + b_n.

    Attributes:
        affine: the maps x -> A x + b (n, *shape) -> (n, *other shape), float64: one more than the ReLUs.
        shapes: of the input of each, without the batch.
    """

    affine: Sequence[Function]
    shapes: Sequence[tuple[int, ...]]

    @property
    def widest(self) -> int:
        """The most values between two maps, or among the pixels."""
        return max(torch.Size(shape).numel() for shape in self.shapes)

    def logits(self, x: Tensor) -> Tensor:
        """Run the network again, in float64."""
        for i, function in enumerate(self.affine):
            x = function(x.reshape(-1, *self.shapes[i])).clamp_min(0) if i < len(self.affine) - 1 else function(x)
        return x


@once_a_model
def chain_of(model: LogitModel, image: Tensor) -> Chain:
    """The chain of a network, its own normalisation included; recorded once for a model.

    Linear layers, convolutions, batch norms with fixed statistics, average pooling and changes of shape make up the affine maps; a
    log-softmax at the end, which does not change margins, is left out. The chain is compared with the network on other values.

    Args:
        model: pixels to logits.
        image: one image (channels, height, width).

    Raises:
        ModelError: the network is not such a chain; the message names the operation.
    """
    if not model.differentiable:
        raise _refusal(model, "its operations cannot be seen in this format")
    images = fewest_images(model)
    x = image.to(model.device, model.dtype).expand(images, *image.shape).detach().clone()
    with torch.no_grad(), _Recorder(x) as recorder:
        logits = model(x)
    if recorder.obstacle or not recorder.is_latest(logits):
        raise _refusal(model, recorder.obstacle or "two branches meet in it")
    steps = recorder.steps
    if steps and steps[-1].name == "_log_softmax":
        steps = steps[:-1]
    chain = Chain(*_grouped(steps, tuple(x.shape[1:])))
    other = torch.stack([1 - image, image.flip(-1), image * 0.5]).to(model.device, model.dtype)
    with torch.no_grad():
        expected = model(other).double()
        try:
            found = chain.logits(other.double())
        except RuntimeError as error:
            raise _refusal(model, "it takes images apart or together in a way that only works for one of them") from error
    if steps is not recorder.steps:
        expected, found = (one - one.logsumexp(1, keepdim=True) for one in (expected, found))
    if bool(((expected - found).abs() > _FAR * expected.abs().amax().clamp_min(1e-6)).any()):
        raise _refusal(model, "what it computes depends on more than the operations of one pass show")
    return chain


def _refusal(model: LogitModel, why: str) -> ModelError:
    what = f"moments cannot follow noise through it: {why}"
    remedy = "it needs a plain chain of linear layers, convolutions, batch norms, average pooling and ReLU; use logit_gaussian"
    return ModelError(model.name, what, remedy)


@dataclass(frozen=True)
class _Step:
    """An operation on the previous operation's result.

    Attributes:
        name: of the operation.
        apply: the operation with all other arguments fixed.
        shape: of its result for one image.
    """

    name: str
    apply: Function
    shape: tuple[int, ...]


def _grouped(steps: Sequence[_Step], pixels: tuple[int, ...]) -> tuple[list[Function], list[tuple[int, ...]]]:
    """The affine maps between ReLUs, and the input shape of each."""
    groups: list[list[Function]] = [[]]
    shapes = [pixels]
    for step in steps:
        if step.name in _RELU:
            groups.append([])
            shapes.append(step.shape)
        else:
            groups[-1].append(step.apply)
    return [_composed(group) for group in groups], shapes


def _composed(functions: Sequence[Function]) -> Function:
    def run(x: Tensor) -> Tensor:
        for function in functions:
            x = function(x)
        return x

    return run


class _Recorder(TorchDispatchMode):
    """Records operations on values that depend on the pixels, with their other arguments."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[_Step] = []
        self.obstacle = ""
        self._latest, self._images = x, len(x)
        self._older: dict[int, Tensor] = {}

    def is_latest(self, value: Tensor) -> bool:
        """Whether a tensor is the result of the last operation."""
        return value is self._latest

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [one for one in tensors_in((args, kwargs)) if one is self._latest or id(one) in self._older]
        if given and not self.obstacle:
            name = func._schema.name.rpartition("::")[2]
            self._note(name, func, args, kwargs, given, result)
        return result

    def _note(self, name: str, func: Any, args: Any, kwargs: Any, given: Sequence[Tensor], result: Any) -> None:
        made = result[0] if isinstance(result, tuple | list) else result
        if len(given) > 1 or given[0] is not self._latest:
            self.obstacle = f"two branches meet in the operation {name}" if len(given) > 1 else f"it branches before the operation {name}"
        elif not (_known_operation(name, args) and isinstance(made, Tensor) and made.is_floating_point()):
            self.obstacle = f"the operation {name}"
        elif name == "div" and not (args and args[0] is self._latest):
            self.obstacle = "it divides by something that depends on the pixels"
        elif kwargs.get("rounding_mode") is not None:
            self.obstacle = "it rounds"
        else:
            self._older[id(self._latest)] = self._latest
            apply = _again(name, func, args, kwargs, self._latest, self._images)
            self._older.pop(id(made), None)  # an in-place operation returns its argument
            self._latest = made
            self.steps.append(_Step(name, apply, tuple(made.shape[1:])))


def _known_operation(name: str, args: Sequence[Any]) -> bool:
    if name in _BATCH_NORMS:
        return args[_TRAINING] is False
    return name in _AFFINE | _RELU | _RESHAPING | _UNCHANGED or name == "_log_softmax"


def _again(name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], value: Tensor, images: int) -> Function:
    """The operation as a function of one argument, in float64 and for any number of images."""
    if name in _UNCHANGED:
        return lambda x: x
    if name in _RESHAPING:
        shape = list(args[1])
        return lambda x: x.reshape(len(x) if shape[0] == images else shape[0], *shape[1:])
    place = next(i for i, one in enumerate(args) if one is value)
    fixed = [one.double().clone(memory_format=torch.contiguous_format) if _is_constant(one, value) else one for one in args]
    others = {key: one.double() if _is_constant(one, value) else one for key, one in kwargs.items()}

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            found = func(*fixed[:place], x.clone() if name.endswith("_") else x, *fixed[place + 1 :], **others)
        first: Tensor = found[0] if isinstance(found, tuple | list) else found
        return first

    return run


def _is_constant(one: Any, value: Tensor) -> bool:
    return isinstance(one, Tensor) and one is not value and one.is_floating_point()
