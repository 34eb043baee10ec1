"""Zip archives that say what is not so."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 2**20
STORED, DEFLATED = 0, 8


@dataclass(frozen=True, slots=True)
class Member:
    """One member as it is written: every number may be a lie; None is the truth.

    Attributes:
        data: its bytes on disk.
        method: STORED or DEFLATED.
        size: what it claims to expand to.
        packed: what it claims to take on disk.
        local_name: its name in its own header, where that differs from the directory's.
    """

    name: str
    data: bytes
    method: int = STORED
    size: int | None = None
    packed: int | None = None
    crc: int | None = None
    flags: int = 0
    local_name: str | None = None
    offset: int | None = None


def write_zip(path: Path, *members: Member, comment: bytes = b"", directory_offset: int | None = None) -> Path:
    """Write an archive, lies included."""
    body, directory = b"", b""
    for member in members:
        size = len(member.data) if member.size is None else member.size
        packed = len(member.data) if member.packed is None else member.packed
        crc = zlib.crc32(member.data) if member.crc is None else member.crc
        offset = len(body) if member.offset is None else member.offset
        large = b"" if max(size, packed) < 2**32 else struct.pack("<HHQQ", 1, 16, size, packed)
        sizes = (2**32 - 1, 2**32 - 1) if large else (packed, size)
        name, local = member.name.encode(), (member.name if member.local_name is None else member.local_name).encode()
        head = struct.pack("<HHHHHIII", 45, member.flags, member.method, 0, 33, crc, *sizes)
        body += b"PK\3\4" + head + struct.pack("<HH", len(local), len(large)) + local + large + member.data
        tail = struct.pack("<HHHHHII", len(name), len(large), 0, 0, 0, 0, offset)
        directory += b"PK\1\2" + struct.pack("<H", 45) + head + tail + name + large
    begin = len(body) if directory_offset is None else directory_offset
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), begin, len(comment))
    path.write_bytes(body + directory + b"PK\5\6" + end + comment)
    return path


def zeros(megabytes: int) -> bytes:
    """A deflate stream of so many megabytes of zeros, a thousandth of their size, made in no time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * megabytes + packer.flush(zlib.Z_FINISH)


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None], more: dict[str, bytes] | None = None) -> Path:
    """Write an archive again with members changed, dropped (None) or added (below the same root)."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(members)).partition("/")[0]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            changed = change(name, content)
            if changed is not None:
                archive.writestr(name, changed)
        for name, content in (more or {}).items():
            archive.writestr(f"{root}/{name}", content)
    return path
