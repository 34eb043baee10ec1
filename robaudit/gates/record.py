"""Which gates was a run sampled for, and at which confidence did each look decide? What ``looks.json`` of its folder says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robaudit.errors import RunError, SpecError
from robaudit.files import SEAL, json_bytes, read_json, sealed, unsealed, write_atomically
from robaudit.gates.result import Covers, Verdict
from robaudit.gates.schedule import possible_looks
from robaudit.store.info import Number

NAME = "looks.json"
_REMEDY = "restore it, or sample again in another folder"


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Asked(_Part):
    """What was asked for: only the same goes on.

    Attributes:
        identity: of the spec with all its draws.
        gates: in their canonical form.
        confidence: of all looks together.
        most: draws of an image that were allowed.
    """

    identity: str
    gates: Annotated[list[str], Field(min_length=1)]
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)]
    most: Annotated[int, Field(ge=1)]

    def each(self, confidence: float | None = None) -> float:
        """The confidence of one look when all possible ones hold together with ``confidence`` (default: the one asked for)."""
        return 1.0 - (1.0 - (self.confidence if confidence is None else confidence)) / len(possible_looks(self.most))


class Decided(BaseModel):
    """What a report reads of a decision; a number that is not finite was written as null."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    gate: str
    verdict: Verdict
    value: Number | None
    lower: Number | None
    upper: Number | None
    threshold: Number
    confidence: Number
    covers: Covers


class RunOf(_Part):
    """The run that the last look left."""

    identity: str
    base_identity: str


class Looks(_Part):
    """The record of a run that was sampled until its gates were decided.

    Attributes:
        asked: what was asked for.
        point: values without an interval decided by themselves.
        each: the confidence of one look.
        draws: of an image, at each look.
        run: what the last look left.
        gates: the decisions.
    """

    asked: Asked
    point: bool
    each: float
    draws: Annotated[list[int], Field(min_length=1)]
    run: RunOf
    gates: list[Decided]

    @property
    def consistent(self) -> bool:
        """Whether its parts say the same."""
        possible = possible_looks(self.asked.most)
        taken = all(draws in possible for draws in self.draws) and self.draws == sorted(set(self.draws))
        return taken and math.isclose(self.each, self.asked.each(), rel_tol=1e-12) and len(self.gates) == len(self.asked.gates)


def read_looks(folder: Path, info: Mapping[str, Any]) -> Looks | None:
    """The record of the run in ``folder``; None for a run that was not sampled until gates were decided.

    A run that was extended since keeps it: see docs/gates.md.

    Args:
        folder: the run's.
        info: its run.json.

    Raises:
        RunError: the file is not what robaudit wrote there, or is another run's.
    """
    path = folder / NAME
    if not path.exists():
        return None
    document = read_json(path)
    if not isinstance(document, dict) or SEAL not in document:
        raise RunError(str(path), "is not the record of looks that robaudit writes there", _REMEDY)
    try:
        looks = Looks.model_validate(unsealed(document, path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RunError(str(path), f"is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']})", _REMEDY) from error
    if not looks.consistent:
        raise RunError(str(path), "is damaged (its looks and their confidence do not fit)", _REMEDY)
    if looks.run.base_identity != info["base_identity"]:
        raise RunError(str(path), "is of another run", _REMEDY)
    return looks


def write_looks(folder: Path, looks: Looks) -> None:
    """Write the record, with a checksum.

    Raises:
        RunError: the file system refuses.
    """
    write_atomically(folder / NAME, json_bytes(sealed(looks.model_dump())))


def refuse_other_gates(folder: Path, info: Mapping[str, Any], gates: Sequence[str]) -> None:
    """Refuse to give a run that was sampled for gates other ones.

    Args:
        folder: the run's.
        info: its run.json.
        gates: of the spec that is asked for now.

    Raises:
        RunError: its gates are others than those of run.json, and it was sampled for gates.
    """
    if list(gates) != list(info["spec"].get("gates", ())) and read_looks(folder, info) is not None:
        raise sampled_for_others(folder)


def sampled_for_others(folder: Path) -> RunError:
    """What is said of other gates on a run that was sampled for some."""
    return RunError(
        str(folder), "was sampled for other gates", "decide gates on it with robaudit gate RUN --gate ..., or choose another --out"
    )


def confidence_of(looks: Looks | None, option: float | None, rules: float | None) -> float:
    """At which confidence is each gate read?

    ``option`` (--confidence) says it itself. Else a run that was sampled for gates is read at that of one look, where all possible
    looks share the error of ``rules`` (pyproject.toml) or of what was asked for; any other run at that of ``rules``, or 95 %.

    Raises:
        SpecError: what is said is no confidence.
    """
    for said in (option, rules):
        if said is not None and not 0.5 < said < 1.0:
            raise SpecError(f"confidence {said:g}", "is not above 0.5 and below 1", "for example 0.95")
    if option is not None:
        return option
    if looks is not None:
        return looks.asked.each(rules)
    return 0.95 if rules is None else rules
