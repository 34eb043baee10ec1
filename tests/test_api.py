"""The Python API: what the command line does, from Python."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import robaudit
from tests.levels import sigma
from tests.specs import digits, write


def test_from_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = robaudit.audit(str(write(tmp_path, digits(limit=3))))
    assert isinstance(run, robaudit.Run)
    assert run.path.parent == Path("runs")
    assert len(run.rows) == 3
    assert isinstance(run.rows[0], robaudit.Row)
    (group,) = run.summary()
    assert (group.key.estimator, group.key.at.level, group.images) == ("mc", 0.2, 3)
    again = robaudit.read_run(run.path)
    assert (again.rows, again.info, again.summary()) == (run.rows, run.info, run.summary())


def test_a_level_as_the_tables_print_it(tmp_path: Path) -> None:
    run = robaudit.audit(digits(limit=2, noise={"sigma": ["8/255"]}), out=tmp_path / "run")
    assert [(key.estimator, key.at) for key in run.groups(["mc"], [0.0314])] == [
        ("mc", sigma(8 / 255))
    ]
    with pytest.raises(robaudit.RobauditError, match=r"has no level 0\.04; it has 0\.0313"):
        run.groups([], [0.04])


def test_errors_are_of_one_family(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", write(tmp_path, "model: 1")):
        with pytest.raises(robaudit.RobauditError):
            robaudit.load_spec(path)
    with pytest.raises(robaudit.RobauditError, match="is not a run folder"):
        robaudit.read_run(tmp_path / "none")


def test_every_public_name_is_there() -> None:
    for name in robaudit.__all__:
        assert getattr(robaudit, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'audti'"):
        _ = robaudit.audti


def test_typed() -> None:
    assert (files("robaudit") / "py.typed").is_file()


IMPORTS = {
    "audit first": "from robaudit import audit; import robaudit.api.audit; print([] if "
    "callable(robaudit.audit) else 'shadowed')",
    "auditing first": "import robaudit.api.audit, robaudit; from robaudit import audit; print([] "
    "if callable(audit) else 'shadowed')",
    "spec without torch": (
        "import robaudit, sys; found = {'pydantic', 'yaml'} & set(sys.modules); "
        "robaudit.load_spec; print(sorted(found | {'torch', 'numpy'} & set(sys.modules)))"
    ),
    "runs and gates without torch": (
        "import robaudit, robaudit.auditing.until, robaudit.compare.gate_changes, sys; "
        "robaudit.read_run; "
        "print(sorted({'torch'} & set(sys.modules)))"
    ),
}


@pytest.mark.parametrize("code", IMPORTS.values(), ids=list(IMPORTS))
def test_imports(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
