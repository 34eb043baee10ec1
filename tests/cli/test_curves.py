"""`robaudit curves`: from specs and runs to tables, files and pictures; interrupted, and refused."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from robaudit.stats.curves import CurveKind, curves_of
from robaudit.store.run import read_run
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.hostile.client import ROOT
from tests.specs import digits, read_info, read_rows, save_npz, write
from tests.states import flushes

QUICK = ("--steps", "6", "--restarts", "2", "--draws", "2", "--cap-l2", "3.2", "--cap-sigma", "1.6")
NOTHING_ELSE = ("--only", "noise", "--draws", "2", "--cap-sigma", "0.64")


def folder_of(place: Path, name: str = "spec") -> Path:
    """The only run folder of a spec's curves."""
    (found,) = place.glob(f"{name}-curves-*")
    return found


def test_from_a_spec_to_a_table(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=6, gates=["mean >= 0.9"]))
    outcome = run_cli("curves", "spec.yaml", *QUICK, "--picture", "curves.png")
    assert outcome.code == 0
    for word in ("images", "clean accuracy", "ASR l2", "ASR linf", "AMS", "gamma at 50 %", "human observers: about 0.25", "bootstrap"):
        assert word in outcome.out
    first = next(line for line in outcome.err.splitlines() if line.startswith("spec.yaml:"))
    gradients = 2 * 6 * (10 + 20)
    assert "its noises, estimators and gates are not used" in first
    assert f"an image takes {2 * (5 + 20)} noisy passes and up to {gradients} gradients" in first
    run = folder_of(tmp_path / "runs")
    info = read_info(run)
    assert [noise["kind"] for noise in info["spec"]["noise"]] == ["gaussian", "linear"]
    assert info["spec"]["gates"] == []
    assert {row["estimator"] for row in read_rows(run)} == {"mc", "pgd_l2:norm=l2", "pgd_linf:norm=linf"}
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    again = run_cli("curves", "spec.yaml", *QUICK)
    assert again.out == outcome.out
    assert "nothing was recomputed" in again.err
    assert run_cli("curves", run).out == outcome.out, "a finished run in place of its spec"


def test_the_numbers_are_those_of_the_rows(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=6))
    assert run_cli("curves", "spec.yaml", *QUICK, "--quiet", "--out", "here").code == 0
    run = folder_of(tmp_path / "here")
    curves = curves_of(read_run(run))
    rows = read_rows(run)
    radii = np.array([float(row["value"]) for row in rows if row["estimator"] == "pgd_l2:norm=l2"])
    correct = np.array([row["label"] == row["predicted"] for row in rows if row["estimator"] == "pgd_l2:norm=l2"])
    l2 = curves.curves[CurveKind.L2]
    for at, error in zip(l2.places, l2.errors, strict=True):
        assert error == pytest.approx(np.mean(~correct | (radii <= at + 1e-9)))
    found = json.loads(run_cli("curves", run, "--format", "json").out)["models"][0]
    assert found["name"] == "spec"
    assert found["curves"]["l2"]["summary"]["value"] == pytest.approx(l2.summary.value)
    table = list(csv.DictReader(io.StringIO(run_cli("curves", run, "--format", "csv").out)))
    assert {line["curve"] for line in table} == {"l2", "linf", "noise", "linear"}
    assert [float(line["error"]) for line in table if line["curve"] == "l2"] == l2.errors.tolist()
    assert [float(line["at"]) for line in table if line["curve"] == "linear"] == pytest.approx([1 - j / 20 for j in range(21)])


def test_the_rows_are_those_of_an_audit(tmp_path: Path, run_cli: RunCli) -> None:
    """The same estimators, noises and options in a spec of its own give the same bytes."""
    write(tmp_path, digits(limit=5))
    assert run_cli("curves", "spec.yaml", "--only", "l2", "--only", "linear", "--steps", "4", "--restarts", "2", "--draws", "3").code == 0
    attack = {"label": "pgd_l2", "norm": "l2", "step": 0.32, "cap": 6.4, "steps": 4, "restarts": 2}
    shares = [round(0.05 * j, 12) for j in range(1, 21)]
    by_hand = digits(limit=5, noise={"kind": "linear", "share": shares}, estimators=[{"mc": {"samples": 3}}, {"radius_pgd": attack}])
    write(tmp_path, by_hand, "own.yaml")
    assert run_cli("estimate", "own.yaml", "--out", "own").code == 0
    assert (folder_of(tmp_path / "runs") / "samples.csv").read_bytes() == (tmp_path / "own" / "samples.csv").read_bytes()
    assert run_cli("curves", "own", "--format", "json").code == 0


def test_several_models_in_one_table_and_picture(tmp_path: Path, run_cli: RunCli) -> None:
    for name, seed in (("first", 0), ("second", 1), ("third", 2), ("fourth", 3)):
        write(tmp_path, digits(limit=4, run={"seed": seed}), f"{name}.yaml")
    names = ("first", "second", "third", "fourth")
    outcome = run_cli("curves", *(f"{name}.yaml" for name in names), *NOTHING_ELSE, "--picture", "all.svg")
    assert outcome.code == 0
    assert all(name in outcome.out for name in names)
    assert "never" not in outcome.out
    runs = [folder_of(tmp_path / "runs", name) for name in names]
    picture = (tmp_path / "all.svg").read_bytes()
    assert run_cli("curves", *runs, "--picture", "again.svg").out == outcome.out
    assert (tmp_path / "again.svg").read_bytes() == picture
    twice = run_cli("curves", "first.yaml", "first.yaml", *NOTHING_ELSE, "--output", "table.txt")
    assert (twice.code, twice.out) == (0, "")
    assert (tmp_path / "table.txt").read_text().count("first") == 1


def test_models_of_one_name_are_called_by_their_folders(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=3))
    for seed in ("1", "2"):
        assert run_cli("curves", "spec.yaml", *NOTHING_ELSE, "--seed", seed, "--out", f"seed{seed}").code == 0
    runs = [folder_of(tmp_path / f"seed{seed}") for seed in (1, 2)]
    document = json.loads(run_cli("curves", *runs, "--format", "json").out)
    assert [one["name"] for one in document["models"]] == [f"spec ({run.name})" for run in runs]


def test_survivors_of_a_cap(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=5))
    outcome = run_cli("curves", "spec.yaml", "--only", "linf", "--cap-linf", "2/1000", "--step-linf", "1/1000", "--steps", "3")
    assert outcome.code == 0
    assert ">= 0.002 [0.002, ...]" in outcome.out
    assert "Linf attacks change nothing on 100.0% of the images up to 0.002, and these count as 0.002." in outcome.out


def test_a_picture_of_one_run(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(limit=4))
    assert run_cli("curves", "spec.yaml", *NOTHING_ELSE).code == 0
    run = folder_of(tmp_path / "runs")
    assert run_cli("plot", run, "--kind", "curves", "-o", "one.svg").code == 0
    assert (tmp_path / "one.svg").exists()
    assert run_cli("show", run).code == 0


def test_a_model_without_gradients_has_no_attacks(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, shape = onnx.helper, ["n", 1, 8, 8]
    nodes = [helper.make_node("Flatten", ["x"], ["y"])]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", ["n", 64]))]
    graph = helper.make_graph(nodes, "flat", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "flat.onnx")
    save_npz(tmp_path / "data.npz", count=3)
    write(tmp_path, digits(dataset={"kind": "npz", "path": "data.npz"}, model={"path": "flat.onnx"}))
    outcome = run_cli("curves", "spec.yaml", "--draws", "2")
    assert outcome.code == 0, outcome.err
    assert "spec.yaml: no curves of attacks: an ONNX model has no gradients" in outcome.err
    assert "AMS" in outcome.out
    assert "ASR" not in outcome.out
    refuse("curves", "spec.yaml", "--only", "l2", says="the model has no gradients, and the attacks need them")


def test_images_without_labels(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    save_npz(tmp_path / "data.npz", count=4)
    write(tmp_path, digits(dataset={"kind": "npz", "path": "data.npz", "labels_key": None}))
    refuse("curves", "spec.yaml", says="data.npz: has no labels, and the errors of curves are relative to them; give it labels")
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    for i, pixels in enumerate(images):
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    (tmp_path / "some.csv").write_text("path,label\n0.png,1\n1.png,\n2.png,3\n3.png,\n", encoding="utf-8")
    write(tmp_path, digits(dataset={"kind": "csv", "path": "some.csv", "channels": 1}))
    outcome = run_cli("curves", "spec.yaml", *NOTHING_ELSE)
    assert outcome.code == 0, outcome.err
    assert "2 images left out: no label." in outcome.out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("missing.yaml",), "missing.yaml: no such file"),
        (("spec.yaml", "--cap-l2", "0.1"), "--cap-l2: the grid from 0 in steps of 0.32 has 0 points"),
        (("spec.yaml", "--step-sigma", "0.0001", "--cap-sigma", "1"), "has 10,000 points; choose a step and a cap that make 1 to 1,000"),
        (("spec.yaml", "--step-linf", "8/0"), "--step-linf 8/0: is not a number"),
        (("spec.yaml", "--step-linf", "-1"), "is not a positive number"),
        (("spec.yaml", "--cap-l2", "nan"), "is not a positive number"),
        (("spec.yaml", "--only", "l3"), "--only"),
        (("spec.yaml", "--picture", "a.gif"), "--picture a.gif: is not a supported format; use .png, .svg or .pdf"),
        (("spec.yaml", "--picture", "no/a.png"), "its folder does not exist"),
        (("spec.yaml", "--output", "no/a.txt"), "its folder does not exist"),
        (("spec.yaml", "--picture", "a.svg", "--output", "./a.svg"), "--picture a.svg: is the file of --output, too; name two files"),
        (("spec.yaml", "--set", "model.path=none.pt"), "there is no such file"),
        (("spec.yaml", "--set", "dataset.limit=0"), "dataset.limit"),
        ((".",), "run.json: no such file; name a folder that robaudit estimate has written"),
        ((), "Missing argument"),
    ],
)
def test_refused(args: tuple[str, ...], says: str, tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits(limit=3))
    refuse("curves", *args, says=says)


def test_a_run_without_curves(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    write(tmp_path, digits(limit=3, noise={"sigma": [0.1, 0.25]}))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    refuse("curves", "run", says="run: has nothing that curves are made of")
    refuse("plot", "run", "--kind", "curves", "-o", "a.svg", says="run: has nothing that curves are made of")
    assert run_cli("curves", "spec.yaml", *NOTHING_ELSE).code == 0
    refuse("curves", folder_of(tmp_path / "runs"), "--only", "l2", says="has no curve l2; it has noise")


def test_finished_runs_refuse_options_of_audits(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    """A finer grid, for example, is not what such a run has; beside a spec the options are about that."""
    write(tmp_path, digits(limit=3))
    assert run_cli("curves", "spec.yaml", *NOTHING_ELSE).code == 0
    run = folder_of(tmp_path / "runs")
    for option in (("--limit", "2"), ("--step-l2", "0.1"), ("--seed", "0"), ("--clip",), ("--set", "run.seed=1"), ("--out", "runs")):
        refuse("curves", run, *option, says=f"{option[0]}: is about audits of specs, and these runs are finished")
    assert run_cli("curves", run, "--only", "noise", "--format", "json", "--quiet").code == 0
    assert run_cli("curves", run, "spec.yaml", *NOTHING_ELSE, "--limit", "2").code == 0


HELD = """
import os, time
from pathlib import Path
from torch import nn
def flushed():
    from tests.states import flushes
    return any(flushes(run) for run in Path("runs").glob("*"))
class Held(nn.Module):
    def forward(self, x):
        while "HELD" in os.environ:
            time.sleep(0.02)
            if not (Path("hold").exists() and flushed()):
                break
        return x.flatten(1)[:, 10:50:4] ** 2
def model():
    return Held()
"""  # waits behind the first flush for as long as there is a file


@pytest.mark.slow
def test_killed_and_continued(tmp_path: Path, run_cli: RunCli) -> None:
    """The same command goes on, and ends with the bytes of a run that nobody disturbed."""
    (tmp_path / "held_curves.py").write_text(HELD, encoding="utf-8")
    (tmp_path / "hold").touch()
    spec = write(tmp_path, digits(limit=12, model={"format": "python", "architecture": "held_curves:model"}))
    command = ("curves", str(spec), "--trust", *QUICK)
    environment = {**os.environ, "HELD": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "robaudit", *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not any(flushes(run) for run in (tmp_path / "runs").glob("*")):
                assert time.monotonic() < deadline
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    run = folder_of(tmp_path / "runs")
    assert read_info(run)["status"] == "running"
    assert not (run / "samples.csv").exists()
    continued = run_cli(*command)
    assert continued.code == 0, continued.err
    undisturbed = run_cli(*command, "--out", "undisturbed")
    assert continued.out == undisturbed.out
    whole = folder_of(tmp_path / "undisturbed")
    for name in ("samples.csv", "samples.json", "summary.json"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_unsuited_options_are_not_silently_dropped(tmp_path: Path, run_cli: RunCli) -> None:
    """What the options say is in the run's spec."""
    write(tmp_path, digits(limit=3))
    args: tuple[Any, ...] = ("--clip", "--step-l2", "0.5", "--cap-l2", "1", "--steps", "3", "--restarts", "4", "--draws", "3")
    assert run_cli("curves", "spec.yaml", *args, "--seed", "7", "--cap-sigma", "0.64").code == 0
    spec = read_info(folder_of(tmp_path / "runs"))["spec"]
    assert spec["run"]["seed"] == 7
    assert [noise["clip"] for noise in spec["noise"]] == [True, True]
    assert spec["noise"][0]["sigma"] == [0.32, 0.64]
    by_name = {entry["options"].get("label", entry["name"]): entry["options"] for entry in spec["estimators"]}
    assert by_name["mc"] == {"samples": 3}
    assert by_name["pgd_l2"] == {"label": "pgd_l2", "norm": "l2", "step": 0.5, "cap": 1.0, "steps": 3, "restarts": 4, "clip": True}
    assert by_name["pgd_linf"]["step"] == 0.025
