"""The operations of one pass between pixels and logits, as torch's dispatcher shows them.

The dispatcher sees every operation of every format that torch runs (modules, TorchScript, .pt2)
with all its arguments, whether or not gradients are recorded, so each can be bounded, and run again
on other values.
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

from robaudit.models.formats import LoadedNetwork

Model = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]
Arguments = Mapping[str, Any]
"""The arguments of an operator by name."""

_COPIES = frozenset({"clone", "to_copy", "alias", "detach"})
"""Operations that return their operand, perhaps in another format."""
_VIEWS = frozenset({"view", "unsafe_view", "reshape_alias"})
"""Operations that change the shape, and need a certain layout in memory."""
_LEAVING = frozenset({"numpy", "tolist", "__array__", "__dlpack__"})
"""Methods by which numbers leave torch."""


@dataclass(frozen=True, eq=False)
class Operand:
    """An argument of an operation that depends on the pixels.

    Attributes:
        argument: its name.
        step: the operation that computed it.
        output: its index among the results of that operation.
        shape: for one image.
        whole: its shape for all images of the pass.
        is_number: whether it has a floating-point type.
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
        images: number of images in the pass.
        shape: of the first result, for one image.
        values: number of values of the largest result, for one image.
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
        return [value for value in tree_leaves(dict(self.arguments)) if isinstance(value, Operand)]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def again(self, operand: Operand, output: int = 0) -> Callable[[Tensor], Tensor]:
        """The operation as a function of its only operand.

        Args:
            operand: the argument that becomes the function's.
            output: the index of the result that the function returns.

        Returns:
            A function of a float64 tensor (n, ...), for any number of images n.
        """
        if self.name in _COPIES:
            return lambda x: x
        fixed = tree_map(_in_float64, dict(self.arguments))
        size = fixed.get("size")
        writes = any(_is_written(parameter) for parameter in self.function._schema.arguments)

        def run(x: Tensor) -> Tensor:
            value = x.clone() if writes else x
            arguments = {
                key: tree_map(lambda leaf: value if leaf is operand else leaf, fixed[key])
                for key in fixed
            }
            # The recorded size holds the number of images of the pass, as its first axis or merged
            # into it; -1 stands for whatever fits.
            if isinstance(size, list | tuple) and size and operand.whole:
                first_axis = size[0]
                if first_axis > 0:
                    first_axis = first_axis * len(x) // operand.whole[0]
                arguments["size"] = [first_axis, *size[1:]]
            # Other values may have another memory layout, and need a copy.
            if self.name in _VIEWS:
                return x.reshape(arguments["size"])
            result = _call(self.function, arguments)
            chosen: Tensor = result[output] if isinstance(result, tuple | list) else result
            return chosen

        return run

    def pulled_back(self, operand: Operand, rows: Tensor, output: int = 0) -> Tensor:
        """rows @ A of a linear operation x -> A x + b on its only operand, for one image.

        The product with a row is a gradient, because y = A x + b has the gradient A^T row.

        Args:
            operand: x.
            rows: (rows, values of the result).
            output: index of the result.

        Returns:
            (rows, values of x), float64.
        """
        x = torch.zeros(operand.whole, dtype=torch.float64, device=self.device, requires_grad=True)
        with torch.enable_grad():
            y = self.again(operand, output)(x)
        gradients = []
        for row in rows.to(self.device):
            # Every image of the pass gets the row; the first one's gradient is taken.
            copies = y.numel() // len(row)
            weights = row.reshape(1, -1).expand(copies, -1).reshape(y.shape)
            gradient = torch.autograd.grad(y, x, weights, retain_graph=True)[0]
            gradients.append(gradient.flatten()[: math.prod(operand.shape)])
        return torch.stack(gradients)


@dataclass(frozen=True)
class Graph:
    """The operations between pixels and logits.

    Attributes:
        steps: the operations that the logits depend on, inputs before outputs; the first is the
            pixels. Empty: the logits are constant.
        classes: number of logits.
        obstacle: why the operations miss part of what happens to the pixels, such as numbers taken
            out of tensors; or ''.
    """

    steps: Sequence[Step]
    classes: int
    obstacle: str

    def users(self) -> dict[Step, list[Step]]:
        """The operations that use each operation's results, once per use."""
        users: dict[Step, list[Step]] = {step: [] for step in self.steps}
        for step in self.steps:
            for operand in step.operands:
                users[operand.step].append(step)
        return users


def record(model: Model, image: Tensor) -> Graph:
    """The operations of one pass that depend on the pixels.

    Args:
        model: pixels (n, channels, height, width) to logits (n, classes).
        image: (channels, height, width), of the model's type and on its device.
    """
    info = getattr(model, "info", None)
    if isinstance(info, LoadedNetwork) and not info.differentiable:
        return Graph((), 0, "its operations cannot be seen in this format")
    # With fewer, the model would pad, and record that, too.
    images = info.least_batch if isinstance(info, LoadedNetwork) else 1
    batch = image.expand(images, *image.shape)
    x = batch.detach().clone().requires_grad_(True)
    recorder = _Recorder(x, _leaving_scripts(model))
    # Some operations take hidden shortcuts where gradients are off.
    with torch.enable_grad(), recorder, _Leaving(recorder):
        logits = getattr(model, "raw", model)(x)
    if bool(torch.isneginf(logits.detach()).any()):
        return Graph((), logits.shape[-1], "a logit is minus infinity")
    return recorder.graph(logits)


class _Recorder(TorchDispatchMode):
    """Records every operation on values that depend on the pixels.

    Args:
        x: the pixels (n, channels, height, width).
        obstacle: what is known before the pass to be missed, or ''.
    """

    def __init__(self, x: Tensor, obstacle: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._images = len(x)
        pixels = self._step("pixels", None, {}, [x])
        self._steps = [pixels]
        # By the id of a tensor that depends on the pixels: the tensor, so that its id is not used
        # again, the operation that computed it, and its index among the results.
        self._origins: dict[int, tuple[Tensor, Step, int]] = {}
        self._origins[id(x)] = (x, pixels, 0)
        # Other tensors that were used, with torch's counts of writes to them.
        self._constants: list[tuple[Tensor, int]] = []
        self.obstacle = obstacle

    def holds(self, values: Any) -> bool:
        """Whether a tensor among the values depends on the pixels."""
        return any(id(tensor) in self._origins for tensor in _tensors_in(values))

    def graph(self, logits: Tensor) -> Graph:
        """The operations that a tensor depends on."""
        needed = set()
        if self.holds(logits):
            _, last, _ = self._origins[id(logits)]
            needed.add(last)
        # Backwards, because operands come before the operations that use them.
        for step in reversed(self._steps):
            if step in needed:
                needed.update(operand.step for operand in step.operands)
        changed = any(tensor._version != version for tensor, version in self._constants)
        obstacle = self.obstacle or ("it changes a tensor after using it" if changed else "")
        steps = [step for step in self._steps if step in needed]
        return Graph(steps, logits.shape[-1], obstacle)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        uses_shape_alone = name.endswith("_like") or name.startswith("new_")
        if self.holds((args, kwargs)) and not uses_shape_alone:
            self._note(name, func, _by_name(func, args, kwargs or {}), result)
        return result

    def _note(self, name: str, func: Any, values: Arguments, result: Any) -> None:
        """Record an operation.

        Args:
            name: torch's.
            func: the operator.
            values: its arguments by name.
            result: what it returned.
        """
        parameters = func._schema.arguments
        written = _tensors_in(
            [values[parameter.name] for parameter in parameters if _is_written(parameter)]
        )
        # `index` has the tag because of masks. Masks and indices that depend on the pixels are
        # refused by rule_of; of other indices, the shape is fixed.
        sized = torch.Tag.dynamic_output_shape in func.tags and name != "index"
        if sized or torch.Tag.data_dependent_output in func.tags:
            self._obstruct(f"it takes numbers out of the pixels (the operation {name.strip('_')})")
        if not all(id(tensor) in self._origins for tensor in written):
            self._obstruct(f"it writes pixels into another tensor (the operation {name})")
        arguments = {
            key: tree_map(lambda leaf, key=key: self._operand(leaf, key), value)
            for key, value in values.items()
        }
        results = _tensors_in(result)
        if not results:
            return
        step = self._step(name.strip("_"), func, arguments, results)
        self._steps.append(step)
        for index, tensor in enumerate(results):
            self._origins[id(tensor)] = (tensor, step, index)
        if written:
            self._outdate(name, func, arguments, written)

    def _obstruct(self, obstacle: str) -> None:
        """Keep the first obstacle."""
        self.obstacle = self.obstacle or obstacle

    def _outdate(
        self, name: str, func: Any, arguments: Arguments, written: Sequence[Tensor]
    ) -> None:
        """Mark other tensors in memory that was written to as results of an unknown operation.

        Its name ends with an underscore, which no rule has.
        """
        places = {tensor.untyped_storage().data_ptr() for tensor in written if tensor.numel()}
        written_ids = {id(tensor) for tensor in written}
        for tensor, _, _ in list(self._origins.values()):
            shares_memory = tensor.untyped_storage().data_ptr() in places
            if shares_memory and id(tensor) not in written_ids:
                step = self._step(f"{name.strip('_')}_", func, arguments, [tensor])
                self._steps.append(step)
                self._origins[id(tensor)] = (tensor, step, 0)

    def _operand(self, value: Any, argument: str) -> Any:
        """An argument as a step holds it: an operand if it depends on the pixels."""
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self._origins:
            # Tensors of inference mode have no count of writes.
            if not value.is_inference():
                self._constants.append((value, value._version))
            return value.detach()
        _, step, output = self._origins[id(value)]
        return Operand(
            argument,
            step,
            output,
            self._of_one(value),
            tuple(value.shape),
            value.is_floating_point(),
        )

    def _of_one(self, value: Tensor) -> Shape:
        """The shape of a tensor for one image."""
        shape = tuple(value.shape)
        return (1, *shape[1:]) if shape and shape[0] == self._images else shape

    def _step(self, name: str, func: Any, arguments: Arguments, results: Sequence[Tensor]) -> Step:
        """An operation with what is known of its results."""
        numbers = [tensor.detach() for tensor in results if tensor.is_floating_point()]
        eps = max((torch.finfo(tensor.dtype).eps for tensor in numbers), default=0.0)
        filled = [tensor for tensor in numbers if tensor.numel()]
        norms = (torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in filled)
        size = max(map(float, norms), default=0.0)
        values = max(tensor.numel() for tensor in results) // self._images
        return Step(
            name,
            func,
            arguments,
            self._images,
            self._of_one(results[0]),
            values,
            results[0].device,
            eps,
            size,
        )


class _Leaving(TorchFunctionMode):
    """Notices pixels that leave torch as numbers or arrays, which the dispatcher does not see."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _LEAVING and not self._recorder.obstacle and self._recorder.holds(args):
            self._recorder.obstacle = f"it takes numbers out of the pixels ({name.strip('_')})"
        return func(*args, **(kwargs or {}))


def _leaving_scripts(model: Model) -> str:
    """The obstacle in a TorchScript network that turns tensors into lists, or ''.

    No dispatcher sees it: TorchScript runs this without an operator of torch.
    """
    network = getattr(model, "network", model)
    modules = network.modules() if isinstance(network, nn.Module) else ()
    for part in modules:
        if isinstance(part, torch.jit.ScriptModule) and hasattr(part, "forward"):
            graph: Any = part.inlined_graph
            if graph.findAllNodes("prim::tolist", True):
                return "it takes numbers out of tensors (tolist)"
    return ""


def _in_float64(leaf: Any) -> Any:
    """An argument, with a tensor of floating-point numbers in float64."""
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        return leaf.double().contiguous()
    return leaf


def _is_written(parameter: Any) -> bool:
    """Whether an operator writes into the tensor of this parameter."""
    return parameter.alias_info is not None and parameter.alias_info.is_write


def _by_name(func: Any, args: Sequence[Any], kwargs: Arguments) -> dict[str, Any]:
    """The arguments of an operator by name, with defaults."""
    parameters = func._schema.arguments
    names = [parameter.name for parameter in parameters]
    values = dict(zip(names, args, strict=False))
    values.update(kwargs)
    return {
        parameter.name: values.get(parameter.name, parameter.default_value)
        for parameter in parameters
    }


def _call(func: Any, arguments: Arguments) -> Any:
    """Call an operator with arguments by name."""
    positional = []
    by_keyword = {}
    for parameter in func._schema.arguments:
        if parameter.kwarg_only:
            by_keyword[parameter.name] = arguments[parameter.name]
        else:
            positional.append(arguments[parameter.name])
    return func(*positional, **by_keyword)


def _tensors_in(values: Any) -> list[Tensor]:
    """The tensors in a nested structure of lists, tuples and dictionaries."""
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]
