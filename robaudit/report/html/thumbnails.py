"""How does an image travel inside a page: as a data URI, small ones as they are and large ones reduced?"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from robaudit.report.gallery import as_array

SMALL, LARGEST = 64, 160
_QUALITY = 88


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """An image for ``<img src>``.

    Attributes:
        uri: data:image/png or data:image/jpeg.
        width, height: of the stored image, in pixels.
        whole: whether every pixel of the original is there; else it is reduced, which averages some of the noise away.
    """

    uri: str
    width: int
    height: int
    whole: bool


def thumbnail(pixels: Tensor) -> Thumbnail:
    """A thumbnail of pixels (channels, height, width) in [0, 1]; what lies outside is cut off.

    Up to 64 pixels a side it is a PNG of the very pixels, for the browser to enlarge; else a JPEG, reduced to 160 pixels a side.
    """
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
