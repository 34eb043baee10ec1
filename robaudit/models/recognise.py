"""Recognise a trained model by its path alone: a folder, or a checkpoint that states its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robaudit.models import state_dict
from robaudit.models.architectures import families_of
from robaudit.models.base import Source
from robaudit.models.files import weights_file
from robaudit.models.load import guess_format
from robaudit.models.pretrained import describe
from robaudit.models.safety import load_tensors
from robaudit.models.state_dict import weights_of
from robaudit.models.weights import other_classes
from robaudit.spec.model import ModelSpec

_FAMILIES = ("timm:", "torchvision:")
_IMAGENET = 1000  # the default number of classes of architectures


def recognise(path: str, architecture: str | None, base: Path) -> tuple[dict[str, Any], str]:
    """The keys of a spec's ``model`` section that the model's files determine.

    Args:
        path: as in the spec.
        architecture: its name, if the user gave one.
        base: the folder of the spec.

    Returns:
        The keys besides path, mean and std (architecture, its options), and the files that supply the rest, or ''.

    Raises:
        RobauditError: a file is damaged, or of a model that is not supported.
    """
    keys: dict[str, Any] = {} if architecture is None else {"architecture": architecture}
    if architecture is not None and architecture.startswith(_FAMILIES):
        keys |= _classes_of(path, architecture, base)
    known = describe(ModelSpec(path=path, **keys), base)
    if known is not None:
        return keys, known.source
    if architecture is None and guess_format(file := weights_file(base / path), None) is state_dict.FORMAT:
        keys = _stated(file)
        known = describe(ModelSpec(path=path, **keys), base) if keys else None
    return keys, "" if known is None else known.source


def _classes_of(path: str, architecture: str, base: Path) -> dict[str, Any]:
    """The option for weights with another number of classes than the architecture's default, as after fine-tuning."""
    file = base / path
    read = guess_format(file, None).read if file.is_file() else None
    if read is None:
        return {}
    classes = other_classes(Source(ModelSpec(path=path, architecture=architecture), file, base), read(file))
    return {} if classes is None else {"architecture_options": {"num_classes": classes}}


def needs_architecture(path: str, base: Path) -> bool:
    """Whether a model without a configuration is only weights.

    Raises:
        ModelError: the file is missing, or of an unknown format.
    """
    return guess_format(weights_file(base / path), None).read is not None


def _stated(path: Path) -> dict[str, Any]:
    """The architecture that a checkpoint states under ``arch``, as the scripts of timm and of torchvision's users write it."""
    content = load_tensors(path)
    name = content.get("arch") if isinstance(content, Mapping) else None
    names = [full for full in families_of(name) if not full.startswith("robaudit:")] if isinstance(name, str) else []
    if not names:
        return {}
    timms = "version" in content or len(names) == 1  # timm's checkpoints have a version
    keys: dict[str, Any] = {"architecture": next((full for full in names if full.startswith("timm:") == timms), names[0])}
    matrices = [tensor for tensor in weights_of(content, None, str(path))[0].values() if tensor.dim() == 2]
    classes = matrices[-1].shape[0] if matrices else None
    return keys | ({"architecture_options": {"num_classes": classes}} if classes not in (None, _IMAGENET) else {})
