"""WebDataset tars as a data set that remembers where each image lies in its tar; nothing is ever unpacked."""

from __future__ import annotations

import json
import os
import re
import tarfile
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO

import numpy as np

from robaudit.datasets.base import Labels, Sample, matching, name_text, reason
from robaudit.datasets.classes import class_indices
from robaudit.datasets.decode import MOST_BYTES, decode_image
from robaudit.errors import DataError, SampleError
from robaudit.spec.data_files import SUFFIXES
from robaudit.spec.model import WebdatasetSpec
from robaudit.text import clipped

_KEY = re.compile(r"(?:\./)*((?:.*/|)[^./][^./]*)\.([^/]*)", re.DOTALL)  # as in the library: up to the first dot after the last slash
_BLOCK = 512
_MOST_LABEL = 2**20  # bytes of a file with a label


class WebdatasetDataset:
    """Samples of WebDataset tars: files that follow each other and share their name up to the first dot after the last slash.

    A sample's id is that name, after the tar's own name where there are several tars. Its label is the text of its ``cls`` file, a class
    index or a name, or a field of its JSON file.

    Opening reads the headers and labels of the tars once; then a sample takes 26 bytes and those of its id.
    """

    def __init__(self, spec: WebdatasetSpec, *, base_dir: Path) -> None:
        self.where, self._spec = spec.path, spec
        self._files = matching(spec.path, base_dir, (".tar",))
        self._offsets, self._sizes = array("q"), array("I")  # of every image; size 0: there is none
        self._tars, self._codes = array("H" if len(self._files) < 2**16 else "I"), array("i")  # of every sample; code -1: no label
        self._names, self._ends = bytearray(), array("q")  # the names of the samples, one after the other, and where each ends
        self._label_key = spec.label_key and spec.label_key.lower()
        first_samples = self._scan()
        indices, names = class_indices(first_samples, self.where, spec.class_names, spec.class_ids)
        self.class_names: tuple[str, ...] | None = names
        self._by_code = np.array([*(indices[text] for text in first_samples), -1], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._offsets)

    def sample_id(self, index: int) -> str:
        """The name of the sample's files up to the first dot, after that of their tar where there are several."""
        index = range(len(self))[index]
        name = self._names[self._ends[index - 1] if index else 0 : self._ends[index]].decode()
        return name if len(self._files) == 1 else f"{name_text(self._files[self._tars[index]].name)}/{name}"

    def labels(self) -> Labels | None:
        """The class of every sample (-1: none), looked up each time, or None where no sample has one."""
        return self._by_code[np.frombuffer(self._codes, dtype=np.int32)] if len(self._by_code) > 1 else None

    def __getitem__(self, index: int) -> Sample:
        """Decode the image of one sample.

        Raises:
            SampleError: it has none, or it cannot be read or decoded.
        """
        index = range(len(self))[index]
        sample_id = self.sample_id(index)
        where = f"{self.where}, sample {sample_id}"
        size = self._sizes[index]
        if not size:
            raise SampleError(where, "has no image, or an empty one", "leave it out of the tar")
        try:
            with self._files[self._tars[index]].open("rb", buffering=0) as file:
                content = os.pread(file.fileno(), min(size, MOST_BYTES + 1), self._offsets[index])
        except OSError as error:
            raise SampleError(where, f"cannot be read ({reason(error)})", "repair the tar, or leave out this sample") from None
        pixels = decode_image(content, where, self._spec)
        label = int(self._by_code[self._codes[index]])
        return Sample(sample_id, pixels, None if label < 0 else label)

    def _scan(self) -> dict[str, int]:
        """Note where every image lies; returns each distinct label with the number (from 1) of the first sample that has it.

        Raises:
            DataError: a tar is damaged or hostile, a sample has several images or a bad label, or appears twice.
        """
        hashes, codes, first_samples, kinds = array("q"), dict[str, int](), dict[str, int](), dict[str, None]()
        images = 0
        for number, path in enumerate(self._files):
            where = name_text(path.name)
            try:
                with path.open("rb") as file:
                    for name, members in groupby(_members(file, where), key=lambda member: member.name):
                        parts = {member.key: member for member in members}
                        kinds |= dict.fromkeys(list(parts)[: max(0, 20 - len(kinds))])
                        image = self._image(parts, f"{where}, sample {name}")
                        images += image is not None
                        self._offsets.append(image.offset if image else 0)
                        self._sizes.append(min(image.size, 2**32 - 1) if image else 0)
                        self._tars.append(number)
                        self._names += name.encode()
                        self._ends.append(len(self._names))
                        hashes.append(hash((number, name)))
                        label = self._label(file, parts, f"{where}, sample {name}") if image else None
                        self._codes.append(-1 if label is None else codes.setdefault(label, len(codes)))
                        if label is not None:
                            first_samples.setdefault(label, len(self))
            except OSError as error:
                raise DataError(where, f"cannot be read ({reason(error)})", "give a tar that you may read") from None
        held = clipped(" ".join(f".{key}" for key in kinds), 200) or "none"
        if len(self) and not images:
            raise DataError(self.where, f"has no images (files: {held})", "set image_key to the extension of the images")
        if self._spec.label_key is not None and not first_samples:
            raise DataError(
                self.where, f"has no label in a .{self._spec.label_key} file (files: {held})", "correct label_key or label_field"
            )
        self._refuse_duplicates(hashes)
        return first_samples

    def _image(self, parts: Mapping[str, _Member], where: str) -> _Member | None:
        if self._spec.image_key is not None:
            return parts.get(self._spec.image_key.lower())
        found = [key for key in parts if f".{key.rpartition('.')[2].lower()}" in SUFFIXES]
        if len(found) > 1:
            raise DataError(where, f"has {len(found)} images ({', '.join(found[:5])})", f"choose one: image_key: {found[0]}")
        return parts[found[0]] if found else None

    def _label(self, file: IO[bytes], parts: Mapping[str, _Member], where: str) -> str | None:
        """The label as text; None where there is none."""
        if self._label_key is None:  # the first sample with an image settles it
            in_json = "cls" not in parts and "json" in parts and _json_label(file, parts["json"], self._spec.label_field, where) is not None
            self._label_key = "json" if in_json else "cls"
        member = parts.get(self._label_key)
        if member is None:
            return None
        if self._label_key.rpartition(".")[2] == "json":
            return _json_label(file, member, self._spec.label_field, where)
        return _text(file, member, where).strip() or None

    def _refuse_duplicates(self, hashes: array[int]) -> None:
        """Refuse a sample that appears twice in a tar: so does its hash, and samples with such hashes are compared as text."""
        values = np.frombuffer(hashes, dtype=np.int64)
        order = np.sort(values)
        suspects = order[1:][order[1:] == order[:-1]]
        seen = set[tuple[int, str]]()
        for index in np.flatnonzero(np.isin(values, suspects)).tolist() if len(suspects) else ():
            key = self._tars[index], self.sample_id(index)
            if key in seen:
                what = f"has files of the sample {key[1]!r} in two places"
                raise DataError(name_text(self._files[key[0]].name), what, "the files of a sample follow each other, and names differ")
            seen.add(key)


@dataclass(frozen=True, slots=True)
class _Member:
    """A file of a sample: the sample's name, the rest of the file's name, and where its content lies."""

    name: str
    key: str
    offset: int
    size: int


def _members(file: IO[bytes], where: str) -> Iterator[_Member]:
    """The regular files of a tar whose names belong to samples.

    Raises:
        DataError: it is no plain tar, is damaged or truncated, or has links, devices, sparse files or names that lead out of it.
    """
    whole = os.fstat(file.fileno()).st_size
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                name = name_text(member.name)
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    kind = "a sparse file" if member.issparse() else "a link" if member.islnk() or member.issym() else "no regular file"
                    raise DataError(where, f"its member {clipped(name, 100)!r} is {kind}", "a tar of samples holds plain files only")
                if name.startswith("/") or ".." in name.split("/"):
                    raise DataError(where, f"its member {clipped(name, 100)!r} leads out of the tar", "give it a relative name without ..")
                if member.offset_data + member.size > whole:
                    raise DataError(where, f"is truncated (in {clipped(name, 100)!r})", "copy or write the tar again")
                parts = _KEY.fullmatch(name)
                if parts:
                    yield _Member(parts[1], parts[2].lower(), member.offset_data, member.size)
            end = tar.offset
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        compressed = os.pread(file.fileno(), 6, 0).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"))
        what = (
            "is compressed, so its files cannot be read one at a time" if compressed else f"is not a tar, or is damaged ({reason(error)})"
        )
        raise DataError(where, what, "decompress it" if compressed else "copy or write the tar again") from None
    if os.pread(file.fileno(), _BLOCK, end).strip(b"\0"):  # tarfile takes a damaged header for the end
        raise DataError(where, f"is damaged at byte {end}", "copy or write the tar again")


def _text(file: IO[bytes], member: _Member, where: str) -> str:
    if member.size > _MOST_LABEL:
        raise DataError(where, f"its .{member.key} file has {member.size} bytes", "a label is short; set label_key")
    try:
        return os.pread(file.fileno(), member.size, member.offset).decode()
    except UnicodeDecodeError:
        raise DataError(where, f"its .{member.key} file is not UTF-8 text", "write class indices or names; or set label_key") from None


def _json_label(file: IO[bytes], member: _Member, field: str, where: str) -> str | None:
    try:
        document = json.loads(_text(file, member, where))
    except (ValueError, RecursionError):
        raise DataError(where, f"its .{member.key} file is not valid JSON", "repair it, or set label_key") from None
    value = document.get(field) if isinstance(document, dict) else document
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise DataError(
            where, f"the label {clipped(repr(value), 40)} in its .{member.key} file is no class index or name", "set label_field"
        )
    return str(value).strip()
