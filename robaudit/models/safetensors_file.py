"""Weights from a .safetensors file."""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.errors import ModelError
from robaudit.models.base import Format, LoadedNetwork, Source
from robaudit.models.weights import fill


def load_safetensors(source: Source) -> LoadedNetwork:
    """Load a .safetensors file into its architecture.

    Raises:
        ModelError: the file is damaged, or too large to map.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if source.spec.entry is not None:
        raise ModelError(source.where, "has no entries: safetensors holds the weights themselves", "remove model.entry")
    try:
        tensors = load_file(source.file)
    except (RuntimeError, MemoryError) as error:  # torch's part: mapping the file
        raise ModelError(source.where, f"cannot be mapped into memory ({error})", "give a smaller file, or more memory") from error
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        what = f"is not a complete safetensors file ({error})"
        raise ModelError(source.where, what, "the file is truncated or damaged; save it again") from error
    return fill(source, FORMAT.name, tensors)


def _recognises(head: bytes, _: Sequence[str]) -> bool:
    return len(head) > 8 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= 10**8


FORMAT = Format("safetensors", load_safetensors, (".safetensors",), _recognises, only_weights=True)
