"""Networks from TorchScript files, of operators on the list only unless the file is trusted.

Without trust there are two checks. The first is of the source, before torch reads the file, since
torch runs parts of it while reading. The second is of the graphs that torch made of it, before
anything calls them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
_CLASSES = "__torch__.torch.classes."  # of compiled libraries
# The number of the argument that says whether an operator trains.
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
        # Trusted code may do anything, but a damaged pickle would crash torch all the same.
        _check_pickles(reader, None, source.where)
    else:
        source_code = source_of(reader, source.where)
        _check_pickles(reader, source_code.classes, source.where)
        check_operators(source_code.outside(), "torch", source.where)
    try:
        # The steps of torch.jit.load. The unit has every function of the file, called or not.
        unit: Any = torch._C.CompilationUnit()
        code: Any = torch._C.import_ir_module(unit, str(path), source.device, {}, False)  # type: ignore[call-arg]
        if not source.trust:
            # The source names `x.sum()`; the graph names the operator that torch chose for it.
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
    wrapped = AsWritten(network).eval()
    return LoadedNetwork(wrapped, "torchscript", file_sha256(path), notes=(NOTE,))


def _recognises(_: bytes, members: Sequence[str]) -> bool:
    """Whether an archive has source code."""
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
        # In a list: torch would register a bare module as a submodule.
        self._frozen: list[nn.Module] = []

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
    """The graph with weights as constants and batch norms folded.

    The network itself where torch cannot freeze it.
    """
    with without_deprecation():
        try:
            return cast(nn.Module, torch.jit.freeze(network))
        except (RuntimeError, torch.jit.Error):
            return network


@contextmanager
def without_deprecation() -> Iterator[None]:
    """Without torch's remarks that TorchScript is deprecated."""
    with warnings.catch_warnings():
        # torch calls TorchScript deprecated in either way, by version.
        for category in (FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is", category)
        yield


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
    # torch finds members in any case. Of two with one name, it could load the one that was not
    # checked.
    if len({name.lower() for name in names}) < len(names):
        what = "is not a sound torch zip archive (two of its members have the same name)"
        raise ModelError(where, what, "save it again with torch.jit.save")
    for name in names:
        # torch has another loader for this format, and the checks here are not made for it.
        if name.lower() == "model.json":
            raise ModelError(
                where, "is of a format that torch 1.0 wrote", "save it again with torch.jit.save"
            )
        if name.lower().endswith(".py"):
            module = name[: -len(".py")].removeprefix("code/").replace("/", ".")
            code.read(reader.get_record(name), module, where)
    return code


def _check_pickles(reader: Any, classes: Mapping[str, ClassCode] | None, where: str) -> None:
    """Refuse pickles that torch does not write.

    torch takes sizes and types from them without a check, and would reach other memory.

    Args:
        reader: torch's own reader of the archive.
        classes: of the file's source; None for a trusted file: types are not compared.
        where: the file, for messages.

    Raises:
        ModelError: a pickle is damaged, crafted, or holds what cannot be audited.
    """
    for record in reader.get_all_records():
        name = record.lower()  # torch finds members in any case
        # torch reads debug pickles, too: they say which line of the source an operator is from.
        is_debug = name.endswith(".debug_pkl") and classes is not None
        if name not in ("data.pkl", "constants.pkl") and not is_debug:
            continue
        size_of = partial(_size, reader, name.removesuffix(".pkl"))
        try:
            value = read_pickle(reader.get_record(record), size_of, classes)
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
    """The number of bytes in the record of a storage."""
    # The content's length, not the size that the archive's directory claims.
    return len(reader.get_record(f"{folder}/{record}"))


def graph_operators(unit: Any) -> Iterator[Operator]:
    """Every operator in every graph of a compilation unit, whether or not anything calls it."""
    for function in unit.get_functions():
        for node in _nodes(function.graph):
            namespace, _, name = node.kind().partition("::")
            yield namespace, name
            # A value may be an object of a compiled library, whose methods are any code.
            for value in (*node.inputs(), *node.outputs()):
                type_name = value.type().annotation_str
                if _CLASSES in type_name:
                    yield "class", type_name


def _calls(unit: Any) -> dict[str, list[str]]:
    """The function that each node calls, for each function of a compilation unit.

    torch replaces calls by the nodes of the called function, so a small file could become a graph
    that fills the memory.
    """
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
    """All nodes of a graph, with those of its blocks and inner graphs."""
    # A list instead of recursion: a hostile graph may be nested deeper than Python's stack.
    waiting = list(graph.nodes())
    while waiting:
        node = waiting.pop()
        yield node
        for block in node.blocks():
            waiting += block.nodes()
        # Attributes of the kinds graph ("g") and list of graphs ("gs").
        for attribute in node.attributeNames():
            inner_graphs = []
            if node.kindOf(attribute) == "g":
                inner_graphs = [node.g(attribute)]
            elif node.kindOf(attribute) == "gs":
                inner_graphs = node.gs(attribute)
            for inner in inner_graphs:
                waiting += inner.nodes()


def _refuse_training(network: nn.Module, where: str) -> None:
    """Refuse traces of training mode.

    They hold batch statistics and dropout as constants, which eval() cannot switch off.
    """
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
