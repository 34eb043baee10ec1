"""Class names from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robaudit.errors import SpecError
from robaudit.spec.load import load_spec
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
        ("a.txt", "n01440764 tench, Tinca tinca\nn02012849 crane\nn03126707 crane, machine\n", ("tench", "crane", "crane, machine")),
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
    ("name", "text", "says"),
    [
        ("a.txt", "", "got 'lists/a.txt'; is an empty file"),
        ("a.txt", "a\n\nb\n", "must be a file with a name on each line (line 2 is empty)"),
        ("a.txt", b"\xff\xfe", "must be a file of UTF-8 text"),
        ("a.json", "[1", "is not valid JSON ("),
        ("a.json", "3", "must be a list of names, {index: name} or {name: index}"),
        ("a.json", '{"0": "a", "2": "c"}', "with all indices from 0"),
        ("a.json", '{"a": 0, "b": 0}', "with all indices from 0"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        names_in(tmp_path, name, text)
    assert f"spec.yaml:6: dataset.class_names: got 'lists/{name}'; " in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("class_names: [no, yes]", "class_names[0]: got False; must be text: put it in quotes (without them, YAML reads no, off and false"),
        ("class_names: [yes, no]", "class_names[0]: got True; must be text: put it in quotes (without them, YAML reads yes, on and true"),
        ("class_names: [0, 1]", "class_names[0]: got 0; must be text: put it in quotes"),
        ("class_names: [2024-01-31, b]", "class_names[0]: must be text: put it in quotes"),
        ("class_names: {0: no, 1: yes}", "class_names: has the name False, which must be text: put it in quotes"),
        ("class_names: {no: 0, yes: 1}", "class_names: has the name False, which must be text: put it in quotes"),
        ("class_ids: [on, off]", "class_ids[0]: got True; must be text: put it in quotes"),
    ],
)
def test_names_that_yaml_does_not_read_as_text(written: str, says: str, tmp_path: Path) -> None:
    text = f"model: {{path: net.pt}}\ndataset:\n  kind: digits\n  {written}\n"
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, text))
    assert says in str(caught.value)
    quoted = text.replace("no", "'no'").replace("yes", "'yes'").replace("[0, 1]", "['0', '1']")
    if "class_names" in written and "2024" not in written:
        assert set(load_spec(write(tmp_path, quoted)).dataset.class_names or ()) in ({"no", "yes"}, {"0", "1"})
