"""Part `published`: mc, taylor and mmse against the published method, side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.research.benchmarks import published
from tests.research.benchmarks.networks import Bench, Network, estimator, load, research_resnet20
from tests.research.benchmarks.report import Section, Table, number
from tests.research.benchmarks.script import script
from tests.research.benchmarks.timing import Contender, alternating

SIGMA = 0.1
SAMPLES = 10_000
PAPER = {"mc 10,000": ("1:14:38", "35 s"), "taylor": ("7 s", "< 1 s"), "mmse 5": ("31 s", "2 s")}


def measure(bench: Bench) -> Section:
    """Both on the same weights and images; Monte Carlo in a slice on the CPU."""
    cuda = bench.device.type == "cuda"
    network = load(bench, "cifar10_resnet20", 8 if bench.quick and not cuda else 50)
    images = len(network.x)
    few, draws = (images, SAMPLES) if cuda else (2, 1024) if bench.quick else (3, 1024)
    scale = images * SAMPLES / (few * draws)
    part = Network(network.name, network.model, network.x[:few], network.classes)
    with script(bench, images) as theirs:
        inside = partial(published.monte_carlo, research_resnet20(bench), part.x, SIGMA, draws)
        cases: dict[str, dict[str, Contender]] = {
            "mc 10,000": {
                "published": partial(theirs.ask, "mc", few, SIGMA, draws),
                "inside": inside,
                "ours": _ours(part, "mc", draws=draws),
            },
            "taylor": {
                "published": partial(theirs.ask, "taylor", images, SIGMA),
                "ours": _ours(network, "taylor"),
            },
            "mmse 5": {
                "published": partial(theirs.ask, "mmse", images, SIGMA, 5),
                "ours": _ours(network, "mmse", draws=5, pairs=False),
            },
            "mmse 10": {
                "published": partial(theirs.ask, "mmse", images, SIGMA, 10),
                "ours": _ours(network, "mmse", draws=10),
            },
            "logit_gaussian 96": {"ours": _ours(network, "logit_gaussian", draws=96)},
        }
        raw = {}
        for name, contenders in cases.items():
            factor = scale if name == "mc 10,000" else 1.0
            raw[name] = {
                who: factor * t
                for who, t in alternating(contenders, bench.device, 1 if bench.quick else 3).items()
            }
            bench.say(f"  {name}: " + ", ".join(f"{who} {t:.3g} s" for who, t in raw[name].items()))
        apart = _apart(network, theirs.ask("taylor", images, SIGMA))
    return Section(
        title=f"The published method beside ours (CIFAR-10 ResNet20, {images} images, sigma "
        f"{SIGMA:g}; {bench.device.type})",
        reading="Seconds for all images; `ratio`: published / ours, both measured here. The last "
        "two columns are the paper's table.",
        tables=[Table(_HEADERS, [_row(name, times, scale) for name, times in raw.items()])],
        notes=[
            "The networks differ: the paper's is a ResNet18, with about 14 times the "
            "multiplications of ResNet20. Compare the measured"
            " columns with each other, and the paper's with the paper's.",
            "Published way: a separate script, the same weights as a plain torch module, one "
            "image at a time (`taylor`: all in one"
            " batch), batches of 256, vectorised Jacobian of all logits, SciPy's CDF point by "
            "point. Ours keeps freed memory, as the"
            " command line does; with that setting, the published `mc` takes "
            f"{number(raw['mc 10,000']['inside'])} s.",
            f"The two `taylor` differ by {apart:.1e} at most. Ours includes intervals for `mc` "
            "and `mmse`; the published way has none.",
            *(
                []
                if scale == 1
                else [
                    f"`mc`: measured on {few} images with {draws:,} draws and multiplied by "
                    f"{scale:.4g}, on both sides."
                ]
            ),
        ],
        raw=raw,
    )


_HEADERS = [
    "estimator",
    "ours",
    "published way",
    "ratio",
    "paper, CPU batched",
    "paper, V100 batched",
]


def _row(name: str, times: dict[str, float], scale: float) -> list[str]:
    label = f"{name} (extrapolated)" if name == "mc 10,000" and scale != 1 else name
    theirs = (
        [number(times["published"]), f"{times['published'] / times['ours']:.1f}"]
        if "published" in times
        else ["-", "-"]
    )
    return [label, number(times["ours"]), *theirs, *PAPER.get(name, ("-", "-"))]


def _ours(network: Network, name: str, **options: object) -> Callable[[], object]:
    chosen = estimator(name, **options)
    return lambda: chosen.estimate(network.batch(SIGMA))


def _apart(network: Network, theirs: list[float]) -> float:
    ours = estimator("taylor").estimate(network.batch(SIGMA))
    return max(abs(e.value - value) for e, value in zip(ours, theirs, strict=True))
