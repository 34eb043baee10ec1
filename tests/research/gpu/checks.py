"""Part `checks`: every kind of noise and every estimator gives on the device what it gives on the
CPU."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import torch

from robaudit.models.logits import rounded_products
from robaudit.noise.noise import Noise, Shape
from robaudit.results import Result
from tests.research.gpu.part import Part
from tests.system.device.count import chunk
from tests.unit.engine.tools import built, installed_estimators, values
from tests.unit.noise.kinds import SHAPES, examples, images, normal, some_level

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
FEW = ("mc", "mmse", "softmax", "taylor")
"""Those of a tiny run."""
_ROUNDING = 1e-4
_STANDARD_ERRORS = 5.0


def measure(part: Part) -> None:
    """Check noises, then estimators; what raises is a disagreement, too."""
    with rounded_products(False):
        noises(part)
        estimators(part)


def noises(part: Part) -> None:
    """The same normal draws give the same pixels, but for counts on the other side of a rounding
    error."""
    tried = 0
    largest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            for name, form in examples(Path(folder), shape):
                tried += 1
                try:
                    differing = differing_pixels(form, shape, part.device)
                except Exception as error:  # noqa: BLE001  a noise may raise anything; the others go on
                    part.wrong.append(f"noise {name} of {shape}: {_first_line(error)}")
                    continue
                largest = max(largest, differing)
                if differing > (0 if form.differentiable else 1e-3):
                    part.wrong.append(f"noise {name} of {shape}: {differing:.2%} of pixels differ")
    part.add(what="kinds of noise, and shapes", tried=tried, largest=largest)


def differing_pixels(form: Noise, shape: Shape, device: torch.device) -> float:
    """The share of the pixels of 24 noisy images that differ by more than rounding."""
    x = images(24, shape).double()
    z = normal(24, form.latent_shape(shape)).double()
    level = min(some_level(form), 100.0)
    ids = [str(i) for i in range(24)]
    here = form.noisy(x, z, level, ids=ids)
    there = form.noisy(x.to(device), z.to(device), level, ids=ids).cpu()
    allowed = 1e-9 * (1 + float((here - x).abs().max()))
    return float(((here - there).abs() > allowed).double().mean())


def estimators(part: Part) -> None:
    """Both devices find the same: up to rounding, or within five standard errors where they draw
    other noise."""
    largest = 0.0
    names = FEW if part.tiny else sorted(installed_estimators())
    for name in names:
        try:
            differences = _differences(name, part.device.type)
        except Exception as error:  # noqa: BLE001  an estimator may raise anything; the others go on
            part.wrong.append(f"{name}: {_first_line(error)}")
            continue
        for image, (a, b, apart) in enumerate(differences):
            largest = max(largest, apart)
            if apart > 1:
                part.wrong.append(
                    f"{name}, value {image}: {a.value:.6g} on the CPU, {b.value:.6g} on the device"
                )
    part.add(what="estimators", tried=len(names), largest=largest)


def _differences(name: str, device: str) -> list[tuple[Result, Result, float]]:
    """The values of eight images on the CPU and on the device, and how far apart they are, in units
    of what is allowed."""
    few = built(installed_estimators()[name])
    options = {
        key: getattr(few, key) for key in type(few).model_fields if key not in ("label", "noise")
    }
    found = []
    for place in ("cpu", device):
        estimator, work = chunk(name, 8, place, **options)
        found.append([value for image in values(estimator, work) for value in image])
    return [(a, b, apart(a, b, exact=name in EXACT)) for a, b in zip(*found, strict=True)]


def apart(a: Result, b: Result, *, exact: bool) -> float:
    """How far apart two estimates are, in units of what is allowed."""
    if a.value == b.value or (math.isnan(a.value) and math.isnan(b.value)):
        return 0.0
    allowed = _ROUNDING * max(1.0, abs(a.value))
    if not exact:
        errors = [one.std_error or _half_width(one) / 2 for one in (a, b)]
        # a search may end elsewhere
        allowed = max(allowed, _STANDARD_ERRORS * math.hypot(*errors), 0.05 * abs(a.value))
    distance = abs(a.value - b.value) / allowed
    return math.inf if math.isnan(distance) else distance


def _half_width(one: Result) -> float:
    if one.lower is None or one.upper is None or not math.isfinite(one.upper - one.lower):
        return 0.0
    return (one.upper - one.lower) / 2


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300]
