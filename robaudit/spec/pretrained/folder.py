"""The files of a trained model: its configuration, and where its weights are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robaudit.errors import ModelError
from robaudit.files import expanded
from robaudit.spec.model import ModelSpec
from robaudit.spec.pretrained import hub, timm_config, torchvision_weights, transformers_config
from robaudit.spec.pretrained.base import Pretrained, read_object

CONFIG, ADAPTER = "config.json", "adapter_config.json"
INDEX = ".index.json"
_PREFERRED = (
    "model.safetensors",
    f"model.safetensors{INDEX}",
    "pytorch_model.bin",
    f"pytorch_model.bin{INDEX}",
    "pytorch_model.pth",
    "model.pth",
)
_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".pt2", ".onnx")
_ONLY_WEIGHTS = (".safetensors", ".bin", INDEX)
_FAMILIES = (timm_config.FAMILY, transformers_config.FAMILY)


def describe(model: ModelSpec, base_dir: Path) -> Pretrained | None:
    """The description of a spec's model in its files; None if they have none, and the spec must have everything.

    The configuration is used for a folder, for a file next to it whose architecture the spec names as one of timm or Transformers (or
    does not name, although the file is .safetensors or .bin), and for a model of the Hub (which is downloaded, without its weights).

    Raises:
        RobauditError: a file is damaged, or of a model that is not supported.
    """
    if model.format is not None and model.format != "safetensors":
        return None
    if model.weights is not None:
        return torchvision_weights.from_weights(model.weights)
    folder, is_file = _config_folder(model, base_dir)
    theirs = model.architecture.startswith(_FAMILIES) if model.architecture else (model.path or "").endswith(_ONLY_WEIGHTS)
    if folder is not None and (not is_file or theirs):
        refuse_adapter(folder)
        found = _from_folder(folder, strict=not is_file)
        if found is not None:
            return found
    if (model.architecture or "").startswith(timm_config.FAMILY):
        return timm_config.from_name(model.architecture or "", model.architecture_options, f"architecture {model.architecture}")
    return None


def model_path(model: ModelSpec, base_dir: Path) -> Path | None:
    """The path of a spec's model on this machine: a file or a folder, with the weights; None if it has no path.

    Raises:
        RobauditError: it is on the Hub, and cannot be downloaded.
    """
    if model.path is None:
        return None
    if hub.is_hub(model.path):
        return hub.weights_folder(model.path, model.revision)
    return base_dir / expanded(model.path)


def weights_file(path: Path) -> Path:
    """The path itself, or, of a folder, the file of the weights in it (for weights in several files, their index).

    Raises:
        ModelError: there is none, or more than one.
    """
    if not os.path.isdir(path):  # noqa: PTH112  a name may be too long, or no path at all: its loader says so
        return path
    folder = path
    refuse_adapter(folder)
    for name in _PREFERRED:
        if (folder / name).exists():
            return folder / name
    try:
        others = sorted(file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES and not file.name.startswith("."))
    except OSError as error:
        raise ModelError(str(folder), f"cannot be listed: {error.strerror or error}", "give a folder that you may read") from error
    if len(others) == 1:
        return others[0]
    if not others:
        raise ModelError(str(folder), "is a directory without weights", f"give the weights file, or a folder with {_PREFERRED[0]}")
    listed = ", ".join(file.name for file in others[:5]) + (", ..." if len(others) > 5 else "")
    raise ModelError(str(folder), f"is a directory with several weights files ({listed})", "name one of them")


def refuse_adapter(folder: Path) -> None:
    """Refuse the folder of a LoRA adapter, by name.

    Raises:
        ModelError: it is one.
    """
    if (folder / ADAPTER).is_file():
        raise adapter(str(folder))


def adapter(where: str) -> ModelError:
    """The error for an adapter in place of a model."""
    remedy = "merge it into its model and save that: peft's model.merge_and_unload().save_pretrained(FOLDER)"
    return ModelError(where, "holds a LoRA adapter (PEFT), not the weights of a whole model", remedy)


def quantised(where: str, how: str) -> ModelError:
    """The error for quantised weights."""
    remedy = "give the weights before quantisation, in float32, float16 or bfloat16"
    return ModelError(where, f"holds quantised weights ({how}), which cannot be audited", remedy)


def _config_folder(model: ModelSpec, base_dir: Path) -> tuple[Path | None, bool]:
    """The folder in which a configuration may be, and whether the spec names a file in it."""
    if model.path is None:
        return None, False
    if hub.is_hub(model.path):
        return hub.config_folder(model.path, model.revision), False
    path = base_dir / expanded(model.path)
    try:
        if path.is_dir():
            return path, False
        return (path.parent, True) if path.is_file() else (None, True)
    except (OSError, ValueError):  # its loader says what is wrong with it
        return None, True


def _from_folder(folder: Path, *, strict: bool) -> Pretrained | None:
    path = folder / CONFIG
    if not path.is_file():
        return None
    config: Mapping[str, Any] = read_object(path)
    if config.get("quantization_config"):
        settings = config["quantization_config"]
        raise quantised(str(path), str(settings.get("quant_method", "quantization_config") if isinstance(settings, dict) else settings))
    if "architecture" in config:
        return timm_config.from_config(config, path)
    if "model_type" in config or "architectures" in config:
        return transformers_config.from_config(config, path)
    if strict:
        raise ModelError(
            str(path), "is neither timm's nor Transformers' description of a model", "give the weights file and its architecture"
        )
    return None
