"""The ready specs in configs/, each run on small data of the kind that it expects."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models

from robaudit.spec.gate_grammar import QUANTITIES, parse_gate
from tests.conftest import RunCli
from tests.specs import read_info, save_npz
from tests.unit.datasets.cifar10 import write_cifar10

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
RNG = np.random.default_rng(0)


class Small(nn.Module):
    """Logits of ten, or so many, classes from the mean of patches."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.linear = nn.Linear(48, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.linear(self.pool(x).flatten(1))
        return out


def torchscript(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        torch.jit.script(Small().eval()).save(str(path))


def cifar10(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchscript(folder / "model.pt")
    images = RNG.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    write_cifar10(folder / "data", images, [i % 10 for i in range(12)], monkeypatch)


def imagenet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    save_file(models.resnet50(weights=None).state_dict(), folder / "resnet50.safetensors")
    # As many as it has classes; a folder without images would be refused.
    for i in range(1000):
        target = folder / "imagenet" / "val" / f"n{i:08d}"
        target.mkdir(parents=True)
        coarse = Image.fromarray(RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        coarse.resize((250, 240)).save(target / f"{i}.JPEG")


def listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = torch.export.export(
        Small(3).eval(), (torch.zeros(2, 3, 32, 32),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    torch.export.save(exported, folder / "model.pt2")
    lines = ["path,label,id"]
    for i, label in enumerate((0, 1, 2, "")):
        Image.fromarray(RNG.integers(0, 256, (40, 36, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{label},image {i}")
    (folder / "images.csv").write_text("\n".join(lines) + "\n")


def gated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchscript(folder / "model.pt")
    images = RNG.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
    with torch.inference_mode():
        labels = Small().eval()(torch.from_numpy(images).float() / 255).argmax(1).numpy()
    save_npz(folder / "test.npz", count=20, images=images, labels=labels)


def demo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(CONFIGS.parent / "robaudit" / "demo" / "digits_cnn.safetensors", folder)


QUICK_ATTACK = ("radius_attack.steps=5", "radius_attack.restarts=1", "radius_attack.polish=5")
QUICK_SPECTRUM = (
    *(
        "mc.draws=50",
        "logit_gaussian.draws=32",
        "splitting.particles=20",
        "splitting.p_min=0.01",
        *QUICK_ATTACK,
    ),
    *(
        "noise_tolerance.tolerance=1.0",
        "noise_tolerance.most=1000",
        "radius_random.directions=20",
        "smoothed_margin.draws=100",
    ),
    *(
        "qnorm_path.temperatures=16",
        "qnorm_path.steps=1",
        "adversarial_loss.steps=5",
        "adversarial_loss.restarts=2",
    ),
    *(
        "certified_radius.draws=200",
        "certified_radius.selection=20",
        "certified_radius_l1.draws=200",
        "certified_radius_l1.selection=20",
    ),
    *(
        "smoothed_attack.copies=4",
        "smoothed_attack.verify=200",
        "smoothed_attack.steps=2",
        "smoothed_attack.restarts=0",
    ),
)
"""Options that make an estimator quick; their results need not be good."""


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


CASES: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], None], list[str]]] = {
    "cifar10-torchscript.yaml": (cifar10, ["--limit", "2", "--set", "mc.draws=40"]),
    "imagenet-resnet50.yaml": (
        imagenet,
        ["--limit", "1", "--sigma", "8/255", "--set", "logit_gaussian.draws=16"],
    ),
    "csv.yaml": (listed, ["--set", "mc.draws=100"]),
    "ci-gate.yaml": (gated, ["--limit", "4", "--set", "mc.draws=40"]),
    "intermediate-q.yaml": (
        demo,
        [
            "--limit",
            "1",
            *settings(
                "qnorm_path.temperatures=16", "qnorm_path.steps=1", "adversarial_loss.steps=5"
            ),
        ],
    ),
    "noise.yaml": (demo, ["--limit", "2", "--set", "mc.draws=20"]),
    "curves.yaml": (
        demo,
        [
            "--limit",
            "1",
            *settings(
                "pgd_l2.steps=3", "pgd_linf.steps=3", "pgd_l2.restarts=1", "pgd_linf.restarts=1"
            ),
        ],
    ),
    "certified.yaml": (
        demo,
        ["--limit", "2", *settings("certified_radius.draws=200", "smoothed_margin.draws=100")],
    ),
    "scores.yaml": (
        demo,
        [
            "--limit",
            "2",
            *settings(*QUICK_ATTACK, "noise_tolerance.tolerance=1.0", "noise_tolerance.most=1000"),
        ],
    ),
    "spectrum.yaml": (demo, ["--limit", "1", *settings(*QUICK_SPECTRUM)]),
    "average-case.yaml": (
        demo,
        ["--limit", "1", *settings("mc.draws=20", "mmse.draws=16", "mmse_mvs.draws=16")],
    ),
    "bias.yaml": (demo, ["--limit", "20", "--set", "mc.draws=20"]),
    "corruptions.yaml": (demo, ["--limit", "1", "--set", "mc.draws=20"]),
    "rare.yaml": (
        demo,
        [
            "--limit",
            "1",
            *settings("mc.draws=100", "splitting.particles=20", "splitting.p_min=1e-3"),
        ],
    ),
    "tolerance.yaml": (
        demo,
        ["--limit", "1", *settings("noise_tolerance.tolerance=1.0", "noise_tolerance.most=1000")],
    ),
}


SECTIONS = {
    "bias.yaml": "classes",
    "corruptions.yaml": "corruption",
    "tolerance.yaml": "scores",
    "curves.yaml": "curves",
    "certified.yaml": "certified",
    "scores.yaml": "scores",
    "intermediate-q.yaml": "losses",
}


def test_every_spec_is_run() -> None:
    assert {path.name for path in CONFIGS.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "imagenet-resnet50.yaml"))
        for name in CASES
    ],
)
def test_it_runs(
    name: str, tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, options = CASES[name]
    shutil.copy(CONFIGS / name, tmp_path)
    make(tmp_path, monkeypatch)
    code, out, err = run_cli("estimate", name, "--out", "run", *options)
    assert code == 0, err
    info = read_info(tmp_path / "run")
    assert info["totals"]["samples"] > 0
    # of the curves, whose spec says that its levels are meant
    levels = "the whole range of pixels in [0, 1]"
    allowed = (
        "no better than chance",
        "clean accuracy is",
        *([levels] if name == "curves.yaml" else []),
    )
    assert not [text for text in info["warnings"] if not any(words in text for words in allowed)]
    assert "mean [95% interval]" in out
    section = SECTIONS.get(name, "sample")
    assert re.search(rf"SECTION has: .*\b{section}\b", out, re.DOTALL), "offered below the summary"
    shown = run_cli("show", "run", section)
    assert (shown.code, shown.err) == (0, "")
    if name == "spectrum.yaml":
        verified = run_cli("verify", "run", "--samples", "0")
        assert verified.code == 0, verified.out
        assert "0 violations" in verified.out
        relations = json.loads(run_cli("verify", "run", "--samples", "0", "--format", "json").out)[
            "checks"
        ]["relations"]
        compared = {one["relation"] for one in relations if one["comparisons"]}
        assert {
            "p_robust = 1 - p_fail",
            "certified <= witnessed",
            "p_lower <= p_robust",
        } <= compared


# --- pipelines


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A spec with gates, one of which is on the mean, beside its model and data."""

    def make(least: str) -> Path:
        document = yaml.safe_load((CONFIGS / "ci-gate.yaml").read_text())
        document["estimators"] = [{"mc": {"draws": 400}}]
        document["noise"]["sigma"] = 0.5
        document["gates"] = ["accuracy >= 0.8", f"mean >= {least}"]
        gated(tmp_path, monkeypatch)
        path = tmp_path / "audit.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return make


def script(name: str) -> str:
    """The step of the action with this id."""
    steps = yaml.safe_load((CONFIGS / "ci" / "action.yml").read_text())["runs"]["steps"]
    (found,) = [step for step in steps if step.get("id") == name]
    return str(found["run"])


def run_script(
    folder: Path, *, first: Path | None = None, **inputs: str
) -> subprocess.CompletedProcess[str]:
    """The script of the action's audit, as the runner calls it."""
    environment = {
        **os.environ,
        "PATH": f"{first or Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GATES": "",
        "BUDGET": "",
        "INCONCLUSIVE": "",
        "POPULATION": "false",
        "BASE": "",
        "BASE_GATES": "",
        "TRUST": "false",
        **inputs,
    }
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script("audit")]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize(
    ("least", "code"), [pytest.param("0.2", 0, marks=pytest.mark.slow), ("0.9999", 1)]
)
def test_the_action(least: str, code: int, tmp_path: Path, audited: Callable[[str], Path]) -> None:
    """From a spec to an exit code, JUnit XML, a report, annotations and a summary."""
    audited(least)
    done = run_script(tmp_path, SPEC="audit.yaml", REPORT="results/report.html")
    assert done.returncode == code, done.stderr
    results = tmp_path / "results"
    assert sorted(path.name for path in results.iterdir()) == ["gates.xml", "report.html", "run"]
    suites = ElementTree.parse(results / "gates.xml").getroot()  # noqa: S314  our own file
    assert len(list(suites.iter("testcase"))) == 2
    assert len(list(suites.iter("failure"))) == code
    assert ("::error" in done.stdout) == bool(code)
    assert "robaudit gate: " in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "output").read_text() == "folder=results/\n"


@pytest.fixture
def called(tmp_path: Path) -> Callable[..., list[list[str]]]:
    """What the action calls robaudit with: a program of that name that notes its arguments."""
    program = tmp_path / "bin" / "robaudit"
    program.parent.mkdir()
    program.write_text('#!/bin/bash\nprintf "%s\\0" "$@" >> calls; printf "\\n" >> calls\n')
    program.chmod(0o755)

    def run(**inputs: str) -> list[list[str]]:
        (tmp_path / "calls").unlink(missing_ok=True)
        done = run_script(
            tmp_path, first=program.parent, SPEC="audit.yaml", REPORT="report.html", **inputs
        )
        assert done.returncode == 0, done.stderr
        return [line.split("\0") for line in (tmp_path / "calls").read_text().split("\0\n") if line]

    return run


def test_the_action_takes_gates_and_runs_nothing_else(
    tmp_path: Path, called: Callable[..., list[list[str]]]
) -> None:
    estimate = called(GATES='accuracy >= 0.5\n\n   \nwarnings <= 0; $(touch gates) "\n')[0]
    assert [word for word in estimate if word.startswith("--gate")] == [
        "--gate=accuracy >= 0.5",
        '--gate=warnings <= 0; $(touch gates) "',
    ]
    assert not (tmp_path / "gates").exists()


def test_the_action_takes_a_budget_and_how_gates_are_decided(
    called: Callable[..., list[list[str]]],
) -> None:
    inputs = {"INCONCLUSIVE": "pass", "POPULATION": "true", "GATES": "mean >= 0.5"}
    decide = {"--population", "--inconclusive=pass"}
    estimate, annotated = called(**inputs)
    assert decide | {"--until-decided", "--gate=mean >= 0.5"} <= set(estimate)
    assert decide | {"mean >= 0.5"} <= set(annotated)
    estimate, junit, annotated = called(**inputs, BUDGET="10m")
    assert ["--budget", "10m"] in [list(pair) for pair in pairwise(estimate)]
    assert not decide & set(estimate), "estimate cannot decide gates and keep to a budget"
    assert decide | {"mean >= 0.5", "junit"} <= set(junit)
    assert decide | {"mean >= 0.5", "github"} <= set(annotated)


def test_the_action_compares_with_a_base_run(
    tmp_path: Path, called: Callable[..., list[list[str]]]
) -> None:
    compare = called(BASE="base/run")[-1]
    assert compare == ["compare", "--format", "md", "--", "base/run", "run"]
    compare = called(BASE="base/run", BASE_GATES="mean_drop <= 0.01\n\naccuracy_drop <= 0\n")[-1]
    assert compare == [
        "compare",
        "--gate=mean_drop <= 0.01",
        "--gate=accuracy_drop <= 0",
        "--format",
        "github",
        "--",
        "base/run",
        "run",
    ]


@pytest.mark.parametrize(
    ("audited", "compared", "code"),
    [(0, 1, 1), (4, 1, 1), (4, 0, 4), (1, 4, 1), (0, 4, 4), (1, 2, 1), (4, 2, 2), (0, 0, 0)],
)
def test_the_worse_of_both_verdicts_counts(
    audited: int, compared: int, code: int, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "robaudit"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/bash\ncase $1 in compare) exit {compared} ;; estimate) exit {audited} ;; esac\n"
    )
    program.chmod(0o755)
    done = run_script(
        tmp_path, first=program.parent, SPEC="audit.yaml", REPORT="report.html", BASE="base"
    )
    assert done.returncode == code


def test_the_action_runs_code_only_when_told_to(called: Callable[..., list[list[str]]]) -> None:
    assert "--trust" not in called()[0]
    assert "--trust" in called(TRUST="true")[0]


def test_the_action_gives_the_code_of_a_mistake(tmp_path: Path) -> None:
    """Never 1, which is that of a failed gate."""
    (tmp_path / "file").touch()
    for report, says in (("a/r.html", "no.yaml"), ("file/r.html", "file")):
        done = run_script(tmp_path, SPEC="no.yaml", REPORT=report)
        assert done.returncode == 2
        assert says in done.stderr


def installed_by(action: Path, source: str, folder: Path) -> tuple[int, list[str]]:
    """The exit code of the action's installation, and what it gives to pip."""
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / "pip").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$ASKED"\n')
    (bin_ / "pip").chmod(0o700)
    asked = folder / "asked"
    asked.unlink(missing_ok=True)
    environment = {
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "ASKED": str(asked),
        "EXTRAS": "timm",
        "SOURCE": source,
        "HERE": str(action),
    }
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script("install")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode, asked.read_text().splitlines() if asked.exists() else []


def test_the_action_installs_its_own_repository_or_a_source(tmp_path: Path) -> None:
    """Never a package of that name from an index, which anybody could have registered."""
    code, asked = installed_by(CONFIGS / "ci", "", tmp_path)
    assert (code, asked[:2]) == (0, ["install", f"{CONFIGS.parent}[report,timm]"])
    code, asked = installed_by(tmp_path, "git+https://host/owner/robaudit@v1", tmp_path)
    wanted = "robaudit[report,timm] @ git+https://host/owner/robaudit@v1"
    assert (code, asked[:2]) == (0, ["install", wanted])
    code, asked = installed_by(tmp_path, "/some where/robaudit", tmp_path)
    assert (code, asked[:2]) == (0, ["install", "/some where/robaudit[report,timm]"])
    copied = tmp_path / ".github" / "actions" / "robaudit"
    copied.mkdir(parents=True)
    assert installed_by(copied, "", tmp_path) == (2, [])


def test_the_action_is_one() -> None:
    """The keys that GitHub requires, and no input that is used without being declared."""
    text = (CONFIGS / "ci" / "action.yml").read_text()
    action = yaml.safe_load(text)
    assert set(action) == {"name", "description", "inputs", "runs"}
    assert set(action["inputs"]) == {
        "spec",
        "gates",
        "budget",
        "inconclusive",
        "population",
        "base",
        "base-gates",
        "report",
        "extras",
        "trust",
        "source",
        "python-version",
    }
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    for one in action["inputs"].values():
        assert one["description"]
        assert ("default" in one) != one.get("required", False)
    assert action["runs"]["using"] == "composite"
    extras = tomllib.loads((CONFIGS.parent / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = action["inputs"]["extras"]["description"].rpartition(" - ")[2].rstrip(".").split(", ")
    assert {*named, "report"} <= set(extras)
    for step in action["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert step.get("shell") == "bash" if "run" in step else "@" in step["uses"]
        assert "${{" not in step.get("run", ""), "an input would become part of the script"
    workflow = yaml.safe_load((CONFIGS / "ci" / "github.yml").read_text())
    (use,) = [
        step
        for step in workflow["jobs"]["audit"]["steps"]
        if "robaudit/configs/ci@" in step.get("uses", "")
    ]
    assert set(use["with"]) <= set(action["inputs"])
    text = (CONFIGS / "ci" / "github.yml").read_text()
    gates = re.findall(r"^ *# +(\w+\S* [<>]= \S+)$", text, re.MULTILINE)
    assert len(gates) == 3
    for line in gates:
        parse_gate(line, QUANTITIES, "github.yml")


def test_they_name_commands_and_options_that_there_are(run_cli: RunCli) -> None:
    (hook,) = yaml.safe_load((CONFIGS / "ci" / "pre-commit.yaml").read_text())["repos"][0]["hooks"]
    assert {"id", "name", "entry", "language"} <= set(hook)
    re.compile(hook["files"])
    line = re.findall(
        r"`(robaudit .*?)`", (CONFIGS / "README.md").read_text().split("one line:")[1]
    )[0]
    joined = script("audit").replace("\\\n", " ")
    called = re.findall(r"robaudit [a-z].*?(?=\|\||$)", joined, re.MULTILINE)
    assert len(called) == 6
    commands = [command.split() for command in (*called, hook["entry"], line)]
    assert {words[1] for words in commands} == {"estimate", "gate", "compare"}
    for words in commands:
        options = [word for word in words if word.startswith("--") and word != "--"]
        help_ = run_cli(words[1], "--help").out
        assert options
        assert all(option in help_ for option in options), words
