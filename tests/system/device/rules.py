"""What torch allows on a CUDA device, operator by operator: which devices may mix, what waits for
the device, what has no kernel there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CUDA = torch.device("cuda", 0)
_COPIES = {"aten::copy_", "aten::_to_copy", "aten::copy"}
_INDEXING = {
    "aten::index",
    "aten::_unsafe_index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index_put",
}
# Operators that take a 0-dim tensor of the CPU among tensors of the device: those tagged pointwise
# (with exceptions), and these.
_TAKE_SCALARS = {
    "aten::fill",
    "aten::fill_",
    "aten::masked_fill",
    "aten::masked_fill_",
    "aten::index_fill",
    "aten::index_fill_",
}
_TAKE_NO_SCALARS = {
    "aten::clamp",
    "aten::clamp_",
    "aten::addcmul",
    "aten::addcmul_",
    "aten::addcdiv",
    "aten::addcdiv_",
}
# Operators that copy something to the host before they return: a value, the size of the result, or
# whether LAPACK succeeded.
_WAIT = {
    *(
        "aten::_local_scalar_dense",
        "aten::item",
        "aten::is_nonzero",
        "aten::equal",
        "aten::nonzero",
        "aten::masked_select",
    ),
    *(
        "aten::_unique2",
        "aten::_unique",
        "aten::unique_dim",
        "aten::unique_consecutive",
        "aten::unique_dim_consecutive",
    ),
    *(
        "aten::bincount",
        "aten::histc",
        "aten::_linalg_check_errors",
        "aten::_linalg_eigh",
        "aten::linalg_eig",
        "aten::_linalg_svd",
    ),
    *("aten::_linalg_eigvals", "aten::linalg_lstsq", "aten::masked_scatter", "aten::multinomial"),
}
# Operators that raise on CUDA under torch.use_deterministic_algorithms(True) (its documentation,
# torch 2.15).
_NOT_DETERMINISTIC = {
    *(
        "aten::_adaptive_avg_pool2d_backward",
        "aten::adaptive_max_pool2d_backward",
        "aten::_adaptive_avg_pool3d_backward",
    ),
    *(
        "aten::avg_pool3d_backward",
        "aten::reflection_pad1d_backward",
        "aten::reflection_pad2d_backward",
        "aten::grid_sampler_2d_backward",
    ),
    *(
        "aten::upsample_linear1d_backward",
        "aten::upsample_bilinear2d_backward",
        "aten::upsample_bicubic2d_backward",
    ),
    *(
        "aten::_upsample_bilinear2d_aa_backward",
        "aten::_upsample_bicubic2d_aa_backward",
        "aten::nll_loss2d_forward",
    ),
    *("aten::put_", "aten::put", "aten::histc", "aten::max_unpool2d", "aten::_ctc_loss_backward"),
}
_NO_WORK = {
    "aten::empty",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::lift_fresh",
}
# torch's build for the CPU alone cannot say which operators have a CUDA kernel
_HAS_CUDA = torch.version.cuda is not None


class TwoDevicesError(RuntimeError):
    """Tensors of two devices in one operator."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"cuda:0 and cpu! ({name})"
        )


def launches(func: Any) -> bool:
    """Whether the operator starts work on the device: views and empty tensors do not."""
    return (
        not func.is_view
        and name_of(func) not in _NO_WORK
        and name_of(func) not in ("aten::_unsafe_view", "aten::_local_scalar_dense")
    )


def name_of(func: Any) -> str:
    """aten::NAME, without the overload."""
    return str(func._schema.name)


def check(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_device: Any) -> None:
    """Raise as torch would for an operator of which at least one tensor is on the device.

    Args:
        func: an overload of an operator.
        args, kwargs: as it was called.
        on_device: whether a tensor is on the device.
    """
    name = name_of(func)
    if _HAS_CUDA and not torch._C._dispatch_has_computed_kernel_for_dispatch_key(
        func.name(), "CUDA"
    ):
        raise NotImplementedError(
            f"Could not run '{func.name()}' with arguments from the 'CUDA' backend."
        )
    if torch.are_deterministic_algorithms_enabled() and _not_deterministic(name, args, kwargs):
        raise RuntimeError(
            f"{name.removeprefix('aten::')}_cuda does not have a deterministic implementation, "
            "but you set it."
        )
    if name in _COPIES:
        return
    if name in _INDEXING:
        _check_indexing(name, args, on_device)
        return
    scalars = name in _TAKE_SCALARS or (
        torch.Tag.pointwise in func.tags and name not in _TAKE_NO_SCALARS
    )
    written = name.endswith("_") or "out" in kwargs
    for place, tensor in enumerate(tensors_in((args, kwargs))):
        if not on_device(tensor) and not (
            scalars and tensor.dim() == 0 and not (written and place == 0)
        ):
            raise TwoDevicesError(name)


def _check_indexing(name: str, args: tuple[Any, ...], on_device: Any) -> None:
    """Indices may lie on the CPU where the indexed tensor does not; never the other way round."""
    if not on_device(args[0]):
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor (cpu) "
            f"({name})"
        )
    if (
        len(args) > 2
        and isinstance(args[2], Tensor)
        and not on_device(args[2])
        and args[2].dim() > 0
    ):
        raise TwoDevicesError(name)


def _not_deterministic(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "aten::bincount":
        return (len(args) > 1 and args[1] is not None) or kwargs.get("weights") is not None
    if name in ("aten::scatter_reduce", "aten::scatter_reduce_"):
        return args[4] not in ("sum", "mean")
    if name in ("aten::median", "aten::kthvalue"):
        return len(args) > 1
    return name in _NOT_DETERMINISTIC


def waits(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_device: Any) -> int:
    """How often the host waits for the device in this operator."""
    name = name_of(func)
    if (
        name in _INDEXING
    ):  # a mask becomes indices, and their number must be known; an index from the CPU is copied
        indices = [index for index in args[1] if index is not None]
        return sum(
            index.dtype in (torch.bool, torch.uint8) or not on_device(index) for index in indices
        )
    if name == "aten::repeat_interleave":
        return int(kwargs.get("output_size") is None)
    if name in _COPIES:
        return _copies(name, args, kwargs, on_device)
    return int(name in _WAIT)


def _copies(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], on_device: Any) -> int:
    if name == "aten::copy_":
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        return int(blocking and on_device(args[0]) != on_device(args[1]))
    target = kwargs.get("device")
    return int(
        target is not None
        and (target.type == "cpu") == on_device(args[0])
        and not kwargs.get("non_blocking", False)
    )


def tensors_in(found: Any) -> Iterator[Tensor]:
    """Every tensor in nested arguments."""
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, list | tuple):
        for one in found:
            yield from tensors_in(one)
    elif isinstance(found, dict):
        yield from tensors_in(tuple(found.values()))
