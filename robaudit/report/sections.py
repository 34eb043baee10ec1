"""The sections of a run: a typed table each, from which all views derive, of one run or of several
side by side."""

from __future__ import annotations

import contextlib
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast, final

from robaudit.errors import RobauditError, SpecError, did_you_mean
from robaudit.levels import EVERY_LEVEL, LevelChoice
from robaudit.plugins import SECTIONS, blaming, class_of, names_in
from robaudit.report.typed import Beside, Changes, TypedTable, flat
from robaudit.settings import ESTIMATOR, LABEL, LEVEL, NOISE, SIGMA, Setting
from robaudit.text import count

if TYPE_CHECKING:
    from robaudit.report.gallery import ImageSource
    from robaudit.report.pictures.page import Drawing
    from robaudit.report.tables import Table
    from robaudit.runs.groups import GroupKey
    from robaudit.runs.run import Run

T = TypeVar("T")


# the sections that pages and commands name
SUMMARY = "summary"
LEVELS = "levels"
CLASSES = "classes"
CONFUSION = "confusion"
FLAGGED = "flagged"
SAMPLE = "sample"
ROWS = "rows"
"""What ``robaudit show`` takes in place of a section: samples.csv."""
# The order of help and messages: the core's sections, those of families and plugins, then what has
# a line for each image.
_FIRST = (SUMMARY, LEVELS, CLASSES, CONFUSION, FLAGGED)
_LAST = (SAMPLE, ROWS)


@dataclass(frozen=True, slots=True)
class SectionOption:
    """An option of one section alone: ``--name`` of ``robaudit show``, repeatable, and ``name=`` in
    Python.

    Attributes:
        name: of the option.
        metavar: its values, for the help.
        help: its effect, for the help.
        read: makes its value from the texts of the user and the name of the option. Raises
            SpecError where they are wrong.
    """

    name: str
    metavar: str
    help: str
    read: Callable[[Sequence[str], str], Any]


@dataclass(frozen=True, slots=True)
class SectionRequest:
    """Options of a section; each section uses some of them (:attr:`Section.uses`).

    Attributes:
        estimators, levels: only these results; empty: all.
        threshold: a value beyond it is not robust; None: the usual one of the quantity.
        by: what groups the images, ``label``, ``predicted`` or a column of the data set; None: its
            label, where there are labels.
        data: the data set with that column, or with the images; None: the run's own.
        only: images classified correctly, or wrongly, without noise.
        bottom: how many of the least robust images.
        id: these images.
        label: names of the runs, in their order; for every section.
        options: values of the section's own options (:attr:`Section.options`).
    """

    estimators: Sequence[str] = ()
    levels: LevelChoice = EVERY_LEVEL
    threshold: float | None = None
    by: str | None = None
    data: ImageSource | None = None
    only: Literal["correct", "wrong"] | None = None
    bottom: int | None = None
    id: Sequence[str] = ()
    label: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


# Parts of a request whose options on the command line have other names.
_FLAGS = {"estimators": ESTIMATOR.words, "levels": NOISE + ", " + LEVEL + ", " + SIGMA}


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A record with its run.

    Attributes:
        name: the name that the run is shown by.
        run: the run.
        record: one of :meth:`Section.records`.
        several: whether other runs are shown beside it.
    """

    name: str
    run: Run
    record: T
    several: bool = False


class Section(ABC, Generic[T]):
    """One view of runs: a typed table of each, and perhaps a figure.

    Register a subclass under the entry-point group ``robaudit.sections``; the built-in ones are
    registered the same way.

    A subclass defines :meth:`applies` and :meth:`table`. Terminals, pages, Markdown, LaTeX, CSV and
    JSON derive from that table. A section whose figure draws more than the table has, or that has
    several tables, computes :meth:`records` first.

    Class attributes:
        title: on a page.
        words: how to read the section, in a line or two.
        uses: the parts of :class:`SectionRequest` that the section uses.
        options: the options that only this section has.
        place: where a page shows the section: smaller is earlier.
        main_only: whether a page shows the section for the main result alone, unless other results
            are requested.
        by_class: whether rows are classes, so that several runs must have the same.
    """

    title: ClassVar[str]
    words: ClassVar[str] = ""
    uses: ClassVar[frozenset[str]] = frozenset({"estimators", "levels"})
    options: ClassVar[Sequence[SectionOption]] = ()
    place: ClassVar[int] = 100
    main_only: ClassVar[bool] = False
    by_class: ClassVar[bool] = False

    def applies(self, run: Run) -> bool:
        """Whether the run has something to show, by its run.json."""
        return True

    def records(self, run: Run, request: SectionRequest) -> Sequence[T]:
        """The records to show, each with a table. Default: one, the table itself.

        Raises:
            RobauditError: the run has none of the requested results.
        """
        return [cast("T", self.table(Entry(run.info.name, run, cast("T", None)), request))]

    # --- tables

    def table(self, entry: Entry[T], request: SectionRequest) -> TypedTable:
        """The table of a run, or of one of its records.

        Raises:
            RobauditError: the run has none of the requested results.
        """
        raise NotImplementedError(f"{type(self).__name__}.table")

    def typed_tables(self, entry: Entry[T], request: SectionRequest) -> Iterable[TypedTable]:
        """The tables of a record. Default: the only one."""
        if isinstance(entry.record, TypedTable):
            return [entry.record]
        return [self.table(entry, request)]

    def changes(self, entries: Sequence[Entry[T]], request: SectionRequest) -> Changes:
        """The differences of further runs from the first, for tables with runs in columns or with
        the same subject together. Default: none."""
        return Changes()

    def tables(self, entries: Sequence[Entry[T]], request: SectionRequest) -> Iterable[Table]:
        """The tables for people, of one run or of several side by side. Default: the typed tables,
        laid out."""
        from robaudit.report.layout import laid_out

        runs = list(runs_of(entries))
        several = len(runs) > 1
        # one table of each run, or several of a run with several records
        alike: dict[object, list[tuple[str, TypedTable]]] = {}
        for entry in entries:
            for table in self.typed_tables(replace(entry, several=several), request):
                alike.setdefault(_place(entry.name, table), []).append((entry.name, table))
        changes = self.changes(entries, request) if several else Changes()
        return [
            laid_out(named, several=several, runs=runs, changes=changes) for named in alike.values()
        ]

    def page_tables(self, entries: Sequence[Entry[T]], request: SectionRequest) -> Iterable[Table]:
        """The tables for a page. Default: the same."""
        return self.tables(entries, request)

    # --- files

    def lines(self, entry: Entry[T], request: SectionRequest) -> Iterable[Mapping[str, Any]]:
        """A record as lines of CSV, with values by column. Default: the rows of its typed tables.

        A mapping takes several columns: ``mean``, ``mean_lower``, ...
        """
        for table in self.typed_tables(entry, request):
            yield from table.csv_lines()

    def document(self, entry: Entry[T], request: SectionRequest) -> dict[str, Any]:
        """A record as a JSON object. A record that is a table has an object for each row
        instead."""
        from robaudit.records import json_values

        document: dict[str, Any] = json_values(entry.record, entry.run.class_names)
        return document

    # --- figures

    def narrowed(self, runs: Sequence[Run], request: SectionRequest) -> SectionRequest:
        """The request, narrowed to the results that a figure of these runs shows.

        Raises:
            RobauditError: the runs have nothing in common to draw.
        """
        return request

    def figure(self, entries: Sequence[Entry[T]], request: SectionRequest) -> Drawing:
        """The figure of records of one run or several, at least one; matplotlib is imported when it
        is drawn.

        Optional; the section ``sample`` has none.
        """
        raise NotImplementedError

    # --- for the callers of a section

    @final
    def shown(
        self, entries: Sequence[Entry[T]], request: SectionRequest, *, page: bool = False
    ) -> list[Table]:
        """The tables, and a line on runs that cannot be compared."""
        from robaudit.compare.side_by_side import not_compared
        from robaudit.report.tables import Table

        with blaming(f"section {type(self).__name__}", type(self)):
            tables = list((self.page_tables if page else self.tables)(entries, request))
        # without tables there is nothing that anybody would compare
        line = not_compared(runs_of(entries)) if tables else ""
        return [*tables, Table(notes=(line,))] if line else tables

    @final
    @property
    def has_figure(self) -> bool:
        """Whether the section defines :meth:`figure`."""
        return type(self).figure is not Section.figure

    @final
    def find(self, runs: Sequence[Run], request: SectionRequest) -> list[Entry[T]]:
        """The records of some runs, run by run.

        Raises:
            RobauditError: as :meth:`records`; or rows are classes, and the runs have others.
        """
        from robaudit.compare.matching import check_same_classes

        # groups of a column of the data are no classes
        if self.by_class and request.by in (None, "label", "predicted"):
            for run in runs[1:]:
                check_same_classes(runs[0], run)
        names = run_names(runs, request.label)
        with blaming(f"section {type(self).__name__}", type(self)):
            entries = []
            for run, name in zip(runs, names, strict=True):
                entries += [Entry(name, run, record) for record in self.records(run, request)]
            return entries

    @final
    def suits(self, run: Run) -> bool:
        """Whether the run has something to show.

        Raises:
            PluginError: a plugin raised an exception.
        """
        with blaming(f"section {type(self).__name__}", type(self)):
            return self.applies(run)


def _place(name: str, table: TypedTable) -> object:
    """The key of the table for people that a typed table becomes part of.

    Levels of different units must not share a column, and some headings do not name the unit: the
    heads of the subjects tell such tables apart.
    """
    subjects = tuple(column.head for column in table.columns if column.is_key)
    return (name if table.beside is Beside.APART else "", table.heading, subjects)


def _objects(
    section: Section[T], entry: Entry[T], request: SectionRequest
) -> Iterable[Mapping[str, Any]]:
    """The objects of JSON: one of a record, or one of each row of a table."""
    if isinstance(entry.record, TypedTable):
        return entry.record.objects()
    return [section.document(entry, request)]


def run_names(runs: Sequence[Run], labels: Sequence[str] = ()) -> list[str]:
    """A different name for each run.

    Args:
        runs: in order.
        labels: names of the first runs.

    Raises:
        SpecError: there are more labels than runs.
    """
    if len(labels) > len(runs):
        raise SpecError(
            LABEL + f" {labels[-1]}",
            f"has no run: {count(len(runs), 'run')} shown",
            "give a label for each run, or fewer",
        )
    own = [run.info.name for run in runs[len(labels) :]]
    names = [*labels, *own]
    if len(set(names)) == len(names):
        return names
    # runs of one spec have its name: their folders tell them apart, or else their order
    with_folders = list(labels)
    for name, run in zip(own, runs[len(labels) :], strict=True):
        with_folders.append(f"{name} ({run.path.name})")
    if len(set(with_folders)) == len(with_folders):
        return with_folders
    return [f"{place}: {name}" for place, name in enumerate(with_folders, start=1)]


def by_name(entries: Iterable[Entry[T]]) -> dict[str, list[Entry[T]]]:
    """The records of each run, by its name."""
    groups: dict[str, list[Entry[T]]] = {}
    for entry in entries:
        groups.setdefault(entry.name, []).append(entry)
    return groups


def runs_of(entries: Iterable[Entry[Any]]) -> dict[str, Run]:
    """The runs of some records, by their names."""
    return {entry.name: entry.run for entry in entries}


def name_in_pictures(entries: Sequence[Entry[Any]], key: GroupKey) -> str:
    """The name of a result in the words of a picture: its noise level, and its estimator where a
    run has several."""
    several = has_several_estimators(entries)
    return str(key) if several or key.at.level is None else str(key.at)


def has_several_estimators(entries: Sequence[Entry[Any]]) -> bool:
    """Whether a run has results of several estimators, which must be told apart by name."""
    runs = runs_of(entries).values()
    return any(len({key.estimator for key in run.groups()}) > 1 for run in runs)


def section_names() -> list[str]:
    """The names of the installed sections, then ``rows``, in the order they are offered; nothing is
    imported."""
    own = [*_FIRST, *_LAST]
    return [*_FIRST, *(name for name in names_in(SECTIONS) if name not in own), *_LAST]


def section_of(name: str) -> Section[Any]:
    """The section of a name.

    Raises:
        SpecError: there is no such section.
        RobauditError: two packages register it, or its plugin does not import or is no section.
    """
    if name not in names_in(SECTIONS):
        raise SpecError(
            f"section {name}", "there is no such section", did_you_mean(name, section_names())
        )
    cls = class_of(SECTIONS, "section", name, Section)
    with blaming(f"section {name}", cls):
        return cls()


def working_sections() -> dict[str, Section[Any]]:
    """The installed sections by name, without those of broken plugins. :func:`section_of` says what
    is wrong with these."""
    sections: dict[str, Section[Any]] = {}
    for name in section_names():
        # a broken plugin must not take the page of a run with it
        with contextlib.suppress(RobauditError):
            if name != ROWS:
                sections[name] = section_of(name)
    return sections


def sections_of(run: Run) -> dict[str, Section[Any]]:
    """The sections that have something to show of a run, in the order of a page."""
    applying = {name: section for name, section in working_sections().items() if section.suits(run)}
    return dict(sorted(applying.items(), key=lambda item: item[1].place))


def section_options() -> dict[SectionOption, str]:
    """The options that only one section has, with the name of that section."""
    options = {}
    for name, section in working_sections().items():
        options.update(dict.fromkeys(section.options, name))
    return options


def _used(section: Section[Any] | None) -> frozenset[str]:
    """The parts of :class:`SectionRequest`, and the options, that a section uses; None: rows."""
    if section is None:
        return Section.uses
    return section.uses | {"label"} | {option.name for option in section.options}


def refuse_unused(name: str, request: SectionRequest) -> None:
    """Refuse options that the section does not use.

    Raises:
        SpecError: an unused option is set.
    """
    used = _used(None if name == ROWS else section_of(name))
    for part in _set_parts(request):
        if part not in used:
            sections = {**working_sections(), ROWS: None}
            known = [other for other, section in sections.items() if part in _used(section)]
            flag = _FLAGS.get(part, Setting(part).words)
            raise SpecError(
                flag, f"does not apply to the section {name}", f"use it with {', '.join(known)}"
            )


def _set_parts(request: SectionRequest) -> list[str]:
    """The parts of a request that differ from their defaults, and its options."""
    default = SectionRequest()
    parts = [part.name for part in fields(SectionRequest) if part.name != "options"]
    changed = [part for part in parts if getattr(request, part) != getattr(default, part)]
    return [*changed, *request.options]


def section_csv(name: str, entries: Sequence[Entry[Any]], request: SectionRequest) -> str:
    """The records as lines of CSV, each with the name of its run, then the differences from the
    first run."""
    from robaudit.runs.serialise import table_csv

    section = section_of(name)
    lines: list[dict[str, Any]] = []
    for entry in entries:
        lines += [{"run": entry.name, **line} for line in section.lines(entry, request)]
    lines += _differences(section, entries, request)
    records = [dict(flat(line)) for line in lines]
    # records may have different columns: those of the differences come last
    columns = list(dict.fromkeys(chain.from_iterable(records)))
    if not records:
        columns = ["run", *_columns_without_lines(section, entries, request)]
    return table_csv(columns, ([record.get(column) for column in columns] for record in records))


def _columns_without_lines(
    section: Section[Any], entries: Sequence[Entry[Any]], request: SectionRequest
) -> list[str]:
    """The columns of a CSV file without lines: those that the tables name."""
    # a section that writes its own lines need not have a typed table
    if type(section).lines is not Section.lines:
        return []
    columns: dict[str, None] = {}
    for entry in entries:
        for table in section.typed_tables(entry, request):
            columns |= dict.fromkeys(table.csv_columns())
    return list(columns)


def _differences(
    section: Section[Any], entries: Sequence[Entry[Any]], request: SectionRequest
) -> list[dict[str, Any]]:
    """The differences from the first run, as values by column."""
    if len(runs_of(entries)) < 2:
        return []
    return list(section.changes(entries, request).csv_lines(entries[0].name))


def section_json(name: str, entries: Sequence[Entry[Any]], request: SectionRequest) -> str:
    """The records as JSON, with the differences from the first run, if there are some."""
    from robaudit.records import json_values
    from robaudit.runs.serialise import document_json

    section = section_of(name)
    results: list[dict[str, Any]] = []
    for entry in entries:
        objects = _objects(section, entry, request)
        results += [{"run": entry.name, **values} for values in objects]
    document: dict[str, Any] = {"section": name, "results": results}
    differences = [json_values(line) for line in _differences(section, entries, request)]
    if differences:
        document["differences"] = differences
    return document_json(document)
