"""Zip archives that say what is not so."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 2**20
STORED = 0
DEFLATED = 8


@dataclass(frozen=True, slots=True)
class Member:
    """One member as it is written.

    Attributes:
        data: its bytes on disk.
        method: STORED or DEFLATED.
        size: what it claims to expand to; None: the truth.
        crc: its checksum; None: that of the bytes on disk.
    """

    name: str
    data: bytes
    method: int = STORED
    size: int | None = None
    crc: int | None = None


def write_zip(path: Path, *members: Member, directory_offset: int | None = None) -> Path:
    """Write an archive, lies included."""
    body = b""
    directory = b""
    for member in members:
        size = len(member.data) if member.size is None else member.size
        packed = len(member.data)
        name = member.name.encode()
        large = b"" if max(size, packed) < 2**32 else struct.pack("<HHQQ", 1, 16, size, packed)
        sizes = (2**32 - 1, 2**32 - 1) if large else (packed, size)
        head = struct.pack(
            "<HHHHHIII",
            45,
            0,
            member.method,
            0,
            33,
            zlib.crc32(member.data) if member.crc is None else member.crc,
            *sizes,
        ) + struct.pack("<HH", len(name), len(large))
        directory += (
            b"PK\1\2"
            + struct.pack("<H", 45)
            + head
            + struct.pack("<HHHII", 0, 0, 0, 0, len(body))
            + name
            + large
        )
        body += b"PK\3\4" + head + name + large + member.data
    begin = len(body) if directory_offset is None else directory_offset
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), begin, 0)
    path.write_bytes(body + directory + b"PK\5\6" + end)
    return path


def zeros(megabytes: int) -> bytes:
    """A deflate stream of so many megabytes of zeros, a thousandth of their size, made in no
    time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * megabytes + packer.flush(zlib.Z_FINISH)


def rewrite(
    path: Path, change: Callable[[str, bytes], bytes | None], more: dict[str, bytes] | None = None
) -> Path:
    """Write an archive again with members changed, dropped (None) or added (below the same
    root)."""
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
