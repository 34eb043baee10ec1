"""What the noises of a spec look like: a few images clean and at each level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import torch

from robaudit.datasets.dataset import Dataset, Sample, first_samples
from robaudit.noise.process import NoiseProcess
from robaudit.report.flagged_section import Pixels, sized
from robaudit.report.gallery import first_copy
from robaudit.report.numbers import level_numbers
from robaudit.report.pictures.page import Drawing, PictureSize, cut, stacked
from robaudit.report.pictures.style import FAINT, quiet

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

MOST_LEVELS = 7
# inches: between cells, of a cell
_GAP = 0.06
_LARGEST_SIDE = 1.3


class Preview(NamedTuple):
    """One noise on a few images: its title, its levels, and each image clean and at each level, in
    bytes (height, width, 3)."""

    title: str
    levels: tuple[str, ...]
    images: tuple[tuple[Pixels, ...], ...]


def drawing(noises: Sequence[NoiseProcess], dataset: Dataset, images: int, seed: int) -> Drawing:
    """The first images of a data set under each noise, by the first draw of the run's own noise; at
    most seven levels of each.

    Args:
        noises: of a spec, at least one.
        dataset: its images.
        images: the number of images.
        seed: of the run.

    Raises:
        RobauditError: an image cannot be read, or a noise does not fit the images.
    """
    samples = list(first_samples(dataset, images, skip_bad=False))
    shown = [_preview(noise, samples, seed) for noise in noises]
    columns = 1 + max(len(preview.levels) for preview in shown)
    return Drawing(
        title="Examples of the noise",
        caption=f"The first images of {dataset.where}, clean and with the first draw of the "
        "run's noise; pixels beyond [0, 1] are cut "
        "off here.",
        height=lambda size: sum(_height(preview, size, columns) for preview in shown),
        draw=lambda body, size: _draw(body, size, shown, columns),
    )


def _preview(noise: NoiseProcess, samples: Sequence[Sample], seed: int) -> Preview:
    """The images under one noise. Its draws are the CPU's, as those of a gallery are."""
    source = noise.seeded(seed, torch.device("cpu"))
    texts = level_numbers(noise.levels)
    # evenly spaced, with the weakest and the strongest
    count = min(MOST_LEVELS, len(noise.levels))
    last = len(noise.levels) - 1
    places = [round(i * last / max(1, count - 1)) for i in range(count)]
    shown = [noise.levels[i] for i in places]
    rows = []
    for sample in samples:
        clean = sample.pixels.to(torch.float32)
        copies = [first_copy(source, sample.id, clean, at) for at in shown]
        rows.append(tuple(sized(image) for image in (clean, *copies)))
    kind = "" if noise.label == noise.kind else f" ({noise.kind})"
    title = f"{noise.label}{kind}, {shown[0].name}"
    return Preview(title, tuple(texts[at] for at in shown), tuple(rows))


def _height(preview: Preview, size: PictureSize, columns: int) -> float:
    """Inches of a noise: a row for each image, below the title and the levels."""
    side = min(_LARGEST_SIDE, size.body / columns - _GAP)
    return 2.9 * size.line + len(preview.images) * (side + _GAP)


def _draw(body: SubFigure, size: PictureSize, shown: Sequence[Preview], columns: int) -> None:
    heights = [_height(preview, size, columns) for preview in shown]
    for part, preview in zip(stacked(body, heights), shown, strict=True):
        part.suptitle(
            cut(preview.title, size.letters(size.body, bold=True), "middle"),
            x=0.012,
            ha="left",
            weight="bold",
        )
        grid = part.subplots(len(preview.images), columns, squeeze=False)
        for ax, head in zip(grid[0], ("clean", *preview.levels), strict=False):
            ax.set_title(
                cut(head, size.letters(size.body / columns)), color=FAINT, weight="normal", pad=2
            )
        for line, images in zip(grid, preview.images, strict=True):
            for ax, image in zip_longest(line, images):
                quiet(ax, image)
