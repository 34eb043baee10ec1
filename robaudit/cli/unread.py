"""How does an exit code that means something survive when nobody reads what is printed?"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def unread_is_no_end() -> Iterator[None]:
    """Go on when the reader of standard output has gone, as ``robaudit gate ... | head -1`` does: a failed gate stays one."""
    try:
        yield
    except BrokenPipeError:
        nowhere()
    except SystemExit as exit_:  # rich's way to say the same
        if not isinstance(exit_.__context__, BrokenPipeError):
            raise
        nowhere()


def nowhere() -> None:
    """Let what is still to be printed go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
