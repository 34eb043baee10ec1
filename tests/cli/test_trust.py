"""What a stranger's files may do to a command: docs/trust.md, row by row, for run folders and for
what is printed."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from robaudit import audit, load_spec
from robaudit.files import json_bytes, sealed
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_info, save_npz, write


def forged(folder: Path, name: str, **about: Any) -> Path:
    """A complete run of the spec in which every image is robust, with digests that fit."""
    audit(load_spec(write(folder, digits(limit=4, **about))), out=folder / name)
    path = folder / name / "samples.json"
    text = path.read_text()
    document = json.loads(text)
    for row in document["rows"]:
        text = text.replace(
            f'"value": {row["value"]!r}, "lower": {row["lower"]!r}', '"value": 1.0, "lower": 0.99'
        )
    path.write_text(text)
    info = read_info(folder / name)
    info["files"]["samples.json"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / name / "run.json").write_bytes(json_bytes(sealed(info)))
    return folder / name


def test_a_forged_complete_run(
    tmp_path: Path, run_cli: RunCli, refuse: Refuse, golden: Golden
) -> None:
    """It is a claim: the command that takes it up says so, `verify` finds it out, and --fresh does
    not take it up."""
    forged(tmp_path, "run", noise={"sigma": 0.9})
    taken = run_cli("estimate", "spec.yaml", "--out", "run")
    assert taken.code == 0
    golden.lines(taken.err)
    assert run_cli("verify", "run", "--samples", "all").code == 1
    for gate in ((), ("--gate", "mean >= 0.1")):
        refuse("estimate", "spec.yaml", "--out", "run", "--fresh", *gate)


def test_code_needs_trust_wherever_it_is_named(
    tmp_path: Path, run_cli: RunCli, refuse: Refuse
) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    torch.save(network.state_dict(), tmp_path / "net.pth")
    (tmp_path / "mynet_of_trust.py").write_text(
        "from torch import nn\n\ndef Net():\n    return nn.Sequential(nn.Flatten(), "
        "nn.Linear(64, 10))\n"
    )
    (tmp_path / "data_of_trust.py").write_text("def load(): raise SystemExit('it ran')\n")
    named = ("--set", "model.architecture=mynet_of_trust:Net")
    model = {"path": "net.pth", "architecture": "robaudit:linear"}
    spec = write(tmp_path, digits(limit=2, model=model))
    refuse("estimate", spec, "--out", "run", *named)
    assert run_cli("estimate", spec, "--out", "run", *named, "--trust").code == 0
    write(tmp_path, digits(dataset={"kind": "python", "target": "data_of_trust:load"}))
    refuse("estimate", spec, "--out", "other")


@pytest.mark.parametrize(
    "arguments", [("show", ""), ("estimate", "spec.yaml", "--out", ""), ("gate", "run", "")]
)
def test_an_empty_argument_is_not_the_working_folder(
    arguments: tuple[str, ...], refuse: Refuse
) -> None:
    refuse(*arguments)


def test_fresh_and_extend(tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits())
    refuse("estimate", "spec.yaml", "--fresh", "--extend")


def test_the_default_folder_is_a_link(tmp_path: Path, refuse: Refuse) -> None:
    """`runs` may have come with the spec: nothing is written through it."""
    write(tmp_path, digits(limit=2))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to("elsewhere")
    for command in ("estimate", "validate"):
        refuse(command, "spec.yaml")


def test_a_run_in_the_default_folder_is_a_link(
    tmp_path: Path, run_cli: RunCli, refuse: Refuse
) -> None:
    write(tmp_path, digits(limit=2))
    assert run_cli("estimate", "spec.yaml").code == 0
    (made,) = (tmp_path / "runs").iterdir()
    made.rename(tmp_path / "elsewhere")
    made.symlink_to(tmp_path / "elsewhere")
    refuse("estimate", "spec.yaml")


def named(run: Path, **dataset: Any) -> None:
    """Let the spec of a finished run name other data."""
    info = read_info(run)
    info["spec"]["dataset"] |= dataset
    (run / "run.json").write_bytes(json_bytes(sealed(info)))


def test_a_run_whose_spec_names_other_data(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    """A page is passed on: a stranger's run must not put the reader's images on it. The same images
    elsewhere are shown."""
    (tmp_path / "private").mkdir()
    save_npz(tmp_path / "data.npz", count=4, shape=(1, 8, 8))
    save_npz(
        tmp_path / "private" / "data.npz",
        count=4,
        shape=(1, 8, 8),
        images=np.full((4, 1, 8, 8), 7, np.uint8),
    )
    write(tmp_path, digits(dataset={"kind": "npz", "path": "data.npz"}))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    named(tmp_path / "run", path="private/data.npz")
    command = ("report", "run", "-o", "report.html")
    pictures = ("flag-samples", "run", "--threshold", "1", "--images")
    shown = run_cli(*command)
    assert shown.code == 0
    golden.lines(shown.err)
    assert b"flagged-title" not in (tmp_path / "report.html").read_bytes()
    refused = run_cli(*pictures, "worst")
    assert refused.code == 2
    golden.lines(refused.err)
    assert list((tmp_path / "worst").rglob("*.png")) == []
    assert run_cli(*pictures, "right", "--data", "spec.yaml").code == 0
    assert len(list((tmp_path / "right").rglob("*.png"))) == 4
    (tmp_path / "run" / "state.db").unlink()
    golden.lines(run_cli(*pictures, "worst").err)


def test_a_run_that_asks_for_a_download(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    audit(load_spec(write(tmp_path, digits(limit=4))), out=tmp_path / "run")
    monkeypatch.setattr(
        "torchvision.datasets.MNIST.download", lambda _: pytest.fail("a download was started")
    )
    info = read_info(tmp_path / "run")
    info["spec"]["dataset"] = {
        "kind": "torchvision",
        "name": "MNIST",
        "root": "mnist",
        "download": True,
        "limit": 4,
    }
    (tmp_path / "run" / "run.json").write_bytes(json_bytes(sealed(info)))
    for command, code in (
        ("report run", 0),
        ("flag-samples run --threshold 1 --images worst", 2),
        ("verify run", 2),
    ):
        outcome = run_cli(*command.split())
        assert outcome.code == code
        golden.lines(outcome.err)
        assert not (tmp_path / "mnist").exists()


def test_a_run_whose_data_are_code(
    tmp_path: Path, run_cli: RunCli, refuse: Refuse, golden: Golden
) -> None:
    """--trust is about a spec that the user names, never about one in a run folder."""
    data = "[(np.full((1, 8, 8), 0.5, 'f4'), 0)] * 4"
    code = (
        "import os\nimport numpy as np\n\n\ndef make():\n    os.makedirs('canary', "
        f"exist_ok=True)\n    return {data}\n"
    )
    (tmp_path / "mine.py").write_text(code)
    write(tmp_path, digits(dataset={"kind": "python", "target": "mine:make"}))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--trust").code == 0
    (tmp_path / "canary").rmdir()
    golden.lines(run_cli("report", "run", "-o", "report.html").err)
    assert not (tmp_path / "canary").exists()
    refuse("report", "run", "--trust")
    assert run_cli("report", "run", "-o", "report.html", "--data", "spec.yaml", "--trust").code == 0
    assert b"data:image" in (tmp_path / "report.html").read_bytes()


EVIL = (
    "::error::all is lost",
    "::add-path::/tmp",
    "a\n::warning::b",
    "\x1b[2J\x07c",
    "=cmd|' /C calc'!A0",
    "-1+1",
    "\u202ed",
    "##vso[x]e",
    "f\r",
    "g",
)
LISTS = ("--threshold", "1")
PRINTED = {
    "tables": ("show", "run"),
    "classes": ("bias-report", "run"),
    "a list": ("flag-samples", "run", *LISTS),
    "classes as CSV": ("bias-report", "run", "--format", "csv"),
    "a list as CSV": ("flag-samples", "run", *LISTS, "--format", "csv"),
    "a list as JSON": ("flag-samples", "run", *LISTS, "--format", "json"),
    "rows": ("show", "run", "rows"),
    "rows as JSON": ("show", "run", "rows", "--format", "json"),
    "a gate": ("gate", "run", "worst_class >= 0.1"),
    "a gate as JUnit": ("gate", "run", "worst_class >= 0.1", "--format", "junit"),
    "Markdown": ("report", "run", "--format", "md"),
    "a page": ("report", "run", "--no-images"),
    "a comparison": ("compare", "run", "run", "--format", "md"),
    "samples": ("show", "run", "sample"),
    "verification": ("verify", "run"),
}


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose ids and class names try to steer whatever reads them."""
    folder = tmp_path_factory.mktemp("evil")
    save_npz(folder / "x.npz", count=10, shape=(1, 8, 8))
    names = list(EVIL)
    data = {
        "kind": "npz",
        "path": "x.npz",
        "class_names": [f"class {number}" for number in range(len(names))],
    }
    audit(load_spec(write(folder, digits(dataset=data))), out=folder / "run")
    info = read_info(folder / "run")
    rows = json.loads((folder / "run" / "samples.json").read_text())
    text = (folder / "run" / "samples.json").read_text()
    for number, name in enumerate(names):
        text = text.replace(f'"sample_id": "{number}"', f'"sample_id": {json.dumps(name)}')
    assert len(rows["rows"]) == len(names)
    (folder / "run" / "samples.json").write_text(text)
    info["files"]["samples.json"] = hashlib.sha256(text.encode()).hexdigest()
    info["data"]["class_names"] = names  # which no data set may have
    info["warnings"] = [*EVIL]
    (folder / "run" / "run.json").write_bytes(json_bytes(sealed(info)))
    return folder


@pytest.mark.parametrize("command", PRINTED.values(), ids=list(PRINTED))
def test_what_is_printed_steers_nothing(
    command: tuple[str, ...], evil: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil)
    outcome = run_cli(*command)
    assert outcome.code in ((2,) if command[0] == "verify" else (0, 1, 4))
    for text in (outcome.out, outcome.err):
        # invisible, and ours: \u2060 keeps Markdown from making links, \xa0 a line of the page from
        # breaking
        assert all(c.isprintable() or c in "\n\u2060\xa0" for c in text)
        assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
        assert "##vso[" not in text
    if "csv" in command or command == ("show", "run", "rows"):
        cells = [cell for line in csv.reader(io.StringIO(outcome.out)) for cell in line]
        assert "'=cmd|' /C calc'!A0" in cells
        assert not [
            cell
            for cell in cells
            if cell.startswith(("=", "+", "@")) or (cell.startswith("-") and "+" in cell)
        ]
    if "json" in command:
        assert set(EVIL) <= set(texts(json.loads(outcome.out))), (
            "programs get the names as they are"
        )


def texts(document: object) -> Iterator[str]:
    if isinstance(document, dict | list):
        for one in document.values() if isinstance(document, dict) else document:
            yield from texts(one)
    elif isinstance(document, str):
        yield document


def test_annotations_are_the_only_commands(
    evil: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil)
    lines = run_cli("gate", "run", "worst_class >= 0.999", "--format", "github").out.splitlines()
    assert {line.partition(" ")[0] for line in lines} == {"::warning", "::error"}
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("setting", ["trust=true", "model.trust=true"])
def test_only_the_command_line_says_trust(setting: str, tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits())
    refuse("estimate", "spec.yaml", "--set", setting)
    section, _, key = setting.partition("=")[0].rpartition(".")
    document = digits()
    (document.setdefault(section, {}) if section else document)[key] = True
    write(tmp_path, document)
    refuse("estimate", "spec.yaml")


def test_a_run_folder_of_links(tmp_path: Path, refuse: Refuse) -> None:
    """A folder cannot show another run, whose files its maker cannot read, as its own."""
    audit(load_spec(write(tmp_path, digits(limit=4))), out=tmp_path / "mine")
    for name in ("run.json", "samples.json", "summary.json"):
        theirs = shutil.copytree(tmp_path / "mine", tmp_path / "theirs", dirs_exist_ok=True)
        (theirs / name).unlink()
        (theirs / name).symlink_to(tmp_path / "mine" / name)
        refuse("show", "theirs")
        (theirs / name).unlink()
