"""Error curves: a summary number each, models side by side, and every point as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from robaudit.levels import GAUSSIAN
from robaudit.methods.radius.curves import (
    HALF,
    HIGHER_IS_BETTER,
    HUMANS,
    LINEAR,
    NAMES,
    CurveKind,
    Curves,
    CurveSummary,
    ErrorCurve,
    ValueRelation,
    curve_changes,
    curves_of,
)
from robaudit.numerics.image_intervals import LIKE_THESE
from robaudit.report import numbers
from robaudit.report.differences import (
    BOOTSTRAP_P,
    paired_changes,
)
from robaudit.report.legends import BOOTSTRAP
from robaudit.report.numbers import span
from robaudit.report.pictures.page import Drawing, PictureSize, few_ticks, paneled, percent_scale
from robaudit.report.pictures.style import FAINT, line_style
from robaudit.report.sections import Entry, Section, SectionRequest
from robaudit.report.tables import Table
from robaudit.report.typed import TEXT, WRITTEN, Beside, Changes, TypedColumn, TypedTable
from robaudit.runs.run import Run
from robaudit.text import count, shell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A remark asks for a finer grid where one step takes more of the correct images than this.
_COARSE = 0.5
MANY_LEVELS = 5
"""The least number of levels of Gaussian noise that make a curve."""
_GRID_ATTACK = "radius_pgd"
MEANINGS = {
    CurveKind.L2: "mean l2 radius at which projected gradient ascent succeeds, 0 where "
    "misclassified",
    CurveKind.LINF: "the same in linf",
    CurveKind.NOISE: "mean standard deviation of Gaussian noise at which an image is misclassified",
    CurveKind.LINEAR: "share of the image left when half are misclassified; human observers: "
    f"about {HUMANS:g}",
}


def _is_curve(noise: Mapping[str, Any]) -> bool:
    """Whether a noise of a spec has enough levels for a curve."""
    if noise.get("kind") == LINEAR:
        return True
    levels = noise.get("sigma")
    return noise.get("kind") == GAUSSIAN and isinstance(levels, list) and len(levels) >= MANY_LEVELS


class CurvesSection(Section[Curves]):
    """Error curves under attacks, noise and linear corruption, each in one number: ASR, AMS, gamma
    at 50 %."""

    title = "Error curves"
    place = 40
    words = (
        "Accuracy against the size of the perturbation; an image that is misclassified on "
        "the clean image is an error at every size."
    )

    def applies(self, run: Run) -> bool:
        """Whether it has labels and attacks on a grid, linear corruption, or many levels of
        Gaussian noise."""
        spec = run.info.spec
        attacked = any(entry.get("name") == _GRID_ATTACK for entry in spec.get("estimators", ()))
        has_curve = attacked or any(map(_is_curve, spec.get("noise", ())))
        return run.info.clean_accuracy is not None and has_curve

    def records(self, run: Run, request: SectionRequest) -> list[Curves]:
        """The curves of the run."""
        return [curves_of(run, estimators=request.estimators, levels=request.levels)]

    def table(self, entry: Entry[Curves], request: SectionRequest) -> TypedTable:
        """A row for each summary, below the number of images and their accuracy."""
        curves = entry.record
        first = next(iter(curves.values()))
        accuracy = f"{100 * (1 - float(first.errors[0])):.1f}%"
        summaries = [text(curves[kind].summary) if kind in curves else None for kind in CurveKind]
        rows = [
            ("images", f"{first.images:,}"),
            ("clean accuracy", accuracy),
            *zip((NAMES[kind] for kind in CurveKind), summaries, strict=True),
        ]
        keys = ("images", "clean accuracy", *CurveKind)
        places = {row[0]: place for place, row in enumerate(rows)}
        return TypedTable(
            "Summary of the error curves",
            (
                TypedColumn("", TEXT),
                TypedColumn("", WRITTEN, head="value" if entry.several else entry.name),
            ),
            rows,
            keys=keys,
            notes=tuple(_notes(curves)),
            remarks=tuple(_remarks_after(curves, entry.several)),
            shows=lambda row: row[1] is not None,
            # in the order of the kinds, also where the first run lacks one
            rank=lambda row: -places[row[0]],
            beside=Beside.COLUMNS,
        )

    def changes(self, entries: Sequence[Entry[Curves]], request: SectionRequest) -> Changes:
        """The differences of the summaries from the first run's."""
        differences = partial(curve_changes, estimators=request.estimators, levels=request.levels)
        return Changes(
            paired_changes(entries, differences),
            tested=True,
            about=lambda kind: {"curve": kind.value},
            notes=("[ ] of a difference: the same images drawn for both.", BOOTSTRAP_P),
        )

    def tables(self, entries: Sequence[Entry[Curves]], request: SectionRequest) -> Iterator[Table]:
        """The table, and where the whole curves are."""
        paths = " ".join(shell(entry.run.path) for entry in entries)
        where = (
            f"The curves: robaudit plot {paths} --kind curves -o curves.png; point by point: "
            "--format csv."
        )
        for table in super().tables(entries, request):
            yield replace(table, notes=(*table.notes, where))

    def page_tables(
        self, entries: Sequence[Entry[Curves]], request: SectionRequest
    ) -> Iterable[Table]:
        """The table without that note; none for noise curves alone that do not end as the
        definition requires."""
        if any(len(entry.record) > 1 or _is_finished(entry.record) for entry in entries):
            return super().tables(entries, request)
        return []

    def figure(self, entries: Sequence[Entry[Curves]], request: SectionRequest) -> Drawing:
        """Accuracy under attacks, noise and linear corruption: a panel for each, a line for each of
        the first eight runs."""
        shown = [(entry.name, entry.record) for entry in entries[:_MOST_MODELS]]
        kinds = [kind for kind in CurveKind if any(kind in model for _, model in shown)]
        styles = {name: line_style(i) for i, (name, _) in enumerate(shown)}

        def draw(ax: Axes, kind: CurveKind, _: PictureSize) -> None:
            _panel(
                ax, kind, [(styles[name], model[kind]) for name, model in shown if kind in model]
            )

        return paneled(
            "Accuracy under attacks, noise and linear corruption",
            _caption(shown, kinds, entries[_MOST_MODELS:]),
            kinds,
            draw,
            wide=2.2,
            high=2.2,
            titles=[_AXES[kind][0] for kind in kinds],
            styles=styles,
        )

    def document(self, entry: Entry[Curves], request: SectionRequest) -> dict[str, Any]:
        """The curves by kind."""
        return {"curves": {kind.value: curve.document() for kind, curve in entry.record.items()}}

    def lines(self, entry: Entry[Curves], request: SectionRequest) -> Iterator[Mapping[str, Any]]:
        """A line for each point of each curve."""
        for kind, curve in entry.record.items():
            columns = (curve.places, curve.errors, curve.lower, curve.upper)
            points = zip(*(column.tolist() for column in columns), strict=True)
            for at, error, lower, upper in points:
                yield {
                    "curve": kind.value,
                    "at": at,
                    "error": error,
                    "lower": lower,
                    "upper": upper,
                    "images": curve.images,
                }


def _is_finished(curves: Curves) -> bool:
    """Whether the noise curve ends as the definition of its summary requires."""
    noise = curves.get(CurveKind.NOISE)
    if noise is None or noise.summary.value is None:
        return False
    return noise.summary.relation is ValueRelation.IS


def text(summary: CurveSummary) -> str:
    """The value with its relation and its interval for the population, open above where the curve
    leaves it open."""
    if summary.estimate is None:
        return numbers.NONE
    interval = numbers.rough_interval(*summary.estimate.ends)
    return f"{summary.relation} {summary.estimate.value:.3g} {interval}".strip()


def _remarks_after(curves: Curves, several: bool) -> list[str]:
    """The remarks, as sentences of their own, or to follow the name of the run."""
    return list(remarks(curves)) if several else [_sentence(text) for text in remarks(curves)]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _notes(curves: Curves) -> Iterator[str]:
    """How to read the summaries."""
    for kind in [kind for kind in CurveKind if kind in curves]:
        better = "higher" if kind in HIGHER_IS_BETTER else "lower"
        yield f"{NAMES[kind]}: {MEANINGS[kind]}; {better} is better."
    yield f"[ ] 95 % {BOOTSTRAP}. Errors are relative to the label."


def remarks(model: Curves) -> Iterator[str]:
    """Remarks on values that the curves of a model leave open."""
    for kind, curve in model.items():
        end = float(curve.places[-1])
        left = 1.0 - float(curve.errors[-1])
        relation = curve.summary.relation
        if curve.summary.why:
            yield f"{NAMES[kind]} is not defined: {curve.summary.why}."
        elif kind is CurveKind.NOISE and relation is ValueRelation.AT_LEAST:
            yield (
                f"the noise curve ends at sigma {end:g} with {100 * (1 - left):.1f}% errors, "
                "not as near random guessing as asked."
            )
        elif kind is CurveKind.LINEAR and relation is not ValueRelation.IS:
            verb = "falls to" if relation is ValueRelation.AT_MOST else "reaches"
            yield f"the accuracy never {verb} 50 %."
        elif relation is ValueRelation.AT_LEAST:
            yield (
                f"{kind} attacks change nothing on {100 * left:.1f}% of the images up to "
                f"{end:g}, and these count as {end:g}."
            )
        # a curve that falls within one step says little about where
        first = _first_step(curve)
        if kind is not CurveKind.LINEAR and first > _COARSE:
            what = "noise" if kind is CurveKind.NOISE else f"{kind} attacks"
            step = (
                f"the first step, {curve.places[1]:g}, takes {100 * first:.0f}% of the "
                "correct images"
            )
            yield f"{what}: {step}; a smaller one would tell more."
    if unlabelled := max(curve.unlabelled for curve in model.values()):
        yield f"{count(unlabelled, 'image')} left out: no label."


def _first_step(curve: ErrorCurve) -> float:
    """The share of the correct images that the first step of a grid takes."""
    errors = curve.errors
    if len(errors) < 2 or errors[0] >= 1:
        return 0.0
    return float((errors[1] - errors[0]) / (1.0 - errors[0]))


# --- the figure

_MOST_MODELS = 8  # as many as there are colours
_AXES = {
    CurveKind.L2: ("attacks in l2", "l2 radius"),
    CurveKind.LINF: ("attacks in linf", "linf radius"),
    CurveKind.NOISE: ("Gaussian noise", "standard deviation"),
    CurveKind.LINEAR: ("linear corruption", "gamma, share of the image left"),
}
# A noise curve is drawn to 1.25 times the place where nine tenths of its rise are reached.
_RISEN = 0.9
_TAIL = 1.25


def _caption(
    shown: Sequence[tuple[str, Curves]], kinds: Sequence[CurveKind], left: Sequence[Entry[Curves]]
) -> Iterator[str]:
    """The sentences of the caption; ``left``: the runs that are not drawn."""
    curves = chain.from_iterable(model.values() for _, model in shown)
    images = {curve.images for curve in curves}
    yield f"Share of {span(images)} images that are classified as labelled."
    if max(images) > 1:
        yield f"Bands: 95 % bootstrap intervals, {LIKE_THESE}, each point alone."
    for kind in kinds:
        summaries = [
            (name if len(shown) > 1 else "", model[kind].summary)
            for name, model in shown
            if kind in model
        ]
        texts = [f"{name} {text(summary)}".lstrip() for name, summary in summaries]
        yield f"{NAMES[kind]}: {'; '.join(texts)}."
    if CurveKind.LINEAR in kinds:
        yield (
            "Dashed: half of the images, which human observers name at gamma of about "
            f"{HUMANS:g} (Jang et al. 2021, other images)."
        )
    tails = [model[CurveKind.NOISE] for _, model in shown if CurveKind.NOISE in model]
    end = max((float(curve.places[-1]) for curve in tails), default=0.0)
    if tails and end > max(float(curve.places[_last(curve)]) for curve in tails):
        yield f"Under noise the curves go on to a standard deviation of {end:g}."
    for name, model in shown:
        for remark in remarks(model):
            yield f"{name}: {remark}" if len(shown) > 1 else _sentence(remark)
    if left:
        yield f"Not shown: {', '.join(entry.name for entry in left)}."


def _panel(ax: Axes, kind: CurveKind, curves: Sequence[tuple[dict[str, Any], ErrorCurve]]) -> None:
    """Draw the curves of one kind."""
    ends = [float(curve.places[_last(curve)]) for _, curve in curves]
    # gamma falls from 1 to the right: the axis runs backwards, to the smallest of any run
    linear = kind is CurveKind.LINEAR
    end = min(ends) if linear else max(*ends, 1e-6)
    for style, curve in curves:
        # the tails of noise curves would squeeze what can be read
        part = curve.places <= end if kind is CurveKind.NOISE else slice(None)
        at = curve.places[part]
        accuracy = 1.0 - curve.errors[part]
        ax.fill_between(
            at,
            1.0 - curve.upper[part],
            1.0 - curve.lower[part],
            color=style["color"],
            alpha=0.16,
            linewidth=0,
            zorder=1.5,
        )
        ax.plot(at, accuracy, zorder=3, clip_on=False, **style)
    ax.set(xlim=(1.0 if linear else 0.0, end), ylim=(0.0, 1.02), xlabel=_AXES[kind][1])
    few_ticks(ax.xaxis)
    percent_scale(ax.yaxis)
    if linear:
        thin: dict[str, Any] = {
            "color": FAINT,
            "linewidth": 0.9,
            "linestyle": (0, (4, 2)),
            "zorder": 1.8,
        }
        ax.axhline(HALF, **thin)
        if end < HUMANS < 1.0:
            ax.axvline(HUMANS, **thin)
            ax.annotate(
                "people",
                (HUMANS, 1.0),
                (-3, -2),
                textcoords="offset points",
                ha="right",
                va="top",
                color=FAINT,
            )


def _last(curve: ErrorCurve) -> int:
    """The last point that must be visible: noise curves have long tails, which begin at nine tenths
    of their rise."""
    last = len(curve.places) - 1
    if curve.kind is not CurveKind.NOISE:
        return last
    risen = curve.errors - curve.errors[0] >= _RISEN * (curve.errors.max() - curve.errors[0])
    return min(math.ceil(_TAIL * int(risen.argmax())) or last, last)
