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
"""Seconds after the second signal."""
DEADLINE = 255
"""The byte before a deadline: eight bytes follow, with the seconds from now as a double; 0:
none."""


def main() -> None:
    """Watch the process that is this one's parent."""
    pid = int(sys.argv[1])
    resumable = sys.argv[2]
    received = b""
    seen = 0
    end = None
    line = ""
    while True:
        wait = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([0], [], [], wait)[0]:
            kill(pid, line)
            return
        part = os.read(0, 4096)
        if not part:
            return
        received += part
        while received:
            if received[0] == DEADLINE:
                if len(received) < 9:
                    break
                (seconds,) = struct.unpack("<d", received[1:9])
                end = time.monotonic() + seconds if seconds else None
                line = (
                    "error: --budget: was over a while ago, and the model still computes"
                    + resumable
                )
                received = received[9:]
                continue
            number = received[0]
            received = received[1:]
            if number in (signal.SIGINT, signal.SIGTERM):
                seen += 1
                if seen == 2:
                    os.write(1, bytes([number]))
                    end = time.monotonic() + GRACE
                    line = ("interrupted" if number == signal.SIGINT else "terminated") + resumable


def kill(pid: int, line: str) -> None:
    """Kill the process, and say why."""
    os.kill(pid, signal.SIGKILL)
    os.write(2, f"{line}\n".encode())


if __name__ == "__main__":
    main()
