"""Part `cdf`: the normal CDF beside SciPy's, and the fit of `logit_gaussian` with 1,000 classes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from robaudit.datasets import open_dataset
from robaudit.datasets.image_folder import ImagesSpec
from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine
from robaudit.methods.average_case import logit_gaussian
from robaudit.methods.average_case.mvn import mvn_cdf
from robaudit.models import Source, load_model
from robaudit.models.pretrained import describe
from robaudit.numerics.margins import halves, pair_moments, standardise
from robaudit.numerics.normal import normal_cdf
from robaudit.spec.model import ModelSpec
from tests import levels
from tests.levels import gaussian_process
from tests.research.benchmarks.networks import Bench
from tests.research.benchmarks.report import Section, Table, number, target
from tests.shared import SHARED

SIZES = {9: (1000, 30), 19: (500, 20), 64: (100, 5), 99: (100, 5)}
"""Margins: problems of ours in one batch, and of SciPy's one by one."""
SHARED_WEIGHTS = {0.0: "independent", 1.0: "correlations about .5", 3.0: "about .9"}
"""Weight of the own class in the margins w_t - w_i, and what correlations it gives."""
SAME = {"abseps": 1e-3, "releps": 1e-3}
"""The accuracy that is asked of ours."""
PAPERS = {"abseps": 1e-4, "releps": 1e-4, "maxpts": 10_000}
"""SciPy's settings in the papers."""
SIGMAS = (0.05, 0.1, 0.25)
DRAWS = 96
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds a problem and errors of one kind of problems."""

    k: int
    weight: float
    ours: float
    same: float
    papers: float
    error: float
    stated: float


def measure(bench: Bench) -> Section:
    """Both, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sizes = list(SIZES)[:2] if bench.quick else list(SIZES)
        beside = [_beside(k, weight) for weight in SHARED_WEIGHTS for k in sizes]
        for each in beside:
            bench.say(f"  {each}")
        fits = _fits(bench, 2 if bench.quick else 20)
    finally:
        torch.set_num_threads(threads)
    return _section(beside, fits)


def problems(rows: int, k: int, weight: float) -> tuple[Tensor, Tensor]:
    """Limits from 1 to 3 (rows, k), and correlations of random margins (rows, k, k)."""
    generator = torch.Generator().manual_seed(1)
    dimension = max(192, 2 * k) if weight else 2 * k
    w = torch.randn(rows, k + 1, dimension, generator=generator, dtype=torch.float64)
    u = torch.nn.functional.normalize(weight * w[:, :1] - w[:, 1:], dim=-1)
    correlation = u @ u.transpose(1, 2)
    correlation.diagonal(dim1=1, dim2=2).fill_(1.0)
    upper = 1 + 2 * torch.rand(rows, k, generator=generator, dtype=torch.float64)
    return upper, correlation


def _beside(k: int, weight: float) -> Measured:
    rows, few = SIZES[k]
    upper, correlation = problems(rows, k, weight)
    mvn_cdf(upper[:8], correlation[:8])
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        value, error = mvn_cdf(upper, correlation)
        times.append((time.perf_counter() - started) / rows)
    theirs = {
        name: _scipy(upper[:few], correlation[:few], options)
        for name, options in (("same", SAME), ("papers", PAPERS))
    }
    true, _ = mvn_cdf(upper[:100], correlation[:100], tolerance=2e-5, points=1 << 17, seed=99)
    return Measured(
        k,
        weight,
        ours=1e3 * statistics.median(times),
        same=theirs["same"],
        papers=theirs["papers"],
        error=float((value[:100] - true).square().mean().sqrt()),
        stated=float(error.median()),
    )


def _scipy(upper: Tensor, correlation: Tensor, options: dict[str, Any]) -> float:
    """Milliseconds a problem."""
    mean = [0.0] * upper.shape[1]
    started = time.perf_counter()
    for z, r in zip(upper.numpy(), correlation.numpy(), strict=True):
        multivariate_normal.cdf(z, mean, r, allow_singular=True, **options)
    return 1e3 * (time.perf_counter() - started) / len(upper)


def _fits(bench: Bench, images: int) -> list[dict[str, float]]:
    """What the fit of an image costs beside its passes, and what its selection of classes
    misses."""
    bare = ModelSpec(path=str(SHARED / "models" / "imagenet_lite0_timm"))
    pretrained = describe(bare, SHARED)
    assert pretrained is not None
    model = load_model(
        Source(
            bare.model_copy(
                update={
                    "architecture": pretrained.architecture,
                    "architecture_options": dict(pretrained.options),
                    "mean": pretrained.input["mean"],
                    "std": pretrained.input["std"],
                }
            ),
            device=bench.device,
        )
    )
    data = open_dataset(
        ImagesSpec(
            kind="images", path=str(SHARED / "data" / "imagenet_photos"), resize=256, crop=224
        ),
        base_dir=SHARED,
        trust=False,
    )
    pixels = [data[10 * i].pixels for i in range(images)]
    x = torch.stack(pixels).to(model.dtype).to(bench.device)
    found = []
    for sigma in SIGMAS:
        engine = Engine(model, gaussian_process(0, model.device, model.dtype), 1000)
        batch = ImageBatch.from_images(engine, x, levels.sigma(sigma))
        g, _ = logit_gaussian._draw(batch, list(range(images)), DRAWS)
        times = []
        for margins in g.split(1):
            started = time.perf_counter()
            statistics_of_image = logit_gaussian.MarginStatistics.from_margins(margins)
            logit_gaussian.fit_margins([statistics_of_image])
            times.append(1e3 * (time.perf_counter() - started))
        missed = [_missed(margins) for margins in g.split(1)]
        found.append(
            {
                "sigma": sigma,
                "mean": statistics.mean(times[1:]),
                "most": max(times[1:]),
                **{key: max(each[key] for each in missed) for key in missed[0]},
            }
        )
        bench.say(f"  {found[-1]}")
    return found


def _missed(margins: Tensor) -> dict[str, float]:
    """By how much the omitted classes lower the probability of an image: measured by the CDF of all
    classes, as stated, and by the union bound."""
    kept = logit_gaussian.COMPETITIVE
    moments = pair_moments(*halves(margins))
    z, r = standardise(moments.mean, moments.covariance)
    order = z[0].argsort(stable=True)
    union = float(normal_cdf(-z[0, order[kept:]]).sum())
    if union < logit_gaussian._OMITTED:
        return {"measured": 0.0, "stated": union, "union": union}
    z = z[:, order]
    r = r[:, order][:, :, order]
    some, _ = mvn_cdf(z[:, :kept], r[:, :kept, :kept], tolerance=5e-4)
    all_classes, _ = mvn_cdf(z, r, tolerance=5e-4)
    stated = logit_gaussian.MarginStatistics.from_margins(margins).omitted
    return {
        "measured": float(some - all_classes),
        "stated": float(stated),
        "union": union,
    }


def _section(beside: Sequence[Measured], fits: Sequence[dict[str, float]]) -> Section:
    rows = [
        [
            f"{each.k}, {SHARED_WEIGHTS[each.weight]}",
            number(each.ours),
            number(each.same),
            f"{each.same / each.ours:.0f}",
            number(each.papers),
            f"{each.papers / each.ours:.0f}",
            f"{each.error:.1e}",
            f"{each.stated:.1e}",
        ]
        for each in beside
    ]
    head = [
        "margins",
        "ours, ms",
        "SciPy to 1e-3, ms",
        "ratio",
        "SciPy in the papers, ms",
        "ratio",
        "our RMS error",
        "our median stated error",
    ]
    fit_rows = [
        [
            f"{each['sigma']:g}",
            number(each["mean"]),
            number(each["most"]),
            f"{each['measured']:.1e}",
            f"{each['stated']:.1e}",
            f"{each['union']:.1e}",
        ]
        for each in fits
    ]
    fit_head = [
        "sigma",
        "fit, ms an image",
        "at most",
        "omitted classes take at most, measured",
        "stated",
        "union bound",
    ]
    slowest = {
        k: min(each.papers / each.ours for each in beside if each.k == k)
        for k in dict.fromkeys(each.k for each in beside)
    }
    return Section(
        title="The normal CDF (cpu)",
        reading=(
            "Milliseconds a problem, ours in one batch and SciPy's multivariate_normal.cdf one by "
            "one, in one run on one thread; limits uniform from 1 to 3. Ours aims at 1e-3; "
            "SciPy's: abseps = releps = 1e-3, and the papers' 1e-4 with at most 10,000 points. "
            "Then the fit of logit_gaussian 96 beside its passes, an image at a time."
        ),
        tables=[
            Table(head, rows),
            Table(fit_head, fit_rows, "**imagenet_lite0_timm, 1,000 classes, 20 photos**"),
        ],
        targets=[
            target(
                f"ours as a share of SciPy's time in the papers, k = {k}", 1 / aim, 1 / slowest[k]
            )
            for k, aim in ((9, 60), (99, 20))
            if k in slowest
        ]
        + [target("fit of an image, ms", 50, max(each["mean"] for each in fits))],
        notes=[
            "Correlations of margins w_t - w_i of random vectors w. RMS error: against ours to "
            "2e-5.",
            "Omitted classes: all but the 64 of the smallest m / s. Measured: the CDF of the 64 "
            "less that of all 999.",
        ],
        raw={"cdf": [asdict(each) for each in beside], "fit": list(fits)},
    )
