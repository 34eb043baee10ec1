"""The benchmarks still run, and their report keeps what was not measured again. No time is
asserted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from robaudit.models import from_module
from robaudit.models.architectures import digits_cnn
from tests.research.benchmarks import __main__ as command
from tests.research.benchmarks import accuracy, imagenet, published, trial
from tests.research.benchmarks.cost import Reference, cost_to_reach
from tests.research.benchmarks.networks import Bench, Network, estimator
from tests.research.benchmarks.replay import Replay
from tests.research.benchmarks.report import Section, Table, number, write
from tests.research.benchmarks.trial import settings
from tests.specs import WEIGHTS

CPU = torch.device("cpu")
MACHINE = {"date": "2026-01-02", "cpu": "a CPU, 2 cores", "threads": "2", "torch": "2.6"}


def digits_network(images: int = 3) -> Network:
    module = digits_cnn()
    module.load_state_dict(load_file(WEIGHTS))
    x = torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Network("digits", from_module(module), x, 10)


def section(title: str, date: str = "2026-01-02") -> Section:
    return Section(
        title,
        "Read it so.",
        [Table(["a", "b"], [["x | y", "1"]])],
        {"a": 1.0},
        machine={**MACHINE, "date": date},
    )


def test_a_section_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "engine-cpu": section("Engine"),
            "noise-cpu": section("Noise"),
            "noise-cuda": section("Noise on CUDA"),
        },
    )
    write(tmp_path, {"noise-cpu": section("Noise again", "2027-03-04")})
    text = (tmp_path / "benchmarks.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Engine",
        "## Noise again",
        "## Noise on CUDA",
    ]
    assert text.count("Measured on 2026-01-02: a CPU, 2 cores, 2 threads, torch 2.6.") == 2
    assert text.count("Measured on 2027-03-04") == 1
    assert "| x \\| y | 1 |" in text
    assert list(json.loads((tmp_path / "benchmarks.json").read_text())["sections"]) == [
        "engine-cpu",
        "noise-cpu",
        "noise-cuda",
    ]


def test_cost_to_reach_interpolates_on_log_scales() -> None:
    curve = [(400.0, 0.01), (100.0, 0.02), (25.0, 0.04)]
    assert cost_to_reach(curve, 0.01) == pytest.approx(400)
    assert cost_to_reach(curve, 0.02 / math.sqrt(2)) == pytest.approx(200)
    assert cost_to_reach(curve, 0.05) == 25
    assert cost_to_reach(curve, 0.001) is None


def test_the_noise_of_the_reference_is_taken_out() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.full((4000,), 0.5, dtype=torch.float64)
    noisy = [
        torch.binomial(torch.full_like(p, 100), p, generator=generator) / 100 for _ in range(2)
    ]
    assert (
        Reference.of(noisy, 100).rmse(p)
        < 0.005
        < 0.03
        < Reference.of(noisy, 100).rmse(p + 0.05)
        < 0.06
    )


def test_replay_gives_what_the_engine_gives() -> None:
    network = digits_network()
    replay = Replay(network.engine(3))
    for name, options in (
        ("mc", {"draws": 64}),
        ("mc", {"draws": 32}),
        ("logit_gaussian", {}),
    ):
        chosen = estimator(name, **options)
        again = chosen.estimate(network.batch(0.3, replay))
        for a, b in zip(chosen.estimate(network.batch(0.3, network.engine(3))), again, strict=True):
            assert b.value == pytest.approx(a.value, abs=1e-4)
            assert b.forwards == a.forwards
    assert replay.made >= 64 * 3


def test_the_published_way_agrees_with_ours() -> None:
    network = digits_network()
    ours = [e.value for e in estimator("taylor").estimate(network.batch(0.3))]
    assert published.taylor(network.model, network.x, 0.3) == pytest.approx(ours, abs=5e-3)
    torch.manual_seed(0)
    many = [e.value for e in estimator("mc", draws=600).estimate(network.batch(0.3))]
    assert published.monte_carlo(network.model, network.x, 0.3, 600) == pytest.approx(
        many, abs=0.12
    )
    assert all(0 <= p <= 1 for p in published.mmse(network.model, network.x, 0.3, 4))


def test_accuracy_on_a_small_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [
        s
        for s in settings(64)
        if s.label in ("mc 64", "logit_gaussian 16", "mmse 5 (no pairs)", "mmse_mvs 5 (no pairs)")
    ]
    few += [s for s in settings(64) if s.name in ("taylor", "softmax")]
    monkeypatch.setattr(trial, "settings", lambda draws, _: few)
    heard: list[str] = []
    points = trial.Trial(digits_network(2), 0.2, 64, (1, 2), heard.append).points()
    found = accuracy.section(
        {"digits": points}, Bench(CPU, out=tmp_path, say=heard.append), images=2, draws=64, seeds=2
    )
    write(tmp_path, {"accuracy-cpu": replace(found, machine=MACHINE)})
    assert (tmp_path / "accuracy-cost.svg").read_text().startswith("<?xml")
    assert (
        "![Accuracy and cost (cpu)](accuracy-cost.svg)" in (tmp_path / "benchmarks.md").read_text()
    )
    assert len(points) == len(few) == 6
    assert all(p.seconds > 0 and p.equivalents >= p.forwards >= 1 for p in points)


def test_the_page_on_scale_has_the_times_of_imagenet() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "scale.md").read_text(encoding="utf-8")
    for name in (
        "logit_gaussian 64",
        "taylor",
        "mmse 10",
        "mc 1,000",
        "mc 10,000 (published)",
        "certified_radius",
    ):
        forwards, backwards = imagenet.passes(name)
        one = imagenet.hours(name, 1)
        many = imagenet.hours(name, 64)
        row = next(
            line for line in text.splitlines() if f"| {forwards:,} + {backwards:,} |" in line
        )
        assert f"| {forwards + imagenet.BACKWARD * backwards:,} |" in row
        assert f"{one:,.0f} h" in row or f"{number(one)} h" in row
        assert f"{number(many)} h" in row or f"{60 * many:.1f} min" in row


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(["--help"])
    assert end.value.code == 0
    assert "--quick" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--only", "speed"])
