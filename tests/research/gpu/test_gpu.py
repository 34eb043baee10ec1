"""The measurement of a card, tried out without one. No time is asserted."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import RunCli
from tests.research.gpu import audit, command, counts, installed, passes, session, wheels
from tests.research.gpu.__main__ import main
from tests.research.gpu.clock import Clock, TimeIsUpError, interrupted_after
from tests.research.gpu.forms import Form, Plain
from tests.research.gpu.networks import subjects
from tests.research.gpu.part import Part
from tests.research.gpu.session import PARTS, Session, Step, Wanted
from tests.research.gpu.trace import Load, Trace, covered, traced
from tests.system.device import pretended

CPU = torch.device("cpu")
MAY_BE_ZERO = {"largest", "error"}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, run_cli: RunCli) -> None:
    """One network, one estimator, and commands in this process."""
    monkeypatch.setattr(passes, "subjects", lambda *, tiny: subjects(tiny=tiny)[:1])
    monkeypatch.setattr(passes, "PRECISIONS", ("bf16",))
    monkeypatch.setattr(counts, "COUNTED", ("mc",))

    def at_once(commands: Sequence[Sequence[str]], folder: Path, _: float) -> list[float]:
        monkeypatch.chdir(folder)
        for arguments in commands:
            outcome = run_cli(*arguments)
            assert outcome.code == 0, outcome.err
        return [3.0 for _ in commands]

    monkeypatch.setattr(command, "at_once", at_once)


def tried(tmp_path: Path, **more: Any) -> dict[str, Any]:
    """The results of a tiny session on the CPU."""
    Session(Wanted(CPU, tmp_path / "out", tiny=True, **more)).run()
    found: dict[str, Any] = json.loads((tmp_path / "out" / "result.json").read_text())
    return found


@pytest.mark.usefixtures("few")
@pytest.mark.slow
def test_every_part_has_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tried(tmp_path)
    assert list(found["parts"]) == list(PARTS)
    for name, part in found["parts"].items():
        assert part["error"] == "", name
        assert part["wrong"] == [], name
        assert part["rows"], name
        figures = [
            (key, value)
            for row in part["rows"]
            for key, value in row.items()
            if isinstance(value, int | float) and key not in MAY_BE_ZERO
        ]
        assert figures, name
        assert all(math.isfinite(value) and value > 0 for _, value in figures), (name, figures)
    (row,) = found["parts"]["passes"]["rows"]
    assert {"mc", "bare", "best", "noise", "few", "tuned", "gib", "tera"} <= row.keys()
    assert 1e-4 < row["error"] < 0.1
    assert found["parts"]["audit"]["rows"][1]["passes"] == 40 * 31
    assert found["parts"]["workers"]["rows"][0]["passes"] == 40 * 31
    assert "only on a card" in found["parts"]["passes"]["left_out"][0]
    assert "0 wrong or failed" in capsys.readouterr().out
    text = (tmp_path / "out" / "page.md").read_text()
    assert text.startswith("## On the CPU, to try it out")
    assert "QUICK RUN" in text


def broken(part: Part) -> None:
    part.add(what="before")
    raise ArithmeticError("of a part")


def endless(part: Part) -> None:
    part.add(what="before")
    while True:
        pass


def quick(part: Part) -> None:
    part.add(what="after", tried=1)


def test_a_part_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "PARTS", {"checks": Step(broken, 1.0), "audit": Step(quick, 1.0)})
    found = tried(tmp_path, parts=("checks", "audit"))["parts"]
    assert found["checks"]["error"].endswith("ArithmeticError: of a part")
    assert found["checks"]["rows"] == [{"what": "before"}]
    assert found["audit"]["rows"] == [{"what": "after", "tried": 1}]
    assert "1 wrong or failed\n  checks failed: ArithmeticError" in capsys.readouterr().out
    assert "- checks failed: ArithmeticError" in (tmp_path / "out" / "page.md").read_text()


def test_a_part_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_GRACE", 0.0)
    monkeypatch.setattr(
        session, "PARTS", {"checks": Step(endless, 1e-6), "audit": Step(quick, 1.0)}
    )
    found = tried(tmp_path, parts=("checks", "audit"))["parts"]
    assert found["checks"]["left_out"] == ["the rest: its time was over"]
    assert found["checks"]["rows"] == [{"what": "before"}]
    assert found["audit"]["rows"]


def test_results_of_other_parts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PARTS", {"checks": Step(quick, 1.0), "audit": Step(broken, 1.0)})
    tried(tmp_path, parts=("audit",))
    found = tried(tmp_path, parts=("checks",))["parts"]
    assert found["audit"]["error"]
    assert found["checks"]["rows"]


def test_a_card_that_answers_no_more_is_left_to_a_fresh_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After such an error, each part in the same process would fail."""
    started = list[list[str]]()

    def execv(_: str, arguments: list[str]) -> None:
        started.append(arguments)
        raise SystemExit

    monkeypatch.setattr(session, "PARTS", {"checks": Step(broken, 1.0), "audit": Step(quick, 1.0)})
    monkeypatch.setattr(passes, "works", lambda _: False)
    monkeypatch.setattr(os, "execv", execv)
    with pretended():
        running = Session(Wanted(torch.device("cuda", 0), tmp_path, parts=("checks", "audit")))
        with pytest.raises(SystemExit):
            running.run()
    ((_, *arguments),) = started
    given = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    assert given["--only"] == "audit"
    assert given["--device"] == "cuda:0"
    assert 0 < float(given["--minutes"]) <= 8
    assert json.loads((tmp_path / "result.json").read_text())["parts"]["checks"]["error"]


@pytest.mark.usefixtures("few")
@pytest.mark.slow
def test_passes_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the profiler, graphs and compilation, which the simulated card has not."""

    def traced_as(work: Callable[[], object], _: torch.device) -> Trace:
        work()
        return Trace(2.0, 1.5, 10, 1)

    monkeypatch.setattr(passes, "trace", traced_as)
    monkeypatch.setattr(passes, "PRECISIONS", ("bf16",))
    monkeypatch.setattr(Plain, "graphed", lambda _, form: replace(form, text="a graph"))
    monkeypatch.setattr(
        Plain, "compiled", lambda _, form: (replace(form, text="compiled", rate=1e9), 2.5)
    )
    with pretended():
        part = Part(torch.device("cuda", 0), True, Clock(math.inf))
        passes.measure(part)
    (row,) = part.rows
    assert part.wrong == []
    assert row["rows"] == 4096
    assert (row["busy"], row["form"], row["best"], row["compiling"]) == (0.75, "compiled", 1e9, 2.5)


def test_what_is_left_out_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "subjects", lambda *, tiny: subjects(tiny=tiny)[:1])
    part = Part(torch.device("cuda", 0), True, Clock(0.0))
    passes.measure(part)
    assert part.rows == []
    assert part.left_out == [f"ResNet18, 8 px, {one}: no time" for one in passes.PRECISIONS]


def test_the_audit_takes_as_many_copies_as_there_is_time_for() -> None:
    rows: list[Any] = [{"network": "ResNet18, 32 px", "precision": "fp32", "mc": 10_000.0}]
    for seconds, draws in ((1e6, 1000), (130.0, 250), (20.0, 30)):
        part = Part(CPU, False, Clock(seconds, lambda: 0.0), {"passes": rows})
        assert audit.affordable(part, 2000, 10.0) == draws


def test_intervals_that_overlap_count_once() -> None:
    assert covered([]) == 0
    assert covered([(5, 6), (0, 2), (1, 3), (1, 2)]) == 4


def test_a_trace_in_numbers() -> None:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name"},
        {"cat": "kernel", "name": "gemm", "ts": 0.0, "dur": 4e5},
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 3e5, "dur": 2e5},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0.0, "dur": 9e5},
        {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": 0.0, "dur": 9e5},
    ]
    found = traced(events, 2.0)
    assert found == Trace(2.0, 0.5, 2, 1)
    assert found.busy == 0.25


def test_the_load_of_a_card() -> None:
    load = Load()
    assert load.mean() is None
    for seconds, line in ((0.5, "10\n"), (1.5, " 80\n"), (2.5, "[N/A]\n"), (3.5, "90\n")):
        load.note(seconds, line)
    assert load.mean(after=1.0) == pytest.approx(0.85)


def test_time_is_up() -> None:
    now = 10.0
    clock = Clock(5.0, lambda: now)
    now = 12.0
    assert clock.left() == 3.0
    now = 100.0
    assert clock.left() == 0.0
    with pytest.raises(TimeIsUpError), interrupted_after(1e-3):
        endless(Part(CPU, True, clock))


def test_the_plugins_of_a_copy_that_is_not_installed(tmp_path: Path) -> None:
    about = installed.project()
    installed.write_metadata(tmp_path, about)
    (folder,) = tmp_path.iterdir()
    found = Distribution.at(folder)
    assert found.version == about["version"]
    registered = {(one.group, one.name, one.value) for one in found.entry_points}
    assert registered == {
        (group, name, value)
        for group, points in about["entry-points"].items()
        for name, value in points.items()
    }


def test_what_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(installed.lacking()) == []
    needs = {"dependencies": ["nothing-of-this-name>=1", "torch[cuda]>=99", "torch>=2.10,<99"]}
    monkeypatch.setattr(installed, "project", lambda: needs)
    missing, old = installed.lacking()
    assert missing == "nothing-of-this-name>=1 is not installed"
    assert old.startswith("torch[cuda]>=99: ")


def test_the_wheels_that_travel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ((small, alone),) = wheels.requests([])
    assert not alone
    names = {installed.name_of(one) for one in small}
    assert {"pydantic", "typer", "rich", "psutil", "pytest"} <= names
    assert names.isdisjoint(wheels.LIKELY_THERE)
    _, (large, alone) = wheels.requests(["scikit-learn"])
    assert alone
    assert [installed.name_of(one) for one in large] == ["scikit-learn", "joblib", "threadpoolctl"]
    (tmp_path / "scikit_learn-1.9.1-cp312.whl").write_bytes(bytes(2**20))
    assert wheels.report(tmp_path) == 0
    said = capsys.readouterr().out
    assert "1.00 MiB in all" in said
    assert "likely there: numpy, pillow, pyyaml, safetensors, scipy, torch, torchvision" in said
    assert said.endswith(f"PYTHONPATH={tmp_path}/site python3 -m tests.research.gpu\n")
    with (tmp_path / "large.whl").open("wb") as file:
        file.truncate(wheels.MOST_MIB * 2**20)
    assert wheels.report(tmp_path) == 1


def test_the_page_of_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"network": "ResNet18, 32 px", "precision": "bf16", "mc": 2e5, "bare": 1e5, "best": 4e5}
    row |= {"form": "channels_last, 4096", "busy": 0.85, "published": 2.5, "rows": 4096}
    machine = {"date": "2026-01-02", "cpu": "a CPU", "threads": "1", "torch": "2.11", "gpu": "A"}
    counted = {"estimator": "mc", "launches": 30.0, "promised_launches": 20.0, "waits": None}
    parts = {
        "passes": {"rows": [row], "wrong": ["one"], "left_out": ["two"], "error": ""},
        "counts": {"rows": [counted], "wrong": [], "left_out": [], "error": ""},
    }
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"machine": machine, "tiny": False, "parts": parts}))
    assert main(["--page", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## On a CUDA card (A)\n\nMeasured on 2026-01-02: A; a CPU")
    assert "| ResNet18, 32 px | bf16 | 200,000 | 100,000 | 400,000 |" in text
    assert "| mc | 30.0 | 20.0 | 1.50 |" in text
    assert "| <= 3 | 2.50 | yes |" in text
    assert "| >= 80% | 85% | yes |" in text
    assert "- passes, wrong: one\n- passes, left out: two" in text


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"robaudit ended with 2: .*nothing\.yaml"):
        command.at_once([["estimate", "nothing.yaml"]], tmp_path, 60.0)


def test_unknown_parts_and_no_card(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, says in (
        (["--only", "speed"], "unknown parts: speed"),
        ([], "torch finds no CUDA device here"),
    ):
        if arguments or not torch.cuda.is_available():
            with pytest.raises(SystemExit):
                main(arguments)
            assert says in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_command(tmp_path: Path) -> None:
    assert main(["--device", "cpu", "--tiny", "--out", str(tmp_path)]) == 0
    parts = json.loads((tmp_path / "result.json").read_text())["parts"]
    assert all(part["rows"] for part in parts.values())
    assert len(parts["passes"]["rows"]) == 9
    assert len(parts["counts"]["rows"]) == 6


def test_the_fastest_form_is_kept() -> None:
    nothing: Any = None
    case = passes.Case(subjects(tiny=True)[0], "fp32", nothing, nothing, nothing, 1.0)
    case.better([Form("a", 1.0, "contiguous", 8), Form("b", 3.0, "contiguous", 8)])
    case.better([Form("c", 2.0, "contiguous", 8)])
    assert case.row == {"best": 3.0, "form": "b"}
