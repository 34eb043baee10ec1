"""What this process does to a folder, operation by operation, and what goes wrong at the k-th.

The functions of ``os`` with which robaudit changes files, the raw files below ``open`` and the system calls of SQLite are replaced, so
that whoever uses them, an operation is seen once, as the system call it becomes.
"""

from __future__ import annotations

import builtins
import functools
import io
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.fault import Fault, Side
from tests.faults.sqlite_calls import replace_calls

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OF_PATH = ("mkdir", "rmdir", "unlink", "remove", "chmod", "fsync", "fchmod", "ftruncate")  # or of a descriptor
OF_TWO_PATHS = ("rename", "replace")
DIRECTORIES = ("dir_fd", "src_dir_fd", "dst_dir_fd")


def install(folder: str, events: str, *, fault: dict[str, Any] | None = None, tick: float = 0, largest: int | None = None) -> None:
    """Begin to count in this process.

    Args:
        folder: the run folder.
        events: a file, elsewhere, that gets a line for each operation.
        fault: the fields of a :class:`Fault`.
        tick: seconds by which the clock goes on whenever it is read (see `clock`), for parts whose size depends on time.
        largest: bytes that a file may have (RLIMIT_FSIZE).
    """
    if tick:
        import tests.faults.clock

        tests.faults.clock.tick(tick)
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    Disk(Path(folder), Path(events), Fault(**fault) if fault else None).replace_functions()


class Disk:
    """Counts, and lets go wrong what is to go wrong."""

    def __init__(self, folder: Path, events: Path, fault: Fault | None) -> None:
        self.folder, self.fault = folder, fault
        self.number = 0
        self._striking = False
        self._write = os.write
        self._log = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, **values: Any) -> None:
        """A line for the test; it is there even if the process dies at once."""
        self._write(self._log, (json.dumps(values) + "\n").encode())

    def mine(self, path: Any, directory: int | None = None) -> str | None:
        """The path of a file (or descriptor) relative to where the run folder lies, None if it is not in the run folder."""
        if isinstance(path, int):
            found = os.readlink(f"/proc/self/fd/{path}")  # noqa: PTH115
        else:
            base = "" if directory is None else os.readlink(f"/proc/self/fd/{directory}")  # noqa: PTH115
            found = os.path.abspath(os.path.join(base, os.fsdecode(path)))  # noqa: PTH100, PTH118  links are not followed
        return os.path.relpath(found, self.folder.parent) if Path(found).is_relative_to(self.folder) else None

    def operate(
        self, name: str, paths: tuple[str, ...], do: Callable[[], Any], half: Callable[[], Any] | None = None, size: int = 0
    ) -> Any:
        """One operation on the folder."""
        if self._striking:
            return do()
        self.number += 1
        number = self.number
        self.note(event=[name, paths, size])
        self._strike(number, name, "before")
        if half is not None and self.fault is not None and self.fault.hits(number, name, "half"):
            half()
            self._strike(number, name, "half")
        try:
            return do()
        finally:
            self._strike(number, name, "after")

    def _strike(self, number: int, name: str, side: Side) -> None:
        if self.fault is not None and self.fault.hits(number, name, side):
            self.note(struck=number)
            self._striking = True
            try:
                self.fault.strike(self.folder)
            finally:
                self._striking = False

    def replace_functions(self) -> None:
        """From now on nobody in this process changes the folder unseen."""
        for name in (*OF_PATH, *OF_TWO_PATHS):
            setattr(os, name, self._counted(name, getattr(os, name)))
        opening = self._open(io.open)
        own = (
            (os, "open", self._os_open(os.open)),
            (os, "write", self._os_write(os.write)),
            (io, "open", opening),
            (builtins, "open", opening),
        )
        for module, name, function in own:
            setattr(module, name, function)
        replace_calls(self.mine, self.operate)

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        count = 2 if name in OF_TWO_PATHS else 1

        def function(*args: Any, **options: Any) -> Any:
            if name == "mkdir" and os.path.isdir(args[0]):  # noqa: PTH112  the kernel says that it is there, whatever else is wrong
                return original(*args, **options)
            directories = [options[key] for key in DIRECTORIES if options.get(key) is not None]
            targets = [self.mine(path, *directories[:1]) for path in args[:count]]
            paths = tuple(path for path in targets if path is not None)
            return self.operate(name, paths, lambda: original(*args, **options)) if paths else original(*args, **options)

        return function

    def _os_open(self, original: Callable[..., int]) -> Callable[..., int]:
        def function(path: Any, flags: int, *args: Any, **options: Any) -> int:
            target = self.mine(path, options.get("dir_fd")) if flags & WRITING else None
            if target is None:
                return original(path, flags, *args, **options)
            done: int = self.operate("open", (target,), lambda: original(path, flags, *args, **options))
            return done

        return function

    def _os_write(self, original: Callable[..., int]) -> Callable[..., int]:
        def function(handle: int, data: Any) -> int:
            target = self.mine(handle)
            if target is None:
                return original(handle, data)
            size = len(data)
            done: int = self.operate("write", (target,), lambda: original(handle, data), lambda: original(handle, data[: size // 2]), size)
            return done

        return function

    def _open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def function(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            target = self.mine(file) if mode == "wb" else None
            if target is None:
                return original(file, mode, *args, **options)
            make = functools.partial(_RawFile, self, target, file)
            return io.BufferedWriter(make() if isinstance(file, int) else self.operate("open", (target,), make))

        return function


class _RawFile(io.FileIO):
    """A file of the run folder: each write is one system call."""

    def __init__(self, disk: Disk, target: str, file: Any) -> None:
        super().__init__(file, "w")
        self._disk, self._target = disk, target

    def write(self, data: Any) -> int:
        write, size = super().write, len(data)
        done: int = self._disk.operate("write", (self._target,), lambda: write(data), lambda: write(data[: size // 2]), size)
        return done
