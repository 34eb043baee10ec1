"""`show`, `bias-report` and `flag-samples`: what they print, in every format, and what they write."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from robaudit import audit, load_spec
from tests.conftest import RunCli
from tests.specs import digits, write


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 digits at two noise levels by mc and softmax: at 0.35 some answers flip."""
    folder = tmp_path_factory.mktemp("reports")
    spec = digits(limit=60, noise={"sigma": [0.1, 0.35]}, estimators=[{"mc": {"samples": 100}}, "softmax"])
    return audit(load_spec(write(folder, spec)), out=folder / "run").path


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_show_prints_what_estimate_printed(tmp_path: Path, run_cli: RunCli) -> None:
    first = run_cli("estimate", write(tmp_path, digits(limit=3)), "--out", "run")
    assert run_cli("show", "run") == (0, first.out, "")


def test_show_filters(run: Path, run_cli: RunCli) -> None:
    everything = run_cli("show", run)
    assert everything.code == 0
    assert "confidence: softmax score" in everything.out
    one = run_cli("show", run, "--estimator", "mc", "--sigma", "7/20")
    assert one.code == 0
    assert "confidence" not in one.out
    (line,) = [line for line in one.out.splitlines() if line.startswith("mc")]
    assert line.split()[1] == "0.35"


def test_clean_accuracy_is_printed_first(run: Path, run_cli: RunCli) -> None:
    assert run_cli("show", run).out.startswith("clean accuracy  100.0% [94.0%, 100.0%] (60 of 60; [ ] 95 % interval, images like these)")


def test_bias_report_table(run: Path, run_cli: RunCli) -> None:
    code, out, err = run_cli("bias-report", run, "--estimator", "mc", "--sigma", "0.35")
    assert (code, err) == (0, "")
    assert "mc at sigma 0.35, by label" in out
    assert "< 0.9" in out
    for words in ("Least robust: ", "Most robust: ", "from the others", "permuting the class labels"):
        assert words in out


def test_bias_report_never_pools(run: Path, run_cli: RunCli) -> None:
    out = run_cli("bias-report", run).out
    for group in ("mc at sigma 0.1", "mc at sigma 0.35", "softmax at sigma 0.1", "softmax at sigma 0.35"):
        assert out.count(group) == 1


def test_bias_report_csv_and_json_agree(run: Path, run_cli: RunCli) -> None:
    options = ["--by", "predicted", "--threshold", "0.7", "--estimator", "mc"]
    code, text, err = run_cli("bias-report", run, *options, "--format", "csv")
    assert (code, err) == (0, "")
    lines = records(text)
    groups = json.loads(run_cli("bias-report", run, *options, "--format", "json").out)["results"]
    assert [group["level"] for group in groups] == [0.1, 0.35]
    assert {group["by"] for group in groups} == {"predicted"}
    assert {group["threshold"] for group in groups} == {0.7}
    classes = [found for group in groups for found in group["classes"]]
    assert len(lines) == len(classes) > 10
    assert [int(line["images"]) for line in lines] == [found["images"] for found in classes]
    assert [float(line["mean"]) for line in lines] == [found["mean"]["value"] for found in classes]


def test_flag_samples_below(run: Path, run_cli: RunCli) -> None:
    options = ["--estimator", "mc", "--sigma", "0.35", "--format", "csv"]
    strict = records(run_cli("flag-samples", run, *options).out)
    wide = records(run_cli("flag-samples", run, *options, "--threshold", "0.9").out)
    assert 0 < len(strict) < len(wide) < 60
    assert all(float(line["value"]) < 0.5 for line in strict)
    values = [float(line["value"]) for line in wide]
    assert values == sorted(values)
    assert [line["id"] for line in wide[: len(strict)]] == [line["id"] for line in strict]


def test_flag_samples_bottom_and_top(run: Path, run_cli: RunCli) -> None:
    code, out, err = run_cli("flag-samples", run, "--estimator", "mc", "--sigma", "0.1", "--bottom", "2", "--top", "3", "--format", "json")
    assert (code, err) == (0, "")
    (group,) = json.loads(out)["results"]
    assert (len(group["samples"]), len(group["robust"])) == (2, 3)
    assert group["samples"][0]["value"] <= group["samples"][1]["value"] <= min(one["value"] for one in group["robust"])


def test_flag_samples_per_class(run: Path, run_cli: RunCli) -> None:
    out = run_cli("flag-samples", run, "--estimator", "mc", "--sigma", "0.35", "--bottom", "1", "--per-class", "--format", "csv").out
    predicted = [int(line["predicted"]) for line in records(out)]
    assert predicted == list(range(10))


def test_flag_samples_only(run: Path, run_cli: RunCli) -> None:
    options = ["--estimator", "mc", "--sigma", "0.35", "--bottom", "5", "--format", "csv"]
    assert run_cli("flag-samples", run, *options, "--only", "correct").out == run_cli("flag-samples", run, *options).out
    code, _, err = run_cli("flag-samples", run, *options, "--only", "wrong")
    assert (code, err) == (5, "error: flagged: none of the 60 samples is known to be wrong; leave --only out\n")


def test_flag_samples_table_says_how_certain(run: Path, run_cli: RunCli) -> None:
    code, out, _ = run_cli("flag-samples", run, "--estimator", "mc", "--sigma", "0.35")
    assert code == 0
    assert "of 60 samples are below 0.5: " in out


@pytest.mark.parametrize(("command", "format_"), [("bias-report", "table"), ("flag-samples", "csv")])
def test_output_file_holds_what_would_be_printed(command: str, format_: str, run: Path, run_cli: RunCli, tmp_path: Path) -> None:
    printed = run_cli(command, run, "--format", format_)
    written = run_cli(command, run, "--format", format_, "-o", "report")
    assert (written.code, written.out, written.err) == (0, "", "")
    assert (tmp_path / "report").read_text() == printed.out


def test_images_clean_beside_noisy(run: Path, run_cli: RunCli, tmp_path: Path) -> None:
    options = ["--estimator", "mc", "--bottom", "3", "--top", "1"]
    code, _, err = run_cli("flag-samples", run, *options, "--images", "worst")
    assert (code, err) == (0, "8 pictures in worst\n")
    assert sorted(folder.name for folder in (tmp_path / "worst").iterdir()) == ["mc-0.1", "mc-0.35"]
    pictures = sorted((tmp_path / "worst" / "mc-0.35").iterdir())
    assert [path.name[:4] for path in pictures] == ["001-", "002-", "003-", "004-"]
    for path in pictures:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert picture.size == (160 + 8 + 160, 160), "8 x 8 digits are enlarged twenty times, with a gap between"
            assert picture.mode == "RGB"
            picture.load()
