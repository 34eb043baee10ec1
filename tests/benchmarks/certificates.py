"""`certified_radius` on real networks: certified accuracy, passes of `decide`, coverage, and attacks within the certified balls.

Run by hand: `python -m tests.benchmarks.certificates [--part table,decide,attacks,gap,coverage]`. Prints tables; counts passes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robaudit.estimators.base import Estimate
from robaudit.estimators.certified_radius import CertifiedRadius
from robaudit.estimators.mc import Counts, count_votes, in_rounds, next_look
from robaudit.estimators.smoothed_attack import SmoothedAttack
from robaudit.estimators.vote_field import VoteField, offsets_of
from robaudit.names import CERTIFIED_CLASS
from robaudit.numerics.smoothing import GAUSSIAN, Question, largest_radius, needed, p_lower
from tests.benchmarks.networks import Bench, Network, load
from tests.shared import SHARED

NETWORKS = ("mnist_conv_small_nat", "cifar10_cnn_a_adv")
SIGMA, RADII = 0.25, (0.0, 0.25, 0.5, 0.75)
DECIDE = 0.5
INSIDE, COPIES, FRESH = 0.99, 64, 10_000


def labels_of(bench: Bench, network: Network) -> list[int]:
    """The labels of its images."""
    from robaudit.datasets import open_dataset
    from robaudit.spec.model import NpzSpec
    from tests.benchmarks.networks import card

    data = Path(bench.shared or "") / "data" / f"{card(bench, network.name)['dataset']}.npz"
    samples = open_dataset(NpzSpec(kind="npz", path=str(data), limit=len(network.x)), base_dir=data.parent, trust=False)
    return [-1 if (label := samples[i].label) is None else label for i in range(len(samples))]


def certify(network: Network, estimator: CertifiedRadius, images: Sequence[int], *, say: bool = False) -> list[Estimate]:
    """The estimates of some of its images, one by one."""
    whole = network.work(SIGMA)
    found = []
    for i in images:
        work = replace(
            whole, ids=[str(i)], x=whole.x[i : i + 1], labels=whole.labels[i : i + 1], clean=whole.clean.select(torch.tensor([i]))
        )
        ((one,),) = estimator.estimate(work)
        found.append(one)
        if say:
            print("   ", i, f"{one.value:.6f}", one.forwards, dict(one.details or {}), one.note, flush=True)
    return found


def share(found: Sequence[Estimate], labels: Sequence[int], radius: float) -> float:
    """Certified accuracy: the share of images whose certified class is the label and whose radius is at least this."""
    right = [(one.details or {}).get(CERTIFIED_CLASS) == label and one.value >= radius for one, label in zip(found, labels, strict=True)]
    return sum(right) / len(right)


def table(bench: Bench, images: int, n: int) -> None:
    """Certified accuracy."""
    print("| network | images | n | abstains | " + " | ".join(f"R >= {r:g}" for r in RADII) + " | n allows |\n" + "|---" * 9 + "|")
    for name in NETWORKS:
        network = load(bench, name, images)
        found, labels = certify(network, CertifiedRadius(samples=n), range(images)), labels_of(bench, network)
        shares = " | ".join(f"{share(found, labels, r):.2f}" for r in RADII)
        abstains = sum(not one.value for one in found) / images
        print(f"| `{name}` | {images} | {n:,} | {abstains:.2f} | {shares} | {largest_radius(GAUSSIAN, SIGMA, n, 0.001):.4f} |", flush=True)


def decide(bench: Bench, images: int, n: int, names: Sequence[str]) -> None:
    """Passes with and without `decide`, and whether the answers are the same."""
    for name in names:
        network = load(bench, name, images)
        estimator = CertifiedRadius(samples=n, decide=DECIDE)
        quick = certify(network, estimator, range(images))
        spent = sum(one.forwards for one in quick)
        print(
            f"{name}, n = {n:,}: {spent / images:,.0f} passes an image with decide, {spent / images / (n + 101):.4f} of fixed n", flush=True
        )
        same = yes = 0
        for i, one in enumerate(quick):
            whole, seen = fixed_answer(network, i, n)
            same += whole == (one.value >= DECIDE)
            yes += whole
            print(f"  {i + 1} images: {yes} certified, {same} alike; the last: {one.forwards:,} passes against {seen:,}", flush=True)


def fixed_answer(network: Network, image: int, n: int) -> tuple[bool, int]:
    """What all n copies say of an image, R >= .5 or not, and after how many that was settled: enough copies kept or lost."""
    one = torch.tensor([image])
    whole = network.work(SIGMA)
    work = replace(whole, ids=[str(image)], x=whole.x[one], labels=whole.labels[one], clean=whole.clean.select(one))
    label = int(count_votes(work, [0], 0, 100)[0, :-1].argmax())
    enough = needed(GAUSSIAN, SIGMA, DECIDE, n, 0.001) or n + 1

    def look(_: Any, votes: Counts, draws: int) -> list[tuple[bool, int] | None]:
        kept = int(votes[0, label])
        return [(kept >= enough, draws) if kept >= enough or draws - kept > n - enough or draws >= n else None]

    (found,) = in_rounds(1, n, lambda images, start, draws: count_votes(work, images, 100 + start, draws).cpu().numpy(), look)
    return found


def attacks(bench: Bench, images: int, n: int, restarts: int, steps: int, names: Sequence[str]) -> None:
    """Attack the vote within 99 % of the certified radii, by the gradient of the soft vote of 64 fresh copies at each step."""
    print("| network | balls | attacks | votes lost | smallest share of the class | steps |\n" + "|---" * 6 + "|", flush=True)
    for name in names:
        network = load(bench, name, images)
        found = certify(network, CertifiedRadius(samples=n), range(images))
        balls = [i for i, one in enumerate(found) if one.value > 0]
        shares = []
        for i in balls:
            label = int((found[i].details or {})[CERTIFIED_CLASS])
            shares += [attacked(network, i, label, INSIDE * found[i].value, steps, number) for number in range(restarts)]
            print(f"    {i} {found[i].value:.4f} {[share for _, share in shares[-restarts:]]}", flush=True)
        flipped = sum(lost for lost, _ in shares)
        lowest = min(share for _, share in shares)
        print(f"| `{name}` | {len(balls)} | {len(shares)} | {flipped} | {lowest:.3f} | {steps} |", flush=True)


def attacked(network: Network, image: int, label: int, radius: float, steps: int, number: int) -> tuple[bool, float]:
    """Whether an attack in a ball wins the vote from its class among 10,000 fresh copies, and the share of the class in them.

    Votes are counted until more than half of all copies are for the class, or until the end.
    """
    whole = network.work(SIGMA)
    one = torch.tensor([image])
    work = replace(whole, ids=[str(image)], x=whole.x[one], labels=whole.labels[one], clean=whole.clean.select(one))
    y, first, still = torch.tensor([label]), torch.tensor([0]), torch.zeros(1, dtype=torch.float64)

    def field(step: int) -> VoteField:
        return VoteField(work, y, offsets_of(work, f"attack {number}", first, COPIES, step * COPIES), still)

    shares = field(0).logits(first, work.x).scatter(1, y[:, None], -torch.inf)
    target = shares.argsort(1, descending=True)[:, number // 2 % 3]  # the three likeliest, from the image itself and from a random point
    away = torch.randn(work.x.shape, generator=torch.Generator().manual_seed(number))
    d = torch.zeros_like(work.x) if number % 2 == 0 else away * (radius * 0.5 / away.norm())
    for step in range(1, steps + 1):
        _, slope = field(step).slopes(first, work.x + d, target)
        d += slope * (4 * radius / steps / slope.norm().clamp_min(1e-30))
        d *= (radius / d.norm().clamp_min(1e-30)).clamp_max(1.0)
    votes = torch.zeros(work.classes, dtype=torch.int64)
    while votes.sum() < FRESH and votes[label] <= FRESH // 2:  # what more copies than half have voted for is settled
        votes += count_votes(replace(work, x=work.x + d), [0], 1_000_000 + number * FRESH + int(votes.sum()), 1000)[0, :-1]
    return int(votes.argmax()) != label, float(votes[label] / votes.sum())


def gap(bench: Bench, images: int, n: int, names: Sequence[str]) -> None:
    """How far the nearest flips of the vote that `smoothed_attack` finds are beyond the certificates."""
    print(
        "| network | images with both | attack / certificate, median | least | at the limit of n | attack, median | passes |\n"
        + "|---" * 7
        + "|"
    )
    for name in names:
        network = load(bench, name, images)
        work = network.work(SIGMA)
        proofs = [one for (one,) in CertifiedRadius(samples=n).estimate(work)]
        flips = [one for (one,) in SmoothedAttack().estimate(work)]
        most = max(one.value for one in proofs)
        both = [(p.value, a.value) for p, a in zip(proofs, flips, strict=True) if p.value and a.flips_to is not None]
        ratios = [a / p for p, a in both if p < most]
        passes = np.mean([one.forwards + 2 * one.backwards for one in flips])
        median = np.median([a.value for a in flips])
        print(
            f"| `{name}` | {len(both)} | {np.median(ratios):.3f} | {min(a / p for p, a in both):.3f} | {len(both) - len(ratios)} "
            f"| {median:.3f} | {passes:,.0f} |",
            flush=True,
        )


def coverage(cases: int, alpha: float) -> None:
    """Simulated counts: how often p_lower, with and without a question, is above p, and how often the answers differ."""
    generator = np.random.default_rng(0)
    print("| sigma, radius in question | n | R | p_lower > p | with decide | yes of n | yes with decide | copies |\n" + "|---" * 8 + "|")
    question = Question(GAUSSIAN, SIGMA, DECIDE, 10_000, alpha)
    for radius in (0.1, 0.25, 0.4, 0.47, 0.499999, 0.53, 0.6, 0.8):
        p = GAUSSIAN.probability(radius, SIGMA)
        fixed = p_lower(generator.binomial(question.draws, p, cases), question.draws, alpha)
        sure = sum(GAUSSIAN.radius(one, SIGMA) >= DECIDE for one in fixed.tolist())
        kept, still, draws = np.zeros(cases), np.arange(cases), 0
        bounds, yes, spent = np.zeros(cases), 0, 0
        while len(still):
            then = next_look(draws, question.draws)
            kept[still] += generator.binomial(then - draws, p, len(still))
            draws = then
            stop, bound, certified = question.look(kept[still], draws)
            bounds[still[stop]] = bound[stop]
            yes, spent, still = yes + int((certified[stop] >= DECIDE).sum()), spent + draws * int(stop.sum()), still[~stop]
        print(
            f"| {SIGMA:g}, {DECIDE:g} | {question.draws:,} | {radius:.6g} | {(fixed > p).sum()} | {(bounds > p).sum()} "
            f"| {sure} | {yes} | {spent / cases:,.0f} |",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.certificates", description=__doc__)
    parser.add_argument(
        "--part", default="table,decide,attacks,gap,coverage", help="table, decide, attacks, gap, coverage; separated by commas"
    )
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--network", action="append", choices=NETWORKS, help="default: both")
    parser.add_argument("--restarts", type=int, default=5, help="attacks on each ball")
    parser.add_argument("--steps", type=int, default=20, help="of an attack, with 64 copies each")
    parser.add_argument("--n", type=int, default=10_000, help="copies, for the table")
    parser.add_argument("--most", type=int, default=100_000, help="copies, for decide")
    parser.add_argument("--models", type=Path, default=SHARED, help="the folder with models/ and data/; default: ../shared")
    given = parser.parse_args(arguments)
    bench = Bench(torch.device("cpu"), shared=given.models)
    parts = given.part.split(",")
    if "table" in parts:
        table(bench, given.images, given.n)
    names = given.network or NETWORKS
    if "decide" in parts:
        decide(bench, given.images, given.most, names)
    if "gap" in parts:
        gap(bench, given.images, given.n, names)
    if "coverage" in parts:
        coverage(5000, 0.001)
    if "attacks" in parts:
        attacks(bench, given.images, given.n, given.restarts, given.steps, names)


if __name__ == "__main__":
    main()
