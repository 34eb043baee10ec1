"""Run folders from strangers: files that are none, texts that steer, names that lead out. What else
may stand in them: tests/unit/store."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robaudit import audit, load_spec
from tests.specs import digits, laid_out, read_info, write
from tests.system.hostile.case import Case
from tests.system.hostile.data import SPECIAL, place

READERS = ("show", "bias-report", "flag-samples")
REPORT = ("report", "run", "--format", "md")
RESUME = ("estimate", "spec.yaml", "--out", "run")
PICTURES = ("flag-samples", "run", "--threshold", "1", "--images", "pictures")
ESCAPE = "\x1b[2J\x07\x1b]0;x\x07"


@functools.cache
def finished() -> dict[str, bytes]:
    """The files of a finished run, by relative path."""
    with tempfile.TemporaryDirectory() as place_:
        folder = Path(place_)
        audit(load_spec(write(folder, digits())), out=folder / "run")
        return {
            str(p.relative_to(folder / "run")): p.read_bytes()
            for p in (folder / "run").rglob("*")
            if p.is_file()
        }


def run_folder(folder: Path) -> Path:
    """A finished run, ``run``, and its spec."""
    for name, content in finished().items():
        path = folder / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    write(folder, digits())
    return folder / "run"


def info(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """run.json with something changed."""

    def make(folder: Path) -> None:
        path = run_folder(folder) / "run.json"
        document = read_info(path.parent)
        change(document)
        path.write_text(json.dumps(document))

    return make


def each(**values: Any) -> Callable[[Path], None]:
    """samples.json with these values in every row, and its checksum in run.json."""

    def make(folder: Path) -> None:
        run = run_folder(folder)
        document = json.loads((run / "samples.json").read_bytes())
        for row in document["rows"]:
            row.update(values)
        (run / "samples.json").write_bytes(laid_out(document))
        about = read_info(run)
        about["files"]["samples.json"] = hashlib.sha256(laid_out(document)).hexdigest()
        (run / "run.json").write_text(json.dumps(about))

    return make


def special(name: str, what: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = run_folder(folder) / name
        path.unlink()
        place(path, what)

    return make


def all_cases() -> dict[str, Case]:
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "class names of nothing": lambda d: d["data"].update(class_names=[]),
        "a quantity without an end": lambda d: d["quantities"][0].update(high=1e308),
        "10^18 samples": lambda d: d["totals"].update(samples=10**18),
        "escapes in the model's name": lambda d: d["model"].update(name=ESCAPE),
        "escapes in a skip": lambda d: d.update(skipped=[{"sample_id": "x", "reason": ESCAPE}]),
        "escapes in a quantity's unit": lambda d: d["quantities"][0].update(unit=ESCAPE),
        "class names of half characters": lambda d: d["data"].update(class_names=["\ud800"] * 10),
    }
    makers = {
        **{f"run.json: {name}": info(change) for name, change in changes.items()},
        **{f"run.json: {what}": special("run.json", what) for what in SPECIAL},
        **{
            f"samples.json: {what}": special("samples.json", what)
            for what in SPECIAL
            if "GB" not in what
        },  # a hash takes its time
        **{
            f"escapes in {key}": each(**{key: ESCAPE})
            for key in ("sample_id", "estimator", "noise", "quantity", "note", "interval")
        },
    }
    cases = {
        f"{name} ({READERS[i % 3]})": Case(
            make, "", (READERS[i % 3], "run"), (0, 2, 5), "a pipe" in name
        )
        for i, (name, make) in enumerate(makers.items())
    }
    cases |= {
        f"state: {what}": Case(special("state.db", what), "", RESUME, (0, 2))
        for what in SPECIAL
        if "GB" not in what
    }
    return cases | {
        "resumed with another name": Case(
            info(lambda d: d.update(name="../../escaped", status="running")), "run", RESUME, (0, 2)
        ),
        "pictures of a sample that leads out": Case(
            each(sample_id="../../../escaped"), "no longer has a sample", PICTURES
        ),
        "pictures of a spec that is none": Case(
            info(lambda d: d.update(spec={"model": 3})), "run.json: is damaged (spec: ", PICTURES
        ),
        "pictures of a folder that is none": Case(
            info(lambda d: d.update(spec_folder=3)), "run", PICTURES
        ),
        "report: gates of a number": Case(
            info(lambda d: d["spec"].update(gates=5)), "run.json", REPORT
        ),
        "report: notes of a number": Case(
            info(lambda d: d["model"].update(notes=5)), "run.json", REPORT
        ),
    }


RUNS = all_cases()
