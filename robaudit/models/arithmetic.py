"""The operators that a model file may call without ``--trust``: arithmetic on tensors, in TorchScript, .pt2 and ONNX alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from robaudit.errors import ModelError

NAMESPACES = frozenset(
    (
        *("aten", "prim", "prims", "torchvision", "higher_order", "_operator", "math", "torch"),
        *("", "ai.onnx", "ai.onnx.ml", "com.microsoft"),  # the last: onnxruntime's own
    )
)
_ONLY = {
    "_operator": frozenset(
        (
            *("getitem", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs"),
            *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_", "lshift", "rshift"),
        )
    ),
    "higher_order": frozenset(("cond", "wrap_with_set_grad_enabled", "wrap_with_autocast")),
    "torch": frozenset(("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum", "_sym_sqrt")),
}
"""Namespaces where only these operators are arithmetic."""
_NEVER = {
    "aten": frozenset(("from_file", "save", "warn", "manual_seed", "seed", "set_data")),
    "prim": frozenset(("Print", "PythonOp", "IgnoredPythonOp", "rpc_async", "rpc_sync", "rpc_remote", "AddStatValue", "TimePoint")),
    "com.microsoft": frozenset(("EPContext", "PythonOp", "PythonOpGrad", "Snpe")),
}
"""Operators of the other namespaces that reach files, the terminal, Python, other processes, or memory beyond their tensors."""
_PRIVATE = re.compile(
    r"_(?:adaptive_avg_pool[23]d|assert_(?:async|scalar|tensor_metadata)|batch_norm_(?:impl_index|no_update|with_update)|cdist_forward|conj"
    r"|conj_physical|convolution(?:_mode)?|cummax_helper|embedding_bag(?:_forward_only)?|euclidean_dist|fft_\w+|fused_rms_norm|infer_size"
    r"|linalg_\w+|list_to_tensor|local_scalar_dense|(?:log|safe)?_?softmax|logcumsumexp|native_batch_norm_legit\w*|native_multi_head_attention"
    r"|neg_view|pad_(?:circular|enum)|prelu_kernel|reshape_copy|scaled_dot_product_\w+|set_item|shape_as_tensor|size_if_not_equal"
    r"|tensor_to_list|to_copy|transformer_encoder_layer_fwd|trilinear|unique2?|unsafe_(?:view|index|masked_index)|unwrap_optional"
    r"|upsample_\w+|weight_norm(?:_interface)?)"
)
"""The operators of aten with a leading underscore that exports of networks call; others may skip torch's bounds checks."""


def is_arithmetic(namespace: str, name: str) -> bool:
    """Whether an operator only computes on tensors, numbers and the containers that hold them."""
    if namespace == "aten" and name.startswith("_") and not name.startswith("__") and not _PRIVATE.fullmatch(name):
        return False
    only = _ONLY.get(namespace)
    return namespace in NAMESPACES and name not in _NEVER.get(namespace, ()) and (only is None or name in only)


def check_operators(operators: Iterable[tuple[str, str]], where: str) -> None:
    """Refuse operators (namespace, name) that are not arithmetic.

    Raises:
        ModelError: an operator is not arithmetic; the first is named.
    """
    for namespace, name in operators:
        if not is_arithmetic(namespace, name):
            called = f"{namespace}::{name}" if namespace else name
            raise ModelError(
                where, f"calls {called[:80]!r}, which is not plain arithmetic", "export it without, or pass --trust if you trust the file"
            )
