"""What the user gets does not depend on how the work was cut: parts, chunks, threads, order, memory
that ran out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import robaudit
from robaudit.auditing import chunk_sizes, main_loop, prepare
from robaudit.engine.batch import ImageBatch
from robaudit.methods.average_case.mc import MonteCarlo
from robaudit.results import Result
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, write
from tests.states import flushes

pytestmark = pytest.mark.bits
OUTPUTS = ("samples.csv", "samples.json", "summary.json")
ALL = [
    {"mc": {"draws": 40}},
    {"logit_gaussian": {"draws": 32}},
    {"mmse": {"draws": 4}},
    "taylor",
    "taylor_mvs",
    "softmax",
]


def outputs(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in OUTPUTS}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of all estimators at two noise levels over 24 samples."""
    folder = tmp_path_factory.mktemp("whole")
    spec = write(folder, digits(limit=24, estimators=ALL, noise={"sigma": [0.1, 0.3]}))
    robaudit.audit(spec, out=folder / "run")
    return folder


WAYS: dict[str, dict[str, Any]] = {
    "a flush for each step": {"_FLUSH_SECONDS": 0.0},
    "one image at a time": {"MOST_IMAGES": 1},
    "seven images at a time": {"MOST_IMAGES": 7, "CHUNK_SECONDS": 1e9},
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, marks=[pytest.mark.slow] * (name == "one image at a time"), id=name)
        for name, settings in WAYS.items()
    ],
)
def test_the_same_bytes_however_it_is_cut(
    settings: dict[str, Any], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setattr(main_loop if name == "_FLUSH_SECONDS" else chunk_sizes, name, value)
    robaudit.audit(whole / "spec.yaml", out=tmp_path / "run")
    assert outputs(tmp_path / "run") == outputs(whole / "run")
    if "_FLUSH_SECONDS" in settings:
        assert flushes(tmp_path / "run") >= 14


def test_rows_do_not_depend_on_the_number_of_threads(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0)
    for number in range(10):
        (tmp_path / "digits" / str(number)).mkdir(parents=True)
        Image.fromarray(noise.integers(0, 256, (8, 8), dtype=np.uint8)).save(
            tmp_path / "digits" / str(number) / "a.png"
        )
    (tmp_path / "digits" / "3" / "a.png").write_bytes(b"damaged")
    spec = write(tmp_path, digits(dataset={"kind": "images", "path": "digits", "channels": 1}))
    for threads in (0, 3):
        monkeypatch.setattr(prepare, "readers", lambda *_, threads=threads: threads)
        assert run_cli("estimate", spec, "--out", f"run{threads}", "--on-error", "skip").code == 0
    for name in ("samples.csv", "samples.json", "summary.json"):
        assert (tmp_path / "run0" / name).read_bytes() == (tmp_path / "run3" / name).read_bytes()


Further = Callable[[MonteCarlo, ImageBatch, Sequence[Result] | None, int], Sequence[Result]]


def limited(images: int, real: Further) -> Further:
    """mc on a machine whose memory holds so many images."""

    def further(
        self: MonteCarlo, batch: ImageBatch, earlier: Sequence[Result] | None, draws: int
    ) -> Sequence[Result]:
        if len(batch.x) > images:
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate "
                "memory: you tried to allocate 9 bytes"
            )
        return real(self, batch, earlier, draws)

    return further


def test_memory_that_runs_out_halves_the_chunk(
    whole: Path, tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(MonteCarlo, "further", limited(1, MonteCarlo.further))
    code, _, err = run_cli("estimate", whole / "spec.yaml", "--out", "run")
    assert code == 0
    golden.lines(err, "note: out of memory")  # once learnt, it is not tried again
    assert outputs(tmp_path / "run") == outputs(whole / "run")


def test_a_single_image_too_large_for_the_memory_is_one_line(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(MonteCarlo, "further", limited(0, MonteCarlo.further))
    spec = write(tmp_path, digits(limit=3, estimators=["softmax", {"mc": {"draws": 10}}]))
    code, out, err = run_cli("estimate", spec, "--out", "run", "--set", "run.batch_size=2")
    assert (code, out) == (2, "")
    golden.lines(err)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    robaudit.audit(spec, out=tmp_path / "run")
    robaudit.audit(spec, out=tmp_path / "undisturbed")
    assert outputs(tmp_path / "run") == outputs(tmp_path / "undisturbed")


def test_an_extension_leaves_the_old_run_readable_until_it_is_done(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_loop, "_FLUSH_SECONDS", 0.0)
    spec = write(tmp_path, digits(limit=6))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    shown = run_cli("show", "run").out
    before = outputs(tmp_path / "run")
    real = MonteCarlo.further

    def interrupted(
        self: MonteCarlo, batch: ImageBatch, earlier: Sequence[Result] | None, draws: int
    ) -> Sequence[Result]:
        if batch.at.level == 0.4:
            raise KeyboardInterrupt
        return real(self, batch, earlier, draws)

    wide = ("estimate", spec, "--out", "run", "--extend", "--sigma", "0.3", "--sigma", "0.4")
    with monkeypatch.context() as patch:
        patch.setattr(MonteCarlo, "further", interrupted)
        assert run_cli(*wide).code == 130
    assert run_cli("show", "run").out == shown
    assert run_cli("estimate", spec, "--out", "run").out == shown
    assert outputs(tmp_path / "run") == before
    assert run_cli(*wide).code == 0
    once = run_cli(
        "estimate", spec, "--out", "once", *("--sigma", "0.2", "--sigma", "0.3", "--sigma", "0.4")
    )
    assert once.code == 0
    assert outputs(tmp_path / "run") == outputs(tmp_path / "once")
    sessions = json.loads((tmp_path / "run" / "run.json").read_text())["sessions"]
    assert len(sessions) == 2
