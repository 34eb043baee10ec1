"""The gallery of a run: a card for each listed sample, and images that show what the noise looks like."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.report import numbers
from robaudit.report.flag_tables import is_beyond
from robaudit.report.html.content import Content
from robaudit.report.html.tables import bar_of
from robaudit.report.tables import Bar
from robaudit.stats.flags import Certainty, Flag, Flagged
from robaudit.text import class_name, clipped, printable

if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.report.gallery import ImageSource, RunImages

SMALL, LARGEST = 64, 160
_QUALITY = 88
_LONGEST_ID = 80
NOT_FLAGGED = "not flagged"


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """An image for ``<img src>``.

    Attributes:
        uri: data:image/png or data:image/jpeg.
        width, height: of the stored image, in pixels.
        whole: whether every pixel of the original is kept; a reduced image averages some of the noise away.
    """

    uri: str
    width: int
    height: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Card:
    """One sample of the gallery.

    Attributes:
        rank: place in the list, from 1; the least robust is first.
        name: the sample's id.
        label, predicted, flips_to: classes as text; empty where unknown.
        judged: "correct", "wrong" or "unlabelled" on the clean image.
        classes: indices of label and prediction.
        value, interval: as text.
        bar: on the scale of the quantity.
        certainty: as in :class:`robaudit.stats.flags.Flag`, or NO.
        badge: what the card says about it.
        clean, noisy: the images; None where there are none.
    """

    rank: int
    name: str
    label: str
    predicted: str
    flips_to: str
    judged: str
    classes: tuple[int, ...]
    value: str
    interval: str
    bar: Bar | None
    certainty: Certainty
    badge: str
    clean: Thumbnail | None
    noisy: Thumbnail | None


@dataclass(frozen=True, slots=True)
class Gallery:
    """The cards of one estimator and noise level."""

    flagged: Flagged
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One image without noise and at every noise level of the run."""

    name: str
    clean: Thumbnail
    noisy: tuple[tuple[str, Thumbnail], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of a page that show images.

    Attributes:
        galleries: for each shown estimator and noise level.
        examples: of noise.
        problems: why images are missing, one line per reason.
        reduced: whether any image is smaller than the original.
    """

    galleries: tuple[Gallery, ...]
    examples: tuple[Example, ...]
    problems: tuple[str, ...]
    reduced: bool


def show(content: Content, source: ImageSource | None = None, *, images: bool = True) -> Shown:
    """The galleries of a run; without images where its data set cannot be opened.

    Args:
        content: of the run.
        source: where images are read; None: where the run's spec says.
        images: whether any are wanted.
    """
    album = _Album(content, source) if images else None
    galleries = tuple(
        Gallery(one, tuple(_card(content, one, sample, rank, album) for rank, sample in enumerate(one.samples, start=1)))
        for one in content.flagged
    )
    if album is None:
        return Shown(galleries, (), (), False)
    examples = tuple(example for name in content.examples if (example := _example(content, name, album)) is not None)
    return Shown(galleries, examples, tuple(dict.fromkeys(album.problems)), album.reduced)


def thumbnail(pixels: Tensor) -> Thumbnail:
    """A thumbnail of pixels (channels, height, width) in [0, 1]; what lies outside is cut off.

    Up to 64 pixels a side it is a PNG of exactly these pixels, for the browser to enlarge; a larger image is a JPEG of 160 pixels a side.
    """
    from PIL import Image

    from robaudit.report.gallery import as_array

    array = as_array(pixels)
    image = Image.fromarray(array[:, :, 0] if len(pixels) == 1 else array)
    whole = max(image.size) <= SMALL
    if not whole:
        image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    if whole:
        image.save(sink, format="PNG", optimize=True)
    else:
        image.save(sink, format="JPEG", quality=_QUALITY, optimize=True)
    kind = "png" if whole else "jpeg"
    return Thumbnail(f"data:image/{kind};base64,{base64.b64encode(sink.getvalue()).decode()}", *image.size, whole)


class _Album:
    """The thumbnails of a run, as far as its images can be read; each is read once per noise level."""

    def __init__(self, content: Content, source: ImageSource | None) -> None:
        from robaudit.report.gallery import RunImages

        self.problems: list[str] = []
        self.reduced = False
        self._images: RunImages | None = None
        wanted = [*(sample.id for one in content.flagged for sample in one.samples), *content.examples]
        try:
            self._images = RunImages(content.run, wanted, source)
        except RobauditError as error:
            self.problems.append(str(error))

    def thumbnails(self, name: str, levels: Sequence[NoiseLevel]) -> list[Thumbnail] | None:
        """The clean image and its first noisy copy at each level."""
        if self._images is None:
            return None
        try:
            clean = self._images.clean(name)
        except RobauditError as error:
            self.problems.append(str(error))
            return None
        made = [thumbnail(clean), *(thumbnail(self._images.noisy(name, clean, at)) for at in levels if not at.levelless)]
        self.reduced = self.reduced or not made[0].whole
        return made


def _card(content: Content, one: Flagged, sample: Flag, rank: int, album: _Album | None) -> Card:
    names, quantity = content.run.class_names, content.quantity(one.key.quantity)
    pair = None if album is None else album.thumbnails(sample.id, [one.key.at])
    beyond = is_beyond(sample, one)
    certainty = sample.certainty if beyond or sample.certainty is Certainty.UNDECIDED else Certainty.NO
    judged = "unlabelled" if sample.label is None else "correct" if sample.label == sample.predicted else "wrong"
    return Card(
        rank=rank,
        name=clipped(printable(sample.id), _LONGEST_ID),
        label="" if sample.label is None else class_name(sample.label, names, 40),
        predicted=class_name(sample.predicted, names, 40),
        flips_to="" if sample.flips_to is None else class_name(sample.flips_to, names, 40),
        judged=judged,
        classes=tuple(dict.fromkeys(index for index in (sample.label, sample.predicted) if index is not None)),
        value=numbers.sample_number(sample, quantity),
        interval="no interval" if (ends := numbers.interval(sample.lower, sample.upper)) == numbers.NONE else ends,
        bar=bar_of(sample.value, sample.lower, sample.upper, quantity),
        certainty=certainty,
        badge=NOT_FLAGGED if certainty is Certainty.NO else certainty,
        clean=None if pair is None else pair[0],
        noisy=None if pair is None or len(pair) == 1 else pair[1],
    )


def _example(content: Content, name: str, album: _Album) -> Example | None:
    levels = {at: text for at, text in content.levels.items() if not at.levelless}
    images = album.thumbnails(name, list(levels))
    if images is None:
        return None
    return Example(clipped(printable(name), _LONGEST_ID), images[0], tuple(zip(levels.values(), images[1:], strict=True)))
