"""How does an image file become pixels?

Conventions, chosen to agree with torchvision's own loaders where those have a good answer:

- grey from colour is ITU-R 601 luma; three channels from grey are three copies;
- 16-bit greyscale is divided by 65535; deeper colour is reduced to 8 bits by Pillow; 32-bit pixels have no known scale and are refused;
- transparency is flattened onto white;
- the pixels are taken as stored: an EXIF orientation is not applied (torchvision's loaders do not either);
- of an animation, the first frame;
- ``resize`` is bilinear with antialiasing; an int is the length of the shorter side; ``crop`` is central.
"""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from robaudit.datasets.files import reason
from robaudit.datasets.pillow import MOST_PIXELS, hush
from robaudit.datasets.pixels import as_pixels
from robaudit.errors import SampleError
from robaudit.spec.model import ImageOptions

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What Pillow may decode: plain rasters. Others (EPS) start programs of the machine."""

_SIXTEEN_BITS = 65535.0
_MOST_AUDITED = 2**24  # of an image as the network gets it: 400 MB as float64 with three channels
_MOST_BYTES = 2**29  # of a file: some of Pillow's decoders read it whole


def read_image(path: Path, where: str, options: ImageOptions) -> Tensor:
    """Decode an image file.

    Args:
        path: a regular file (or a link to one).
        where: the sample, for messages.
        options: resize, crop and channels.

    Returns:
        float64 (channels, height, width) in [0, 1].

    Raises:
        SampleError: missing, no regular file, no image, damaged, too large, or smaller than the crop.
    """
    try:
        _refuse_special(path, where)
        hush()
        return _decoded(path, where, options)
    except SampleError:
        raise
    except FileNotFoundError:
        raise SampleError(where, "no such file", "correct the path or leave it out") from None
    except Image.DecompressionBombError:
        raise SampleError(where, f"has more than {MOST_PIXELS} pixels", "make it smaller before the audit") from None
    except Exception as error:  # noqa: BLE001  Pillow's decoders raise nearly anything on damaged files
        what = "is not an image that Pillow can read" if isinstance(error, UnidentifiedImageError) else _damage(error)
        raise SampleError(where, what, "repair or leave out this file") from None


def _decoded(path: Path, where: str, options: ImageOptions) -> Tensor:
    with Image.open(path, formats=FORMATS) as image:
        _refuse_bomb(image.size, where)
        if options.resize is None and options.crop is None:
            _refuse_giant(image.size, where)  # before its pixels are decoded
        image.load()
        return image_pixels(image, where, options)


def image_pixels(image: Image.Image, where: str, options: ImageOptions) -> Tensor:
    """Convert, resize and crop an opened image; ``options.channels`` None keeps grey grey and colour colour.

    Raises:
        SampleError: pixels of unknown scale, or smaller than the crop.
    """
    channels: int = options.channels or (1 if image.mode in ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L") else 3)
    flat, scale = _flatten(image, where, channels)
    cropped = _crop(_resize(flat, where, options.resize), where, options.crop)
    _refuse_giant(cropped.size, where)
    values = np.asarray(cropped)  # (height, width) or (height, width, 3)
    pixels = as_pixels(values if values.ndim == 2 else np.moveaxis(values, -1, 0), where, scale)
    return pixels.repeat(channels, 1, 1) if pixels.shape[0] < channels else pixels


def _flatten(image: Image.Image, where: str, channels: int) -> tuple[Image.Image, float]:
    """The image in mode L, RGB or F (16-bit grey), and the value of full intensity."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return image.convert("I").convert("F"), _SIXTEEN_BITS
    if image.mode in ("I", "F"):
        raise SampleError(where, "has 32-bit pixels, whose scale is not known", "save it with 8 or 16 bits, or use kind npz with scale")
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", colour.size, "white"), colour)
    if channels == 3 and image.mode not in ("1", "L"):
        return image.convert("RGB"), 255.0
    return image.convert("L"), 255.0


def _resize(image: Image.Image, where: str, size: int | tuple[int, int] | None) -> Image.Image:
    if size is None:
        return image
    width, height = image.size
    if isinstance(size, tuple):
        new = (size[1], size[0])
    else:
        short = min(width, height)
        new = (size if width == short else int(size * width / short), size if height == short else int(size * height / short))
    _refuse_bomb(new, where)
    return image if new == image.size else image.resize(new, Image.Resampling.BILINEAR)


def _crop(image: Image.Image, where: str, size: int | tuple[int, int] | None) -> Image.Image:
    if size is None:
        return image
    height, width = (size, size) if isinstance(size, int) else size
    if height > image.height or width > image.width:
        what = f"is {image.height} x {image.width} pixels, smaller than the crop of {height} x {width}"
        raise SampleError(where, what, "set resize, which comes first, or a smaller crop")
    top, left = round((image.height - height) / 2), round((image.width - width) / 2)
    return image.crop((left, top, left + width, top + height))


def _refuse_special(path: Path, where: str) -> None:
    """Refuse folders, pipes and devices, which could be waited for forever, and files without an end."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise SampleError(where, "is not a regular file", "give an image file")
    if about.st_size == 0:  # as the kernel's own files in /proc say, of which some never end
        raise SampleError(where, "is an empty file", "repair or leave out this file")
    if about.st_size > _MOST_BYTES:
        raise SampleError(where, f"has {about.st_size} bytes, more than {_MOST_BYTES}", "give a smaller file")


def _refuse_bomb(size: tuple[int, int], where: str) -> None:
    if size[0] * size[1] > MOST_PIXELS:
        raise SampleError(where, f"has {size[1]} x {size[0]} pixels, more than {MOST_PIXELS}", "make it smaller before the audit")


def _refuse_giant(size: tuple[int, int], where: str) -> None:
    if size[0] * size[1] > _MOST_AUDITED:
        raise SampleError(where, f"has {size[1]} x {size[0]} pixels, more than {_MOST_AUDITED}", "set resize or crop")


def _damage(error: Exception) -> str:
    return f"cannot be read ({reason(error)})" if isinstance(error, OSError) and error.strerror else f"is damaged ({reason(error)})"
