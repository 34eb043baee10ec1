"""From what a folder or a label calls a class to its index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from robaudit.errors import did_you_mean

_SHOWN = 6  # of names


class ClassIndex:
    """Class indices by name: an id or a name as it is written, else without regard to case, underscores and the other synonyms of a name.

    ``golden_retriever`` and ``Golden retriever`` both find "golden retriever, goldie". A text that fits several classes finds none.

    Args:
        names: by class index.
        ids: what else the classes are called, by class index (synsets).
    """

    def __init__(self, names: Sequence[str], ids: Sequence[str] | None = None) -> None:
        self._exact = {name: index for index, name in enumerate(names)} | {key: index for index, key in enumerate(ids or ())}
        self._loose: dict[str, set[int]] = {}
        for index, name in enumerate(names):
            for text in (name, *name.split(",")):
                self._loose.setdefault(_folded(text), set()).add(index)

    def find(self, text: str) -> int | None:
        """The index of the class, or None where there is none, or no single one."""
        if text in self._exact:
            return self._exact[text]
        found = self._loose.get(_folded(text), set())
        return next(iter(found)) if len(found) == 1 else None

    def remedy(self, text: str) -> str:
        """What would be right instead of a text that is not found."""
        names = sorted(self._known(text))
        if (near := did_you_mean(text, names)).startswith("did"):
            return near if len(names) <= _SHOWN else f"{near}; or write class_names in the order of the logits"
        known = f"known: {', '.join(names[:_SHOWN])}" + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        return f"{known}; rename it, or write class_names in the order of the logits (null: in the order of the folders' or labels' names)"

    def _known(self, text: str) -> Iterable[str]:
        several = self._loose.get(_folded(text), set())
        return (name for name, index in self._exact.items() if index in several) if several else self._exact


def _folded(text: str) -> str:
    return " ".join(text.replace("_", " ").casefold().split())
