"""`robaudit plot`: each kind as each kind of file, the same every time, and what is refused."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from PIL import Image

from robaudit import audit
from robaudit.quantities import LOG10_P_FAIL
from robaudit.report import pictures as pictures_module
from robaudit.report.pictures.kinds import KINDS, Choice, inline_svg, picture, sketch_of
from robaudit.store.run import Run
from tests.certified_rows import pictured as certificates
from tests.conftest import RunCli
from tests.curve_rows import pictured as curves_pictured
from tests.radius_rows import pictured
from tests.report.pictures.made import HOSTILE, losses, row, run, usual
from tests.specs import digits, tree, write

pytest.importorskip("matplotlib")
OWN_RUNS = {
    "loss-q": lambda: losses(8),
    "radius": pictured,
    "certified": certificates,
    "heat-map": pictured,
    "corruption-kept": pictured,
    "curves": curves_pictured,
}
"""The kinds that need other results than the usual run has."""
LOSSES = {"qnorm_mc": {"samples": 20, "q": [1, 10]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with two estimators and two noise levels."""
    where = tmp_path_factory.mktemp("plot")
    document = digits(
        limit=12, noise={"sigma": [0.1, 0.3]}, estimators=[{"mc": {"samples": 20}}, "softmax", {"logit_gaussian": {"samples": 16}}, LOSSES]
    )
    return audit(write(where, document), out=where / "run").path


def _valid(data: bytes, ending: str) -> None:
    if ending == "png":
        image = Image.open(io.BytesIO(data))
        image.load()
        assert image.size[0] == 7 * 300
    elif ending == "svg":
        root = Xml.fromstring(data)  # noqa: S314
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert b"<text" not in data  # letters are outlines: no font is needed
    else:
        assert data.startswith(b"%PDF-")
        assert data.rstrip().endswith(b"%%EOF")
        assert b"/FontFile2" in data


@pytest.mark.parametrize(("kind", "ending"), [(kind, ("png", "svg", "pdf")[i % 3]) for i, kind in enumerate(KINDS)])
def test_each_kind_is_written(
    run_cli: RunCli, folder: Path, tmp_path: Path, kind: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind in OWN_RUNS:
        monkeypatch.setattr("robaudit.store.run.read_run", lambda _: OWN_RUNS[kind]())
    outcome = run_cli(
        "plot", folder, "--kind", kind, "-o", f"it.{ending}", *(["--max-images", "4"] if kind in ("flagged", "loss-q") else [])
    )
    assert (outcome.code, outcome.out) == (0, "")
    _valid((tmp_path / f"it.{ending}").read_bytes(), ending)
    assert list(tree(tmp_path)) == [f"it.{ending}"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OWN_RUNS])
def test_each_kind_is_written_as_every_file(run_cli: RunCli, folder: Path, tmp_path: Path, kind: str, ending: str) -> None:
    assert run_cli("plot", folder, "--kind", kind, "-o", f"it.{ending}").code == 0
    _valid((tmp_path / f"it.{ending}").read_bytes(), ending)


@pytest.mark.parametrize(("kind", "ending"), [("bias", "png"), ("bias", "svg"), ("bias", "pdf"), *((kind, "svg") for kind in OWN_RUNS)])
def test_the_same_run_gives_the_same_bytes_whatever_the_settings_of_the_user(
    kind: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib as mpl

    made = OWN_RUNS[kind]() if kind in OWN_RUNS else usual(8)
    first = picture(kind, made, ending)
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none", "pdf.fonttype": 3, "text.parse_math": True}):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
        assert picture(kind, made, ending) == first
        assert mpl.rcParams["font.size"] == 30
    assert b"Date" not in first.replace(b"/ModDate", b"")


@pytest.mark.slow
def test_another_process_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    for kind in (kind for kind in KINDS if kind not in OWN_RUNS):
        for ending in ("png", "svg", "pdf"):
            found = set()
            for seed in ("1", "2"):
                target = tmp_path / f"{seed}.{ending}"
                command = [sys.executable, "-m", "robaudit", "plot", str(folder), "--kind", kind, "-o", str(target)]
                subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
                found.add(target.read_bytes())
            assert len(found) == 1, (kind, ending)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-o", "it.gif"), "use .png, .svg or .pdf"),
        (("-o", "it"), "use .png, .svg or .pdf"),
        (("-o", "gone/it.png"), "its folder does not exist"),
        (("-o", "it.png", "--estimator", "nothing"), "has no estimator nothing; it has mc, softmax, logit_gaussian"),
        (("-o", "it.png", "--sigma", "0.7"), "has no sigma 0.7"),
        (("-o", "it.png", "--width", "1"), "does not fit a page"),
        (("-o", "it.png", "--threshold", "0.5"), "does not apply to --kind bias"),
        (("-o", "it.png", "--max-images", "3"), "does not apply to --kind bias"),
        (("another", "-o", "it.png"), "--kind bias: shows one run, not 2; name one, or draw several with --kind certified or curves"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(run_cli: RunCli, folder: Path, tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    outcome = run_cli("plot", folder, "--kind", "bias", *args)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert says in outcome.err
    assert tree(tmp_path) == {}


def test_other_refusals(run_cli: RunCli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not a run folder" in run_cli("plot", "nowhere", "--kind", "cost", "-o", "it.png").err
    assert run_cli("plot", folder, "--kind", "pie", "-o", "it.png").code == 2
    assert "is not a finite number" in run_cli("plot", folder, "--kind", "flagged", "-o", "it.png", "--threshold", "nan").err
    assert "too narrow for this picture; at least 5 inches" in run_cli("plot", folder, "--kind", "cost", "-o", "it.png", "--width", "4").err
    outcome = run_cli("plot", folder, "--kind", "agreement", "-o", "it.png", "--estimator", "mc")
    assert (outcome.code, outcome.err.count("\n")) == (5, 1)
    outcome = run_cli("plot", folder, "--kind", "loss-q", "-o", "it.png", "--estimator", "mc")
    assert (outcome.code, outcome.err.count("\n")) == (5, 1)
    assert "has no losses by q to draw" in outcome.err
    monkeypatch.setattr(pictures_module, "find_spec", lambda _: None)
    outcome = run_cli("plot", folder, "--kind", "cost", "-o", "it.png")
    assert (outcome.code, outcome.err) == (2, "error: -o it.png: needs matplotlib, which is not installed; pip install 'robaudit[plot]'\n")
    assert tree(tmp_path) == {}


def test_an_old_picture_stays_where_a_new_one_fails(run_cli: RunCli, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "it.png").write_bytes(b"old")
    assert run_cli("plot", folder, "--kind", "bias", "-o", "it.png", "--estimator", "x").code == 2
    assert (tmp_path / "it.png").read_bytes() == b"old"


def _rare() -> Run:
    """Failure probabilities, some of them bounds only, with estimators whose labels are long."""
    names = ("splitting", "a_very_long_label_of_an_estimator_that_somebody_chose")
    rows = [
        row(
            i,
            -float(i),
            estimator=name,
            quantity=LOG10_P_FAIL.name,
            lower=None if i % 3 else -i - 1.0,
            upper=-i / 2,
            label=i % 3,
            flips_to=1,
        )
        for i in range(9)
        for name in names
    ]
    return run(rows, names=HOSTILE[:3])


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        (run([row(0, 1.0)]), ("distribution", "cost", "bias")),
        (run(row(i, 0.5, label=None, correct=None) for i in range(3)), ("distribution", "bias")),
        (_rare(), ("distribution", "bias", "agreement", "cost")),
        (run(row(i, 0.4, label=i // 2, predicted=3) for i in range(80)), ("bias",)),
        (usual(6, [f"estimator_number_{i}" for i in range(7)], [0.01]), ("distribution", "agreement", "cost")),
        pytest.param(
            run(row(i, 0.4, label=i // 2, predicted=3) for i in range(2000)),
            ("bias",),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one image", "unlabelled", "log10_p_fail", "40 classes", "many estimators", "1,000 classes"],
)
def test_unusual_runs_are_drawn_without_a_word(made: Run, kinds: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in kinds:
            assert inline_svg(kind, made).startswith("<svg ")


def test_the_flagged_images_are_in_the_page(folder: Path) -> None:
    from robaudit.store.run import read_run

    svg = inline_svg("flagged", read_run(folder), estimator="mc", threshold=0.9)
    assert svg.count("data:image/png;base64,") == 24
    assert "https" not in svg


def test_a_data_set_that_is_gone_is_a_refusal(folder: Path, tmp_path: Path, run_cli: RunCli) -> None:
    from tests.specs import NETWORK, save_npz

    data = save_npz(tmp_path / "data.npz")
    spec = write(
        tmp_path, {"model": NETWORK, "dataset": {"kind": "npz", "path": str(data)}, "noise": {"sigma": [0.1]}, "estimators": ["softmax"]}
    )
    path = audit(spec, out=tmp_path / "run").path
    data.unlink()
    outcome = run_cli("plot", path, "--kind", "flagged", "-o", "it.png")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert str(data) in outcome.err
    assert not (tmp_path / "it.png").exists()


def test_a_chosen_estimator_and_level_are_what_is_drawn() -> None:
    made = usual(8)
    assert sketch_of("bias", made, Choice()).title == "Robustness by class: mc, sigma 0.1"
    assert sketch_of("bias", made, Choice(("logit_gaussian",), (0.05,))).title == "Robustness by class: logit_gaussian, sigma 0.05"
    assert "sigma 0.05" in sketch_of("agreement", made, Choice(levels=(0.05,))).title
