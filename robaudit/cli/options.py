"""Which arguments do several commands share?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.errors import RobauditError, SpecError


class TextFormat(StrEnum):
    """How a report is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class By(StrEnum):
    """Which class a sample counts for."""

    LABEL = "label"
    PREDICTED = "predicted"


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that robaudit estimate has written.")]
EstimatorFilter = Annotated[list[str] | None, typer.Option("--estimator", help="Only this estimator (repeatable).")]
SigmaFilter = Annotated[list[str] | None, typer.Option("--sigma", help="Only this noise level, as 0.05 or 8/255 (repeatable).")]
FormatOption = Annotated[TextFormat, typer.Option("--format", help="How to print it.")]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of standard output.")]
TrustOption = Annotated[bool, typer.Option("--trust", help="Allow Python code that the spec names (module:function).")]


def sigmas(texts: list[str] | None) -> list[float]:
    """Noise levels from the command line.

    Raises:
        SpecError: one is no positive number.
    """
    from robaudit.spec.fields import as_number

    values = []
    for text in texts or []:
        try:
            value = float(str(as_number(text)))
        except ValueError as error:
            raise SpecError(f"--sigma {text}", "is not a number", "give a noise level such as 0.05 or 8/255") from error
        if not 0 < value < float("inf"):
            raise SpecError(f"--sigma {text}", "is not a positive number", "give a noise level such as 0.05 or 8/255")
        values.append(value)
    return values


def write_output(path: Path, text: str) -> None:
    """Write a report to the file of ``-o``.

    Raises:
        RobauditError: it cannot be written; an old file is untouched.
    """
    write_texts(path, [text])


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """Write the pieces of a text to the file of ``-o``, as they come.

    Raises:
        RobauditError: it cannot be written; an old file is untouched.
    """
    write_pieces(path, (text.encode() for text in texts))


def check_output(path: Path) -> None:
    """Refuse a file of ``-o`` that cannot be one, before any work is done for it.

    Raises:
        RobauditError: it is a folder, or in none.
    """
    if path.is_dir():
        raise RobauditError(str(path), "is a folder", "name a file")
    if not path.absolute().parent.is_dir():
        raise RobauditError(str(path), "its folder does not exist", "make it first, or name another file")


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write to the file of ``-o``, as a whole or not at all; into a pipe or a device, which are not replaced, as the pieces come.

    Raises:
        RobauditError: it cannot be written; an old file is untouched.
    """
    from robaudit.files import writing

    check_output(path)
    if path.exists() and not path.is_file():
        try:
            with path.open("wb") as device:
                for piece in pieces:
                    device.write(piece)
        except BrokenPipeError:
            return  # its reader has seen enough
        except OSError as error:
            raise RobauditError(str(path), f"cannot be written: {error.strerror or error}", "name another file") from error
        return
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not os.access(target, os.W_OK):
        raise RobauditError(str(path), "is write-protected", "name another file")
    with writing(target) as sink:
        for piece in pieces:
            sink.write(piece)
