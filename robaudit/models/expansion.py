"""The size of a graph once the calls of its functions are replaced by their nodes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from robaudit.errors import ModelError
from robaudit.models.operators import EXPORT_WITHOUT_OR_TRUST

Name = TypeVar("Name", bound=Hashable)

MOST_NODES = 100_000
"""Large networks have 20,000. Functions that call each other twice can make millions of a small
file."""


def expanded_sizes(functions: Mapping[Name, Sequence[Name]]) -> dict[Name, int] | None:
    """The number of nodes of each function once all its calls are replaced.

    None if a function calls itself, directly or through others.

    Args:
        functions: for each function, the name that each of its nodes calls. Names that are no
            functions are single nodes.
    """
    sizes = dict[Name, int]()
    waiting = dict(functions)
    # From the innermost functions outwards, so that each function is counted once, however often it
    # is called.
    while waiting:
        ready = [name for name, called in waiting.items() if waiting.keys().isdisjoint(called)]
        if not ready:
            return None
        for name in ready:
            sizes[name] = sum(sizes.get(called, 1) for called in waiting.pop(name))
    return sizes


def check_expansion(functions: Mapping[Name, Sequence[Name]], where: str) -> None:
    """Refuse functions, the main graph among them, that multiply without bound.

    Args:
        functions: as for :func:`expanded_sizes`.
        where: the file, for messages.

    Raises:
        ModelError: a function calls itself, or is too large.
    """
    sizes = expanded_sizes(functions)
    if sizes is None:
        raise ModelError(where, "has a function that calls itself", EXPORT_WITHOUT_OR_TRUST)
    nodes = max(sizes.values(), default=0)
    if nodes > MOST_NODES:
        what = f"has {nodes:,} nodes once its functions are expanded (at most {MOST_NODES:,})"
        raise ModelError(where, what, EXPORT_WITHOUT_OR_TRUST)
