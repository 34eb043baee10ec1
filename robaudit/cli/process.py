"""The command line's process: how its threads wait, how many there are, and what ends it when nothing else does.

The Python API leaves its caller's process alone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time

from robaudit.system import cores

GRACE = 8.0
"""Seconds that the process has to end after SIGTERM or the second Ctrl-C, before it is killed."""
_WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPINS = "2000"  # about 50 microseconds; GNU's default is 300,000, and with 0 the embedded network takes a third longer on a quiet machine


def share_cores() -> None:
    """Let waiting threads sleep soon, and start no more threads than this process has cores; call it before torch is imported.

    OpenMP's threads spin while they wait for each other. Where another process wants the cores, a spinning thread keeps the one it
    waits for from running, and small networks become many times slower (docs/research/benchmarks.md, "Busy machines"). GNU's runtime, which
    comes with torch's wheels for Linux, reads how long to spin when it is loaded. OpenMP itself starts one thread for each core that
    this process may run on; a control group's quota may allow fewer (a container with two cores' worth of time on a machine of 64).
    The user's own settings take precedence.
    """
    if not any(name in os.environ for name in _WAIT_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    if "OMP_NUM_THREADS" not in os.environ and (most := cores()) < (os.cpu_count() or 1):
        os.environ["OMP_NUM_THREADS"] = str(most)


def kill_if_stuck(last_words: str) -> None:
    """Have this process killed if it is still there :data:`GRACE` seconds after SIGTERM or the second Ctrl-C.

    Python's signal handlers wait for the running C++ call, which may never return: TorchScript and ONNX have loops. No thread helps,
    because the call may hold the GIL. Python's C handler, however, writes the number of a signal to the wakeup descriptor at once, and
    a child process reads it at the other end. Call this before anything starts a thread: it forks.

    Args:
        last_words: what the child prints when it kills.
    """
    if not hasattr(os, "fork") or "torch" in sys.modules or threading.active_count() > 1:
        return
    reading, writing = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            os.close(writing)
            _watch(reading, parent, last_words)
        finally:
            os._exit(0)
    os.close(reading)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def on_its_own() -> None:  # the signals of a child are no business of the watchdog
        signal.set_wakeup_fd(-1)
        os.close(writing)

    os.register_at_fork(after_in_child=on_its_own)


def _watch(signals: int, parent: int, last_words: str) -> None:
    """Kill the parent if it outlives the signals that should end it; return once it has ended."""
    os.setsid()  # Ctrl-C is for the parent
    os.closerange(0, 2)  # whoever reads the parent's output does not wait for this process
    interrupts = 0
    deadline: float | None = None
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([signals], [], [], left)[0]:
            break
        if not (numbers := os.read(signals, 4096)):
            return
        interrupts += numbers.count(signal.SIGINT)
        if deadline is None and (signal.SIGTERM in numbers or interrupts > 1):
            deadline = time.monotonic() + GRACE
    if os.getppid() == parent:
        os.kill(parent, signal.SIGKILL)
        os.write(2, last_words.encode())
