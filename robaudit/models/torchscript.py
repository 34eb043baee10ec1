"""Networks from TorchScript files, of operators on the list only unless the file is trusted.

Two checks: the source, before torch reads the file, since torch runs parts of it while reading;
and the graphs that torch made of it, before anything calls them.
"""

from __future__ import annotations

import io
import math
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.base import Format, LoadedNetwork, Source, file_sha256
from robaudit.models.operators import Operator, check_operators
from robaudit.models.safety import Unread, members, reader_of
from robaudit.models.torchscript_source import SourceCode
from robaudit.text import first_line

NOTE = "torchscript: a graph of torch operators, not only weights; load files only from people you trust"
_CLASSES = "__torch__.torch.classes."
_TRAINING_FLAG = {"aten::dropout": 2, "aten::feature_dropout": 2, "aten::alpha_dropout": 2, "aten::batch_norm": 5}  # argument number


def load_torchscript(source: Source) -> LoadedNetwork:
    """Load a file of ``torch.jit.save`` in eval mode.

    Raises:
        ModelError: it is not a TorchScript archive, is damaged, has NaN weights or, without trust, uses operators that are not on the list.
    """
    path = source.file
    members(path, check=True)
    reader = reader_of(path)
    _check_tensors(reader, source.where)
    if not source.trust:
        check_operators(source_of(reader, source.where).outside(), "torch", source.where)
    try:
        unit: Any = torch._C.CompilationUnit()  # as torch.jit.load does; has every function of the file
        code: Any = torch._C.import_ir_module(unit, str(path), source.device, {}, False)  # type: ignore[call-arg]
        if not source.trust:
            check_operators(graph_operators(unit), "torch", source.where)
        network = torch.jit._recursive.wrap_cpp_module(code)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(source.where, f"torch.jit cannot load it: {first_line(error)}", "save it again with torch.jit.save") from error
    network.eval()
    _refuse_training(network, source.where)
    return LoadedNetwork(AsWritten(network).eval(), "torchscript", file_sha256(path), notes=(NOTE,))


def _recognises(_: bytes, members: Sequence[str]) -> bool:
    return any(member.startswith("code/") for member in members)


FORMAT = Format("torchscript", load_torchscript, (".torchscript", ".pt"), _recognises)


class AsWritten(nn.Module):
    """Runs a TorchScript graph as it is written, without torch's profiling and fusing.

    Fusing would compile again for new shapes (seconds, when gradients are requested; measured no faster afterwards on the CPU),
    and the first calls, which are profiled, would round differently from later ones. In inference mode a frozen copy runs, its
    batch norms folded into the convolutions (5 to 11 % faster on the networks measured; the logits differ by rounding).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._frozen: list[nn.Module] = []  # in a list: torch would register a bare module as a submodule

    def forward(self, images: torch.Tensor) -> Any:
        """The network's own output."""
        network = self.fastest() if torch.is_inference_mode_enabled() else self.network
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return network(images)

    def fastest(self) -> nn.Module:
        """The network that runs in inference mode."""
        if not self._frozen:
            with torch.inference_mode(False), torch.no_grad():
                self._frozen.append(_frozen(self.network))
        return self._frozen[0]

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> AsWritten:
        """Discard the frozen copy on every change of device, dtype or memory format."""
        self._frozen.clear()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]


def _frozen(network: nn.Module) -> nn.Module:
    """The graph with weights as constants and batch norms folded; the network itself where torch cannot freeze it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.freeze` is", FutureWarning)
        warnings.filterwarnings("ignore", r"`torch\.jit\.freeze` is", DeprecationWarning)
        try:
            return cast(nn.Module, torch.jit.freeze(network))
        except (RuntimeError, torch.jit.Error):
            return network


def source_of(reader: Any, where: str) -> SourceCode:
    """The source code in a TorchScript archive.

    Args:
        reader: torch's own reader of the archive.
        where: the file, for messages.

    Raises:
        ModelError: torch 1.0 wrote it, or it is not as ``torch.jit.save`` writes it.
    """
    code = SourceCode()
    for name in reader.get_all_records():
        # torch finds members in any case
        if name.lower() == "model.json":
            raise ModelError(where, "is of a format that torch 1.0 wrote", "save it again with torch.jit.save")
        if name.lower().endswith(".py"):
            code.read(reader.get_record(name), where)
    return code


def _check_tensors(reader: Any, where: str) -> None:
    """Refuse tensors that reach beyond their records: torch takes their sizes from the pickle, and would read other memory."""
    for name in ("data.pkl", "constants.pkl"):
        if reader.has_record(name):
            try:
                _Tensors(reader, name).load()
            except _UnsupportedError as error:
                raise ModelError(where, *error.args) from error
            except _FalseClaimError as error:
                raise ModelError(where, f"{name}: {error}", "the file is damaged, or crafted to read other memory") from error
            except Exception as error:
                raise ModelError(where, f"{name} is not a torch pickle ({error})", "the file is damaged; save it again") from error


class _UnsupportedError(Exception):
    """A pickle holds something sound that cannot be audited; it has what and remedy."""


class _FalseClaimError(Exception):
    """A pickle claims more data than there is."""


class _Kind(NamedTuple):
    """A type of storage."""

    item_bytes: int


class _Storage(NamedTuple):
    """A storage and its number of elements."""

    elements: int


_ITEM_BYTES = {"ComplexDouble": 16} | dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat"), 8)
_ITEM_BYTES |= dict.fromkeys(("Float", "Int", "UInt32", "QInt32", "ComplexHalf"), 4)
_ITEM_BYTES |= dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2)  # all others: 1
_SUB_BYTE = ("QUInt4x2Storage", "QUInt2x4Storage")


class _Tensors(pickle.Unpickler):
    """Reads a pickle of TorchScript with inert stand-ins for classes and functions, and checks the sizes of tensors."""

    def __init__(self, reader: Any, name: str) -> None:
        super().__init__(io.BytesIO(reader.get_record(name)))
        self._reader, self._folder = reader, name.removesuffix(".pkl")

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in; nothing is imported."""
        written = f"{module}.{name}"
        if "torch.classes.quantized." in written or name in _SUB_BYTE:
            what = f"is quantised (it holds {name}), and cannot be audited"
            raise _UnsupportedError(what, "export the network before quantisation, in float32")
        if "torch.classes" in written:  # TorchScript would make an object of a library's own class
            what = f"holds an object of {name}, a class of a library"
            raise _UnsupportedError(what, "export it with tensors only")
        if name.endswith("Storage"):
            return _Kind(_ITEM_BYTES.get(name.removesuffix("Storage"), 1))
        return _check_extent if name.startswith("_rebuild") else Unread

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage: ("storage", type, record, device, elements)."""
        _, kind, record, _, count = pid
        if not isinstance(kind, _Kind):
            raise _FalseClaimError("a storage has no type")
        needed, stored = count * kind.item_bytes, len(self._reader.get_record(f"{self._folder}/{record}"))
        if not 0 <= needed <= stored:
            raise _FalseClaimError(f"claims {needed} bytes of {self._folder}/{record}, which has {stored}")
        return _Storage(count)


def _check_extent(*arguments: Any) -> Unread:
    """Stand-in for torch's functions that build a tensor from (storage, offset, shape, strides, ...)."""
    if arguments and isinstance(arguments[0], _Storage):
        storage, offset, shape, strides = arguments[:4]
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if math.prod(shape) and (min(offset, *shape, *strides, 0) < 0 or last >= storage.elements):
            raise _FalseClaimError(f"a tensor of shape {shape} reaches beyond its {storage.elements} stored elements")
    return Unread()


def graph_operators(unit: Any) -> Iterator[Operator]:
    """Every operator in every graph of a compilation unit, whether or not anything calls it."""
    todo = [node for function in unit.get_functions() for node in function.graph.nodes()]
    while todo:
        node = todo.pop()
        namespace, _, name = node.kind().partition("::")
        yield namespace, name
        for value in (*node.inputs(), *node.outputs()):
            if _CLASSES in (kind := value.type().annotation_str):
                yield "class", kind
        for block in node.blocks():
            todo += block.nodes()
        for attribute in node.attributeNames():
            if node.kindOf(attribute) == "g":
                todo += node.g(attribute).nodes()
            elif node.kindOf(attribute) == "gs":
                todo += [inner for graph in node.gs(attribute) for inner in graph.nodes()]


def _refuse_training(network: nn.Module, where: str) -> None:
    """Refuse traces of training mode: they hold batch statistics and dropout as constants, which eval() cannot switch off."""
    graph: Any = network.inlined_graph
    for operator, argument in _TRAINING_FLAG.items():
        for node in graph.findAllNodes(operator):
            if node.inputsAt(argument).toIValue() is True:
                name = operator.removeprefix("aten::")
                raise ModelError(where, f"was traced in training mode ({name} is active)", "call model.eval() before torch.jit.trace")
