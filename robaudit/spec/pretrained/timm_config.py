"""timm's description of a trained model: the config.json of a folder, or timm's own entry for a name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robaudit.errors import ModelError, needs_extra
from robaudit.spec.pretrained.base import Entries, Pretrained
from robaudit.text import distinct

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CROP_PCT, _INTERPOLATION, _SIZE = 0.875, "bicubic", (3, 224, 224)  # where an entry is missing, as in timm.data.resolve_data_config
_INTERPOLATIONS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
_CROP_MODES = ("center", "squash", "border")
_MOST_CLASSES = 10**6
FAMILY = "timm:"


def from_config(config: Mapping[str, Any], path: Path) -> Pretrained:
    """Read the config.json that ``timm.models.save_for_hf`` (or ``push_to_hf_hub``) writes.

    Args:
        config: its content.
        path: of the file, for messages.

    Raises:
        ModelError: an entry is not as timm writes it.
    """
    entries = Entries(config, str(path))
    name = entries.text("architecture") or ""
    cfg = entries.part("pretrained_cfg") if "pretrained_cfg" in config else dict(config)  # one flat object in old files
    arguments = entries.part("model_args")
    about = Entries(cfg, str(path))
    if config.get("num_classes", cfg.get("num_classes")) == 0:
        raise ModelError(str(path), "describes a network without a classifier (num_classes 0)", "give a model that was trained to classify")
    classes = entries.whole("num_classes") or about.whole("num_classes")
    options = {**({} if classes is None else {"num_classes": classes}), **arguments}
    size = _resized(Entries(arguments, str(path)), about)
    named = {key: config.get(key, cfg.get(key)) for key in ("label_names", "label_descriptions")}
    labels = named["label_names"] if named["label_names"] is not None else config.get("labels", cfg.get("labels"))
    names, ids, notes = _names(labels, named["label_descriptions"], classes, entries)
    if names is None and not notes and classes == 1000 and str(cfg.get("tag") or "").endswith("in1k"):
        names, ids = imagenet_names(str(path))
    return _pretrained(str(path), name, options, about, size, names, ids, notes)


def from_name(architecture: str, options: Mapping[str, Any], where: str) -> Pretrained | None:
    """timm's own entry for ``timm:NAME``; None if timm has no such name (building the network then fails).

    Raises:
        RobauditError: timm is not installed.
    """
    name = architecture.removeprefix(FAMILY)
    try:
        from timm.models import get_pretrained_cfg
    except ImportError as error:
        raise needs_extra(where, "timm", "timm") from error

    try:
        found: Any = get_pretrained_cfg(name)
    except (ValueError, RuntimeError, KeyError):
        return None
    if found is None:
        return None
    cfg = found.to_dict()
    source = f"timm's entry for {name}{f'.{found.tag}' if found.tag and '.' not in name else ''}"
    classes = options.get("num_classes", cfg.get("num_classes"))
    names, ids = imagenet_names(where) if classes == 1000 and str(found.tag or "").endswith("in1k") else (None, None)
    about = Entries(cfg, source)
    return _pretrained(source, name, {}, about, _resized(Entries(options, source), about), names, ids, ())


def imagenet_names(where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and synsets of ImageNet's 1000 classes, from timm's own lists.

    Raises:
        RobauditError: timm is not installed.
    """
    try:
        from timm.data.imagenet_info import ImageNetInfo
    except ImportError as error:
        raise needs_extra(where, "timm", "timm") from error
    info: Any = ImageNetInfo()
    ids = tuple(info.label_names())
    return distinct([info.label_name_to_description(one) for one in ids], ids), ids


def _resized(arguments: Entries, about: Entries) -> tuple[int, ...]:
    """Channels, height and width of the images, from the entry and the model's own arguments."""
    size = about.wholes("input_size") or _SIZE
    if len(size) != 3:
        raise about.wrong("input_size", "channels, height and width")
    channels, side = arguments.whole("in_chans") or size[0], arguments.values.get("img_size")
    if side is not None and about.values.get("fixed_input_size"):
        sides = arguments.wholes("img_size") if isinstance(side, list | tuple) else (arguments.whole("img_size") or 0,) * 2
        return (channels, *(sides or size[1:]))
    return (channels, *size[1:])


def _names(
    labels: object, descriptions: object, classes: int | None, entries: Entries
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, tuple[str, ...]]:
    """Class names, ids and notes from ``label_names`` (a list, or a mapping from index to name) and ``label_descriptions``."""
    if labels is None:
        return None, None, ()
    if isinstance(labels, Mapping):
        try:
            by_index = {int(index): name for index, name in labels.items()}
        except (TypeError, ValueError):
            raise entries.wrong("label_names", "a list, or an object by class index") from None
        last = max(by_index, default=-1)
        if last >= _MOST_CLASSES or min(by_index, default=0) < 0:
            raise entries.wrong("label_names", f"an object by class index below {_MOST_CLASSES:,}")
        labels = [by_index.get(index, "") for index in range(last + 1)]
    if not isinstance(labels, list | tuple) or not all(isinstance(name, str) for name in labels):
        raise entries.wrong("label_names", "a list of names")
    if classes is not None and len(labels) != classes:
        return None, None, (f"its {len(labels)} label names are left out: it has {classes} classes",)
    described = descriptions if isinstance(descriptions, Mapping) else {}
    if not described:
        return distinct(labels), None, ()
    return distinct([str(described.get(name, name)) for name in labels], labels), distinct(labels), ()


def _pretrained(
    source: str,
    name: str,
    options: Mapping[str, Any],
    about: Entries,
    size: tuple[int, ...],
    names: tuple[str, ...] | None,
    ids: tuple[str, ...] | None,
    notes: tuple[str, ...],
) -> Pretrained:
    mean, std = about.numbers("mean", _MEAN), about.numbers("std", _STD, positive=True)
    images = _images(about, size, mean)
    if len(mean) != size[0] and len(mean) != 1:
        notes = (*notes, f"its mean and std are for {len(mean)} channels and left out: it takes {size[0]}")
        mean, std = (), ()
    return Pretrained(source, FAMILY + name, options, mean, std, images, names, ids, notes)


def _images(about: Entries, size: tuple[int, ...], mean: tuple[float, ...]) -> dict[str, Any]:
    """The evaluation transform of timm (``transforms_imagenet_eval``) as keys of the data set."""
    channels, height, width = size
    share = about.number("crop_pct", _CROP_PCT) or _CROP_PCT
    mode = about.text("crop_mode") or "center"
    interpolation = about.text("interpolation") or _INTERPOLATION
    if mode not in _CROP_MODES:
        raise about.wrong("crop_mode", f"one of {', '.join(_CROP_MODES)}")
    if interpolation not in _INTERPOLATIONS:
        raise about.wrong("interpolation", f"one of {', '.join(_INTERPOLATIONS)}")
    scaled = math.floor(height / share), math.floor(width / share)
    images: dict[str, Any] = {"interpolation": interpolation, "crop": height if height == width else (height, width)}
    if share > 1:
        images["pad"] = 0  # the image does not fill the crop (VOLO, 1.15): black around it
    if mode == "squash":
        images["resize"] = scaled
    elif mode == "border":
        colour = tuple(min(255, max(0, round(255 * value))) for value in (mean * 3)[:3])
        images |= {"resize": scaled, "fit": "contain", "pad": colour}
    elif scaled[0] == scaled[1]:
        images["resize"] = scaled[0]
    else:
        images |= {"resize": scaled, "fit": "cover"}
    return images | ({"channels": channels} if channels in (1, 3) else {})
