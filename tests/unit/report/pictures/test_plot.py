"""`robaudit plot`: files from one run or several, options that fit the kind, and refusals in a
line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from robaudit.errors import NothingLeftError
from robaudit.report import pictures as pictures_module
from robaudit.report.pictures import kinds_of_picture
from robaudit.report.pictures.inline import inline
from robaudit.report.pictures.kinds import drawing_of, figure_of
from robaudit.report.pictures.page import PictureSize
from robaudit.report.sections import SectionRequest
from robaudit.results import Votes
from robaudit.runs.run import Run
from robaudit.stats.reading import read_run
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, tree, write
from tests.unit.report.pictures.made import row, run, texts, usual

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.families


def test_files_of_one_run_and_of_several(run_cli: RunCli, folder: Path, tmp_path: Path) -> None:
    column = ["--width", "3.3", "--no-title", "--no-caption"]
    for options in (
        [folder, "--kind", "summary", "--estimator", "pgd", "--threshold", "0.7", "-o", "a.png"],
        [
            folder,
            folder,
            "--kind",
            "scores",
            "--label",
            "one",
            "--label",
            "two",
            *column,
            "-o",
            "b.pdf",
        ],
        [folder, "--kind", "flagged", "--max-images", "1", *column, "-o", "c.svg"],
    ):
        outcome = run_cli("plot", *options)
        assert (outcome.code, outcome.out, outcome.err) == (0, "", ""), options
    assert sorted(tree(tmp_path)) == ["a.png", "b.pdf", "c.svg"]


@pytest.mark.parametrize("kind", ["summary", "levels"])
def test_runs_on_other_images_are_named(run_cli: RunCli, tmp_path: Path, kind: str) -> None:
    """As ``robaudit show --with`` does: in the picture, and where the caption is left out."""
    for name, split in (("one", "test"), ("two", "train")):
        document = digits(dataset={"kind": "digits", "split": split, "limit": 3})
        assert (
            run_cli("estimate", write(tmp_path, document, f"{name}.yaml"), "--out", name).code == 0
        )
    says = "two: other images or other noise than one, so nothing is compared."
    assert says in run_cli("show", "one", kind, "--with", "two").out
    outcome = run_cli("plot", "one", "two", "--kind", kind, "--no-caption", "-o", "a.png")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", f"note: {says}\n")
    runs = [read_run(tmp_path / "one"), read_run(tmp_path / "two")]
    assert says in " ".join(
        " ".join(texts(figure_of(drawing_of(kind, runs, SectionRequest()), PictureSize()))).split()
    )
    assert run_cli("plot", "one", "one", "--kind", kind, "-o", "b.png").err == ""


@pytest.mark.slow
def test_another_process_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    for kind in kinds_of_picture():
        for ending in ("png", "svg", "pdf"):
            found = set()
            for seed in ("1", "2"):
                target = tmp_path / f"{seed}.{ending}"
                command = [
                    sys.executable,
                    "-m",
                    "robaudit",
                    "plot",
                    str(folder),
                    "--kind",
                    kind,
                    "-o",
                    str(target),
                ]
                subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
                found.add(target.read_bytes())
            assert len(found) == 1, (kind, ending)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-o", "it.gif"), "use .png, .svg or .pdf"),
        (("-o", "gone/it.png"), "its folder does not exist"),
        (("-o", "it.png", "--estimator", "nothing"), "has no estimator nothing; it has mc, "),
        (("-o", "it.png", "--width", "1"), "does not fit a page"),
        (
            ("-o", "it.png", "--threshold", "0.5"),
            "does not apply to --kind classes; use it with summary or flagged",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(
    run_cli: RunCli, folder: Path, tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    (tmp_path / "it.png").write_bytes(b"old")
    outcome = run_cli("plot", folder, "--kind", "classes", *args)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert says in outcome.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"it.png": b"old"}


def test_other_refusals(
    run_cli: RunCli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        "shows one spec, not 2"
        in run_cli("plot", "a.yaml", "b.yaml", "--kind", "noise", "-o", "it.png").err
    )
    assert (
        "does not apply to --kind noise; use it with the others"
        in run_cli("plot", "a.yaml", "--kind", "noise", "--estimator", "mc", "-o", "it.png").err
    )
    monkeypatch.setattr(pictures_module, "find_spec", lambda _: None)
    outcome = run_cli("plot", folder, "--kind", "levels", "-o", "it.png")
    assert (outcome.code, outcome.err) == (
        2,
        "error: -o it.png: needs matplotlib, which is not installed; pip install "
        "'robaudit[plot]'\n",
    )
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        (run([row(0, 1.0)]), ("summary", "levels")),
        (
            run(row(i, 0.5, label=None, correct=None) for i in range(3)),
            ("summary", "levels"),
        ),
        (run(row(i, 0.4, label=i // 2, predicted=3) for i in range(80)), ("classes",)),
        (
            run(
                row(i, 0.4, label=i, votes=Votes((*(0,) * i, 4, 6)), predicted=0) for i in range(40)
            ),
            ("confusion",),
        ),
        (usual([f"estimator_number_{i}" for i in range(9)], [0.01, 1.0]), ("summary", "levels")),
    ],
    ids=["one image", "unlabelled", "40 classes", "confusion of 41 classes", "many estimators"],
)
def test_unusual_runs_are_drawn_without_a_word(made: Run, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        assert inline(kind, drawing_of(kind, [made], SectionRequest())).startswith("<svg ")


def test_classes_of_a_single_image_each_are_no_picture(golden: Golden) -> None:
    made = run(row(i, 0.5, label=i) for i in range(3))
    with golden.raises(NothingLeftError):
        drawing_of("classes", [made], SectionRequest())


@pytest.mark.parametrize("title", ["Robustness of A_net under $noise$", ""])
def test_another_title(run_cli: RunCli, folder: Path, tmp_path: Path, title: str) -> None:
    drawing = drawing_of("classes", [usual()], SectionRequest())
    drawn = texts(figure_of(drawing, PictureSize(title=title)))
    assert not any(text.startswith("Robustness by class") for text in drawn)
    assert title in drawn or not title
    # What the own title says of the result is in the caption.
    assert any(text.startswith("mc at sigma 0.1. ") for text in drawn)
    outcome = run_cli("plot", folder, "--kind", "summary", "--title", title, "-o", "a.png")
    assert (outcome.code, outcome.err) == (0, "")
    without = run_cli("plot", folder, "--kind", "summary", "--no-title", "-o", "b.png")
    assert without.code == 0
    same = (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert same == (not title)


def test_a_title_that_is_left_out_has_no_text(run_cli: RunCli, folder: Path) -> None:
    outcome = run_cli(
        "plot", folder, "--kind", "summary", "--title", "one", "--no-title", "-o", "a.png"
    )
    assert outcome.code == 2
    assert "--no-title" in outcome.err


@pytest.mark.parametrize("kind", ["summary", "levels", "classes"])
def test_pictures_of_one_estimator_are_in_plain_words(kind: str) -> None:
    drawing = drawing_of(kind, [usual(["mc"], [0.05, 0.1])], SectionRequest())
    drawn = texts(figure_of(drawing, PictureSize(caption=False)))
    assert not any("mc" in text.split() or "_" in text for text in drawn)
    if kind in ("summary", "levels"):
        assert "share of noisy copies\nthat keep the class" in drawn
    if kind == "levels":
        assert "noise (standard deviation)" in drawn


def test_the_estimator_and_level_that_are_drawn_are_named_with_or_without_a_title() -> None:
    made = usual()
    chosen = SectionRequest(estimators=("logit_gaussian",))
    for request, about in (
        (SectionRequest(), "mc at sigma 0.1"),
        (chosen, "logit_gaussian at sigma 0.1"),
    ):
        drawing = drawing_of("classes", [made], request)
        assert f"Robustness by class: {about}" in texts(figure_of(drawing, PictureSize()))
        assert any(
            text.startswith(f"{about}. ")
            for text in texts(figure_of(drawing, PictureSize(title=False)))
        )
