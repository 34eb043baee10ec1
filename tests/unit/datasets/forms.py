"""The same images in every form that data sets have on disk."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import parquet

COUNT = 12
NAMES = ("cat", "dog", "fox")
PIXELS = np.random.default_rng(5).integers(0, 256, (COUNT, 10, 8, 3), dtype=np.uint8)
LABELS = [index * 5 % 3 for index in range(COUNT)]
BAD = 4
"""The image that is damaged where a form is asked for one."""


def encoded(index: int, *, bad: bool = False) -> bytes:
    """An image as the bytes of a PNG file."""
    if bad and index == BAD:
        return b"junk"
    buffer = io.BytesIO()
    Image.fromarray(PIXELS[index]).save(buffer, "png")
    return buffer.getvalue()


def hub(*, bad: bool = False, names: tuple[str, ...] = NAMES) -> datasets.Dataset:
    """The images as the library ``datasets`` holds them."""
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "note": datasets.Value("string"),
            "label": datasets.ClassLabel(names=list(names)),
        }
    )
    rows = [
        {"image": {"bytes": encoded(i, bad=bad), "path": None}, "note": f"{i}", "label": LABELS[i]}
        for i in range(COUNT)
    ]
    return datasets.Dataset.from_list(rows, features=features)


def write_parquet(path: Path, *, bad: bool = False, group: int = 5, **columns: list[Any]) -> Path:
    """The images as plain bytes, with the further columns (default: label)."""
    content = {
        "image": [encoded(i, bad=bad) for i in range(COUNT)],
        **(columns or {"label": LABELS}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(content), path, row_group_size=group)
    return path


def write_tar(
    path: Path, samples: list[dict[str, Any]] | None = None, *, bad: bool = False
) -> Path:
    """The images as WebDataset has them, or other samples: files of one name and several suffixes,
    one after the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    usual: list[dict[str, Any]] = [
        {"__key__": f"s{i:03}", "png": encoded(i, bad=bad), "cls": str(LABELS[i]).encode()}
        for i in range(COUNT)
    ]
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for sample in usual if samples is None else samples:
            for suffix, content in sample.items():
                if suffix != "__key__":
                    about = tarfile.TarInfo(f"{sample['__key__']}.{suffix}")
                    about.size = len(content)
                    tar.addfile(about, io.BytesIO(content))
    return path


def write_files(folder: Path, *, bad: bool = False) -> list[str]:
    """The images as files; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(COUNT):
        (folder / f"{index:03}.png").write_bytes(encoded(index, bad=bad))
    return [f"{index:03}.png" for index in range(COUNT)]


def write_all(folder: Path, *, bad: bool = False) -> dict[str, dict[str, Any]]:
    """Every form below the folder; the dataset section of each by a name."""
    datasets.disable_progress_bars()
    whole = hub(bad=bad)
    whole.save_to_disk(folder / "arrow")
    datasets.DatasetDict({"train": whole.select(range(3)), "test": whole}).save_to_disk(
        folder / "dict"
    )
    (folder / "hub" / "data").mkdir(parents=True)
    whole.select(range(3)).to_parquet(folder / "hub/data/train-00000-of-00001.parquet")
    for number, part in enumerate((range(7), range(7, COUNT))):
        whole.select(part).to_parquet(folder / f"hub/data/test-{number:05}-of-00002.parquet")
    write_parquet(folder / "plain.parquet", bad=bad)
    write_tar(folder / "whole.tar", bad=bad)
    notes = [json.dumps({"label": NAMES[label], "n": i}).encode() for i, label in enumerate(LABELS)]
    in_json: list[dict[str, Any]] = [
        {"__key__": f"s{i:03}", "png": encoded(i, bad=bad), "json": notes[i]} for i in range(COUNT)
    ]
    for number, samples in enumerate((in_json[:7], in_json[7:])):
        write_tar(folder / f"shards/val-{number:03}.tar", samples)
    for name in ("csv", "jsonl"):
        files = write_files(folder / name, bad=bad)
        rows = [(file, NAMES[label]) for file, label in zip(files, LABELS, strict=True)]
        text = {
            "csv": "file_name,label\n" + "".join(f"{file},{label}\n" for file, label in rows),
            "jsonl": "".join(
                json.dumps({"file_name": file, "label": label}) + "\n" for file, label in rows
            ),
        }
        (folder / name / f"metadata.{name}").write_text(text[name])
    rows_of_tsv = "".join(f"csv/{index:03}.png\t{label}\n" for index, label in enumerate(LABELS))
    (folder / "list.tsv").write_text(f"filename\tclass\n{rows_of_tsv}")
    return {
        "hf, arrow": {"kind": "hf", "path": "arrow"},
        "hf, a split": {"kind": "hf", "path": "dict/test"},
        "hf, parquet": {"kind": "hf", "path": "hub/data/test*.parquet"},
        "parquet": {"kind": "hf", "path": "plain.parquet"},
        "webdataset": {"kind": "hf", "path": "whole.tar"},
        "webdataset, shards": {"kind": "hf", "path": "shards/val-*.tar"},
        "csv, metadata": {"kind": "csv", "path": "csv/metadata.csv"},
        "json lines, metadata": {"kind": "hf", "path": "jsonl/metadata.jsonl"},
        "csv, tabs": {"kind": "csv", "path": "list.tsv"},
    }
