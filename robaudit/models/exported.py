"""Networks from .pt2 files: the archive is checked, then torch.export loads it, weights only.

torch.export.load reads pickles with ``torch.load``, which can be told to read weights only.
Everything else that could run code is refused here: members that are objects or compiled libraries,
and four kinds of text in the graph. Size expressions go through sympy's ``eval``; operators are
looked up from ``torch`` with getattr (``torch.os.system``); names of values and arguments are
written into Python source; and the structure of the inputs may import modules.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.export.passes import move_to_device_pass

from robaudit.errors import ModelError
from robaudit.models.formats import Format, LoadedNetwork, Source, batch_note, file_sha256
from robaudit.models.operators import Operator, check_operators
from robaudit.models.safety import members, reader_of, refusal
from robaudit.text import first_line

NOTE = "pt2: a graph of torch operators, not only weights; load files only from people you trust"
_DROPOUTS = (
    "dropout",
    "feature_dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
    "native_dropout",
)
_BATCH_NORMS = (
    "batch_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "cudnn_batch_norm",
)
# Members that torch would unpickle as objects, or load as compiled libraries.
_OBJECTS = re.compile(r"custom_obj|opaque_obj|aotinductor", re.IGNORECASE)
_OLD_GRAPH = "serialized_exported_program"
_DESCRIBED = ("nodes", "graph_module")
"""Parts of a graph that may have descriptions, under the key ``metadata``."""
_TRAINING = ("native_dropout", "_native_batch_norm_legit", "_native_batch_norm_legit_functional")
"""Operators that only exports in training mode have."""
# Namespace, name and overload of an operator. Of names between two underscores only these are
# operators: others, such as __class__, lead from torch to any object.
_TARGET = re.compile(
    r"(?:torch\.ops\.(\w+)|(_operator|math|torch))"
    r"\.(_?[A-Za-z]\w*|__i?(?:and|or|xor|[lr]shift)__)"
    r"(?:\.[A-Za-z]\w*)?"
)
_CALLS = ("target", "as_operator")
"""Fields that name an operator."""
_NAME = re.compile(r"(?:[A-Za-z_]\w*)?")
_PLAIN_TEXT = re.compile(r"[\w.:+\-*/<>=, ]*")
_SIZE = re.compile(
    r"(?:(?:Symbol|Integer|Rational|Add|Mul|Max|Min|Abs"
    r"|(?:Python)?Mod|(?:Floor|Clean|Ceil|IntTrue)Div|ModularIndexing|Where|Identity|ToFloat"
    r"|(?:Ceil|Floor|Trunc|Round)ToInt"
    r"|Equality|Unequality|(?:Strict)?(?:Less|Greater)Than|And|Or|Not)\("
    r"|'[a-z]+\d+'|[a-z]+=(?:True|False)|true|false|int_oo|oo|-?\d|[), ]){1,2000}"
)
"""sympy's srepr of sizes, such as Mul(Integer(2), Symbol('s0', positive=True)).

Calls of functions that grow no faster than the text: there is no power.
"""
_TEXTS = {
    "expr_str": _SIZE,
    "name": _NAME,
    "as_name": _NAME,
    "forward_arg_names": _NAME,
}
"""The form of a text by its field. Names are written into Python source, so are identifiers."""
# Types of inputs and outputs. torch imports the module of any other.
_STRUCTURES = (
    None,
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "torch.fx.immutable_collections.immutable_list",
    "torch.fx.immutable_collections.immutable_dict",
)
_CONTEXT = re.compile(r'[\w\[\]", .\-]*')


def load_exported(source: Source) -> LoadedNetwork:
    """Load a file of ``torch.export.save``.

    Raises:
        ModelError: the archive holds more than tensors and torch operators, is damaged or of
            another torch version, was exported in training mode, takes several inputs, or has NaN
            weights.
    """
    logged: list[BaseException] = []
    try:
        _check_archive(source)
        with _weights_only(), _quiet() as logged:
            program = torch.export.load(source.file)
    except ModelError:
        raise
    except Exception as error:
        # torch logs the cause and raises another error.
        for cause in (error, *logged):
            if isinstance(cause, pickle.UnpicklingError):
                raise refusal(cause, source.where) from error
        reason = first_line((*logged, error)[0])
        raise ModelError(
            source.where,
            f"torch.export {torch.__version__} cannot load it: {reason}",
            "export it again with this version of torch",
        ) from error
    _refuse_training(program, source.where)
    least, most = _batch_sizes(program, source.where)
    if source.device.type != "cpu":
        program = move_to_device_pass(program, source.device)
    # Guards are Python code in the file, which would be compiled and run.
    program._guards_code = []
    network: nn.Module = program.module(check_guards=False)
    notes = (NOTE, batch_note("pt2", least)) if least == most else (NOTE,)
    return LoadedNetwork(
        network, "pt2", file_sha256(source.file), least_batch=least, most_batch=most, notes=notes
    )


def _recognises(_: bytes, members: Sequence[str]) -> bool:
    return any(_OLD_GRAPH in member or member.startswith("models/") for member in members)


FORMAT = Format("pt2", load_exported, (".pt2",), _recognises)


def _check_archive(source: Source) -> None:
    """Refuse damage, objects, compiled libraries, and operators that are not on the list."""
    # torch would read the old layout, and the checks below would find no graph in it.
    if any(_OLD_GRAPH in name for name in members(source.file, check=True)):
        raise ModelError(source.where, "has the layout of torch 2.7 and earlier", "export it again")
    reader = reader_of(source.file)
    for name in reader.get_all_records():
        if _OBJECTS.search(name):
            raise ModelError(
                source.where,
                f"holds {name[:80]}, which is no tensor",
                "export a plain classifier, or use safetensors",
            )
        # torch ignores the case of members' names.
        if name.lower().startswith("models/"):
            check_graph(json.loads(reader.get_record(name)), source.where, trust=source.trust)


def check_graph(value: object, where: str, *, trust: bool = False, key: str = "") -> None:
    """Check every text in the JSON of an exported program.

    Args:
        value: the program, or a part of it.
        where: the file, for messages.
        trust: whether it may call any operator.
        key: the name of the part in the program.

    Raises:
        ModelError: an operator, expression, name or structure is not allowed.
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_text(name, "name of a field", where)
            if not _is_comment(name, inner, parent=key):
                check_graph(inner, where, trust=trust, key=name)
    elif isinstance(value, list):
        for inner in value:
            check_graph(inner, where, trust=trust, key=key)
    elif isinstance(value, str) and not (trust and key in _CALLS):
        _check_text(value, key, where)


def _is_comment(name: str, value: object, parent: str) -> bool:
    """Whether a field holds text that torch never evaluates.

    These are descriptions, and guards, which are not compiled here. A value of the graph may have
    the same name, so the place counts, and what is there.
    """
    if name == "guards_code" and parent == "":
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    if name == "metadata" and parent in _DESCRIBED:
        # A size expression is evaluated, under any name.
        if not isinstance(value, dict) or "expr_str" in value:
            return False
        return all(isinstance(text, str) for text in value.values())
    return False


def _operator(target: str) -> Operator:
    """The operator of a call, ``torch.ops.aten.relu.default``; Python code where it is none."""
    parts = _TARGET.fullmatch(target)
    if parts is None:
        return ("python", target)
    return (parts[1] or parts[2], parts[3])


def graph_operators(value: object, key: str = "") -> Iterator[Operator]:
    """Every operator in the JSON of an exported program, or in a part of it under this key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from graph_operators(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from graph_operators(inner, key)
    elif isinstance(value, str) and key in _CALLS:
        yield _operator(value)


def _check_text(text: str, key: str, where: str) -> None:
    """Refuse a text that torch could run as code.

    Args:
        text: of the exported program.
        key: the name of its field.
        where: the file, for messages.
    """
    if key in _CALLS:
        operator = _operator(text)
        if operator[0] == "aten" and operator[1] in _TRAINING:
            raise _in_training(operator[1], where)
        check_operators([operator], "torch", where)
    elif key in ("in_spec", "out_spec"):
        json.loads(text or "0", object_hook=lambda part: _check_structure(part, where))
    # as_string is the value of an argument, which stays a text.
    elif key != "as_string":
        pattern = _TEXTS.get(key, _PLAIN_TEXT)
        if not pattern.fullmatch(text):
            what = "size expression" if key == "expr_str" else key
            raise _bad_graph(where, f"the {what} {text[:60]!r}")


def _check_structure(part: dict[str, object], where: str) -> None:
    """Refuse a type of inputs or outputs for which torch would import a module."""
    kind = part["type"]
    context = str(part["context"])
    if kind not in _STRUCTURES or not _CONTEXT.fullmatch(context):
        raise _bad_graph(where, f"inputs or outputs of type {str(kind)[:60]!r} ({context[:60]!r})")


def _bad_graph(where: str, what: str) -> ModelError:
    return ModelError(
        where,
        f"its graph has {what}, which is not plain torch",
        "export a plain classifier of torch operators, or use safetensors",
    )


def _batch_sizes(program: Any, where: str) -> tuple[int, int | None]:
    """The smallest and the largest batch that a graph accepts; None if there is no largest."""
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise ModelError(
            where,
            f"the exported network takes {len(names)} inputs",
            "export it with the images as its only input",
        )
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name != names[0]:
            continue
        shape: Any = getattr(node.meta.get("val"), "shape", ())
        size: Any = shape[0] if len(shape) else None
        if isinstance(size, int):
            return size, size
        # A symbol, whose limits the export may have stated.
        limits = None
        if isinstance(size, torch.SymInt):
            limits = program.range_constraints.get(size.node.expr)
        if limits is not None:
            return max(_whole(limits.lower) or 1, 1), _whole(limits.upper)
    return 1, None


def _whole(limit: Any) -> int | None:
    """A limit of a size as a number; None if it is infinite."""
    return int(limit) if isinstance(limit, int) or getattr(limit, "is_Integer", False) else None


def _refuse_training(program: Any, where: str) -> None:
    """Refuse batch statistics and active dropout.

    They are fixed in an exported graph: eval() cannot switch them off.
    """
    for node in program.graph.nodes:
        schema: Any = getattr(node.target, "_schema", None)
        name = schema.name.removeprefix("aten::") if schema is not None else ""
        if name in _DROPOUTS or name in _BATCH_NORMS:
            names = (argument.name for argument in schema.arguments)
            values = dict(zip(names, node.args, strict=False))
            values.update(node.kwargs)
            # Dropouts call their flag train, batch norms training.
            if values.get("train") or values.get("training"):
                raise _in_training(name, where)


def _in_training(name: str, where: str) -> ModelError:
    what = f"was exported in training mode ({name} is active)"
    return ModelError(where, what, "call model.eval() before torch.export.export, and export again")


@contextmanager
def _weights_only() -> Iterator[None]:
    """Force every torch.load within the block to read weights only.

    torch.export asks for more where the first try fails.
    """
    force = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    unsafe = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.pop(name, None) for name in (force, unsafe)}
    os.environ[force] = "1"
    try:
        yield
    finally:
        os.environ.pop(force)
        for name, value in before.items():
            if value is not None:
                os.environ[name] = value


@contextmanager
def _quiet() -> Iterator[list[BaseException]]:
    """Keep torch's log lines about the layouts that it tries off stderr; collect their errors.

    A warning of torch 2.10 about every file is dropped, too.

    Yields:
        The errors so far.
    """
    errors: list[BaseException] = []

    def collect(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            errors.append(record.exc_info[1])
        return False  # the line is not printed

    handler = logging.Handler()
    handler.addFilter(collect)
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch._export")]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers = [handler]
        logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            yield errors
    finally:
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers = handlers
            logger.propagate = propagate
