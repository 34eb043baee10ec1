"""Weights from a .safetensors file."""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.errors import ModelError
from robaudit.models.formats import Format, LoadedNetwork, Source
from robaudit.models.weights import fill, under


def load_safetensors(source: Source) -> LoadedNetwork:
    """Load a .safetensors file into its architecture.

    Raises:
        ModelError: the file is damaged, or too large to map, or has no such entry.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(source.file)
    # torch's part, mapping the file, raises the first two.
    except (RuntimeError, MemoryError) as error:
        raise ModelError(
            source.where,
            f"cannot be mapped into memory ({error})",
            "give a smaller file, or more memory",
        ) from error
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        what = f"is not a complete safetensors file ({error})"
        raise ModelError(
            source.where, what, "the file is truncated or damaged; save it again"
        ) from error
    entry = source.spec.entry
    if entry is None:
        return fill(source, FORMAT.name, tensors)
    part = under(tensors, f"{entry}.")
    if part:
        note = f"the weights are those under the prefix '{entry}.'"
        return fill(source, FORMAT.name, part, (note,))
    what = f"has no weights under the prefix '{entry}.'"
    raise ModelError(source.where, what, "remove model.entry")


def _recognises(head: bytes, _: Sequence[str]) -> bool:
    """Whether a file begins as safetensors do: the length of a JSON header, and its bracket."""
    if len(head) <= 8 or head[8:9] != b"{":
        return False
    # The library itself takes no longer header than 100 MB.
    return 2 <= int.from_bytes(head[:8], "little") <= 10**8


FORMAT = Format("safetensors", load_safetensors, (".safetensors",), _recognises, only_weights=True)
