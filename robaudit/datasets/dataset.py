"""The interface of a data set.

Helpers find its files, check its names and read its first samples.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import DataError, NothingLeftError, RobauditError, SampleError, did_you_mean
from robaudit.files import expanded
from robaudit.text import clipped, first_line

if TYPE_CHECKING:
    from torch import Tensor

Labels = NDArray[np.int64]

# Control characters steer a terminal (ESC) or begin a line of a report or a pipeline's log. The
# separators and marks from U+2028 do so in Unicode, or reverse the text after them. Lone surrogates
# cannot be written as UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Sample:
    """One image of a data set, with its id and label.

    Attributes:
        id: the same each time that the data set is opened.
        pixels: (channels, height, width), float64 in [0, 1].
        label: the index of the class, or None.
    """

    id: str
    pixels: Tensor
    label: int | None


class Dataset(Protocol):
    """An indexable collection of samples; nothing is read before it is requested.

    Reading has no side effects on other threads or processes, and ``dataset[len(dataset)]`` raises
    IndexError.
    """

    @property
    def where(self) -> str:
        """Its name in messages and reports: a path or a name."""
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
        """All labels as int64 (-1: none) if known without reading pixels, otherwise None."""
        ...

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: this sample (alone) is unreadable or unusable.
        """
        ...


def existing_path(
    written: str,
    base_dir: Path,
    kind: Literal["file", "folder"],
    remedy: str = "paths are relative to the spec file",
    refuse: Callable[[str, str, str], RobauditError] = DataError,
) -> Path:
    """The path as written in a spec, relative to the spec's folder; ``~`` is expanded.

    Args:
        written: the path.
        base_dir: the spec's folder.
        kind: what must be at the path.
        remedy: for a missing path with no similar name beside it.
        refuse: builds the error from the path, the problem and the remedy.

    Raises:
        RobauditError: the path does not exist (the message suggests the nearest name), or is of
            another kind.
    """
    path = base_dir / expanded(written)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            problem, remedy = _missing(path, kind, remedy)
            raise refuse(written, problem, remedy) from None
        # ValueError: a NUL character in the path.
        raise refuse(
            written, f"cannot be read ({first_line(error)})", f"give a {kind} that you may read"
        ) from None
    if kind == "folder" and not stat.S_ISDIR(mode):
        raise refuse(written, "is a file", "give the folder")
    # A pipe or a device could block the reader forever.
    if kind == "file" and not stat.S_ISREG(mode):
        problem = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
        raise refuse(written, problem, "give a file")
    # Files of size 0 include those in /proc, which may never end.
    if kind == "file" and not path.stat().st_size:
        raise refuse(written, "is an empty file", "write it again")
    return path


def boundary(root: str | None, base_dir: Path, folder: Path) -> Path:
    """The folder that must contain all image files of a data set, links resolved.

    A list or a link in the data could otherwise name any file of the machine.

    Args:
        root: as written in the spec; None: the data's own folder.
        base_dir: the spec's folder.
        folder: the data's own folder.
    """
    widest = folder if root is None else existing_path(root, base_dir, "folder")
    return Path(os.path.realpath(widest))


def refuse_controls(text: str, where: str, what: str) -> str:
    """Return a text that is safe to print: on one line, without control characters.

    Args:
        text: an id or class name from the data.
        where: the data set.
        what: the kind of text, for messages.

    Raises:
        DataError: it has control characters (line breaks, ESC), marks that reverse the text
            direction, or lone surrogates.
    """
    if _CONTROL.search(text):
        raise DataError(
            where, f"the {what} {clipped(ascii(text), 80)} has control characters", "rename it"
        )
    return text


def different(ids: Sequence[str], where: str) -> Sequence[str]:
    """Return the ids after checking that they are distinct.

    Raises:
        DataError: two ids are the same.
    """
    if len(set(ids)) < len(ids):
        neighbours = pairwise(sorted(ids))
        twice = next(first for first, second in neighbours if first == second)
        raise DataError(
            where, f"two samples have the same id {clipped(twice, 80)!r}", "ids must differ"
        )
    return ids


def name_text(name: str) -> str:
    """The name of a file or folder as printable text: bytes that are not UTF-8 become escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _missing(path: Path, kind: str, remedy: str) -> tuple[str, str]:
    """The problem and the remedy of a missing path: its first missing part, and a similar name."""
    parent = path.parent
    name = path.name
    # Up to the last folder that exists; `name` is what it lacks.
    while not parent.is_dir() and parent != parent.parent:
        name = parent.name
        parent = parent.parent
    siblings = []
    if os.access(parent, os.R_OK):
        visible = [entry for entry in parent.iterdir() if not entry.name.startswith(".")]
        # What is missing on the way is a folder. A name without a suffix may be either.
        wants_folder = kind == "folder" or parent != path.parent
        is_either = not wants_folder and not Path(name).suffix
        siblings = [entry.name for entry in visible if is_either or entry.is_dir() == wants_folder]
    if parent == path.parent:
        problem = f"no such {kind} in {str(parent)!r}"
    else:
        problem = f"no such {kind}: {str(parent)!r} has no {name!r}"
    # Without a similar name, did_you_mean lists names; the caller's remedy says more.
    hint = did_you_mean(name, siblings)
    return problem, hint if hint.startswith("did you mean") else remedy


def first_samples(
    dataset: Dataset, count: int, *, skip_bad: bool, places: Iterable[int] | None = None
) -> Iterator[Sample]:
    """The first readable samples.

    Args:
        dataset: the samples.
        count: the number of samples.
        skip_bad: whether to pass over unreadable samples.
        places: in the data set, in the order to read; default: all.

    Raises:
        SampleError: a sample is unreadable, and ``skip_bad`` is off.
        NothingLeftError: no sample is readable.
    """
    read = 0
    first_error: SampleError | None = None
    for index in range(len(dataset)) if places is None else places:
        if read == count:
            return
        try:
            sample = dataset[index]
        except SampleError as error:
            if not skip_bad:
                raise error.or_skip() from error
            first_error = first_error or error
            continue
        read += 1
        yield sample
    if first_error is not None and not read:
        raise NothingLeftError(
            dataset.where,
            f"none of its {len(dataset)} samples can be used",
            f"the first: {first_error}",
        )
