"""The picture of the worst samples: clean beside noisy, the class they flip to, and their robustness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robaudit.levels import LevelChoice
from robaudit.quantities import Quantity
from robaudit.report.flag_tables import is_beyond
from robaudit.report.numbers import sample_value
from robaudit.report.pictures.groups import one_of, others_text
from robaudit.report.pictures.page import Box, Look, Sketch, fitted, measured, put
from robaudit.report.pictures.style import FAINT, LOWER
from robaudit.report.words import certainties
from robaudit.stats.flags import Flag, Flagged, flag, usual_threshold
from robaudit.stats.groups import quantity_of
from robaudit.store.run import Run
from robaudit.text import class_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from robaudit.report.gallery import ImageSource

Pixels = NDArray[np.uint8]
_LARGEST, _SMALLEST = 256, 128  # pixels of a side as stored in the file


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst samples of one estimator at one noise level.

    Attributes:
        flagged: the list, and how many samples are beyond the threshold in all.
        quantity: what was measured.
        class_names: by class index, if known.
        others: other groups of the run.
    """

    flagged: Flagged
    quantity: Quantity
    class_names: tuple[str, ...] | None
    others: int

    @property
    def samples(self) -> tuple[Flag, ...]:
        """Those shown, the worst first."""
        return self.flagged.samples


def worst_of(
    run: Run, most: int = 12, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = (), threshold: float | None = None
) -> Worst:
    """The worst samples, beyond the threshold or not.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there is no finite value.
    """
    rows, others = one_of(run, estimators, levels)
    quantity = quantity_of(rows.key.quantity, run.quantities)
    below = usual_threshold(quantity) if threshold is None else threshold
    return Worst(flag(rows, below=below, bottom=most, quantity=quantity), quantity, run.class_names, others)


def pixels_of(run: Run, worst: Worst, source: ImageSource | None = None) -> tuple[tuple[Pixels, Pixels], ...]:
    """Each sample, clean and with its first noise draw, as (height, width, 3) bytes; noisy pixels beyond [0, 1] are cut off.

    Raises:
        RobauditError: the data set is not where it was, or holds other images.
    """
    from robaudit.report.gallery import RunImages

    images = RunImages(run, (sample.id for sample in worst.samples), source)
    pairs = []
    for sample in worst.samples:
        clean = images.clean(sample.id)
        at = worst.flagged.key.at
        pairs.append((sized(clean), sized(clean if at.levelless else images.noisy(sample.id, clean, at))))
    return tuple(pairs)


def sized(image: Tensor) -> Pixels:
    """An image (channels, height, width) in [0, 1] as bytes: small ones enlarged pixel by pixel, large ones reduced."""
    from PIL import Image

    from robaudit.report.gallery import as_array

    pixels = as_array(image)
    longest = max(pixels.shape[:2])
    if longest > _LARGEST:
        height, width = (max(1, round(side * _LARGEST / longest)) for side in pixels.shape[:2])
        return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX))
    factor = -(-_SMALLEST // longest)
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


_GAP, _ROOM, _PAIR = 0.22, 0.16, 0.05  # inches between columns, below a cell, between clean and noisy
_ARROW = " \u2192 "


def sketch(worst: Worst, pixels: Sequence[tuple[Pixels, Pixels]]) -> Sketch:
    """The picture of these samples."""
    key = worst.flagged.key
    return Sketch(
        title=f"Least robust images: {key.estimator}, {key.at}",
        caption=_caption(worst),
        height=lambda look: -(-len(worst.samples) // _columns(look)) * _cell(look),
        draw=lambda figure, box, look: _draw(figure, box, look, worst, pixels),
    )


def _columns(look: Look) -> int:
    """Cells across."""
    return 3 if look.body >= 4.5 else 2


def _side(look: Look) -> float:
    """The side of one image, in inches."""
    columns = _columns(look)
    return ((look.body - (columns - 1) * _GAP) / columns - _PAIR) / 2


def _cell(look: Look) -> float:
    return _side(look) + 3 * look.line + 0.06 + _ROOM


def _caption(worst: Worst) -> str:
    one = worst.flagged
    side = "below" if one.higher_is_better else "above"
    shown = len(worst.samples)
    beyond = f"{one.beyond:,} of {one.total:,} images {'is' if one.beyond == 1 else 'are'} {side} {one.threshold:.3g}"
    beyond = beyond if one.has_threshold else f"{one.total:,} images"
    certain = certainties(one) if one.has_threshold else ""
    beyond += f"{':' if one.beyond else ';'} {certain}" if certain else ""
    pair = "Each image twice: the result has no noise level" if one.key.at.levelless else "Each image clean and with its first noise draw"
    parts = [
        f"{beyond}; shown: the {shown} least robust." if shown > 1 else f"{beyond}; shown: the least robust.",
        f"{pair}; the predicted class, and the class it most likely flips to; {one.key.quantity}.",
    ]
    if any(sample.label is not None and sample.label != sample.predicted for sample in worst.samples):
        parts.append("is: the label, where the model is wrong without noise.")
    if one.with_interval:
        parts.append("[ ] 95 % interval of the image.")
    if any(sample.lower is None and sample.upper is None for sample in worst.samples):
        parts.append("~ no interval.")
    if one.approximate:
        parts.append("The intervals cover sampling only, not the estimator's bias.")
    if one.not_finite:
        parts.append(f"{one.not_finite:,} images without a finite value are left out.")
    return " ".join(parts) + others_text(worst.others)


def _draw(figure: Figure, box: Box, look: Look, worst: Worst, pixels: Sequence[tuple[Pixels, Pixels]]) -> None:
    side, columns = _side(look), _columns(look)
    across = 2 * side + _PAIR
    for i, (sample, pair) in enumerate(zip(worst.samples, pixels, strict=True)):
        x = box.x + (i % columns) * (across + _GAP)
        y = box.y + box.height - (i // columns) * _cell(look) - side
        for j, image in enumerate(pair):
            image_in(figure, Box(x + j * (side + _PAIR), y, side, side), image, look)
        _labels(figure, look, worst, sample, Box(x, y - 0.06, across, 0))


def image_in(figure: Figure, box: Box, image: Pixels, look: Look) -> None:
    """Draw an image into a box, as large as its proportions allow."""
    width, height = figure.get_size_inches()
    rows, columns = image.shape[:2]
    across, up = box.width * min(1.0, columns / rows), box.height * min(1.0, rows / columns)
    place = ((box.x + (box.width - across) / 2) / width, (box.y + (box.height - up) / 2) / height, across / width, up / height)
    ax = figure.add_axes(place)
    ax.imshow(image, interpolation="none" if look.vector else None, aspect="auto")
    ax.set_axis_off()


def _labels(figure: Figure, look: Look, worst: Worst, sample: Flag, place: Box) -> None:
    one, names = worst.flagged, worst.class_names
    value = sample_value(sample, worst.quantity.low, worst.quantity.high)
    beyond = is_beyond(sample, one)
    lines = (
        (_flips(sample, names, place.width, look), {"weight": "bold"}),
        (fitted(value, place.width, look.size), {"color": LOWER} if beyond else {}),
        (_about(sample, names, place.width, look), {"color": FAINT}),
    )
    for i, (text, style) in enumerate(lines):
        put(figure, place.x, place.y - i * look.line, text, size=look.size, va="top", **style)


def _flips(sample: Flag, names: Sequence[str] | None, width: float, look: Look) -> str:
    """``3 (cat) -> 5 (dog)``; both names are cut where there is no room."""
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
    """Two texts cut to fit a width together: a short one leaves room to the other; ``end`` keeps the end of the second."""
    needs = [measured(text[:200], look.size, bold=bold) for text in (first, second)]
    share = max(width / 2, width - needs[1])
    one = fitted(first, share, look.size, bold=bold)
    return one, fitted(second, width - min(share, needs[0]), look.size, bold=bold, end=end)


def _about(sample: Flag, names: Sequence[str] | None, width: float, look: Look) -> str:
    """The id, after the label where the model is wrong."""
    if sample.label is None or sample.label == sample.predicted:
        return fitted(f"id {sample.id}", width, look.size, end=True)
    return ", ".join(_shared(f"is {class_name(sample.label, names)}", f"id {sample.id}", width - 0.08, look, end=True))
