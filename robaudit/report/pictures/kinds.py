"""The pictures of a run by kind: as files, and as parts of an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robaudit.errors import NothingLeftError, RobauditError, did_you_mean
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.report.pictures import can_draw
from robaudit.report.pictures.page import Look, Sketch, page
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robaudit.report.gallery import ImageSource

SMALL_BELOW = 6.0  # inches: narrower pictures have letters of 7 points instead of 9
MOST_FLAGGED = 12
INLINE = Look(width=6.6, size=10.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of a run a picture shows.

    Attributes:
        estimators, levels: only these; if empty, all of them, or the one that represents the run.
        threshold: beyond it a sample counts as not robust; None: the quantity's usual one.
        max_images: the most images, for the kinds flagged (None: 12) and loss-q (None: 6).
        images: where samples are read, for the kinds flagged and spectrum; None: where the run's spec says.
        beside: further runs in the same picture, for the kinds certified and curves.
        sample: the image, for the kind spectrum; None: the least robust one.
    """

    estimators: Sequence[str] = ()
    levels: LevelChoice | Sequence[float] = ()
    threshold: float | None = None
    max_images: int | None = None
    images: ImageSource | None = None
    beside: Sequence[Run] = ()
    sample: str | None = None


def _distribution(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.distribution import distributions, sketch

    return sketch(distributions(run, choice.estimators, choice.levels, choice.threshold))


def _bias(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.bias import classes_of, sketch

    return sketch(classes_of(run, choice.estimators, choice.levels))


def _flagged(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.flagged import pixels_of, sketch, worst_of

    worst = worst_of(
        run, MOST_FLAGGED if choice.max_images is None else choice.max_images, choice.estimators, choice.levels, choice.threshold
    )
    return sketch(worst, pixels_of(run, worst, choice.images))


def _agreement(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.agreement import sketch
    from robaudit.stats.agreement import agreement

    return sketch(agreement(run, choice.estimators, choice.levels))


def _cost(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.cost import costs, sketch

    return sketch(costs(run, choice.estimators, choice.levels), run.info["device"])


def _loss_q(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.loss_q import sketch
    from robaudit.stats.losses import MOST_WORST, losses

    found = losses(run, choice.estimators, choice.levels, MOST_WORST if choice.max_images is None else choice.max_images)
    if not found:
        raise NothingLeftError(str(run.path), "has no losses by q to draw", "add qnorm_path to its estimators: --extend computes it")
    return sketch(found)


def _radius(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.radii import sketch
    from robaudit.stats.scores import radii_of, scores_of

    return sketch([scores_of(one) for one in radii_of(run, choice.estimators, choice.levels)])


def _certified(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.certified_tables import of_runs
    from robaudit.report.pictures.certified import sketch

    return sketch(of_runs((run, *choice.beside), choice.estimators, choice.levels))


def _heat_map(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.easiest import heat_map
    from robaudit.stats.easiest import easiest_errors

    return heat_map(easiest_errors(run, choice.estimators, choice.levels))


def _kept(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.easiest import kept_picture
    from robaudit.stats.easiest import kept_curve

    return kept_picture(kept_curve(run, choice.estimators, choice.levels))


def _curves(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.curves import sketch
    from robaudit.report.sections import run_names
    from robaudit.stats.curves import curves_of

    runs = (run, *choice.beside)
    named = zip(runs, run_names(runs), strict=True)
    return sketch([curves_of(one, name, estimators=choice.estimators, levels=choice.levels) for one, name in named])


def _spectrum(run: Run, choice: Choice) -> Sketch:
    from robaudit.report.pictures.spectrum import portrait_of, sketch
    from robaudit.stats.spectrum import spectrum

    (sample,) = spectrum(run, 1, () if choice.sample is None else (choice.sample,)).samples
    return sketch(portrait_of(run, sample, choice.images))


_SKETCHES: dict[str, Callable[[Run, Choice], Sketch]] = {
    "distribution": _distribution,
    "bias": _bias,
    "flagged": _flagged,
    "agreement": _agreement,
    "cost": _cost,
    "loss-q": _loss_q,
    "radius": _radius,
    "certified": _certified,
    "heat-map": _heat_map,
    "corruption-kept": _kept,
    "curves": _curves,
    "spectrum": _spectrum,
}
KINDS = tuple(_SKETCHES)
FORMATS = ("png", "svg", "pdf")


def sketch_of(kind: str, run: Run, choice: Choice) -> Sketch:
    """The picture, still to be drawn.

    Raises:
        RobauditError: there is no such kind, or the run has nothing that it could show.
    """
    if kind not in _SKETCHES:
        raise RobauditError(f"kind {kind!r}", "there is no such picture", did_you_mean(kind, KINDS))
    return _SKETCHES[kind](run, choice)


def picture(kind: str, run: Run, format_: str, choice: Choice | None = None, *, width: float = 7.0) -> bytes:
    """A picture as the bytes of a file: the same ones for the same run.

    Args:
        kind: one of :data:`KINDS`.
        run: a finished run.
        format_: png, svg or pdf.
        choice: which part of it; None: all.
        width: inches; letters have 9 points, 7 where it is below :data:`SMALL_BELOW`.

    Raises:
        RobauditError: there is no such kind, the run has nothing that it could show, or the width is too small for it.
    """
    return drawn(sketch_of(kind, run, choice or Choice()), format_, width=width)


def figure_of(kind: str, run: Run, choice: Choice, *, width: float = 7.0) -> Figure:
    """A picture as a matplotlib figure, which a notebook shows; see :func:`picture`."""
    from robaudit.report.pictures.style import figure

    made = sketch_of(kind, run, choice)
    _check_width(made, width)
    return figure(*page(made, Look(width, size=_letters(width))))


def drawn(made: Sketch, format_: str, *, width: float = 7.0) -> bytes:
    """A sketch as the bytes of a file; see :func:`picture`."""
    from robaudit.report.pictures.style import saved

    _check_width(made, width)
    size, draw = page(made, Look(width, size=_letters(width), vector=format_ != "png"))
    return saved(format_, size, draw)


def _check_width(made: Sketch, width: float) -> None:
    if width < made.narrowest:
        raise RobauditError(f"--width {width:g}", "is too narrow for this picture", f"at least {made.narrowest:g} inches")


def _letters(width: float) -> float:
    """Points of the letters."""
    return 9.0 if width >= SMALL_BELOW else 7.0


def inline_svg(
    kind: str,
    run: Run,
    *,
    estimator: str | None = None,
    at: NoiseLevel | None = None,
    threshold: float | None = None,
    salt: str = "",
) -> str:
    """A picture as an ``<svg>`` element of an HTML page.

    Args:
        kind: one of :data:`KINDS`.
        run: a finished run.
        estimator, at: only this one.
        threshold: beyond it a sample counts as not robust; None: the quantity's usual one.
        salt: mixed into the ids, as two identical pictures on one page need different ones.

    The caption is part of the picture; :func:`inline_picture` gives it as text.

    Raises:
        RobauditError: there is no such kind, or the run has nothing that it could show (flagged: the data set is gone), or matplotlib
            is not installed.
    """
    choice = Choice(
        () if estimator is None else (estimator,),
        LevelChoice() if at is None else at.choice,
        threshold,
    )
    return inline_sketch(kind, lambda: sketch_of(kind, run, choice), salt=salt, caption=True)[0]


def inline_picture(kind: str, run: Run, choice: Choice, *, salt: str = "") -> tuple[str, str]:
    """A picture as an ``<svg>`` element without its caption, and the caption, without its lead: text for the page to escape and wrap.

    Args:
        kind, run, salt: as for :func:`inline_svg`.
        choice: which part of the run.

    Raises:
        RobauditError: as :func:`inline_svg`.
    """
    return inline_sketch(kind, lambda: sketch_of(kind, run, choice), salt=salt)


def inline_sketch(kind: str, make: Callable[[], Sketch], *, salt: str = "", caption: bool = False) -> tuple[str, str]:
    """A picture from statistics that are there already, as :func:`inline_picture` gives it; with ``caption``, as :func:`inline_svg`.

    Raises:
        RobauditError: matplotlib is not installed.
    """
    can_draw(required=True, where=f"the picture {kind}")
    from robaudit.report.pictures.inline import inline
    from robaudit.report.pictures.style import saved

    made = make()
    size, draw = page(made, INLINE, caption=caption)
    return inline(saved("svg", size, draw, text=True), kind, made.title, made.whole_caption if caption else "", salt), made.caption
