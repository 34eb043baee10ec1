"""The files of a trained model: its folder, its configuration and its weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from robaudit.errors import ModelError
from robaudit.files import expanded
from robaudit.spec.model import ModelSpec
from robaudit.text import first_line

CONFIG = "config.json"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""The files that say how Transformers prepares images."""
# Names of weights in folders of timm and Transformers, safetensors first: it is data, no pickle.
_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth")
_MOST_BYTES = 2**25  # of a configuration; 21,000 class names take two million


def model_path(model: ModelSpec, base_dir: Path) -> Path | None:
    """The path of a spec's model, a file or a folder with the weights; None if it has no path."""
    return None if model.path is None else base_dir / expanded(model.path)


def weights_file(path: Path) -> Path:
    """The path itself, or, for a folder, the weights file in it.

    Raises:
        ModelError: there is no weights file.
    """
    if not os.path.isdir(path):  # noqa: PTH112  a name may be too long, or no path at all: its loader says so
        return path
    for name in _WEIGHTS:
        if (path / name).exists():
            return path / name
    raise ModelError(
        str(path),
        f"is a directory without {_WEIGHTS[0]}",
        "give the weights file, or a folder of timm or Transformers",
    )


def read_object(path: Path) -> dict[str, Any]:
    """A regular JSON file that holds an object.

    Raises:
        ModelError: it cannot be read, is too large, or holds something else.
    """
    try:
        # A giant would fill the memory as JSON.
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("more than 32 MB")
        document = json.loads(path.read_bytes())
        if not isinstance(document, dict):
            raise TypeError("another value")
    # RecursionError: a hundred thousand brackets.
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(
            str(path),
            f"is not a file with a JSON object ({first_line(error)})",
            "restore the model's own file",
        ) from error
    return document
