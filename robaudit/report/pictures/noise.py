"""What the noises of a spec look like: a few images clean and at each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from robaudit.datasets.base import Dataset, Sample, first_samples
from robaudit.noise.registry import Noise
from robaudit.report.gallery import first_copy
from robaudit.report.numbers import level_numbers
from robaudit.report.pictures.flagged import Pixels, image_in, sized
from robaudit.report.pictures.page import Box, Look, Sketch, fitted, put
from robaudit.report.pictures.style import FAINT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LEVELS = 7
_GAP, _LARGEST_SIDE, _BETWEEN = 0.06, 1.3, 0.14  # inches: between cells, of a cell, between noises


@dataclass(frozen=True, slots=True)
class Preview:
    """One noise on a few images.

    Attributes:
        title: its label and kind, and what its level is.
        levels: the levels shown, as text.
        images: for each image the clean pixels and those at each level, (height, width, 3) bytes; beyond [0, 1] they are cut off.
    """

    title: str
    levels: tuple[str, ...]
    images: tuple[tuple[Pixels, ...], ...]


def previews(noises: Sequence[Noise], dataset: Dataset, images: int, seed: int) -> tuple[Preview, ...]:
    """The first images of a data set under each noise, by the first draw of the run's own noise; at most seven levels of each.

    Args:
        noises: of a spec.
        dataset: its images.
        images: how many.
        seed: of the run.

    Raises:
        RobauditError: an image cannot be read, or a noise does not fit the images.
    """
    samples = list(first_samples(dataset, images, skip_bad=False))
    return tuple(_preview(noise, samples, seed) for noise in noises)


def _preview(noise: Noise, samples: Sequence[Sample], seed: int) -> Preview:
    source, texts = noise.source(seed, torch.device("cpu")), level_numbers(noise.levels)
    count = min(MOST_LEVELS, len(noise.levels))
    places = [round(i * (len(noise.levels) - 1) / max(1, count - 1)) for i in range(count)]
    shown = [noise.levels[i] for i in places]
    rows = []
    for sample in samples:
        clean = sample.pixels.to(torch.float32)
        rows.append((sized(clean), *(sized(first_copy(source, sample.id, clean, at)) for at in shown)))
    kind = "" if noise.label == noise.kind else f" ({noise.kind})"
    return Preview(f"{noise.label}{kind}, {shown[0].name}", tuple(texts[at] for at in shown), tuple(rows))


def sketch(shown: Sequence[Preview], where: str) -> Sketch:
    """The picture of these noises.

    Args:
        shown: at least one.
        where: the data set.
    """
    columns = 1 + max(len(one.levels) for one in shown)
    return Sketch(
        title="Examples of the noise",
        caption=f"The first images of {where}, clean and with the first draw of the run's noise; pixels beyond [0, 1] are cut off here.",
        height=lambda look: sum(_height(one, look, columns) for one in shown),
        draw=lambda figure, box, look: _draw(figure, box, look, shown, columns),
    )


def _side(look: Look, columns: int) -> float:
    return min(_LARGEST_SIDE, (look.body - (columns - 1) * _GAP) / columns)


def _height(one: Preview, look: Look, columns: int) -> float:
    return 2 * look.line + 0.05 + len(one.images) * (_side(look, columns) + _GAP) + _BETWEEN


def _draw(figure: Figure, box: Box, look: Look, shown: Sequence[Preview], columns: int) -> None:
    side, top = _side(look, columns), box.y + box.height
    for one in shown:
        put(figure, box.x, top, fitted(one.title, look.body, look.size, bold=True), size=look.size, weight="bold", va="top")
        for i, head in enumerate(("clean", *one.levels)):
            place = box.x + i * (side + _GAP)
            put(figure, place, top - look.line, fitted(head, side, look.size), size=look.size, color=FAINT, va="top")
        for row, images in enumerate(one.images):
            y = top - 2 * look.line - 0.05 - row * (side + _GAP) - side
            for i, image in enumerate(images):
                image_in(figure, Box(box.x + i * (side + _GAP), y, side, side), image, look)
        top -= _height(one, look, columns)
