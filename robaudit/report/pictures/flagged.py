"""The picture of the least robust images: clean beside noisy, the class they flip to, and their robustness; run by run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robaudit.report.flag_tables import is_beyond
from robaudit.report.numbers import sample_value
from robaudit.report.pictures.chosen import one_result, same_result
from robaudit.report.pictures.page import PictureSize, Sketch, fitted
from robaudit.report.pictures.style import FAINT, LOWER, quiet
from robaudit.report.sections import Ask, Found
from robaudit.report.words import certainties
from robaudit.stats.flags import Flag, Flagged
from robaudit.store.run import Run
from robaudit.text import class_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure
    from torch import Tensor

    from robaudit.report.gallery import ImageSource

Pixels = NDArray[np.uint8]
_MOST, _LARGEST, _SMALLEST = 12, 256, 128  # images; pixels of a side as stored in the file
_CELL = 1.45  # inches of a pair, at least


def narrowed(runs: Sequence[Run], ask: Ask) -> Ask:
    """One result of each run is shown, its least robust images, beyond the threshold or not."""
    return replace(one_result(runs, ask), bottom=max(4, _MOST // len(runs)) if ask.bottom is None else ask.bottom)


def sketch(found: Sequence[Found[Flagged]], _: Ask, images: ImageSource | None = None) -> Sketch:
    """The picture of these images.

    Raises:
        RobauditError: a data set is not where it was, or holds other images.
    """
    found = same_result(found, lambda record: record.key)
    drawn = [_pixels(one, images) for one in found]
    return Sketch(
        title="Least robust images",
        about=str(found[0].record.key),
        caption=" ".join(_caption(found)),
        height=lambda look: sum(_height(one, look, several=len(found) > 1) for one in found),
        draw=lambda body, look: _draw(body, look, found, drawn),
    )


def _pixels(one: Found[Flagged], source: ImageSource | None) -> list[Pixels]:
    """Each sample, clean and with its first noise draw, side by side; noisy pixels beyond [0, 1] are cut off."""
    from robaudit.report.gallery import RunImages

    flagged = one.record
    images = RunImages(one.run, (sample.id for sample in flagged.samples), source)
    pairs = []
    for sample in flagged.samples:
        clean, at = images.clean(sample.id), flagged.key.at
        pair = [sized(clean), sized(clean if at.level is None else images.noisy(sample.id, clean, at))]
        gap = np.full((pair[0].shape[0], max(2, pair[0].shape[1] // 24), 4), 0, np.uint8)
        opaque = [np.concatenate([side, np.full((*side.shape[:2], 1), 255, np.uint8)], 2) for side in pair]
        pairs.append(np.concatenate([opaque[0], gap, opaque[1]], 1))
    return pairs


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


def _across(one: Flagged, look: PictureSize) -> int:
    return look.across(max(4, len(one.samples)), _CELL) if look.body > 4.5 else 2


def _height(one: Found[Flagged], look: PictureSize, *, several: bool) -> float:
    across = _across(one.record, look)
    rows = -(-len(one.record.samples) // across)
    return rows * (look.body / across / 2 + 3.2 * look.line + 0.1) + (look.line * 1.8 if several else 0.0)


def _caption(found: Sequence[Found[Flagged]]) -> Iterator[str]:
    for each in found:
        one, name = each.record, f"{each.name}: " if len(found) > 1 else ""
        side = "below" if one.higher_is_better else "above"
        beyond = f"{one.beyond:,} of {one.total:,} images {'is' if one.beyond == 1 else 'are'} {side} {one.threshold:.3g}"
        certain = certainties(one) if one.has_threshold else ""
        beyond = beyond if one.has_threshold else f"{one.total:,} images"
        shown = f"the {len(one.samples)} least robust" if len(one.samples) > 1 else "the least robust"
        yield f"{name}{beyond}{f': {certain}' if certain else ''}; shown: {shown}."
    every = [each.record for each in found]
    pair = "twice: the result has no noise level" if every[0].key.at.level is None else "clean and with its first noise draw"
    yield f"Each image {pair}; the predicted class, and the class it most likely flips to; {every[0].key.quantity}."
    samples = [sample for one in every for sample in one.samples]
    if any(sample.label is not None and sample.label != sample.predicted for sample in samples):
        yield "is: the label, where the model is wrong without noise."
    if any(one.with_interval for one in every):
        yield "[ ] 95 % interval of the image."
    if any(sample.lower is None and sample.upper is None for sample in samples):
        yield "~ no interval."
    if any(one.approximate for one in every):
        yield "The intervals cover sampling only, not the estimator's bias."
    if not_finite := sum(one.not_finite for one in every):
        yield f"{not_finite:,} images without a finite value are left out."


def _draw(body: SubFigure, look: PictureSize, found: Sequence[Found[Flagged]], drawn: Sequence[Sequence[Pixels]]) -> None:
    several = len(found) > 1
    heights = [_height(one, look, several=several) for one in found]
    for part, one, pixels in zip(body.subfigures(len(found), 1, height_ratios=heights, squeeze=False)[:, 0], found, drawn, strict=True):
        part.patch.set_visible(False)
        across = _across(one.record, look)
        if several:
            part.suptitle(fitted(one.name, look.body, look.size, bold=True), x=0.012, ha="left", weight="bold")
        grid = part.subplots(-(-len(pixels) // across), across, squeeze=False)
        for ax in grid.flat[len(pixels) :]:
            ax.set_axis_off()
        for ax, sample, pair in zip(grid.flat, one.record.samples, pixels, strict=False):
            _cell(ax, one, sample, pair, look, look.body / across - 0.12)


def _cell(ax: Axes, one: Found[Flagged], sample: Flag, pair: Pixels, look: PictureSize, width: float) -> None:
    names, quantity = one.run.class_names, one.run.quantities[one.record.key.quantity]
    quiet(ax)
    ax.imshow(pair, interpolation="none", resample=False)
    flips = class_name(sample.predicted, names, 14)
    if sample.flips_to is not None:
        flips = f"{flips} \u2192 {class_name(sample.flips_to, names, 14)}"
    wrong = sample.label is not None and sample.label != sample.predicted
    about = f"is {class_name(sample.label, names, 12)}, " if wrong else "id "
    about += fitted(sample.id, max(0.3, width - len(about) * look.size * 0.0085), look.size, end=True)
    ax.set_title(fitted(flips, width, look.size, bold=True), pad=3)
    value = fitted(sample_value(sample, quantity.low, quantity.high), width, look.size)
    ax.set_xlabel(f"{value}\n{about}", loc="left", color=LOWER if is_beyond(sample, one.record) else FAINT, labelpad=2)
