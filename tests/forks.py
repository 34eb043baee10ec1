"""The command line in a process of its own, forked from this one, which has imported torch already."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from robaudit.cli import main

_BROKEN = 70


def robaudit(folder: Path, *args: str | Path, path: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """``robaudit ARGS`` in a folder; packages in ``path`` are installed for it. Without gradients: autograd does not survive a fork."""
    command = ["robaudit", *map(str, args)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        child = os.fork()
        if child == 0:
            os._exit(_child(folder, command, path, out.fileno(), err.fileno()))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


def _child(folder: Path, command: list[str], path: Sequence[Path], out: int, err: int) -> int:
    os.chdir(folder)
    for stream, number in ((out, 1), (err, 2)):
        os.dup2(stream, number)
    sys.path[:0] = map(str, path)
    importlib.invalidate_caches()
    sys.argv = command
    with warnings.catch_warnings(), open(1, "w", closefd=False) as sys.stdout, open(2, "w", closefd=False) as sys.stderr:
        warnings.resetwarnings()
        try:
            with contextlib.suppress(BrokenPipeError):
                main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:  # noqa: BLE001  as the interpreter would: whatever it is, it is printed
            traceback.print_exc()
    return _BROKEN
