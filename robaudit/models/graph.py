"""The operations of one pass between pixels and logits, as torch's dispatcher shows them: the one reader of networks.

The dispatcher sees every operation of every format that torch runs (modules, TorchScript, .pt2) with all its arguments, whether or not
gradients are recorded: so each can be bounded, and run again on other values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from robaudit.models.base import LoadedNetwork

Model = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]

_COPIES = frozenset({"clone", "to_copy", "alias", "detach"})
"""The result is the operand, perhaps in another format."""
_VIEWS = frozenset({"view", "unsafe_view", "reshape_alias"})
_LEAVING = frozenset({"numpy", "tolist", "__array__", "__dlpack__"})


@dataclass(frozen=True, eq=False)
class Operand:
    """A value that depends on the pixels, in place of an argument of an operation.

    Attributes:
        argument: its name.
        step: the operation that it comes from.
        output: index among the results of that operation.
        shape: for one image.
        whole: its shape, for all images of the pass.
        is_number: whether it is of a floating-point type.
    """

    argument: str
    step: Step
    output: int
    shape: Shape
    whole: Shape
    is_number: bool


@dataclass(frozen=True, eq=False)
class Step:
    """An operation on values that depend on the pixels.

    Attributes:
        name: torch's name, without underscores around it.
        function: torch's operator.
        arguments: by name, with defaults; an :class:`Operand` where they depend on the pixels.
        images: in the pass.
        shape: of the first result, for one image.
        values: the most values of a result, for one image.
        device: of the first result.
        eps: the coarsest rounding of a result.
        size: the largest l2 norm of a result in this pass, over all images.
    """

    name: str
    function: Any
    arguments: Mapping[str, Any] = field(repr=False)
    images: int
    shape: Shape
    values: int
    device: torch.device
    eps: float
    size: float

    @property
    def operands(self) -> list[Operand]:
        """The arguments that depend on the pixels."""
        return [one for one in tree_leaves(dict(self.arguments)) if isinstance(one, Operand)]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def again(self, operand: Operand, output: int = 0) -> Callable[[Tensor], Tensor]:
        """The operation as a function of its only operand (n, ...), in float64 and for any number of images n."""
        if self.name in _COPIES:
            return lambda x: x
        fixed = tree_map(
            lambda one: one.double().contiguous() if isinstance(one, Tensor) and one.is_floating_point() else one, dict(self.arguments)
        )
        size = fixed.get("size")
        writes = any(one.alias_info is not None and one.alias_info.is_write for one in self.function._schema.arguments)

        def run(x: Tensor) -> Tensor:
            value = x.clone() if writes else x
            given = {key: tree_map(lambda one: value if one is operand else one, one) for key, one in fixed.items()}
            if (
                isinstance(size, list | tuple) and size and operand.whole
            ):  # the images come first, perhaps folded together with something else
                given["size"] = [size[0] * len(x) // operand.whole[0] if size[0] > 0 else size[0], *size[1:]]
            if self.name in _VIEWS:  # other values may lie otherwise in memory, and need a copy
                return x.reshape(given["size"])
            found = _call(self.function, given)
            first: Tensor = found[output] if isinstance(found, tuple | list) else found
            return first

        return run

    def pulled_back(self, operand: Operand, rows: Tensor, output: int = 0) -> Tensor:
        """rows @ A of a linear operation x -> A x + b on its only operand, for one image (rows, values), float64.

        Args:
            operand: x.
            rows: (rows, values of the result).
            output: which result.
        """
        x = torch.zeros(operand.whole, dtype=torch.float64, device=self.device, requires_grad=True)
        with torch.enable_grad():
            y = self.again(operand, output)(x)
        each = (row.reshape(1, -1).expand(y.numel() // len(row), -1).reshape(y.shape) for row in rows.to(self.device))
        found = [torch.autograd.grad(y, x, row, retain_graph=True)[0] for row in each]
        return torch.stack([one.flatten()[: math.prod(operand.shape)] for one in found])


@dataclass(frozen=True)
class Graph:
    """The operations between pixels and logits.

    Attributes:
        steps: those that the logits depend on, inputs before outputs; the first is the pixels themselves. Empty: the logits are constant.
        classes: number of logits.
        obstacle: why the operations are not all that happens to the pixels, such as numbers taken out of tensors; or ''.
    """

    steps: Sequence[Step]
    classes: int
    obstacle: str

    def users(self) -> dict[Step, list[Step]]:
        """The operations that use each operation's results, once for each use."""
        found: dict[Step, list[Step]] = {step: [] for step in self.steps}
        for step in self.steps:
            for operand in step.operands:
                found[operand.step].append(step)
        return found


def record(model: Model, image: Tensor) -> Graph:
    """The operations of one pass that depend on the pixels.

    Args:
        model: pixels (n, channels, height, width) to logits (n, classes).
        image: (channels, height, width), of the model's type and on its device.
    """
    info = getattr(model, "info", None)
    if isinstance(info, LoadedNetwork) and not info.differentiable:
        return Graph((), 0, "its operations cannot be seen in this format")
    images = info.least_batch if isinstance(info, LoadedNetwork) else 1  # of fewer, the model would make copies, and record them, too
    x = image.expand(images, *image.shape).detach().clone().requires_grad_(True)
    recorder = _Recorder(x, _leaving_scripts(model))
    with torch.enable_grad(), recorder, _Leaving(recorder):  # some operations take hidden shortcuts where gradients are off
        logits = model(x)
    return recorder.graph(logits)


class _Recorder(TorchDispatchMode):
    """Follows values that depend on the pixels."""

    def __init__(self, x: Tensor, obstacle: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._images = len(x)
        self._steps = [self._step("pixels", None, {}, [x])]
        self._held: dict[int, tuple[Tensor, Step, int]] = {id(x): (x, self._steps[0], 0)}  # held so that their ids are not reused
        self._constants: list[tuple[Tensor, int]] = []
        self.obstacle = obstacle

    def holds(self, values: Any) -> bool:
        """Whether a tensor among them depends on the pixels."""
        return any(id(one) in self._held for one in _tensors_in(values))

    def graph(self, logits: Tensor) -> Graph:
        """The operations that a tensor depends on."""
        needed = {self._held[id(logits)][1]} if self.holds(logits) else set()
        for step in reversed(self._steps):
            if step in needed:
                needed.update(operand.step for operand in step.operands)
        changed = any(one._version != version for one, version in self._constants)
        obstacle = self.obstacle or ("it changes a tensor after using it" if changed else "")
        return Graph([step for step in self._steps if step in needed], logits.shape[-1], obstacle)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        uses_shape_alone = name.endswith("_like") or name.startswith("new_")
        if self.holds((args, kwargs)) and not uses_shape_alone:
            self._note(name, func, _by_name(func, args, kwargs or {}), result)
        return result

    def _note(self, name: str, func: Any, given: Mapping[str, Any], result: Any) -> None:
        written = [
            one for each in func._schema.arguments if each.alias_info and each.alias_info.is_write for one in _tensors_in(given[each.name])
        ]
        if torch.Tag.data_dependent_output in func.tags:
            self.obstacle = self.obstacle or f"it takes numbers out of the pixels (the operation {name.strip('_')})"
        if not all(id(one) in self._held for one in written):
            self.obstacle = self.obstacle or f"it writes pixels into another tensor (the operation {name})"
        arguments = {key: tree_map(lambda one, key=key: self._operand(one, key), value) for key, value in given.items()}
        made = _tensors_in(result)
        if not made:
            return
        self._steps.append(self._step(name.strip("_"), func, arguments, made))
        step = self._steps[-1]
        self._held |= {id(one): (one, step, i) for i, one in enumerate(made)}
        if written:
            self._outdate(name, func, arguments, written)

    def _outdate(self, name: str, func: Any, arguments: Mapping[str, Any], written: Sequence[Tensor]) -> None:
        """Replace other tensors in the same memory by an operation without a rule: its name keeps an underscore."""
        places = {one.untyped_storage().data_ptr() for one in written if one.numel()}
        for one, _, _ in list(self._held.values()):
            if one.untyped_storage().data_ptr() in places and not any(one is other for other in written):
                self._steps.append(self._step(f"{name.strip('_')}_", func, arguments, [one]))
                self._held[id(one)] = one, self._steps[-1], 0

    def _operand(self, value: Any, argument: str) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self._held:
            if not value.is_inference():
                self._constants.append((value, value._version))
            return value.detach()
        _, step, output = self._held[id(value)]
        return Operand(argument, step, output, self._of_one(value), tuple(value.shape), value.is_floating_point())

    def _of_one(self, value: Tensor) -> Shape:
        shape = tuple(value.shape)
        return (1, *shape[1:]) if shape and shape[0] == self._images else shape

    def _step(self, name: str, func: Any, arguments: Mapping[str, Any], made: Sequence[Tensor]) -> Step:
        numbers = [one.detach() for one in made if one.is_floating_point()]
        eps = max((torch.finfo(one.dtype).eps for one in numbers), default=0.0)
        size = max((float(torch.linalg.vector_norm(one, dtype=torch.float64)) for one in numbers if one.numel()), default=0.0)
        values = max(one.numel() for one in made) // self._images
        return Step(name, func, arguments, self._images, self._of_one(made[0]), values, made[0].device, eps, size)


class _Leaving(TorchFunctionMode):
    """Notes where pixels leave torch as numbers or arrays, which the dispatcher does not see."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _LEAVING and not self._recorder.obstacle and self._recorder.holds(args):
            self._recorder.obstacle = f"it takes numbers out of the pixels ({name.strip('_')})"
        return func(*args, **(kwargs or {}))


def _leaving_scripts(model: Model) -> str:
    """The obstacle in a TorchScript network that makes lists of tensors, which no dispatcher sees, or ''."""
    network = getattr(model, "network", model)
    scripts = [one for one in network.modules() if isinstance(one, torch.jit.ScriptModule)] if isinstance(network, nn.Module) else []
    graphs: list[Any] = [one.inlined_graph for one in scripts if hasattr(one, "forward")]
    return "it takes numbers out of tensors (tolist)" if any(graph.findAllNodes("prim::tolist", True) for graph in graphs) else ""


def _by_name(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an operator by name, with defaults."""
    arguments = func._schema.arguments
    given = dict(zip((one.name for one in arguments), args, strict=False)) | dict(kwargs)
    return {one.name: given.get(one.name, one.default_value) for one in arguments}


def _call(func: Any, given: Mapping[str, Any]) -> Any:
    """Call an operator with arguments by name."""
    arguments = func._schema.arguments
    positional = [given[one.name] for one in arguments if not one.kwarg_only]
    return func(*positional, **{one.name: given[one.name] for one in arguments if one.kwarg_only})


def _tensors_in(values: Any) -> list[Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, Tensor)]
