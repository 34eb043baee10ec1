"""A finished run: its groups, and what is no run folder."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robaudit.errors import RunError
from robaudit.files import json_bytes
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.quantities import NO_INTERVAL
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.stats.reading import read_run
from tests.golden import Golden
from tests.infos import run_info
from tests.levels import sigma
from tests.rows import ROW

LOW = sigma(0.1)
HIGH = sigma(0.2)


def row(sample: str = "0", at: NoiseLevel = LOW, estimator: str = "mc", value: float = 0.5) -> Row:
    """A result without a label or an interval."""
    bare: dict[str, Any] = dict.fromkeys(
        ("label", "correct", "lower", "upper", "std_error", "flips_to")
    )
    about: dict[str, Any] = {"sample_id": sample, "estimator": estimator, **at.document()}
    return replace(ROW, predicted=1, value=value, interval=NO_INTERVAL, **bare, **about)


def test_not_a_number_is_never_written(golden: Golden) -> None:
    with golden.raises(ValueError):
        json_bytes({"value": math.nan})


def test_groups_keep_the_runs_order(golden: Golden) -> None:
    rows = tuple(
        row(sample, at, name) for sample in "ab" for at in (HIGH, LOW) for name in ("taylor", "mc")
    )
    run = Run(Path("run"), run_info(), rows)
    assert [(key.estimator, key.at) for key in run.groups()] == [
        ("taylor", HIGH),
        ("mc", HIGH),
        ("taylor", LOW),
        ("mc", LOW),
    ]
    assert [key.at for key in run.groups(["mc"], [0.1, 0.2])] == [HIGH, LOW]
    assert [columns.names for columns in run.groups(["mc"], [0.1]).values()] == [["a", "b"]]
    with pytest.raises(RunError) as error:
        run.groups(levels=LevelChoice(sigmas=(0.3,)))
    golden(error.value)


def test_read_run_needs_a_folder(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "none"):
        with pytest.raises(RunError) as error:
            read_run(tmp_path / name)
        golden(error.value)


def test_class_names_are_those_of_the_spec_by_their_first_synonym() -> None:
    names = ["tench, Tinca tinca", "crane", "crane"]
    ids = ["n01440764", "n02012849", "n03126707"]
    spec = {"dataset": {"class_names": names, "class_ids": ids}}
    info = run_info(spec=spec)
    assert info.class_names == ("tench", "crane (n02012849)", "crane (n03126707)")
    # Runs of older versions have them twice.
    older = run_info(spec=spec, data={"class_names": names})
    assert older.class_names == info.class_names
    assert run_info().class_names is None
    with pytest.raises(ValueError, match=r"dataset\.class_names must be a list of texts"):
        run_info(spec={"dataset": {"class_names": [1]}})
