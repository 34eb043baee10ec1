"""Transformers' description of a trained model: config.json, and preprocessor_config.json for its images.

Of an image processor with two backends, the one with Pillow is followed; docs/model-and-data.md says how far off the other is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.errors import ModelError
from robaudit.spec.pretrained.base import Entries, Pretrained, read_object
from robaudit.text import distinct

FAMILY = "transformers:"
PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's number
_HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_UNNAMED = re.compile(r"LABEL_\d+")
_LEAST_WARPED = 384  # from this size on, ConvNext's processor stretches the image instead of cropping it


@dataclass(frozen=True, slots=True)
class _Defaults:
    """The defaults of a class of image processors.

    Attributes:
        norm: mean and std.
        size: (height, width), or the shorter side.
        crop: side of the central square; None: no crop.
        resample: Pillow's number of the filter.
        share: of the resized side that is kept, if the processor enlarges by it.
    """

    norm: tuple[tuple[float, ...], tuple[float, ...]]
    size: tuple[int, int] | int
    crop: int | None = None
    resample: int = 3
    share: float | None = None


_KNOWN: Mapping[str, _Defaults] = {
    "ViT": _Defaults(_HALF, (224, 224), resample=2),
    "DeiT": _Defaults(_HALF, (256, 256), 224),
    "Beit": _Defaults(_HALF, (224, 224)),
    "Bit": _Defaults(_CLIP, 224, 224),
    "CLIP": _Defaults(_CLIP, 224, 224),
    "Siglip": _Defaults(_HALF, (224, 224)),
    "ConvNext": _Defaults(_HALF, 384, share=224 / 256),
    "MobileNetV1": _Defaults(_HALF, 256, 224, resample=2),
    "MobileNetV2": _Defaults(_HALF, 256, 224, resample=2),
    "Pvt": _Defaults(_IMAGENET, (224, 224)),
    "Segformer": _Defaults(_IMAGENET, (512, 512), resample=2),
    "PoolFormer": _Defaults(_IMAGENET, 224, 224, share=0.9),
    "Levit": _Defaults(_IMAGENET, 224, 224),
    "EfficientNet": _Defaults(_HALF, (346, 346)),
}
"""Image processors by name, without ImageProcessor; others are not supported."""


def from_config(config: Mapping[str, Any], path: Path) -> Pretrained:
    """Read the config.json and preprocessor_config.json that ``save_pretrained`` writes.

    Raises:
        ModelError: an entry is not as Transformers writes it, or the network is not an image classifier.
    """
    entries = Entries(config, str(path))
    name = _class_of(entries)
    channels = entries.whole("num_channels", 3)
    names, notes = _names(entries)
    beside = next((file for file in (path.parent / PREPROCESSOR, path.parent / PROCESSOR) if file.is_file()), None)
    if beside is None:
        notes = (*notes, f"there is no {PREPROCESSOR} with it: mean, std, resize and crop are the spec's")
        return Pretrained(str(path), FAMILY + name, class_names=names, notes=notes)
    found = read_object(beside)
    about = Entries(found.get("image_processor", found) if beside.name == PROCESSOR else found, str(beside))
    kind = _processor_of(about)
    if kind is None:
        how = about.text("image_processor_type") or about.text("feature_extractor_type") or "no image_processor_type"
        what, remedy = (
            f"prepares images in a way that is not known here ({how})",
            "write mean and std in the model section, and what images need",
        )
        return Pretrained(str(path), FAMILY + name, class_names=names, notes=notes, unclear=ModelError(about.where, what, remedy))
    mean, std = _normalisation(about, kind)
    images = _geometry(about, kind) | ({"channels": channels} if channels in (1, 3) else {})
    return Pretrained(f"{path} and {beside.name}", FAMILY + name, {}, mean, std, images, names, None, notes)


def _class_of(entries: Entries) -> str:
    listed = entries.values.get("architectures")
    if not isinstance(listed, list | tuple) or len(listed) != 1 or not isinstance(listed[0], str):
        raise entries.wrong("architectures", "a list of one class")
    name = listed[0]
    if "ForImageClassification" not in name:
        remedy = "give a model that was trained with a class such as ViTForImageClassification"
        raise ModelError(entries.where, f"describes a {name}, which is not an image classifier of Transformers", remedy)
    return name


def _names(entries: Entries) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Class names from ``id2label``; Transformers writes LABEL_0, LABEL_1 for unnamed classes."""
    labels = entries.part("id2label")
    try:
        by_index = {int(index): str(name) for index, name in labels.items()}
    except ValueError:
        raise entries.wrong("id2label", "an object by class index") from None
    if not by_index or all(_UNNAMED.fullmatch(name) for name in by_index.values()):
        return None, ()
    if sorted(by_index) != list(range(len(by_index))):
        return None, ("its id2label is left out: it does not name every class from 0 on",)
    return distinct([by_index[index] for index in range(len(by_index))]), ()


def _processor_of(about: Entries) -> str | None:
    """The name of the image processor, without the parts that differ between versions and backends; None if it is not supported."""
    name = about.text("image_processor_type") or about.text("feature_extractor_type") or ("ViT" if "size" in about.values else "")
    kind = re.sub(r"(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", name)
    if any(about.values.get(key) for key in ("do_pad", "do_flip_channel_order", "do_color_quantize")):
        return None
    return kind if kind in _KNOWN else None


def _normalisation(about: Entries, kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of pixels in [0, 1]: ``(255 factor x - offset - mean) / std`` as ``(x - mean') / std'``."""
    defaults = _KNOWN[kind].norm
    factor = (about.number("rescale_factor", 1 / 255) or 1 / 255) if about.flag("do_rescale", True) else 1.0
    scale = 255 * factor
    scale = 1.0 if abs(scale - 1) < 1e-9 else scale
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if about.flag("do_normalize", True):
        mean, std = about.numbers("image_mean", defaults[0]), about.numbers("image_std", defaults[1], positive=True)
    if kind == "EfficientNet":
        if about.flag("rescale_offset", False):
            mean = tuple(value + 1 for value in mean)
        if about.flag("include_top", True):
            again = about.numbers("image_std", defaults[1], positive=True)
            std = tuple(one * two for one, two in zip(std * (len(again) // len(std)), again, strict=True))
    if scale == 1 and not any(mean) and all(value == 1 for value in std):
        return (), ()
    return tuple(value / scale for value in mean), tuple(value / scale for value in std)


def _geometry(about: Entries, kind: str) -> dict[str, Any]:
    """Resize and crop as the Pillow backend does them, as keys of the data set."""
    defaults, images = _KNOWN[kind], dict[str, Any]()
    resample = about.values.get("resample", defaults.resample)
    if not (isinstance(resample, int) and 0 <= resample < len(_FILTERS)):
        raise about.wrong("resample", "the number of one of Pillow's filters")
    if about.flag("do_resize", True):
        images = {"interpolation": _FILTERS[resample], **_resize(about, kind, defaults)}
    if about.flag("do_center_crop", defaults.crop is not None):
        side = defaults.crop or (defaults.size if isinstance(defaults.size, int) else defaults.size[0])
        crop = _size(about, "crop_size", (side, side))
        images |= {"crop": crop if isinstance(crop, tuple) and crop[0] != crop[1] else _side(crop), "crop_rounding": "floor"}
    return images


def _resize(about: Entries, kind: str, defaults: _Defaults) -> dict[str, Any]:
    size = _size(about, "size", defaults.size)
    if kind == "Levit" and isinstance(size, int):
        return {"resize": int(256 / 224 * size)}
    share = about.number("crop_pct", defaults.share)
    if defaults.share is None or share is None:
        return {"resize": size}
    if kind == "ConvNext":
        side = _side(size)
        if side >= _LEAST_WARPED:
            return {"resize": (side, side)}
        return {"resize": int(side / share), "crop": side, "crop_rounding": "floor"}
    if isinstance(size, tuple) and size[0] != size[1]:
        return {"resize": (int(size[0] / share), int(size[1] / share))}
    return {"resize": int(_side(size) / share)}


def _side(size: int | tuple[int, int]) -> int:
    return size if isinstance(size, int) else size[0]


def _size(about: Entries, key: str, default: tuple[int, int] | int) -> int | tuple[int, int]:
    """A size as (height, width) or as the shorter side, in all forms that Transformers has used."""
    found = about.values.get(key)
    if found is None:
        return default
    if isinstance(found, int):
        side = about.whole(key) or 1
        return (side, side) if isinstance(default, tuple) else side
    if isinstance(found, list | tuple):
        sides = about.wholes(key) or ()
        if len(sides) == 2:
            return (sides[0], sides[1])
    if isinstance(found, dict):
        inner = Entries({name: value for name, value in found.items() if value is not None}, f"{about.where}: {key}")
        if inner.values.keys() == {"shortest_edge"}:
            return inner.whole("shortest_edge") or 1
        if inner.values.keys() == {"height", "width"}:
            return (inner.whole("height") or 1, inner.whole("width") or 1)
    raise about.wrong(key, "a height and width, or a shortest_edge")
