"""Recognise a network whose logits are an affine function of the pixels, from the operations that it carries out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robaudit.models.graph import Graph, Model, operation, trace

_LINEAR = frozenset(
    """Add AddBackward1 Sub Rsub Neg Sum Mean View UnsafeView ReshapeAlias Reshape T Transpose Permute Squeeze Unsqueeze Expand Clone Copy
    ToCopy Alias AsStrided Slice Select Index IndexSelect Gather Cat Stack Split SplitWithSizes Unbind Repeat Flip Roll Contiguous
    ConstantPadNd ReflectionPad1D ReflectionPad2D ReplicationPad1D ReplicationPad2D AvgPool2D AvgPool3D MkldnnAdaptiveAvgPool2D
    AdaptiveAvgPool2D AdaptiveAvgPool3D UpsampleNearest1D UpsampleNearest2D UpsampleLinear1D UpsampleBilinear2D""".split()  # noqa: SIM905  a list of one name a line would fill a screen
)
_BILINEAR = frozenset("Mul Mm Addmm Addmv Mv Bmm Baddbmm Dot Linear MkldnnLinear Convolution MkldnnConvolution".split())  # noqa: SIM905  likewise
"""Linear where one of the operands alone depends on the pixels."""
_QUOTIENT = "Div"
"""Linear where its first operand alone does."""
_NORMALISATION = frozenset("NativeBatchNorm CudnnBatchNorm MiopenBatchNorm BatchNorm".split())  # noqa: SIM905  likewise
"""Linear where the statistics are fixed."""


def other_operation(model: Model, image: Tensor) -> str:
    """The first operation between pixels and logits that is not affine; empty if there is none.

    The graph is the one that autograd records of one pass; a network that compares pixels, or looks for the largest, is not affine
    although its graph may be: that is noticed, too.

    Args:
        model: pixels (n, channels, height, width) to logits (n, classes).
        image: (channels, height, width).
    """
    graph = trace(model, image)
    return next((name for node in graph.nodes if (name := _not_affine(node, graph))), graph.unseen)


def _not_affine(node: Any, graph: Graph) -> str:
    """The name of an operation on the pixels unless it is affine in them."""
    if node is graph.pixels:
        return ""
    name, places = operation(node), [operand.place for operand in graph.operands(node)]
    linear = (
        name in _LINEAR
        or (name in _BILINEAR and len(places) == 1)
        or (name == _QUOTIENT and places == [0])
        or (name in _NORMALISATION and len(places) == 1 and getattr(node, "_saved_training", True) is False)
    )
    return "" if linear else name


def matrix(model: Model, image: Tensor, classes: int, rows: int) -> Tensor:
    """The matrix of an affine network: gradients of the logits with respect to the pixels (classes, pixels), float64.

    Args:
        model: pixels to logits.
        image: (channels, height, width), where the gradients are taken.
        classes: how many logits.
        rows: of a pass, at most.
    """
    found = []
    for part in torch.arange(classes, device=image.device).split(rows):
        with torch.enable_grad():
            x = image.expand(len(part), *image.shape).detach().clone().requires_grad_(True)
            logits = model(x)
        (slope,) = torch.autograd.grad(logits.gather(1, part[:, None]).sum(), x) if logits.requires_grad else (torch.zeros_like(x),)
        found.append(slope.flatten(1).double())
    return torch.cat(found)
