"""The run folder: atomic writes and the lock."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from robaudit.errors import RunError
from robaudit.files import json_bytes, write_atomically
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.quantities import P_ROBUST, Quantity
from robaudit.rows import COLUMNS, Row, read_row
from robaudit.store.folder import locked
from robaudit.store.run import Run, read_run
from tests.levels import sigma

LOW, HIGH = sigma(0.1), sigma(0.2)


def row(sample: str = "0", at: NoiseLevel = LOW, estimator: str = "mc", value: float = 0.5) -> Row:
    values: dict[str, Any] = dict.fromkeys(COLUMNS) | {"sample_id": sample, "predicted": 1} | at.document()
    values |= {
        "estimator": estimator,
        "quantity": "p_robust",
        "value": value,
        "forwards": 1,
        "backwards": 0,
        "note": "",
        "interval": "none",
    }
    return read_row(values)


def test_not_a_number_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_bytes({"value": math.nan})


def test_write_leaves_the_old_file_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="file: cannot be written: No space left on device; free the disk or choose another folder"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"], "no temporary file is left"


def test_lock_dies_with_its_process(tmp_path: Path) -> None:
    code = "import os, sys, pathlib\nfrom robaudit.store.folder import locked\nwith locked(pathlib.Path(sys.argv[1])):\n    os._exit(9)\n"
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False, timeout=60).returncode == 9
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path), pytest.raises(RunError, match="another robaudit is writing here"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("quantity", [P_ROBUST, Quantity("loss", "nats", 0.0, math.inf, False), Quantity("x", "y", -math.inf, math.inf)])
def test_quantities_come_back(quantity: Quantity) -> None:
    document = json.loads(json_bytes(quantity.document()))
    assert Run(Path(), {"quantities": [document]}, ()).quantities == {quantity.name: quantity}


def test_groups_keep_the_runs_order() -> None:
    rows = tuple(row(sample, at, name) for sample in "ab" for at in (HIGH, LOW) for name in ("taylor", "mc"))
    run = Run(Path("run"), {}, rows)
    assert list(run.groups()) == [("taylor", HIGH), ("mc", HIGH), ("taylor", LOW), ("mc", LOW)]
    assert list(run.groups(["mc"], [0.1, 0.2])) == [("mc", HIGH), ("mc", LOW)]
    assert run.groups(["mc"], [0.1])["mc", LOW].names == ["a", "b"]
    with pytest.raises(RunError, match=r"run: has no sigma 0\.3; it has 0\.2, 0\.1"):
        run.groups(levels=LevelChoice(sigmas=(0.3,)))


def test_read_run_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "none"):
        with pytest.raises(RunError, match="is not a run folder; name a folder that robaudit estimate has written"):
            read_run(tmp_path / name)
