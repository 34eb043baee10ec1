"""Part `repeats`: the same command twice with --deterministic gives the same bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.research.gpu import command
from tests.research.gpu.part import Part
from tests.specs import NETWORK, save_npz, write

ESTIMATORS = ("mc", "logit_gaussian", "mmse", "taylor", "radius_attack", "radius_random")


def measure(part: Part) -> None:
    """Two processes, one after the other."""
    images = 4 if part.tiny else 32
    names = ESTIMATORS[:4] if part.tiny else ESTIMATORS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entries: list[Any] = [{"mc": {"draws": 500}}, *names[1:]]
        document = {
            "model": dict(NETWORK),
            "dataset": {"kind": "npz", "path": save_npz(folder / "x.npz", count=images).name},
            "noise": {"sigma": [0.2]},
            "estimators": entries,
        }
        spec = write(folder, document)
        seconds = 0.0
        for run in ("one", "two"):
            arguments = command.estimate(spec, run, part, "--deterministic")
            seconds += sum(command.at_once([arguments], folder, part.clock.left()))
        one, two = ((folder / run / "samples.csv").read_bytes() for run in ("one", "two"))
    same = one == two
    if not same:
        part.wrong.append("--deterministic: samples.csv differs from run to run")
    part.add(
        estimators=", ".join(names), images=images, seconds=seconds, same="yes" if same else "no"
    )
