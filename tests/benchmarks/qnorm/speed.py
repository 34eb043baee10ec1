"""Gradients a second of `qnorm_path` as a share of the network's own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import cross_entropy

from robaudit.estimators.work import CleanPass, Work
from robaudit.noise.base import shape_of
from tests.benchmarks.qnorm.results import Case, Results, by_estimator, engine_of, loaded

REPEATS, SECONDS = 9, 1.0
CHAINS, STEPS = 4, 3


def measure(results: Results, cases: Sequence[Case]) -> None:
    """Measure every case anew and keep the rates."""
    for case in cases:
        plain, path, rows = rates(results, case)
        results.keep(f"speed; {case.name}", {"plain": plain, "path": path, "rows": rows})
        results.bench.say(f"{case.name}: {path:.0f} of {plain:.0f} gradients a second, {path / plain:.2f}")


def rates(results: Results, case: Case) -> tuple[float, float, int]:
    """Gradients in a CPU second: of the cross-entropy by plain passes, and of `qnorm_path` on as many images as fill a pass; rows of it.

    Both take turns, with the default steps and as many temperatures as take about a second; the fastest of nine counts, as other
    processes only ever slow them down.
    """
    network, labels = loaded(results.bench, case.network)
    engine, noise = engine_of(case, network, results.seed)
    shape = shape_of(network.x)
    rows = engine.steady(engine.gradient_rows(shape, 1))
    images = math.ceil(rows / CHAINS)
    x = network.x[:images]
    work = Work([str(i) for i in range(images)], x, labels[:images], noise, CleanPass.of(engine, x), engine)
    batch = network.x[:1].expand(rows, *shape).contiguous(memory_format=network.model.memory_format).clone()

    against = labels[:1].expand(rows).contiguous()

    def plain(passes: int) -> None:
        for _ in range(passes):
            pixels = batch.detach().requires_grad_(True)
            torch.autograd.grad(cross_entropy(network.model(pixels), against, reduction="sum"), pixels)

    plain(3)
    passes = max(1, round(SECONDS / _seconds(lambda: plain(10)) * 10))
    method = by_estimator("qnorm_path", temperatures=max(18, round(passes / (20.5 * STEPS)) * 10), steps=STEPS)
    gradients = images * method.run(work)[0][0].backwards
    times = [(_seconds(lambda: plain(passes)), _seconds(lambda: method.run(work))) for _ in range(REPEATS)]
    return passes * rows / min(a for a, _ in times), gradients / min(b for _, b in times), rows


def _seconds(run: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    started = time.process_time()
    run()
    return time.process_time() - started
