"""The Python API: what the command line does, from Python."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest
import torch
from safetensors.torch import load_file

import robaudit
from robaudit.datasets.base import Labels, Sample
from robaudit.models.architectures import digits_cnn
from robaudit.progress import Listener
from tests.specs import WEIGHTS, digits, write


class Squares:
    """Images of one grey each, in memory; every other one is unlabelled."""

    where, class_names = "squares", None

    def __init__(self, count: int = 6) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def sample_id(self, index: int) -> str:
        return f"square {index}"

    def labels(self) -> Labels | None:
        return None

    def __getitem__(self, index: int) -> Sample:
        if index >= self.count:
            raise IndexError(index)
        return Sample(self.sample_id(index), torch.full((1, 8, 8), index / 10), None if index % 2 else 0)


def network() -> torch.nn.Module:
    module = digits_cnn()
    module.load_state_dict(load_file(WEIGHTS))
    return module


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


def test_from_a_spec_with_model_and_data_in_memory(tmp_path: Path) -> None:
    spec = robaudit.AuditSpec.model_validate(digits())
    model = network().train()
    heard = MagicMock(spec=Listener)
    heard.stop_asked.return_value = True  # a wish that comes too late costs nothing: this run is of one part
    run = robaudit.audit(spec, out=tmp_path / "run", model=model, dataset=Squares(), listener=heard)
    assert [row.sample_id for row in run.rows] == [f"square {i}" for i in range(6)]
    assert [row.label for row in run.rows] == [0, None] * 3
    assert run.info.data.labelled == 3
    assert model.training, "the caller's network is left as it was"
    assert (heard.begin.call_args_list, heard.advance.call_args_list, heard.end.call_count) == ([call(6, 0)], [call(6)], 1)
    assert heard.note.call_args_list[0].args[0].endswith("of the first 3 labelled images)")
    heard.warn.assert_not_called()


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
    "audit first": "from robaudit import audit; import robaudit.api.audit; print([] if callable(robaudit.audit) else 'shadowed')",
    "auditing first": "import robaudit.api.audit, robaudit; from robaudit import audit; print([] if callable(audit) else 'shadowed')",
    "spec without torch": (
        "import robaudit, sys; found = {'pydantic', 'yaml'} & set(sys.modules); "
        "robaudit.load_spec; print(sorted(found | {'torch', 'numpy'} & set(sys.modules)))"
    ),
    "runs and gates without torch": (
        "import robaudit, robaudit.gates.until, robaudit.compare.gates, sys; robaudit.read_run; print(sorted({'torch'} & set(sys.modules)))"
    ),
}


@pytest.mark.parametrize("code", IMPORTS.values(), ids=list(IMPORTS))
def test_imports(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")
