"""What workers send to the process that writes, as JSON: it builds objects of its own from that, and unpickles none of theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from robaudit import errors
from robaudit.auditing.batches import RowCheck
from robaudit.auditing.checks import InputCheck
from robaudit.auditing.chunks import Clean, Refused, Step, step_name
from robaudit.auditing.prepare import Facts
from robaudit.errors import RobauditError, SampleError
from robaudit.estimators.registry import Task
from robaudit.rows import read_row
from robaudit.store.info import RowBits


@dataclass(frozen=True, slots=True)
class Opened:
    """The worker is ready.

    Attributes:
        host: the machine it runs on.
        facts: what it knows of the audit.
        told: the notes (False) and warnings (True) of its start.
        images: how many images its first chunk should have.
    """

    host: str
    facts: Facts
    told: Sequence[tuple[bool, str]]
    images: int


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a step."""

    step: Step


@dataclass(frozen=True, slots=True)
class Underway:
    """A sign of life: what is computed, and how much of it is done (see :meth:`robaudit.auditing.chunks.Signs.underway`)."""

    doing: str
    cost: float


@dataclass(frozen=True, slots=True)
class Noted:
    """A note for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The order is carried out.

    Attributes:
        images: how many images the next chunk should have.
        seconds: that this one took.
    """

    images: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The order, or the start, failed.

    Attributes:
        error: for the user; None where it is a bug.
        trace: of a bug.
    """

    error: RobauditError | None
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone, and with it the orders it had.

    Attributes:
        why: one line.
        returns: whether it is started again; then an :class:`Opened` follows.
    """

    why: str
    returns: bool


Item = Done | Underway | Noted | Finished | Failed

_ERRORS: Mapping[str, type[RobauditError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RobauditError)
}


def encoded(item: Item | Opened | Lost) -> bytes:
    """An item as JSON, whose floats read back bit for bit."""
    match item:
        case Done(step):
            content: Any = _step(step)
        case Failed(error, trace):
            content = [None if error is None else _error(error), trace]
        case Opened():
            content = asdict(item)
        case _:
            content = list(asdict(item).values())
    return json.dumps([type(item).__name__, content]).encode()


def decoded(content: bytes, tasks: Mapping[str, Task]) -> Item | Opened | Lost:
    """The item that was encoded.

    Args:
        content: bytes from :func:`encoded`.
        tasks: of the audit, by :func:`step_name`.

    Raises:
        ValueError, TypeError, KeyError, LookupError: it is none.
    """
    kind, values = json.loads(content)
    match kind:
        case "Done":
            return Done(_read_step(values, tasks))
        case "Failed":
            return Failed(None if values[0] is None else _read_error(values[0]), str(values[1]))
        case "Opened":
            return Opened(
                **{**values, "facts": _read_facts(values["facts"]), "told": [(bool(warn), str(text)) for warn, text in values["told"]]}
            )
        case _:
            plain: dict[str, Any] = {one.__name__: one for one in (Underway, Noted, Finished, Lost)}
            found: Item | Lost = plain[kind](*values)
            return found


def _step(step: Step) -> dict[str, Any]:
    return {
        "task": None if step.task is None else step.key,
        "seconds": step.seconds,
        "images": step.images,
        "rows": [row.document() for row in step.rows],
        "clean": [[one.sample_id, one.label, one.predicted, one.digest] for one in step.clean],
        "refused": [[one.sample_id, None if one.task is None else step_name(one.task), _error(one.error)] for one in step.refused],
        "finished": list(step.finished),
    }


def _read_step(values: dict[str, Any], tasks: Mapping[str, Task]) -> Step:
    return Step(
        task=None if values["task"] is None else tasks[values["task"]],
        seconds=values["seconds"],
        images=values["images"],
        rows=[read_row(row) for row in values["rows"]],
        clean=[Clean(*one) for one in values["clean"]],
        refused=[Refused(name, None if key is None else tasks[key], SampleError(*error[1:])) for name, key, error in values["refused"]],
        finished=values["finished"],
    )


def _read_facts(values: dict[str, Any]) -> Facts:
    check, rows = values["check"], values["rows"]
    seen = {name: (digest, label) for name, (digest, label) in check["seen"].items()}
    return Facts(
        **{
            **values,
            "check": InputCheck(**{**check, "warnings": tuple(check["warnings"]), "seen": seen, "pixels": tuple(check["pixels"])}),
            "rows": RowCheck(**{**rows, "bits": RowBits(rows["bits"])}),
            "image_shape": tuple(values["image_shape"]),
        }
    )


def _error(error: RobauditError) -> list[str]:
    return [type(error).__name__, error.where, error.what, error.remedy]


def _read_error(values: list[str]) -> RobauditError:
    """The error; one of a class that is not ours is a plain one."""
    name, *texts = values
    return _ERRORS.get(name, RobauditError)(*texts)
