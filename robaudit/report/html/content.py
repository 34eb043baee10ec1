"""The content of a report: the sections that apply to its runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from robaudit.compare.matching import check_same_classes
from robaudit.errors import NothingLeftError, RunError
from robaudit.gates.decide import Decision
from robaudit.gates.sources import decisions_of
from robaudit.levels import EVERY_LEVEL, LevelChoice
from robaudit.names import matches
from robaudit.report.pictures import kinds_of_picture
from robaudit.report.principal_result import principal
from robaudit.report.sections import (
    CLASSES,
    FLAGGED,
    LEVELS,
    Entry,
    Section,
    SectionRequest,
    run_names,
    working_sections,
)
from robaudit.report.tables import Table
from robaudit.runs.run import Run, chosen
from robaudit.stats.class_differences import ClassBias
from robaudit.stats.flags import Flagged
from robaudit.stats.summary import GroupSummary, summary_of

_FIRST = (FLAGGED, LEVELS)
_FEW = 6  # least robust samples, shown even if none of them is flagged


@dataclass(frozen=True, slots=True)
class RunView:
    """One run of a report.

    Attributes:
        name: different for each run.
        run: the run.
        request: without the results that the run lacks.
        groups: the summaries of these results, in the run's order.
        shown: the estimators whose classes and samples are shown: the requested ones, else the
            first that gives probabilities with intervals, else the first.
        decisions: on its gates, as documents: see :func:`robaudit.gates.sources.decisions_of`.
    """

    name: str
    run: Run
    request: SectionRequest
    groups: tuple[GroupSummary, ...]
    shown: tuple[str, ...]
    decisions: tuple[Mapping[str, Any], ...] = ()

    def main(self) -> list[GroupSummary]:
        """The summaries of the first shown estimator."""
        return [group for group in self.groups if group.key.estimator == self.shown[0]]


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of a report: its entries, the request, and its tables, at least one."""

    name: str
    section: Section[Any]
    entries: tuple[Entry[Any], ...]
    request: SectionRequest
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """The runs of a report, its sections, and a line for each thing that a run lacks."""

    views: tuple[RunView, ...]
    parts: tuple[PageSection, ...]
    problems: tuple[str, ...] = ()

    def part(self, name: str) -> PageSection | None:
        """A section; None where it does not apply."""
        return next((part for part in self.parts if part.name == name), None)

    def flagged(self, view: RunView) -> list[Flagged]:
        """The flagged samples of a run."""
        return self._records(FLAGGED, view)

    def biases(self, view: RunView) -> list[ClassBias]:
        """The classes of a run."""
        return self._records(CLASSES, view)

    def _records(self, name: str, view: RunView) -> list[Any]:
        """The records that a section has of a run."""
        part = self.part(name)
        if part is None:
            return []
        return [entry.record for entry in part.entries if entry.run is view.run]


def gather(
    runs: Sequence[Run],
    request: SectionRequest | None = None,
    *,
    most: int = 60,
    decisions: Sequence[Decision] | None = None,
) -> Content:
    """The content of a report on some runs: each run's results for the requested estimators and
    noise levels.

    Args:
        runs: at least one.
        request: estimators, levels, threshold and labels.
        most: the most samples listed for each estimator and noise level.
        decisions: on the gates of a single run; None: of each run on its spec's.

    Raises:
        RunError: no run has one of the estimators or noise levels, or a run has none of them.
        NothingLeftError: a run has no results.
        RobauditError: the quantity cannot have this threshold.
    """
    request = SectionRequest() if request is None else request
    available = [_available(run, request) for run in runs]
    # What no run has is a mistake of the user; what some runs lack is a note.
    _, missing_in_first = available[0]
    for wanted, error in missing_in_first.items():
        if all(wanted in missing for _, missing in available):
            raise error
    names = run_names(runs, request.label)
    views = list[RunView]()
    problems = list[str]()
    for name, run, (own_request, missing) in zip(names, runs, available, strict=True):
        problems += map(str, missing.values())
        if decisions is None:
            documents, problem = decisions_of(run)
        else:
            documents = tuple(decision.document() for decision in decisions)
            problem = ""
        if problem:
            problems.append(f"no gates: {problem}")
        views.append(_view(name, run, own_request, documents))
        if _has_other_classes(runs[0], run):
            problems.append(f"{name}: other classes than {names[0]}, so not beside it by class")
    parts = list[PageSection]()
    for name, section in _in_order().items():
        part = _part(name, section, views, request, most)
        if part is not None:
            parts.append(part)
    return Content(tuple(views), tuple(parts), tuple(problems))


def _has_other_classes(first: Run, run: Run) -> bool:
    """Whether the classes of a run cannot be shown beside those of the first."""
    try:
        check_same_classes(first, run)
    except RunError:
        return True
    return False


def _in_order() -> dict[str, Section[Any]]:
    """The sections of a page, after the verdict: first the worst images, which a reader looks for;
    then accuracy and robustness by noise level."""
    kinds = kinds_of_picture()
    sections = {name: section for name, section in working_sections().items() if name in kinds}
    order = sorted(sections, key=lambda name: (_rank(name), sections[name].place))
    return {name: sections[name] for name in order}


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _view(
    name: str, run: Run, request: SectionRequest, decisions: tuple[Mapping[str, Any], ...]
) -> RunView:
    if not run.table:
        raise NothingLeftError(
            str(run.path), "has no results to report", "audit at least one sample"
        )
    groups = {group.key: group for group in summary_of(run)}
    summaries = tuple(
        groups[key] for key in chosen(groups, request.estimators, request.levels, str(run.path))
    )
    if not summaries:
        raise NothingLeftError(
            str(run.path), "has none of these estimators at these noise levels", "name others"
        )
    names = dict.fromkeys(group.key.estimator for group in summaries)
    named: dict[str, None] = {}
    for wanted in request.estimators:
        named |= dict.fromkeys(name for name in names if matches(name, wanted))
    return RunView(
        name,
        run,
        replace(request, label=(name,)),
        summaries,
        tuple(named) or (principal(summaries),),
        decisions,
    )


def _part(
    name: str, section: Section[Any], views: Sequence[RunView], request: SectionRequest, most: int
) -> PageSection | None:
    """A section of the runs that it applies to; None where it has nothing to show."""
    entries: list[Entry[Any]] = []
    for view in views:
        if section.by_class and _has_other_classes(views[0].run, view.run):
            continue
        own_request = view.request
        if section.main_only:
            own_request = replace(own_request, estimators=view.shown)
        if name == FLAGGED:
            # the least robust are listed even if none is flagged, and without a threshold, too
            own_request = replace(own_request, bottom=max(1, most))
        else:
            own_request = replace(own_request, threshold=None)
        if name == FLAGGED or section.suits(view.run):
            try:
                added = section.find([view.run], own_request)
            except (RunError, NothingLeftError):  # none among the requested results
                continue
            if name == FLAGGED:
                added = [replace(entry, record=_listed(entry.record, most)) for entry in added]
            entries += added
    tables = tuple(section.shown(entries, request, page=True)) if entries else ()
    return PageSection(name, section, tuple(entries), request, tables) if tables else None


def _listed(flagged: Flagged, most: int) -> Flagged:
    """With the flagged samples, or a few of the least robust; at most ``most``."""
    listed = min(most, max(flagged.beyond, _FEW))
    return replace(flagged, samples=flagged.samples[:listed])


def _available(run: Run, request: SectionRequest) -> tuple[SectionRequest, dict[object, RunError]]:
    """The request without the results that the run lacks, and an error for each of these.

    Where the run lacks all of them, the request stays as it is.
    """
    missing = dict[object, RunError]()

    def has(wanted: object, estimators: Sequence[str], levels: LevelChoice) -> bool:
        try:
            return bool(run.groups(estimators, levels))
        except RunError as error:
            # raised only if every run lacks it
            missing[wanted] = error
            return False

    estimators = [name for name in request.estimators if has(name, [name], EVERY_LEVEL)]
    levels = LevelChoice.joined(part for part in request.levels.parts if has(part, (), part))
    # an empty choice means all results, which nobody has requested
    own_request = replace(
        request,
        estimators=estimators or request.estimators,
        levels=levels or request.levels,
    )
    return own_request, missing
