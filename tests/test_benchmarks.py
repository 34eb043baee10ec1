"""The benchmarks still run, and their report keeps what was not measured again. No time is asserted."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from robaudit.models import from_module
from robaudit.models.architectures import digits_cnn
from tests.benchmarks import __main__ as command
from tests.benchmarks import accuracy, cdf, gpu, imagenet, published, ray, trial
from tests.benchmarks.audits import Repeated, audit_seconds
from tests.benchmarks.cost import Point, Reference, cost_to_reach
from tests.benchmarks.networks import Bench, Network, estimator
from tests.benchmarks.picture import draw, spaced
from tests.benchmarks.qnorm import report as qnorm_report
from tests.benchmarks.qnorm.cases import ATTACK, CASES, COPIES, OURS, PUBLISHED, longer, methods
from tests.benchmarks.qnorm.report import Mean, falls
from tests.benchmarks.qnorm.results import Found, Results
from tests.benchmarks.replay import Replay
from tests.benchmarks.report import Section, Table, number, target, write
from tests.benchmarks.settings import settings
from tests.specs import WEIGHTS

CPU = torch.device("cpu")
MACHINE = {"date": "2026-01-02", "cpu": "a CPU, 2 cores", "threads": "2", "torch": "2.6"}


def digits_network(images: int = 3) -> Network:
    module = digits_cnn()
    module.load_state_dict(load_file(WEIGHTS))
    x = torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Network("digits", from_module(module), x, 10)


def section(title: str, date: str = "2026-01-02") -> Section:
    return Section(title, "Read it so.", [Table(["a", "b"], [["x | y", "1"]])], {"a": 1.0}, machine={**MACHINE, "date": date})


def made_up() -> dict[str, list[Point]]:
    points = []
    for line, start, factor in (("mc", 64, 0.25), ("logit_gaussian, samples", 16, 0.15), ("logit_gaussian, tolerance, mean", 40, 0.08)):
        for cost in (start, 4 * start, 16 * start):
            rmse = factor / math.sqrt(cost)
            points.append(Point(line, f"{line} {cost}", (0.9 * rmse, 1.1 * rmse), cost, 0, cost, 1e-4 * cost))
    points += [Point(line, line, (0.3, 0.3), 1, 9, 15, 1e-2) for line in ("taylor", "taylor_mvs", "mmse", "mmse_mvs", "softmax")]
    return {"One network": points, "Another network": points}


def test_a_section_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    write(tmp_path, {"engine-cpu": section("Engine"), "mvn-cpu": section("CDF"), "mvn-cuda": section("CDF on CUDA")})
    write(tmp_path, {"mvn-cpu": section("CDF again", "2027-03-04")})
    text = (tmp_path / "benchmarks.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## CDF again", "## Engine", "## CDF on CUDA"]
    assert text.count("Measured on 2026-01-02: a CPU, 2 cores, 2 threads, torch 2.6.") == 2
    assert text.count("Measured on 2027-03-04") == 1
    assert "| x \\| y | 1 |" in text
    assert list(json.loads((tmp_path / "benchmarks.json").read_text())["sections"]) == ["mvn-cpu", "engine-cpu", "mvn-cuda"]


def test_numbers_and_targets() -> None:
    values = [0.0, 0.00123, 0.0567, 1.234, 45.67, 999.4, 2345.6, 123456.0, 5e7, 1e-6]
    assert [number(v) for v in values] == ["0", "0.00123", "0.0567", "1.23", "45.7", "999", "2,350", "123,000", "5e+07", "1e-06"]
    assert target("x", 10, 9.5, " %") == ["x", "<= 10.0 %", "9.50 %", "yes"]
    assert target("x", 10, 11)[-1] == "**no**"
    assert target("x", 10, None)[-2:] == ["not reached", "no"]
    assert "QUICK RUN" in replace(section("x"), quick=True).markdown()


def test_cost_to_reach_interpolates_on_log_scales() -> None:
    curve = [(400.0, 0.01), (100.0, 0.02), (25.0, 0.04)]
    assert cost_to_reach(curve, 0.01) == pytest.approx(400)
    assert cost_to_reach(curve, 0.02 / math.sqrt(2)) == pytest.approx(200)
    assert cost_to_reach(curve, 0.05) == 25
    assert cost_to_reach(curve, 0.001) is None


def test_the_noise_of_the_reference_is_taken_out() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.full((4000,), 0.5, dtype=torch.float64)
    noisy = [torch.binomial(torch.full_like(p, 100), p, generator=generator) / 100 for _ in range(2)]
    assert Reference.of(noisy, 100).rmse(p) < 0.005 < 0.03 < Reference.of(noisy, 100).rmse(p + 0.05) < 0.06


def test_labels_keep_their_distance() -> None:
    placed = spaced({"a": 1.0, "b": 1.01, "c": 3.0}, 0.5)
    assert placed["b"] - placed["a"] == pytest.approx(0.5)
    assert placed["c"] == 3.0


def test_replay_gives_what_the_engine_gives() -> None:
    network = digits_network()
    replay = Replay(network.engine(3))
    for name, options in (
        ("mc", {"samples": 64}),
        ("mc", {"samples": 32}),
        ("logit_gaussian", {"tolerance": 0.02}),
        ("logit_gaussian", {}),
    ):
        chosen = estimator(name, **options)
        again = chosen.estimate(network.work(0.3, replay))
        for a, b in zip(chosen.estimate(network.work(0.3, network.engine(3))), again, strict=True):
            assert b.value == pytest.approx(a.value, abs=1e-4)
            assert b.forwards == a.forwards
    assert replay.made >= 64 * 3


def test_the_published_way_agrees_with_ours() -> None:
    network = digits_network()
    ours = [e.value for e in estimator("taylor").estimate(network.work(0.3, gradients=True))]
    assert published.taylor(network.model, network.x, 0.3) == pytest.approx(ours, abs=5e-3)
    torch.manual_seed(0)
    many = [e.value for e in estimator("mc", samples=600).estimate(network.work(0.3))]
    assert published.monte_carlo(network.model, network.x, 0.3, 600) == pytest.approx(many, abs=0.12)
    assert all(0 <= p <= 1 for p in published.mmse(network.model, network.x, 0.3, 4))


def test_accuracy_on_a_small_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [s for s in settings(64) if s.label in ("mc 64", "logit_gaussian 16", "mmse 5 (no pairs)", "mmse_mvs 5 (no pairs)")]
    few += [s for s in settings(64) if s.name in ("taylor", "softmax") or s.options.get("tolerance") == 0.04]
    monkeypatch.setattr(trial, "settings", lambda draws, _: few)
    heard: list[str] = []
    points = trial.Trial(digits_network(2), 0.2, 64, (1, 2), heard.append).points()
    found = accuracy.section({"digits": points}, Bench(CPU, out=tmp_path, say=heard.append), images=2, draws=64, seeds=2)
    write(tmp_path, {"accuracy-cpu": replace(found, machine=MACHINE)})
    assert (tmp_path / "accuracy-cost.svg").read_text().startswith("<?xml")
    assert "![Accuracy and cost (cpu)](accuracy-cost.svg)" in (tmp_path / "benchmarks.md").read_text()
    assert len(points) == len(few) == 7
    assert all(p.seconds > 0 and p.equivalents >= p.forwards >= 1 for p in points)


def test_the_picture(tmp_path: Path) -> None:
    draw(made_up(), (0.02, 0.01), tmp_path / "picture.svg")
    draw(made_up(), (0.02, 0.01), tmp_path / "again.svg")
    assert (tmp_path / "picture.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()


def test_a_timed_audit() -> None:
    network = digits_network()
    wall, own = audit_seconds(network.model.network, Repeated(network.x.double(), 5), {"mc": {"samples": 8}}, 0.1, CPU)
    assert 0 <= own <= wall


def test_the_command_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(cdf, "CASES", ((2, 9, 64, 1, 2.0),))
    command.main(["--quick", "--only", "mvn", "--out", str(tmp_path)])
    assert "## The normal CDF (cpu)" in (tmp_path / "benchmarks.md").read_text()
    command.main(["--quick", "--only", "mvn"])
    assert "QUICK RUN" in capsys.readouterr().out
    monkeypatch.setattr(command, "SHARED", tmp_path / "absent")
    command.main(["--quick", "--only", "published,accuracy,engine"])
    assert capsys.readouterr().out.count("left out, the folder with shared models and data is absent") == 3


def test_the_arithmetic_of_imagenet() -> None:
    assert imagenet.passes("mc 10,000 (published)") == (1 + 3 * 10_000, 0)
    assert imagenet.passes("logit_gaussian 64", sigmas=1) == (65, 0)
    assert imagenet.hours("mc 1,000", 1, 1000.0) == pytest.approx(50_000 * 3001 / 1000 / 3600)
    assert imagenet.hours("taylor", 64) == pytest.approx(imagenet.hours("taylor", 1) / 64)
    assert [row[0] for row in imagenet.section({"passes/s": 7.5}).tables[-1].rows] == list(imagenet.CASES)


def test_the_page_on_scale_has_the_times_of_imagenet() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "scale.md").read_text(encoding="utf-8")
    for name in ("logit_gaussian 64", "taylor", "mmse 10", "mc 1,000", "mc 10,000 (published)", "certified_radius"):
        forwards, backwards = imagenet.passes(name)
        one, many = imagenet.hours(name, 1), imagenet.hours(name, 64)
        row = next(line for line in text.splitlines() if f"| {forwards:,} + {backwards:,} |" in line)
        assert f"| {forwards + imagenet.BACKWARD * backwards:,} |" in row
        assert f"{one:,.0f} h" in row or f"{number(one)} h" in row
        assert f"{number(many)} h" in row or f"{60 * many:.1f} min" in row


def test_the_report_of_the_ray_engine() -> None:
    speed = {what: {ray.ONE: [0.04, 0.05, 0.06], ray.TWO: [0.05, 0.04, 0.08]} for what in ("wall", "busy")}
    free = {"local": {"images/s": 100.0, "driver": 5.0, "all": 6.0}}
    grown = {"ray": {"1%": 50.0, "10%": 60.0, "50%": 70.0, "100%": 85.0, "written": 90.0, "rows": 1e6, "seconds": 10.0}}
    made = ray.section(speed, free, grown)
    assert [row[-2:] for row in made.targets] == [["1.00", "yes"], ["1.00", "yes"], ["25.0 MiB", "**no**"]]
    assert list(made.tables[0].rows[0]) == [ray.ONE, "25.0", "1.00", "20.0", "1.00", "0.0500", "1.00"]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(["--help"])
    assert end.value.code == 0
    assert "--quick" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--only", "speed"])


def found(values: Sequence[float], error: float, *, half: float = 0.5, notes: int = 0, highest: float = 9.0) -> Found:
    """What a method says of an image at every order."""
    lower, upper = [v - half for v in values], [v + half for v in values]
    return Found(list(values), list(lower), list(upper), [error] * len(values), notes, highest, 500)


def test_the_mean_of_norms_keeps_the_lag_and_averages_the_error() -> None:
    mean = Mean.of([found([1.0, 2.0], 0.3), found([3.0, 4.0], 0.4)], 1)
    assert mean.error == pytest.approx(0.25)
    assert (mean.value, mean.lower, mean.upper) == (3.0, 2.5, 3.5)


def test_norms_fall_where_they_do_by_more_than_two_errors() -> None:
    assert [falls(found(values, 0.1)) for values in ([1, 2, 3, 4], [1, 0.8, 0.6, 0.4], [1, 0.7, 0.3, 0.4])] == [0, 0, 2]


def test_the_report_of_norms_tells_what_is_not_met(tmp_path: Path) -> None:
    case = CASES[1]
    methods_ = methods(case)
    values = {OURS: (1.0, 2.0, 3.0, 4.0), COPIES: (1.0, 1.5, 1.6, 1.7), PUBLISHED: (1.0, 2.0, 3.5, 4.0)}
    known = {name: [asdict(found(some, 0.1))] * 2 for name, some in values.items()} | {ATTACK: [asdict(found([8.0], 0.1))] * 2}
    stored = {f"{case.name}; {methods_[name].label}; seed 0": dict(zip("01", some, strict=True)) for name, some in known.items()}
    stored[f"{case.name}; {longer(case).label}; seed 0"] = {"0": asdict(found((1.0, 2.0, 3.0, 4.6), 0.1))}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(stored))
    made = qnorm_report.section(Results(path, Bench(torch.device("cpu")), 0), "")
    met = {row[0].removeprefix(f"{case.title}: "): row[-1] for row in made.targets}
    assert met == {
        "at q = 100, 1000 at least published sampler": "**no**",
        "at q = 100, 1000 at least qnorm_mc": "yes",
        "bars hold the mean of the long run": "**no**",
    }
    (counts,) = made.tables[-1].rows
    assert list(counts) == [case.title, "8", "0", "0", "2", "2"]


def test_results_of_an_estimator_are_forgotten(tmp_path: Path) -> None:
    labels = ["qnorm_path", "qnorm_path temperatures=30 steps=2", "qnorm_mc samples=500", "published m=50"]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"speed; net": {}} | {f"net, uniform; {label}; seed 0": {} for label in labels}))
    Results(path, Bench(torch.device("cpu")), 0).forget("qnorm_path")
    assert list(json.loads(path.read_text())) == ["speed; net", *(f"net, uniform; {label}; seed 0" for label in labels[2:])]


def test_the_check_of_a_gpu_says_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert str(ended.value).startswith("tests.benchmarks.gpu: torch finds no CUDA device here; ")
