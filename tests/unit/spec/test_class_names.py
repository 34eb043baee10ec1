"""Class names from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robaudit.errors import SpecError
from robaudit.spec.read import load_spec
from tests.golden import Golden
from tests.specs import digits, write


def names_in(folder: Path, name: str, text: str | bytes, *settings: str) -> Any:
    """The class names of a spec that names such a file in another folder than the current one."""
    (folder / "lists").mkdir(exist_ok=True)
    (folder / "lists" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    spec = digits(dataset={"kind": "digits", "class_names": f"lists/{name}"})
    return load_spec(write(folder, spec), settings=settings).dataset.class_names


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("a.txt", "cat\n dog \n", ("cat", "dog")),
        ("a.txt", "\ufeffcat\r\ndog\r\n\r\n", ("cat", "dog")),
        ("names", "cat", ("cat",)),
        ("imagenet_classes.txt", "tench\ncrane\ncrane\n", ("tench", "crane (1)", "crane (2)")),
        (
            "a.txt",
            "n01440764 tench, Tinca tinca\nn02012849 crane\nn03126707 crane, machine\n",
            ("tench", "crane", "crane, machine"),
        ),
        ("a.txt", "n02012849 crane\nn03126707 crane\n", ("crane (n02012849)", "crane (n03126707)")),
        ("a.txt", "n01440764\nn02012849\n", ("n01440764", "n02012849")),
        ("a.json", '["cat", "dog"]', ("cat", "dog")),
        ("a.json", '{"1": "dog", "0": "cat"}', ("cat", "dog")),
        ("a.json", '{"dog": 1, "cat": 0}', ("cat", "dog")),
    ],
)
def test_forms(tmp_path: Path, name: str, text: str, names: tuple[str, ...]) -> None:
    assert names_in(tmp_path, name, text) == names


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", ""),
        ("a.txt", "a\n\nb\n"),
        ("a.txt", b"\xff\xfe"),
        ("a.json", "[1"),
        ("a.json", "3"),
        ("a.json", '{"0": "a", "2": "c"}'),
        ("a.json", '{"a": 0, "b": 0}'),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str | bytes, golden: Golden) -> None:
    with pytest.raises(SpecError) as caught:
        names_in(tmp_path, name, text)
    golden(caught.value)


def test_imagenet_by_its_name(tmp_path: Path) -> None:
    spec = digits(dataset={"kind": "images", "path": "photos", "class_names": "imagenet"})
    dataset = load_spec(write(tmp_path, spec)).dataset
    assert dataset.class_names is not None
    assert dataset.class_names[0].startswith("tench")
    assert len(set(dataset.class_names)) == 1000
    # So that folders of synsets are matched, too.
    assert dataset.class_ids is not None
    assert dataset.class_ids[0] == "n01440764"


@pytest.mark.parametrize(
    "written",
    [
        "class_names: [no, yes]",
        "class_names: [yes, no]",
        "class_names: [0, 1]",
        "class_names: [2024-01-31, b]",
        "class_names: {0: no, 1: yes}",
        "class_names: {no: 0, yes: 1}",
        "class_ids: [on, off]",
    ],
)
def test_names_that_yaml_does_not_read_as_text(
    written: str, tmp_path: Path, golden: Golden
) -> None:
    text = f"model: {{path: net.pt}}\ndataset:\n  kind: digits\n  {written}\n"
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, text))
    golden(caught.value)
    quoted = text.replace("no", "'no'").replace("yes", "'yes'").replace("[0, 1]", "['0', '1']")
    if "class_names" in written and "2024" not in written:
        assert set(load_spec(write(tmp_path, quoted)).dataset.class_names or ()) in (
            {"no", "yes"},
            {"0", "1"},
        )
