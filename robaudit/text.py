"""How is a text from a file, whatever is in it, shown on one line of a terminal?"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters, which could steer a terminal, and lone surrogates written as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def clipped(text: str, width: int) -> str:
    """At most ``width`` characters: of a longer text, the first half and the end."""
    half = (width - 5) // 2
    return text if len(text) <= width else f"{text[:half]} ... {text[-half:]}"
