"""The pictures by name, of sections and others: as files, as figures and as parts of an HTML page."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from robaudit.errors import RobauditError, did_you_mean
from robaudit.report import sections
from robaudit.report.pictures import KINDS, can_draw
from robaudit.report.pictures.page import NARROWEST, PictureSize, Sketch, page
from robaudit.report.sections import Ask, Found
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robaudit.report.gallery import ImageSource

OF_IMAGES = ("flagged", "sample")
"""The kinds that read the data set."""
_WIDEST, _SMALL_BELOW = 20.0, 6.0  # inches: narrower pictures have letters of 7 points instead of 9
_INLINE = PictureSize(width=6.6, size=10.0, title=True, caption=False)


def found_in(kind: str, runs: Sequence[Run], ask: Ask) -> list[Found[Any]]:
    """What a picture of these runs draws.

    Raises:
        RobauditError: there is no such kind, or a run has nothing that it could show.
    """
    module = _module(kind)
    if hasattr(module, "narrowed"):
        ask = module.narrowed(runs, ask)
    if kind in list(sections.SectionName):
        return sections.section_of(sections.SectionName(kind)).find(runs, ask)
    names = sections.run_names(runs, ask.label)
    return [Found(name, run, one) for run, name in zip(runs, names, strict=True) for one in module.records(run, ask)]


def sketch_of(kind: str, found: Sequence[Found[Any]], ask: Ask, images: ImageSource | None = None) -> Sketch:
    """A picture, still to be drawn.

    Args:
        kind: one of :data:`KINDS`.
        found: at least one record of each run, from :func:`found_in` or from the section of the same name.
        ask: what was asked for.
        images: where samples are read, for :data:`OF_IMAGES`; None: where the runs' own specs say.
    """
    made: Sketch = _module(kind).sketch(found, ask, *([images] if kind in OF_IMAGES else []))
    return made


def _module(kind: str) -> ModuleType:
    if kind not in KINDS:
        raise RobauditError(f"kind {kind!r}", "there is no such picture", did_you_mean(kind, KINDS))
    return import_module(f"robaudit.report.pictures.{kind}")


def picture(made: Sketch, format_: str, look: PictureSize) -> bytes:
    """A picture as the bytes of a file: the same ones for the same records.

    Args:
        made: from :func:`sketch_of`.
        format_: png (300 dpi), svg or pdf.
        look: from :func:`look_of`.
    """
    from robaudit.report.pictures.style import saved, styled

    with styled(look.size):
        size, draw = page(made, look)
    return saved(format_, size, draw, letters=look.size)


def figure_of(made: Sketch, look: PictureSize) -> Figure:
    """A picture as a matplotlib figure, which a notebook shows; see :func:`picture`."""
    from robaudit.report.pictures.style import figure, styled

    with styled(look.size):
        size, draw = page(made, look)
    return figure(size, draw, look.size)


def look_of(width: float, *, title: bool = True, caption: bool = True) -> PictureSize:
    """The look of a picture of this width: letters of 9 points, of 7 where it is narrower than a page.

    Raises:
        RobauditError: the width does not fit a page.
    """
    if not NARROWEST <= width <= _WIDEST:
        raise RobauditError(f"--width {width:g}", "does not fit a page", f"give {NARROWEST:g} to {_WIDEST:g} inches")
    return PictureSize(width, 9.0 if width >= _SMALL_BELOW else 7.0, title, caption)


def inline(kind: str, found: Sequence[Found[Any]], ask: Ask, images: ImageSource | None = None) -> tuple[str, str]:
    """A picture as an ``<svg>`` element without its caption, and the caption, without its lead: text for the page to escape and wrap.

    Args:
        kind, found, ask, images: as for :func:`sketch_of`.

    Raises:
        RobauditError: matplotlib is not installed, or images cannot be read.
    """
    can_draw(required=True, where=f"the picture {kind}")
    return inline_sketch(kind, sketch_of(kind, found, ask, images))


def inline_sketch(kind: str, made: Sketch) -> tuple[str, str]:
    """The same of a sketch."""
    from robaudit.report.pictures.inline import inline as element
    from robaudit.report.pictures.style import saved, styled

    with styled(_INLINE.size):
        size, draw = page(made, _INLINE)
    salt = hashlib.sha256(made.caption.encode("utf-8", "backslashreplace")).hexdigest()
    return element(saved("svg", size, draw, letters=_INLINE.size, text=True), kind, made.title, "", salt), made.caption
