"""Arrays, images and lists of images that lie, expand, lead elsewhere, or would be waited for
forever."""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.system.hostile.archives import DEFLATED, Member, write_zip, zeros
from tests.system.hostile.case import CANARY, Case, data_spec, payload

NPZ = "data.npz: "
LIST = "list.csv"


def npy(header: bytes, data: bytes = b"") -> bytes:
    """A .npy with this text as its header."""
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def described(shape: tuple[int, ...]) -> bytes:
    return repr({"descr": "|u1", "fortran_order": False, "shape": shape}).encode() + b"\n"


def npz(member: Member, limit: int | None = None) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write_zip(folder / "data.npz", member)
        data_spec(folder, "npz", "data.npz", labels_key=None, limit=limit)

    return make


def images(content: bytes, **lies: Any) -> Callable[[Path], None]:
    """A .npz with one array, ``images``, whose .npy is this."""
    return npz(Member("images.npy", content, **lies))


def pickled(folder: Path) -> None:
    (folder / "data.npz").write_bytes(pickle.dumps(payload(folder)))
    data_spec(folder, "npz", "data.npz", labels_key=None)


def object_array(folder: Path) -> None:
    np.savez(folder / "data.npz", images=np.array([payload(folder)], dtype=object))
    data_spec(folder, "npz", "data.npz", labels_key=None)


def npz_cases() -> dict[str, Case]:
    giant = (10 * 2**30 // 64, 1, 8, 8)
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = stream.compress(npy(described(giant))) + stream.flush(zlib.Z_FULL_FLUSH)
    whole = len(npy(described(giant))) + 10 * 2**30
    code = "__import__('os').mkdir('canary')"
    deflated: dict[str, Any] = {"method": DEFLATED, "size": whole, "crc": 0}
    return {
        "npy: a type in an expression": Case(
            images(npy(f"{{'descr': {code}, 'fortran_order': False, 'shape': (1,)}}\n".encode())),
            NPZ,
        ),
        "npy: a header 5,000 deep": Case(images(npy(b"(" * 5_000 + b")" * 5_000)), NPZ),
        "npz: objects": Case(object_array, NPZ, dangerous=True),
        "npz: a pickle": Case(pickled, NPZ),
        "npz: 10 GB in the header": Case(
            images(npy(described(giant), bytes(100))), NPZ, dangerous=True
        ),
        "npz: 10 GB, compressed 1000 times": Case(
            npz(Member("images.npy", head + zeros(10 * 1024), **deflated), limit=8),
            NPZ,
            dangerous=True,
        ),
        **{f"npz: {what}": Case(special_file("data.npz", what, "npz"), NPZ) for what in SPECIAL},
    }


SPECIAL = (
    "a pipe",
    "a socket",
    "a folder",
    "a link to itself",
    "a link to /dev/zero",
    "a link to nothing",
    "10 GB of nothing",
    "unreadable",
)


def place(path: Path, what: str) -> None:
    """Put something there that is no usual file."""
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a socket":
        here = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        finally:
            os.chdir(here)
    elif what == "a folder":
        path.mkdir()
    elif what == "a link to itself":
        path.symlink_to(path.name)
    elif what == "a link to /dev/zero":
        path.symlink_to("/dev/zero")
    elif what == "a link to nothing":
        path.symlink_to("nothing")
    elif what == "10 GB of nothing":
        path.touch()
        os.truncate(path, 10 * 2**30)
    else:
        path.write_bytes(b"secret")
        path.chmod(0)
        if os.access(path, os.R_OK):  # root reads everything
            path.write_bytes(b"\0" * 99)


def special_file(name: str, what: str, kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        place(folder / name, what)
        data_spec(folder, kind, name)

    return make


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *extra: bytes, data: bytes | None = None) -> bytes:
    """A greyscale PNG of zeros that claims this size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    row = bytes(1 + width)
    body = zlib.compress(row * height) if data is None else data
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + b"".join(extra)
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


def bomb_row(megabytes: int) -> bytes:
    """A zlib stream of zeros."""
    return b"\x78\xda" + zeros(megabytes) + b"\0\0\0\0"


def one_class(content: bytes, **fields: Any) -> Callable[[Path], None]:
    """Ten class folders with one good image each, and one more."""

    def make(folder: Path) -> None:
        ten_folders(folder)
        (folder / "images" / "0" / "a.png").write_bytes(content)
        data_spec(folder, "images", "images", channels=1, **fields)

    return make


def ten_folders(folder: Path) -> None:
    for number in range(10):
        (folder / "images" / str(number)).mkdir(parents=True)
        Image.new("L", (8, 8), 20 * number).save(folder / "images" / str(number) / "b.png")


def image_cases() -> dict[str, Case]:
    where = "images, sample 0/a.png"
    many = png(8, 8, data=bomb_row(1024))
    return {
        "image: a PNG of 30,000 x 30,000": Case(
            one_class(png(30_000, 30_000, data=bomb_row(900))), where, dangerous=True
        ),
        "image: a PNG with a text of 1 GB": Case(
            one_class(png(8, 8, chunk(b"zTXt", b"x\0\0" + bomb_row(1024)))), where, dangerous=True
        ),
        "image: a PNG with 1 GB behind its pixels": Case(
            one_class(many), where, codes=(0, 2), dangerous=True
        ),  # Pillow stops reading
        "image: blown up by resize": Case(
            one_class(png(10_000, 1), resize=9_000), where, dangerous=True
        ),
        "images: a loop of folders": Case(loop_of_folders, "images"),
        **{
            f"images: {what}": Case(special_file("images", what, "images"), "images: ")
            for what in SPECIAL
            if what != "a folder"
        },
    }


def loop_of_folders(folder: Path) -> None:
    (folder / "images" / "0").mkdir(parents=True)
    (folder / "images" / "0" / "again").symlink_to("..", target_is_directory=True)
    data_spec(folder, "images", "images")


def listed(path: str, what: str = "") -> Callable[[Path], None]:
    """A list of one image; ``what``: a special file in its place."""

    def make(folder: Path) -> None:
        (folder / "lists").mkdir()
        (folder / "lists" / LIST).write_text(f"path,label\n{path},0\n")
        if what:
            place(folder / "lists" / path, what)
        data_spec(folder, "csv", f"lists/{LIST}", channels=1)

    return make


def long_line(folder: Path) -> None:
    (folder / LIST).write_bytes(b"path,label\n")
    os.truncate(folder / LIST, 10 * 2**30)
    data_spec(folder, "csv", LIST)


def csv_cases() -> dict[str, Case]:
    cases = {
        f"csv: {path}": Case(listed(path), LIST, dangerous=path == "/dev/zero")
        for path in ("/dev/zero", "/etc/passwd", "..")
    }
    cases |= {f"csv: {what} for an image": Case(listed("odd.png", what), LIST) for what in SPECIAL}
    return cases | {
        "csv: 10 GB of nothing": Case(special_file(LIST, "10 GB of nothing", "csv"), LIST),
        "csv: a line of 10 GB": Case(long_line, LIST, dangerous=True),
        "csv: the users of the machine": Case(
            lambda folder: data_spec(folder, "csv", "/etc/passwd"),
            "/etc/passwd: has no column 'path'",
        ),
    }


def tar(*members: tuple[str, bytes | str]) -> Callable[[Path], None]:
    """A WebDataset tar of files, and of links to what is named by text."""

    def make(folder: Path) -> None:
        with tarfile.open(folder / "data.tar", "w") as archive:
            for name, content in members:
                about = tarfile.TarInfo(name)
                if isinstance(content, str):
                    about.type = tarfile.SYMTYPE
                    about.linkname = content
                else:
                    about.size = len(content)
                archive.addfile(about, io.BytesIO(content) if isinstance(content, bytes) else None)
        data_spec(folder, "hf", "data.tar", channels=1)

    return make


def hf_file(name: str, content: Callable[[Path], bytes]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).write_bytes(content(folder))
        data_spec(folder, "hf", name, channels=1)

    return make


def pickled_members(folder: Path) -> None:
    code = pickle.dumps(payload(folder))
    tar(("a.png", png(8, 8)), ("a.cls", b"0"), ("a.pkl", code), ("a.pyd", code), ("a.pth", code))(
        folder
    )


def script_beside(folder: Path) -> None:
    """What was once a loading script."""
    (folder / "set").mkdir()
    (folder / "set" / "set.py").write_text(
        f"import pathlib; pathlib.Path({str(folder / CANARY)!r}).mkdir()"
    )
    (folder / "set" / "a.jsonl").write_text('{"path": "../outside.png", "label": 0}\n')
    (folder / "outside.png").write_bytes(png(8, 8))
    data_spec(folder, "hf", "set", channels=1)


def hf_cases() -> dict[str, Case]:
    good = png(8, 8)
    says = "cannot be read by the library datasets"
    return {
        "hf: a tar of pickles": Case(pickled_members, says, dangerous=True),
        "hf: a tar with names that lead out": Case(
            tar(("../../a.png", good), ("../../a.cls", b"0")), "data.tar", codes=(0, 2)
        ),
        "hf: a tar with a name with escapes": Case(
            tar(("\x1b[2J.png", good), ("\x1b[2J.cls", b"0")), "has control characters"
        ),
        "hf: a pickle for Parquet": Case(
            hf_file("data.parquet", lambda folder: pickle.dumps(payload(folder))),
            says,
            dangerous=True,
        ),
        "hf: lines that lead out, beside a script": Case(
            script_beside, "leads out of the folder of the data", dangerous=True
        ),
        "hf: lines of an address": Case(
            hf_file("data.jsonl", lambda _: b'{"path": "http://localhost:1/a.png"}\n'),
            "nothing is downloaded: store the images",
        ),
    }


DATA = {**npz_cases(), **image_cases(), **csv_cases(), **hf_cases()}
