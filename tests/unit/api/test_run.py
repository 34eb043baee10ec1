"""What a run answers from Python, and how it shows itself."""

from __future__ import annotations

import copy
import csv
import io
import pickle
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import robaudit
from robaudit.api.printed import Page
from robaudit.api.run import Run, read_run
from robaudit.errors import RobauditError
from robaudit.results import PARTS
from tests.conftest import RunCli
from tests.golden import Golden
from tests.infos import changed
from tests.specs import digits, read_rows
from tests.unit.api.nets import arrays, network

NAMES = ["<b>zero</b>", "one & only", *map(str, range(2, 9)), "nine\u200b[31m"]
OPTIONS: Any = {
    "sigma": [0.1, 0.25],
    "estimators": ["logit_gaussian", {"mc": {"draws": 100}}],
    "class_names": NAMES,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    gates = ["mean(estimator=mc, sigma=0.25) >= 0.5", "mean(estimator=mc, sigma=0.25) >= 0.999"]
    return robaudit.audit(
        network(),
        arrays(60),
        **OPTIONS,
        gates=gates,
        out=tmp_path_factory.mktemp("api") / "run",
        name="digits",
    )


def test_the_class_of_runs(run: Run) -> None:
    assert isinstance(run, robaudit.Run)
    assert read_run(run.path) == run == robaudit.read_run(str(run.path))
    assert type(robaudit.read_run(run.path)) is type(run)


@pytest.mark.families
def test_rows_as_tables(run: Run) -> None:
    pandas = pytest.importorskip("pandas")
    columns = list(read_rows(run.path)[0])
    arrow = run.to_arrow()
    assert (arrow.column_names, arrow.num_rows) == ([*columns, *PARTS, "numbers"], len(run.rows))
    all_votes = [row.votes for row in run.rows]
    assert arrow["votes"].to_pylist() == [
        None if votes is None else {**asdict(votes), "counts": [*votes.counts]}
        for votes in all_votes
    ]
    frame = run.to_pandas()
    further = {f"numbers.{name}" for row in run.rows for name in row.numbers}
    assert list(frame.columns)[: len(columns)] == columns
    assert {"votes.counts", "votes.lost", "fit.skewness", *further} <= set(frame.columns)
    for row, (_, line) in zip(run.rows, frame.iterrows(), strict=True):
        assert (
            pandas.isna(line["fit.skewness"])
            if row.fit is None
            else line["fit.skewness"] == row.fit.skewness
        )
        assert (row.votes and row.votes.counts) == (
            None if line["votes.counts"] is None else tuple(line["votes.counts"])
        )
        assert row.numbers == {
            name.removeprefix("numbers."): line[name]
            for name in further
            if not pandas.isna(line[name])
        }
    assert frame["value"].tolist() == [row.value for row in run.rows]
    assert frame["flips_to"].dtype == pandas.Int64Dtype()
    assert frame["flips_to"].isna().any()
    written = list(csv.reader(io.StringIO(frame.to_csv(index=False))))
    assert len(written) == len(run.rows) + 1


@pytest.mark.parametrize(
    ("library", "method"),
    [("pyarrow", "to_arrow"), ("pandas", "to_pandas")],
)
def test_a_library_is_missing(
    run: Run, library: str, method: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RobauditError) as caught:
        getattr(run, method)()
    golden(caught.value)


def test_the_repr_of_a_run_is_short(run: Run) -> None:
    text = repr(run)
    assert text.startswith(
        "<Run Sequential on 60 samples of data in memory; clean accuracy 100.0%; logit_gaussian "
        "at sigma 0.1: mean p_robust 0.99"
    )
    assert text.endswith(f"; ...; in {run.path}>")
    assert len(text) < 600
    assert repr(replace(run, rows=run.rows[:1])).count("mean") == 1


def test_what_a_notebook_shows_is_escaped(run: Run) -> None:
    shown = [
        run._repr_markdown_(),
        run.summary()._repr_markdown_(),
        run.section("classes", estimator="mc", sigma=0.25)._repr_markdown_(),
        run.section("flagged", threshold=0.95)._repr_markdown_(),
        run.gate()._repr_markdown_(),
    ]
    for text in shown:
        assert not re.search(r"<\w", text)
        assert "<b>zero" not in text
        assert "\u200b" not in text
    assert "&lt;b&gt;zero&lt;/b&gt;" in shown[2]
    assert "clean accuracy" in shown[0]
    assert "of 2 gates 1 passed, 1 failed" in shown[0].replace(
        "1 failed, 1 passed", "1 passed, 1 failed"
    )


def test_results_print_as_the_tables_of_the_command_line(
    run: Run, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    said = {
        "show": (run_cli("show", run.path).out, run.summary()),
        "bias": (
            run_cli("bias-report", run.path, "--estimator", "mc").out,
            run.section("classes", estimator="mc"),
        ),
        "flags": (
            run_cli("flag-samples", run.path, "--threshold", "0.6").out,
            run.section("flagged", threshold=0.6),
        ),
        "gates": (run_cli("gate", run.path).out, run.gate()),
    }
    for printed, results in said.values():
        text = "\n".join(line.rstrip() for line in printed.splitlines())
        text = text.replace("--population", "population=True").replace("--point", "point=True")
        assert repr(results).strip() in text


def test_results_are_tuples(run: Run) -> None:
    summary = run.summary()
    assert len(summary) == 4
    assert [group.key.estimator for group in summary] == [
        "logit_gaussian",
        "mc",
        "logit_gaussian",
        "mc",
    ]
    assert copy.deepcopy(summary) == summary == pickle.loads(pickle.dumps(summary))
    (bias,) = run.section("classes", estimator="mc", sigma=0.25)
    assert len(bias.classes) == 10
    (flagged,) = run.section("flagged", estimator=["mc"], sigma=[0.25], bottom=30)
    assert len(flagged.samples) == 30
    assert "... and 5 more." in repr(
        run.section("flagged", estimator=["mc"], sigma=[0.25], bottom=55)
    )


def test_gates(run: Run) -> None:
    decisions = run.gate()
    assert ([one.verdict for one in decisions], decisions.verdict, decisions.passed) == (
        ["pass", "fail"],
        "fail",
        False,
    )
    assert run.gate("mean(estimator=mc, sigma=0.25) >= 0.5").passed
    one = run.gate("p05(estimator=mc, sigma=0.25) >= 0.68", inconclusive="pass")
    assert (one[0].verdict, one.verdict) == ("inconclusive", "pass")
    assert pickle.loads(pickle.dumps(decisions)).verdict == "fail"


def test_a_report(run: Run, tmp_path: Path, golden: Golden) -> None:
    page = run.report(estimator="mc", sigma=0.25, title="Mine", images=False)
    assert isinstance(page, Page)
    assert page.lower().startswith("<!doctype html>")
    assert repr(page).startswith("<HTML report, 0.")
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert page._repr_html_().count("<") == 2, "the frame and its end: the page itself is escaped"
    assert "<title>Mine" in page
    assert run.report(str(tmp_path / "a.md"), estimator="mc", sigma=0.25) == tmp_path / "a.md"
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("#")
    with pytest.raises(RobauditError) as caught:
        run.report(tmp_path / "nowhere" / "a.md")
    golden(caught.value)


def test_pictures(run: Run, tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    drawn = run.plot("summary", estimator="mc")
    assert isinstance(drawn, figure.Figure)
    assert drawn._repr_png_().startswith(b"\x89PNG")
    assert isinstance(
        run.plot("flagged", tmp_path / "a.png", estimator="mc", sigma=0.25, max_images=3),
        figure.Figure,
    )
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


MISTAKES: dict[str, Any] = {
    "estimator": lambda run: run.section("flagged", estimator="mcc"),
    "sigma": lambda run: run.section("classes", sigma=0.3),
    "only": lambda run: run.section("flagged", only="right"),
    "below": lambda run: run.section("flagged", threshold=float("nan")),
    "a gate that is no text": lambda run: run.gate(["mean >= 0.9", 5]),
    "a gate": lambda run: run.gate("meen >= 1"),
    "no gate": lambda run: replace(
        run, info=changed(run.info, spec={**run.info.spec, "gates": []})
    ).gate(),
    "inconclusive": lambda run: run.gate(inconclusive="xfail"),
    "a format": lambda run: run.plot("classes", "a.jpg"),
}


@pytest.mark.parametrize("wanted", MISTAKES.values(), ids=list(MISTAKES))
def test_mistakes_are_one_line(run: Run, wanted: Any, golden: Golden) -> None:
    with pytest.raises(RobauditError) as caught:
        wanted(run)
    golden(caught.value)


@pytest.mark.parametrize("sigma", ["64/256", np.array([0.25]), torch.tensor(0.25)])
def test_levels_in_any_form(run: Run, sigma: Any) -> None:
    assert run.section("flagged", sigma=sigma) == run.section("flagged", sigma=0.25)


def test_every_section_of_the_command_line(run: Run, golden: Golden) -> None:
    curves = run.section("levels", estimator="mc")
    assert [curve[0].key.estimator for curve in curves] == ["mc"]
    assert "accuracy" in repr(curves)
    both = run.section("summary", with_=[run], label=["a", "b"])
    assert len(both) == 2
    assert "b - a" in repr(both)
    assert "| b - a |" in both._repr_markdown_()
    with pytest.raises(RobauditError) as caught:
        run.section("sections")
    golden(caught.value)
    with pytest.raises(RobauditError) as caught:
        run.section("levels", by="label")
    golden(caught.value)


def test_classes_by_a_column_that_has_changed(tmp_path: Path) -> None:
    images, labels = arrays(40)
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{i}.png")

    def write(scanners: Sequence[str]) -> None:
        lines = [f"{i}.png,{labels[i]},{scanner}" for i, scanner in enumerate(scanners)]
        (tmp_path / "data.csv").write_text("\n".join(["path,label,scanner", *lines]))

    write(["A"] * 40)
    data = {"kind": "csv", "path": str(tmp_path / "data.csv"), "channels": 1}
    run = robaudit.audit(digits(dataset=data, noise={"sigma": 0.3}), out=tmp_path / "run")
    order = np.argsort([row.value for row in run.rows])
    write(["A" if i in order[:20] else "B" for i in range(40)])
    (apart,) = run.section("classes", by="scanner")
    write(["A" if i in order[::2] else "B" for i in range(40)])
    (mixed,) = run.section("classes", by="scanner")
    assert apart.gap.p_value < 0.01 < 0.1 < mixed.gap.p_value
    assert (mixed,) == tuple(read_run(run.path).section("classes", by="scanner"))


def test_only_public_names_are_offered() -> None:
    assert dir(robaudit) == sorted(robaudit.__all__)
    offered = [name for name in dir(Run) if not name.startswith("_")]
    assert all(getattr(Run, name).__doc__ for name in offered if callable(getattr(Run, name)))
