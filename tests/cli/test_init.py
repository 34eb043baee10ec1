"""`robaudit init`: a few options become a spec that runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robaudit.auditing import expected
from robaudit.auditing.expected import Speed
from robaudit.spec.first_spec import spec_text
from robaudit.spec.model import SampleSpec
from robaudit.spec.read import load_spec
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import WEIGHTS, save_npz


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is fast enough for all draws."""
    at_speed(monkeypatch, 100_000.0)


MEASURED = expected.measure_speed


def at_speed(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    monkeypatch.setattr(expected, "measure_speed", lambda _: Speed(rate, 10))


MODEL = ("--model", str(WEIGHTS), "--architecture", "robaudit:digits_cnn")
DIGITS = ("--data", "digits")


def test_a_spec_that_runs(
    tmp_path: Path, run_cli: RunCli, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the measured speed, which given numbers do not depend on."""
    monkeypatch.setattr(expected, "measure_speed", MEASURED)
    code, out, err = run_cli(
        "init",
        *MODEL,
        "--data",
        "digits",
        "--sigma",
        "0.2",
        "--limit",
        "8",
        "--draws",
        "20",
        "--gate",
        "0.5",
    )
    assert code == 0
    golden.lines(err)
    assert out.startswith("next: robaudit estimate audit.yaml")
    assert load_spec(tmp_path / "audit.yaml").gates == ("mean(sigma=0.2) >= 0.5",)
    assert run_cli("estimate", "audit.yaml", "--out", "run").code == 0
    assert run_cli("gate", "run").code == 0


REFUSED: dict[str, list[str]] = {
    "no data": [*MODEL],
    "no such model": ["--model", "no.pt", *DIGITS],
    "no architecture": ["--model", str(WEIGHTS), *DIGITS],
    "no such data": [*MODEL, "--data", "x.npz"],
    "another kind of data": [*MODEL, "--data", "x.txt"],
    "no such normalisation": [*MODEL, *DIGITS, "--normalise", "imagenett"],
    "sigma 0": [*MODEL, *DIGITS, "--sigma", "0"],
    "the same sigma twice": [*MODEL, *DIGITS, "--sigma", "0.1,1/10"],
    "sigma 1e9": [*MODEL, *DIGITS, "--sigma", "1e9"],
    "unknown key": [*MODEL, *DIGITS, "--set", "dataset.resize=9"],
    "gate above 1": [*MODEL, *DIGITS, "--gate", "90"],
    "a file that exists": ["there.yaml", *MODEL, *DIGITS],
    "no such folder": ["no/such.yaml", *MODEL, *DIGITS],
    "noises and sigma": [*MODEL, *DIGITS, "--noise", "noise.yaml", "--sigma", "0.1"],
    "no such noises": [*MODEL, *DIGITS, "--noise", "none.yaml"],
    "noises of another kind of file": [*MODEL, *DIGITS, "--noise", "x.txt"],
    "a mistake in the noises": [*MODEL, *DIGITS, "--noise", "noise.yaml"],
    "an architecture without weights": ["--model", "timm:resnet18", *DIGITS],
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=list(REFUSED))
def test_refused_with_a_line(options: list[str], tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "x.txt").touch()
    (tmp_path / "there.yaml").write_text("mine")
    (tmp_path / "noise.yaml").write_text("noise:\n  - {sigma: 0.1}\n  - {kind: unifrom, eps: 1}\n")
    refuse("init", *options)


def test_noises_of_a_file_are_copied(tmp_path: Path, run_cli: RunCli) -> None:
    """With their files, levels and gates, into a spec in another folder."""
    measured = tmp_path / "measured"
    measured.mkdir()
    np.savez(
        measured / "noise.npz",
        frames=np.random.default_rng(0).normal(size=(4, 1, 8, 8)),
        brightness=[0.5],
        variance=[[0.04]],
    )
    noises: list[dict[str, object]] = [
        {"kind": "sensor", "name": "camera", "photons": [40, 20], "read_noise": 3.1},
        {"kind": "frames", "file": "noise.npz", "level": [0.5, 1], "clip": True},
        {"sigma": "1/5"},
    ]
    (measured / "noise.yaml").write_text(yaml.safe_dump({"noise": noises}))
    (tmp_path / "specs").mkdir()
    code, _, err = run_cli(
        "init",
        "specs/audit.yaml",
        *MODEL,
        *DIGITS,
        "--noise",
        "measured/noise.yaml",
        *("--limit", "4", "--draws", "10", "--gate", "0.01"),
    )
    assert code == 0, err
    path = tmp_path / "specs" / "audit.yaml"
    noises[1]["file"] = "../measured/noise.npz"
    assert yaml.safe_load(path.read_text())["noise"] == noises
    assert load_spec(path).gates == (
        "mean(noise=camera, level=40) >= 0.01",
        "mean(noise=camera, level=20) >= 0.01",
        "mean(noise=frames, level=0.5) >= 0.01",
        "mean(noise=frames, level=1) >= 0.01",
        "mean(sigma=0.2) >= 0.01",
    )
    assert run_cli("estimate", path, "--out", "run").code == 0
    assert run_cli("gate", "run").code == 0


def test_a_setting_names_noises_of_a_file_too(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "noise.yaml").write_text("noise: {kind: uniform, eps: [0.1, 0.2]}")
    done = run_cli("init", *MODEL, *DIGITS, "--no-check", "--set", "noise=noise.yaml")
    assert done.code == 0, done.err
    written = yaml.safe_load((tmp_path / "audit.yaml").read_text())
    assert written["noise"] == {"kind": "uniform", "eps": [0.1, 0.2]}


@pytest.mark.parametrize("name", ["it's #1.npz", "\x85.npz", "on", "-x.npz"])
def test_odd_names_are_found_again(
    name: str, tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    save_npz(tmp_path / "plain.npz", count=4)
    folder = tmp_path / name
    if name == "on":
        for label in range(10):
            (folder / str(label)).mkdir(parents=True)
            Image.new("L", (8, 8), 25 * label).save(folder / str(label) / "x.png")
    else:
        (tmp_path / "plain.npz").rename(folder)
    options = ["--set", "dataset.channels=1"] if name == "on" else []
    code, _, err = run_cli("init", *MODEL, f"--data={name}", *options, "--gate", "0.9999999")
    assert code == 0, err
    golden.lines(err)
    found = load_spec(tmp_path / "audit.yaml")
    assert found.document()["dataset"]["path"] == name
    assert found.gates[0] == "mean(sigma=0.02) >= 0.9999999"


def test_nothing_is_written_until_the_model_has_run(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    save_npz(tmp_path / "wide.npz", shape=(3, 5, 5))
    code, out, err = run_cli("init", *MODEL, "--data", "wide.npz")
    assert (code, out) == (2, "")
    golden.lines(err)
    assert not (tmp_path / "audit.yaml").exists()
    (tmp_path / "audit.yaml").write_text("mine")
    assert run_cli("init", *MODEL, "--data", "wide.npz", "--no-check", "--force").code == 0
    assert load_spec(tmp_path / "audit.yaml").dataset.kind == "npz"


def test_a_flat_folder_without_labels(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    (tmp_path / "flat").mkdir()
    for number in range(12):
        Image.new("L", (8, 8), 20 * number).save(tmp_path / "flat" / f"{number:02}.png")
    code, _, err = run_cli(
        "init",
        *MODEL,
        "--data",
        "flat",
        "--set",
        "dataset.channels=1",
        "--limit",
        "5",
        "--draws",
        "20",
    )
    assert code == 0, err
    golden.lines(err)
    done = run_cli("estimate", "audit.yaml", "--out", "run")
    assert done.code == 0, done.err
    assert "clean accuracy  not measured (no labels)" in done.out


def photos(folder: Path) -> Path:
    """Twenty photos of different sizes, in class folders; the last is damaged."""
    for number in range(20):
        path = folder / "photos" / str(number % 10) / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (20 + number, 16), 10 * number).save(path)
    path.write_bytes(b"damaged")
    return folder / "photos"


def test_photos_are_cropped_and_a_damaged_one_skipped(tmp_path: Path, run_cli: RunCli) -> None:
    photos(tmp_path)
    grey = ("init", *MODEL, "--data", "photos", "--set", "dataset.channels=1")
    sizes = ("--resize", "10", "--crop", "8")
    assert run_cli(*grey, *sizes).code == 2
    done = run_cli(*grey, *sizes, "--on-error", "skip")
    assert done.code == 0, done.err
    assert "next: robaudit estimate audit.yaml --on-error skip" in done.out
    dataset = load_spec(tmp_path / "audit.yaml").document()["dataset"]
    assert (dataset["resize"], dataset["crop"]) == (10, 8)


@pytest.mark.parametrize("spec", ["audit.yaml", "specs/audit.yaml"])
def test_paths_are_relative_to_the_current_folder(
    spec: str, tmp_path: Path, run_cli: RunCli
) -> None:
    """The spec has them relative to its own folder."""
    (tmp_path / "specs").mkdir()
    save_npz(tmp_path / "x.npz")
    (tmp_path / "net.safetensors").symlink_to(WEIGHTS)
    model = ("--model", "net.safetensors", "--architecture", "robaudit:digits_cnn")
    done = run_cli("init", *model, "--data", "x.npz", spec)
    assert done.code == 0, done.err
    assert run_cli("estimate", spec, "--out", "run", "--limit", "2").code == 0


def test_the_former_name_of_draws(tmp_path: Path, run_cli: RunCli) -> None:
    done = run_cli("init", *MODEL, *DIGITS, "--samples", "7", "--no-check")
    assert done.code == 0, done.err
    (estimator,) = load_spec(tmp_path / "audit.yaml").estimators
    assert estimator.options == {"draws": 7}


def test_any_key_can_be_set(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "names.txt").write_text("\n".join("abcdefghij"))
    options = (
        "--set",
        "dataset.class_names=names.txt",
        "--set",
        "mc.draws=7",
        "--set",
        "run.seed=3",
    )
    assert run_cli("init", *MODEL, "--data", "digits", *options).code == 0
    found = load_spec(tmp_path / "audit.yaml")
    assert (found.estimators[0].options, found.run.seed) == ({"draws": 7}, 3)
    assert load_spec(tmp_path / "audit.yaml").dataset.class_names == tuple("abcdefghij")


def size_of(path: Path) -> tuple[int | None, int]:
    """The number of images of a spec, None for all, and its draws."""
    spec = load_spec(path)
    sample = spec.dataset.sample
    images = spec.dataset.limit if sample is None else sample.size
    return images, spec.estimators[0].options["draws"]


def test_a_slow_network_takes_fewer_draws(
    tmp_path: Path, run_cli: RunCli, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_speed(monkeypatch, 38.0)
    done = run_cli("init", *MODEL, *DIGITS, "--gate", "0.9")
    assert done.code == 0, done.err
    golden.lines(done.err, "note: about")
    golden.lines(done.err, "note: if")
    assert done.out.startswith("next: robaudit estimate audit.yaml, then robaudit gate RUN")
    assert size_of(tmp_path / "audit.yaml") == (500, 16)
    lines = (tmp_path / "audit.yaml").read_text().splitlines()
    golden(lines[lines.index("estimators:") + 1])


SIZES: dict[str, tuple[list[str], tuple[int, int]]] = {
    "nothing": ([], (150, 8)),
    "the images": (["--limit", "400"], (400, 2)),
    "a setting of the images": (["--set", "dataset.limit=400"], (400, 2)),
    "the draws": (["--draws", "30"], (100, 30)),
    "the draws by their former name": (["--samples", "30"], (100, 30)),
    "a setting of the draws": (["--set", "mc.draws=1000"], (100, 1000)),
    "a setting of the estimators": (["--set", "estimators=[{mc: {draws: 30}}]"], (100, 30)),
    "a setting by its label": (
        ["--set", "mc.label=copies", "--set", "copies.draws=30"],
        (100, 30),
    ),
    "another setting": (["--set", "mc.label=copies"], (150, 8)),
    "both": (["--limit", "400", "--draws", "30"], (400, 30)),
    "no speed": (["--no-check"], (500, 1000)),
}


@pytest.mark.parametrize(("options", "size"), SIZES.values(), ids=list(SIZES))
def test_given_numbers_stay(
    options: list[str],
    size: tuple[int, int],
    tmp_path: Path,
    run_cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_speed(monkeypatch, 4.5)
    done = run_cli("init", *MODEL, *DIGITS, *options)
    assert done.code == 0, done.err
    assert size_of(tmp_path / "audit.yaml") == size


def grey_images(folder: Path, number: int) -> Path:
    """A folder of images by class."""
    for index in range(number):
        path = folder / "grey" / str(index % 10) / f"{index:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), index % 256).save(path)
    return folder / "grey"


def test_fewer_images_of_a_folder_are_a_random_part(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_speed(monkeypatch, 0.5)
    grey = ("--data", grey_images(tmp_path, 520), "--set", "dataset.channels=1")
    done = run_cli("init", *MODEL, *grey, "--set", "dataset.sample.seed=3")
    assert done.code == 0, done.err
    assert size_of(tmp_path / "audit.yaml") == (100, 1)
    assert load_spec(tmp_path / "audit.yaml").dataset.sample == SampleSpec(size=100, seed=3)


def test_all_images_of_a_folder_need_no_subset(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    grey = ("--data", grey_images(tmp_path, 120), "--set", "dataset.channels=1")
    at_speed(monkeypatch, 4.5)
    assert run_cli("init", *MODEL, *grey).code == 0
    assert size_of(tmp_path / "audit.yaml") == (None, 8)
    own = ("--set", "dataset.sample.size=50", "--force")
    assert run_cli("init", *MODEL, *grey, *own).code == 0
    assert size_of(tmp_path / "audit.yaml") == (50, 16)


CODE = """
import torch
import torchvision
from pathlib import Path
from torch import nn
from robaudit.models.architectures import digits_cnn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(*digits_cnn())

def loaded():
    return digits_cnn()
"""


def test_a_class_of_ones_own_needs_trust(
    tmp_path: Path, run_cli: RunCli, golden: Golden, refuse: Refuse
) -> None:
    (tmp_path / "mynet.py").write_text(CODE)
    command = (
        "init",
        "--model",
        WEIGHTS,
        "--architecture",
        "mynet:Net",
        "--data",
        "digits",
        "--limit",
        "4",
    )
    golden.lines(run_cli(*command).err)
    code, out, err = run_cli(*command, "--trust")
    assert code == 0, err
    assert out == "next: robaudit estimate audit.yaml --trust\n"
    golden.lines(err)
    refuse("estimate", "audit.yaml", "--out", "run")
    assert (
        run_cli("estimate", "audit.yaml", "--out", "run", "--trust", "--set", "mc.draws=20").code
        == 0
    )


def test_a_function_that_returns_the_model(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    (tmp_path / "mynet.py").write_text(CODE)
    code, _, err = run_cli(
        "init", "--model", "mynet:loaded", "--data", "digits", "--limit", "4", "--trust"
    )
    assert code == 0, err
    model = load_spec(tmp_path / "audit.yaml").model
    assert (model.format, model.architecture, model.path) == ("python", "mynet:loaded", None)
    refused = run_cli("init", "b.yaml", "--model", "mynet:nothing", "--data", "digits", "--trust")
    assert refused.code == 2
    golden.lines(refused.err)


@given(path=st.text(min_size=1), names=st.lists(st.text(), max_size=3))
def test_any_text_stays_text(path: str, names: list[str]) -> None:
    found = yaml.safe_load(
        spec_text(
            {
                "model": {"path": path},
                "dataset": {"kind": "npz", "path": path, "class_names": names},
            },
            path,
        )
    )
    assert found["model"]["path"] == path
    assert found["dataset"]["class_names"] == names
