"""`robaudit certified`, and the other commands on runs with certified radii."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunCli
from tests.plugin import certificates
from tests.specs import digits, save_npz, write

ESTIMATORS = ["margins", "smoothed"]
GATE = "certified_accuracy(estimator=smoothed, radius=0.2) >= 0.5"


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with certificates.installed():
        yield


@pytest.fixture
def run(tmp_path: Path, run_cli: RunCli) -> Path:
    """30 images: certificates of the network in two norms, and of the smoothed one in one."""
    write(tmp_path, digits(limit=30, noise={"sigma": [0.25]}, estimators=ESTIMATORS, gates=[GATE]))
    done = run_cli("estimate", "spec.yaml", "--out", "run", "-q")
    assert (done.code, done.err) == (0, "")
    return tmp_path / "run"


def test_table(run: Path, run_cli: RunCli) -> None:
    done = run_cli("certified", "run")
    assert (done.code, done.err) == (0, "")
    assert "Certified accuracy, radii in l2" in done.out
    assert "Certified accuracy, radii in linf" in done.out
    assert re.search(r"radius r +smoothed at sigma 0.25 +margins", done.out)
    assert re.search(r"r >= 0.5 +\d+\.\d% \[", done.out)
    assert "not certifiable" in done.out
    assert not re.search(r"\binf\b|\bnan\b", done.out)
    only = run_cli("certified", "run", "--estimator", "margins:norm=linf", "--radius", "2/255", "--radius", "0", "--radius", "0")
    assert [line.split("  ")[0] for line in only.out.splitlines() if line.startswith("r ")] == ["r > 0", "r >= 0.00784314"]
    assert "smoothed" not in run_cli("certified", "run", "--estimator", "margins").out
    assert "margins" not in run_cli("certified", "run", "--sigma", "0.25").out


def test_formats_agree(run: Path, run_cli: RunCli) -> None:
    document = json.loads(run_cli("certified", "run", "--format", "json").out)
    lines = list(csv.DictReader(io.StringIO(run_cli("certified", "run", "--format", "csv").out)))
    assert document["gates"] == []
    for one in document["results"]:
        mine = [line for line in lines if line["estimator"] == one["estimator"]]
        at = [line for line in mine if line["statistic"] == "certified_accuracy"]
        assert [(float(line["radius"]), int(line["count"])) for line in at] == [
            (share["radius"], share["count"]) for share in one["certified_accuracy"]
        ]
        assert one["images"] == 30
        assert one["wrong_class"]["count"] + one["abstains"]["count"] + one["certified_accuracy"][0]["count"] == 30
    curve = json.loads(run_cli("certified", "run", "--curve", "--format", "json").out)["results"]
    steps = list(csv.DictReader(io.StringIO(run_cli("certified", "run", "--curve", "--format", "csv").out)))
    assert [float(line["radius"]) for line in steps] == [radius for one in curve for radius in one["curve"]["radius"]]
    done = run_cli("certified", "run", "--estimator", "smoothed", "-o", "certified.txt")
    assert (done.code, done.out) == (0, "")
    assert "smoothed at sigma 0.25" in Path("certified.txt").read_text()


def test_gates(run: Path, run_cli: RunCli) -> None:
    assert run_cli("gate", "run").code == 0  # of the spec
    for text, code in ((GATE, 0), (GATE.replace("0.5", "1"), 1), (GATE.replace(">= 0.5", ">= 0.99"), 1)):
        done = run_cli("certified", "run", "--gate", text)
        assert done.code == code, text
        same = run_cli("gate", "run", "--gate", text)
        assert same.code == code
        assert same.out in done.out
    done = run_cli("certified", "run", "--gate", GATE.replace("0.5", "0.8"), "--population", "--format", "json")
    assert done.code == 4
    found = json.loads(done.out)["gates"][0]
    assert (found["verdict"], found["radius"], found["t"]) == ("inconclusive", 0.2, None)
    assert run_cli("certified", "run", "--gate", GATE, "--format", "csv").err.startswith("pass ")


def test_several_runs(run: Path, run_cli: RunCli) -> None:
    write(run.parent, digits(limit=20, estimators=[{"smoothed": {"samples": 5}}], noise={"sigma": [0.25, 0.5]}), "other.yaml")
    assert run_cli("estimate", "other.yaml", "--out", "other", "-q").code == 0
    done = run_cli("certified", "run", "other", "--estimator", "smoothed")
    assert done.code == 0
    heads = " ".join(next(line for line in done.out.splitlines() if line.startswith("radius r")).split())
    assert heads == "radius r spec: smoothed at sigma 0.25 other: smoothed at sigma 0.25 other: smoothed at sigma 0.5"
    assert re.search(r"images +30 +20 +20", done.out)
    gated = run_cli("certified", "run", "other", "--gate", "certified_accuracy(estimator=smoothed, radius=0.2, sigma=0.5) >= 0.5")
    assert gated.code == 0  # of the last run
    same = run_cli("certified", "run", "run", "--estimator", "smoothed")
    assert "1: spec (run): smoothed" in " ".join(same.out.split())
    assert run_cli("report", "run", "other", "-o", "both.html").code == 0
    page = re.sub(r"<(style|script)\b.*?</\1>", "", Path("both.html").read_text(), flags=re.S)
    comparison = page[page.index('id="comparison"') :].partition("</section>")[0]
    assert "other: smoothed at sigma 0.5" in comparison
    assert "<svg " in comparison
    assert len(ids := re.findall(r' id="([^"]+)"', page)) == len(set(ids))
    assert run_cli("report", "run", "other", "-o", "both.md").code == 0
    assert "spec: smoothed at sigma 0.25" in Path("both.md").read_text().partition("## spec")[0]
    for kind in ("svg", "png"):
        assert run_cli("plot", "run", "other", "--kind", "certified", "-o", f"both.{kind}").code == 0


BAD = [
    (("--radius", "-1"), "--radius -1: is not a radius; give 0 or a positive number such as 0.5 or 8/255"),
    (("--radius", "far"), "--radius far: is not a radius"),
    (("--radius", "inf"), "--radius inf: is not a radius"),
    (("--radius", "nan"), "--radius nan: is not a radius"),
    (("--curve",), "--curve: is too long for a table; add --format csv or --format json"),
    (("--curve", "--radius", "1", "--format", "csv"), "--curve: has radii of its own; leave --radius out"),
    (("--estimator", "nothing"), "has no estimator nothing"),
    (("--sigma", "3"), "has no sigma 3"),
    (("--confidence", "2"), "is not above 0.5 and below 1"),
    (("--gate", "certified_accuracy >= 0.5"), "certified_accuracy needs radius"),
    (("--gate", "certified_accuracy(radius=1) >= 0.5"), "does not say which results it is about"),
    (("-o", "nowhere/x.txt"), "nowhere"),
]


@pytest.mark.parametrize(("args", "says"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_what_is_refused_in_a_line(args: tuple[str, ...], says: str, run: Path, run_cli: RunCli) -> None:
    done = run_cli("certified", "run", *args)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err


def test_what_has_none(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=4))
    run_cli("estimate", "spec.yaml", "--out", "mc", "-q")
    remedy = "add certified_radius, margin_radius or smoothed_margin to its estimators"
    for args in (("certified", "mc"), ("plot", "mc", "--kind", "certified", "-o", "no.png")):
        done = run_cli(*args)
        assert (done.code, done.out, done.err) == (2, "", f"error: mc: has no certified radii; {remedy}\n")
    assert run_cli("certified", "nowhere").code == 2
    save_npz(tmp_path / "plain.npz")
    data = {"kind": "npz", "path": "plain.npz", "labels_key": None}
    write(tmp_path, digits(dataset=data, noise=None, estimators=["margins"]), "plain.yaml")
    assert run_cli("estimate", "plain.yaml", "--out", "plain", "-q").code == 0
    done = run_cli("certified", "plain")
    assert (done.code, done.err) == (2, "error: plain: has no labels, and certified accuracy compares with them; audit labelled images\n")
    assert run_cli("report", "plain", "-o", "plain.html").code == 0
    assert 'id="r1-certified"' not in Path("plain.html").read_text()


def test_a_gate_is_refused_before_anything_is_computed(tmp_path: Path, run_cli: RunCli) -> None:
    spec = digits(limit=4, estimators=["smoothed", {"mc": {"samples": 20}}], gates=["certified_accuracy(radius=1, norm=linf) >= 1"])
    write(tmp_path, spec)
    done = run_cli("estimate", "spec.yaml", "--out", "run", "-q", "--until-decided")
    assert done.code == 2
    assert "the set of certificates has no norm=linf" in done.err
    assert not Path("run").exists()


# --- the other commands


def test_the_report_has_a_section(run: Path, run_cli: RunCli) -> None:
    assert run_cli("report", "run", "-o", "run.html").code == 0
    page = re.sub(r"<(style|script)\b.*?</\1>", "", Path("run.html").read_text(), flags=re.S)
    section = page[page.index('id="r1-certified"') :].partition("</section>")[0]
    assert "<svg " in section
    assert section.count('<p class="caption">Certified accuracy, radii in') == 2
    assert "r ≥ 0.25" in section
    assert '<a href="#r1-certified">Certified</a>' in page
    assert run_cli("report", "run", "-o", "run.md").code == 0
    text = Path("run.md").read_text()
    assert "### Certified accuracy" in text
    assert "| r ≥ 0.25 |" in text
    assert run_cli("report", "run", "--estimator", "margins", "-o", "run.html").code == 0
    assert "smoothed at sigma" not in Path("run.html").read_text()


def test_tables_say_at_least(run: Path, run_cli: RunCli) -> None:
    shown = run_cli("show", "run").out
    assert re.search(r"smoothed:norm=l2 +0\.25 +>= 0\.\d+ \[0\.\d+, \.\.\.\] +>= 0\.\d+", shown)
    assert ">= smoothed: lower bounds; the true value of an image may be larger." in shown
    assert ">= 0." in run_cli("flag-samples", "run", "--estimator", "smoothed", "--bottom", "3").out
    by_class = run_cli("bias-report", "run", "--estimator", "smoothed").out
    assert re.search(r">= 0\.\d+ \[.*, \.\.\.\] +[+-]0\.\d+ \[-0\.\d+, ", by_class)
    assert "differences and gap are between the bounds" in by_class
    summary = json.loads((run / "summary.json").read_text())
    assert {group["lower_bounds"] for group in summary["groups"]} == {30}
