"""Can this zip archive of torch be opened, and does everyone read the same members from it?"""

from __future__ import annotations

import contextlib
import io
import pickle  # for its error alone: nothing is unpickled here
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch

from robaudit.errors import ModelError
from robaudit.models.contents import check_contents

_MOST_EXPANSION, _FREE_BYTES = 50, 2**26
_ENCRYPTED, _ZIP = 1, b"PK\3\4"


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
            where, f"is not a whole zip archive of torch ({error})", "the file is truncated or damaged; copy or save it again"
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
        stream.seek(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # what is odd about the tensors is said when they are fitted
                return torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:
            found = re.search(r"GLOBAL ([\w.]+)", str(error)) or re.search(r"Unsupported (?:class|global)[: ]+([\w.]+)", str(error))
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


def _reason(error: Exception) -> str:
    """The informative line of torch's long message."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)[:200]
