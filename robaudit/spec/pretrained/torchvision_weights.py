"""torchvision's description of trained weights: the member of a weights enum, with its transforms and class names."""

from __future__ import annotations

import re
from typing import Any

from robaudit.errors import ModelError, did_you_mean
from robaudit.spec.pretrained.base import Pretrained
from robaudit.text import distinct

FAMILY = "torchvision:"
_FILE = re.compile(r"[\w.-]+-[0-9a-f]{8}\.pth")


def weights_named(name: str) -> Any:
    """The member of a weights enum of ``torchvision.models``, such as ``ResNet50_Weights.IMAGENET1K_V2``.

    Raises:
        ModelError: there is none of that name, or not of an image classifier.
    """
    return _member(name)[1]


def from_weights(name: str) -> Pretrained:
    """Architecture, transforms and class names of weights by name; nothing is downloaded.

    Raises:
        ModelError: there are none of that name, or not of an image classifier.
    """
    from torchvision.transforms._presets import ImageClassification

    where = f"weights {name}"
    model, weights = _member(name)
    transform = weights.transforms()
    if not isinstance(transform, ImageClassification) or len(transform.crop_size) != 1 or len(transform.resize_size) != 1:
        raise ModelError(where, "are not of an image classifier", "for example ResNet50_Weights.IMAGENET1K_V2")
    images = {
        "resize": transform.resize_size[0],
        "crop": transform.crop_size[0],
        "interpolation": transform.interpolation.value,
        "channels": 3,
    }
    categories = weights.meta.get("categories")
    names = distinct(categories) if categories else None
    return Pretrained(where, FAMILY + model, _options(model, weights), tuple(transform.mean), tuple(transform.std), images, names)


def name_of_file(file: str) -> str | None:
    """The weights whose file torchvision publishes under this name (``resnet50-11ad3fa6.pth``); None if there are none."""
    if not _FILE.fullmatch(file):
        return None
    return next((name for name, (_, member) in _known().items() if member.url.endswith(f"/{file}") and not name.endswith(".DEFAULT")), None)


def _known() -> dict[str, tuple[str, Any]]:
    """The builder and the weights of every image classifier of torchvision, by the name of the weights."""
    from torchvision import models

    known = dict[str, tuple[str, Any]]()
    for model in models.list_models(module=models):
        enum = models.get_model_weights(model)
        known |= {f"{enum.__name__}.{name}": (model, member) for name, member in enum.__members__.items()}  # DEFAULT included
    return known


def _member(name: str) -> tuple[str, Any]:
    known = _known()
    if name not in known:
        same = [one for one in known if one.partition(".")[0] == name.partition(".")[0]]
        raise ModelError(f"weights {name}", "torchvision has no such weights", did_you_mean(name, same or known))
    return known[name]


def _options(model: str, weights: Any) -> dict[str, Any]:
    """The options that torchvision's builders change for trained weights."""
    options: dict[str, Any] = {}
    if model in ("googlenet", "inception_v3"):
        options["transform_input"] = True
    if model.startswith("vit_") and "min_size" in weights.meta:
        options["image_size"] = weights.meta["min_size"][0]
    return options
