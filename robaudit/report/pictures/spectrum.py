"""The picture of one image: the chance that its class stays against the size of the perturbation, from proven to average."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.levels import NoiseLevel
from robaudit.names import KEPT_LEVEL, ResultName
from robaudit.quantities import LOG10_P_FAIL, P_ROBUST, RADIUS, TOLERANCE, IntervalKind
from robaudit.report import numbers
from robaudit.report.pictures.flagged import Pixels, image_in, sized
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put, put_level
from robaudit.report.pictures.style import (
    BLUE,
    CARD,
    FAINT,
    GREEN,
    GRID,
    INK,
    OLIVE,
    ORANGE,
    RED,
    TEAL,
    log_ticks,
    number_text,
    number_ticks,
)
from robaudit.rows import Row
from robaudit.stats.claims import Setting, approximate, is_vote, norm_of
from robaudit.stats.relations import norm_factor, usual_length
from robaudit.stats.spectrum import Band, Sample, band_of
from robaudit.store.run import Run
from robaudit.text import class_name, printable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robaudit.report.gallery import ImageSource

_HEIGHT, _THUMB, _GAP, _LEFT = 2.6, 1.15, 0.2, 0.5  # inches: of the axes, a thumbnail, between parts, left of the axes
_NOISES = (BLUE, TEAL, "#a55cc4", OLIVE, "#6f8794")
_MOST_THUMBS, _REACH = 2, 1.6  # noisy thumbnails; factor of room at both ends
_RANDOM = "radius_random"
_SIGNS = {Band.FOUND: "<= ", Band.CERTIFIED: ">= ", Band.EXACT: ""}
_AWAY = {Band.FOUND: 1, Band.CERTIFIED: -1}  # how bounds are rounded


@dataclass(frozen=True, slots=True)
class Point:
    """The probability that noise of a size leaves the class.

    Attributes:
        at: the noise level.
        size: usual l2 norm.
        value, lower, upper: with its interval, where there is one.
    """

    at: NoiseLevel
    size: float
    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Tolerated:
    """The size of the noise that leaves the class with a given probability; an end is infinite where it is open."""

    noise: str
    kept: float
    size: float
    lower: float
    upper: float
    censored: bool


@dataclass(frozen=True, slots=True)
class Vote:
    """The majority vote under a noise level: its certified l2 radius (0: it abstains, None: unknown) and the nearest flip found."""

    at: NoiseLevel
    certified: float | None
    found: float | None


@dataclass(frozen=True, slots=True)
class Mark:
    """An l2 radius of the network and the result that states it."""

    size: float
    name: str


@dataclass(frozen=True, slots=True)
class Portrait:
    """What is drawn of an image.

    Attributes:
        sample: the image.
        title: of the picture.
        certified, exact, attacked, random: l2 radii of the network; None where there is none.
        points: averages, by noise and level.
        tolerated: tolerances.
        votes: other classifiers.
        images: captions with pixels.
        words: further sentences of the caption.
    """

    sample: Sample
    title: str
    certified: Mark | None
    exact: Mark | None
    attacked: Mark | None
    random: Mark | None
    points: tuple[Point, ...]
    tolerated: tuple[Tolerated, ...]
    votes: tuple[Vote, ...]
    images: tuple[tuple[str, Pixels], ...]
    words: tuple[str, ...]

    @property
    def sizes(self) -> list[float]:
        """Everything that has a place on the scale."""
        marks = [mark.size for mark in (self.certified, self.exact, self.attacked, self.random) if mark is not None]
        votes = [size for vote in self.votes for size in (vote.certified, vote.found) if size]
        ends = [end for one in self.tolerated for end in (one.size, one.lower, one.upper) if 0.0 < end < math.inf]
        return [size for size in (*marks, *votes, *ends, *(point.size for point in self.points)) if size > 0.0]


def portrait_of(run: Run, sample: Sample, source: ImageSource | None = None) -> Portrait:
    """The picture of an image, with its pixels where the data set of the run is in its place.

    Raises:
        NothingLeftError: none of its results has a size.
    """
    setting = Setting.of(run.info)
    rows = [row for row in sample.rows.values() if math.isfinite(row.value)]
    points = tuple(_points(rows, setting))
    made = Portrait(
        sample=sample,
        title=_title(sample, run),
        certified=_best(_l2(rows, Band.CERTIFIED, setting), max),
        exact=_best(_l2(rows, Band.EXACT, setting), max),
        attacked=_best([mark for mark in _l2(rows, Band.FOUND, setting) if not mark.name.startswith(_RANDOM)], min),
        random=_best([mark for mark in _l2(rows, Band.FOUND, setting) if mark.name.startswith(_RANDOM)], min),
        points=points,
        tolerated=tuple(_tolerated(rows, setting)),
        votes=tuple(_votes(rows)),
        images=(),
        words=tuple(_words(rows, setting)),
    )
    if not made.sizes:
        where, remedy = f"{run.path}, sample {sample.id}", "add mc, radius_attack or certified_radius: configs/spectrum.yaml has all"
        raise NothingLeftError(where, "none of its results has a size to draw", remedy)
    return _with_images(made, run, source)


def _title(sample: Sample, run: Run) -> str:
    words = f"Image {shortened(printable(sample.id), 40)}: predicted {class_name(sample.predicted, run.class_names, 24)}"
    return words if sample.correct is not False else f"{words}, is {class_name(sample.label, run.class_names, 24)}"


def _l2(rows: Sequence[Row], band: Band, setting: Setting) -> list[Mark]:
    """The l2 radii of the network itself that results of a band imply; a certificate in another norm implies one, too."""
    found = []
    for row in rows:
        norm = norm_of(row)
        if band_of(row) is not band or not row.at.levelless or row.censored or norm is None or row.value <= 0:
            continue
        factor = norm_factor(norm, 2.0, setting.pixels) if band is Band.CERTIFIED else 1.0 if norm == 2.0 else None
        if factor is not None and row.certified_class in (None, row.predicted):
            found.append(Mark(row.value / factor, row.estimator))
    return found


def _best(marks: Sequence[Mark], choose: Any) -> Mark | None:
    return choose(marks, key=lambda mark: mark.size) if marks else None


def _points(rows: Sequence[Row], setting: Setting) -> Iterator[Point]:
    """One result for each noise level: the first whose interval covers everything, else the first."""
    chosen: dict[NoiseLevel, Row] = {}
    for row in rows:
        if row.quantity == P_ROBUST.name and not row.at.levelless:
            before = chosen.setdefault(row.at, row)
            if approximate(before) and not approximate(row):
                chosen[row.at] = row
    for at, row in chosen.items():
        noise = setting.noises.get(at.noise)
        size = None if noise is None or setting.pixels is None else usual_length(noise, at.level, setting.pixels)
        if size is not None:
            yield Point(at, size, row.value, row.value if row.lower is None else row.lower, row.value if row.upper is None else row.upper)


def _tolerated(rows: Sequence[Row], setting: Setting) -> Iterator[Tolerated]:
    for row in rows:
        noise, kept = setting.noises.get(row.at.noise), (row.details or {}).get(KEPT_LEVEL)
        if row.quantity != TOLERANCE.name or noise is None or kept is None or setting.pixels is None:
            continue
        each = usual_length(noise, 1.0, setting.pixels)
        if each is not None and row.value > 0:
            ends = (row.value if row.lower is None else row.lower, math.inf if row.upper is None else row.upper)
            yield Tolerated(row.at.noise, kept, each * row.value, each * ends[0], each * ends[1], row.censored)


def _votes(rows: Sequence[Row]) -> Iterator[Vote]:
    """Certificates of a vote in l2, and flips of it."""
    by_level: dict[NoiseLevel, list[Row]] = {}
    for row in rows:
        if band_of(row) is Band.SMOOTHED and norm_of(row) == 2.0:
            by_level.setdefault(row.at, []).append(row)
    for at, some in by_level.items():
        certified = [row.value for row in some if is_vote(row)]
        found = [row.value for row in some if row.quantity == RADIUS.name and not row.censored]
        if certified or found:
            yield Vote(at, max(certified, default=None), min(found, default=None))


def _words(rows: Sequence[Row], setting: Setting) -> Iterator[str]:
    """What has no place in the picture."""
    linf = [row for row in rows if norm_of(row) == math.inf and row.at.levelless and not row.censored and row.value > 0]
    said = [
        f"{ResultName.parse(row.estimator).estimator} {_SIGNS[band]}{numbers.compact(row.value, _AWAY.get(band, 0))}"
        for row in linf
        if (band := band_of(row)) in _SIGNS
    ]
    if said:
        yield f"Radii in linf: {', '.join(said)}."
    rare = [row for row in rows if row.quantity == LOG10_P_FAIL.name]
    if rare:
        bounds = ("<= " if row.interval.kind is IntervalKind.UPPER_BOUND else "" for row in rare)
        said = [f"{sign}{numbers.compact(row.value)} at {row.at}" for sign, row in zip(bounds, rare, strict=True)]
        yield f"log10 p_fail: {', '.join(said)}."
    unsized = [
        row
        for row in rows
        if row.quantity == P_ROBUST.name
        and not row.at.levelless
        and ((noise := setting.noises.get(row.at.noise)) is None or usual_length(noise, 1.0, 1) is None)
    ]
    if unsized:
        yield f"Not drawn: {', '.join(dict.fromkeys(row.at.noise for row in unsized))}, whose size depends on the pixels."


def _with_images(made: Portrait, run: Run, images_from: ImageSource | None) -> Portrait:
    """The same with the clean image and noisy ones, if the data set can be opened."""
    from robaudit.report.gallery import RunImages

    levels = [point.at for point in made.points if point.at.noise == made.points[0].at.noise]
    shown = levels if len(levels) <= _MOST_THUMBS else [levels[0], levels[-1]]
    try:
        source = RunImages(run, [made.sample.id], images_from)
        clean = source.clean(made.sample.id)
        images = [("clean", sized(clean)), *((str(at), sized(source.noisy(made.sample.id, clean, at))) for at in shown)]
    except RobauditError:
        return replace(made, words=(*made.words, "The images are not shown: their data set cannot be opened, or holds others."))
    return replace(made, images=tuple(images))


# --- drawing


def sketch(made: Portrait) -> Sketch:
    """The picture, still to be drawn."""
    return Sketch(
        title=made.title,
        caption=_caption(made),
        height=lambda look: _above(made, look) + _HEIGHT + _under(look) + len(made.votes) * _lane(look),
        draw=lambda figure, box, look: _draw(figure, box, look, made),
        narrowest=4.5,
    )


def _caption(made: Portrait) -> str:
    words = ["Sizes in l2; that of noise is its root mean square."]
    if made.attacked is not None and made.exact is None:
        words.append("Grey: neither certified nor attacked.")
    if made.points:
        words.append("Bars: 95 % intervals of the measurement.")
    if made.votes:
        words.append("Below: the majority vote under noise, another classifier than the network.")
    return " ".join((*words, *made.words))


def _noise_colours(made: Portrait) -> dict[str, str]:
    labels = dict.fromkeys([*(point.at.noise for point in made.points), *(one.noise for one in made.tolerated)])
    return {label: _NOISES[i % len(_NOISES)] for i, label in enumerate(labels)}


def _entries(made: Portrait) -> list[tuple[dict[str, Any], str]]:
    """The legend: marks and their meaning."""
    found: list[tuple[dict[str, Any], str]] = []
    if made.exact is not None:
        found.append(({"color": INK, "linewidth": 4.0, "marker": ""}, f"exact radius {numbers.compact(made.exact.size)}"))
    if made.certified is not None:
        found.append(
            (
                {"color": GREEN, "linewidth": 4.0, "marker": ""},
                f"certified {numbers.compact(made.certified.size, -1)} ({_plain(made.certified)})",
            )
        )
    if made.attacked is not None:
        found.append((_cross(RED), f"flip found {numbers.compact(made.attacked.size, 1)} ({_plain(made.attacked)})"))
    if made.random is not None:
        found.append((_mark("^", ORANGE), f"flip in a random direction {numbers.compact(made.random.size, 1)}"))
    colours = _noise_colours(made)
    for noise in dict.fromkeys(point.at.noise for point in made.points):
        found.append((_mark("o", colours[noise]), f"average under {noise} noise"))
    for kept in dict.fromkeys(one.kept for one in made.tolerated):
        first = next(one for one in made.tolerated if one.kept == kept)
        found.append((_mark("D", colours[first.noise], hollow=True), f"noise tolerated with p = {kept:g}"))
    return found


def _plain(mark: Mark) -> str:
    return ResultName.parse(mark.name).estimator


def _mark(shape: str, ink: str, *, hollow: bool = False) -> dict[str, Any]:
    face = CARD if hollow else ink
    return {
        "marker": shape,
        "markersize": 5.5,
        "linestyle": "none",
        "markerfacecolor": face,
        "markeredgecolor": ink,
        "markeredgewidth": 1.1,
    }


def _cross(ink: str) -> dict[str, Any]:
    return {"marker": "x", "markersize": 7.0, "linestyle": "none", "markeredgecolor": ink, "markeredgewidth": 2.0}


def _places(made: Portrait, look: Look) -> list[list[tuple[float, dict[str, Any], str]]]:
    """The legend in lines: place, mark and words."""
    lines: list[list[tuple[float, dict[str, Any], str]]] = [[]]
    x = 0.0
    for style, meaning in _entries(made):
        words = fitted(meaning, look.body - 0.4, look.size)
        width = 0.3 + measured(words, look.size) + _GAP
        if x and x + width > look.body:
            lines.append([])
            x = 0.0
        lines[-1].append((x, style, words))
        x += width
    return lines


def _above(made: Portrait, look: Look) -> float:
    return len(_places(made, look)) * look.line + 0.12


def _under(look: Look) -> float:
    """Ticks and the name of the scale."""
    return 2 * look.line + 0.16


def _lane(look: Look) -> float:
    return look.line + 0.2


def _draw(figure: Figure, box: Box, look: Look, made: Portrait) -> None:
    above = _above(made, look)
    _legend(figure, Box(box.x, box.y + box.height - above, box.width, above), look, made)
    right = _THUMB + _GAP if made.images else 0.0
    lanes = len(made.votes) * _lane(look)
    main = Box(box.x + _LEFT, box.y + lanes + _under(look), box.width - _LEFT - right - 0.06, _HEIGHT)
    low, high = min(made.sizes) / _REACH, max(made.sizes) * _REACH
    if high / low < 10.0:
        low, high = low / math.sqrt(10.0 * low / high), high * math.sqrt(10.0 * low / high)
    ax = axes(figure, main, look)
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(-0.06, 1.08)
    number_ticks(ax.yaxis, [0.0, 0.5, 1.0])
    ticks = log_ticks(low, high, max(2, int(main.width / 0.6)))
    number_ticks(ax.xaxis, ticks, [number_text(tick) for tick in ticks])
    ax.set_ylabel(fitted("p(the class stays)", _HEIGHT, look.size), color=FAINT, size=look.size, labelpad=3)
    ax.set_xlabel(fitted("size of the perturbation (l2)", main.width, look.size), color=FAINT, size=look.size, labelpad=3)
    _worst_case(ax, made, low)
    _average(ax, made)
    for i, vote in enumerate(made.votes):
        _vote(figure, Box(main.x, box.y + lanes - (i + 1) * _lane(look), main.width, _lane(look)), look, vote, (low, high))
    _thumbnails(figure, Box(box.x + box.width - _THUMB, main.y, _THUMB, _HEIGHT), look, made)


def _legend(figure: Figure, box: Box, look: Look, made: Portrait) -> None:
    ax = axes(figure, box, look)
    ax.set_axis_off()
    ax.set_xlim(0, box.width)
    ax.set_ylim(0, box.height)
    for i, line in enumerate(_places(made, look)):
        y = box.height - (i + 0.5) * look.line
        for x, style, words in line:
            ax.plot([x + 0.04, x + 0.2] if style["marker"] == "" else [x + 0.12], [y] * (2 if style["marker"] == "" else 1), **style)
            put_level(figure, box.x + x + 0.28, box.y + y, words, size=look.size)


def _worst_case(ax: Axes, made: Portrait, low: float) -> None:
    """1 up to what is proven, 0 from the flip on, and between them what is not known."""
    proven = max((mark.size for mark in (made.certified, made.exact) if mark is not None), default=None)
    for mark, ink in ((made.exact, INK), (made.certified, GREEN)):
        if mark is not None:
            ax.plot([low, mark.size], [1.0, 1.0], color=ink, linewidth=4.0, solid_capstyle="butt", zorder=4)
    if made.attacked is not None:
        start = low if proven is None else min(proven, made.attacked.size)
        ax.axvspan(start, made.attacked.size, ymin=0.0, ymax=1.0, color=GRID, alpha=0.6, linewidth=0, zorder=0)
        ax.plot([made.attacked.size] * 2, [0.0, 1.0], color=RED, linewidth=1.4, zorder=3)
        ax.plot([made.attacked.size, ax.get_xlim()[1]], [0.0, 0.0], color=RED, linewidth=1.4, zorder=3)
        ax.plot([made.attacked.size], [0.0], zorder=6, clip_on=False, **_cross(RED))
    if made.random is not None:
        ax.plot([made.random.size], [0.0], zorder=6, clip_on=False, **_mark("^", ORANGE))


def _average(ax: Axes, made: Portrait) -> None:
    colours = _noise_colours(made)
    for noise, ink in colours.items():
        points = sorted((point for point in made.points if point.at.noise == noise), key=lambda point: point.size)
        ax.plot([point.size for point in points], [point.value for point in points], color=ink, linewidth=1.0, alpha=0.5, zorder=4)
        for point in points:
            ax.plot([point.size] * 2, [max(0.0, point.lower), min(1.0, point.upper)], color=ink, linewidth=2.2, alpha=0.7, zorder=5)
            ax.plot([point.size], [point.value], zorder=6, **_mark("o", ink))
    for one in made.tolerated:
        low, high = ax.get_xlim()
        ax.plot([max(low, one.lower), min(high, one.upper)], [one.kept] * 2, color=colours[one.noise], linewidth=2.2, alpha=0.7, zorder=5)
        ax.plot([one.size], [one.kept], zorder=6, **_mark(">" if one.censored else "D", colours[one.noise], hollow=True))


def _vote(figure: Figure, box: Box, look: Look, vote: Vote, reach: tuple[float, float]) -> None:
    ax = axes(figure, Box(box.x, box.y, box.width, box.height - look.line), look)
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xscale("log")
    ax.set_xlim(*reach)
    ax.set_ylim(0, 1)
    number_ticks(ax.xaxis, [])
    number_ticks(ax.yaxis, [])
    ax.plot(reach, [0.5, 0.5], color=GRID, linewidth=4.0, solid_capstyle="butt", zorder=1)
    words: list[str] = []
    if vote.certified is not None:
        words.append(f"certified {numbers.compact(vote.certified, -1)}" if vote.certified > 0 else "abstains")
        if vote.certified > 0:
            ax.plot([reach[0], vote.certified], [0.5, 0.5], color=GREEN, linewidth=4.0, solid_capstyle="butt", alpha=0.55, zorder=2)
    if vote.found is not None:
        words.append(f"flip found {numbers.compact(vote.found, 1)}")
        ax.plot([vote.found], [0.5], zorder=3, clip_on=False, **_cross(RED))
    put_level(
        figure,
        box.x,
        box.y + box.height - look.line / 2,
        fitted(f"vote at {vote.at}: {', '.join(words)}", look.body - _LEFT, look.size),
        size=look.size,
        color=FAINT,
    )


def _thumbnails(figure: Figure, box: Box, look: Look, made: Portrait) -> None:
    """The clean image above its noisy copies."""
    if not made.images:
        return
    each = box.height / len(made.images)
    side = min(_THUMB, each - look.line - 0.05)
    for i, (words, pixels) in enumerate(made.images):
        top = box.y + box.height - i * each
        image_in(figure, Box(box.x + (_THUMB - side) / 2, top - side, side, side), pixels, look)
        text = fitted(words, _THUMB, look.size)
        put(figure, box.x + (_THUMB - measured(text, look.size)) / 2, top - side - 0.03, text, size=look.size, va="top", color=FAINT)
