"""Nobody gets in: hostile files of every kind, each met by the real command line in a process of its own.

Each case must end within seconds and bounded memory, in one clear line (or, where a file may be harmless, in a result), with
nothing executed and nothing written outside the run folder. The default suite takes a fixed share of the corpus (one in 96) and all
that is marked dangerous; the slow suite takes all.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from robaudit.datasets import open_dataset
from robaudit.datasets.torchvision_set import TorchvisionSpec
from robaudit.errors import SampleError
from robaudit.estimators import registry
from tests.specs import digits, write
from tests.system.hostile.case import USUAL, Case
from tests.system.hostile.client import Answer, Server, homes, snapshot
from tests.system.hostile.data import DATA, image_contents, ten_folders
from tests.system.hostile.models import ARCHITECTURE, MODELS, exported, network, scripted
from tests.system.hostile.runs import RUNS
from tests.system.hostile.specs import SPECS

CORPUS = {**MODELS, **DATA, **SPECS, **RUNS}
SECONDS, MEGABYTES = 60.0, 200.0
LONGEST_LINE = 1600
SHARE = 96


def chosen(dangerous: bool, name: str) -> list[pytest.MarkDecorator]:
    return [] if dangerous or zlib.crc32(name.encode()) % SHARE == 0 else [pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, between a file that must stay as it is and the user's homes."""
    (tmp_path / "sentinel").write_text("untouched")
    (tmp_path / "work").mkdir()
    (tmp_path / "outputs").mkdir()
    homes(tmp_path / "outputs")
    yield tmp_path / "work"
    shutil.rmtree(tmp_path / "work", ignore_errors=True)  # some of these files are large on paper; the folders are deep


@pytest.fixture(scope="module")
def usual_megabytes(server: Server, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The most memory that audits of good files need."""
    places = list(good_specs(tmp_path_factory))  # while the server is starting
    answers = [server.run(*USUAL, folder=place, outputs=place / "outputs", seconds=60) for place in places]
    assert [answer.code for answer in answers] == [0, 0]
    return max(answer.megabytes for answer in answers)


def good_specs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders with a spec of a good TorchScript and a good .pt2 file, on good images."""
    for name, content in {"net.pt": scripted, "net.pt2": exported}.items():
        place = tmp_path_factory.mktemp("good") / "work"
        place.mkdir()
        for outputs in (place / "outputs", place.parent / "outputs"):
            outputs.mkdir()
        (place / name).write_bytes(content())
        ten_folders(place)
        write(place, digits(model={"path": name}, dataset={"kind": "images", "path": "images", "channels": 1}))
        yield place


def judge(case: Case, answer: Answer) -> None:
    """The answer is one of those that the case allows, says what is wrong in one line, and steers no terminal."""
    assert not answer.late, f"still running after {answer.seconds:.0f} s"
    assert answer.code in case.codes, (answer.code, answer.err)
    lines = [line for line in answer.err.splitlines() if not line.startswith(("note: ", "warning: ", "auditing: "))]
    if answer.code == 0:
        assert not lines, answer.err
    else:
        assert len(lines) == 1, answer.err
        assert lines[0].startswith("error: ")
        assert case.says in lines[0], lines[0]
        assert len(lines[0]) < LONGEST_LINE
        assert not answer.out or "--images" in case.command
    visible = answer.err if "csv" in case.command else answer.err + answer.out
    assert not [c for c in visible if not (c.isprintable() or c == "\n")], "nothing steers the terminal"


def outside(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]], answer: Answer) -> list[str]:
    """What changed that must not: everything, unless a run was made."""
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    allowed = ("outputs/out", "outputs/err") + (("work/runs", "work/run", "work/pictures") if answer.code == 0 else ())
    return sorted(name for name in changed if not name.startswith(allowed))


@pytest.mark.parametrize("case", [pytest.param(case, id=name, marks=chosen(case.dangerous, name)) for name, case in CORPUS.items()])
def test_hostile_file(case: Case, server: Server, folder: Path, usual_megabytes: float) -> None:
    case.make(folder)
    before = snapshot(folder.parent)
    answer = server.run(*case.command, folder=folder, outputs=folder.parent / "outputs", seconds=SECONDS)
    judge(case, answer)
    assert outside(before, snapshot(folder.parent), answer) == []
    assert answer.megabytes < usual_megabytes + MEGABYTES


def good_run(server: Server, folder: Path, **sections: Any) -> Answer:
    """An audit that succeeds; its answer."""
    write(folder, digits(**sections))
    answer = server.run("estimate", "spec.yaml", "--out", "run", folder=folder, outputs=folder.parent / "outputs", seconds=60)
    assert answer.code == 0, answer.err
    return answer


def images_in(path: str) -> dict[str, object]:
    return {"kind": "images", "path": path, "channels": 1}


def test_a_linked_model_is_read(server: Server, folder: Path) -> None:
    (folder / "real.pt").write_bytes(scripted())
    (folder / "net.pt").symlink_to("real.pt")
    good_run(server, folder, model={"path": "net.pt"})


def test_checksums_that_torch_was_told_to_leave_out(server: Server, folder: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(network().state_dict(), folder / "net.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    good_run(server, folder, model={"path": "net.pt", **ARCHITECTURE})


def test_ids_from_strangers(server: Server, folder: Path) -> None:
    """Ids stay what they are in samples.json; the CSV holds no formulas, and nothing printed is a command of a CI."""
    ids = ["=1+cmd|' /C calc'!A0", "+1", "-1", "@x", "::error::x"]
    Image.new("L", (8, 8)).save(folder / "a.png")
    (folder / "list.csv").write_text("path,label,id\n" + "".join(f"a.png,0,{name}\n" for name in ids))
    good_run(server, folder, dataset={"kind": "csv", "path": "list.csv", "channels": 1})
    assert [row["sample_id"] for row in rows_of(folder)] == ids
    text = (folder / "run" / "samples.csv").read_text()
    assert all(f"\n'{name}," in text for name in ids[:4])
    table = server.run("flag-samples", "run", "--threshold", "1", folder=folder, outputs=folder.parent / "outputs", seconds=60)
    assert not any(line.startswith("::") for line in table.out.splitlines())


def test_a_spec_with_a_byte_order_mark(server: Server, folder: Path) -> None:
    good_run(server, folder)
    text = (folder / "spec.yaml").read_bytes()
    (folder / "spec.yaml").write_bytes(b"\xef\xbb\xbf" + text)
    assert server.run("estimate", "spec.yaml", "--out", "run", folder=folder, outputs=folder.parent / "outputs", seconds=60).code == 0


def test_no_program_is_started_for_postscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's own image folders open any file that Pillow knows: Ghostscript must not be asked."""
    (tmp_path / "images" / "0").mkdir(parents=True)
    (tmp_path / "images" / "0" / "a.png").write_bytes(image_contents()["EPS"])
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("a program was started"))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    spec = TorchvisionSpec(kind="torchvision", name="ImageFolder", root="images", split=None)
    dataset = open_dataset(spec, base_dir=tmp_path, trust=False)
    with pytest.raises(SampleError, match="raised OSError: Unable to locate Ghostscript"):
        dataset[0]


def test_no_count_is_without_an_end() -> None:
    """An estimator that is asked for 10^15 copies would never end: a typing error must not cost a day."""
    ours = [registry.load(name) for name, point in registry.registered().items() if point.value.startswith("robaudit.")]
    counts = [(kind, key) for kind in ours for key, field in kind.model_fields.items() if field.annotation is int]
    assert len(counts) >= 8
    for kind, key in counts:
        with pytest.raises(ValidationError, match="less than or equal to"):
            kind(**{key: 16 * 10**14})


def rows_of(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((folder / "run" / "samples.json").read_text())["rows"]
    return found
