"""Part `accuracy`: the cost, in passes and seconds, of an error of .02 and .01."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tests.research.benchmarks.cost import Point, cost_to_reach
from tests.research.benchmarks.networks import Bench, load
from tests.research.benchmarks.picture import draw
from tests.research.benchmarks.report import Section, Table, number, target
from tests.research.benchmarks.trial import Trial

CASES = {
    "CIFAR-10 ResNet20, sigma 0.05": ("cifar10_resnet20", 0.05),
    "FashionMNIST CNN, sigma 0.25": ("fashion_shallow_cnn", 0.25),
    "CIFAR-10 CNN, adversarially trained, sigma 0.1": ("cifar10_cnn_a_adv", 0.1),
    "CIFAR-10 CNN, adversarially trained, sigma 0.05": ("cifar10_cnn_a_adv", 0.05),
    "CIFAR-10 CNN, certified training, sigma 0.05": ("cifar10_cnn_a_mix", 0.05),
    "CIFAR-10 CNN, certified training, sigma 0.1": ("cifar10_cnn_a_mix", 0.1),
    "CIFAR-10 ResNet20, sigma 0.02": ("cifar10_resnet20", 0.02),
}
DRAWN = 3  # of these in the picture, and with mmse 5, too
AIMS = (0.02, 0.01)
# the reference of a seed has DRAWS (SEEDS - 1) = 8,192 draws
IMAGES = 48
DRAWS = 2048
SEEDS = 5


def measure(bench: Bench) -> Section:
    """All settings on seven pairs of network and sigma; Ctrl-C keeps those that are done. The
    picture goes into the report's folder."""
    images, draws, seeds = (
        (8, 128, range(1, 3)) if bench.quick else (IMAGES, DRAWS, range(1, SEEDS + 1))
    )
    chosen = list(CASES.items())[1:DRAWN] if bench.quick else list(CASES.items())
    found: dict[str, Sequence[Point]] = {}
    try:
        for k, (title, (name, sigma)) in enumerate(chosen):
            found[title] = Trial(
                load(bench, name, images),
                sigma,
                draws,
                seeds,
                bench.say,
                (5, 10) if k < DRAWN else (10,),
            ).points()
    except KeyboardInterrupt:
        if not found:
            raise
        bench.say("  interrupted: the networks measured so far are kept")
    return section(found, bench, images=images, draws=draws, seeds=len(seeds))


def section(
    found: Mapping[str, Sequence[Point]], bench: Bench, *, images: int, draws: int, seeds: int
) -> Section:
    """The tables and the picture of what was found."""
    name = "accuracy-cost.svg" if bench.device.type == "cpu" else "accuracy-cost-cuda.svg"
    if bench.out is not None:
        draw(dict(list(found.items())[:DRAWN]), AIMS, bench.out / name)
    best = {title: min(_costs(points, 0.01), default=None) for title, points in found.items()}
    return Section(
        title=f"Accuracy and cost ({bench.device.type})",
        reading=(
            "Passes: forward passes per image, a backward pass counted as its measured time in "
            "forward passes. ms: milliseconds per"
            " image, everything included. `-`: no setting comes that close. `<=`: even the "
            "cheapest setting does."
        ),
        tables=[_costs_table(found), _errors_table(found)],
        targets=[
            target(f"passes to RMSE .010, {title}", 100, passes) for title, passes in best.items()
        ],
        notes=[
            f"First {images} test images, {seeds} seeds: mean and standard deviation of the RMSE "
            "over seeds. Reference: `mc` with the"
            f" {(seeds - 1) * draws:,} draws of the other seeds, with its own noise subtracted "
            "from the RMSE.",
            "Each noisy pass is made once per seed and shared by all settings, which run their "
            "own code; times are those of the"
            " estimator's own work plus its passes at the measured speed. `taylor`, `taylor_mvs` "
            "and `softmax` draw nothing.",
            "Costs between two settings are interpolated on log scales. The bands in the picture "
            "are one standard deviation over seeds.",
        ],
        raw={title: [asdict(point) for point in points] for title, points in found.items()},
        picture=name if bench.out is not None else "",
    )


def _curves(points: Sequence[Point]) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for point in points:
        curves.setdefault(point.line, []).append(point)
    return curves


def _costs(points: Sequence[Point], aim: float) -> list[float]:
    costs = [
        cost_to_reach([(p.equivalents, p.mean) for p in curve], aim)
        for curve in _curves(points).values()
    ]
    return [cost for cost in costs if cost is not None]


def _costs_table(found: Mapping[str, Sequence[Point]]) -> Table:
    """What each estimator that gets there takes to reach each aim."""
    reached = {
        title: {line: _reach(curve) for line, curve in _curves(points).items()}
        for title, points in found.items()
    }
    lines = [
        line
        for line in _lines(found)
        if any(set(cells.get(line, [])) - {"-"} for cells in reached.values())
    ]
    headers = [
        "network",
        *(
            f"{line}: {what} to {aim:g}"
            for line in lines
            for aim in AIMS
            for what in ("passes", "ms")
        ),
    ]
    nothing = ["-"] * (2 * len(AIMS))
    rows = [
        [title, *(cell for line in lines for cell in cells.get(line, nothing))]
        for title, cells in reached.items()
    ]
    return Table(headers, rows, "**Cost to reach an RMSE**")


def _errors_table(found: Mapping[str, Sequence[Point]]) -> Table:
    """The smallest RMSE of each estimator."""
    lines = _lines(found)
    rows = []
    for title, points in found.items():
        least = {line: min(p.mean for p in curve) for line, curve in _curves(points).items()}
        rows.append([title, *(f"{least[line]:.4f}" if line in least else "-" for line in lines)])
    return Table(["network", *lines], rows, "**Smallest RMSE of any setting**")


def _lines(found: Mapping[str, Sequence[Point]]) -> list[str]:
    return list(dict.fromkeys(point.line for points in found.values() for point in points))


def _reach(curve: Sequence[Point]) -> list[str]:
    cells = []
    for aim in AIMS:
        at_once = min(curve, key=lambda p: p.equivalents).mean <= aim
        for costs in ([p.equivalents for p in curve], [1e3 * p.seconds for p in curve]):
            cost = cost_to_reach([(c, p.mean) for c, p in zip(costs, curve, strict=True)], aim)
            cells.append("-" if cost is None else ("<= " if at_once else "") + number(cost))
    return cells
