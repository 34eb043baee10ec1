"""All results of an image: of several images side by side, and of one with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from robaudit.errors import NothingLeftError, SpecError
from robaudit.levels import GAUSSIAN, NoiseLevel
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED, LOG10_P_FAIL, P_ROBUST, RADIUS, TOLERANCE
from robaudit.report import numbers
from robaudit.report.pictures.page import PictureSize, Sketch, fitted, log_scale, shorter, stacked
from robaudit.report.pictures.style import BLUE, CARD, FAINT, GREEN, GREY, GRID, INK, OLIVE, ORANGE, PURPLE, RED, TEAL
from robaudit.report.sections import Ask, Entry, Section
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.rows import Row
from robaudit.stats.relations import NoiseEntry, Setting, approximate, is_vote, norm_factor, norm_of
from robaudit.stats.spectrum import HEADS, Band, Line, SampleSpectrum, Spectrum, band_of, spectrum
from robaudit.store.run import Run
from robaudit.text import Names, class_name, count, known_name, printable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure


ACROSS = 12
"""The most images that stand side by side."""
_FEW = 6  # by default
_CELL, _LONGEST = 9, 27  # characters of a class, and of an id
_NOTHING = "abstains"
_MARGIN = "margin of the logits"


class SampleSection(Section[Spectrum]):
    """All results of the least robust images side by side, from the average over noise to what is proven; or of the images named."""

    title = "All results by image"
    uses = frozenset({"id", "bottom"})
    on_page = False

    def records(self, run: Run, ask: Ask) -> list[Spectrum]:
        """The images, together.

        Raises:
            SpecError: both ids and a number of images are given.
        """
        if ask.id and ask.bottom is not None:
            raise SpecError("--bottom", "counts the least robust images, and --id names images", "leave one of them out")
        return [spectrum(run, ask.bottom, ask.id)]

    def tables(self, entries: Sequence[Entry[Spectrum]], ask: Ask) -> Iterator[Table]:
        """Images in columns; or a table for each image named."""
        for entry in entries:
            names, most = entry.run.class_names, min(ACROSS, ask.bottom or _FEW)
            tables = (
                [_of_one(entry.record, sample, names) for sample in entry.record.samples]
                if ask.id
                else [_side_by_side(entry.record, entry.record.samples[:most], names)]
            )
            yield from (replace(table, heading=f"{entry.name}: {table.heading}") if len(entries) > 1 else table for table in tables)

    def narrowed(self, runs: Sequence[Run], ask: Ask) -> Ask:
        """Narrow to the named image, or to the first run's least robust image, for all runs."""
        return replace(ask, bottom=None, id=ask.id[:1] or (spectrum(runs[0], 1).samples[0].id,))

    def figure(self, entries: Sequence[Entry[Spectrum]], ask: Ask) -> Sketch:
        """The probability that the class of an image stays, against the size of the perturbation, from proven to average; run by run."""
        shown = [(entry.name, portrait_of(entry.run, entry.record.samples[0])) for entry in entries]
        return Sketch(
            title=shown[0][1].title if len(shown) == 1 else f"Image {shortened(printable(entries[0].record.samples[0].id), 40)}",
            caption=" ".join(_caption(shown)),
            height=lambda look: sum(_height(portrait, look) for _, portrait in shown),
            draw=lambda body, look: _draw(body, look, shown),
        )

    def lines(self, entry: Entry[Spectrum], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each image, three columns for each result."""
        names = entry.run.class_names
        for sample in entry.record.samples:
            yield {
                "sample_id": sample.id,
                "label": sample.label,
                "label_name": known_name(sample.label, names),
                "predicted": sample.predicted,
                "predicted_name": known_name(sample.predicted, names),
                "correct": sample.correct,
                "margin": sample.margin,
                "difficulty": sample.difficulty,
                **{
                    f"{line.key}{part}": None if (row := sample.rows.get(line.key)) is None else getattr(row, part.strip() or "value")
                    for line in entry.record.lines
                    for part in ("", " lower", " upper")
                },
            }


def _side_by_side(results: Spectrum, samples: Sequence[SampleSpectrum], names: Names | None) -> Table:
    lines = [line for line in results.lines if any(line.key in sample.rows for sample in samples)]
    rows: list[tuple[Cell, ...]] = [
        cells(("label", *(class_name(sample.label, names, _CELL) for sample in samples))),
        cells(("predicted", *(class_name(sample.predicted, names, _CELL) for sample in samples))),
    ]
    if any(sample.margin is not None for sample in samples):
        rows.append(cells((_MARGIN, *(numbers.NONE if sample.margin is None else f"{sample.margin:.3f}" for sample in samples))))
    band: Band | None = None
    for line in lines:
        if line.band != band and line.band is not Band.CLEAN:
            rows.append(cells((HEADS[line.band], *("" for _ in samples)), "strong"))
        band = line.band
        rows.append(cells((_name(line), *(short_text(sample.rows.get(line.key), line) for sample in samples))))
    ids = (shortened(printable(sample.id), _LONGEST) for sample in samples)
    heads = (Column("sample"), *(Column(text, number=True) for text in ids))
    ranked = results.ranked_by
    order = "lowest" if ranked.quantity.higher_is_better else "highest"
    return Table(
        "All results by image",
        heads,
        tuple(rows),
        lines=(f"{count(results.images, 'image')}; shown: {len(samples)}, the {order} {ranked.key} first",),
        notes=(
            "~ no interval; <= an upper bound; >= a lower bound; > only known to be larger; abstains: nothing is certified.",
            "--id ID has one image with its intervals, --format csv all images.",
        ),
    )


def _name(line: Line) -> str:
    """The result, and its scale where that is not plain."""
    return f" {line.key}{', log10 of p' if line.quantity.name == LOG10_P_FAIL.name else ''}"


def _of_one(results: Spectrum, sample: SampleSpectrum, names: Names | None) -> Table:
    rows, band = [], Band.CLEAN
    for line in results.lines:
        row = sample.rows.get(line.key)
        if row is None:
            continue
        if line.band != band:
            rows.append(cells((HEADS[line.band], "", "", ""), "strong"))
        band = line.band
        texts = (_name(line), value_text(row, line), class_name(row.flips_to, names, _CELL), row.note)
        rows.append(cells(texts))
    about = [f"label {class_name(sample.label, names)}", f"predicted {class_name(sample.predicted, names)}"]
    about += [] if sample.margin is None else [f"margin of the logits {sample.margin:.4g}"]
    about += [] if sample.difficulty is None else [f"difficulty {sample.difficulty:.4g}"]
    heads = (Column("result"), Column("value [95% interval]", number=True), Column("flips to"), Column("note", wrap=True))
    return Table(f"Sample {printable(sample.id)}", heads, tuple(rows), lines=(", ".join(about),))


def value_text(row: Row, line: Line) -> str:
    """A value with its interval: a bound where it is one."""
    low, high = line.quantity.low, line.quantity.high
    if not math.isfinite(row.value):
        return numbers.NONE
    if row.censored:
        return f"> {numbers.plain(row.value, low, high)}"
    if row.quantity == CERTIFIED.name and row.value <= 0.0:
        return _NOTHING
    return numbers.with_interval(row.value, row.lower, row.upper, low, high)


def short_text(row: Row | None, line: Line) -> str:
    """A value in eight characters: three digits, or as many as a probability near 1 needs; the end of a range as a bound."""
    if row is None or not math.isfinite(row.value):
        return numbers.NONE
    if row.quantity == CERTIFIED.name and row.value <= 0.0 and not row.censored:
        return _NOTHING
    mark, value = _bound(row, line)
    text = numbers.compact(value, {"<=": 1, ">=": -1}.get(mark, 0))
    implied = {Band.FOUND: "<=", Band.CERTIFIED: ">="}.get(line.band)  # by the heading of the band
    return text if mark == implied else mark + text if mark in ("", "~") else f"{mark} {text}"


def _bound(row: Row, line: Line) -> tuple[str, float]:
    """What is known of a value, and the number that says it."""
    lower, upper = row.lower, row.upper
    if row.censored:
        return ">", row.value
    if lower is None and upper is None:
        return "~", row.value
    if upper is None or math.isinf(upper) or (lower is not None and lower < row.value >= line.quantity.high):
        return ">=", row.value if lower is None else lower
    if (
        lower is None
        or math.isinf(lower)
        or (lower <= line.quantity.low and (row.value <= line.quantity.low < upper or row.value == upper))
    ):
        return ("<=", upper) if lower != upper else ("", row.value)
    return "", row.value


# --- the figure

_HIGH, _LANE = 2.6, 0.13  # inches of the axes; height of a vote in the unit of the scale
_NOISES = (BLUE, TEAL, PURPLE, OLIVE, GREY)
_REACH, _ROOM = 1.6, 4.5  # factor of room at both ends; inches from which the legend has two columns
_RANDOM = "radius_random"
_MARKS = {Band.CERTIFIED: "certified", Band.EXACT: "exact", Band.FOUND: "attacked"}


class Vote(NamedTuple):
    """The majority vote under a noise level: its certified l2 radius (0: it abstains, None: unknown) and the nearest flip found."""

    at: NoiseLevel
    certified: float | None
    flip: float | None


@dataclass(frozen=True, slots=True)
class Portrait:
    """What is drawn of an image.

    Attributes:
        title: of the picture.
        marks: l2 radii of the network, and the result that states each: certified, exact, attacked, or of a flip in a random direction.
        points: the usual l2 norm of a noise, and the row with the probability that it leaves the class unchanged.
        tolerated: l2 norm of noise of level 1, a probability, and the row with the noise level that leaves the class with that probability.
        votes: majority votes, which are other classifiers.
        words: further sentences of the caption.
    """

    title: str
    marks: Mapping[str, tuple[float, str]]
    points: Sequence[tuple[float, Row]]
    tolerated: Sequence[tuple[float, float, Row]]
    votes: Sequence[Vote]
    words: tuple[str, ...]

    @property
    def sizes(self) -> list[float]:
        """All sizes that are drawn on the scale."""
        votes = [size for vote in self.votes for size in (vote.certified, vote.flip) if size]
        ends = [each * end for each, _, row in self.tolerated for end in (row.value, *_ends(row)) if 0.0 < end < math.inf]
        sizes = (*(size for size, _ in self.marks.values()), *votes, *ends, *(size for size, _ in self.points))
        return [size for size in sizes if size > 0.0]


def portrait_of(run: Run, sample: SampleSpectrum) -> Portrait:
    """The picture of an image.

    Raises:
        NothingLeftError: none of its results has a size.
    """
    setting = Setting.of(run.info)
    rows = [row for row in sample.rows.values() if math.isfinite(row.value)]
    portrait = Portrait(
        title=_title(sample, run),
        marks=dict(_marks(rows, setting)),
        points=list(_points(rows, setting)),
        tolerated=list(_tolerated(rows, setting)),
        votes=list(_votes(rows)),
        words=tuple(_words(rows, setting)),
    )
    if not portrait.sizes:
        where, remedy = f"{run.path}, sample {sample.id}", "add mc, radius_attack or certified_radius: configs/spectrum.yaml has all"
        raise NothingLeftError(where, "none of its results has a size to draw", remedy)
    return portrait


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


def _marks(rows: Sequence[Row], setting: Setting) -> Iterator[tuple[str, tuple[float, str]]]:
    """The best l2 radius of the network of each kind, and its result; a certificate in another norm implies one, too."""
    radii: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        norm, band = norm_of(row), band_of(row)
        if band not in _MARKS or row.at.level is not None or row.censored or norm is None or row.value <= 0:
            continue
        factor = norm_factor(norm, 2.0, setting.pixels) if band is Band.CERTIFIED else 1.0 if norm == 2.0 else None
        if factor is not None and row.certified_class in (None, row.predicted):
            kind = "random" if band is Band.FOUND and row.estimator.startswith(_RANDOM) else _MARKS[band]
            radii.setdefault(kind, []).append((row.value / factor, row.estimator))
    for kind, of_kind in radii.items():
        yield kind, (min if kind in ("attacked", "random") else max)(of_kind, key=lambda mark: mark[0])


def _ends(row: Row) -> tuple[float, float]:
    """The interval of a row; the value where it has no lower end, infinity where it has no upper one."""
    return row.value if row.lower is None else row.lower, math.inf if row.upper is None else row.upper


def _points(rows: Sequence[Row], setting: Setting) -> Iterator[tuple[float, Row]]:
    """One result for each noise level: the first whose interval covers everything, else the first."""
    chosen: dict[NoiseLevel, Row] = {}
    for row in rows:
        if row.quantity == P_ROBUST.name and row.at.level is not None:
            before = chosen.setdefault(row.at, row)
            if approximate(before) and not approximate(row):
                chosen[row.at] = row
    for row in chosen.values():
        size = _size(setting, row.noise, row.level)
        if size is not None:
            yield size, row


def _tolerated(rows: Sequence[Row], setting: Setting) -> Iterator[tuple[float, float, Row]]:
    for row in rows:
        if row.quantity == TOLERANCE.name and row.value > 0 and row.search is not None and row.search.p is not None:
            each = _size(setting, row.noise, 1.0)
            if each is not None:
                yield each, row.search.p, row


def _size(setting: Setting, noise: str, level: float) -> float | None:
    """The usual l2 norm of a noise of the run at a level; None where it depends on the image."""
    facts = setting.noises.get(noise)
    return None if facts is None or setting.pixels is None else usual_length(facts, level, setting.pixels)


def _votes(rows: Sequence[Row]) -> Iterator[Vote]:
    """The votes with certificates or flips in l2, by noise level."""
    by_level: dict[NoiseLevel, list[Row]] = {}
    for row in rows:
        if band_of(row) is Band.SMOOTHED and norm_of(row) == 2.0:
            by_level.setdefault(row.at, []).append(row)
    for at, at_level in by_level.items():
        certified = [row.value for row in at_level if is_vote(row)]
        flips = [row.value for row in at_level if row.quantity == RADIUS.name and not row.censored]
        if certified or flips:
            yield Vote(at, max(certified, default=None), min(flips, default=None))


def _words(rows: Sequence[Row], setting: Setting) -> Iterator[str]:
    """Sentences on what the picture cannot show."""
    noises = [row.noise for row in rows if row.quantity == P_ROBUST.name and row.at.level is not None]
    unsized = [label for label in noises if (noise := setting.noises.get(label)) is None or usual_length(noise, 1.0, 1) is None]
    if unsized:
        yield f"Not drawn: {', '.join(dict.fromkeys(unsized))}, whose size depends on the pixels."


# --- drawing


def _caption(shown: Sequence[tuple[str, Portrait]]) -> Iterator[str]:
    yield "Sizes in l2; the size of noise is its root mean square."
    if any("attacked" in portrait.marks and "exact" not in portrait.marks for _, portrait in shown):
        yield "Grey: neither certified nor attacked."
    if any(portrait.points for _, portrait in shown):
        yield "Bars: 95 % intervals of the measurement."
    if any(portrait.votes for _, portrait in shown):
        yield "Below: the majority vote under noise, another classifier than the network."
    for name, portrait in shown:
        for words in portrait.words:
            yield f"{name}: {words}" if len(shown) > 1 else words


def _height(portrait: Portrait, look: PictureSize) -> float:
    columns = 2 if look.width > _ROOM else 1
    return _HIGH * (1.2 + _LANE * len(portrait.votes)) / 1.2 + -(-len(_entries(portrait)) // columns) * look.line + 0.55


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[tuple[str, Portrait]]) -> None:
    sizes = [size for _, portrait in shown for size in portrait.sizes]
    low, high = min(sizes) / _REACH, max(sizes) * _REACH
    widen = math.sqrt(max(1.0, 10.0 * low / high))
    heights = [_height(portrait, look) for _, portrait in shown]
    for part, (name, portrait) in zip(stacked(body, heights), shown, strict=True):
        ax = part.subplots()
        if len(shown) > 1:
            ax.set_title(fitted(f"{name}: {portrait.title.partition(': ')[2]}", look.body - 0.6, look.size, bold=True))
        ax.set(xlim=(low / widen, high * widen), ylim=(-0.06 - _LANE * len(portrait.votes), 1.08))
        log_scale(ax, "x")
        _lanes(ax, portrait, look)
        ax.set_xlabel("size of the perturbation (l2)")
        _worst_case(ax, portrait)
        _average(ax, portrait)
        _legend(part, portrait, look)


def _noise_colours(portrait: Portrait) -> dict[str, str]:
    rows = *(row for _, row in portrait.points), *(row for _, _, row in portrait.tolerated)
    labels = dict.fromkeys(row.noise for row in rows)
    return {label: _NOISES[i % len(_NOISES)] for i, label in enumerate(labels)}


def _entries(portrait: Portrait) -> list[tuple[dict[str, Any], str]]:
    """The legend: marks and their meaning."""
    entries: list[tuple[dict[str, Any], str]] = []
    for kind, text, style in (
        ("exact", "exact radius {}", _bar(INK)),
        ("certified", "certified {} ({})", _bar(GREEN)),
        ("attacked", "flip found {} ({})", _mark("x", RED)),
        ("random", "flip in a random direction {}", _mark("^", ORANGE)),
    ):
        if kind in portrait.marks:
            size, name = portrait.marks[kind]
            away = 0 if kind == "exact" else -1 if kind == "certified" else 1
            entries.append((style, text.format(numbers.compact(size, away), ResultName.parse(name).estimator)))
    colours = _noise_colours(portrait)
    noises = dict.fromkeys(row.noise for _, row in portrait.points)
    entries += [(_mark("o", colours[noise]), f"average under {noise} noise") for noise in noises]
    by_p = {p: row for _, p, row in reversed(portrait.tolerated)}
    entries += [(_mark("D", colours[row.noise], hollow=True), f"noise tolerated with p = {p:g}") for p, row in reversed(by_p.items())]
    return entries


def _legend(part: SubFigure, portrait: Portrait, look: PictureSize) -> None:
    from matplotlib.lines import Line2D

    columns = 2 if look.width > _ROOM else 1
    styles, words = zip(*_entries(portrait), strict=True) if _entries(portrait) else ((), ())
    texts = shorter(words, look.body / columns - 0.6, look.size)
    part.legend([Line2D([], [], **style) for style in styles], texts, loc="outside upper left", ncols=columns, labelspacing=0.25)


def _bar(ink: str) -> dict[str, Any]:
    return {"color": ink, "linewidth": 4.0, "solid_capstyle": "butt"}


def _mark(shape: str, ink: str, *, hollow: bool = False) -> dict[str, Any]:
    face, edge = (CARD if hollow else ink), (2.0 if shape == "x" else 1.1)
    size = {"markersize": 6.5} if shape == "x" else {}
    return {"marker": shape, "linestyle": "none", "markerfacecolor": face, "markeredgecolor": ink, "markeredgewidth": edge, **size}


def _worst_case(ax: Axes, portrait: Portrait) -> None:
    """Draw the worst case: 1 up to the proven radius, 0 from the flip on, and grey between them."""
    low, high = ax.get_xlim()
    sizes = {kind: size for kind, (size, _) in portrait.marks.items()}
    proven = max((sizes[kind] for kind in ("certified", "exact") if kind in sizes), default=low)
    for kind, ink in (("exact", INK), ("certified", GREEN)):
        if kind in sizes:
            ax.plot([low, sizes[kind]], [1.0, 1.0], zorder=4, **_bar(ink))
    if "attacked" in sizes:
        end = sizes["attacked"]
        ax.fill_between([min(proven, end), end], -0.06, 1.08, color=GRID, alpha=0.6, linewidth=0, zorder=0)
        ax.plot([end, end, high], [1.0, 0.0, 0.0], color=RED, linewidth=1.4, zorder=3)
        ax.plot([end], [0.0], zorder=6, **_mark("x", RED))
    if "random" in sizes:
        ax.plot([sizes["random"]], [0.0], zorder=6, **_mark("^", ORANGE))


def _average(ax: Axes, portrait: Portrait) -> None:
    low, high = ax.get_xlim()
    for noise, ink in _noise_colours(portrait).items():
        points = sorted(((size, row) for size, row in portrait.points if row.noise == noise), key=lambda point: point[0])
        sizes, values = [size for size, _ in points], [row.value for _, row in points]
        ax.plot(sizes, values, color=ink, linewidth=1.0, alpha=0.5, zorder=4)
        for size, row in points:
            lower, upper = _ends(row)
            ends = [max(0.0, lower), row.value if math.isinf(upper) else min(1.0, upper)]
            ax.plot([size] * 2, ends, color=ink, linewidth=2.2, alpha=0.7, zorder=5)
        ax.plot(sizes, values, zorder=6, **_mark("o", ink))
        for each, p, row in portrait.tolerated:
            if row.noise == noise:
                lower, upper = (each * end for end in _ends(row))
                ax.plot([max(low, lower), min(high, upper)], [p] * 2, color=ink, linewidth=2.2, alpha=0.7, zorder=5)
                ax.plot([each * row.value], [p], zorder=6, **_mark(">" if row.censored else "D", ink, hollow=True))


def _lanes(ax: Axes, portrait: Portrait, look: PictureSize) -> None:
    """Draw the scale of the probability, and below it a lane for each vote, with its name on the left."""
    low, high = ax.get_xlim()
    ticks = {0.0: "0", 0.5: "0.5", 1.0: "1"}
    for i, vote in enumerate(portrait.votes):
        y = -0.02 - _LANE * (i + 1)
        ticks[y] = f"vote, {vote.at}"
        ax.plot([low, high], [y, y], zorder=1, **_bar(GRID))
        if vote.certified:
            ax.plot([low, vote.certified], [y, y], alpha=0.55, zorder=2, **_bar(GREEN))
        if vote.flip is not None:
            ax.plot([vote.flip], [y], zorder=3, **_mark("x", RED))
        words = [f"certified {numbers.compact(vote.certified, -1)}" if vote.certified else "abstains"] if vote.certified is not None else []
        words += [f"flip found {numbers.compact(vote.flip, 1)}"] if vote.flip is not None else []
        style: dict[str, Any] = {"ha": "right", "va": "bottom", "color": FAINT, "size": 0.9 * look.size}
        ax.annotate(", ".join(words), (high, y), (-2, 1), textcoords="offset points", **style)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.set_ylabel("p(the class stays)", y=1.0, ha="right")
