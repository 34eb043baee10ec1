"""Models of the Hugging Face Hub: ``hf:org/name``, downloaded once, at a recorded revision."""

from __future__ import annotations

import re
from pathlib import Path

from robaudit.errors import ModelError, needs_extra
from robaudit.spec.model import HUB
from robaudit.text import first_line

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CONFIGS = ("config.json", "preprocessor_config.json", "processor_config.json", "adapter_config.json")
_WEIGHTS = (
    ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)


def is_hub(path: str | None) -> bool:
    """Whether a model's path is on the Hub."""
    return (path or "").startswith(HUB)


def config_folder(path: str, revision: str | None) -> Path:
    """The local folder of a model's configuration, downloaded if missing; its name is the commit.

    Raises:
        RobauditError: huggingface_hub is not installed, there is no such model, or it cannot be reached.
    """
    return _folder(path, revision, _CONFIGS, ("config.json", "adapter_config.json"))


def weights_folder(path: str, revision: str | None, *, fetch: bool = True) -> Path:
    """The local folder of a model with its weights: safetensors if it has them, otherwise a file of torch.

    Without ``fetch``, nothing is downloaded.

    Raises:
        RobauditError: huggingface_hub is not installed, there is no such model or no weights, or it cannot be reached.
    """
    for patterns in _WEIGHTS:
        folder = _folder(path, revision, (*_CONFIGS, *patterns), patterns[:2], fetch=fetch)
        if any((folder / name).exists() for name in patterns[:2]):
            return folder
    raise ModelError(path, "has no model.safetensors and no pytorch_model.bin", "give another model of the Hub, or a local folder")


def _folder(path: str, revision: str | None, patterns: tuple[str, ...], wanted: tuple[str, ...], *, fetch: bool = True) -> Path:
    name = path.removeprefix(HUB)
    if not _NAME.fullmatch(name):
        raise ModelError(path, "is not of the form hf:org/name", "for example hf:timm/resnet18.a1_in1k; a revision has a key of its own")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise needs_extra(path, "huggingface_hub", "hf") from error

    if not fetch or _COMMIT.fullmatch(revision or ""):  # a commit does not change: what is here already is right
        try:
            found = Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns), local_files_only=True))
        except (OSError, ValueError):  # not in the cache
            found = None
        if found is not None and (not fetch or any((found / one).exists() for one in wanted)):
            return found
        if not fetch:
            raise ModelError(path, "is not on this machine, and a run folder downloads nothing", "fetch it first: robaudit estimate SPEC")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the library's, and its HTTP client's
        what = f"cannot be downloaded ({type(error).__name__}: {first_line(error)})"
        raise ModelError(path, what, "check the name, the revision and the network; or give the local folder of a copy") from error
