"""What a run says of where it was computed: device, versions, plugins and the command."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shlex
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from robaudit.auditing import environment
from robaudit.auditing.environment import (
    command_line,
    device_name,
    plugins,
    versions,
)
from robaudit.errors import RunError
from robaudit.runs.info import Plugin, RunInfo
from robaudit.spec.model import AuditSpec
from robaudit.system import gpu_names, processor_name
from tests.golden import Golden
from tests.infos import run_info
from tests.specs import digits

CPU = torch.device("cpu")


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of /proc/cpuinfo, which is not there yet."""
    monkeypatch.setattr(environment, "processor_name", partial(processor_name, tmp_path))
    monkeypatch.setattr(platform, "processor", lambda: "")
    (tmp_path / "proc").mkdir()
    return tmp_path / "proc" / "cpuinfo"


def test_the_processor_is_named(cpuinfo: Path) -> None:
    cpuinfo.write_text(
        "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC  7B13 \x1b[2J\nmodel name\t: other\n"
    )
    assert processor_name(cpuinfo.parents[1]) == "AMD EPYC 7B13 \x1b[2J"
    found = device_name(CPU)
    assert found.startswith(f"cpu (AMD EPYC 7B13 \\x1b[2J, {platform.machine()}, ")
    assert re.search(r", \d+ threads?\)$", found)
    assert found.partition(" ")[0] == "cpu"


@pytest.mark.parametrize("content", [None, "", "processor : 0\nCPU implementer : 0x41\n"])
def test_a_machine_that_does_not_name_its_processor(
    content: str | None, cpuinfo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        cpuinfo.write_text(content)
    assert device_name(CPU).startswith(f"cpu ({platform.machine()}, ")
    monkeypatch.setattr(platform, "processor", platform.machine)
    assert device_name(CPU).startswith(f"cpu ({platform.machine()}, ")
    monkeypatch.setattr(platform, "processor", lambda: "Intel64 Family 6")
    assert device_name(CPU).startswith(f"cpu (Intel64 Family 6, {platform.machine()}, ")


def test_gpus_are_named_by_their_driver(tmp_path: Path) -> None:
    assert gpu_names(tmp_path) == []
    for place, model in (("0000:17:00.0", "NVIDIA H200"), ("0000:65:00.0", "NVIDIA L4")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / place
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 0\n")
    assert gpu_names(tmp_path) == ["NVIDIA H200", "NVIDIA L4"]


@pytest.mark.parametrize("there", [True, False])
def test_cuda_and_cudnn_where_torch_has_them(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92600)
    found = versions()
    assert (found["cuda"], found["cudnn"]) == (("13.2", "92600") if there else (None, None))
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: None)
    assert versions()["cudnn"] is None


def test_versions() -> None:
    found = versions()
    assert found["python"] == platform.python_version()
    for name in (
        "robaudit",
        "torch",
        "numpy",
        "pillow",
        "scipy",
        "torchvision",
        "pydantic",
        "safetensors",
        "scikit-learn",
    ):
        assert found[name] == importlib.metadata.version(name)


@pytest.mark.parametrize(
    ("package", "about"),
    [
        (SimpleNamespace(name="margins", version="1.2"), ("margins", "1.2")),
        (None, ("unknown", "unknown")),
    ],
    ids=["margins", "no package"],
)
def test_plugins_are_named_once(
    package: Any, about: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = SimpleNamespace(dist=package, value="margins.plugin:Margin")
    ours = SimpleNamespace(
        dist=SimpleNamespace(name="robaudit", version="0"),
        value="robaudit.methods.average_case.mc:MonteCarlo",
    )
    monkeypatch.setattr(
        environment, "registered", lambda: {"margin": point, "mc": ours, "other": point}
    )
    spec = AuditSpec.model_validate(
        digits(estimators=[{"margin": {"label": "a"}}, "mc", {"margin": {"label": "b"}}])
    )
    expected = Plugin(package=about[0], version=about[1], entry_point="margins.plugin:Margin")
    assert plugins(spec) == {"margin": expected}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["estimate", "spec.yaml", "--set", "mc.draws=20"],
            "robaudit estimate spec.yaml --set mc.draws=20",
        ),
        (["estimate", "my spec.yaml", "it's"], "robaudit estimate 'my spec.yaml' 'it'\"'\"'s'"),
        (["estimate", "gr\u00fcn.yaml"], "robaudit estimate 'gr\u00fcn.yaml'"),
        (["estimate", "\udcff.yaml"], "robaudit estimate '\\xff.yaml'"),
        (["estimate", "\x1b[2J\n"], "robaudit estimate '\\x1b[2J\\n'"),
    ],
)
def test_the_command_is_printable(arguments: list[str], text: str) -> None:
    assert command_line(arguments) == text
    assert text.isprintable()


def test_a_command_can_be_typed_again() -> None:
    arguments = ["estimate", "a b.yaml", "--set", "model.mean=[0.5, 0.5]", "", "*", "$HOME"]
    assert shlex.split(command_line(arguments)) == ["robaudit", *arguments]


ESCAPE = "\x1b[2J"
SESSION = {
    "started": "2026-01-01T00:00:00+00:00",
    "command": None,
    "device": "cpu",
    "robaudit": "0.1.0",
}
PLUGIN = {"package": "margins", "version": "1.2", "entry_point": "margins:Margin"}


@pytest.mark.parametrize(
    "more",
    [
        {
            "plugins": {"margin": PLUGIN},
            "command": "robaudit estimate",
            "sessions": [SESSION, {**SESSION, "command": "robaudit"}],
        },
        {
            "plugins": {},
            "command": None,
            "sessions": [],
            "versions": {"torch": "2.11", "cuda": None},
            "spec_sha256": "0",
            "chunk": 3,
        },
    ],
    ids=["all", "empty"],
)
def test_what_a_run_may_say(more: dict[str, Any]) -> None:
    RunInfo.read({**run_info().document(), **more}, "run")


@pytest.mark.parametrize(
    "more",
    [
        {"plugins": {ESCAPE: PLUGIN}},
        {"plugins": {"margin": {**PLUGIN, "package": ESCAPE}}},
        {"plugins": {"margin": {"package": "margins"}}},
        {"command": ESCAPE},
        {"sessions": [{**SESSION, "device": ESCAPE}]},
        {"sessions": [{**SESSION, "command": ESCAPE}]},
        {"sessions": [SESSION, {**SESSION, "started": 3}]},
        {"versions": {"torch": ESCAPE}},
    ],
    ids=str,
)
def test_what_a_run_may_not_say(more: dict[str, Any], golden: Golden) -> None:
    with pytest.raises(RunError) as refused:
        RunInfo.read({**run_info().document(), **more}, "run")
    golden(refused.value)
    assert str(refused.value).isprintable()
