"""Are the labels of a table class indices or class names, and which index has each?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from robaudit.errors import DataError, did_you_mean
from robaudit.text import clipped

_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?", re.ASCII)
_MOST_DIGITS = 9


def class_indices(
    lines: Mapping[str, int], where: str, class_names: tuple[str, ...] | None
) -> tuple[dict[str, int], tuple[str, ...] | None]:
    """The class index of every label text.

    Labels are names where ``class_names`` has them; otherwise they are all integers, or all names, which are then sorted.

    Args:
        lines: the line on which each distinct label stands first.
        where: what messages call the table.
        class_names: the names by class index that the user gave.

    Returns:
        The index by text, and the class names (None where the labels are integers without names).

    Raises:
        DataError: negative or fractional numbers, names not in ``class_names``, or names mixed with integers.
    """
    numbers = [text for text in lines if _NUMBER.fullmatch(text)]
    names = [text for text in lines if not _NUMBER.fullmatch(text)]
    if class_names is not None and (names or set(numbers) <= set(class_names)):
        index = {name: number for number, name in enumerate(class_names)}
        for text, line in lines.items():
            if text not in index:
                raise DataError(f"{where}:{line}", f"the label {text!r} is not in class_names", did_you_mean(text, index))
        return {text: index[text] for text in lines}, class_names
    if names and numbers:
        first, second = lines[names[0]], lines[numbers[0]]
        what = f"mixes labels that are names ({names[0]!r}, line {first}) and numbers ({numbers[0]!r}, line {second})"
        raise DataError(where, what, "use one kind in the whole file")
    for text in numbers:
        if not text.isdecimal() or len(text.lstrip("0")) > _MOST_DIGITS:
            raise DataError(
                f"{where}:{lines[text]}",
                f"the label {clipped(text, 60)!r} is no class index",
                "class indices are 0, 1, 2, ...; leave it empty for none",
            )
    if names:
        return {text: number for number, text in enumerate(sorted(names))}, tuple(sorted(names))
    return {text: int(text) for text in numbers}, class_names
