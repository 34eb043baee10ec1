"""What workers send to the process that writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robaudit.auditing.chunks import Step
from robaudit.auditing.prepare import Facts
from robaudit.errors import RobauditError


@dataclass(frozen=True, slots=True)
class Opened:
    """The worker is ready.

    Attributes:
        host: the machine it runs on.
        facts: what it knows of the audit.
        told: notes (False) and warnings (True) from its start.
        images: size of its first chunk.
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
    """Progress: the current step and its cost done so far (see :meth:`robaudit.auditing.chunks.Signs.underway`)."""

    doing: str
    cost: float


@dataclass(frozen=True, slots=True)
class Noted:
    """A note for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The job is done.

    Attributes:
        images: size of the next chunk.
        seconds: time of this job.
    """

    images: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The job, or the start, failed.

    Attributes:
        error: for the user; None where it is a bug.
        trace: of a bug.
    """

    error: RobauditError | None
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is lost, and its jobs with it.

    Attributes:
        why: one line.
        returns: whether it is started again; then an :class:`Opened` follows.
    """

    why: str
    returns: bool


Item = Done | Underway | Noted | Finished | Failed
