"""Run commands of robaudit in processes of their own, under limits of memory and time, without importing torch each time.

``python -m tests.system.hostile.server`` imports everything once; each line on standard input is then a request (JSON), answered by a
line on standard output: the process is forked, limits itself, and runs the command line as a user's would. A request may name a
function of a test (``module:function``) that the process calls just before.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from tests.system.hostile.case import MARKER

RAN_CODE = 97  # exit code of a command in which a file's code has run
HEADROOM = 2 * 2**30
LARGEST_FILE = 64 * 2**20
ROOMS = ("cli", "auditing", "report", "gates", "stats")
PRELOADED = (
    "robaudit.estimators.mc",
    "robaudit.models.load",
    *("robaudit.datasets.digits", "robaudit.datasets.npz", "robaudit.datasets.images", "robaudit.datasets.csv_file"),
    *("torch.export.passes", "torch._export.serde.serialize", "torch.export.pt2_archive._package", "torch.fx.experimental.symbolic_shapes"),
    *("safetensors.torch", "sklearn.datasets", "torchvision.models"),
)


def main() -> None:
    """Answer requests until the input ends."""
    rooms = (importlib.import_module(f"robaudit.{room}") for room in ROOMS)
    for name in (*(module.name for room in rooms for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")), *PRELOADED):
        try:
            importlib.import_module(name)
        except ImportError:  # absent in some versions of torch
            continue
    gc.collect()
    gc.freeze()
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)  # noqa: T201


def answer(
    args: list[str], folder: str, outputs: str, environment: dict[str, str], seconds: float, hook: tuple[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Run ``robaudit ARGS`` in a folder; what it prints goes to the files ``out`` and ``err`` in ``outputs``."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        run(args, folder, Path(outputs), environment, hook)
    late = False
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if not late and time.monotonic() - began > seconds:
            late = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "late": late,
        "seconds": time.monotonic() - began,
        "megabytes": usage.ru_maxrss / 1024,
    }


def run(args: list[str], folder: str, outputs: Path, environment: dict[str, str], hook: tuple[str, dict[str, Any]] | None) -> NoReturn:
    """Become the command: never returns."""
    code = 99
    try:
        os.chdir(folder)
        os.environ.update(environment)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(outputs / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        limit(resource.RLIMIT_DATA, writable_memory() + HEADROOM)
        limit(resource.RLIMIT_FSIZE, LARGEST_FILE)
        limit(resource.RLIMIT_CORE, 0)
        sys.argv = ["robaudit", *args]
        from robaudit.cli import main as command

        if hook is not None:
            (module, _, name), values = hook[0].partition(":"), hook[1]
            getattr(importlib.import_module(module), name)(**values)
        command()
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 98
    except BaseException:  # noqa: BLE001  it must not come back into the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(RAN_CODE if os.environ.get(MARKER) else code)


def limit(which: int, most: int) -> None:
    """Lower one limit of this process."""
    resource.setrlimit(which, (most, most))


def writable_memory() -> int:
    """What RLIMIT_DATA counts: bytes of private writable mappings."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


if __name__ == "__main__":
    main()
