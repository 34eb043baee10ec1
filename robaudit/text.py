"""Text from files, whatever it contains, as it is shown on one line; classes, samples and counts in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Names = Sequence[str] | Mapping[int, str]
"""Of classes, by index."""


def printable(text: str) -> str:
    """The text with control characters, which could steer a terminal, and lone surrogates written as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def clipped(text: str, width: int) -> str:
    """At most ``width`` characters: of a longer text, the first half and the end."""
    half = (width - 5) // 2
    return text if len(text) <= width else f"{text[:half]} ... {text[-half:]}"


def count(number: int, noun: str) -> str:
    """``1 sample``, ``1,200 samples``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def class_name(index: int | None, names: Names | None = None, width: int | None = None) -> str:
    """``3 (cat)``; ``3`` where the class has no name (or its number for a name); ``-`` for no class.

    Args:
        index: the class.
        names: by class index.
        width: longer texts lose the end of the name, ``404 (airli.)``.
    """
    if index is None:
        return "-"
    try:
        name = printable(names[index]) if names is not None and index >= 0 else str(index)
    except LookupError:
        name = str(index)
    if name == str(index):
        return name
    room = None if width is None else max(3, width - len(f"{index} ()"))
    return f"{index} ({name if room is None or len(name) <= room else name[: room - 1] + '.'})"


def shortened(text: str, width: int) -> str:
    """At most ``width`` characters; the end, which tells files apart, is kept: ``...tabby/017.png``."""
    return text if len(text) <= width else "..." + text[3 - width :]
