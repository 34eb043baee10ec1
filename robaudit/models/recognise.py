"""Recognise a trained model by its files, for the spec that ``robaudit init`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robaudit.models.base import Source
from robaudit.models.files import weights_file
from robaudit.models.load import guess_format
from robaudit.models.pretrained import describe
from robaudit.models.weights import other_classes
from robaudit.spec.model import ModelSpec

_FAMILIES = ("timm:", "torchvision:")


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
