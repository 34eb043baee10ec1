"""SQLite's system calls on a folder, counted and broken like those of Python.

SQLite does its I/O in C. Its Unix VFS lets a test replace the calls that it makes (``xSetSystemCall``), which is how SQLite itself is
tested. ``fsync`` is not among them: that a commit is synced is SQLite's promise for ``synchronous=EXTRA``, and that this is the
setting is tested elsewhere.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import errno
import os
from collections.abc import Callable
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_int, _text, _data, _size = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
_KINDS: dict[str, Any] = {
    "open": ctypes.CFUNCTYPE(_int, _text, _int, _int, use_errno=True),
    "write": ctypes.CFUNCTYPE(ctypes.c_ssize_t, _int, _data, _size, use_errno=True),
    "pwrite": ctypes.CFUNCTYPE(ctypes.c_ssize_t, _int, _data, _size, ctypes.c_int64, use_errno=True),
    "pwrite64": ctypes.CFUNCTYPE(ctypes.c_ssize_t, _int, _data, _size, ctypes.c_int64, use_errno=True),
    "ftruncate": ctypes.CFUNCTYPE(_int, _int, ctypes.c_int64, use_errno=True),
    "fchmod": ctypes.CFUNCTYPE(_int, _int, ctypes.c_uint, use_errno=True),
    "unlink": ctypes.CFUNCTYPE(_int, _text, use_errno=True),
}
_kept: list[Any] = []  # SQLite knows them, and Python must not free them


class _Vfs(ctypes.Structure):
    _fields_ = (
        *(("version", _int), ("file_size", _int), ("longest_path", _int), ("next", _data), ("name", _text), ("data", _data)),
        *((f"function{i}", _data) for i in range(13)),
        ("set_call", ctypes.CFUNCTYPE(_int, _data, _text, _data)),
        ("get_call", ctypes.CFUNCTYPE(_data, _data, _text)),
    )


Operate = Callable[..., Any]


def replace_calls(mine: Callable[[Any], str | None], operate: Operate) -> None:
    """From now on SQLite changes nothing in the folder unseen.

    Args:
        mine: the path of a file (or descriptor) relative to where the run folder lies, None if it is not in the run folder.
        operate: does one operation: name, paths, what it does, what half of it does, bytes.
    """
    find = ctypes.CDLL(_sqlite3.__file__).sqlite3_vfs_find
    find.restype, find.argtypes = ctypes.POINTER(_Vfs), [_text]
    vfs = find(None)
    for name, kind in _KINDS.items():
        address = vfs.contents.get_call(vfs, name.encode())
        if address:
            replacement = kind(_counted(name, kind(address), mine, operate))
            _kept.append(replacement)
            if vfs.contents.set_call(vfs, name.encode(), ctypes.cast(replacement, _data)) != 0:
                raise AssertionError(f"SQLite does not let its {name} be replaced")


def _counted(name: str, original: Callable[..., int], mine: Callable[[Any], str | None], operate: Operate) -> Callable[..., int]:
    def call(*args: Any) -> int:
        kept = ctypes.get_errno()
        try:
            target = mine(args[0]) if name != "open" or args[1] & WRITING else None
        except OSError:  # a descriptor that is not open
            target = None
        ctypes.set_errno(kept)
        if target is None:
            return original(*args)
        if name not in ("write", "pwrite", "pwrite64"):
            return _told(lambda: operate(name, (target,), lambda: original(*args)))
        handle, data, size, *offset = args
        half = lambda: original(handle, data, size // 2, *offset)  # noqa: E731  as short as a definition
        return _told(lambda: operate("write", (target,), lambda: original(*args), half, size))

    return call


def _told(do: Callable[[], int]) -> int:
    """The result of an operation as C tells it."""
    try:
        return do()
    except OSError as error:
        ctypes.set_errno(error.errno or errno.EIO)
        return -1
