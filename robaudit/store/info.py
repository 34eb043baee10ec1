"""Validation of run.json: the types of everything that readers use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from robaudit.errors import RunError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.results import LARGEST
from robaudit.stats.intervals import simultaneous
from robaudit.text import printable


def _plain(text: str) -> str:
    if printable(text) != text:
        raise ValueError(f"holds control characters: {printable(text)}")
    return text


def _step(text: str) -> str:
    """Check the key of a duration: ``label@noise level``, or the name of a step that all estimators share."""
    _, at, level = text.partition("@")
    if at:
        NoiseLevel.from_key(level)
    return text


def device_type(device: str) -> str:
    """``cpu`` or ``cuda``, from the text in run.json for one or several devices."""
    return re.split("[ :,]", device, maxsplit=1)[0]


def kind_of(device: str) -> str:
    """The device as far as noise depends on it: cpu, or cuda and the card's model (its multiprocessors order torch's normal draws)."""
    kind = device_type(device)
    return kind if kind == "cpu" else f"{kind} {device.partition(' ')[2]}"


Plain = Annotated[str, AfterValidator(_plain)]
Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]


class RowBits(StrEnum):
    """The dependence of an image's logits on its batch.

    Attributes:
        BITWISE: none: the same bits in every batch that was tried.
        ROUNDING: the last digits depend on the size of the batch.
        MIXED: the network mixes the images of a batch.
    """

    BITWISE = "bitwise"
    ROUNDING = "rounding"
    MIXED = "mixed"


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class _Quantity(_Part):
    model_config = ConfigDict(extra="forbid")
    name: Plain
    unit: Plain
    low: Number | None
    high: Number | None
    higher_is_better: bool


class _Model(_Part):
    name: str
    format: Plain
    sha256: Plain
    classes: Whole
    notes: list[str] = Field(default_factory=list)


class _Data(_Part):
    where: str
    class_names: list[str] | None
    labelled: Whole = 0
    sha256: Plain | None = None


class _Rows(_Part):
    kind: Annotated[RowBits, Field(strict=False)]
    largest_difference: Number


class _Spec(_Part):
    """The part of the spec that readers use before it is validated as a spec."""

    gates: list[str] = Field(default_factory=list)


class _Share(_Part):
    value: Number
    count: Whole
    total: Whole
    lower: Number
    upper: Number


class _NoisyShare(_Part):
    estimator: Plain
    noise: Plain
    level_name: Annotated[LevelName, Field(strict=False)]
    level: Number
    value: Number
    lower: Number
    upper: Number


class _Totals(_Part):
    samples: Whole
    skipped: Whole
    forwards: Whole
    backwards: Whole


class _Skip(_Part):
    sample_id: str
    reason: str


class _Plugin(_Part):
    package: Plain
    version: Plain
    entry_point: Plain


class _Session(_Part):
    started: Plain
    command: Plain | None
    device: Plain
    robaudit: Plain


class UntilDecided(_Part):
    """The schedule of a run that is sampled until its gates are decided (:mod:`robaudit.gates.until`).

    Attributes:
        confidence: of all possible analyses together, which share the error equally.
        possible: draws per image after which an analysis may take place, fixed in advance.
        draws: those after which an analysis took place; in an unfinished run, the last is under way.
        point: whether values without an interval decide.
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)]
    possible: Annotated[list[Annotated[int, Field(ge=1, lt=2**63)]], Field(min_length=1)]
    draws: Annotated[list[Whole], Field(min_length=1)]
    point: bool

    @model_validator(mode="after")
    def _consistent(self) -> UntilDecided:
        if not set(self.draws) <= set(self.possible):
            raise ValueError("an analysis took place that was not possible")
        return self

    @property
    def each(self) -> float:
        """The confidence of each analysis, so that all possible analyses hold together with :attr:`confidence`."""
        return simultaneous(self.confidence, len(self.possible))

    def also(self, draws: int) -> UntilDecided:
        """The schedule with one more analysis."""
        return self.model_copy(update={"draws": [*self.draws, draws]})


def until_decided(info: Mapping[str, Any]) -> UntilDecided | None:
    """The schedule of a run that is sampled until its gates are decided, from its run.json; None for other runs."""
    section = info.get("until_decided")
    return None if section is None else UntilDecided.model_validate(section)


class _Run(_Part):
    """The content of every run.json."""

    status: Plain
    name: str
    spec: _Spec
    spec_folder: str
    identity: Plain
    base_identity: Plain
    device: Plain
    model: _Model
    data: _Data
    noise: Plain
    noise_files: dict[str, dict[str, str]] = Field(default_factory=dict)
    warnings: list[str]
    rows: _Rows
    versions: dict[Plain, Plain | None] = Field(default_factory=dict)
    plugins: dict[Plain, _Plugin] = Field(default_factory=dict)
    command: Plain | None = None
    sessions: list[_Session] = Field(default_factory=list)
    until_decided: UntilDecided | None = None


class _CompleteRun(_Run):
    """The content of a complete run's run.json."""

    seed: Annotated[int, Field(ge=0, lt=2**63)]
    quantities: list[_Quantity]
    clean_accuracy: _Share | None
    noisy_accuracy: list[_NoisyShare]
    totals: _Totals
    seconds: dict[Annotated[Plain, AfterValidator(_step)], Number]
    skipped: list[_Skip]
    files: dict[str, str]
    review_warnings: list[str] = Field(default_factory=list)


def check_info(info: Mapping[str, Any], where: str) -> None:
    """Check a run.json of the current schema version.

    Raises:
        RunError: a value is missing or has a type that robaudit does not write; the message names the first.
    """
    try:
        (_CompleteRun if info.get("status") == "complete" else _Run).model_validate(info)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = f"{place!r} is missing" if first["type"] == "missing" else f"{place}: {first['msg'].removeprefix('Value error, ')}"
        raise RunError(where, f"is damaged ({problem})", "run the audit again in another folder") from error
