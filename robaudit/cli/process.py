"""Settings of the command line's process: how threads wait, and how many there are.

They affect speed only, and this process only: the Python API leaves its caller's process alone.
"""

from __future__ import annotations

import os

from robaudit.cgroups import cores

_WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPINS = "2000"  # about 50 microseconds; GNU's default is 300,000, and with 0 the embedded network takes a third longer on a quiet machine


def share_cores() -> None:
    """Let waiting threads sleep soon, and start no more threads than this process has cores; call it before torch is imported.

    OpenMP's threads spin while they wait for each other. Where another process wants the cores, a spinning thread keeps the one it
    waits for from running, and small networks become many times slower (docs/benchmarks.md, "Busy machines"). GNU's runtime, which
    comes with torch's wheels for Linux, reads how long to spin when it is loaded. OpenMP itself starts one thread for each core that
    this process may run on; a control group's quota may allow fewer (a container with two cores' worth of time on a machine of 64).
    The user's own settings take precedence.
    """
    if not any(name in os.environ for name in _WAIT_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    if "OMP_NUM_THREADS" not in os.environ and (most := cores()) < (os.cpu_count() or 1):
        os.environ["OMP_NUM_THREADS"] = str(most)
