"""Checks of model archives before torch reads them: nothing in a file executes, and every member is what it claims to be.

- :func:`open_archive`: zipfile and torch see the same members.
- :func:`check_contents`: torch checks no checksums, so a flipped bit would silently give other weights; and its TorchScript reader takes
  the size of a storage from the pickle, so a false one would read memory behind the record (or crash). The pickles are read with every
  class and function replaced by something inert.
- :func:`load_tensors`: tensors and plain containers only.
- :func:`check_exported`: a .pt2 archive is tensors and a graph of torch operators. What torch's loader (2.6, 2.11 and newest) would run:
  pickles, to which it falls back from ``weights_only`` (example inputs, constants, weights), custom and opaque objects, and compiled
  libraries.
- :func:`check_graph`: reading a graph can run code in four ways, each closed here: size expressions go through sympy's ``eval``, operator
  names are looked up from ``torch`` with getattr (``torch.os.system``), names of values and arguments are written into Python source,
  and the input's structure may import modules.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import json
import math
import pickle
import pickletools
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch

from robaudit.errors import ModelError

_MOST_EXPANSION, _FREE_BYTES = 50, 2**26
_ENCRYPTED, _ZIP = 1, b"PK\3\4"
_CHUNK, _LARGEST_PICKLE = 2**20, 2**26
_PLAIN = re.compile(r"archive_format|archive_version|byteorder|version|\.data/[\w./]+|extra/.*")
_GRAPH = re.compile(r"models/[\w.-]+\.json")
_CONFIG = re.compile(r"data/(?:weights|constants)/[\w.-]+_config\.json")
_PICKLE = re.compile(r"data/(?:weights|constants|sample_inputs)/[\w.-]+\.pt")
_RAW = re.compile(r"data/(?:weights|constants)/(?:weight|tensor)_\d+")
_OLD_GRAPH = "serialized_exported_program.json"
_OLD_PICKLES = ("serialized_state_dict", "serialized_constants", "serialized_example_inputs")
_OPERATORS = re.compile(
    r"torch\.ops\.(?:aten|prims)\.(?:[A-Za-z_](?!_)\w*|_|__(?:i?and|i?or|i?xor|i?lshift|i?rshift)__)\.[A-Za-z]\w*"
    r"|torch\.ops\.higher_order\.(?:cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(?:getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|xor|not_|lshift|rshift)"
    r"|math\.[a-z]\w*|torch\._?sym_\w+"
)
_TOUCHES_FILES = re.compile(r"torch\.ops\.\w+\.(?:from_file|save)\b.*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_PLAIN_TEXT = re.compile(r"[\w.:+\-*/<>=, ]*")
_POWERS = ("Pow", "PowByNatural", "FloatPow", "LShift")
_LARGEST_EXPONENT, _LONGEST_EXPRESSION = 64, 4000
_CONTEXT = re.compile(r'[\w\[\]", .\-]*')
_SYMBOL = re.compile(r"[a-z]+\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_FUNCTIONS = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Max|Min|Abs|Eq|Ne|Lt|Le|Gt|Ge|Not|And|Or|true|false|oo|int_oo|floor|ceiling|Identity"
    r"|Equality|Unequality|(?:Strict)?(?:Less|Greater)Than|Where|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|ModularIndexing|LShift|RShift"
    r"|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|(?:Ceil|Floor|Trunc|Round)ToInt|TruncToFloat|RoundDecimal|ToFloat"
    r"|IsNonOverlappingAndDenseIndicator"
)
_ARITHMETIC = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Name, ast.Constant, ast.Load),
    *(ast.operator, ast.unaryop, ast.cmpop),
)
_SUSPICIOUS = frozenset(
    ("builtins", "__builtin__", "os", "posix", "nt", "sys", "subprocess", "shutil", "socket", "importlib", "runpy", "pickle", "webbrowser")
)
"""Modules that no checkpoint needs: a file that names one is refused, unless for a plain type."""
_PLAIN_TYPES = frozenset(
    f"builtins.{one.__name__}"
    for one in (bool, bytearray, bytes, complex, dict, float, frozenset, int, list, range, set, slice, str, tuple)
)
_STRUCTURES = (
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "torch.fx.immutable_collections.immutable_list",
    "torch.fx.immutable_collections.immutable_dict",
)


@contextlib.contextmanager
def open_archive(source: Path | bytes, where: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive that zipfile and torch's reader understand in the same way.

    Raises:
        ModelError: it is not a zip, is truncated or encrypted, names a member twice, starts with something else, or expands absurdly;
            or, while it is open, a member cannot be expanded.
    """
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
            members = archive.infolist()
            names = [member.filename.lower() for member in members]
            if len(set(names)) != len(names) or archive.comment or min((m.header_offset for m in members), default=1) != 0:
                raise zipfile.BadZipFile("readers would disagree on its members")
            if any(member.flag_bits & _ENCRYPTED for member in members):
                raise zipfile.BadZipFile("it is encrypted")
            expanded = sum(member.file_size for member in members)
            if expanded > _MOST_EXPANSION * size + _FREE_BYTES:
                raise ModelError(where, f"claims to expand to {expanded} bytes", "save it again with torch")
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ModelError(
            where, f"is not a complete torch zip archive ({error})", "the file is truncated or damaged; copy or save it again"
        ) from error


def load_tensors(source: Path | bytes, where: str) -> Any:
    """``torch.load(weights_only=True)``: tensors and plain containers, never an object that runs code.

    Raises:
        ModelError: it holds anything else, or is damaged.
    """
    stream: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    with stream:
        if stream.read(len(_ZIP)) == _ZIP:
            with open_archive(source, where) as archive:
                check_contents(archive, where)
        try:
            return _torch_load(stream)
        except Exception as error:
            found = re.search(r"GLOBAL ([\w.]+)", str(error)) or re.search(r"Unsupported (?:class|global)[: ]+([\w.]+)", str(error))
            if found and (inert := _with_stand_ins(stream)) is not None:
                return inert
            if "Unsupported operand" in str(error):
                raise ModelError(
                    where,
                    "is pickled with a protocol that torch.load(weights_only=True) does not read",
                    "save the state_dict() as safetensors, or with torch.save and its default protocol",
                ) from error
            if found or (isinstance(error, pickle.UnpicklingError) and "Unsupported" in str(error)):
                what = f"holds a pickled Python object ({found[1]})" if found else "holds pickled Python objects"
                raise ModelError(
                    where,
                    f"{what}, which would run code when loaded",
                    "export it with torch.jit.script or torch.export.save, save its state_dict() as safetensors, "
                    "or load it with your own function: format: python and --trust",
                ) from error
            raise ModelError(
                where, f"torch cannot read it: {_reason(error)}", "the file is truncated, damaged or not a plain state dict; save it again"
            ) from error


def _torch_load(stream: BinaryIO) -> Any:
    stream.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # odd tensors are reported when they are fitted
        return torch.load(stream, map_location="cpu", weights_only=True)


def _with_stand_ins(stream: BinaryIO) -> dict[Any, Any] | None:
    """A checkpoint that holds more than tensors (settings, state of the training), with `Unread` in place of every other object.

    torch's restricted reader builds the stand-ins, so no function and no class that the file names is imported, let alone called.

    Returns:
        The checkpoint; None where it is not a mapping with tensors somewhere below, or names what no checkpoint needs.
    """
    try:
        stream.seek(0)
        names = torch.serialization.get_unsafe_globals_in_checkpoint(stream)
        if any(name not in _PLAIN_TYPES and name.rpartition(".")[0].partition(".")[0] in _SUSPICIOUS for name in names):
            return None
        with torch.serialization.safe_globals([(Unread, name) for name in names]):
            found = _torch_load(stream)
    except Exception:  # noqa: BLE001  then the first reading says what is wrong
        return None
    return found if isinstance(found, dict) and _holds_tensors(found) else None


def _holds_tensors(found: Mapping[Any, Any], depth: int = 3) -> bool:
    values = found.values()
    return any(
        isinstance(value, torch.Tensor) or (depth and isinstance(value, Mapping) and _holds_tensors(value, depth - 1)) for value in values
    )


def _reason(error: Exception) -> str:
    """The informative line of torch's long message."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)[:200]


def check_contents(archive: zipfile.ZipFile, where: str) -> None:
    """Read every member once.

    Raises:
        ModelError: a pickle claims more of a tensor than its record holds.
        zipfile.BadZipFile: a member is not as its checksum or its size says.
    """
    for member in archive.infolist():
        for _ in _chunks(archive, member):
            pass
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    for name in sizes:
        if name.endswith(("/data.pkl", "/constants.pkl")):  # those that are read
            _check_pickle(archive, name, sizes, where)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member, never more than the directory says: ``ZipFile.read`` would expand it all before it looks."""
    return b"".join(_chunks(archive, archive.getinfo(name)))


def _chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """A member in pieces; zipfile checks its checksum."""
    about = copy.copy(member)
    if not about.CRC:
        about.CRC = None  # type: ignore[assignment]  # unchecked: torch writes 0 where checksums are switched off
    left = member.file_size
    with archive.open(about) as stream:
        while left > 0:
            chunk = stream.read(min(_CHUNK, left))
            if not chunk:
                raise zipfile.BadZipFile(f"{member.filename} ends too early")
            left -= len(chunk)
            yield chunk


def _check_pickle(archive: zipfile.ZipFile, name: str, sizes: Mapping[str, int], where: str) -> None:
    """Refuse storages larger than their records, and tensors that reach beyond their storages."""
    if sizes[name] > _LARGEST_PICKLE:
        raise ModelError(where, f"{name} has {sizes[name]} bytes", "tensors belong in separate records: save it again with torch")
    folder = name.removesuffix(".pkl")
    try:
        content = read_member(archive, name)
        for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):  # reads the arguments, so no size exceeds the file
            if opcode.name in _MEMO_WRITES and int(argument or 0) > count:  # the reader's memory would grow with it
                raise _FalseClaimError(f"writes memo slot {argument} after {count} steps")
        _Reader(content, folder, sizes).load()
    except _FalseClaimError as error:
        raise ModelError(where, f"{name}: {error}", "the file is damaged, or crafted to read other memory") from error
    except Exception as error:
        raise ModelError(where, f"{name} is not a torch pickle ({error})", "the file is damaged; save it again") from error


class _FalseClaimError(Exception):
    """A pickle claims more than there is."""


class _Inert:
    """Stands for any class, function or object of a pickle: can be called and filled, and does nothing.

    Attributes:
        item_bytes: of one element, for a type of storage.
        count: elements, for a storage.
    """

    item_bytes = 1
    count: int | None = None

    def __new__(cls, *_: object, **__: object) -> Self:
        return object.__new__(cls)

    def __call__(self, *_: object, **__: object) -> _Inert:
        return _Inert()

    def __setstate__(self, _: object) -> None:
        pass

    def __setitem__(self, _: object, __: object) -> None:
        pass

    def append(self, _: object) -> None:
        pass

    extend = add = append


class Unread(_Inert):
    """What stands in a checkpoint for an object that is not read: it holds nothing, and nothing of it has run."""


class _Rebuild(_Inert):
    """Stands for torch's functions that make a tensor of (storage, offset, shape, strides, ...)."""

    def __new__(cls, *arguments: Any, **_: object) -> Self:
        if len(arguments) >= 4 and isinstance(arguments[0], _Inert):
            _check_extent(*arguments[:4])
        return object.__new__(cls)


def _storage_types() -> dict[str, type[_Inert]]:
    sizes = {"ComplexDouble": 16} | dict.fromkeys(("Double", "Long", "ComplexFloat"), 8)
    sizes |= dict.fromkeys(("Float", "Int", "QInt32"), 4) | dict.fromkeys(("Half", "BFloat16", "Short"), 2)  # all others: 1
    return {f"{name}Storage": type(name, (_Inert,), {"item_bytes": size}) for name, size in sizes.items()}


_STORAGE_TYPES = _storage_types()
_MEMO_WRITES = ("PUT", "BINPUT", "LONG_BINPUT")


def _check_extent(storage: _Inert, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if storage.count is None or not math.prod(shape):
        return
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or last >= storage.count:
        raise _FalseClaimError(f"a tensor of shape {shape} reaches beyond its {storage.count} stored elements")


class _Reader(pickle.Unpickler):
    """Python's pickle reader, with everything it would import replaced by something inert."""

    def __init__(self, content: bytes, folder: str, sizes: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(content))
        self._folder, self._sizes = folder, sizes

    def find_class(self, module: str, name: str) -> Any:
        """Return an inert stand-in; nothing is imported."""
        return _Rebuild if name.startswith("_rebuild") else _STORAGE_TYPES.get(name, _Inert)

    def persistent_load(self, pid: Any) -> Any:
        """A storage: ("storage", type, record, device, elements)."""
        found = _Inert()
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], type) and issubclass(pid[1], _Inert):
            record, found.count = f"{self._folder}/{pid[2]}", int(pid[4])
            needed, held = found.count * pid[1].item_bytes, self._sizes.get(record, 0)
            if not 0 <= needed <= held:
                raise _FalseClaimError(f"claims {needed} bytes of {record}, which has {held}")
        return found


def check_exported(path: Path) -> None:
    """Read every member that torch.export.load would unpickle or interpret, and refuse what is not data.

    Raises:
        ModelError: the archive is damaged, or holds pickled objects, compiled code, or operators outside torch's own.
    """
    where = str(path)
    try:
        with open_archive(path, where) as archive:
            check_contents(archive, where)
            if _OLD_GRAPH in archive.namelist():
                _check_old(archive, where)
            else:
                _check_archive(archive, where)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            where, f"is not a .pt2 archive ({type(error).__name__}: {error})", "save it again with torch.export.save"
        ) from error


def _check_archive(archive: zipfile.ZipFile, where: str) -> None:
    """The layout of torch 2.7 and later: one folder with models/, data/ and extra/."""
    names = archive.namelist()
    root = names[0].partition("/")[0] + "/"
    members = {name.removeprefix(root): name for name in names}
    if not all(name.startswith(root) for name in names) or "models/model.json" not in members:
        raise ModelError(where, "is not a .pt2 archive of one exported program", "save it again with torch.export.save")
    for inner, name in members.items():
        if _GRAPH.fullmatch(inner):
            check_graph(json.loads(read_member(archive, name)), where)
        elif _CONFIG.fullmatch(inner):
            _check_config(archive, members, inner, where)
        elif _PICKLE.fullmatch(inner):
            _check_tensors(read_member(archive, name), where)
        elif not (_RAW.fullmatch(inner) or _PLAIN.fullmatch(inner)):
            raise _bad_member(where, f"holds {inner}, which is neither tensors nor a graph")


def _check_config(archive: zipfile.ZipFile, members: dict[str, str], inner: str, where: str) -> None:
    """Payloads are raw tensors, or pickles that must hold only tensors; custom and opaque objects are refused."""
    folder = inner.rpartition("/")[0]
    for payload in json.loads(read_member(archive, members[inner]))["config"].values():
        file = f"{folder}/{payload['path_name']}"
        if not _RAW.fullmatch(file):
            raise _bad_member(where, f"holds the object {payload['path_name']}, not a tensor")
        if payload["use_pickle"]:
            _check_tensors(read_member(archive, members[file]), where)


def _check_old(archive: zipfile.ZipFile, where: str) -> None:
    """The layout of torch 2.6 and before: the graph and three pickles, side by side."""
    for name in archive.namelist():
        stem, _, suffix = name.rpartition(".")
        if name == _OLD_GRAPH:
            check_graph(json.loads(read_member(archive, name)), where)
        elif stem in _OLD_PICKLES and suffix in ("pt", "json"):
            _check_tensors(read_member(archive, name), where)
        elif name != "version" and not name.startswith("extra_files/"):
            raise _bad_member(where, f"holds {name}, which is neither tensors nor a graph")


def _check_tensors(content: bytes, where: str) -> None:
    if content:
        load_tensors(content, where)


def _bad_member(where: str, what: str) -> ModelError:
    return ModelError(where, what, "export a plain classifier with torch.export, or use safetensors")


def check_graph(document: object, where: str) -> None:
    """Walk the JSON of an exported program.

    Raises:
        ModelError: an operator, expression, name or structure is not of the plain kind.
    """
    _walk(document, "", where)


def _walk(value: object, key: str, where: str) -> None:
    if isinstance(value, dict):
        for inner_key, inner in value.items():
            if not _PLAIN_TEXT.fullmatch(inner_key):
                raise _bad_graph(where, f"the name {inner_key[:60]!r}")
            if inner_key not in ("metadata", "guards_code"):  # descriptions; the guards are never compiled here
                _walk(inner, inner_key, where)
    elif isinstance(value, list):
        for inner in value:
            _walk(inner, key, where)
    elif isinstance(value, str):
        _check_text(value, key, where)


def _check_text(text: str, key: str, where: str) -> None:
    if key in ("target", "as_operator"):
        if not _OPERATORS.fullmatch(text) or _TOUCHES_FILES.fullmatch(text):
            raise _bad_graph(where, f"the operator {text[:60]!r}")
    elif key == "expr_str":
        _check_expression(text, where)
    elif key in ("in_spec", "out_spec"):
        if text:
            _check_structure(json.loads(text)[1], where)
    elif key in ("name", "as_name", "forward_arg_names"):
        if text and not _NAME.fullmatch(text):
            raise _bad_graph(where, f"the name {text[:60]!r}")
    elif key != "as_string" and not _PLAIN_TEXT.fullmatch(text):
        raise _bad_graph(where, f"the {key or 'text'} {text[:60]!r}")


def _check_expression(text: str, where: str) -> None:
    """An expression is evaluated when it is read: it must be plain, and no power may grow without bound."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval"))) if len(text) <= _LONGEST_EXPRESSION else []
    except (SyntaxError, MemoryError):  # the second: nested deeper than the parser goes
        nodes = []
    fine = bool(nodes) and all(isinstance(node, _ARITHMETIC) and _is_plain(node) and _is_bounded(node) for node in nodes)
    if not fine:
        raise _bad_graph(where, f"the size expression {text[:60]!r}")


def _is_plain(node: ast.AST) -> bool:
    """Names are size symbols or known functions, constants are numbers or the names of size symbols, calls are of plain names."""
    if isinstance(node, ast.Name):
        return bool(_SYMBOL.fullmatch(node.id) or _FUNCTIONS.fullmatch(node.id))
    if isinstance(node, ast.Constant):
        text = node.value
        return isinstance(text, int | float) or (isinstance(text, str) and bool(_SYMBOL.fullmatch(text) or _NUMBER.fullmatch(text)))
    return not isinstance(node, ast.Call) or isinstance(node.func, ast.Name)


def _is_bounded(node: ast.AST) -> bool:
    """Powers and shifts, which could make numbers of any length, are of single terms by small constants."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.LShift):
        base, exponent = node.left, node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POWERS and len(node.args) == 2:
        base, exponent = node.args
    else:
        return True
    steps = _constant(exponent)
    return (
        steps is not None
        and abs(steps) <= _LARGEST_EXPONENT
        and (isinstance(base, ast.Name) or _is_symbol(base) or _constant(base) is not None)
    )


def _constant(node: ast.expr) -> float | None:
    """The value of ``3``, ``-3``, ``Integer(3)`` or ``Integer('3')``."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Integer", "Float") and len(node.args) == 1:
        node = node.args[0]
    try:
        return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _is_symbol(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Symbol"


def _check_structure(structure: dict[str, object], where: str) -> None:
    kind, context, children = structure["type"], structure["context"], structure["children_spec"]
    if kind is not None and kind not in _STRUCTURES:
        raise _bad_graph(where, f"inputs or outputs of type {str(kind)[:60]!r}")
    if context is not None and not _CONTEXT.fullmatch(str(context)):
        raise _bad_graph(where, f"the structure {str(context)[:60]!r}")
    if not isinstance(children, list):
        raise _bad_graph(where, f"the structure {str(children)[:60]!r}")
    for child in children:
        _check_structure(child, where)


def _bad_graph(where: str, what: str) -> ModelError:
    return ModelError(
        where, f"its graph has {what}, which is not plain torch", "export a plain classifier of torch operators, or use safetensors"
    )
