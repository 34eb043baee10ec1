"""A CSV file as a data set: columns, labels, the folder that its images must lie in, and every way
it can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from robaudit.datasets.dataset import Dataset
from robaudit.errors import DataError, SampleError
from tests.golden import Golden
from tests.unit.datasets import reading
from tests.unit.datasets.reading import ids, labels


def opened(folder: Path, text: str | bytes, **options: Any) -> Dataset:
    return reading.opened(written(folder, text), kind="csv", path="list.csv", **options)


def message(folder: Path, text: str | bytes, **options: Any) -> str:
    return reading.refusal(written(folder, text), kind="csv", path="list.csv", **options)


def written(folder: Path, text: str | bytes) -> Path:
    (folder / "list.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def draw(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), value).save(path)


def test_paths_lie_in_the_folder_of_the_file(tmp_path: Path, golden: Golden) -> None:
    """Links that lead out of it, absolute paths and ``..`` are one error each, unless the spec
    widens the folder."""
    here = tmp_path / "here"
    for value, path in enumerate((here / "a.png", tmp_path / "out" / "b.png", here / "c.png")):
        draw(path, value)
    (here / "link.png").symlink_to(tmp_path / "out" / "b.png")
    (here / "inner.png").symlink_to(here / "c.png")
    text = f"path,label\na.png,2\n../out/b.png,0\n{here}/c.png,\nlink.png,1\ninner.png,1\n"
    text += "~/b.png,1\n/etc/passwd,1\n"
    dataset = opened(here, text, channels=1)
    assert ids(dataset) == [
        "a.png",
        "../out/b.png",
        f"{here}/c.png",
        "link.png",
        "inner.png",
        "~/b.png",
        "/etc/passwd",
    ]
    assert labels(dataset) == [2, 0, -1, 1, 1, 1, 1]
    assert [round(float(dataset[i].pixels.max()) * 255) for i in (0, 2, 4)] == [0, 2, 2]
    for index in (1, 3, 6):
        with pytest.raises(SampleError) as caught:
            dataset[index]
        golden(caught.value)
    with pytest.raises(SampleError) as caught:
        dataset[5]
    golden(caught.value)
    wide = opened(here, text, channels=1, root="..")
    assert [round(float(wide[i].pixels.max()) * 255) for i in range(5)] == [0, 1, 2, 1, 2]
    assert [wide[i].label for i in range(4)] == [2, 0, None, 1]


@pytest.mark.parametrize("name", ["a\nb", "\u202eagp.exe", "\x9b31m"])
def test_names_without_control_characters(name: str, tmp_path: Path, golden: Golden) -> None:
    """They would be lines or commands in what is written; formulas and words of a CI are names like
    others."""
    draw(tmp_path / "a.png")
    dataset = opened(tmp_path, f'path,id\na.png,"{name}"\n')
    with pytest.raises(DataError) as caught:
        dataset.sample_id(0)
    golden(caught.value)
    with pytest.raises(DataError) as caught:
        dataset[0]
    golden(caught.value)
    said = message(tmp_path, f'path,label\na.png,"{name}"\n')
    golden(said)
    assert ids(opened(tmp_path, "path,id,label\na.png,=cmd|'/C calc'!A0,::error\n")) == [
        "=cmd|'/C calc'!A0"
    ]


def test_ids_other_columns_and_spaces(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    dataset = opened(tmp_path, "weather, id ,label,path\nsun,x1, 3 ,a.png\nrain,x2,,a.png\n")
    assert ids(dataset) == ["x1", "x2"]
    assert labels(dataset) == [3, -1]
    assert dataset[1].id == "x2"


def test_byte_order_mark_windows_line_ends_and_no_labels(tmp_path: Path) -> None:
    draw(tmp_path / "ä.png")
    dataset = opened(tmp_path, "\ufeffpath\r\nä.png\r\n\r\nb.png\r\n")
    assert ids(dataset) == ["ä.png", "b.png"]
    assert dataset.labels() is None
    assert dataset[0].label is None


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
def test_labels(
    tmp_path: Path, column: list[str], class_names: Any, indices: list[int], names: Any
) -> None:
    text = "path,label\n" + "".join(f"{place}.png,{label}\n" for place, label in enumerate(column))
    dataset = opened(tmp_path, text, class_names=class_names)
    assert labels(dataset) == indices
    assert dataset.class_names == names


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.png,1\n", {}),
        ("path,label\na,1\n", {"label_column": "lable"}),
        ("path" * 50_000, {}),
        ("path,label,path\n", {}),
        ("path,label\n", {}),
        ("path;label\na;1\n\na;1;2\n", {}),
        ("path,label\n ,1\n", {}),
        ("path,id\na,x\n\nb,y\nc,y\nd,y\n", {}),
        ("path,label\na,1\nb,cat\n", {}),
        ("path,label\na,1\nb,-2\n", {}),
        ("path,label\na,99999999999999999999\n", {}),
        ("path,label\na,dgo\n", {"class_names": ("cat", "dog")}),
        ("path,label\na,2\n", {"class_names": ("cat", "dog")}),
        ('path,label\n"a,1\nb,2\n', {}),
        (b"path,label\na,1\n\xff\xfe,2\n", {}),
    ],
)
def test_wrong_files(
    tmp_path: Path, text: str | bytes, options: dict[str, Any], golden: Golden
) -> None:
    golden(message(tmp_path, text, **options))


def test_unreadable_images_are_single_samples(tmp_path: Path, golden: Golden) -> None:
    draw(tmp_path / "ok.png")
    dataset = opened(tmp_path, "path\nno.png\nc\\d.png\nok.png\n")
    with pytest.raises(SampleError) as caught:
        dataset[0]
    golden(caught.value)
    with pytest.raises(SampleError) as caught:
        dataset[1]
    golden(caught.value)
    assert dataset[2].id == "ok.png"


@pytest.mark.parametrize(
    ("delimiter", "columns"),
    [(",", ("filename", "Class")), (";", ("Image", "y")), ("\t", ("mine", "too"))],
)
def test_delimiters_and_names_of_columns(
    tmp_path: Path, delimiter: str, columns: tuple[str, str]
) -> None:
    """The usual names are known; others are named."""
    draw(tmp_path / "a b.png")
    lines = [["no", *columns, "key"], ["1", "a b.png", "3", "x"], ["2", "a b.png", "", "y"]]
    named = {"path_column": "mine", "label_column": "too"} if "mine" in columns else {}
    dataset = opened(tmp_path, "\n".join(map(delimiter.join, lines)), id_column="key", **named)
    assert (ids(dataset), labels(dataset), dataset[0].label) == (["x", "y"], [3, -1], 3)
