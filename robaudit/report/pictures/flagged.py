"""How does the picture of the worst samples look: clean beside noisy, with what they flip to and how often they stay?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robaudit.report.numbers import with_interval
from robaudit.report.pictures.flagged_numbers import Pixels, Worst
from robaudit.report.pictures.groups import others_words
from robaudit.report.pictures.page import Box, Look, Sketch, fitted, measured, put
from robaudit.report.pictures.style import FAINT, LOWER
from robaudit.spec import sigma_text
from robaudit.summary.flags_result import Flag
from robaudit.text import class_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GAP, _ROOM, _PAIR = 0.22, 0.16, 0.05  # inches between columns, below a cell, between clean and noisy
_ARROW = " \u2192 "


def sketch(found: Worst, pixels: Sequence[tuple[Pixels, Pixels]]) -> Sketch:
    """The picture of these samples."""
    key = found.flagged.key
    return Sketch(
        title=f"Least robust images: {key.estimator}, sigma {sigma_text(key.sigma)}",
        caption=_caption(found),
        height=lambda look: -(-len(found.samples) // _columns(look)) * _cell(look),
        draw=lambda figure, box, look: _draw(figure, box, look, found, pixels),
    )


def _columns(look: Look) -> int:
    """Cells across."""
    return 3 if look.body >= 4.5 else 2


def _side(look: Look) -> float:
    """Of one image."""
    columns = _columns(look)
    return ((look.body - (columns - 1) * _GAP) / columns - _PAIR) / 2


def _cell(look: Look) -> float:
    return _side(look) + 3 * look.line + 0.06 + _ROOM


def _caption(found: Worst) -> str:
    one = found.flagged
    side = "below" if one.higher_is_better else "above"
    shown = len(found.samples)
    beyond = f"{one.beyond:,} of {one.total:,} images {'is' if one.beyond == 1 else 'are'} {side} {one.threshold:.3g}"
    if one.surely or one.likely:
        beyond += f", {one.surely + one.likely:,} by the whole interval"
    parts = [
        f"{beyond}; the {shown} worst." if shown > 1 else f"{beyond}; the worst.",
        f"Clean, and with its first noise draw; the class the model sees, and the one it most likely flips to; {one.key.quantity}.",
    ]
    if any(sample.label is not None and sample.label != sample.predicted for sample in found.samples):
        parts.append("is: the label, where the model is wrong without noise.")
    if one.with_interval:
        parts.append("[ ] 95 % interval of the image (measurement).")
    if any(sample.lower is None and sample.upper is None for sample in found.samples):
        parts.append("~ no interval.")
    if one.likely:
        parts.append("The intervals cover sampling only, not the estimator's bias.")
    if one.not_finite:
        parts.append(f"{one.not_finite:,} images without a finite value are left out.")
    return " ".join(parts) + others_words(found.others)


def _draw(figure: Figure, box: Box, look: Look, found: Worst, pixels: Sequence[tuple[Pixels, Pixels]]) -> None:
    side, columns = _side(look), _columns(look)
    across = 2 * side + _PAIR
    for i, (sample, pair) in enumerate(zip(found.samples, pixels, strict=True)):
        x = box.x + (i % columns) * (across + _GAP)
        y = box.y + box.height - (i // columns) * _cell(look) - side
        for j, image in enumerate(pair):
            _image(figure, Box(x + j * (side + _PAIR), y, side, side), image, look)
        _words(figure, look, found, sample, Box(x, y - 0.06, across, 0))


def _image(figure: Figure, box: Box, image: Pixels, look: Look) -> None:
    width, height = figure.get_size_inches()
    rows, columns = image.shape[:2]
    across, up = box.width * min(1.0, columns / rows), box.height * min(1.0, rows / columns)
    place = ((box.x + (box.width - across) / 2) / width, (box.y + (box.height - up) / 2) / height, across / width, up / height)
    ax = figure.add_axes(place)
    ax.imshow(image, interpolation="none" if look.vector else None, aspect="auto")
    ax.set_axis_off()


def _words(figure: Figure, look: Look, found: Worst, sample: Flag, place: Box) -> None:
    one, names = found.flagged, found.class_names
    value = with_interval(sample.value, sample.lower, sample.upper, found.quantity.low, found.quantity.high)
    beyond = one.beyond and (sample.value < one.threshold if one.higher_is_better else sample.value > one.threshold)
    lines = (
        (_flips(sample, names, place.width, look), {"weight": "bold"}),
        (fitted(value, place.width, look.size), {"color": LOWER} if beyond else {}),
        (_about(sample, names, place.width, look), {"color": FAINT}),
    )
    for i, (text, style) in enumerate(lines):
        put(figure, place.x, place.y - i * look.line, text, size=look.size, va="top", **style)


def _flips(sample: Flag, names: Sequence[str] | None, width: float, look: Look) -> str:
    """``3 (cat) -> 5 (dog)``; both names lose their ends alike where there is no room."""
    before = class_name(sample.predicted, names)
    if sample.flips_to is None:
        return fitted(before, width, look.size, bold=True)
    after = class_name(sample.flips_to, names)
    whole = before + _ARROW + after
    if fitted(whole, width, look.size, bold=True) == whole:
        return whole
    room = width - measured(_ARROW, look.size, bold=True)
    return _ARROW.join(_shared(before, after, room, look, bold=True))


def _shared(first: str, second: str, width: float, look: Look, *, bold: bool = False, end: bool = False) -> tuple[str, str]:
    """Two texts that fit a width together: a short one leaves its room to the other; ``end``: of the second the end is kept."""
    needs = [measured(text[:200], look.size, bold=bold) for text in (first, second)]
    share = max(width / 2, width - needs[1])
    one = fitted(first, share, look.size, bold=bold)
    return one, fitted(second, width - min(share, needs[0]), look.size, bold=bold, end=end)


def _about(sample: Flag, names: Sequence[str] | None, width: float, look: Look) -> str:
    """The id, after the label where the model is wrong."""
    if sample.label is None or sample.label == sample.predicted:
        return fitted(f"id {sample.id}", width, look.size, end=True)
    return ", ".join(_shared(f"is {class_name(sample.label, names)}", f"id {sample.id}", width - 0.08, look, end=True))
