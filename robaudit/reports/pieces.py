"""How are many short texts put together so that neither all of them are held nor each is written alone?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_PIECE = 2**17  # characters


def pieces(texts: Iterable[str], size: int = _PIECE) -> Iterator[str]:
    """The same text in pieces of at least ``size`` characters, by no more than the last text that went in; the last is shorter."""
    held: list[str] = []
    length = 0
    for text in texts:
        held.append(text)
        length += len(text)
        if length >= size:
            yield "".join(held)
            held.clear()
            length = 0
    if held:
        yield "".join(held)
