"""Nobody gets in: hostile files of every kind, each met by the real command line in a process of
its own.

Each case must end within seconds and bounded memory, in one clear line (or, where a file may be
harmless, in a result), with nothing executed and nothing written outside the run folder. The
default suite takes a fixed share of the corpus (one in 96) and all that is marked dangerous; the
slow suite takes all.
"""

from __future__ import annotations

import importlib
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from robaudit.engine import registry
from tests.specs import digits, write
from tests.system.hostile.case import USUAL, Case
from tests.system.hostile.client import Answer, homes, run, snapshot
from tests.system.hostile.data import DATA, ten_folders
from tests.system.hostile.models import MODELS, exported, scripted
from tests.system.hostile.runs import RUNS
from tests.system.hostile.specs import SPECS

CORPUS = {**MODELS, **DATA, **SPECS, **RUNS}
MEGABYTES = 200.0
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
    # some of these files are large on paper; the folders are deep
    shutil.rmtree(tmp_path / "work", ignore_errors=True)


PRELOADED = (
    "robaudit.methods.average_case.mc",
    "robaudit.models.load_model",
    "torch.export.pt2_archive._package",
    "torch._export.serde.serialize",
)


@pytest.fixture(scope="module")
def usual_megabytes(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The most memory that audits of good files need: of a TorchScript and a .pt2 file, on good
    images."""
    for name in PRELOADED:  # else every command would
        importlib.import_module(name)
    answers = []
    for name, content in {"net.pt": scripted, "net.pt2": exported}.items():
        place = tmp_path_factory.mktemp("good")
        (place / name).write_bytes(content())
        ten_folders(place)
        write(
            place,
            digits(
                model={"path": name}, dataset={"kind": "images", "path": "images", "channels": 1}
            ),
        )
        answers.append(run(*USUAL, folder=place, outputs=place / "outputs"))
    assert [answer.code for answer in answers] == [0, 0]
    return max(answer.megabytes for answer in answers)


def judge(case: Case, answer: Answer) -> None:
    """The answer is one of those that the case allows, says what is wrong in one line, and steers
    no terminal."""
    assert not answer.late, "still running after a minute"
    assert answer.code in case.codes, (answer.code, answer.err)
    lines = [
        line
        for line in answer.err.splitlines()
        if not line.startswith(("note: ", "warning: ", "auditing: "))
    ]
    if answer.code == 0:
        assert not lines, answer.err
    else:
        assert len(lines) == 1, answer.err
        assert lines[0].startswith("error: ")
        assert case.says in lines[0], lines[0]
        assert len(lines[0]) < LONGEST_LINE
        assert not answer.out or "--images" in case.command
    visible = answer.err if "csv" in case.command else answer.err + answer.out
    assert not [c for c in visible if not (c.isprintable() or c == "\n")], (
        "nothing steers the terminal"
    )


def outside(
    before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]], answer: Answer
) -> list[str]:
    """What changed that must not: everything, unless a run was made."""
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    allowed = ("work/runs", "work/run", "work/pictures")
    return sorted(name for name in changed if answer.code != 0 or not name.startswith(allowed))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=chosen(case.dangerous, name))
        for name, case in CORPUS.items()
    ],
)
def test_hostile_file(case: Case, folder: Path, usual_megabytes: float) -> None:
    case.make(folder)
    before = snapshot(folder.parent)
    answer = run(*case.command, folder=folder, outputs=folder.parent / "outputs")
    judge(case, answer)
    assert outside(before, snapshot(folder.parent), answer) == []
    assert answer.megabytes < usual_megabytes + MEGABYTES


def test_no_count_is_without_an_end() -> None:
    """An estimator that is asked for 10^15 copies would never end: a typing error must not cost a
    day."""
    ours = [
        registry.load(name)
        for name, point in registry.registered().items()
        if point.value.startswith("robaudit.")
    ]
    counts = [
        (kind, key)
        for kind in ours
        for key, field in kind.model_fields.items()
        if field.annotation is int
    ]
    assert len(counts) >= 8
    for kind, key in counts:
        with pytest.raises(ValidationError, match="less than or equal to"):
            kind(**{key: 16 * 10**14})
