"""The operations of one pass that depend on the pixels, from the graph that autograd records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from robaudit.models.base import LoadedNetwork

Model = Callable[[Tensor], Tensor]


class Operand(NamedTuple):
    """An operand of an operation that depends on the pixels.

    Attributes:
        place: its position among the operands.
        node: the operation that it comes from.
        output: index of its output.
    """

    place: int
    node: Any
    output: int


@dataclass(frozen=True)
class Graph:
    """The operations between pixels and logits.

    Attributes:
        nodes: those that depend on the pixels, inputs before outputs; the first is the pixels themselves. Empty: the logits are constant.
        images: in the pass: the fewest the network accepts.
        classes: number of logits.
        device: of the pass.
        sizes: the l2 norm of an operation's result in this pass, by its running number.
        unseen: first non-differentiable use of the pixels, such as a comparison, or ''.
    """

    nodes: Sequence[Any]
    images: int
    classes: int
    device: torch.device
    sizes: Mapping[int, float]
    unseen: str

    @property
    def pixels(self) -> Any:
        """The node of the pixels."""
        return self.nodes[0]

    def operands(self, node: Any) -> list[Operand]:
        """The operands of an operation that depend on the pixels."""
        return [Operand(i, other, nr) for i, (other, nr) in enumerate(node.next_functions) if other is not None and other in self._members]

    @cached_property
    def _members(self) -> frozenset[Any]:
        return frozenset(self.nodes)

    def consumers(self) -> dict[Any, list[Any]]:
        """The operations that use each operation's result."""
        found: dict[Any, list[Any]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for operand in self.operands(node):
                found[operand.node].append(node)
        return found

    def size(self, node: Any) -> float:
        """The l2 norm of an operation's result over all images of the pass; 0 if unknown."""
        return self.sizes.get(node._sequence_nr(), 0.0)


def operation(node: Any) -> str:
    """autograd's name of an operation, without the common prefix and suffix.

    A ``torch.autograd.Function`` may compute anything and be called Relu: its name gets a blank, which torch's own never have.
    """
    if is_function(node):
        return f"function {node.name().removesuffix('Backward')}"
    return re.sub(r"Backward\d*$", "", node.name().rpartition("::")[2])


def is_function(node: Any) -> bool:
    """Whether it is a ``torch.autograd.Function``, whose gradient need not belong to its result."""
    return isinstance(node, BackwardCFunction)


def shape_of_result(node: Any, output: int = 0) -> tuple[int, ...]:
    """The shape of an operation's result."""
    variable = getattr(node, "variable", None)
    return tuple(variable.shape if variable is not None else node._input_metadata[output].shape)


def shapes_of_results(node: Any) -> list[tuple[int, ...]]:
    """The shapes of an operation's results."""
    if hasattr(node, "variable"):
        return [shape_of_result(node)]
    return [tuple(one.shape) for one in node._input_metadata]


def fewest_images(model: Model) -> int:
    """The fewest images a network accepts; with fewer, its model would make copies, which would be recorded, too."""
    info = getattr(model, "info", None)
    return info.least_batch if isinstance(info, LoadedNetwork) else 1


def trace(model: Model, image: Tensor) -> Graph:
    """The operations of one pass that depend on the pixels.

    Args:
        model: pixels (n, channels, height, width) to logits (n, classes).
        image: (channels, height, width).
    """
    images = fewest_images(model)
    with torch.enable_grad():
        x = image.expand(images, *image.shape).detach().clone().requires_grad_(True)
        watch = _Watch(x, _leaving_scripts(model))
        with watch, _Numbers(watch):
            logits = model(x)
    if logits.grad_fn is None:
        return Graph((), images, logits.shape[-1], logits.device, {}, watch.unseen)
    return Graph(tuple(_dependent(logits.grad_fn, x)), images, logits.shape[-1], logits.device, watch.sizes, watch.unseen)


def _dependent(top: Any, x: Tensor) -> Iterator[Any]:
    """The nodes that x reaches, inputs before outputs."""
    reaches: dict[Any, bool] = {}
    stack = [(top, False)]
    while stack:
        node, done = stack.pop()
        if done:
            reaches[node] = getattr(node, "variable", None) is x or any(reaches[other] for other, _ in node.next_functions if other)
            if reaches[node]:
                yield node
        elif node not in reaches:
            reaches[node] = False
            stack.append((node, True))
            stack += [(other, False) for other, _ in node.next_functions if other and other not in reaches]


def _next_number() -> int:
    """Autograd's number for the next operation."""
    return int(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]


class _Watch(TorchDispatchMode):
    """Follows values that depend on the pixels, and records non-differentiable uses.

    Comparisons, positions of maxima and rounded numbers have no gradient, and neither has what is computed under ``torch.no_grad()``: a
    network that uses them (``x * (x > 0)``, ``if x.mean() > 0``) depends on the pixels in ways that its graph does not show.
    """

    def __init__(self, x: Tensor, unseen: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held: dict[int, Tensor] = {id(x): x}  # held so that their ids are not reused
        self._lost: set[int] = set()
        self.sizes: dict[int, float] = {}
        self.unseen = unseen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [one for one in tensors_in((args, kwargs)) if id(one) in self._held]
        name = func._schema.name.rpartition("::")[2]
        if not given or name.endswith("_like") or name.startswith("new_"):  # these use only the shape
            return result
        detaches = name == "detach"  # autograd does this with saved tensors, which nothing else uses
        made = tensors_in(result)
        used = any(id(one) in self._lost for one in given) and any(one.is_floating_point() for one in made)
        if not self.unseen and not detaches and (used or name == "_local_scalar_dense"):
            self.unseen = name.lstrip("_")
        for one in made:
            self._held[id(one)] = one
            if detaches or not one.is_floating_point() or not torch.is_grad_enabled():
                self._lost.add(id(one))
            elif one.numel():
                number = _next_number() - 1  # autograd creates its node before the operation runs
                size = float(torch.linalg.vector_norm(one.detach(), dtype=torch.float64))
                self.sizes[number] = max(size, self.sizes.get(number, 0.0))
        return result

    def holds(self, values: Any) -> bool:
        """Whether a tensor among them depends on the pixels."""
        return any(id(one) in self._held for one in tensors_in(values))


class _Numbers(TorchFunctionMode):
    """Records where pixels leave torch as numbers or arrays, which the dispatcher does not see."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _LEAVING and not self._watch.unseen and self._watch.holds(args):
            self._watch.unseen = name.strip("_")
        return func(*args, **(kwargs or {}))


def _leaving_scripts(model: Model) -> str:
    """Where a TorchScript network takes numbers out of tensors, which no dispatcher sees, or ''."""
    network = getattr(model, "network", model)
    scripts = [one for one in network.modules() if isinstance(one, torch.jit.ScriptModule)] if isinstance(network, nn.Module) else []
    graphs = [one.inlined_graph for one in scripts if hasattr(one, "forward")]
    found = any(graph.findAllNodes("prim::tolist", True) for graph in graphs)  # type: ignore[attr-defined]
    return "tolist" if found else ""


_LEAVING = frozenset({"numpy", "tolist", "__array__", "__dlpack__"})


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors among the arguments or results of an operation, in containers, too."""
    return [one for one in tree_leaves(values) if isinstance(one, Tensor)]
