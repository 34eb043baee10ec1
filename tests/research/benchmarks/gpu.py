"""What the pretended device promises, on a real one: `python -m tests.research.benchmarks.gpu`
(minutes; needs one CUDA device).

Four parts: every kind of noise and every estimator against the CPU, synchronisations against those
of tests/system/device, and the same bytes twice under --deterministic. It ends with the number of
disagreements, and exits with 1 if there is any.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from robaudit.results import Result
from tests.research.benchmarks.machine import exact_products, in_words, machine
from tests.specs import digits, write
from tests.system.device.count import chunk, measure
from tests.system.device.test_budgets import OPTIONS
from tests.unit.engine.tools import built, installed_estimators, values
from tests.unit.noise.kinds import SHAPES, examples, images, normal, some_level

CUDA = torch.device("cuda", 0)
EXACT = (
    "difficulty",
    "margin_radius",
    "moments",
    "radius_exact",
    "softmax",
    "taylor",
    "taylor_mvs",
)
"""Estimators that draw nothing: the devices differ by rounding alone."""
COUNTED = ("mc", "certified_radius", "logit_gaussian", "mmse", "noise_tolerance", "radius_attack")
_ROUNDING = 1e-4
_STANDARD_ERRORS = 5.0


def main() -> None:
    """Run all parts."""
    if not torch.cuda.is_available():
        sys.exit(
            "tests.research.benchmarks.gpu: torch finds no CUDA device here; tests/system/device "
            "has what can be checked without one"
        )
    exact_products(CUDA)
    print(in_words(machine(CUDA), quick=False))
    wrong = [
        line for part in (noises, estimators, synchronisations, determinism) for line in part()
    ]
    print(f"{len(wrong)} disagreements", *wrong, sep="\n  ")
    sys.exit(bool(wrong))


def noises() -> Iterator[str]:
    """The same normal draws give the same pixels, but for counts on the other side of a rounding
    error."""
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            for name, form in examples(Path(folder), shape):
                tried += 1
                x = images(24, shape).double()
                z = normal(24, form.latent_shape(shape)).double()
                level = min(some_level(form), 100.0)
                ids = [str(i) for i in range(24)]
                here = form.noisy(x, z, level, ids=ids)
                there = form.noisy(x.to(CUDA), z.to(CUDA), level, ids=ids).cpu()
                differing = float(
                    ((here - there).abs() > 1e-9 * (1 + float((here - x).abs().max())))
                    .double()
                    .mean()
                )
                if differing > (0 if form.differentiable else 1e-3):
                    yield f"noise {name} of {shape}: {differing:.2%} of the pixels differ"
    print(f"noise: {tried} kinds and shapes tried")


def estimators() -> Iterator[str]:
    """Both devices find the same: up to rounding, or within five standard errors where they draw
    other noise."""
    largest = 0.0
    for name in sorted(installed_estimators()):
        few = built(installed_estimators()[name])
        options = {
            key: getattr(few, key)
            for key in type(few).model_fields
            if key not in ("label", "noise")
        }
        found = []
        for device in ("cpu", "cuda"):
            estimator, work = chunk(name, 8, device, **options)
            found.append(values(estimator, work))
        for image, (ours, theirs) in enumerate(zip(*found, strict=True)):
            for a, b in zip(ours, theirs, strict=True):
                apart = _apart(a, b, exact=name in EXACT)
                largest = max(largest, apart)
                if apart > 1:
                    yield f"{name}, image {image}: {a.value:.6g} on the CPU, {b.value:.6g} on CUDA"
    print(
        f"estimators: {len(installed_estimators())} tried; the largest difference is "
        f"{largest:.2f} of what is allowed"
    )


def _apart(a: Result, b: Result, *, exact: bool) -> float:
    """How far apart two estimates are, in units of what is allowed."""
    if a.value == b.value:
        return 0.0
    allowed = _ROUNDING * max(1.0, abs(a.value))
    if not exact:
        errors = [one.std_error or _half_width(one) / 2 for one in (a, b)]
        # a search may end elsewhere
        allowed = max(allowed, _STANDARD_ERRORS * math.hypot(*errors), 0.05 * abs(a.value))
    return abs(a.value - b.value) / allowed


def _half_width(one: Result) -> float:
    if one.lower is None or one.upper is None or not math.isfinite(one.upper - one.lower):
        return 0.0
    return (one.upper - one.lower) / 2


def synchronisations() -> Iterator[str]:
    """By torch's own debug mode no more than the pretended device counts, but for a tenth: it does
    not know every library."""
    for name in COUNTED:
        options = OPTIONS.get(name, {})
        promised = measure(name, **options)
        estimator, work = chunk(name, promised.images, "cuda", **options)
        values(estimator, work)  # libraries start
        estimator, work = chunk(name, promised.images, "cuda", **options)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                values(estimator, work)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        real = sum("synchroniz" in str(one.message) for one in seen)
        print(
            f"synchronisations of {name}: {real}, promised {promised.card.syncs} "
            f"({promised.images} images)"
        )
        if real > 1.1 * promised.card.syncs + 2:
            yield f"{name}: {real} synchronisations, {promised.card.syncs} on the pretended device"


def determinism() -> Iterator[str]:
    """Two processes, the same bytes."""
    names = ["mc", "logit_gaussian", "mmse", "taylor", "radius_attack", "radius_random"]
    entries = [{"mc": {"draws": 500}} if name == "mc" else name for name in names]
    with tempfile.TemporaryDirectory() as home:
        spec = write(Path(home), digits(limit=32, estimators=entries))
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        for name in ("one", "two"):
            command = [
                sys.executable,
                "-m",
                "robaudit",
                "estimate",
                str(spec),
                "--out",
                name,
                "--device",
                "cuda",
                "--deterministic",
                "-q",
            ]
            done = subprocess.run(
                command, cwd=home, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                yield f"--deterministic: {done.stderr.strip()}"
                return
        one, two = ((Path(home) / name / "samples.csv").read_bytes() for name in ("one", "two"))
    print(f"--deterministic: {', '.join(names)} on 32 images twice")
    if one != two:
        yield "--deterministic: samples.csv differs from run to run"


if __name__ == "__main__":
    main()
