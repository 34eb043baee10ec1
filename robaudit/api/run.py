"""A finished run that answers questions and shows itself: tables, gates, pictures, reports."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from robaudit.api import arguments
from robaudit.api.results import Decisions, Page, Results
from robaudit.errors import RobauditError, SpecError, naming_arguments
from robaudit.files import write_atomically
from robaudit.gates.decide import Verdict
from robaudit.levels import LevelChoice
from robaudit.report import notebook, numbers
from robaudit.report.flag_tables import FlaggedSection, flags_tables
from robaudit.report.sections import Ask, SectionName, refuse_unused, section_of
from robaudit.report.summary_tables import headline, overall_tables
from robaudit.store import run as stored
from robaudit.text import clipped, count, printable

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from matplotlib.figure import Figure

    from robaudit.stats.classes import ClassBias
    from robaudit.stats.flags import Flagged
    from robaudit.stats.summary import GroupSummary

Texts = str | Sequence[str] | None
Numbers = float | str | Sequence[float | str] | None
"""One, several, or (None) all; "8/255" is understood."""
_LISTED = 20  # flagged samples in a table
_OPTIONS = ("threshold", "by", "only", "bottom", "top", "per_class", "id", "radius", "confidence", "baseline")
_FEW = 3  # results in a repr


class TemporaryFolder:
    """A folder that is removed with the last object that needs it, or when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="robaudit-"))
        self._end = weakref.finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Remove it now."""
        self._end()


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # not at the end of a forked child
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Run(stored.Run):
    """A finished run.

    ``rows`` has one result for each sample, noise level and estimator; :meth:`to_pandas` has them as a table. Questions: :meth:`summary`,
    :meth:`bias_report`, :meth:`flagged`, :meth:`section` (any of ``robaudit show``), :meth:`gate`. To look at: :meth:`plot`,
    :meth:`report`, and the run itself in a notebook.

    Attributes:
        path: the run folder.
        info: run.json.
        rows: one result for each sample, noise level and estimator, in the order of samples.csv.
    """

    _home: TemporaryFolder | None = field(default=None, compare=False)

    # --- rows as tables

    def to_arrow(self) -> pyarrow.Table:
        """The rows as an Arrow table: the columns of samples.csv, then what else an estimator recorded.

        ``votes`` counts the noisy copies by class; ``details`` are further numbers by name (certified class, gap, effective sample
        size, ...), as JSON; ``not_finite`` counts copies without finite logits.

        Raises:
            RobauditError: pyarrow is not installed.
        """
        from robaudit.store.table import arrow_table

        return arrow_table(self.rows, self.class_names, where="to_arrow")

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas table: the columns of samples.csv, ``votes``, ``not_finite``, and a column for each further number.

        Those columns are called ``details.NAME`` (``details.certified_class``, ``details.gap``, ...) and are NaN where an estimator
        does not give the number. Integers that may be absent are pandas' own ``Int64``.

        Raises:
            RobauditError: pandas or pyarrow is not installed.
        """
        import json

        try:
            import pandas as pd
        except ImportError as error:
            raise needs_package("to_pandas", "pandas") from error
        types = {"int64": pd.Int64Dtype(), "bool": pd.BooleanDtype()}
        table = self.to_arrow()
        frame: pandas.DataFrame = table.drop_columns("details").to_pandas(types_mapper=lambda one: types.get(str(one)))
        details = [json.loads(text) if text else {} for text in table["details"].to_pylist()]
        for name in sorted({name for one in details for name in one}):
            frame[f"details.{name}"] = [one.get(name, math.nan) for one in details]
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars table, with the columns of :meth:`to_arrow`.

        Raises:
            RobauditError: polars or pyarrow is not installed.
        """
        try:
            import polars as pl
        except ImportError as error:
            raise needs_package("to_polars", "polars") from error
        frame = pl.from_arrow(self.to_arrow())
        if not isinstance(frame, pl.DataFrame):
            raise TypeError("an Arrow table becomes a DataFrame")
        return frame

    # --- questions

    @naming_arguments
    def section(
        self,
        name: str,
        *,
        with_: Sequence[stored.Run] = (),
        labels: Sequence[str] = (),
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
        **options: Any,
    ) -> Results[Any]:
        """A section of ``robaudit show``: its records, which print and show as its tables.

        Args:
            name: summary, levels, classes, confusion, flagged, certified, scores, curves, corruption, easiest, losses, agreement or sample.
            with_: further runs, compared with this one; their records follow.
            labels: names of the runs, this one first.
            estimator, noise, level, sigma: only these results.
            options: what else the section knows: ``threshold``, ``by``, ``only``, ``bottom``, ``top``, ``per_class``, ``id``, ``radius``,
                ``confidence``, ``baseline``.

        Raises:
            RobauditError: there is no such section, it does not know an option, or a run has nothing of what is asked for.
        """
        chosen = _section(name)
        ask = _ask(options, estimator, level_choice(noise, level, sigma), labels)
        refuse_unused(chosen, ask)
        made = section_of(chosen)
        found = made.find([self, *with_], ask)
        return Results((one.record for one in found), made.shown(found, ask))

    def summary(self) -> Results[GroupSummary]:
        """Mean, quantiles and shares for each estimator and noise level, with intervals."""
        groups = stored.Run.summary(self)
        seconds = {key: spent for group in groups if (spent := self.seconds_of(*(key := (group.key.estimator, group.key.at)))) is not None}
        return Results(groups, overall_tables(groups, seconds, self.quantities))

    def bias_report(
        self,
        *,
        by: str | None = None,
        threshold: float | None = None,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
    ) -> Results[ClassBias]:
        """Robustness by class, the gap between the least and the most robust class, and whether chance alone explains it.

        Args:
            by: what a class is: ``label``, ``predicted``, or a column of the data set; default: the label, where there are labels.
            threshold: report the share of samples below it; default: 0.9 for quantities from 0 to 1.
            estimator, noise, level, sigma: only these results.

        Raises:
            RobauditError: there are no such results, or ``threshold`` or ``by`` is none.
        """
        return self.section("classes", by=by, threshold=threshold, estimator=estimator, noise=noise, level=level, sigma=sigma)

    @naming_arguments
    def flagged(
        self,
        *,
        threshold: float | None = None,
        bottom: int | None = None,
        top: int | None = None,
        per_class: bool = False,
        only: Literal["correct", "wrong"] | None = None,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
    ) -> Results[Flagged]:
        """The samples that are not robust, the least robust first.

        Args:
            threshold: samples with a value below it (above, for losses) are flagged; default: the quantity's own, 0.5 for probabilities.
            bottom: list the N least robust instead, below the threshold or not.
            top: list the N most robust as well.
            per_class: make a list for each predicted class.
            only: samples that are classified correctly, or wrongly, without noise.
            estimator, noise, level, sigma: only these results.

        Raises:
            RobauditError: there are no such results, or an argument is out of range.
        """
        _choose("only", only, (None, "correct", "wrong"))
        limit = None if threshold is None else arguments.number("threshold", threshold)
        if limit is not None and not math.isfinite(limit):
            raise RobauditError("threshold", f"{limit} is not a number to compare with", "for example 0.5")
        counts = {name: given if given is None else arguments.whole(name, given) for name, given in (("bottom", bottom), ("top", top))}
        asked = _ask({"threshold": limit, "per_class": per_class, "only": only, **counts}, estimator, level_choice(noise, level, sigma), ())
        section = FlaggedSection()
        found = section.listed(self, asked)
        tables = (
            table for one in found for table in flags_tables(one, self.class_names, self.quantities[one.key.quantity], _LISTED, ".samples")
        )
        return Results(found, tables)

    @naming_arguments
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
            gates: such as ``"mean >= 0.9"`` or ``"worst_class(sigma=0.05) >= 0.7"``, or lists of such; default: those of the audit.
            population: the intervals also cover the choice of the images.
            point: let values without an interval decide by themselves.
            confidence: of the intervals; default 0.95.
            inconclusive: what an inconclusive gate counts as.
            strict: the run must not have warned, either.

        Raises:
            RobauditError: there is no gate, or it is about something that the run does not have.
        """
        from robaudit.gates.sources import GateRules, decide_by, parsed, rules_of

        _choose("inconclusive", inconclusive, ("inconclusive", "fail", "pass"))
        given = [text for one in gates for text in arguments.texts("gates", one, 'for example run.gate("mean >= 0.9")')]
        rules = GateRules(parsed(given, "gates"), "gates") if given or strict else None
        if not given:
            rules = rules_of(self) or rules
        if rules is None:
            raise SpecError("gates", "the audit had none, and none is given", 'for example run.gate("mean >= 0.9")')
        decisions = decide_by(rules, self, population=population, point=point, confidence=confidence, strict=strict)
        return Decisions(decisions, inconclusive)

    # --- to look at

    @overload
    def report(self, path: None = None, *, title: str | None = None, threshold: float | None = None, images: bool = True) -> Page: ...

    @overload
    def report(self, path: str | Path, *, title: str | None = None, threshold: float | None = None, images: bool = True) -> Path: ...

    @naming_arguments
    def report(
        self, path: str | Path | None = None, *, title: str | None = None, threshold: float | None = None, images: bool = True
    ) -> Page | Path:
        """The whole result on one HTML page that needs no network, or as Markdown.

        Args:
            path: the file to write: .html, or .md. None: the page itself, which a notebook shows.
            title: its heading.
            threshold: beyond it a sample is flagged; default: the usual one.
            images: show the flagged samples.

        Returns:
            The page, or the path that was written.

        Raises:
            RobauditError: jinja2 is not installed, or the file cannot be written.
        """
        from robaudit.report.html.content import gather
        from robaudit.report.sections import Ask

        target = None if path is None else Path(path)
        if target is not None:
            _choose("path", target.suffix.lower().lstrip("."), ("html", "htm", "md", "markdown"))
        content = gather([self], Ask(threshold=threshold))
        if target is not None and target.suffix.lower() in (".md", ".markdown"):
            from robaudit.report.html.markdown import markdown_report

            text = markdown_report(content, title=title)
        else:
            from robaudit.report.html.render import page

            text, _ = page(content, title=title, images=images)
        if target is None:
            return Page(text)
        try:
            write_atomically(target, text.encode())
        except OSError as error:
            raise RobauditError(str(target), f"cannot be written: {error.strerror or error}", "choose another path") from error
        return target

    @overload
    def plot(
        self,
        kind: str,
        path: None = None,
        *,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
        threshold: float | None = None,
        max_images: int | None = None,
        sample: str | None = None,
        beside: Sequence[stored.Run] = (),
        width: float = 7.0,
        title: bool = True,
        caption: bool = True,
    ) -> Figure: ...

    @overload
    def plot(
        self,
        kind: str,
        path: str | Path,
        *,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
        threshold: float | None = None,
        max_images: int | None = None,
        sample: str | None = None,
        beside: Sequence[stored.Run] = (),
        width: float = 7.0,
        title: bool = True,
        caption: bool = True,
    ) -> Path: ...

    @naming_arguments
    def plot(
        self,
        kind: str,
        path: str | Path | None = None,
        *,
        estimator: Texts = None,
        noise: Texts = None,
        level: Numbers = None,
        sigma: Numbers = None,
        threshold: float | None = None,
        max_images: int | None = None,
        sample: str | None = None,
        beside: Sequence[stored.Run] = (),
        width: float = 7.0,
        title: bool = True,
        caption: bool = True,
    ) -> Figure | Path:
        """A picture of this run, or of several.

        Args:
            kind: summary, levels, classes, flagged, confusion, certified, scores, curves, corruption, easiest, losses, sample, or scatter.
            path: the file to write: .png, .svg or .pdf. None: the figure itself, which a notebook shows.
            estimator, noise, level, sigma: only these results; for scatter the two estimators.
            threshold: beyond it a sample counts as not robust.
            max_images: for flagged and losses.
            sample: the image, for the kind sample.
            beside: further runs in the same picture.
            width: in inches; 3.3 is a column of a paper.
            title, caption: whether they are written above and below.

        Raises:
            RobauditError: matplotlib is not installed, there is no such picture, or a run has nothing that it could show.
        """
        from robaudit.report.pictures import can_draw
        from robaudit.report.sections import Ask

        can_draw(required=True, where="plot")
        from robaudit.report.pictures import FORMATS
        from robaudit.report.pictures.kinds import figure_of, found_in, look_of, picture, sketch_of

        format_ = "" if path is None else Path(path).suffix.lower().lstrip(".")
        if path is not None:
            _choose("path", format_, FORMATS)
        look = look_of(width, title=title, caption=caption)
        ids = () if sample is None else (str(sample),)
        ask = Ask(several(estimator), level_choice(noise, level, sigma), threshold, bottom=max_images, id=ids)
        made = sketch_of(kind, found_in(kind, [self, *beside], ask), ask)
        if path is None:
            return figure_of(made, look)
        target = Path(path)
        try:
            write_atomically(target, picture(made, format_, look))
        except OSError as error:
            raise RobauditError(str(target), f"cannot be written: {error.strerror or error}", "choose another path") from error
        return target

    def __repr__(self) -> str:
        info, results = self.info, []
        for group in stored.Run.summary(self)[: _FEW + 1]:
            quantity = self.quantities[group.key.quantity]
            value = numbers.mean_estimate(group.mean, quantity.low, quantity.high)
            at = "" if group.key.at.levelless else f" at {group.key.at}"
            results.append(f"{group.key.estimator}{at}: mean {group.key.quantity} {value}")
        clean = info["clean_accuracy"]
        parts = [
            f"{clipped(printable(info['model']['name']), 60)} on {count(info['totals']['samples'], 'sample')} of "
            f"{clipped(printable(info['data']['where']), 60)}",
            "no labels" if clean is None else f"clean accuracy {clean['value']:.1%}",
            *results[:_FEW],
            *(["..."] if len(results) > _FEW else []),
            *([count(len(info["warnings"]), "warning")] if info["warnings"] else []),
        ]
        return f"<Run {'; '.join(parts)}; {self._place}>"

    def _repr_html_(self) -> str:
        warnings = [f"warning: {text}" for text in self.info["warnings"]]
        parts = [notebook.html_lines(warnings, "color:#c0392b;font-weight:600")] if warnings else []
        parts.append(notebook.html_lines(headline(self.info), "font-family:monospace"))
        parts.append(self.summary()._repr_html_())
        if self.info["spec"].get("gates"):
            parts.append(_gates_html(self.gate))
        parts.append(notebook.html_lines([self._place]))
        return "".join(parts)

    @property
    def _place(self) -> str:
        return "in a temporary folder: out= keeps it" if self._home is not None else f"in {printable(str(self.path))}"


def needs_package(where: str, package: str) -> RobauditError:
    """The error for a library that no extra of robaudit installs: users of its tables have it."""
    return RobauditError(where, f"needs {package}, which is not installed", f"pip install {package}, or use to_arrow()")


def read_run(path: str | Path, *, kept: bool = False) -> Run:
    """Open a finished run; the rows of a large one are read when they are used.

    Args:
        path: the run folder.
        kept: also read which draws kept the class (:attr:`robaudit.Row.kept`), which takes more memory than the rest of a row.

    Raises:
        RunError: it is missing, damaged or unfinished.
    """
    return of_stored(stored.read_run(Path(path), kept=kept))


def of_stored(run: stored.Run, home: TemporaryFolder | None = None) -> Run:
    """The run with the methods of the Python interface; ``home`` is its folder, if that is temporary."""
    if home is not None and isinstance(run.rows, stored.StoredRows):
        run.rows.owner = home
    return Run(run.path, run.info, run.rows, home)


def _gates_html(decide: Callable[[], Decisions]) -> str:
    try:
        return decide()._repr_html_()
    except RobauditError as error:
        return notebook.html_lines([f"gates: {error}"])


def several(given: Any) -> tuple[Any, ...]:
    """One or several as a tuple; None: empty."""
    found = arguments.plain(given)
    return () if found is None else tuple(found) if isinstance(found, list) else (found,)


def level_choice(noise: Texts, level: Numbers, sigma: Numbers) -> LevelChoice:
    """The noise levels that the arguments of a question name."""
    levels, sigmas = (tuple(arguments.level(name, one) for one in several(given)) for name, given in (("level", level), ("sigma", sigma)))
    return LevelChoice(several(noise), levels, sigmas)


def _choose(argument: str, given: object, known: Sequence[object]) -> None:
    if given not in known:
        raise SpecError(argument, f"{given!r} is unknown", f"one of {', '.join(map(repr, (one for one in known if one is not None)))}")


def _section(name: str) -> SectionName:
    known = [one.value for one in SectionName if one is not SectionName.ROWS]
    _choose("name", name, known)
    return SectionName(name)


def _ask(options: dict[str, Any], estimator: Texts, levels: LevelChoice, labels: Sequence[str]) -> Ask:
    """What is asked of a section.

    Raises:
        SpecError: an option is unknown or has a value that it cannot have.
    """
    for option in options:
        _choose("section", option, _OPTIONS)
    _choose("only", options.get("only"), (None, "correct", "wrong"))
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("threshold", "confidence"):
        if name in given:
            given[name] = arguments.number(name, given[name])
    for name in ("bottom", "top"):
        if name in given:
            given[name] = arguments.whole(name, given[name])
    if "id" in given:
        given["id"] = tuple(map(str, several(given["id"])))
    if "radius" in given:
        given["radius"] = tuple(sorted(arguments.number("radius", one) for one in several(given["radius"])))
    return Ask(estimators=several(estimator), levels=levels, label=tuple(labels), **given)
