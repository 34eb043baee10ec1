"""How much of something fits a time, when what one of it takes is not known?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor, nn

T = TypeVar("T")
_GROWTH = 4


class TooLongError(BaseException):
    """The time is over. No Exception: what an estimator catches of its own must not hide it."""


@contextmanager
def within(model: nn.Module, seconds: float) -> Iterator[None]:
    """Interrupt what passes images through a network, at the first pass after so many seconds.

    Raises:
        TooLongError: then.
    """
    end = time.perf_counter() + seconds

    def check(_module: nn.Module, _inputs: tuple[Tensor, ...]) -> None:
        if time.perf_counter() > end:
            raise TooLongError

    hook = model.register_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()


def grown(model: nn.Module, attempt: Callable[[int], T], most: int, first: float, seconds: float) -> tuple[T, int] | None:
    """The result of the largest attempt that fits a time: with 1, 4, 16, ... images, each as far as the one before it lets expect.

    Args:
        model: what the attempts pass images through.
        attempt: with so many images.
        most: images.
        first: seconds for the attempts with up to four images.
        seconds: for larger ones, those before them included.

    Returns:
        The result and its images; None where even the first took too long.
    """
    started, found, count = time.perf_counter(), None, 1
    while True:
        began = time.perf_counter()
        try:
            with within(model, (first if count <= _GROWTH else seconds) - (began - started)):
                found = attempt(count), count
        except TooLongError:
            return found
        now = time.perf_counter()
        once, left = (now - began) / count, (first if count < _GROWTH else seconds) - (now - started)
        more = min(most, _GROWTH * count, int(left / once))
        if more < min(most, 2 * count) or more <= count:
            return found
        count = more
