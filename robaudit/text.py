"""Text for people, safe to print: lines, class names, ids and counts."""

from __future__ import annotations

import inspect
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

Names = Sequence[str] | Mapping[int, str]
"""Class names by index."""

_COMMAND = re.compile(r"^ *:(?=:)|#(?=#(?:\[|vso\[|teamcity\[))", re.MULTILINE)
"""The first character of a command to a CI system: GitHub, Azure or TeamCity."""


def printable(text: str) -> str:
    """The text with control characters, which could steer a terminal, and lone surrogates as
    escapes."""
    if text.isprintable():  # nearly always, and much faster than a look at each character
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def harmless(text: str) -> str:
    """Lines of text that steer neither a terminal nor a CI system.

    Everything that a command prints passes through here. Control and bidirectional characters
    become escapes, and so does the first character of anything that CI systems take for a command:
    ``::`` at the beginning of a line, and ``##[``, ``##vso[`` and ``##teamcity[`` anywhere. The
    escapes are JSON's, so that JSON keeps its meaning.
    """
    visible = text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
    return _COMMAND.sub(lambda match: f"{match[0][:-1]}\\u{ord(match[0][-1]):04x}", visible)


def harmless_html(page: str) -> str:
    """An HTML page without anything that CI systems take for a command, should it be printed to a
    log.

    The escapes are HTML's, so that the page shows the same text; else as :func:`harmless`.
    """
    return _COMMAND.sub(lambda match: f"{match[0][:-1]}&#{ord(match[0][-1])};", page)


def clipped(text: str, width: int) -> str:
    """The text in at most ``width`` characters: a longer one loses its middle."""
    half = (width - len(" ... ")) // 2
    return text if len(text) <= width else f"{text[:half]} ... {text[-half:]}"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 200 characters, without the path of an OSError.

    It is the error's type if there is no text.
    """
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    return first[:200]


def count(number: int, noun: str) -> str:
    """``1 sample``, ``1,200 samples``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def shell(path: object) -> str:
    """A path as a shell takes it: quoted where it has blanks or other special characters."""
    return shlex.quote(str(path))


def known_name(index: int | None, names: Names | None) -> str | None:
    """The name of a class; None where it has none.

    Args:
        index: the class; None: no class.
        names: by class index.
    """
    if names is None or index is None:
        return None
    try:
        # A sequence would take a negative index from its end.
        return names[index] if index >= 0 else None
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
    is_visible = bool(name.strip())
    looks_like_index = name.strip().lstrip("-").isdecimal()
    needs_index = looks_like_index or not is_visible
    if width is not None:
        room = width - len(f"{index} ()") if needs_index else width
        most = max(3, room)  # at least two characters of the name and the dot
        if len(name) > most:
            name = f"{name[: most - 1]}."
    return f"{index} ({name})" if needs_index else name


def distinct(names: Sequence[str], ids: Sequence[str] | None = None) -> tuple[str, ...]:
    """Distinct class names by index.

    Duplicate and empty names get the id or index, ``crane (134)``.

    Args:
        names: the names by class index.
        ids: other names of the classes (synsets), by class index.
    """
    shared = {name for name, number in Counter(names).items() if number > 1 or not name}
    if not shared:
        return tuple(names)
    marks = range(len(names)) if ids is None else ids
    marked = [
        f"{name} ({mark})".strip() if name in shared else name
        for name, mark in zip(names, marks, strict=True)
    ]
    # Again: another class may already have the marked name.
    return distinct(marked)


def first_synonyms(names: Sequence[str], ids: Sequence[str] | None = None) -> tuple[str, ...]:
    """The first synonym of each class, ``tench`` of "tench, Tinca tinca"; all of its synonyms where
    several classes share the first.

    Duplicates get the id or index, as in :func:`distinct`: ImageNet has two classes whose only name
    is crane.

    Args:
        names: the names by class index, with synonyms after commas.
        ids: other names of the classes (synsets), by class index.
    """
    shorts = [name.split(",", 1)[0].strip() for name in names]
    times = Counter(shorts)
    chosen = [
        short if short and times[short] == 1 else name
        for short, name in zip(shorts, names, strict=True)
    ]
    return distinct(chosen, ids)


def unwrapped(text: str) -> str:
    """A text whose paragraphs are one line each.

    Indented paragraphs (formulae) and lists below a colon (attributes) stay as they are.
    """
    lines = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        is_list = paragraph.partition("\n")[0].endswith(":")
        if paragraph.startswith(" ") or is_list:
            lines.append(paragraph)
        else:
            lines.append(" ".join(paragraph.split()))
    return "\n\n".join(lines)


def first_paragraph(documented: object) -> str:
    """The first paragraph of a docstring, on one line."""
    paragraph = inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def shortened(text: str, width: int) -> str:
    """The text in at most ``width`` characters: a longer one keeps its end, which tells files
    apart, ``...tabby/017.png``."""
    return text if len(text) <= width else "..." + text[3 - width :]
