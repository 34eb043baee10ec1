"""Networks from TorchScript files, of operators on the list only unless the file is trusted.

Two checks: the source, before torch reads the file, since torch runs parts of it while reading;
and the graphs that torch made of it, before anything calls them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.expansion import check_expansion
from robaudit.models.formats import Format, LoadedNetwork, Source, file_sha256
from robaudit.models.operators import Operator, check_operators
from robaudit.models.safety import members, reader_of
from robaudit.models.torchscript_pickle import (
    ForgedError,
    UnsupportedError,
    check_types,
    read_pickle,
)
from robaudit.models.torchscript_source import ClassCode, SourceCode
from robaudit.text import first_line

NOTE = (
    "torchscript: a graph of torch operators, not only weights; load files only from people "
    "you trust"
)
_CLASSES = "__torch__.torch.classes."
# argument number
_TRAINING_FLAG = {
    "aten::dropout": 2,
    "aten::feature_dropout": 2,
    "aten::alpha_dropout": 2,
    "aten::batch_norm": 5,
}


def load_torchscript(source: Source) -> LoadedNetwork:
    """Load a file of ``torch.jit.save`` in eval mode.

    Raises:
        ModelError: it is not a TorchScript archive, is damaged, has NaN weights or, without trust,
            uses operators that are not on the list.
    """
    path = source.file
    members(path, check=True)
    reader = reader_of(path)
    if source.trust:
        _check_pickles(reader, None, source.where)
    else:
        source_code = source_of(reader, source.where)
        _check_pickles(reader, source_code.classes, source.where)
        check_operators(source_code.outside(), "torch", source.where)
    try:
        # as torch.jit.load does; has every function of the file
        unit: Any = torch._C.CompilationUnit()
        code: Any = torch._C.import_ir_module(unit, str(path), source.device, {}, False)  # type: ignore[call-arg]
        if not source.trust:
            check_operators(graph_operators(unit), "torch", source.where)
            check_expansion(_calls(unit), source.where)
        network = torch.jit._recursive.wrap_cpp_module(code)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            source.where,
            f"torch.jit cannot load it: {first_line(error)}",
            "save it again with torch.jit.save",
        ) from error
    network.eval()
    _refuse_training(network, source.where)
    return LoadedNetwork(AsWritten(network).eval(), "torchscript", file_sha256(path), notes=(NOTE,))


def _recognises(_: bytes, members: Sequence[str]) -> bool:
    return any(member.startswith("code/") for member in members)


FORMAT = Format("torchscript", load_torchscript, (".torchscript", ".pt"), _recognises)


class AsWritten(nn.Module):
    """Runs a TorchScript graph as it is written, without torch's profiling and fusing.

    Fusing would compile again for new shapes (seconds, when gradients are requested; measured no
    faster afterwards on the CPU), and the first calls, which are profiled, would round differently
    from later ones. In inference mode a frozen copy runs, its batch norms folded into the
    convolutions (5 to 11 % faster on the networks measured; the logits differ by rounding).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._frozen: list[
            nn.Module
        ] = []  # in a list: torch would register a bare module as a submodule

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
    """The graph with weights as constants and batch norms folded; the network itself where torch
    cannot freeze it."""
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
    names = reader.get_all_records()
    if len({name.lower() for name in names}) < len(names):  # torch finds members in any case
        what = "is not a sound torch zip archive (two of its members have the same name)"
        raise ModelError(where, what, "save it again with torch.jit.save")
    for name in names:
        if name.lower() == "model.json":
            raise ModelError(
                where, "is of a format that torch 1.0 wrote", "save it again with torch.jit.save"
            )
        if name.lower().endswith(".py"):
            module = name[: -len(".py")].removeprefix("code/").replace("/", ".")
            code.read(reader.get_record(name), module, where)
    return code


def _check_pickles(reader: Any, classes: Mapping[str, ClassCode] | None, where: str) -> None:
    """Refuse pickles that torch does not write: torch takes sizes and types from them, and would
    reach other memory.

    Args:
        reader: torch's own reader of the archive.
        classes: of the file's source; None for a trusted file: types are not compared.
        where: the file, for messages.
    """
    for record in reader.get_all_records():
        name = record.lower()  # torch finds members in any case
        if name in ("data.pkl", "constants.pkl") or (
            name.endswith(".debug_pkl") and classes is not None
        ):
            try:
                value = read_pickle(
                    reader.get_record(record),
                    partial(_size, reader, name.removesuffix(".pkl")),
                    classes,
                )
                if classes is not None:
                    check_types(value, name, classes)
            except UnsupportedError as error:
                raise ModelError(where, *error.args) from error
            except ForgedError as error:
                raise ModelError(
                    where,
                    f"{name}: {error}",
                    "the file is damaged, or crafted to reach other memory",
                ) from error
            except Exception as error:
                raise ModelError(
                    where,
                    f"{name} is not a torch pickle ({error})",
                    "the file is damaged; save it again",
                ) from error


def _size(reader: Any, folder: str, record: str) -> int:
    """The bytes of a record with the elements of a storage."""
    return len(reader.get_record(f"{folder}/{record}"))


def graph_operators(unit: Any) -> Iterator[Operator]:
    """Every operator in every graph of a compilation unit, whether or not anything calls it."""
    for function in unit.get_functions():
        for node in _nodes(function.graph):
            namespace, _, name = node.kind().partition("::")
            yield namespace, name
            for value in (*node.inputs(), *node.outputs()):
                if _CLASSES in (kind := value.type().annotation_str):
                    yield "class", kind


def _calls(unit: Any) -> dict[str, list[str]]:
    """What each node of each function of a compilation unit calls; torch replaces calls by what is
    called."""
    return {
        function.qualified_name: [_called(node) for node in _nodes(function.graph)]
        for function in unit.get_functions()
    }


def _called(node: Any) -> str:
    """The function or method that a node calls; "" for other nodes."""
    if node.kind() not in ("prim::CallFunction", "prim::CallMethod"):
        return ""
    owner: str = node.inputsAt(0).type().annotation_str
    return f"{owner}.{node.s('name')}" if node.kind() == "prim::CallMethod" else owner


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes of a graph, those of its blocks and inner graphs included."""
    todo = list(graph.nodes())
    while todo:
        node = todo.pop()
        yield node
        for block in node.blocks():
            todo += block.nodes()
        for attribute in node.attributeNames():
            if node.kindOf(attribute) == "g":
                todo += node.g(attribute).nodes()
            elif node.kindOf(attribute) == "gs":
                todo += [inner for graph in node.gs(attribute) for inner in graph.nodes()]


def _refuse_training(network: nn.Module, where: str) -> None:
    """Refuse traces of training mode: they hold batch statistics and dropout as constants, which
    eval() cannot switch off."""
    graph: Any = network.inlined_graph
    for operator, argument in _TRAINING_FLAG.items():
        for node in graph.findAllNodes(operator):
            if node.inputsAt(argument).toIValue() is True:
                name = operator.removeprefix("aten::")
                raise ModelError(
                    where,
                    f"was traced in training mode ({name} is active)",
                    "call model.eval() before torch.jit.trace",
                )
