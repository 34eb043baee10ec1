"""The gallery of a run: a card for each listed sample."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.report import numbers
from robaudit.report.flagged import is_beyond
from robaudit.report.html.content import Content, RunView
from robaudit.report.html.verdict import NO_THRESHOLD, flag_rule
from robaudit.report.summary import MEANINGS
from robaudit.report.words import bracketed_certainties
from robaudit.stats.flags import Certainty, Flag, Flagged
from robaudit.store.run import Run
from robaudit.text import class_name, clipped, printable

if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.report.gallery import ImageSource, RunImages

SMALL, LARGEST = 64, 160
_QUALITY = 88
_LONGEST_ID = 80


class Thumbnail(NamedTuple):
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


class Card(NamedTuple):
    """One sample of the gallery.

    Attributes:
        rank: place in the list, from 1; the least robust is first.
        name: the sample's id.
        label, predicted, flips_to: classes as text; empty where unknown.
        judged: "correct", "wrong" or "unlabelled" on the clean image.
        classes: indices of label and prediction.
        value, interval: as text.
        certainty: as in :class:`robaudit.stats.flags.Flag`, or NO.
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
    certainty: Certainty
    clean: Thumbnail | None
    noisy: Thumbnail | None


class Gallery(NamedTuple):
    """The cards of a result of a run; how many images are flagged, and what a card says."""

    title: str
    level: str
    caption: str
    cards: tuple[Card, ...]


class PageImages(NamedTuple):
    """The parts of a page that show images.

    Attributes:
        galleries: for each run and each shown estimator and noise level.
        problems: why images are missing, one line per reason.
        reduced: whether any image is smaller than the original.
    """

    galleries: tuple[Gallery, ...]
    problems: tuple[str, ...]
    reduced: bool


def show(content: Content, source: ImageSource | None = None, *, images: bool = True) -> PageImages:
    """The galleries of the runs; without images where a data set cannot be opened.

    Args:
        content: of the page.
        source: where to read images; None: where the runs' specs say.
        images: whether to show images.
    """
    galleries, problems, reduced = list[Gallery](), list[str](), False
    several = len(content.views) > 1
    for view in content.views:
        flagged = content.flagged(view)
        album = _Album(view.run, [sample.id for group in flagged for sample in group.samples], source) if images else None
        levels = numbers.level_texts(group.key.at for group in view.groups)
        for group in flagged:
            cards = tuple(_card(view, group, sample, rank, album) for rank, sample in enumerate(group.samples, start=1))
            level = levels[group.key.at]
            title = f"{view.name}: {group.key.estimator}, {level}" if several else f"{group.key.estimator}, {level}"
            galleries.append(Gallery(title, level, _caption(group, len(cards)), cards))
        if album is not None:
            problems, reduced = problems + album.problems, reduced or album.reduced
    return PageImages(tuple(galleries), tuple(dict.fromkeys(problems)), reduced)


def _caption(flagged: Flagged, cards: int) -> str:
    certain, rule = bracketed_certainties(flagged), flag_rule(flagged)
    text = f"{flagged.beyond:,} of {flagged.total:,} images are flagged{certain}; flagged means that {rule}."
    if not flagged.has_threshold:
        text = f"None of {flagged.total:,} images is flagged: {NO_THRESHOLD}."
    extra = max(0, cards - flagged.beyond)
    if cards - extra < flagged.beyond:
        text += f" Shown: the {cards - extra:,} least robust."
    if extra:
        text += f" Also shown: {extra} of the least robust that are not flagged."
    meaning = MEANINGS.get(flagged.key.quantity, flagged.unit)
    return f"{text} The large number on a card is {flagged.key.quantity}, the {meaning}, with its 95% interval."


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

    def __init__(self, run: Run, wanted: Sequence[str], source: ImageSource | None) -> None:
        from robaudit.report.gallery import RunImages

        self.problems: list[str] = []
        self.reduced = False
        self._images: RunImages | None = None
        try:
            self._images = RunImages(run, wanted, source)
        except RobauditError as error:
            self.problems.append(str(error))

    def pair(self, name: str, at: NoiseLevel) -> tuple[Thumbnail | None, Thumbnail | None]:
        """The clean image and its first noisy copy at this level."""
        if self._images is None:
            return None, None
        try:
            clean = self._images.clean(name)
        except RobauditError as error:
            self.problems.append(str(error))
            return None, None
        shown = thumbnail(clean)
        self.reduced = self.reduced or not shown.whole
        return shown, None if at.level is None else thumbnail(self._images.noisy(name, clean, at))


def _card(view: RunView, flagged: Flagged, sample: Flag, rank: int, album: _Album | None) -> Card:
    names, quantity = view.run.class_names, view.quantity(flagged.key.quantity)
    clean, noisy = (None, None) if album is None else album.pair(sample.id, flagged.key.at)
    beyond = is_beyond(sample, flagged)
    certainty = sample.certainty if beyond or sample.certainty is Certainty.UNDECIDED else Certainty.NO
    judged = "unlabelled" if sample.label is None else "correct" if sample.label == sample.predicted else "wrong"
    value, _, ends = numbers.sample_value(sample, quantity.low, quantity.high).partition(" [")
    return Card(
        rank=rank,
        name=clipped(printable(sample.id), _LONGEST_ID),
        label="" if sample.label is None else class_name(sample.label, names, 40),
        predicted=class_name(sample.predicted, names, 40),
        flips_to="" if sample.flips_to is None else class_name(sample.flips_to, names, 40),
        judged=judged,
        classes=tuple(dict.fromkeys(index for index in (sample.label, sample.predicted) if index is not None)),
        value=value,
        interval=f"[{ends}" if ends else "no interval" if value.startswith(numbers.NO_INTERVAL) else "",
        certainty=certainty,
        clean=clean,
        noisy=noisy,
    )
