"""The picture of a sample: the chance that its class stays against the size of the perturbation, from proven to average; run by run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.levels import GAUSSIAN, NONE, NoiseLevel
from robaudit.names import ResultName
from robaudit.quantities import LOG10_P_FAIL, P_ROBUST, RADIUS, TOLERANCE, IntervalKind
from robaudit.report import numbers
from robaudit.report.pictures.flagged import Pixels, sized
from robaudit.report.pictures.page import PictureSize, Sketch, fitted, log_scale, shorter
from robaudit.report.pictures.style import BLUE, CARD, FAINT, GREEN, GREY, GRID, INK, OLIVE, ORANGE, PURPLE, RED, TEAL, quiet
from robaudit.report.sections import Ask, Found
from robaudit.rows import Row
from robaudit.stats.relations import NoiseEntry, Setting, approximate, is_vote, norm_factor, norm_of
from robaudit.stats.spectrum import Band, SampleSpectrum, Spectrum, band_of
from robaudit.store.run import Run
from robaudit.text import class_name, printable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from robaudit.report.gallery import ImageSource

_HIGH, _THUMB, _LANE = 2.6, 1.1, 0.13  # inches of the axes, of the column of images; height of a vote in the unit of the scale
_NOISES = (BLUE, TEAL, PURPLE, OLIVE, GREY)
_MOST_THUMBS, _REACH, _ROOM = 2, 1.6, 4.5  # noisy thumbnails; factor of room at both ends; inches below which there are none
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

    sample: SampleSpectrum
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


def portrait_of(run: Run, sample: SampleSpectrum, source: ImageSource | None = None) -> Portrait:
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


def usual_length(noise: NoiseEntry, level: float, pixels: int) -> float | None:
    """The root mean square of the l2 norm of the noise, before clipping; None for kinds whose noise depends on the image."""
    if noise["kind"] in (GAUSSIAN, "laplace"):
        return level * math.sqrt(pixels)
    if noise["kind"] != "uniform":
        return None
    if noise.get("support") == "sphere":
        return level
    return level * math.sqrt(pixels / (3.0 if noise.get("norm", "linf") == "linf" else pixels + 2.0))


def _title(sample: SampleSpectrum, run: Run) -> str:
    words = f"Image {shortened(printable(sample.id), 40)}: predicted {class_name(sample.predicted, run.class_names, 24)}"
    return words if sample.correct is not False else f"{words}, is {class_name(sample.label, run.class_names, 24)}"


def _l2(rows: Sequence[Row], band: Band, setting: Setting) -> list[Mark]:
    """The l2 radii of the network itself that results of a band imply; a certificate in another norm implies one, too."""
    found = []
    for row in rows:
        norm = norm_of(row)
        if band_of(row) is not band or row.at.level is not None or row.censored or norm is None or row.value <= 0:
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
        if row.quantity == P_ROBUST.name and row.at.level is not None:
            before = chosen.setdefault(row.at, row)
            if approximate(before) and not approximate(row):
                chosen[row.at] = row
    for at, row in chosen.items():
        noise = setting.noises.get(at.noise or NONE)
        size = None if noise is None or setting.pixels is None else usual_length(noise, at.number, setting.pixels)
        if size is not None:
            yield Point(at, size, row.value, row.value if row.lower is None else row.lower, row.value if row.upper is None else row.upper)


def _tolerated(rows: Sequence[Row], setting: Setting) -> Iterator[Tolerated]:
    for row in rows:
        noise, kept = setting.noises.get(row.noise), None if row.search is None else row.search.p
        if row.quantity != TOLERANCE.name or noise is None or kept is None or setting.pixels is None:
            continue
        each = usual_length(noise, 1.0, setting.pixels)
        if each is not None and row.value > 0:
            ends = (row.value if row.lower is None else row.lower, math.inf if row.upper is None else row.upper)
            yield Tolerated(row.noise, kept, each * row.value, each * ends[0], each * ends[1], row.censored)


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
    linf = [row for row in rows if norm_of(row) == math.inf and row.at.level is None and not row.censored and row.value > 0]
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
        and row.at.level is not None
        and ((noise := setting.noises.get(row.noise)) is None or usual_length(noise, 1.0, 1) is None)
    ]
    if unsized:
        yield f"Not drawn: {', '.join(dict.fromkeys(row.noise for row in unsized))}, whose size depends on the pixels."


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


def narrowed(runs: Sequence[Run], ask: Ask) -> Ask:
    """The image named, or the least robust one of the first run, which all runs show."""
    if ask.id:
        return replace(ask, bottom=None, id=ask.id[:1])
    from robaudit.stats.spectrum import spectrum

    return replace(ask, bottom=None, id=(spectrum(runs[0], 1).samples[0].id,))


def sketch(found: Sequence[Found[Spectrum]], _: Ask, images: ImageSource | None = None) -> Sketch:
    """The picture of the first sample of each run, one below the other."""
    shown = [(one.name, portrait_of(one.run, one.record.samples[0], images)) for one in found]
    return Sketch(
        title=shown[0][1].title if len(shown) == 1 else f"Image {shortened(printable(found[0].record.samples[0].id), 40)}",
        caption=" ".join(_caption(shown)),
        height=lambda look: sum(_height(one, look) for _, one in shown),
        draw=lambda body, look: _draw(body, look, shown),
    )


def _caption(shown: Sequence[tuple[str, Portrait]]) -> Iterator[str]:
    yield "Sizes in l2; the size of noise is its root mean square."
    if any(one.attacked is not None and one.exact is None for _, one in shown):
        yield "Grey: neither certified nor attacked."
    if any(one.points for _, one in shown):
        yield "Bars: 95 % intervals of the measurement."
    if any(one.votes for _, one in shown):
        yield "Below: the majority vote under noise, another classifier than the network."
    for name, one in shown:
        for words in one.words:
            yield f"{name}: {words}" if len(shown) > 1 else words


def _height(made: Portrait, look: PictureSize) -> float:
    columns = 2 if look.width > _ROOM else 1
    return _HIGH * (1.2 + _LANE * len(made.votes)) / 1.2 + -(-len(_entries(made)) // columns) * look.line + 0.55


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[tuple[str, Portrait]]) -> None:
    sizes = [size for _, made in shown for size in made.sizes]
    low, high = min(sizes) / _REACH, max(sizes) * _REACH
    widen = math.sqrt(max(1.0, 10.0 * low / high))
    heights = [_height(made, look) for _, made in shown]
    for part, (name, made) in zip(body.subfigures(len(shown), 1, height_ratios=heights, squeeze=False)[:, 0], shown, strict=True):
        part.patch.set_visible(False)
        images = made.images if look.width > _ROOM else ()
        grid = part.add_gridspec(max(1, len(images)), 2 if images else 1, width_ratios=[look.body - _THUMB, _THUMB] if images else [1])
        ax = part.add_subplot(grid[:, 0])
        if len(shown) > 1:
            ax.set_title(fitted(f"{name}: {made.title.partition(': ')[2]}", look.body - 0.6, look.size, bold=True))
        ax.set(xlim=(low / widen, high * widen), ylim=(-0.06 - _LANE * len(made.votes), 1.08))
        log_scale(ax, "x")
        _lanes(ax, made, look)
        ax.set_xlabel("size of the perturbation (l2)")
        _worst_case(ax, made)
        _average(ax, made)
        for i, (words, pixels) in enumerate(images):
            image = part.add_subplot(grid[i, 1])
            image.imshow(pixels, interpolation="none", resample=False)
            image.set_title(fitted(words, _THUMB, look.size), color=FAINT, weight="normal", pad=2, loc="center")
            quiet(image)
        _legend(part, made, look)


def _noise_colours(made: Portrait) -> dict[str, str]:
    labels = dict.fromkeys([*(str(point.at.noise) for point in made.points), *(one.noise for one in made.tolerated)])
    return {label: _NOISES[i % len(_NOISES)] for i, label in enumerate(labels)}


def _entries(made: Portrait) -> list[tuple[dict[str, Any], str]]:
    """The legend: marks and their meaning."""
    found: list[tuple[dict[str, Any], str]] = []
    if made.exact is not None:
        found.append((_bar(INK), f"exact radius {numbers.compact(made.exact.size)}"))
    if made.certified is not None:
        found.append((_bar(GREEN), f"certified {numbers.compact(made.certified.size, -1)} ({_plain(made.certified)})"))
    if made.attacked is not None:
        found.append((_mark("x", RED), f"flip found {numbers.compact(made.attacked.size, 1)} ({_plain(made.attacked)})"))
    if made.random is not None:
        found.append((_mark("^", ORANGE), f"flip in a random direction {numbers.compact(made.random.size, 1)}"))
    colours = _noise_colours(made)
    found += [
        (_mark("o", colours[noise]), f"average under {noise} noise") for noise in dict.fromkeys(str(one.at.noise) for one in made.points)
    ]
    for kept in dict.fromkeys(one.kept for one in made.tolerated):
        first = next(one for one in made.tolerated if one.kept == kept)
        found.append((_mark("D", colours[first.noise], hollow=True), f"noise tolerated with p = {kept:g}"))
    return found


def _legend(part: SubFigure, made: Portrait, look: PictureSize) -> None:
    from matplotlib.lines import Line2D

    columns = 2 if look.width > _ROOM else 1
    styles, words = zip(*_entries(made), strict=True) if _entries(made) else ((), ())
    texts = shorter(words, look.body / columns - 0.6, look.size)
    part.legend([Line2D([], [], **style) for style in styles], texts, loc="outside upper left", ncols=columns, labelspacing=0.25)


def _plain(mark: Mark) -> str:
    return ResultName.parse(mark.name).estimator


def _bar(ink: str) -> dict[str, Any]:
    return {"color": ink, "linewidth": 4.0, "solid_capstyle": "butt"}


def _mark(shape: str, ink: str, *, hollow: bool = False) -> dict[str, Any]:
    face, edge = (CARD if hollow else ink), (2.0 if shape == "x" else 1.1)
    size = {"markersize": 6.5} if shape == "x" else {}
    return {"marker": shape, "linestyle": "none", "markerfacecolor": face, "markeredgecolor": ink, "markeredgewidth": edge, **size}


def _worst_case(ax: Axes, made: Portrait) -> None:
    """1 up to what is proven, 0 from the flip on, and between them what is not known."""
    low, high = ax.get_xlim()
    proven = max((mark.size for mark in (made.certified, made.exact) if mark is not None), default=low)
    for mark, ink in ((made.exact, INK), (made.certified, GREEN)):
        if mark is not None:
            ax.plot([low, mark.size], [1.0, 1.0], zorder=4, **_bar(ink))
    if made.attacked is not None:
        end = made.attacked.size
        ax.fill_between([min(proven, end), end], -0.06, 1.08, color=GRID, alpha=0.6, linewidth=0, zorder=0)
        ax.plot([end, end, high], [1.0, 0.0, 0.0], color=RED, linewidth=1.4, zorder=3)
        ax.plot([end], [0.0], zorder=6, **_mark("x", RED))
    if made.random is not None:
        ax.plot([made.random.size], [0.0], zorder=6, **_mark("^", ORANGE))


def _average(ax: Axes, made: Portrait) -> None:
    low, high = ax.get_xlim()
    for noise, ink in _noise_colours(made).items():
        points = sorted((point for point in made.points if point.at.noise == noise), key=lambda point: point.size)
        ax.plot([point.size for point in points], [point.value for point in points], color=ink, linewidth=1.0, alpha=0.5, zorder=4)
        for point in points:
            ends = [max(0.0, point.lower), min(1.0, point.upper)]
            ax.plot([point.size] * 2, ends, color=ink, linewidth=2.2, alpha=0.7, zorder=5)
        ax.plot([point.size for point in points], [point.value for point in points], zorder=6, **_mark("o", ink))
        for one in (one for one in made.tolerated if one.noise == noise):
            ax.plot([max(low, one.lower), min(high, one.upper)], [one.kept] * 2, color=ink, linewidth=2.2, alpha=0.7, zorder=5)
            ax.plot([one.size], [one.kept], zorder=6, **_mark(">" if one.censored else "D", ink, hollow=True))


def _lanes(ax: Axes, made: Portrait, look: PictureSize) -> None:
    """The scale of the chance, and below it a lane for each vote, with its name on the left."""
    low, high = ax.get_xlim()
    ticks = {0.0: "0", 0.5: "0.5", 1.0: "1"}
    for i, vote in enumerate(made.votes):
        y = -0.02 - _LANE * (i + 1)
        ticks[y] = f"vote, {vote.at}"
        ax.plot([low, high], [y, y], zorder=1, **_bar(GRID))
        if vote.certified:
            ax.plot([low, vote.certified], [y, y], alpha=0.55, zorder=2, **_bar(GREEN))
        if vote.found is not None:
            ax.plot([vote.found], [y], zorder=3, **_mark("x", RED))
        words = [f"certified {numbers.compact(vote.certified, -1)}" if vote.certified else "abstains"] if vote.certified is not None else []
        words += [f"flip found {numbers.compact(vote.found, 1)}"] if vote.found is not None else []
        style: dict[str, Any] = {"ha": "right", "va": "bottom", "color": FAINT, "size": 0.9 * look.size}
        ax.annotate(", ".join(words), (high, y), (-2, 1), textcoords="offset points", **style)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.set_ylabel("p(the class stays)", y=1.0, ha="right")
