"""The sections of a run: each gives records, and a record is shown as a table, as lines of CSV and as JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from robaudit.errors import SpecError
from robaudit.levels import EVERY_LEVEL, LevelChoice
from robaudit.report.tables import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from robaudit.store.run import Run

T = TypeVar("T")


class SectionName(StrEnum):
    """The sections, in the order in which they are offered."""

    SUMMARY = "summary"
    CLASSES = "classes"
    FLAGGED = "flagged"
    CERTIFIED = "certified"
    SCORES = "scores"
    CURVES = "curves"
    CORRUPTION = "corruption"
    LOSSES = "losses"
    SAMPLE = "sample"
    ROWS = "rows"


_CLASSES: Mapping[SectionName, str] = {
    SectionName.SUMMARY: "summary_tables:SummarySection",
    SectionName.CLASSES: "class_tables:ClassSection",
    SectionName.FLAGGED: "flag_tables:FlaggedSection",
    SectionName.CERTIFIED: "certified_tables:CertifiedSection",
    SectionName.SCORES: "score_tables:ScoreSection",
    SectionName.CURVES: "curve_tables:CurveSection",
    SectionName.CORRUPTION: "corruption_tables:CorruptionSection",
    SectionName.LOSSES: "loss_tables:LossSection",
    SectionName.SAMPLE: "sample_tables:SampleSection",
}


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of a section; each knows some of it (:attr:`Section.uses`).

    Attributes:
        estimators, levels: only these results; empty: all.
        threshold: a value beyond it is not robust; None: the usual one of the quantity.
        by: the class that an image counts towards; None: its label, where there are labels.
        only: images that are classified correctly, or wrongly, without noise.
        bottom, top: so many of the least and of the most robust images.
        per_class: a list for each predicted class.
        id: these images.
        radius: certified accuracy at these radii; None: at round ones.
        every_radius: at every radius at which it falls.
        confidence: of intervals over images.
        baseline: name of the network or run whose errors others are divided by.
    """

    estimators: Sequence[str] = ()
    levels: LevelChoice = EVERY_LEVEL
    threshold: float | None = None
    by: Literal["label", "predicted"] | None = None
    only: Literal["correct", "wrong"] | None = None
    bottom: int | None = None
    top: int | None = None
    per_class: bool = False
    id: Sequence[str] = ()
    radius: Sequence[float] = ()
    every_radius: bool = False
    confidence: float | None = None
    baseline: str | None = None


_FLAGS = {"estimators": "--estimator", "levels": "--noise, --level, --sigma", "every_radius": "--radius all"}


class Sheet(NamedTuple):
    """Raw values in columns, for CSV."""

    columns: Sequence[str]
    lines: Iterable[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A record of a run, and the name that tells the run from the others that are shown."""

    name: str
    run: Run
    record: T


class Section(ABC, Generic[T]):
    """One view of a run.

    Subclasses set ``uses``, the parts of :class:`Ask` that they know.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"estimators", "levels"})

    def applies(self, run: Run) -> bool:
        """Whether the run has something to show, as far as its run.json tells."""
        return True

    @abstractmethod
    def records(self, run: Run, ask: Ask) -> Sequence[T]:
        """What there is to show.

        Raises:
            RobauditError: the run has nothing of what is asked for.
        """

    @abstractmethod
    def table(self, one: Found[T], ask: Ask) -> RenderableType:
        """A record for a terminal."""

    @abstractmethod
    def sheet(self, one: Found[T], ask: Ask) -> Sheet:
        """A record for CSV."""

    @abstractmethod
    def document(self, one: Found[T], ask: Ask) -> dict[str, Any]:
        """A record as JSON values."""

    def find(self, runs: Sequence[Run], ask: Ask) -> list[Found[T]]:
        """The records of some runs, run by run.

        Raises:
            RobauditError: as :meth:`records`.
        """
        from robaudit.report.summary_tables import run_names

        return [Found(name, run, one) for run, name in zip(runs, run_names(runs), strict=True) for one in self.records(run, ask)]

    def tables(self, found: Sequence[Found[T]], ask: Ask) -> Iterator[RenderableType]:
        """The records for a terminal, those of several runs below the names of the runs."""
        several, last = len({one.name for one in found}) > 1, ""
        for one in found:
            if several and one.name != last:
                yield plain(one.name, "bold underline")
            last = one.name
            yield self.table(one, ask)


def section_of(name: SectionName) -> Section[Any]:
    """The section of a name; rows have none: they are written as they are."""
    module, _, cls = _CLASSES[name].partition(":")
    found: Section[Any] = getattr(import_module(f"robaudit.report.{module}"), cls)()
    return found


def offered(run: Run) -> list[SectionName]:
    """The sections that have something to show of a run."""
    return [*(name for name in _CLASSES if section_of(name).applies(run)), SectionName.ROWS]


def used(name: SectionName) -> frozenset[str]:
    """The parts of :class:`Ask` that a section knows."""
    return Section.uses if name is SectionName.ROWS else section_of(name).uses


def refuse_unused(name: SectionName, ask: Ask) -> None:
    """Refuse what the section has no use for.

    Raises:
        SpecError: some of it is asked for.
    """
    nothing = Ask()
    given = [field.name for field in fields(Ask) if getattr(ask, field.name) != getattr(nothing, field.name)]
    for part in given:
        if part not in used(name):
            known = [other.value for other in SectionName if part in used(other)]
            flag = _FLAGS.get(part, f"--{part.replace('_', '-')}")
            raise SpecError(flag, f"does not apply to the section {name.value}", f"use it with {', '.join(known)}")


def find(name: SectionName, runs: Sequence[Run], ask: Ask) -> list[Found[Any]]:
    """The records of a section.

    Raises:
        RobauditError: a run has nothing of what is asked for.
    """
    return section_of(name).find(runs, ask)


def section_csv(name: SectionName, found: Sequence[Found[Any]], ask: Ask) -> str:
    """A line for each item of the records, behind the name of its run."""
    from robaudit.store.serialise import table_csv

    section = section_of(name)
    sheets = [(one.name, section.sheet(one, ask)) for one in found]
    columns = list(dict.fromkeys(column for _, sheet in sheets for column in sheet.columns))

    def lines() -> Iterator[list[object]]:
        for run, sheet in sheets:
            for line in sheet.lines:
                values = dict(zip(sheet.columns, line, strict=True))
                yield [run, *(values.get(column) for column in columns)]

    return table_csv(["run", *columns], lines())


def section_json(name: SectionName, found: Sequence[Found[Any]], ask: Ask) -> str:
    """The records as JSON."""
    from robaudit.store.serialise import document_json

    section = section_of(name)
    return document_json({"section": name.value, "results": [{"run": one.name, **section.document(one, ask)} for one in found]})
