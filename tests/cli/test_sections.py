"""`robaudit show RUN SECTION`: every section as a table, CSV and JSON, of one run and of several;
and what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from robaudit import audit
from robaudit.report.sections import section_names
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_rows, save_npz, write

NOISE: list[dict[str, Any]] = [
    {"sigma": [0.1, 0.3]},
    {"kind": "uniform", "eps": [0.2]},
    {"kind": "corruption", "name": ["fog", "contrast"], "severity": [1, 2, 3, 4, 5]},
    {"kind": "linear", "share": [0.25, 0.5, 0.75, 1]},
]
ESTIMATORS: list[Any] = [
    {"mc": {"draws": 20}},
    {"qnorm_mc": {"draws": 20, "q": [1, 10], "noise": "uniform"}},
    {"adversarial_loss": {"steps": 3, "restarts": 1, "noise": "uniform"}},
    {"radius_attack": {"label": "radii", "steps": 3, "restarts": 0, "polish": 2, "cap": 0.5}},
    {
        "certified_radius": {
            "label": "smoothed",
            "draws": 100,
            "selection": 20,
            "noise": "gaussian",
        }
    },
    {"margin_radius": {"label": "margins"}},
    {"taylor": {"noise": "gaussian"}},
    "difficulty",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight digits with something for every section."""
    folder = tmp_path_factory.mktemp("sections")
    return audit(
        write(folder, digits(limit=8, noise=NOISE, estimators=ESTIMATORS)), out=folder / "run"
    ).path


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def results(text: str) -> list[dict[str, Any]]:
    document = json.loads(text)
    found: list[dict[str, Any]] = document["results"]
    return found


sections_of_a_run = (
    "summary",
    "levels",
    "classes",
    "confusion",
    "flagged",
    "certified",
    "scores",
    "curves",
    "corruption",
    "easiest",
    "losses",
    "sample",
    "rows",
)
"""In the order of a page."""


def few(name: str) -> tuple[str, ...]:
    """A single estimator where each takes a test of permutations."""
    return ("--estimator", "mc") if name == "classes" else ()


def test_a_summary_says_what_else_there_is(run: Path, run_cli: RunCli) -> None:
    out = run_cli("show", run).out
    assert " ".join(out.split()).endswith(
        f"robaudit show {run} SECTION has: " + ", ".join(sections_of_a_run)
    )
    assert run_cli("show", run, "summary").out == out


@pytest.mark.parametrize("name", section_names())
def test_every_section_in_every_format(name: str, run: Path, run_cli: RunCli) -> None:
    assert run_cli("show", run, name, *few(name), "--format", "csv").code == 0
    table = run_cli("show", run, name, *few(name))
    assert (table.code, table.err) == (0, "")
    assert not re.search(r"\binf\b|\bnan\b", table.out)
    if name == "rows":
        assert json.loads(run_cli("show", run, name, "--format", "json").out)


def test_the_suffix_of_a_file_says_how(run: Path, run_cli: RunCli) -> None:
    for file, form in {"x.json": "json", "x.csv": "csv", "x.txt": "table"}.items():
        assert run_cli("show", run, "levels", "-o", file).out == ""
        assert (
            Path(file).read_text().split()
            == run_cli("show", run, "levels", "--format", form).out.split()
        )


@pytest.mark.parametrize("name", [name for name in section_names() if name != "rows"])
def test_several_runs(name: str, run: Path, run_cli: RunCli) -> None:
    """Side by side or below each other; CSV and JSON say which run a record is of."""
    both = results(run_cli("show", run, name, *few(name), "--with", run, "--format", "json").out)
    alone = results(run_cli("show", run, name, *few(name), "--format", "json").out)
    assert {one["run"] for one in alone} == {"spec"}
    names = {"1: spec (run)", "2: spec (run)"}
    assert {one["run"] for one in both} == names
    assert len(both) == 2 * len(alone)
    table = run_cli("show", run, name, *few(name), "--with", run)
    assert table.code == 0
    assert all(one in " ".join(table.out.split()) for one in names)


def test_the_names_that_people_know(run: Path, run_cli: RunCli) -> None:
    for command, section in (("bias-report", "classes"), ("flag-samples", "flagged")):
        options = ("--estimator", "mc", "--sigma", "0.3", "--threshold", "0.8", "--format", "csv")
        assert run_cli(command, run, *options) == run_cli("show", run, section, *options)


def test_options_that_a_section_does_not_know_are_refused(run: Path, refuse: Refuse) -> None:
    refuse("show", run, "--radius", "0.5")
    refuse("show", run, "corruption", "--sigma", "0.1")
    refuse("show", run, "certified", "--radius", "all")
    refuse("show", run, "classes", "--format", "parquet")
    refuse("show", run, "rows", "--format", "table")
    refuse("show", run, "rows", "--with", run)
    refuse("show", run, "scores", "--only", "wrong")
    refuse("show", run, "sample", "--id", "0", "--bottom", "2")
    refuse("show", run, "sample", "--id", "nobody")
    refuse("show", run, "-o", "x.html")
    refuse("show", run, "--label", "a", "--label", "b")
    refuse("show", run, "certified", "--radius", "far")
    refuse("show", run, "flaged")


def test_latex_and_markdown(run: Path, run_cli: RunCli) -> None:
    """The same table for a paper, by the name of the file, and for a pull request."""
    options = (
        "show",
        run,
        "summary",
        "--estimator",
        "mc",
        "--with",
        run,
        "--label",
        "A",
        "--label",
        "B_2",
    )
    assert run_cli(*options, "-o", "t.tex").out == ""
    text = Path("t.tex").read_text()
    assert text == run_cli(*options, "--format", "latex").out
    assert text.count(r"\begin{tabular}") == text.count(r"\bottomrule") >= 1
    assert r"A & B\_2 & B\_2 - A \\" in text
    assert "| A | B\\_2 | B\\_2 - A |" in run_cli(*options, "--format", "md").out


# --- sections


def test_rows_are_those_of_samples_csv(run: Path, run_cli: RunCli) -> None:
    assert run_cli("show", run, "rows").out == (run / "samples.csv").read_text()
    lines = records(run_cli("show", run, "rows", "--estimator", "mc", "--sigma", "0.3").out)
    assert lines == [
        row for row in read_rows(run) if (row["estimator"], row["level"]) == ("mc", "0.3")
    ]
    assert len(lines) == 8


def test_corruption(run: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    table = run_cli("show", run, "corruption").out
    percent = r"-?\d+\.\d%"
    interval = rf"{percent} \[{percent}, {percent}\]"
    assert re.search(rf"fog +({interval} +){{5}}{interval}", table), (
        "five severities and the mean error"
    )
    assert re.search(rf"mean error {interval}, over 2 noises", table)


@pytest.fixture(scope="module")
def brighter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same digits, seen by another network."""
    folder = tmp_path_factory.mktemp("brighter")
    noise = NOISE[1:2] + NOISE[3:]
    estimators = ESTIMATORS[:4]
    document = digits(limit=8, noise=noise, estimators=estimators, name="brighter")
    document["model"] = {**document["model"], "mean": [0.2], "std": [1.0]}
    return audit(write(folder, document), out=folder / "run").path


@pytest.mark.parametrize(("section", "columns"), [("scores", 2), ("curves", 1), ("losses", 3)])
def test_differences_have_an_interval_and_a_p_value(
    section: str,
    columns: int,
    run: Path,
    brighter: Path,
    run_cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("show", run, section, "--with", brighter)
    names = {"scores": "score", "curves": "curve", "losses": "q"}
    lines = [one for one in records(run_cli(*asked, "--format", "csv").out) if one["difference"]]
    assert {(one["run"], one["base"]) for one in lines} == {("brighter", "spec")}
    assert len({one[names[section]] for one in lines}) >= columns
    for one in lines:
        if one["difference_lower"] and one["difference_upper"]:
            assert (
                float(one["difference_lower"])
                <= float(one["difference"])
                <= float(one["difference_upper"])
            )
            beyond = float(one["difference_lower"]) > 0 or float(one["difference_upper"]) < 0
            assert beyond == (float(one["difference_p_value"] or 1) <= 0.05), (
                "empty where both ends are open"
            )
    assert '"p_value": ' in run_cli(*asked, "--format", "json").out
    assert re.search(r"& p & |& p \\\\", run_cli(*asked, "--format", "latex").out)
    table = run_cli(*asked).out
    assert "p: two-sided, of no difference" in table
    assert max(map(len, table.splitlines())) <= 80


def test_runs_on_other_images_have_no_differences(
    run: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    save_npz(tmp_path / "other.npz", labels=[0, 1, 2, 3])
    document = digits(
        dataset={"kind": "npz", "path": "other.npz"},
        noise=NOISE[1:2] + NOISE[3:],
        estimators=ESTIMATORS[:2],
    )
    audit(write(tmp_path, document, "npz.yaml"), out=tmp_path / "npz")
    for section in ("summary", "levels", "losses", "sample"):
        out = run_cli("show", run, section, "--with", "npz").out
        assert "npz: other images or other noise than spec, so nothing is compared." in " ".join(
            out.split()
        ), section
        assert " - spec" not in out or section == "summary"


def test_certified_accuracy(run: Path, run_cli: RunCli) -> None:
    assert "Certified accuracy, radii in linf" in run_cli("show", run, "certified").out
    only = run_cli(
        "show",
        run,
        "certified",
        "--estimator",
        "margins:norm=linf",
        "--radius",
        "2/255",
        "--radius",
        "0",
        "--radius",
        "0",
    )
    assert [line.split("  ")[0] for line in only.out.splitlines() if line.startswith("r ")] == [
        "r > 0",
        "r >= 0.00784314",
    ]
    steps = records(run_cli("show", run, "certified", "--radius", "all", "--format", "csv").out)
    curves = results(run_cli("show", run, "certified", "--radius", "all", "--format", "json").out)
    assert [float(line["radius"]) for line in steps] == [
        radius for one in curves for radius in one["curve"]["radius"]
    ]


def test_scores(run: Path, run_cli: RunCli) -> None:
    out = run_cli("show", run, "scores").out
    assert "of r_m as for a mean in the summary, of the others by percentile bootstrap" in " ".join(
        out.split()
    )
    assert re.search(r"r_m +>= 0\.\d+ +\[\d\.\d+, \.\.\.\]", out)


def test_samples_side_by_side(run: Path, run_cli: RunCli) -> None:
    out = run_cli("show", run, "sample", "--bottom", "4").out
    assert "8 images; shown: 4" in out
    lines = out.splitlines()
    places = [
        next(i for i, line in enumerate(lines) if line.startswith(f" {name}"))
        for name in ("mc", "qnorm_mc", "radii", "margins", "smoothed")
    ]
    assert places == sorted(places), "from the average to what is proven"
    table = records(run_cli("show", run, "sample", "--format", "csv").out)
    rows = {(row["sample_id"], row["estimator"], row["level"]): row for row in read_rows(run)}
    for line in table:
        row = rows[line["sample_id"], "mc", "0.3"]
        assert [line[f"mc at sigma 0.3{end}"] for end in ("", " lower", " upper")] == [
            row["value"],
            row["lower"],
            row["upper"],
        ]
    (found,) = results(run_cli("show", run, "sample", "--bottom", "2", "--format", "json").out)
    assert (found["images"], len(found["samples"])) == (8, 2)
    assert len(found["samples"][0]["results"]) == len(
        [row for row in read_rows(run) if row["sample_id"] == found["samples"][0]["id"]]
    )


def test_images_clean_beside_noisy(
    run: Path, run_cli: RunCli, tmp_path: Path, golden: Golden
) -> None:
    options = ("--estimator", "mc", "--noise", "gaussian", "--bottom", "4", "--images", "worst")
    golden.lines(run_cli("flag-samples", run, *options).err)
    assert sorted(folder.name for folder in (tmp_path / "worst").iterdir()) == ["mc-0.1", "mc-0.3"]
    pictures = sorted((tmp_path / "worst" / "mc-0.3").iterdir())
    assert [path.name[:4] for path in pictures] == ["001-", "002-", "003-", "004-"]
    with Image.open(pictures[0]) as picture:
        assert (picture.format, picture.size) == ("PNG", (160 + 8 + 160, 160)), (
            "8 x 8 digits are enlarged twenty times, with a gap between"
        )


# --- runs without


def test_what_a_run_does_not_have(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    audit(write(tmp_path, digits(limit=4, noise={"sigma": [0.1, 0.25]})), out=tmp_path / "mc")
    offered = run_cli("show", "mc").out.rstrip().splitlines()[-1]
    assert (
        offered
        == "robaudit show mc SECTION has: summary, levels, classes, confusion, flagged, sample, "
        "rows"
    )
    refuse("show", "nowhere")
    for section in ("certified", "scores", "curves", "corruption", "losses"):
        refuse("show", "mc", section)


def test_a_result_without_a_threshold(run: Path, run_cli: RunCli, refuse: Refuse) -> None:
    """Beside others it is there, and nothing of it is flagged; alone, it needs to be asked for."""
    assert (
        "radius has no usual threshold, so none is flagged: --threshold gives one."
        in run_cli("show", run, "flagged").out
    )
    refuse(
        "flag-samples",
        run,
        "--estimator",
        "radii",
    )
    assert (
        "> 0.500"
        in run_cli(
            "flag-samples",
            run,
            "--estimator",
            "radii:norm=l2",
            "--threshold",
            "0.4",
            "--bottom",
            "8",
        ).out
    )


def test_bias_by_a_column_of_the_data(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    """Groups are named by the column, whether the data are where they were or not."""
    lines = ["path,label,scanner"]
    for i in range(8):
        Image.new("L", (8, 8), 20 * i).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,{i},{'' if i == 7 else 'AB'[i % 2]}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    spec = digits(dataset={"kind": "csv", "path": "data.csv", "channels": 1})
    audit(write(tmp_path, spec, "csv.yaml"), out=tmp_path / "csv")
    table = run_cli("bias-report", "csv", "--by", "scanner").out
    assert re.search(r"scanner +n +mean", table)
    assert "1 sample left out: no scanner, or no finite value." in table
    of_csv = records(run_cli("show", "csv", "classes", "--by", "scanner", "--format", "csv").out)
    assert [(one["name"], one["images"], one["by"]) for one in of_csv] == [
        ("A", "4", "scanner"),
        ("B", "3", "scanner"),
    ]
    both = run_cli("show", "csv", "classes", "--by", "scanner", "--with", "csv").out
    assert re.search(r"\nA .*\d", both)
    refuse("bias-report", "csv", "--by", "camera")
    (tmp_path / "moved").mkdir()
    for file in tmp_path.glob("[0-9d]*.*"):
        file.rename(tmp_path / "moved" / file.name)
    refuse("bias-report", "csv", "--by", "scanner")
    spec["dataset"]["path"] = "moved/data.csv"
    write(tmp_path, spec, "moved.yaml")
    assert run_cli("bias-report", "csv", "--by", "scanner", "--data", "moved.yaml").out == table
