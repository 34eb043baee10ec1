"""Weights from a .safetensors file, or from all the files that an index lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from robaudit.errors import ModelError
from robaudit.models import state_dict
from robaudit.models.base import Format, LoadedNetwork, Source
from robaudit.models.files import INDEX, read_object
from robaudit.models.weights import fill


def load_safetensors(source: Source) -> LoadedNetwork:
    """Load a .safetensors file, or all files that an index lists, into its architecture.

    Raises:
        ModelError: the file is damaged, no architecture is given, or the weights do not fit or are not finite.
    """
    if source.spec.entry is not None:
        raise ModelError(source.where, "has no entries: safetensors holds the weights themselves", "remove model.entry")
    files = _files(source.file)
    pickled = source.file not in files and any(path.suffix != ".safetensors" for path in files)
    return fill(source, (state_dict.FORMAT if pickled else FORMAT).name, files, read_safetensors(source.file))


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a .safetensors file, or of all the files that an index lists.

    Raises:
        ModelError: a file is damaged, or too large to map.
    """
    tensors = dict[str, torch.Tensor]()
    for file in _files(path):
        tensors |= _read(file) if file.suffix == ".safetensors" or file == path else state_dict.read_state_dict(file)
    return tensors


def _read(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (RuntimeError, MemoryError) as error:  # torch's part: mapping the file
        raise ModelError(str(path), f"cannot be mapped into memory ({error})", "give a smaller file, or more memory") from error
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        what = f"is not a complete safetensors file ({error})"
        raise ModelError(str(path), what, "the file is truncated or damaged; save it again") from error


def _files(path: Path) -> list[Path]:
    """The file, or the files listed in an index of sharded weights."""
    files = [path.parent / name for name in _listed(path)] or [path]
    for file in files:
        if not file.is_file():
            raise ModelError(str(file), "there is no such file", f"{path.name} lists it: copy or download it, too")
    return files


def _listed(path: Path) -> Sequence[str]:
    """The names of the files that an index lists, which must lie in its folder; empty for other files."""
    if not path.name.endswith(INDEX):
        return ()
    names = read_object(path).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) and Path(name).name == name for name in names.values()):
        raise ModelError(str(path), "does not list files beside it under weight_map", "restore the model's own file")
    return sorted(set(names.values()))


def _recognises(head: bytes, _: Sequence[str]) -> bool:
    return len(head) > 8 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= 10**8


FORMAT = Format("safetensors", load_safetensors, (".safetensors", INDEX), _recognises, read_safetensors, _listed)
