"""Is this .pt2 archive only tensors and a graph of torch operators: checked before torch.export.load, which runs code in others.

What torch's loader (2.6, 2.11 and newest) would run: pickles, to which it falls back from ``weights_only`` (example inputs,
constants, weights), custom and opaque objects, and compiled libraries; the graph itself is checked by `exported_graph`.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

from robaudit.errors import ModelError
from robaudit.models.archive import load_tensors, open_archive
from robaudit.models.contents import check_contents, read_member
from robaudit.models.exported_graph import check_graph

_PLAIN = re.compile(r"archive_format|archive_version|byteorder|version|\.data/[\w./]+|extra/.*")
_GRAPH = re.compile(r"models/[\w.-]+\.json")
_CONFIG = re.compile(r"data/(?:weights|constants)/[\w.-]+_config\.json")
_PICKLE = re.compile(r"data/(?:weights|constants|sample_inputs)/[\w.-]+\.pt")
_RAW = re.compile(r"data/(?:weights|constants)/(?:weight|tensor)_\d+")
_OLD_GRAPH = "serialized_exported_program.json"
_OLD_PICKLES = ("serialized_state_dict", "serialized_constants", "serialized_example_inputs")


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
            _check_pickle(read_member(archive, name), where)
        elif not (_RAW.fullmatch(inner) or _PLAIN.fullmatch(inner)):
            raise _refusal(where, f"holds {inner}, which is neither tensors nor a graph")


def _check_config(archive: zipfile.ZipFile, members: dict[str, str], inner: str, where: str) -> None:
    """Payloads are raw tensors, or pickles that must hold only tensors; custom and opaque objects are refused."""
    folder = inner.rpartition("/")[0]
    for payload in json.loads(read_member(archive, members[inner]))["config"].values():
        file = f"{folder}/{payload['path_name']}"
        if not _RAW.fullmatch(file):
            raise _refusal(where, f"holds the object {payload['path_name']}, not a tensor")
        if payload["use_pickle"]:
            _check_pickle(read_member(archive, members[file]), where)


def _check_old(archive: zipfile.ZipFile, where: str) -> None:
    """The layout of torch 2.6 and before: the graph and three pickles, side by side."""
    for name in archive.namelist():
        stem, _, suffix = name.rpartition(".")
        if name == _OLD_GRAPH:
            check_graph(json.loads(read_member(archive, name)), where)
        elif stem in _OLD_PICKLES and suffix in ("pt", "json"):
            _check_pickle(read_member(archive, name), where)
        elif name != "version" and not name.startswith("extra_files/"):
            raise _refusal(where, f"holds {name}, which is neither tensors nor a graph")


def _check_pickle(content: bytes, where: str) -> None:
    if content:
        load_tensors(content, where)


def _refusal(where: str, what: str) -> ModelError:
    return ModelError(where, what, "export a plain classifier with torch.export, or use safetensors")
