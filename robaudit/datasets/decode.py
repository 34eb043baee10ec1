"""Pixels from image files and raw values.

Conventions, which agree with torchvision's loaders where possible:

- grey from colour is ITU-R 601 luma; three channels from grey are three copies;
- 16-bit greyscale is divided by 65535; deeper colour is reduced to 8 bits by Pillow; 32-bit pixels
  have no known scale and are refused;
- transparency is flattened onto white;
- images are upright: an EXIF orientation is applied, as viewers and the library ``datasets`` do and
  torchvision's loaders do not;
- an animation is read as its first frame;
- ``resize`` is antialiased, and bilinear by default; an int is the length of the shorter side;
  ``crop`` is central.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from robaudit.errors import SampleError, ShapeError
from robaudit.spec.model import ImageOptions
from robaudit.text import first_line

MOST_BYTES = 2**29
"""The largest image file: some of Pillow's decoders read it whole."""
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Raster formats that Pillow may decode. Others (EPS) start external programs."""

# The brand in the first bytes of a file of ISO's base media format.
_HEAD = 12
_NOT_READ: Mapping[bytes, str] = {
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"mif1", b"msf1"), "an HEIC image"),
    **dict.fromkeys((b"avif", b"avis"), "an AVIF image"),
}
_CHANNELS = (1, 3)  # grey and colour: the sizes by which a layout is recognised
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")  # Pillow's modes
_ORIENTATION = 0x0112  # tag of EXIF
_UPRIGHT: Mapping[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The turn or reflection that makes an image upright, by its orientation in EXIF."""
_SIXTEEN_BITS = 65535.0
_MOST_AUDITED = 2**24  # pixels of an image for the network: 400 MB as float64 with three channels


# Pillow warns of metadata and of large images. Sizes are checked here, and an audit reads no
# metadata but the orientation.
warnings.filterwarnings("ignore", module=r"PIL\.")


def as_pixels(
    values: NDArray[Any] | Tensor,
    where: str,
    scale: float | None = None,
    *,
    channels_last: bool = False,
) -> Tensor:
    """Divide raw values by their scale: 255 for uint8, 1 for floats and booleans, unless ``scale``
    says otherwise.

    Values outside [0, 1] stay as they are: the audit's input check reports them.

    Args:
        values: (channels, height, width), or (height, width) for one channel.
        where: the sample, for messages.
        scale: full intensity in ``values``.
        channels_last: the values are (height, width, channels).

    Returns:
        A new float64 tensor (channels, height, width) on the CPU: x / 255 to full precision, for
        fp64 audits.

    Raises:
        SampleError: the shape is not an image's, the type has no known scale, or a value is NaN or
            infinite.
    """
    tensor = values.detach().cpu() if isinstance(values, Tensor) else _as_tensor(values, where)
    if tensor.ndim == 2:
        tensor = tensor.unsqueeze(0)
    elif channels_last:
        tensor = tensor.movedim(-1, 0)
    if tensor.ndim != 3 or 0 in tensor.shape:
        raise SampleError(
            where,
            f"the image has shape {tuple(values.shape)}",
            "it must be (c, h, w), (h, w, c) or (h, w)",
        )
    if scale is None:
        scale = _full_intensity(tensor.dtype)
    if scale is None or tensor.is_complex():
        raise SampleError(
            where,
            f"pixels are {tensor.dtype}",
            "give uint8, floats in [0, 1], or a scale where the data set takes one",
        )
    pixels = tensor.to(torch.float64, copy=True).contiguous()
    if scale != 1:
        pixels /= scale
    if not bool(torch.isfinite(pixels).all()):
        bad = int((~torch.isfinite(pixels)).sum())
        raise SampleError(
            where,
            f"{bad} of {pixels.numel()} pixels are NaN or infinite",
            "repair or leave out this sample",
        )
    return pixels


def _full_intensity(dtype: torch.dtype) -> float | None:
    """The value of white in images of this type; None if there is no usual one."""
    if dtype == torch.uint8:
        return 255.0
    if dtype.is_floating_point or dtype == torch.bool:
        return 1.0
    return None


def _as_tensor(values: NDArray[Any], where: str) -> Tensor:
    """A NumPy array, of any byte order and writability, as a tensor."""
    if values.dtype.kind not in "biuf":
        raise SampleError(
            where, f"pixels are of type {values.dtype}", "they must be numbers: uint8 or floats"
        )
    # torch takes neither foreign byte orders nor long doubles, and warns of read-only arrays.
    dtype = np.dtype(np.float64) if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(values, dtype=dtype, order="C"))


def layout_of(shape: Sequence[int]) -> Literal["nchw", "nhwc"] | None:
    """The layout of images of this shape: the axis of size 1 or 3 is the channels.

    None if both the first and the last axis have such a size, or neither.
    """
    first = shape[0] in _CHANNELS
    last = shape[-1] in _CHANNELS
    if first == last:
        return None
    return "nchw" if first else "nhwc"


def object_pixels(
    image: object, where: str, options: ImageOptions, layout: Literal["nchw", "nhwc"] | None = None
) -> Tensor:
    """The pixels of a PIL image, an array or a tensor.

    Args:
        image: the image; an array or tensor with three axes has this ``layout``.
        where: the sample, for messages.
        options: for PIL images; ``channels`` None keeps grey grey and colour colour.
        layout: default: guessed from the shape; channels first for a tensor of ambiguous shape.

    Raises:
        SampleError: it has another type, or is unusable.
    """
    if isinstance(image, Image.Image):
        return image_pixels(image, where, options)
    if not isinstance(image, Tensor | np.ndarray):
        raise SampleError(
            where,
            f"the image is {type(image).__name__}",
            "images are PIL images, arrays or tensors: open or convert it first",
        )
    if options.resize is not None or options.crop is not None:
        raise SampleError(
            where,
            f"is {type(image).__name__}, not an image",
            "resize and crop are for data sets of images",
        )
    if image.ndim == 3 and layout is None:
        layout = layout_of(image.shape)
        # torch's transforms and networks have the channels first; NumPy has no custom.
        if layout is None and isinstance(image, Tensor):
            layout = "nchw"
        if layout is None:
            raise SampleError(
                where,
                f"cannot tell the layout of shape {tuple(image.shape)}",
                "give layout='nchw' or layout='nhwc'",
            )
    return as_pixels(image, where, channels_last=layout == "nhwc" and image.ndim == 3)


def file_pixels(
    value: object, where: str, folder: Path, root: Path, options: ImageOptions
) -> Tensor:
    """The pixels of an image file, given by its path, its bytes, or ``{bytes, path}``.

    Args:
        value: the file: a regular file (or a link to one).
        where: the sample, for messages.
        folder: the base of relative paths.
        root: the folder that must contain the file, links resolved.
        options: resize, crop and channels.

    Returns:
        float64 (channels, height, width) in [0, 1].

    Raises:
        SampleError: the file is outside the root, missing, not a regular file, not an image,
            damaged, too large, or smaller than the crop.
    """
    with (
        _sample_errors(where),
        _opened(_source(value, where, folder, root), where, options) as image,
    ):
        return image_pixels(image, where, options)


def file_values(
    value: object, where: str, folder: Path, root: Path, options: ImageOptions
) -> tuple[NDArray[Any], float]:
    """The numbers of an image file as they are stored, resized and cropped; see
    :func:`file_pixels`.

    Returns:
        The numbers (channels, height, width), and the number of white: a quarter of the memory of
        pixels, or less.

    Raises:
        SampleError: as :func:`file_pixels`.
    """
    with (
        _sample_errors(where),
        _opened(_source(value, where, folder, root), where, options) as image,
    ):
        return image_values(image, where, options)


def is_turned(value: object, where: str, folder: Path, root: Path) -> bool:
    """Whether an image file, given as for :func:`file_pixels`, has an orientation by which it is
    turned upright; False if it cannot be read. Its pixels are not decoded."""
    try:
        with (
            _sample_errors(where),
            Image.open(_source(value, where, folder, root), formats=FORMATS) as image,
        ):
            return image.getexif().get(_ORIENTATION) in _UPRIGHT
    except SampleError:
        return False


def _source(value: object, where: str, folder: Path, root: Path) -> Path | io.BytesIO:
    """The file behind a value of :func:`file_pixels`.

    Raises:
        SampleError: it is outside the root, not a regular file, or of no usual size.
    """
    # A mapping is an image of the library ``datasets``.
    if isinstance(value, Mapping):
        content = value.get("bytes")
        path = value.get("path")
    else:
        content = value
        path = value
    if isinstance(content, bytes):
        _refuse_size(len(content), where)
        return io.BytesIO(content)
    if not isinstance(path, str) or not path:
        raise SampleError(where, "has no image", "leave it out")
    if "://" in path:
        raise SampleError(
            where,
            f"its image is at {path!r}",
            "nothing is downloaded: store the images in the data set",
        )
    # A list or a link of a stranger could name any file of the machine. The resolved path is
    # checked, and then opened: no link is followed after the check.
    real = Path(os.path.realpath(folder / path))
    if not real.is_relative_to(root):
        raise SampleError(
            where,
            "leads out of the folder of the data",
            "set root to a folder that all images lie in",
        )
    status = real.stat()
    # Pipes and devices could block forever.
    if not stat.S_ISREG(status.st_mode):
        raise SampleError(where, "is not a regular file", "give an image file")
    _refuse_size(status.st_size, where)
    return real


@contextlib.contextmanager
def _sample_errors(where: str) -> Iterator[None]:
    """Turn any exception while reading an image into a SampleError."""
    try:
        yield
    except SampleError:
        raise
    except FileNotFoundError:
        remedy = "correct the path or leave it out"
        if "\\" in where:  # a list that was written on Windows
            remedy = "folders are separated by / here, not by \\"
        raise SampleError(where, "no such file", remedy) from None
    except Image.DecompressionBombError:
        raise SampleError(
            where, "has more pixels than Pillow decodes", "make it smaller before the audit"
        ) from None
    except Exception as error:  # noqa: BLE001  Pillow's decoders raise nearly anything on damaged files
        problem = f"cannot be read, or is damaged ({first_line(error)})"
        if isinstance(error, UnidentifiedImageError):
            problem = "is not an image that Pillow can read"
        raise SampleError(where, problem, "repair or leave out this file") from None


@contextlib.contextmanager
def _opened(source: Path | io.BytesIO, where: str, options: ImageOptions) -> Iterator[Image.Image]:
    """The image with its pixels loaded.

    Raises:
        SampleError: its format is not read, or it is too large.
    """
    name = _unsupported(source)
    if name is not None:
        raise SampleError(where, f"is {name}, which is not read", "save it as JPEG or PNG")
    with Image.open(source, formats=FORMATS) as image:
        # Only the header has been read. An image that resize or crop makes smaller may be larger
        # here; its size is bounded by Pillow's own limit.
        if options.resize is None and options.crop is None:
            _refuse_giant(image.size, where, options)
        image.load()
        yield image


def _unsupported(source: Path | io.BytesIO) -> str | None:
    """The name of a usual format that is not read; None for anything else."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            head = file.read(_HEAD)
    else:
        head = source.getvalue()[:_HEAD]
    return _NOT_READ.get(head[8:]) if head[4:8] == b"ftyp" else None


def image_pixels(image: Image.Image, where: str, options: ImageOptions) -> Tensor:
    """Convert, resize and crop an opened image; ``options.channels`` None keeps grey grey and
    colour colour.

    Raises:
        SampleError: pixels of unknown scale, or smaller than the crop.
    """
    values, white = _prepared(image, where, options)
    pixels = as_pixels(values, where, white)
    channels = options.channels or 1
    return pixels.repeat(channels, 1, 1) if pixels.shape[0] < channels else pixels


def image_values(
    image: Image.Image, where: str, options: ImageOptions
) -> tuple[NDArray[Any], float]:
    """:func:`image_pixels` as they are stored: the numbers (channels, height, width), and the
    number of white.

    Raises:
        SampleError: as :func:`image_pixels`.
    """
    values, white = _prepared(image, where, options)
    channels = max(len(values), options.channels or 1)
    return np.array(np.broadcast_to(values, (channels, *values.shape[1:]))), white


def _prepared(image: Image.Image, where: str, options: ImageOptions) -> tuple[NDArray[Any], float]:
    """The numbers of the prepared image, and the number of white; grey has one channel."""
    channels: int = options.channels or (1 if is_grey(image) else 3)
    turn = _turn(image)
    flat, white = _flatten(image, where, channels)
    # Upright first: width and height of resize and crop are those that a viewer shows.
    upright = flat if turn is None else flat.transpose(turn)
    cropped = _crop(_resize(upright, where, options), where, options)
    _refuse_giant(cropped.size, where, options)
    values = np.asarray(cropped)  # (height, width) or (height, width, 3)
    if values.dtype.kind == "f":
        values = values.clip(0.0, white)  # filters may overshoot; with 8 bits Pillow clips, too
    return (values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0)), white


def is_grey(image: Image.Image) -> bool:
    """Whether the image has no colour by its mode; its pixels are not read."""
    return image.mode in _GREY


def _turn(image: Image.Image) -> Image.Transpose | None:
    """The turn or reflection that makes the image upright, as viewers show it; None: none."""
    image.load()  # here Pillow itself turns TIFFs, and removes the tag
    try:
        return _UPRIGHT.get(image.getexif().get(_ORIENTATION))
    except Exception:  # noqa: BLE001  damaged metadata raise nearly anything, and leave the image usable
        return None


def _flatten(image: Image.Image, where: str, channels: int) -> tuple[Image.Image, float]:
    """The image in mode L, RGB or F (16-bit grey), and the value of full intensity."""
    # PNG and PPM have at most 16 bits. In mode F, as 8 bits would lose half of them.
    sixteen_bits = image.mode.startswith("I;16")
    if sixteen_bits or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return image.convert("I").convert("F"), _SIXTEEN_BITS
    if image.mode in ("I", "F"):
        raise SampleError(
            where,
            "has 32-bit pixels, whose scale is not known",
            "save it with 8 or 16 bits, or use kind npz with scale",
        )
    # What lies under transparent pixels is arbitrary, and viewers show a background there.
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", colour.size, "white"), colour)
    # Grey stays one channel here, and is repeated after the resize, which then costs a third.
    if channels == 3 and image.mode not in ("1", "L"):
        return image.convert("RGB"), 255.0
    return image.convert("L"), 255.0


def _resize(image: Image.Image, where: str, options: ImageOptions) -> Image.Image:
    if options.resize is None:
        return image
    width, height = image.size
    if isinstance(options.resize, int):
        # The longer side is rounded down, as torchvision's Resize does.
        side = options.resize
        shorter = min(width, height)
        new_width = side if width == shorter else int(side * width / shorter)
        new_height = side if height == shorter else int(side * height / shorter)
    else:
        new_height, new_width = options.resize
    # A long strip may become a giant as its shorter side is enlarged.
    _refuse_giant((new_width, new_height), where, options)
    if image.size == (new_width, new_height):
        return image
    return image.resize((new_width, new_height), Image.Resampling[options.interpolation.upper()])


def _crop(image: Image.Image, where: str, options: ImageOptions) -> Image.Image:
    if options.crop is None:
        return image
    height, width = (options.crop, options.crop) if isinstance(options.crop, int) else options.crop
    if height > image.height or width > image.width:
        problem = (
            f"is {image.height} x {image.width} pixels, smaller than the crop of {height} x {width}"
        )
        raise ShapeError(where, problem, "set resize, which comes first, or a smaller crop")
    excess = np.array([image.height - height, image.width - width])
    # An odd excess has no exact centre. Transformers rounds the corner down; torchvision and timm
    # round halves to the even number, as NumPy does.
    if options.crop_rounding == "floor":
        top, left = (excess // 2).tolist()
    else:
        top, left = np.round(excess / 2).astype(int).tolist()
    return image.crop((left, top, left + width, top + height))


def _refuse_size(size: int, where: str) -> None:
    # Files of size 0 include those in /proc, which may never end.
    if size == 0:
        raise SampleError(where, "is an empty file", "repair or leave out this file")
    if size > MOST_BYTES:
        raise SampleError(where, f"has {size} bytes, more than {MOST_BYTES}", "give a smaller file")


def _refuse_giant(size: tuple[int, int], where: str, options: ImageOptions) -> None:
    if size[0] * size[1] > _MOST_AUDITED and not options.is_photo:
        raise SampleError(
            where,
            f"has {size[1]} x {size[0]} pixels, more than {_MOST_AUDITED}",
            "set resize or crop",
        )
