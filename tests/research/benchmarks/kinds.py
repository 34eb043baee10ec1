"""Parts `noise` and `kinds`: what noise of every kind costs, and how far off `logit_gaussian` and
`mmse` are under it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robaudit.engine.passes import Engine
from robaudit.levels import NoiseLevel
from robaudit.noise.installed import build
from robaudit.noise.noise import AdditiveNoise, shape_of
from robaudit.noise.process import NoiseProcess
from robaudit.quantities import IntervalKind
from robaudit.spec.model import NoiseSpec
from robaudit.validation.against_reference import validate
from robaudit.validation.deviations import ReferenceComparison
from tests.research.benchmarks.networks import Bench, Network, load
from tests.research.benchmarks.report import Section, Table, number, target
from tests.research.benchmarks.timing import alternating
from tests.shared import document
from tests.specs import located

NETWORKS = ("fashion_shallow_cnn", "cifar10_cnn_a_adv", "cifar10_resnet20")
FEEDS = "fashion_shallow_cnn"
IMAGES = 48
SAMPLES = 64
REFERENCE = 1000
# draws: with ten classes 3 forward and 18 backward passes, about as long as 64 forward ones where a
# backward pass takes 3
MMSE = 2
# mean p aimed at, and draws to find its level
WANTED = 0.8
TRIED = 32
CORRUPTIONS = ("motion_blur", "fog", "elastic")  # the random ones
_STEPS = 12


def kinds(shape: tuple[int, int, int]) -> list[dict[str, Any]]:
    """A noise of every random kind, without levels."""
    return [
        {"kind": "gaussian"},
        {"kind": "gaussian_scaled", "scale": np.linspace(0.5, 1.5, shape[0]).tolist()},
        {"kind": "gaussian_correlated", "length": 2},
        {
            "kind": "gaussian_correlated",
            "length": 2,
            "channels": "shared",
            "name": "correlated_shared",
        },
        {"kind": "gaussian_covariance", "file": "covariance.npz"},
        {"kind": "uniform"},
        {"kind": "uniform", "norm": "l2", "name": "ball"},
        {"kind": "laplace"},
        {"kind": "poisson"},
        {"kind": "sensor"},
        {"kind": "speckle"},
        {"kind": "impulse"},
        {"kind": "spatial"},
        *({"kind": "corruption", "name": name} for name in CORRUPTIONS),
    ]


def covariance(folder: Path, shape: tuple[int, int, int]) -> None:
    """A file for gaussian_covariance: four smooth factors and a diagonal of half the variance."""
    _, height, width = shape
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [np.cos(2 * math.pi * (a * x + b * y)) for a, b in ((0, 1), (1, 0), (1, 1), (2, 1))]
    factor = np.stack(
        [np.broadcast_to(wave, shape).ravel() / math.sqrt(4) for wave in waves], axis=1
    )
    np.savez(
        folder / "covariance.npz", factor=factor, diagonal=np.full(math.prod(shape), math.sqrt(0.5))
    )


def noises_of(
    folder: Path, shape: tuple[int, int, int], level: Mapping[str, float] | None = None
) -> list[NoiseProcess]:
    """The noises of :func:`kinds` with one level each, a middling one by default."""
    covariance(folder, shape)
    found: list[NoiseProcess] = []
    for entry in kinds(shape):
        usual = {
            "sigma": 0.1,
            "eps": 0.15,
            "photons": 50.0,
            "share": 0.05,
            "size": 1.0,
            "severity": 3.0,
        }
        name = entry.get("name", entry["kind"])
        key = _level_name(entry["kind"])
        spec = NoiseSpec.model_validate(
            {**entry, key: usual[key] if level is None else level[name]}
        )
        found += build([spec], folder)
    return found


def _level_name(kind: str) -> str:
    named = {
        "uniform": "eps",
        "poisson": "photons",
        "sensor": "photons",
        "impulse": "share",
        "spatial": "size",
        "corruption": "severity",
    }
    return named.get(kind, "sigma")


def measure_speed(bench: Bench) -> Section:
    """Microseconds of a noisy copy, drawing included, beside the forward pass that it feeds."""
    network = load(bench, FEEDS, 4 if bench.quick else 16)
    shape = shape_of(network.x)
    draws = 256
    rows = 128
    batch = network.x[:1].expand(rows, *shape).contiguous(memory_format=network.model.memory_format)

    def forward() -> None:
        with torch.inference_mode():
            for _ in range(len(network.x) * draws // rows):
                network.model(batch)

    contenders: dict[str, Any] = {"forward pass": forward}
    with tempfile.TemporaryDirectory() as folder:
        for noise in noises_of(Path(folder), shape):
            contenders[noise.label] = partial(_make, noise, network, draws)
        times = alternating(contenders, bench.device, 3 if bench.quick else 5)
    copies = len(network.x) * draws
    base = times.pop("forward pass")
    rows_ = [
        [label, number(1e6 * time / copies), number(time / base)] for label, time in times.items()
    ]
    return Section(
        title=f"NoiseProcess ({bench.device.type})",
        reading="Microseconds of one noisy copy of a 28 x 28 image, and as a share of the "
        f"forward pass of `{FEEDS}` that it feeds.",
        tables=[Table(["noise", "microseconds", "of the forward pass"], rows_)],
        targets=[target("the slowest kind, of the forward pass", 1.0, max(times.values()) / base)],
        notes=[
            f"The forward pass takes {1e6 * base / copies:.3g} microseconds for a copy, in "
            f"batches of {rows}."
        ],
        raw={"forward": base / copies, **{label: time / copies for label, time in times.items()}},
    )


def _make(noise: NoiseProcess, network: Network, draws: int) -> None:
    source = noise.seeded(0, network.model.device, network.model.dtype)
    at = noise.levels[0]
    shape = shape_of(network.x)
    for b in range(len(network.x)):
        for z in source.blocks(str(b), draws, shape):
            source.noisy(network.x[b : b + 1], z, at.number, ids=[str(b)])


def measure(bench: Bench) -> Section:
    """Bias and RMSE of logit_gaussian and mmse against converged mc, for every random kind on three
    networks, at equal passes."""
    images, reference = (8, 256) if bench.quick else (IMAGES, REFERENCE)
    found: dict[str, dict[NoiseLevel, dict[str, ReferenceComparison]]] = {}
    tables = []
    try:
        for name in NETWORKS[:1] if bench.quick else NETWORKS:
            found[name], votes = _compared(bench, name, images, reference)
            tables.append(
                Table(
                    _HEADS,
                    [_row(at, some, votes[at]) for at, some in found[name].items()],
                    f"**{name}**",
                )
            )
            bench.say(tables[-1].markdown())
    except KeyboardInterrupt:
        if not tables:
            raise
        bench.say("  interrupted: the networks measured so far are kept")
    ours = [
        some["logit_gaussian"].error for by_level in found.values() for some in by_level.values()
    ]
    worst = max(abs(error.bias) for error in ours if error)
    raw = {
        name: {
            at.key: {label: one.document() for label, one in some.items()}
            for at, some in by_level.items()
        }
        for name, by_level in found.items()
    }
    return Section(
        title="Kinds of noise",
        reading=(
            f"Bias and RMSE against `mc` with {reference:,} draws (its own noise subtracted), +- "
            "one standard error, at about equal passes:"
            f" `logit_gaussian` and `mc` with {SAMPLES} noisy copies, `mmse` with {MMSE}. p: "
            "mean over the images, by the reference."
        ),
        tables=tables,
        targets=[target("largest bias of logit_gaussian", 0.01, worst)],
        notes=["Levels are those at which about .8 of the noisy copies keep their class."],
        raw=raw,
    )


def _compared(
    bench: Bench, name: str, images: int, reference: int
) -> tuple[dict[NoiseLevel, dict[str, ReferenceComparison]], dict[NoiseLevel, str]]:
    """The comparisons of one network by level and estimator, and how many images `logit_gaussian`
    decided by votes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        network = load(bench, name, images)
        shape = shape_of(network.x)
        covariance(folder, shape)
        levels = {
            entry.get("name", entry["kind"]): _level_for(network, folder, entry)
            for entry in kinds(shape)
        }
        bench.say(
            f"  {name}: {', '.join(f'{label} {level:.3g}' for label, level in levels.items())}"
        )
        noise = [
            {**one, _level_name(one["kind"]): levels[one.get("name", one["kind"])]}
            for one in kinds(shape)
        ]
        additive = [
            one.label
            for one in noises_of(folder, shape, levels)
            if isinstance(one.noise, AdditiveNoise)
        ]
        estimators = [
            {"logit_gaussian": {"draws": SAMPLES}},
            {"mmse": {"draws": MMSE, "noise": additive}},
            {"mc": {"draws": SAMPLES}},
        ]
        spec = located(
            document(name, limit=images, noise=noise, estimators=estimators), folder, name
        )
        result = validate(spec, images=images, draws=reference, trust=False)
    by_level: dict[NoiseLevel, dict[str, ReferenceComparison]] = {}
    for one in result.comparisons:
        by_level.setdefault(one.at, {})[one.estimator] = one
    return by_level, {at: _by_votes(result.rows, at) for at in by_level}


_HEADS = [
    "noise",
    "p",
    "logit_gaussian: bias",
    "RMSE",
    "coverage",
    "by votes",
    "mmse: bias",
    "RMSE",
    "mc: RMSE",
]


def _row(at: NoiseLevel, some: Mapping[str, ReferenceComparison], votes: str) -> list[str]:
    ours = some["logit_gaussian"]
    linear = some.get("mmse")
    plain = some["mc"]
    cover = "-" if ours.coverage is None else f"{ours.coverage.value:.2f}"
    return [
        at.text,
        f"{ours.reference_mean:.2f}",
        *_error(ours),
        cover,
        votes,
        *(["-", "-"] if linear is None else _error(linear)),
        _error(plain)[1],
    ]


def _error(one: ReferenceComparison) -> list[str]:
    if one.error is None:
        return ["-", "-"]
    spread = "" if one.error.rmse_error is None else f" +- {one.error.rmse_error:.3f}"
    bias = "" if one.error.bias_error is None else f" +- {one.error.bias_error:.3f}"
    return [f"{one.error.bias:+.4f}{bias}", f"{one.error.rmse:.4f}{spread}"]


def _by_votes(rows: Mapping[tuple[str, NoiseLevel, str], Any], at: NoiseLevel) -> str:
    mine = [
        row for (_, level, label), row in rows.items() if level == at and label == "logit_gaussian"
    ]
    return f"{sum(row.interval.kind is IntervalKind.ANTITHETIC for row in mine)} of {len(mine)}"


def _level_for(network: Network, folder: Path, entry: Mapping[str, Any]) -> float:
    """The level at which about :data:`WANTED` of the noisy copies keep their class, by bisection on
    a log scale."""
    key = _level_name(entry["kind"])
    if key == "severity":
        return min(
            map(float, range(1, 6)),
            key=lambda level: abs(_kept(network, folder, entry, key, level) - WANTED),
        )
    low, high = {"photons": (1.0, 1e4), "share": (1e-3, 0.5), "size": (0.05, 4.0)}.get(
        key, (1e-3, 20.0)
    )
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        weaker = _kept(network, folder, entry, key, middle) > WANTED
        if weaker == (key != "photons"):
            low = middle
        else:
            high = middle
    return float(f"{math.sqrt(low * high):.3g}")


def _kept(
    network: Network, folder: Path, entry: Mapping[str, Any], key: str, level: float
) -> float:
    """The share of noisy copies that keep the class of the clean image."""
    (noise,) = build([NoiseSpec.model_validate({**entry, key: level})], folder)
    engine = Engine(
        network.model,
        {noise.label: noise.seeded(0, network.model.device, network.model.dtype)},
        network.classes,
    )
    predicted = engine.logits(network.x).argmax(1)
    kept = 0
    for batch, logits in engine.noisy_logits(
        network.x, [str(i) for i in range(len(network.x))], noise.levels[0], TRIED
    ):
        kept += int((logits.argmax(1) == predicted[batch.image]).sum())
    return kept / (TRIED * len(network.x))
