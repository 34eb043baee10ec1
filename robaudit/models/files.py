"""The files of a trained model: its folder, its weights, and the copy of a model of the Hugging Face Hub."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from robaudit.errors import ModelError, needs_extra
from robaudit.files import expanded
from robaudit.spec.model import HUB, ModelSpec
from robaudit.text import first_line

CONFIG, ADAPTER = "config.json", "adapter_config.json"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""The files that say how Transformers prepares images."""
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
_MOST_BYTES = 2**25  # of a configuration; 21,000 class names take two million

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CONFIGS = (CONFIG, ADAPTER, *PROCESSORS)
_WEIGHTS = (
    ("model.safetensors", f"model.safetensors{INDEX}", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", f"pytorch_model.bin{INDEX}", "pytorch_model-*-of-*.bin"),
)


def model_path(model: ModelSpec, base_dir: Path) -> Path | None:
    """The local path of a spec's model: a file, or a folder with the weights; None if it has no path.

    Raises:
        RobauditError: it is on the Hub and cannot be downloaded.
    """
    if model.path is None:
        return None
    if is_hub(model.path):
        return hub_weights(model.path, model.revision)
    return base_dir / expanded(model.path)


def weights_file(path: Path) -> Path:
    """The path itself, or, for a folder, the weights file in it (for weights in several files, their index).

    Raises:
        ModelError: there is no weights file, or more than one.
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


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object.

    Raises:
        ModelError: it cannot be read, is too large, or holds something else.
    """
    where = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            raise ModelError(where, "is not a regular file of at most 32 MB", "restore the model's own file")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(where, f"cannot be read: {error.strerror or error}", "give a file that you may read") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(where, "is not valid JSON", "restore the model's own file") from error
    if not isinstance(document, dict):
        raise ModelError(where, "does not hold a JSON object", "restore the model's own file")
    return document


def refuse_adapter(folder: Path) -> None:
    """Refuse the folder of a LoRA adapter.

    Raises:
        ModelError: the folder holds an adapter.
    """
    if (folder / ADAPTER).is_file():
        raise adapter(str(folder))


def adapter(where: str) -> ModelError:
    """The error for an adapter in place of a model."""
    remedy = "merge it into its model and save that: peft's model.merge_and_unload().save_pretrained(FOLDER)"
    return ModelError(where, "holds a LoRA adapter (PEFT), not the weights of a whole model", remedy)


def quantised(where: str, method: str) -> ModelError:
    """The error for quantised weights."""
    remedy = "give the weights before quantisation, in float32, float16 or bfloat16"
    return ModelError(where, f"holds quantised weights ({method}), which cannot be audited", remedy)


def is_hub(path: str | None) -> bool:
    """Whether a model's path is on the Hub."""
    return (path or "").startswith(HUB)


def hub_config(path: str, revision: str | None) -> Path:
    """The local folder of a model's configuration, downloaded if missing; its name is the commit.

    Raises:
        RobauditError: huggingface_hub is not installed, there is no such model, or it cannot be reached.
    """
    return _hub_folder(path, revision, _CONFIGS, (CONFIG, ADAPTER), fetch=True)


def hub_weights(path: str, revision: str | None, *, fetch: bool = True) -> Path:
    """The local folder of a model with its weights: safetensors if it has them, otherwise a torch file.

    Without ``fetch``, nothing is downloaded.

    Raises:
        RobauditError: huggingface_hub is not installed, there is no such model or no weights, or it cannot be reached.
    """
    for patterns in _WEIGHTS:
        folder = _hub_folder(path, revision, (*_CONFIGS, *patterns), patterns[:2], fetch=fetch)
        if any((folder / name).exists() for name in patterns[:2]):
            return folder
    raise ModelError(path, "has no model.safetensors and no pytorch_model.bin", "give another model of the Hub, or a local folder")


def _hub_folder(path: str, revision: str | None, patterns: tuple[str, ...], wanted: tuple[str, ...], *, fetch: bool) -> Path:
    name = path.removeprefix(HUB)
    if not _HUB_NAME.fullmatch(name):
        raise ModelError(path, "is not of the form hf:org/name", "for example hf:timm/resnet18.a1_in1k; a revision has a key of its own")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise needs_extra(path, "huggingface_hub", "hf") from error

    if not fetch or _COMMIT.fullmatch(revision or ""):  # a commit does not change: a cached copy is current
        try:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns), local_files_only=True))
        except (OSError, ValueError):  # not in the cache
            folder = None
        if folder is not None and (not fetch or any((folder / file).exists() for file in wanted)):
            return folder
        if not fetch:
            raise ModelError(path, "is not on this machine, and a run folder downloads nothing", "fetch it first: robaudit estimate SPEC")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # of the library, or of its HTTP client
        what = f"cannot be downloaded ({type(error).__name__}: {first_line(error)})"
        raise ModelError(path, what, "check the name, the revision and the network; or give the local folder of a copy") from error
