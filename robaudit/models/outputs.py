"""Which part of what a network returns are the logits, and are they of the right shape?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F

from robaudit.errors import ModelError, did_you_mean


def pick_output(returned: object, output: str | int | None, where: str) -> torch.Tensor:
    """The tensor that ``output`` names in what a network returned.

    Args:
        returned: a tensor, or a mapping or sequence of tensors.
        output: key or index; a plain tensor needs none (``logits`` is understood).
        where: how messages name the model.

    Raises:
        ModelError: the key or index is missing, or not there, or what it names is not a tensor.
    """
    if isinstance(returned, torch.Tensor):
        if output not in (None, "logits"):
            raise ModelError(where, f"the network returns one tensor, and model.output asks for {output!r}", "remove model.output")
        picked: object = returned
    elif isinstance(returned, Mapping):
        picked = _from_mapping(returned, output, where)
    elif isinstance(returned, Sequence) and not isinstance(returned, str | bytes):
        picked = _from_sequence(returned, output, where)
    else:
        raise ModelError(where, f"the network returns {type(returned).__name__}, not a tensor", "it must return logits (n, classes)")
    if not isinstance(picked, torch.Tensor):
        raise ModelError(
            where, f"the network's output {output!r} is {type(picked).__name__}, not a tensor", "pick the logits with model.output"
        )
    return picked


def _from_mapping(returned: Mapping[object, object], output: str | int | None, where: str) -> object:
    keys = [str(key) for key in returned]
    if output is None:
        raise ModelError(
            where, f"the network returns a mapping with the keys {', '.join(keys)}", "say which are the logits: model.output: KEY"
        )
    if output in returned:
        return returned[output]
    if isinstance(output, int) and -len(keys) <= output < len(keys):
        return list(returned.values())[output]
    raise ModelError(where, f"the network's output has no key {output!r}", did_you_mean(str(output), keys))


def _from_sequence(returned: Sequence[object], output: str | int | None, where: str) -> object:
    fields = list(getattr(returned, "_fields", ()))
    kind, names = type(returned).__name__, f" ({', '.join(fields)})" if fields else ""
    if output is None:
        raise ModelError(
            where, f"the network returns a {kind} of {len(returned)}{names}", "say which are the logits: model.output: INDEX, from 0"
        )
    if isinstance(output, str) and output in fields:
        return returned[fields.index(output)]
    if isinstance(output, int) and -len(returned) <= output < len(returned):
        return returned[output]
    remedy = did_you_mean(str(output), fields) if fields else f"give an index from 0 to {len(returned) - 1}"
    raise ModelError(where, f"the network returns a {kind} of {len(returned)}{names}, which has no {output!r}", remedy)


def as_logits(tensor: torch.Tensor, images: int, dtype: torch.dtype, where: str) -> torch.Tensor:
    """The tensor as logits (images, classes); one logit z becomes the two classes (0, z).

    Raises:
        ModelError: another shape, whole numbers, or less precision than was asked for.
    """
    shape = " x ".join(map(str, tensor.shape)) or "a single number"
    if not tensor.is_floating_point():
        raise ModelError(
            where, f"the network returns {str(tensor.dtype).removeprefix('torch.')}, not logits", "return the scores, not the class"
        )
    if tensor.dim() not in (1, 2) or tensor.shape[0] != images or tensor.shape[-1] == 0:
        remedy = "it must return logits of shape n x classes"
        if tensor.dim() == 4 and tensor.shape[0] == images:
            remedy += "; a map of scores (segmentation) cannot be audited"
        raise ModelError(where, f"the network returns shape {shape} for {images} images", remedy)
    if dtype is torch.float64 and tensor.dtype is not torch.float64:
        raise ModelError(
            where,
            f"the network returns {str(tensor.dtype).removeprefix('torch.')} although fp64 was asked for",
            "its graph fixes the precision: use run.precision fp32, or load it from safetensors or an unfrozen TorchScript file",
        )
    logits = tensor.to(dtype)
    if logits.dim() == 1:
        logits = logits.unsqueeze(1)
    return F.pad(logits, (1, 0)) if logits.shape[1] == 1 else logits
