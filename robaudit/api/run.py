"""A finished run with queries, tables, gates, pictures and reports."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robaudit.api import arguments
from robaudit.api.printed import Decisions, Page, Results
from robaudit.errors import RobauditError
from robaudit.files import write_atomically
from robaudit.gates.decide import Verdict
from robaudit.report.sections import (
    ROWS,
    Entry,
    SectionOption,
    SectionRequest,
    refuse_unused,
    section_names,
    section_of,
    section_options,
)
from robaudit.report.summary_section import SummarySection, group_mean, headline
from robaudit.report.tables import markdown
from robaudit.runs import run as stored
from robaudit.stats import reading
from robaudit.stats.summary import GroupSummary, summary_of
from robaudit.text import clipped, count, printable

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.figure import Figure

    from robaudit.datasets.dataset import Dataset

Texts = str | Sequence[str] | None
Numbers = float | str | Sequence[float | str] | None
"""One number, several, or (None) all; "8/255" is understood."""
_FEW = 3
"""Results in a repr, which is a line."""


class TemporaryFolder:
    """A folder that is removed with the last object that needs it, or when Python ends."""

    def __init__(self) -> None:
        # The finalizer must not refer to self, or it would keep itself from running.
        self.path = Path(tempfile.mkdtemp(prefix="robaudit-"))
        self._end = weakref.finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Remove it now."""
        self._end()


def _remove(path: Path, process: int) -> None:
    """Remove a folder, unless this is a forked child of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, repr=False)
class Run(stored.Run):
    """A finished run.

    ``rows`` has one result for each sample, noise level and estimator; :meth:`to_pandas` has them
    as a table. Questions: :meth:`summary`, :meth:`section` (any of ``robaudit show``),
    :meth:`gate`. To look at: :meth:`plot`, :meth:`report`, and the run itself in a notebook.

    Attributes:
        path: the run folder.
        info: run.json.
        rows: one result for each sample, noise level and estimator, in the order of samples.csv.
        data: the data set, where this process audited one in memory.
    """

    _home: TemporaryFolder | None = field(default=None, compare=False)

    # --- rows as tables

    def to_arrow(self) -> pyarrow.Table:
        """The rows as an Arrow table, which ``polars.from_arrow`` takes.

        It has the columns of samples.csv, and then what else an estimator recorded. ``votes``,
        ``certificate``, ``search``, ``loss``, ``clean`` and ``fit`` have the members of the class
        in :mod:`robaudit.results`. ``numbers`` are further numbers by name (effective sample size,
        ...).

        Raises:
            RobauditError: pyarrow is not installed.
        """
        from robaudit.runs.arrow import arrow_table

        return arrow_table(self.rows, self.class_names, where="to_arrow")

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas table.

        It has the columns of samples.csv, and a column for each further number that some row has.
        Those columns are called ``votes.counts``, ``certificate.p_lower``, ``numbers.ess``, ... and
        are empty where a result does not have the number. Integers that may be absent are pandas'
        own ``Int64``.

        Raises:
            RobauditError: pandas or pyarrow is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise RobauditError(
                "to_pandas",
                "needs pandas, which is not installed",
                "pip install pandas, or use to_arrow()",
            ) from error
        # Otherwise a missing number would make floats of integers, and objects of truth values.
        types = {"int64": pd.Int64Dtype(), "bool": pd.BooleanDtype()}
        table = self.to_arrow()
        numbers = [dict(entry or ()) for entry in table["numbers"].to_pylist()]
        # A struct such as votes becomes columns such as votes.counts.
        flat = table.drop_columns("numbers").flatten()
        empty = [
            name for name in flat.column_names if "." in name and flat[name].null_count == len(flat)
        ]
        frame: pandas.DataFrame = flat.drop_columns(empty).to_pandas(
            types_mapper=lambda type_: types.get(str(type_))
        )
        names = set().union(*numbers)
        for name in sorted(names):
            frame[f"numbers.{name}"] = [row.get(name, math.nan) for row in numbers]
        return frame

    # --- questions

    @arguments.naming_arguments()
    def section(
        self,
        name: str,
        *,
        with_: Sequence[stored.Run] = (),
        label: Texts = None,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
        **options: Any,
    ) -> Results[Any]:
        """A section of ``robaudit show``: its records, which print and show as its tables.

        Args:
            name: summary, levels, classes, confusion, flagged, certified, scores, curves,
                corruption, easiest, losses or sample.
            with_: further runs, compared with this one; their records follow.
            label: names of the runs, this one first.
            estimator, noise, level, sigma: only these results.
            options: of the section: ``threshold``, ``by``, ``only``, ``bottom``, ``id``,
                ``radius``.

        Raises:
            RobauditError: the section is unknown, it does not use an option, or a run has none of
                these results.
        """
        # The rows are to_arrow() and to_pandas().
        arguments.choose("name", name, [section for section in section_names() if section != ROWS])
        view = section_of(name)
        known: Iterable[SectionOption] = view.options
        own_names = {option.name for option in view.options}
        if not own_names >= options.keys() - set(_OPTIONS):
            # An option of another section is read, too, so that the error can say which has it.
            known = section_options()
        values = {}
        for option in known:
            if options.get(option.name) is not None:
                texts = map(str, arguments.several(options.pop(option.name)))
                values[option.name] = option.read(tuple(texts), option.name)
        request = _request(estimator, noise, level, sigma, label=label, **options)
        request = replace(request, options=values)
        refuse_unused(name, request)
        entries = view.find([self, *with_], request)
        return Results((entry.record for entry in entries), view.shown(entries, request))

    def summary(self) -> Results[GroupSummary]:
        """Mean, quantiles and shares for each estimator and noise level, with intervals."""
        groups = summary_of(self)
        return Results(groups, SummarySection().tables([Entry("", self, groups)], SectionRequest()))

    @arguments.naming_arguments()
    def gate(
        self,
        *gates: str | Sequence[str],
        population: bool = False,
        point: bool = False,
        confidence: float | None = None,
        inconclusive: Verdict = "inconclusive",
        strict: bool = False,
    ) -> Decisions:
        """Decide whether the run meets its gates, each by its interval.

        Args:
            gates: such as ``"mean >= 0.9"`` or ``"worst_class(sigma=0.05) >= 0.7"``, or lists of
                them; default: the run's own.
            population: the intervals also cover the choice of the images.
            point: let values without an interval decide.
            confidence: of the intervals; default 0.95.
            inconclusive: what an inconclusive gate counts as.
            strict: also fail if the run has warnings.

        Raises:
            RobauditError: there is no gate, or it is about something that the run does not have.
        """
        from robaudit.gates.sources import decide_by, find_rules

        # Checked here: the command line has a parser that knows the three words.
        arguments.choose("inconclusive", inconclusive, ("inconclusive", "fail", "pass"))
        written: list[str] = []
        for gate in gates:
            written += arguments.texts("gates", gate, 'for example run.gate("mean >= 0.9")')
        rules = find_rules(written, self, where="gates", strict=strict)
        decisions = decide_by(
            rules, self, population=population, point=point, confidence=confidence, strict=strict
        )
        return Decisions(decisions, inconclusive)

    # --- to look at

    @arguments.naming_arguments()
    def report(
        self,
        path: str | Path | None = None,
        *,
        with_: Sequence[stored.Run] = (),
        label: Texts = None,
        title: str | None = None,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
        threshold: float | None = None,
        images: bool = True,
    ) -> Page | Path:
        """The whole result on one HTML page that needs no network, or as Markdown.

        Args:
            path: the file to write: .html, or .md. None: the page itself, which a notebook shows.
            with_: further runs, side by side with this one.
            label: names of the runs, this one first.
            title: the heading.
            estimator, noise, level, sigma: only these results.
            threshold: beyond it a sample is flagged; default: the usual one.
            images: show the flagged samples.

        Returns:
            The page, or the path that was written.

        Raises:
            RobauditError: jinja2 is not installed, or the file cannot be written.
        """
        from robaudit.report.html.content import gather

        # Without a file it is a page, which a notebook shows.
        suffix = "html" if path is None else Path(path).suffix.lower().lstrip(".")
        arguments.choose("path", suffix, ("html", "htm", "md", "markdown"))
        request = _request(estimator, noise, level, sigma, threshold=threshold, label=label)
        content = gather([self, *with_], request)
        if suffix in ("md", "markdown"):
            from robaudit.report.html.markdown import markdown_report

            text = markdown_report(content, title=title)
        else:
            from robaudit.report.html.render import page

            # The second value says why images are missing; the page says it, too.
            text, _ = page(content, title=title, images=images)
        return Page(text) if path is None else _written(Path(path), text.encode())

    @arguments.naming_arguments()
    def plot(
        self,
        kind: str,
        path: str | Path | None = None,
        *,
        with_: Sequence[stored.Run] = (),
        label: Texts = None,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
        threshold: float | None = None,
        max_images: int | None = None,
        width: float = 7.0,
        title: bool | str = True,
        caption: bool = True,
    ) -> Figure:
        """A picture of this run, or of several, as a figure that a notebook shows.

        Args:
            kind: summary, levels, classes, flagged, confusion, certified, scores, curves,
                corruption, easiest or losses.
            path: also write it to this file: .png, .svg or .pdf.
            with_: further runs in the same picture.
            label: names of the runs, this one first.
            estimator, noise, level, sigma: only these results.
            threshold: beyond it a sample counts as not robust.
            max_images: for flagged.
            width: in inches; 3.3 is a column of a paper.
            title: whether its title is written above it, or another title.
            caption: whether its caption is written below it.

        Raises:
            RobauditError: matplotlib is not installed, the picture is unknown, a run has nothing
                that it could show, or the file cannot be written.
        """
        from robaudit.report.pictures import can_draw

        # Before the next imports, which need matplotlib.
        can_draw(required=True, where="plot")
        from robaudit.report.pictures import FORMATS
        from robaudit.report.pictures.kinds import drawing_of, figure_of, picture, size_of

        format_ = "" if path is None else Path(path).suffix.lower().lstrip(".")
        if path is not None:
            arguments.choose("path", format_, FORMATS)
        size = size_of(width, title=title, caption=caption)
        request = _request(
            estimator, noise, level, sigma, threshold=threshold, bottom=max_images, label=label
        )
        drawing = drawing_of(kind, [self, *with_], request)
        # The file is drawn apart, at the resolution of print.
        if path is not None:
            _written(Path(path), picture(drawing, format_, size))
        return figure_of(drawing, size)

    def __repr__(self) -> str:
        info = self.info
        model = clipped(printable(info.model.name), 60)
        data = clipped(printable(info.data.where), 60)
        parts = [f"{model} on {count(info.totals.samples, 'sample')} of {data}"]
        clean = info.clean_accuracy
        parts.append("no labels" if clean is None else f"clean accuracy {clean.value:.1%}")
        groups = summary_of(self)
        for group in groups[:_FEW]:
            at = "" if group.key.at.level is None else f" at {group.key.at}"
            mean = f"mean {group.key.quantity} {group_mean(group)}"
            parts.append(f"{group.key.estimator}{at}: {mean}")
        if len(groups) > _FEW:
            parts.append("...")
        if not info.complete:
            parts.append(info.so_far)
        if info.warnings:
            parts.append(count(len(info.warnings), "warning"))
        return f"<Run {'; '.join(parts)}; {self._place}>"

    def _repr_markdown_(self) -> str:
        parts = [f"**{markdown(f'warning: {text}')}**" for text in self.info.notices]
        # Indented lines are code in Markdown, so the columns stay aligned.
        parts.append("\n".join(f"    {printable(line)}" for line in headline(self)))
        parts.append(self.summary()._repr_markdown_())
        if self.info.gates:
            # They may be about results that this run lacks.
            try:
                parts.append(self.gate()._repr_markdown_())
            except RobauditError as error:
                parts.append(markdown(f"gates: {error}"))
        return "\n\n".join([*parts, markdown(self._place)])

    @property
    def _place(self) -> str:
        """Where the run is, for displays."""
        if self._home is not None:
            return "in a temporary folder: out= keeps it"
        return f"in {printable(str(self.path))}"


@arguments.naming_arguments()
def read_run(path: str | Path, *, kept: bool = False) -> Run:
    """Open a finished run; the rows of a large run are read when they are used.

    Args:
        path: the run folder.
        kept: also read which draws kept the class (:attr:`robaudit.results.Votes.bits`), which
            takes more memory than the rest of a row.

    Raises:
        RunError: the run is missing, damaged or unfinished.
    """
    return from_stored(reading.read_run(Path(path), kept=kept))


def from_stored(
    run: stored.Run, *, home: TemporaryFolder | None = None, data: Dataset | None = None
) -> Run:
    """The run with the methods of the Python interface.

    Args:
        run: the run.
        home: its folder, if that is temporary.
        data: its data set, if that is in memory.
    """
    # Rows are read from the folder when they are used, also after the run itself is gone.
    if home is not None and isinstance(run.rows, stored.StoredRows):
        run.rows.owner = home
    opened = Run(run.path, run.info, run.rows, data, home)
    # The table is a cached property: an audit has it already, and a run from disk reads it later.
    if "table" in vars(run):
        return opened.with_columns(run.table)
    return opened


def _written(path: Path, content: bytes) -> Path:
    """Write a file and return its path.

    Raises:
        RobauditError: it cannot be written.
    """
    try:
        write_atomically(path, content)
    except OSError as error:
        raise RobauditError(
            str(path), f"cannot be written: {error.strerror or error}", "choose another path"
        ) from error
    return path


_OPTIONS = [
    part.name
    for part in fields(SectionRequest)
    if part.name not in ("estimators", "levels", "data", "label", "options")
]
"""Options that several sections have, and that Python takes by the same name."""


def _request(
    estimator: Texts,
    noise: Texts,
    level: Numbers,
    sigma: Numbers,
    *,
    label: Texts = None,
    **options: Any,
) -> SectionRequest:
    """The arguments as a :class:`SectionRequest`; None: not set.

    Raises:
        SpecError: an option is unknown or has an invalid value.
    """
    values = {name: value for name, value in options.items() if value is not None}
    # As the command line does before it makes a request, with the words of Python.
    for name, value in values.items():
        arguments.choose("section", name, _OPTIONS)
        if name == "only":
            arguments.choose(name, value, ("correct", "wrong"))
        elif name == "threshold":
            values[name] = arguments.number(name, value)
        elif name in ("bottom", "top"):
            values[name] = arguments.whole(name, value)
        elif name == "id":
            values[name] = tuple(map(str, arguments.several(value)))
    return SectionRequest(
        estimators=arguments.several(estimator),
        levels=arguments.levels(noise, level, sigma),
        label=arguments.several(label),
        **values,
    )
