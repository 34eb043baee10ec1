"""What is one hostile input: files in a folder, the command that meets them, and what it must
answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.specs import digits, write

CANARY = "canary"
USUAL = ("estimate", "spec.yaml")


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile input.

    Attributes:
        make: writes the files into an empty folder, where the command will be run.
        says: what the refusal must contain.
        command: the arguments of robaudit.
        codes: exit codes that are right: 2 refused, 5 nothing left. 0 is among them where a file
            may be harmless by chance.
        dangerous: tried in the default suite.
    """

    make: Callable[[Path], object]
    says: str = ""
    command: tuple[str, ...] = USUAL
    codes: tuple[int, ...] = (2,)
    dangerous: bool = False


def payload(folder: Path) -> Payload:
    """An object whose unpickling leaves a folder behind."""
    return Payload(f"import os; os.mkdir({str(folder / CANARY)!r})")


class Payload:
    """Unpickling it runs Python code."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (self.code,)


def model_spec(folder: Path, path: str, **fields: Any) -> None:
    """A spec that audits the file as the model of the embedded digits."""
    write(folder, digits(model={"path": path, **fields}))


def data_spec(folder: Path, kind: str, path: str, **fields: Any) -> None:
    """A spec that audits the embedded network on this data."""
    write(folder, digits(dataset={"kind": kind, "path": path, **fields}))
