"""Read archives and pickles written by torch: detect damage before use, and run nothing in them."""

from __future__ import annotations

import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from robaudit.errors import ModelError
from robaudit.settings import TRUST

# An archive may expand to 50 times its size and 64 MiB. Weights hardly compress, and torch does not
# try; a zip bomb, which would fill the memory, claims far more.
_MOST_EXPANSION = 50
_FREE_BYTES = 2**26
ZIP = b"PK\3\4"
"""The first bytes of a zip archive."""


def members(path: Path, *, check: bool = False) -> list[str]:
    """The names of the members of a zip archive.

    Args:
        path: the archive.
        check: compare each member with its checksum, which torch does not do: a flipped bit would
            silently give other weights.

    Raises:
        ModelError: it is not a zip, is truncated, damaged or encrypted, or expands absurdly.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            expanded = sum(member.file_size for member in archive.infolist())
            if expanded > _MOST_EXPANSION * path.stat().st_size + _FREE_BYTES:
                raise ModelError(
                    str(path), f"claims to expand to {expanded} bytes", "save it again with torch"
                )
            # torch writes 0 where checksums are switched off; None tells zipfile not to compare.
            for member in archive.infolist():
                member.CRC = member.CRC or None  # type: ignore[assignment]
            damaged = archive.testzip() if check else None
            if damaged:
                raise zipfile.BadZipFile(f"{damaged} is damaged")
            return archive.namelist()
    # RuntimeError: encrypted, or packed in an unknown way.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise _incomplete(path, error) from error


def reader_of(path: Path) -> Any:
    """Torch's own reader of an archive.

    Checks of what an archive holds read it with this. Python's zipfile may find another directory,
    or another of two members of one name, than torch loads afterwards.

    Raises:
        ModelError: torch cannot read it.
    """
    try:
        reader = torch._C.PyTorchFileReader(str(path))
        reader.get_all_records()
    # ValueError: a path that is no text.
    except (RuntimeError, ValueError) as error:
        raise _incomplete(path, str(error).partition(". ")[0]) from error
    return reader


def _incomplete(path: Path, why: object) -> ModelError:
    return ModelError(
        str(path),
        f"is not a complete torch zip archive ({why})",
        "the file is truncated or damaged; copy or save it again",
    )


def load_tensors(path: Path) -> Any:
    """``torch.load(weights_only=True)``: tensors and plain containers, never an object that runs
    code.

    Raises:
        ModelError: the file holds anything else, or is damaged.
    """
    with path.open("rb") as stream:
        if stream.read(len(ZIP)) == ZIP:
            members(path, check=True)
        try:
            return _torch_load(stream)
        except Exception as error:
            # torch refused to import a class or function. Checkpoints often have such objects
            # beside their weights: settings, or the state of the training.
            checkpoint = _with_stand_ins(stream) if _named(error) else None
            if checkpoint is not None:
                return checkpoint
            raise refusal(error, str(path)) from error


def refusal(error: BaseException, where: str) -> ModelError:
    """The error for a pickle that torch did not read as weights only."""
    name = _named(error)
    if name:
        return ModelError(
            where,
            f"holds a pickled Python object ({name}), which would run code when loaded",
            "export it with torch.jit.script or torch.export.save, save its state_dict() as "
            "safetensors, or load it with your own function: format: python and " + TRUST,
        )
    # Before this mark, torch advises to switch weights_only off.
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    lines = (line.strip() for line in text.splitlines())
    reason = next(filter(None, lines), type(error).__name__)[:200]
    return ModelError(
        where,
        f"torch cannot read it: {reason}",
        "the file is truncated, damaged or not a plain state dict; save the state_dict() as "
        "safetensors",
    )


def _named(error: BaseException) -> str:
    """The class or function that torch would not import, or '' for another reason."""
    text = str(error)
    match = re.search(r"GLOBAL ([\w.]+)", text)
    match = match or re.search(r"Unsupported (?:class|global)[: ]+([\w.]+)", text)
    return match[1] if match else ""


def _torch_load(stream: BinaryIO) -> Any:
    stream.seek(0)
    with warnings.catch_warnings():
        # torch warns of odd tensors, which are refused when the weights are fitted.
        warnings.simplefilter("ignore", UserWarning)
        return torch.load(stream, map_location="cpu", weights_only=True)


class Unread:
    """Stand-in for an object, class or function of a pickle; it is empty and runs no code."""

    def __init__(self, *_: object, **__: object) -> None:
        """Ignore the object's arguments."""

    def __setstate__(self, _: object) -> None:
        """Ignore the object's state."""


def _with_stand_ins(stream: BinaryIO) -> dict[Any, Any] | None:
    """A checkpoint with `Unread` in place of every object that is no tensor or plain container.

    torch's restricted reader builds the stand-ins, so no function and no class that the file names
    is imported, let alone called.

    Returns:
        The checkpoint; None where it is not a mapping with tensors somewhere below, or names a
        module that torch always refuses (os, sys).
    """
    try:
        stream.seek(0)
        # By name, every class and function that torch would have to import.
        names = torch.serialization.get_unsafe_globals_in_checkpoint(stream)
        with torch.serialization.safe_globals([(Unread, name) for name in names]):
            checkpoint = _torch_load(stream)
    except Exception:  # noqa: BLE001  then the first reading says what is wrong
        return None
    return checkpoint if isinstance(checkpoint, dict) and _holds_tensors(checkpoint) else None


def _holds_tensors(mapping: Mapping[Any, Any], depth: int = 3) -> bool:
    """Whether a mapping has a tensor; the depth ends a mapping that contains itself."""
    for value in mapping.values():
        if isinstance(value, torch.Tensor):
            return True
        if depth and isinstance(value, Mapping) and _holds_tensors(value, depth - 1):
            return True
    return False
