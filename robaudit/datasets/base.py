"""The interface of a data set, and helpers to find its files and read its first samples."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from robaudit.errors import DataError, NothingLeftError, SampleError, did_you_mean
from robaudit.files import expanded

Labels = NDArray[np.int64]
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MOST_FILES = 10**6


@dataclass(frozen=True, slots=True)
class Sample:
    """One image: its stable id, pixels (channels, height, width) as float64 in [0, 1], and its label or None."""

    id: str
    pixels: Tensor
    label: int | None


class Dataset(Protocol):
    """An indexable collection of samples; nothing is read before it is asked for.

    Reading changes nothing another thread or process could notice, and ``dataset[len(dataset)]`` raises IndexError.
    """

    @property
    def where(self) -> str:
        """What messages and reports call it: a path or a name."""
        ...

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names by class index, or None when the source has none."""
        ...

    def __len__(self) -> int: ...

    def sample_id(self, index: int) -> str:
        """The stable id of sample ``index``, without reading its pixels."""
        ...

    def labels(self) -> Labels | None:
        """All labels as int64 (-1: none) where they are known without reading pixels, else None."""
        ...

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: this sample (alone) is unreadable or unusable.
        """
        ...


def find(written: str, base_dir: Path, kind: Literal["file", "folder"]) -> Path:
    """The path as written in a spec, relative to the spec's folder; ``~`` is understood.

    Raises:
        DataError: there is nothing there (with the nearest name next to it), or something of another kind.
    """
    path = base_dir / expanded(written)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise _missing(written, path, kind) from None
        raise DataError(written, f"cannot be read ({reason(error)})", f"give a {kind} that you may read") from None
    if kind == "file" and not stat.S_ISREG(mode):
        raise DataError(written, "is a folder" if stat.S_ISDIR(mode) else "is not a regular file", "give a file")
    if kind == "folder" and not stat.S_ISDIR(mode):
        raise DataError(written, "is a file", "give the folder")
    return path


def matching(written: str, base_dir: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files that a path names, in order.

    Args:
        written: a file; a folder, for the files anywhere below it that have the suffixes; a pattern with ``*``, ``?`` or ``[ ]``;
            or a range such as ``{000..049}``, of which every file must be there.
        base_dir: where relative paths begin.
        suffixes: of the files of a folder.

    Raises:
        DataError: there are none.
    """
    path = base_dir / expanded(written)
    if (numbers := _BRACES.search(written)) and not os.path.lexists(path):
        first, last = int(numbers[1]), int(numbers[2])
        if not first <= last < first + _MOST_FILES:
            raise DataError(written, f"{numbers[0]} is not a range of files", "for example {000..049}")
        width = len(numbers[1])
        names = [f"{written[: numbers.start()]}{number:0{width}}{written[numbers.end() :]}" for number in range(first, last + 1)]
        return [file for name in names for file in matching(name, base_dir, suffixes)]
    if any(c in written for c in "*?[") and not os.path.lexists(path):
        names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern
        if not names:
            raise DataError(written, "matches no file", "paths are relative to the spec file")
        return [find(name, base_dir, "file") for name in names]
    if not path.is_dir():
        return [find(written, base_dir, "file")]
    found: list[Path] = []
    for place, folders, names in os.walk(path, onerror=partial(_unlisted, written)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in names if not name.startswith(".") and name.lower().endswith(tuple(suffixes))]
    if not found:
        raise DataError(written, f"has no {suffixes[0]} files", "name the folder that holds them, or the files by a pattern with *")
    return sorted(found)


def _unlisted(written: str, error: OSError) -> NoReturn:
    raise DataError(written, f"cannot be listed ({reason(error)})", "give folders that you may read") from None


def _missing(written: str, path: Path, kind: str) -> DataError:
    """Say which part of the path is missing and what is there instead."""
    parent, name = path.parent, path.name
    while not parent.is_dir() and parent != parent.parent:
        parent, name = parent.parent, parent.name
    try:
        with os.scandir(parent) as entries:
            near = [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError:
        near = []
    hint = did_you_mean(name, near)
    remedy = hint if hint.startswith("did you mean") else "paths are relative to the spec file"
    if parent != path.parent:
        return DataError(written, f"no such {kind}: {str(parent)!r} has no {name!r}", remedy)
    return DataError(written, f"no such {kind} in {str(parent)!r}", remedy)


def name_text(name: str) -> str:
    """A file name as text that can be written: bytes that are not UTF-8 and lone surrogates become escapes."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode()


def reason(error: BaseException) -> str:
    """The message of an exception without the path that an OSError repeats."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def first_samples(dataset: Dataset, count: int, *, skip_bad: bool) -> Iterator[Sample]:
    """The first readable samples.

    Raises:
        SampleError: one is unreadable, and ``skip_bad`` is off.
        NothingLeftError: none is readable.
    """
    taken = 0
    refused: SampleError | None = None
    for i in range(len(dataset)):
        if taken == count:
            return
        try:
            sample = dataset[i]
        except SampleError as error:
            if not skip_bad:
                raise error.or_skip() from error
            refused = refused or error
            continue
        taken += 1
        yield sample
    if refused is not None and not taken:
        raise NothingLeftError(dataset.where, f"none of its {len(dataset)} samples can be used", f"the first: {refused}")
