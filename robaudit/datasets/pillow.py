"""How is Pillow kept quiet, and from starting programs and decoding bombs, whichever threads use it at once?"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import EpsImagePlugin, Image

MOST_PIXELS = 89_478_485  # Pillow's own limit against decompression bombs, at which it warns; beyond twice its limit it refuses


def hush() -> None:
    """Show no warnings of Pillow's from now on: they are about metadata and size, and what matters is refused.

    The filter stays: one that is taken back after each image would be taken from other threads, with what they had set meanwhile.
    """
    if list(warnings.filters[:1]) != [("ignore", None, Warning, _PILLOW, 0)]:
        warnings.filterwarnings("ignore", module=_PILLOW.pattern)


@contextlib.contextmanager
def plain_pillow() -> Iterator[None]:
    """For readers that open images themselves: no program of the machine (Ghostscript) is started, and bombs are refused.

    Both are settings of the whole process: they are made by the first thread that comes, and taken back by the last that leaves.
    """
    hush()
    with _USERS.lock:
        if not _USERS.count:
            _USERS.before = EpsImagePlugin.gs_binary, Image.MAX_IMAGE_PIXELS
            EpsImagePlugin.gs_binary, Image.MAX_IMAGE_PIXELS = False, (MOST_PIXELS + 1) // 2
        _USERS.count += 1
    try:
        yield
    finally:
        with _USERS.lock:
            _USERS.count -= 1
            if not _USERS.count:
                EpsImagePlugin.gs_binary, Image.MAX_IMAGE_PIXELS = _USERS.before


@dataclass(slots=True)
class _Users:
    """The threads inside :func:`plain_pillow`, and what to restore after them."""

    lock: threading.Lock
    count: int
    before: tuple[bool | str | None, int | None]


_USERS = _Users(threading.Lock(), 0, (None, None))
_PILLOW = re.compile(r"PIL\.")
