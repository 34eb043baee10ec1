"""Read a YAML file into plain values, with the line of every key."""

from __future__ import annotations

import io
import re
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any, cast

import yaml

from robaudit.errors import SpecError, did_you_mean
from robaudit.spec.origin import Location

# Bounds far beyond any spec. They refuse hostile files before PyYAML spends memory on them: a few
# lines of nested aliases can stand for billions of values.
_MAX_BYTES = 2**20
_MAX_NODES = 20_000
_MAX_DEPTH = 50
_LONGEST_TEXT = 5000  # a path has at most 4096 characters


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses a key that appears twice, of which YAML would take the last."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    """The value of a mapping whose keys are plain and distinct."""
    seen: set[Any] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be plain text", key.start_mark
            )
        if key.value in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key.value!r} appears twice", key.start_mark
            )
        seen.add(key.value)
    loader.flatten_mapping(node)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# 1e3 is a number in YAML 1.2 and everywhere else; PyYAML reads 1.1, where it needs a point.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+"), list("-+0123456789")
)


_SECTIONS = "a spec has the sections model, dataset, noise, estimators and run"


def read_document(
    path: Path, text: str | None = None, *, content: str = _SECTIONS
) -> tuple[dict[str, Any], dict[Location, int]]:
    """The mapping in a YAML file, and the line of every key in it.

    Args:
        path: the file.
        text: its content, if the file does not exist yet.
        content: what such a file has, for messages.

    Raises:
        SpecError: the file is missing, or holds no mapping in YAML.
    """
    return _parse(_read(path) if text is None else text, str(path), content)


def _read(path: Path) -> str:
    """The text of a YAML file.

    Raises:
        SpecError: it is missing, too large, or not a text file.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            if (path / "run.json").is_file():
                remedy = f"name its spec, and the run with --out: estimate SPEC.yaml --out {path}"
                raise SpecError(str(path), "is a run, not a spec", remedy)
            raise SpecError(str(path), "is a folder", "name a spec file, for example spec.yaml")
        # Reading a pipe that nobody writes to would block, and a device has no end.
        if not stat.S_ISREG(status.st_mode):
            raise SpecError(str(path), "is not a regular file", "save the spec as a file")
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise SpecError(str(path), "is larger than 1 MB", "a spec is a short YAML file")
        # A text stream, unlike bytes.decode, also turns other line ends into \n.
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        remedy = did_you_mean(path.name, siblings) if siblings else "name an existing spec file"
        raise SpecError(str(path), "no such file", remedy) from error
    except UnicodeDecodeError as error:
        raise SpecError(str(path), "is not UTF-8 text", "a spec is a YAML text file") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        what = getattr(error, "strerror", None) or "cannot be read"
        raise SpecError(str(path), what, "name a readable spec file") from error


def _parse(text: str, where: str, content: str) -> tuple[dict[str, Any], dict[Location, int]]:
    """:func:`read_document` of a text; ``where`` is its file, for messages."""
    lines: dict[Location, int] = {}
    try:
        raw = loaded(text, lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        raise SpecError(place, f"not valid YAML: {error.problem or error.context}") from error
    except Exception as error:  # PyYAML's constructors raise nearly anything on malformed values
        raise SpecError(where, f"not valid YAML: {str(error) or type(error).__name__}") from error
    if not isinstance(raw, dict):
        raise SpecError(where, "is not a mapping", content)
    return cast(dict[str, Any], raw), lines


def loaded(text: str, lines: dict[Location, int]) -> Any:
    """The value of a YAML text; the lines of its keys are added to ``lines``."""
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    # Before any value is built: the nodes are as small as the text, the values may be huge.
    _index(node, (), lines, [0])
    return loader.construct_document(node)


def _index(
    node: yaml.Node, location: Location, lines: dict[Location, int], count: list[int]
) -> None:
    """Record the line of every key, and refuse oversized documents.

    Args:
        node: a part of the document; an alias counts as if it were written out.
        location: its location.
        lines: filled with the line of every location.
        count: number of nodes so far, in a list, as the calls share it.
    """
    count[0] += 1
    if count[0] > _MAX_NODES or len(location) > _MAX_DEPTH:
        raise yaml.YAMLError("too many or too deeply nested values")
    lines.setdefault(location, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = (*location, str(key.value))
            lines[place] = key.start_mark.line + 1
            _refuse_text(key)
            _index(value, place, lines, count)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            _index(value, (*location, i), lines, count)
    else:
        _refuse_text(node)


def _refuse_text(node: yaml.Node) -> None:
    """Refuse lone surrogates, which no file or terminal can represent, and text longer than any
    path."""
    try:
        if len(str(node.value).encode()) > _LONGEST_TEXT:
            raise yaml.YAMLError(
                f"a value has more than {_LONGEST_TEXT} characters (line "
                f"{node.start_mark.line + 1})"
            )
    except UnicodeEncodeError:
        raise yaml.YAMLError(
            f"contains a lone surrogate ({node.value!r}); use whole Unicode characters"
        ) from None
