"""Class indices by the names of folders and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from robaudit.errors import DataError, did_you_mean
from robaudit.text import clipped

_SHOWN = 6  # of names
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?", re.ASCII)
_MOST_DIGITS = 9


class ClassIndex:
    """Class indices by name: an exact id or name, otherwise ignoring case, underscores and the other synonyms of a name.

    ``golden_retriever`` and ``Golden retriever`` both match "golden retriever, goldie". A text that fits several classes matches none.

    Args:
        names: by class index.
        ids: other names of the classes, by class index (synsets).
    """

    def __init__(self, names: Sequence[str], ids: Sequence[str] | None = None) -> None:
        self._exact = {name: index for index, name in enumerate(names)} | {key: index for index, key in enumerate(ids or ())}
        self._loose: dict[str, set[int]] = {}
        for index, name in enumerate(names):
            for text in (name, *name.split(",")):
                self._loose.setdefault(_folded(text), set()).add(index)

    def find(self, text: str) -> int | None:
        """The index of the class; None if there is none, or more than one."""
        if text in self._exact:
            return self._exact[text]
        found = self._loose.get(_folded(text), set())
        return next(iter(found)) if len(found) == 1 else None

    def remedy(self, text: str) -> str:
        """The remedy for an unknown text."""
        names = sorted(self._known(text))
        if (near := did_you_mean(text, names)).startswith("did"):
            return near if len(names) <= _SHOWN else f"{near}; or write class_names in the order of the logits"
        known = f"known: {', '.join(names[:_SHOWN])}" + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        return f"{known}; rename it, or write class_names in the order of the logits (null: in the order of the folders' or labels' names)"

    def _known(self, text: str) -> Iterable[str]:
        several = self._loose.get(_folded(text), set())
        if not several:  # two classes with the same name, distinguished in brackets: "crane (n02012849)"
            several = {index for name, index in self._exact.items() if _folded(name).startswith(f"{_folded(text)} (")}
        return [name for name, index in self._exact.items() if index in several] if several else self._exact


def _folded(text: str) -> str:
    return " ".join(text.replace("_", " ").casefold().split())


def class_indices(
    lines: Mapping[str, int], where: str, class_names: tuple[str, ...] | None, class_ids: tuple[str, ...] | None
) -> tuple[dict[str, int], tuple[str, ...] | None]:
    """The class index of every label text.

    Labels are names if ``class_names`` has them; otherwise they are all integers, or all names, which are then sorted.

    Args:
        lines: the line on which each distinct label first appears.
        where: the table's name in messages.
        class_names: the names by class index that the user gave.
        class_ids: other names of the classes in labels.

    Returns:
        The index by text, and the class names (None if the labels are integers without names).

    Raises:
        DataError: negative or fractional numbers, names not in ``class_names``, or names mixed with integers.
    """
    numbers = [text for text in lines if _NUMBER.fullmatch(text)]
    names = [text for text in lines if not _NUMBER.fullmatch(text)]
    if class_names is not None and (names or set(numbers) <= {*class_names, *(class_ids or ())}):
        classes, found = ClassIndex(class_names, class_ids), dict[str, int]()
        for text, line in lines.items():
            index = classes.find(text)
            if index is None:
                raise DataError(f"{where}:{line}", f"the label {text!r} is not in class_names", classes.remedy(text))
            found[text] = index
        return found, class_names
    if names and numbers:
        first, second = lines[names[0]], lines[numbers[0]]
        what = f"mixes labels that are names ({names[0]!r}, line {first}) and numbers ({numbers[0]!r}, line {second})"
        raise DataError(where, what, "use one kind in the whole file")
    for text in numbers:
        if not text.isdecimal() or len(text.lstrip("0")) > _MOST_DIGITS:
            raise DataError(
                f"{where}:{lines[text]}",
                f"the label {clipped(text, 60)!r} is not a class index",
                "class indices are 0, 1, 2, ...; leave it empty for none",
            )
    if names:
        return {text: number for number, text in enumerate(sorted(names))}, tuple(sorted(names))
    return {text: int(text) for text in numbers}, class_names
