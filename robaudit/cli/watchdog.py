"""A process that ends another one which no longer answers; started by :mod:`robaudit.cli.signals`.

Signals and clocks reach Python code only where something lets go of the interpreter's lock, and
compiled code may hold it without end. So this runs outside, with nothing but the standard library.
It reads standard input: the number of every signal as one byte, as ``signal.set_wakeup_fd`` writes
them, and deadlines. At the second SIGINT or SIGTERM it answers with its number on standard output,
for the process to end itself; a little later it kills it. It ends with its standard input.
"""

import os
import select
import signal
import struct
import sys
import time

GRACE = 0.9
"""Seconds after the second signal, a little more than the process gives itself."""
DEADLINE = 255
"""The byte before a deadline, which is no signal's number.

Eight bytes follow, with the seconds from now as a double; 0: none.
"""
_MESSAGE = 9
"""Bytes of a deadline, with the byte before it."""


def main() -> None:
    """Watch the process that is this one's parent, until the input ends or the process is killed.

    The arguments of the program are the number of the process, and the end of the line to print if
    it is killed.
    """
    pid = int(sys.argv[1])
    resumable = sys.argv[2]
    received = b""
    signals = 0
    end = None
    line = ""
    while True:
        wait = None if end is None else max(0.0, end - time.monotonic())
        readable, _, _ = select.select([0], [], [], wait)
        if not readable:
            kill(pid, line)
            return
        part = os.read(0, 4096)
        if not part:
            # The process has closed the pipe, or has ended.
            return
        received += part
        while received:
            if received[0] == DEADLINE:
                if len(received) < _MESSAGE:
                    # The rest comes with the next read.
                    break
                (seconds,) = struct.unpack("<d", received[1:_MESSAGE])
                end = time.monotonic() + seconds if seconds else None
                line = (
                    "error: --budget: was over a while ago, and the model still computes"
                    + resumable
                )
                received = received[_MESSAGE:]
                continue
            number = received[0]
            received = received[1:]
            # Python reports every signal that it handles.
            if number in (signal.SIGINT, signal.SIGTERM):
                signals += 1
                if signals == 2:
                    os.write(1, bytes([number]))
                    end = time.monotonic() + GRACE
                    line = ("interrupted" if number == signal.SIGINT else "terminated") + resumable


def kill(pid: int, line: str) -> None:
    """Kill the process, and say why."""
    os.kill(pid, signal.SIGKILL)
    # Only then the line, so that nothing of the process follows it.
    os.write(2, f"{line}\n".encode())


if __name__ == "__main__":
    main()
