"""Scores of radii, of one run or of several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import NothingLeftError, SpecError
from robaudit.methods.radius.scores import (
    MEANINGS,
    RADII,
    Radii,
    Score,
    Scores,
    ScoreValue,
    radii_of,
    score_changes,
    scores_of,
)
from robaudit.numerics.image_intervals import LIKE_THESE
from robaudit.quantities import RADIUS, TOLERANCE
from robaudit.report import numbers
from robaudit.report.differences import (
    BOOTSTRAP_P,
    Paired,
    paired_changes,
)
from robaudit.report.pictures.page import Drawing, PictureSize, cut, few_ticks, paneled
from robaudit.report.pictures.style import BLUE, CARD, FAINT, ORANGE, RED
from robaudit.report.sections import Entry, Section, SectionRequest, by_name
from robaudit.report.summary_section import about
from robaudit.report.typed import PROSE, Beside, Changes, Kind, TypedColumn, TypedTable
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run
from robaudit.settings import ONLY
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_QUANTITIES = {quantity.name: quantity for quantity in (RADIUS, TOLERANCE)}
_INTERVALS = (
    f"95 % interval, {LIKE_THESE}; of r_m as for a mean in the summary, of the others "
    "by percentile bootstrap"
)


class ScoresSection(Section[Scores]):
    """Scores of radii: mean and minimum, relative to how difficult the images are, and on easy
    against hard images."""

    title = "Radius and difficulty"
    place = 30
    words = (
        "The radius r of the nearest change of the prediction, and its growth with the "
        "difficulty g, the logit of the clean score: larger "
        "is easier. Misclassified images count as 0. Ratios to g compare networks with less "
        "dependence on the choice of images."
    )
    uses = Section.uses | {"only"}

    def applies(self, run: Run) -> bool:
        """Whether it has labels and radii."""
        return run.info.clean_accuracy is not None and not set(RADII).isdisjoint(run.quantities)

    def records(self, run: Run, request: SectionRequest) -> list[Scores]:
        """The scores of each result."""
        return [scores_of(radii) for radii in _radii(run, request)]

    def table(self, entry: Entry[Scores], request: SectionRequest) -> TypedTable:
        """A row for each score."""
        radii = entry.record.radii
        scores = entry.record.values
        columns = _COLUMNS if entry.several else (*_COLUMNS, _MEANING)
        rows = []
        for score in Score:
            meaning = () if entry.several else (MEANINGS[score],)
            rows.append((score.value, scores[score], *meaning))
        return TypedTable(
            str(radii.key),
            columns,
            rows,
            keys=[(radii.key, score) for score in Score],
            about=radii.key.document(),
            lines=(about(_QUANTITIES[radii.key.quantity]),),
            facts=(_counts(radii),),
            notes=(f"[ ] {_INTERVALS}.",),
            remarks=tuple(notes(entry.record)),
            # undefined scores are in a remark, with the reason
            shows=lambda row: row[1].value is not None,
            beside=Beside.COLUMNS,
        )

    def changes(self, entries: Sequence[Entry[Scores]], request: SectionRequest) -> Changes:
        """The differences of the scores from the first run's."""

        def differences(base: Run, new: Run) -> Paired[tuple[GroupKey, Score]]:
            of_base = {radii.key: radii for radii in _radii(base, request)}
            of_new = {radii.key: radii for radii in _radii(new, request)}
            paired = {}
            for key in [key for key in of_base if key in of_new]:
                for score, change in score_changes(of_base[key], of_new[key]).items():
                    paired[key, score] = change
            return paired

        return Changes(
            paired_changes(entries, differences),
            tested=True,
            about=lambda key: {**key[0].document(), "score": key[1].value},
            notes=("[ ] of a difference: bootstrap, the same images drawn for both.", BOOTSTRAP_P),
        )

    def figure(self, entries: Sequence[Entry[Scores]], request: SectionRequest) -> Drawing:
        """Radii against the difficulty of the images, with the line of the slope: a panel for each
        of the first nine results and runs."""
        keys = [entry.record.radii.key for entry in entries]
        several = len(by_name(entries)) > 1
        named = []
        # the runs of a result beside each other
        for entry in sorted(entries, key=lambda entry: keys.index(entry.record.radii.key)):
            run = f"{entry.name}: " if several else ""
            named.append((f"{run}{entry.record.radii.key}", entry.record))
        shown = named[:_MOST_PANELS]
        present: set[str] = set()
        for _, scores in shown:
            present.update(mark for mark, _ in _marked(scores.radii))

        return paneled(
            "Radius against difficulty",
            _caption(shown, [title for title, _ in named[_MOST_PANELS:]]),
            [scores for _, scores in shown],
            _panel,
            wide=2.2,
            high=_HIGH if len(shown) > 1 else 2.7,
            titles=[title for title, _ in shown],
            styles={name: style for name, style in _MARKS.items() if name in present},
        )


def _radii(run: Run, request: SectionRequest) -> list[Radii]:
    """The radii of a run, or of its correct images.

    Raises:
        SpecError: radii of misclassified images are requested; they are 0.
        NothingLeftError: every image is misclassified.
    """
    results = radii_of(run, request.estimators, request.levels)
    if request.only is None:
        return results
    if request.only == "wrong":
        raise SpecError(
            ONLY + " wrong",
            "does not apply to the section scores: misclassified images count as 0",
            "use " + ONLY + " correct",
        )
    for radii in results:
        if not radii.correct.any():
            raise NothingLeftError(
                str(run.path),
                f"{radii.key}: every image is misclassified",
                "leave " + ONLY + " correct out",
            )
    return [radii.only_correct() for radii in results]


def text(score: ScoreValue) -> str:
    """The value with its interval for the population: a lower end where censored images leave it
    open above, "~" where they leave it open on both sides.
    """
    if score.population is None or score.measured is None:
        return numbers.NONE
    value = score.population.value
    # [0, 1] is the whole range of a relative variation: censored images leave both sides open
    is_unknown = score.measured.bounds == (0.0, 1.0) and 0.0 < value < 1.0
    mark = numbers.NO_INTERVAL if is_unknown else ""
    if score.at_least:
        mark = ">= "
    return f"{mark}{value:.4g} {numbers.rough_interval(*score.population.ends, 4)}".rstrip()


_COLUMNS = (
    TypedColumn("score"),
    TypedColumn("", Kind(text), head="value [95% interval]", record=ScoreValue),
)
_MEANING = TypedColumn("", PROSE, head="meaning")


def notes(scores: Scores) -> Iterator[str]:
    """Remarks on images that the scores leave out, bounds that they leave open, and scores that are
    not defined."""
    radii = scores.radii
    if radii.upper_bounds:
        yield "Upper bounds: the true radii may be smaller than those found."
    if censored := int(radii.censored.sum()):
        yield (
            f">= {censored:,} of {count(len(radii.ids), 'image')} only known to be beyond "
            f"{radii.cap:.4g}."
        )
    if radii.measured:
        yield (
            "[ ] covers the spread of the values, not the interval of each image; --format "
            "json has the scores at its ends."
        )
    if radii.left_out:
        yield f"{count(radii.left_out, 'correct image')} with g <= 0 left out of all ratios."
    if left := radii.unlabelled + radii.not_finite:
        yield f"{count(left, 'image')} left out: no label or no finite value."
    reasons: dict[str, list[str]] = {}
    for score, value in scores.values.items():
        if value.value is None:
            reasons.setdefault(value.why, []).append(score)
    for why, names in reasons.items():
        yield f"Not defined: {', '.join(names)}: {why}."


def _counts(radii: Radii) -> str:
    """How many images there are, and how many of them are classified correctly."""
    images = len(radii.ids)
    correct = int(radii.correct.sum())
    text = f"{count(images, 'image')}, {correct:,} correct"
    wrong = images - correct
    return f"{text}, {wrong:,} misclassified (radius 0)" if wrong else text


# --- the figure

_MOST_PANELS = 9  # three rows of three
_HIGH = 2.1  # inches of a panel
_MARKS: dict[str, dict[str, Any]] = {
    "correct": {
        "marker": "o",
        "linestyle": "none",
        "markerfacecolor": BLUE,
        "markeredgecolor": CARD,
    },
    "beyond the cap": {
        "marker": "^",
        "linestyle": "none",
        "markerfacecolor": CARD,
        "markeredgecolor": ORANGE,
        "markeredgewidth": 1.0,
    },
    "misclassified": {
        "marker": "x",
        "linestyle": "none",
        "markeredgecolor": RED,
        "markeredgewidth": 1.0,
    },
}


def _caption(shown: Sequence[tuple[str, Scores]], left: Sequence[str]) -> Iterator[str]:
    yield (
        "g: the logit of the clean score of the predicted class, the larger the easier; higher "
        "radii are better."
    )
    for name, scores in shown:
        radii = scores.radii
        slope = scores.values[Score.SLOPE]
        fit = scores.values[Score.R_SQUARED]
        facts = [count(len(radii.ids), "image")]
        if slope.value is not None:
            facts.append(f"slope {text(slope)}")
            if fit.value is not None:
                facts.append(f"R\N{SUPERSCRIPT TWO} {fit.value:.3f}")
        if censored := int(radii.censored.sum()):
            facts.append(f"{censored:,} censored at {radii.cap:.3g}")
        if radii.left_out:
            facts.append(f"{radii.left_out:,} correct with g <= 0 not in the fit")
        bounds = "; upper bounds" if radii.upper_bounds else ""
        yield f"{name}: {', '.join(facts)}{bounds}."
    if any(scores.values[Score.SLOPE].value is not None for _, scores in shown):
        yield "Line: r = slope g through the origin, of the correct images with g > 0."
    if any(not scores.radii.correct.all() for _, scores in shown):
        yield (
            "Crosses: misclassified images, at the radius of the predicted class; scores count "
            "them as 0."
        )
    if any(scores.radii.without_difficulty for _, scores in shown):
        yield "Images whose difficulty is unknown are not drawn."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _marked(radii: Radii) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The marks that are in use, and a mask of their images."""
    known = ~np.isnan(radii.g)
    masks = (radii.correct & ~radii.censored, radii.censored, ~radii.correct)
    for name, marked in zip(_MARKS, masks, strict=True):
        if (marked & known).any():
            yield name, marked & known


def _panel(ax: Axes, scores: Scores, size: PictureSize) -> None:
    """Draw the radii of a result against the difficulty, and the line of the slope."""
    radii = scores.radii
    slope = scores.values[Score.SLOPE].value
    for name, at in _marked(radii):
        ax.plot(radii.g[at], radii.values[at], alpha=0.85, clip_on=False, zorder=3, **_MARKS[name])
    known = ~np.isnan(radii.g)
    left = min(0.0, *ax.get_xlim())
    right = max(0.0, *ax.get_xlim())
    # 1e-12: radii may all be 0, and a panel needs some height
    top = 1.06 * max(float(radii.values[known].max(initial=0.0)), 1e-12)
    if slope is not None:
        # the line ends at the top or at the right of the panel
        end = min(right, top / slope) if slope > 0 else right
        ax.plot([0.0, end], [0.0, slope * end], color=FAINT, linewidth=1.3, zorder=2)
    ax.set(xlim=(left, right), ylim=(0.0, top))
    few_ticks(ax.xaxis, 4)
    few_ticks(ax.yaxis, 4)
    ax.set_xlabel("difficulty g (right: easier)")
    label = f"{radii.key.norm} radius" if radii.key.norm else radii.key.quantity
    ax.set_ylabel(cut(label, size.letters(_HIGH - 0.5)))
