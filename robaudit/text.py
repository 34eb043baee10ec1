"""Text for people, safe to print: lines, class names, ids and counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

Names = Sequence[str] | Mapping[int, str]
"""Class names by index."""

_COMMAND = re.compile(r"^ *:(?=:)|#(?=#(?:\[|vso\[|teamcity\[))", re.MULTILINE)


def printable(text: str) -> str:
    """The text with control characters (which could steer a terminal) and lone surrogates written
    as escapes."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    )


def harmless(text: str) -> str:
    """Lines of text that steer neither a terminal nor a CI system: everything that a command prints
    passes through here.

    Control and bidirectional characters become escapes, and so does the first character of what CI
    systems take for a command: ``::`` at the beginning of a line, and ``##[``, ``##vso[`` and
    ``##teamcity[`` anywhere. The escapes are those of JSON, so JSON stays what it is.
    """
    visible = text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
    return _COMMAND.sub(lambda match: f"{match[0][:-1]}\\u{ord(match[0][-1]):04x}", visible)


def harmless_html(page: str) -> str:
    """An HTML page without what CI systems take for a command, should it be printed to a log.

    As :func:`harmless`, but the escapes are HTML's: the page shows the same text.
    """
    return _COMMAND.sub(lambda match: f"{match[0][:-1]}&#{ord(match[0][-1])};", page)


def clipped(text: str, width: int) -> str:
    """At most ``width`` characters: a longer text loses its middle."""
    half = (width - 5) // 2
    return text if len(text) <= width else f"{text[:half]} ... {text[-half:]}"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 200 characters, without the path of an OSError;
    the error's type if there is no text."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)[
        :200
    ]


def count(number: int, noun: str) -> str:
    """``1 sample``, ``1,200 samples``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def known_name(index: int | None, names: Names | None) -> str | None:
    """The name of a class; None where it has none.

    Args:
        index: the class; None: no class.
        names: by class index.
    """
    try:
        return names[index] if names is not None and index is not None and index >= 0 else None
    except LookupError:
        return None


def class_name(index: int | None, names: Names | None = None, width: int | None = None) -> str:
    """``cat``; ``3`` where the class has no name; ``-`` for no class.

    A name that could be taken for an index, or that is invisible, follows the index: ``3 (7)``.

    Args:
        index: the class.
        names: by class index.
        width: longer names are cut off, ``airli.``.
    """
    if index is None:
        return "-"
    known = known_name(index, names)
    name = str(index) if known is None else printable(known)
    if name == str(index):
        return name
    alone = bool(name.strip()) and not name.strip().lstrip("-").isdecimal()
    most = None if width is None else max(3, width if alone else width - len(f"{index} ()"))
    shown = name if most is None or len(name) <= most else f"{name[: most - 1]}."
    return shown if alone else f"{index} ({shown})"


def distinct(names: Sequence[str], ids: Sequence[str] | None = None) -> tuple[str, ...]:
    """Distinct class names by index: duplicate and empty names get the id or index, ``crane
    (134)``.

    Args:
        names: by class index.
        ids: other names of the classes (synsets), by class index.
    """
    shared = {name for name, number in Counter(names).items() if number > 1 or not name}
    if not shared:
        return tuple(names)
    marks = range(len(names)) if ids is None else ids
    return distinct(
        [
            f"{name} ({mark})".strip() if name in shared else name
            for name, mark in zip(names, marks, strict=True)
        ]
    )


def shortened(text: str, width: int) -> str:
    """At most ``width`` characters; a longer text keeps its end, which tells files apart:
    ``...tabby/017.png``."""
    return text if len(text) <= width else "..." + text[3 - width :]
