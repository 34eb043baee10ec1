"""`robaudit scores`, and reports, pictures and lists of runs whose results have no noise level."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunCli
from tests.plugin import radii
from tests.specs import digits, save_npz, write

ESTIMATORS: list[Any] = [{"radii": {"cap": 1.5}}, {"radii": {"label": "whole", "kind": "exact"}}, {"difficulty": {"target": "label"}}]


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with radii.installed():
        yield


@pytest.fixture
def run(tmp_path: Path, run_cli: RunCli) -> Path:
    """30 images without noise: some radii of ``radii`` are beyond its cap."""
    write(tmp_path, digits(limit=30, noise=None, estimators=ESTIMATORS))
    done = run_cli("estimate", "spec.yaml", "--out", "run", "-q")
    assert (done.code, done.err) == (0, "")
    return tmp_path / "run"


def test_table(run: Path, run_cli: RunCli) -> None:
    done = run_cli("scores", "run")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("mean of r/g, 0 where misclassified") == 4
    assert "radii:norm=l2: radius, norm of the smallest change of the image that changes the prediction" in done.out
    assert re.search(r"r_m +>= 1\.\d+ +\[1\.\d+, \.\.\.\]", done.out)
    assert re.search(r">= \d+ of 30 images only known to be beyond 1\.5\.", done.out)
    assert "Not defined: r_squared: undetermined: censored images." in done.out
    assert not re.search(r"\binf\b", done.out)


def test_formats_agree(run: Path, run_cli: RunCli) -> None:
    document = json.loads(run_cli("scores", "run", "--format", "json").out)
    lines = list(csv.DictReader(io.StringIO(run_cli("scores", "run", "--format", "csv").out)))
    assert document["gates"] == []
    assert [one["estimator"] for one in document["results"]] == ["radii:norm=l2", "radii:norm=linf", "whole:norm=l2", "whole:norm=linf"]
    for one in document["results"]:
        assert one["images"] == 30
        of_csv = {line["score"]: line for line in lines if line["estimator"] == one["estimator"]}
        assert of_csv.keys() == one["scores"].keys()
        for score, values in one["scores"].items():
            assert (values["value"] is None) == (of_csv[score]["value"] == ""), score
            assert values["value"] is None or float(of_csv[score]["value"]) == values["value"], score
    done = run_cli("scores", "run", "--estimator", "whole:norm=l2", "-o", "scores.txt")
    assert (done.code, done.out) == (0, "")
    assert "whole:norm=l2: radius" in Path("scores.txt").read_text()


def test_gates(run: Path, run_cli: RunCli) -> None:
    for gate, code in (("r_m >= 1", 0), ("r_m >= 9", 1), ("r_nu >= 0.15", 0), ("relative_variation <= 0.2", 0), ("r_w >= 3", 1)):
        name, _, rest = gate.partition(" ")
        done = run_cli("scores", "run", "--estimator", "whole", "--gate", f"{name}(estimator=whole, norm=l2) {rest}")
        assert done.code == code, gate
        same = run_cli("gate", "run", f"{name}(estimator=whole, norm=l2) {rest}")
        assert same.code == code
        assert same.out in done.out
    done = run_cli("scores", "run", "--gate", "r_m(estimator=radii, norm=l2) <= 1.6", "--format", "json")
    assert done.code == 4
    assert json.loads(done.out)["gates"][0]["verdict"] == "inconclusive"


BAD = {
    "r_m(norm=l2) >= 1": "gate 'r_m(norm=l2) >= 1': does not say which results it is about; say estimator=radii:norm=l2 | whole:norm=l2",
    "r_m(estimator=whole) >= 1": "gate 'r_m(estimator=whole) >= 1': does not say which results it is about; say norm=l2 | linf",
    "r_m(norm=l7) >= 1": "norm: 'l7' is none of l1, l2, linf; write norm=l2, norm=linf or norm=l1",
    "r_m(estimator=whole, norm=l2) >= -1": "r_m is at least 0, never -1; give a threshold in that range",
    "relative_variation(estimator=whole, norm=l2) <= 5": "relative_variation lies from 0 to 1, never 5",
    "r_x >= 1": "unknown quantity 'r_x'",
}


@pytest.mark.parametrize("gate", BAD)
def test_gates_that_are_refused(gate: str, run: Path, run_cli: RunCli) -> None:
    done = run_cli("gate", "run", gate)
    assert (done.code, done.out) == (2, "")
    assert BAD[gate] in done.err
    assert done.err.count("\n") == 1


def test_gates_of_the_spec(tmp_path: Path, run_cli: RunCli) -> None:
    gates = ["r_nu(estimator=whole, norm=l2) >= 0.1"]
    write(tmp_path, digits(limit=6, noise=None, estimators=ESTIMATORS, gates=gates))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "-q").code == 0
    assert run_cli("gate", "run").code == 0


def test_another_result_has_no_scores(run: Path, run_cli: RunCli) -> None:
    done = run_cli("scores", "run", "--estimator", "difficulty")
    radii_ = ", ".join(f"{name}:norm={norm}" for name in ("radii", "whole") for norm in ("l2", "linf"))
    assert (done.code, done.err) == (2, f"error: run: has no radii among the results asked for; its radii: {radii_}\n")


@pytest.mark.bits
def test_two_runs(run: Path, run_cli: RunCli) -> None:
    write(run.parent, digits(limit=20, noise=None, estimators=[{"radii": {"cap": 1.2}}, ESTIMATORS[1]]), "other.yaml")
    assert run_cli("estimate", "other.yaml", "--out", "other", "-q").code == 0
    done = run_cli("scores", "run", "other", "--estimator", "whole:norm=l2")
    assert done.code == 0
    assert "left out: 10 images only in spec, 0 only in other" in done.out
    assert re.search(r"r_m +[\d.]+ \[[\d., ]+\] +[\d.]+ \[[\d., ]+\] +\+0 \[\+0, \+0\]", done.out)
    document = json.loads(run_cli("scores", "run", "other", "--format", "json").out)
    assert [one["images"] for one in document["results"]] == [20] * 4
    lines = list(csv.DictReader(io.StringIO(run_cli("scores", "run", "other", "--format", "csv").out)))
    assert {line["difference"] for line in lines if line["estimator"] == "whole:norm=l2"} == {"0.0"}


def test_two_runs_on_different_images_are_refused(run: Path, run_cli: RunCli) -> None:
    """The ids alone do not tell: those of .npz and of the digits count from 0."""
    save_npz(run.parent / "other.npz", labels=[0, 1, 2, 3])
    write(run.parent, digits(dataset={"kind": "npz", "path": "other.npz"}, noise=None, estimators=ESTIMATORS), "other.yaml")
    assert run_cli("estimate", "other.yaml", "--out", "other", "-q").code == 0
    done = run_cli("scores", "run", "other")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: run and other: have different images under the same ids (the first: '")
    assert done.err.endswith("'); compare runs on the same data, prepared alike\n")


def test_what_has_no_scores(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=4))
    run_cli("estimate", "spec.yaml", "--out", "mc", "-q")
    done = run_cli("scores", "mc")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: mc: has no radii to score; add radius_attack, radius_exact or noise_tolerance to its estimators\n"
    assert run_cli("scores", "a", "b", "c").err == "error: robaudit scores: one run or two, not 3; write: robaudit scores RUN [NEW]\n"
    save_npz(tmp_path / "plain.npz")
    data = {"kind": "npz", "path": "plain.npz", "labels_key": None}
    write(tmp_path, digits(dataset=data, noise=None, estimators=["radii"]), "plain.yaml")
    assert run_cli("estimate", "plain.yaml", "--out", "plain", "-q").code == 0
    done = run_cli("scores", "plain")
    assert (done.code, done.err) == (2, "error: plain: has no labels, and scores count misclassified images as 0; audit labelled images\n")
    assert run_cli("report", "plain", "-o", "plain.html").code == 0


def test_every_image_misclassified(tmp_path: Path, run_cli: RunCli) -> None:
    save_npz(tmp_path / "noise.npz", labels=[9, 9, 9, 9])
    write(tmp_path, digits(dataset={"kind": "npz", "path": "noise.npz"}, noise=None, estimators=[{"radii": {"kind": "exact"}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "-q").code == 0
    done = run_cli("scores", "run", "--estimator", "radii:norm=l2")
    assert done.code == 0
    assert re.search(r"Not defined: r_w_correct, median_ratio, .*: every image is misclassified\.", " ".join(done.out.split()))
    assert run_cli("scores", "run", "--only-correct").err.endswith("every image is misclassified; leave --only-correct out\n")
    gated = run_cli("gate", "run", "slope(norm=l2) >= 1")
    assert gated.code == 2
    assert "slope is not defined: every image is misclassified" in gated.err


# --- the other commands, with results that have no noise level


def test_nothing_speaks_of_a_level_of_no_noise(run: Path, run_cli: RunCli) -> None:
    texts = [run_cli(*args).out for args in (("show", "run"), ("bias-report", "run"), ("flag-samples", "run", "--bottom", "3"))]
    assert run_cli("report", "run", "-o", "run.html").code == 0
    assert run_cli("report", "run", "-o", "run.md").code == 0
    page = re.sub(r"<(style|script)\b.*?</\1>", "", Path("run.html").read_text(), flags=re.S)
    assert 'id="r1-scores"' in page
    for text in (*texts, re.sub(r"<[^>]+>", " ", page), Path("run.md").read_text()):
        assert "no noise" in text
        assert not re.search(r"at no noise|none 0|\bnan\b|-inf\b|\binf\b", text), text


def test_flag_samples_asks_for_a_threshold(run: Path, run_cli: RunCli) -> None:
    done = run_cli("flag-samples", "run", "--estimator", "whole")
    assert done.code == 2
    assert "has no usual threshold; give --below, or list the least robust with --bottom 10" in done.err
    assert "> 1.500" in run_cli("flag-samples", "run", "--estimator", "radii:norm=l2", "--below", "1.2", "--top", "1").out


def test_csv_of_results_with_and_without_a_threshold(tmp_path: Path, run_cli: RunCli) -> None:
    """They share one header."""
    write(tmp_path, digits(limit=10, estimators=["radii", {"mc": {"samples": 10}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "-q").code == 0
    for command in ("bias-report", "flag-samples"):
        more = ["--bottom", "2"] if command == "flag-samples" else []
        lines = list(csv.reader(io.StringIO(run_cli(command, "run", "--format", "csv", *more).out)))
        assert {len(line) for line in lines} == {len(lines[0])}
        named = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
        assert {line["threshold"] for line in named if line["estimator"].startswith("radii")} == {""}
        assert {line["threshold"] for line in named if line["estimator"] == "mc"} == {"0.9" if command == "bias-report" else "0.5"}


def test_pictures(run: Path, run_cli: RunCli) -> None:
    for kind in ("radius", "distribution", "bias", "flagged"):
        assert run_cli("plot", "run", "--kind", kind, "-o", f"{kind}.svg").code == 0, kind
    for kind, words in (("heat-map", "has no votes for labels"), ("corruption-kept", "has no votes under noise whose level is a severity")):
        done = run_cli("plot", "run", "--kind", kind, "-o", "no.svg")
        assert done.code == 2
        assert words in done.err


def test_pictures_of_the_easiest_images(tmp_path: Path, run_cli: RunCli) -> None:
    sphere = {"kind": "uniform", "name": "sphere", "norm": "l2", "support": "sphere", "eps": [1, 4]}
    corruption = {"kind": "corruption", "name": ["contrast"], "severity": [1, 5]}
    spec = digits(limit=12, noise=[sphere, corruption], estimators=[{"mc": {"samples": 10}}, "tolerance"])
    write(tmp_path, spec)
    assert run_cli("estimate", "spec.yaml", "--out", "run", "-q").code == 0
    for kind in ("heat-map", "corruption-kept"):
        assert run_cli("plot", "run", "--kind", kind, "-o", f"{kind}.svg").code == 0, kind
    assert run_cli("report", "run", "-o", "run.html").code == 0
    assert 'id="r1-easiest"' in Path("run.html").read_text()
    write(tmp_path, digits(limit=4), "mc.yaml")
    run_cli("estimate", "mc.yaml", "--out", "mc", "-q")
    done = run_cli("plot", "mc", "--kind", "heat-map", "-o", "no.svg")
    assert done.err == "error: mc: has no difficulties to sort the images by; add difficulty: {target: label}: --extend computes it\n"
