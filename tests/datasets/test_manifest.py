"""A CSV file as a data set: columns, labels, offsets, and every way it can be wrong."""

from __future__ import annotations

import csv
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from robaudit.datasets import manifest, open_dataset
from robaudit.datasets.base import Dataset
from robaudit.errors import DataError, SampleError
from robaudit.spec.model import ManifestSpec, SampleSpec
from tests.datasets.tools import open_below


def opened(folder: Path, text: str | bytes, **options: Any) -> Dataset:
    (folder / "list.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_dataset(ManifestSpec(kind="manifest", path="list.csv", **options), base_dir=folder, trust=False)


def message(folder: Path, text: str | bytes, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        opened(folder, text, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def labels(dataset: Dataset) -> list[int] | None:
    found = dataset.labels()
    return None if found is None else [int(label) for label in found]


def ids(dataset: Dataset) -> list[str]:
    return [dataset.sample_id(index) for index in range(len(dataset))]


def draw(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), value).save(path)


def test_paths_relative_and_absolute(tmp_path: Path) -> None:
    here = tmp_path / "here"
    for value, path in enumerate((here / "a.png", tmp_path / "out" / "b.png", here / "c.png")):
        draw(path, value)
    (here / "link.png").symlink_to(tmp_path / "out" / "b.png")
    text = f"path,label\na.png,2\n../out/b.png,0\n{here}/c.png,\nlink.png,1\n"
    dataset = opened(here, text, channels=1)
    assert ids(dataset) == ["a.png", "../out/b.png", f"{here}/c.png", "link.png"]
    assert labels(dataset) == [2, 0, -1, 1]
    assert [dataset[i].label for i in range(4)] == [2, 0, None, 1]
    assert [round(float(dataset[i].pixels.max()) * 255) for i in range(4)] == [0, 1, 2, 1]


def test_ids_other_columns_and_spaces(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    dataset = opened(tmp_path, "weather, id ,label,path\nsun,x1, 3 ,a.png\nrain,x2,,a.png\n")
    assert ids(dataset) == ["x1", "x2"]
    assert labels(dataset) == [3, -1]
    assert dataset[1].id == "x2"


def test_without_a_label_column(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    dataset = opened(tmp_path, "path\na.png\n")
    assert dataset.labels() is None
    assert dataset[0].label is None


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    draw(tmp_path / "ä.png")
    draw(tmp_path / "b.png")
    dataset = opened(tmp_path, "\ufeffpath,label\r\nä.png,1\r\n\r\nb.png,0\r\n")
    assert ids(dataset) == ["ä.png", "b.png"]
    assert dataset[0].label == 1


@pytest.mark.parametrize(
    ("column", "class_names", "indices", "names"),
    [
        (["dog", "cat", "dog"], None, [1, 0, 1], ("cat", "dog")),
        (["dog", "", "cat"], ("cat", "bird", "dog"), [2, -1, 0], ("cat", "bird", "dog")),
        (["2", "0", "007"], None, [2, 0, 7], None),
        (["1", "0", "1"], ("cat", "dog"), [1, 0, 1], ("cat", "dog")),
        (["8", "3", "8"], ("3", "8"), [1, 0, 1], ("3", "8")),
        (["", "", ""], None, [-1, -1, -1], None),
    ],
)
def test_labels(tmp_path: Path, column: list[str], class_names: Any, indices: list[int], names: Any) -> None:
    text = "path,label\n" + "".join(f"{place}.png,{label}\n" for place, label in enumerate(column))
    dataset = opened(tmp_path, text, class_names=class_names)
    assert labels(dataset) == indices
    assert dataset.class_names == names


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("file,label\na,1\n", {}, "list.csv: has no column 'path' in its first line (columns: file, label); set path_column: file"),
        ("filename,class\na,1\n", {}, "(columns: filename, class); set path_column: filename and label_column: class"),
        ("Image,Y\na,1\n", {}, "; set path_column: Image and label_column: Y"),
        ("a.png,1\n", {}, "; begin the file with a line that names its columns, such as path,label"),
        ("path,class\na,1\n", {}, "list.csv: has no column 'label', but 'class'; set label_column: class (null: no labels)"),
        (
            "path,label\na,1\n",
            {"label_column": "lable"},
            "has no column 'lable' (columns: path, label); label_column: did you mean 'label'?",
        ),
        ("path,label\na,1\n", {"id_column": "key"}, "has no column 'key' (columns: path, label); id_column: known: label, path"),
        (
            "path,label\na,1\n",
            {"path_column": "paths"},
            "has no column 'paths' in its first line (columns: path, label); did you mean 'path'?",
        ),
        ("path;label\na;1;2\n", {}, "list.csv:2: has 3 fields, too many: the header has 2; quote fields with semicolons"),
        ("paths,label\na,1\n", {}, "; did you mean 'paths'?"),
        ("", {}, "list.csv: has no column 'path' in its first line (columns: none)"),
        ("path|label\na|1\n", {}, "(columns: path|label); separate the columns by commas, semicolons or tabs"),
        ("path,label,path\n", {}, "list.csv: has the column 'path' twice; keep one"),
        ("path,label\n", {}, "list.csv: has no samples; "),
        ("path,label\na,1\n\nb\n", {}, "list.csv:4: has 1 fields, too few: the header has 2"),
        ("path,label\na,1,2\n", {}, "list.csv:2: has 3 fields, too many: the header has 2; quote fields with commas"),
        ("path,label\n ,1\n", {}, "list.csv:2: has an empty path; "),
        ("path,id\na,1\nb,\n", {}, "list.csv:3: has an empty id; "),
        ("path,label\na,1\nb,2\na,3\n", {}, "list.csv: lines 2 and 4 have the same id 'a'; add a column id to use a path twice"),
        ("path,id\na,x\n\nb,y\nc,y\nd,y\n", {}, "list.csv: lines 4 and 5 have the same id 'y'; ids must differ"),
        ("path,label\na,1\nb,cat\n", {}, "list.csv: mixes labels that are names ('cat', line 3) and numbers ('1', line 2); "),
        ("path,label\na,1\nb,-2\n", {}, "list.csv:3: the label '-2' is not a class index; "),
        ("path,label\na,1.0\n", {}, "list.csv:2: the label '1.0' is not a class index; "),
        ("path,label\na,99999999999999999999\n", {}, "list.csv:2: the label '99999999999999999999' is not a class index; "),
        (
            "path,label\na,cat\nb,dgo\n",
            {"class_names": ("cat", "dog")},
            "list.csv:3: the label 'dgo' is not in class_names; did you mean 'dog'?",
        ),
        ("path,label\na,2\n", {"class_names": ("cat", "dog")}, "list.csv: sample 'a' has the label 2, but class_names has 2 names"),
        ('path,label\n"a,1\nb,2\n', {}, "list.csv:3: is not valid CSV (unexpected end of data); "),
        ("path,label\na\rb,1\n", {}, "list.csv:2: is not valid CSV ("),
        (b"path,label\na,1\n\xff\xfe,2\n", {}, "list.csv:3: is not UTF-8 text; save the file as UTF-8"),
        ("path,label\na,1\n".encode("utf-16"), {}, "list.csv:1: is not UTF-8 text; "),
    ],
)
def test_wrong_files(tmp_path: Path, text: str | bytes, options: dict[str, Any], expected: str) -> None:
    assert expected in message(tmp_path, text, **options)


def test_missing_file(tmp_path: Path) -> None:
    (tmp_path / "lists.csv").write_text("path\n")
    with pytest.raises(DataError, match=r"did you mean 'lists\.csv'"):
        open_dataset(ManifestSpec(kind="manifest", path="list.csv"), base_dir=tmp_path, trust=False)


def test_unreadable_images_are_single_samples(tmp_path: Path) -> None:
    draw(tmp_path / "ok.png")
    (tmp_path / "folder.png").mkdir()
    dataset = opened(tmp_path, "path\nno.png\nfolder.png\nok.png\n")
    with pytest.raises(SampleError, match=r"^list.csv, no.png: no such file; "):
        dataset[0]
    with pytest.raises(SampleError, match=r"^list.csv, folder.png: is not a regular file; "):
        dataset[1]
    assert dataset[2].id == "ok.png"


def test_paths_from_windows(tmp_path: Path) -> None:
    """A name may have a backslash here, so it is not translated; but the line says what is wrong."""
    draw(tmp_path / "a\\b.png")
    dataset = opened(tmp_path, "path\na\\b.png\nc\\d.png\n")
    assert dataset[0].id == "a\\b.png"
    with pytest.raises(SampleError, match=r"^list.csv, c\\d.png: no such file; folders are separated by / here, not by \\$"):
        dataset[1]


@pytest.mark.parametrize("path", ["nul\0byte.png", "x" * 5000 + ".png"])
def test_impossible_paths(tmp_path: Path, path: str) -> None:
    with pytest.raises(SampleError):
        opened(tmp_path, f"path\n{path}\n")[0]


def test_a_file_changed_meanwhile(tmp_path: Path) -> None:
    dataset = opened(tmp_path, "path\nsome/long/path.png\nother.png\n")
    (tmp_path / "list.csv").write_text("path\n")
    with pytest.raises(DataError, match="changed while it was in use"):
        dataset.sample_id(1)


def test_pickle(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", 7)
    dataset = pickle.loads(pickle.dumps(opened(tmp_path, "path,label\na.png,1\n")))
    assert dataset[0].label == 1


FIELD = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters='\n,"'), min_size=1).filter(
    lambda text: text.strip() != ""
)


@settings(max_examples=60, deadline=None)
@given(paths=st.lists(FIELD, min_size=1, max_size=8, unique_by=str.strip), end=st.sampled_from(["\n", "\r\n"]))
def test_every_row_is_found_again(tmp_path_factory: pytest.TempPathFactory, paths: list[str], end: str) -> None:
    path = tmp_path_factory.mktemp("csv") / "list.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator=end)
        writer.writerows([["x", "path"], *(["é", text] for text in paths)])
    dataset = open_dataset(ManifestSpec(kind="manifest", path="list.csv"), base_dir=path.parent, trust=False)
    assert ids(dataset) == [text.strip() for text in paths]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_empty_lines_between_rows(tmp_path: Path, end: str) -> None:
    rows = ["path,id", "", "a.png,1", "", "", '"b', '.png","', '2"', *[""] * 5000, "c.png,3", ""]
    dataset = opened(tmp_path, end.join(rows))
    assert ids(dataset) == ["1", "2", "3"]
    with patch("os.pread", wraps=os.pread) as pread, pytest.raises(SampleError, match="no such file"):
        dataset[1]
    assert pread.call_args.args[1] == len(f'"b{end}.png","{end}2"{end}'), "the longest row, however many empty lines follow"


def test_places_that_there_are_not(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path\na\nb\n")
    dataset = manifest.ManifestDataset(ManifestSpec(kind="manifest", path="list.csv"), base_dir=tmp_path)
    assert (dataset.sample_id(-1), dataset.sample_id(-2)) == ("b", "a")
    for index in (2, -3):
        with pytest.raises(IndexError):
            dataset.sample_id(index)


def test_equal_hashes_of_different_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "hash", len, raising=False)
    assert ids(opened(tmp_path, "path\na\nbb\nc\ndd\n")) == ["a", "bb", "c", "dd"]
    assert "lines 3 and 5 have the same id 'bb'" in message(tmp_path, "path\na\nbb\nc\nbb\nc\n")


def test_the_file_is_open_as_long_as_its_table(tmp_path: Path) -> None:
    dataset = opened(tmp_path, "path\na\nb\n")
    assert open_below(tmp_path) == [str(tmp_path / "list.csv")]
    (tmp_path / "list.csv").unlink()
    assert ids(dataset) == ["a", "b"]
    del dataset
    assert not open_below(tmp_path)


def test_a_table_whose_file_is_gone_cannot_be_pickled_back(tmp_path: Path) -> None:
    data = pickle.dumps(opened(tmp_path, "path\na\nb\n"))
    assert ids(pickle.loads(data)) == ["a", "b"]
    (tmp_path / "list.csv").unlink()
    with pytest.raises(DataError, match=r"^list\.csv: cannot be read \(No such file or directory\); "):
        pickle.loads(data)


@pytest.mark.parametrize("options", [{}, {"class_names": tuple(f"class {i}" for i in range(7))}, {"sample": SampleSpec(size=20_000)}])
def test_many_rows_are_cheap(tmp_path: Path, options: dict[str, Any]) -> None:
    rows = 30_000
    text = "path,label,id\n" + "".join(f"some/rather/long/folder/name/{row}.png,class {row % 7},id{row}\n" for row in range(rows))
    (tmp_path / "list.csv").write_text(text)
    tracemalloc.start()
    try:
        dataset = open_dataset(ManifestSpec(kind="manifest", path="list.csv", **options), base_dir=tmp_path, trust=False)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert dataset.labels() is not None
        after, peak_of_labels = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    fixed = 60_000  # of any small table
    assert dataset.sample_id(len(dataset) - 1) == (f"id{rows - 1}" if "sample" not in options else dataset.sample_id(-1))
    assert held < 13 * rows + fixed + 4 * ("sample" in options) * len(dataset)
    assert peak < held + 16 * rows
    assert after < held + 1000
    assert peak_of_labels < held + 16 * rows


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_and_names_of_columns(tmp_path: Path, delimiter: str) -> None:
    draw(tmp_path / "a b.png")
    lines = [["no", "filename", "class", "key"], ["1", "a b.png", "3", "x"], ["2", "a b.png", "", "y"]]
    dataset = opened(tmp_path, "\n".join(map(delimiter.join, lines)), path_column="filename", label_column="class", id_column="key")
    assert (ids(dataset), labels(dataset), dataset[0].label) == (["x", "y"], [3, -1], 3)
    assert opened(tmp_path, f"path{delimiter}label\na b.png{delimiter}3\n")[0].label == 3


def test_a_delimiter_that_is_given(tmp_path: Path) -> None:
    draw(tmp_path / "a,b.png")
    dataset = opened(tmp_path, "path;x,y,z\na,b.png;2\n", delimiter=";", label_column="x,y,z")
    assert (ids(dataset), labels(dataset)) == (["a,b.png"], [2])


def test_defaults_that_are_written_out(tmp_path: Path) -> None:
    """The spec that a run keeps has every default in it."""
    draw(tmp_path / "a.png")
    dataset = opened(tmp_path, "path\na.png\n", path_column="path", label_column="label", id_column="id", delimiter=None)
    assert (ids(dataset), dataset.labels()) == (["a.png"], None)


def test_no_labels_on_demand(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    assert opened(tmp_path, "path,class\na.png,cat\n", label_column=None).labels() is None


def json_lines(folder: Path, text: str, **options: Any) -> Dataset:
    (folder / "list.jsonl").write_text(text, encoding="utf-8")
    return open_dataset(ManifestSpec(kind="manifest", path="list.jsonl", **options), base_dir=folder, trust=False)


def test_json_lines(tmp_path: Path) -> None:
    draw(tmp_path / "ä.png")
    text = '\ufeff\n{"path": "ä.png", "label": 3, "id": 7}\n\n{"id": "x", "label": null, "more": [1], "path": "\\u00e4.png"}\n'
    dataset = json_lines(tmp_path, text)
    assert (ids(dataset), labels(dataset)) == (["7", "x"], [3, -1])
    assert [dataset[index].label for index in (1, 0)] == [None, 3]
    named = json_lines(tmp_path, '{"file": "ä.png", "breed": "cat"}\n', path_column="file", label_column="breed")
    assert (ids(named), named.class_names) == (["ä.png"], ("cat",))
    assert json_lines(tmp_path, '{"path": "ä.png"}\n').labels() is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "list.jsonl: has no column 'path' in its first line (columns: none)"),
        ('{"file": "a"}\n', "list.jsonl: has no column 'path' in its first line (columns: file); set path_column: file"),
        ('{"path": "a"}\n{"file": "b"}\n', "list.jsonl:2: has an empty path; "),
        ('{"path": "a"}\n[1]\n', "list.jsonl:2: is not a JSON object; each line is an object such as "),
        ('{"path": "a"}\n{"path": \n', "list.jsonl:2: is not a JSON object; "),
        ('{"path": "a", "label": 1.5}\n', "list.jsonl:1: its 'label' is 1.5; it must be text or a whole number"),
        ('{"path": "a", "label": true}\n', "list.jsonl:1: its 'label' is true; "),
        ('{"path": "a"}\n{"path": "a"}\n', "list.jsonl: lines 1 and 2 have the same id 'a'; "),
        ("[" * 5000, "list.jsonl:1: is not a JSON object; "),
    ],
)
def test_wrong_json_lines(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        json_lines(tmp_path, text)
    assert says in str(caught.value)
