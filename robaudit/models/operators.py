"""The operators that a model file may use without ``--trust``: one list, in ``operators.yaml``.

The list has what ordinary image classifiers use, as torch and onnxruntime write them. Everything
else is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from robaudit.errors import ModelError
from robaudit.settings import TRUST

Operator = tuple[str, str]
"""Namespace (ONNX: domain) and name."""
PYTHON = "python"
"""The namespace of Python's names in TorchScript, such as ``print``."""
METHODS = "*"
"""The namespace of methods and properties: theirs depends on the type of the value."""
Part = Literal["torch", "onnx"]
"""A part of the list: for TorchScript and .pt2, or for ONNX."""

EXPORT_WITHOUT_OR_TRUST = "export it without, or pass " + TRUST + " if you trust the file"
"""The remedy for what needs trust."""
LIST = Path(__file__).with_name("operators.yaml")


@cache
def allowed(part: Part) -> frozenset[Operator]:
    """The operators of a part of the list."""
    namespaces = yaml.safe_load(LIST.read_text())[part]
    operators = set[Operator]()
    for namespace, names in namespaces.items():
        operators.update((namespace, name) for name in names)
    return frozenset(operators)


def check_operators(operators: Iterable[Operator], part: Part, where: str) -> None:
    """Refuse operators that are not on the list.

    An operator could read or write files, print, run other code, or take hostile sizes without a
    check.

    Args:
        operators: of a file.
        part: of the list.
        where: the file, for messages.

    Raises:
        ModelError: an operator is not on the list; the first is named.
    """
    for namespace, name in operators:
        if (namespace, name) not in allowed(part):
            written = _written(namespace, name)[:80]  # a name of the file, of any length
            raise ModelError(
                where,
                f"calls {written!r}, which is not on the list of operators of ordinary networks",
                EXPORT_WITHOUT_OR_TRUST,
            )


def _written(namespace: str, name: str) -> str:
    """An operator as its file has it: ``aten::relu``, ``.save``, ``print``, or ONNX's ``Relu``."""
    if namespace == METHODS:
        return f".{name}"
    return name if namespace in ("", PYTHON) else f"{namespace}::{name}"
