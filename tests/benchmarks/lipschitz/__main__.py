"""Lipschitz bounds, the certificates from them, and moments in closed form, against what can be measured.

Run by hand: `python -m tests.benchmarks.lipschitz` takes some minutes on one core and writes docs/lipschitz.md. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

import torch
from torch import Tensor

from robaudit.estimators.margin_field import MarginField
from robaudit.estimators.margin_radius import MarginRadius
from robaudit.estimators.moments import closed_forms, first_covariance, logit_moments, margin_moments
from robaudit.estimators.radius_attack import RadiusAttack
from robaudit.estimators.smoothed_margin import SmoothedMargin
from robaudit.models.chain import chain_of
from robaudit.models.lipschitz import lipschitz_bound
from robaudit.names import P_ERROR
from robaudit.numerics.attack import Domain, ascend
from robaudit.numerics.lipschitz import convolution
from robaudit.numerics.margins import standardise
from robaudit.numerics.mvn import mvn_cdf
from robaudit.system import keep_freed_memory
from tests.benchmarks.machine import in_words, machine
from tests.benchmarks.networks import Bench, Network, load, names
from tests.benchmarks.report import Table
from tests.convolutions import dense_convolution
from tests.shared import SHARED

_HEAD = Path(__file__).with_name("introduction.md").read_text(encoding="utf-8")
GOLDENS = ((4, 3, 3, 8, 1, 1), (4, 3, 3, 8, 2, 1), (8, 4, 5, 10, 1, 2))
"""Channels out, channels in, kernel, size, stride, padding of those that the tests have goldens for."""
SIGMAS = {"mnist_spectral_mlp": (0.1, 0.25, 0.5, 1.0), "mnist_conv_small_nat": (0.25, 0.5, 1.0)}
NORMS = ("l2", "linf")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lipschitz", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few images, printed only")
    parser.add_argument("--models", type=Path, default=SHARED, help="the folder with models/ and data/; default: ../shared")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[3] / "docs", help="of the page; default: docs/")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    keep_freed_memory()
    bench = Bench(torch.device("cpu"), quick=given.quick, shared=given.models)
    parts = [_HEAD.replace("{machine}", in_words(machine(bench.device), quick=given.quick))]
    for part in (_convolutions, _networks, _balls, _smoothed, _moments):
        started = time.perf_counter()
        parts.append("\n".join(part(bench)))
        print(f"{part.__name__}: {time.perf_counter() - started:.0f} s", flush=True)
    page = "\n".join(parts)
    if given.quick:
        print(page)
    else:
        (given.out / "lipschitz.md").write_text(page)


def _convolutions(bench: Bench) -> Iterator[str]:
    generator, weights = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    rows = []
    for case in (*GOLDENS, *(_drawn(generator) for _ in range(20))):
        out, inside, kernel, size, stride, padding = case
        weight = torch.randn(out, inside, kernel, kernel, generator=weights).double() / (inside * kernel * kernel) ** 0.5
        torch.rand(768, generator=weights)  # as between the goldens
        exact = float(torch.linalg.svdvals(dense_convolution(weight, (size, size), stride=stride, padding=padding))[0])
        bound, plain = (
            convolution(weight, (size, size), stride=stride, padding=padding, polyphase=polyphase).l2 for polyphase in (True, False)
        )
        shape = [f"{out} x {inside}", kernel, size, stride, padding]
        rows.append([*map(str, shape), f"{exact:.5f}", f"{bound:.5f}", f"{bound / exact:.4f}", f"{plain:.5f}", f"{plain / exact:.4f}"])
    headers = ["channels", "kernel", "size", "stride", "padding", "exact", "bound", "ratio", "stride ignored", "ratio"]
    ratios = sorted(float(row[7]) for row in rows)
    yield Table(headers, rows, "## Convolutions: the bound against the exact norm").markdown()
    yield ""
    yield "Weights are normal with variance 1 / (inputs of a value). *stride ignored*: the bound without the stride."
    yield f"The ratio is at least {ratios[0]:.4f}, at the median {median(ratios):.3f}, and at most {ratios[-1]:.3f}.\n"


def _drawn(generator: torch.Generator) -> tuple[int, ...]:
    def one(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    kernel = one(1, 5)
    return one(1, 8), one(1, 6), kernel, one(kernel, 10), one(1, 3), one(0, kernel)


def _networks(bench: Bench) -> Iterator[str]:
    rows, layers = [], []
    for name in names(bench):
        network = load(bench, name, 20 if bench.quick else 200)
        started = time.perf_counter()
        bound = lipschitz_bound(network.model, network.x[0])
        seconds = time.perf_counter() - started
        work = network.work(0.1)
        radii = list(zip(*([one.value for one in found] for found in MarginRadius().estimate(work)), strict=True))
        other = ~torch.eye(network.classes, dtype=torch.bool)
        margins = [bound.margins[norm][other] for norm in NORMS]
        span = [f"{float(m.min()):.4g} to {float(m.max()):.4g}" for m in margins]
        rows.append([name, f"{bound.constant['l2']:.4g}", *span, *(f"{median(one):.3g}" for one in radii), f"{seconds:.2f}"])
        if name == "mnist_spectral_mlp":
            layers = [[layer.name, f"{layer.norms.l2:.6f}"] for layer in bound.layers]
            exact = _product_of_norms(network)
            layers.append(["product of the exact norms", f"{exact:.9f}"])
            layers.append(["computed K", f"{bound.constant['l2']:.9f}"])
    headers = ["network", "K, l2", "margins, l2", "margins, linf", "median radius, l2", "median radius, linf", "seconds"]
    yield Table(headers, rows, "## The networks, 200 images each").markdown()
    yield ""
    yield Table(["operation of mnist_spectral_mlp", "l2 norm"], layers).markdown()
    yield ""


def _product_of_norms(network: Network) -> float:
    """The product of the exact norms of the layers, and of the normalisation."""
    found = 1.0 / float(network.model.std.double().min())
    for parameter in network.model.network.parameters():
        if parameter.dim() == 2:
            found *= float(torch.linalg.svdvals(parameter.double())[0])
    return found


def _balls(bench: Bench) -> Iterator[str]:
    rows = []
    for name in ("mnist_spectral_mlp", "mnist_cnn_a_adv", "fashion_logistic"):
        network = load(bench, name, 20 if bench.quick else 200)
        work = network.work(0.1)
        certified, attacked = (list(zip(*one.estimate(work), strict=True)) for one in (MarginRadius(), RadiusAttack()))
        for norm, ours, theirs in zip(NORMS, certified, attacked, strict=True):
            balls = [(i, one.value) for i, one in enumerate(ours) if one.value > 0]
            flips = sum(_flipped(network, MarginField(work, work.clean.predicted), i, radius, norm) for i, radius in balls)
            nearer = sum(b.value < a.value for a, b in zip(ours, theirs, strict=True))
            ratio = median(a.value / b.value for a, b in zip(ours, theirs, strict=True))
            rows.append([name, norm, str(len(balls)), str(flips), str(nearer), f"{ratio:.3f}"])
    headers = ["network", "norm", "balls", "flipped by PGD", "flips of radius_attack inside", "median radius / attacked radius"]
    yield Table(headers, rows, "## Attacks on the balls of margin_radius, 200 images each").markdown()
    yield ""
    yield "PGD: 10 starts within the ball, 100 steps each, on the loss max_j z_j - z_c; a ball counts as flipped if any step is.\n"


def _flipped(network: Network, field: MarginField, i: int, radius: float, norm: str) -> bool:
    """Whether projected gradient ascent from the image and 9 points of the ball, 100 steps each, finds another class within it."""
    x = network.x[i : i + 1]
    y = int(network.model(x).argmax())
    domain = Domain("l2" if norm == "l2" else "linf", radius * (1 - 1e-6))
    generator = torch.Generator().manual_seed(i)
    away = torch.randn(1, 10, *x.shape[1:], generator=generator)
    away[:, 0] = 0
    starts = torch.stack([domain.project(x + radius * part, x) for part in away[0]], dim=1)

    def slopes(image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            moved = pixels.detach().requires_grad_(True)
            logits = network.model(moved)
            rest = logits.scatter(1, torch.full((len(pixels), 1), y), -torch.inf)
            value = rest.amax(1) - logits[:, y]
            (gradient,) = torch.autograd.grad(value.sum(), moved)
        return value.detach().double(), gradient

    return bool(ascend(slopes, x, starts, domain, 100).log_l > 0)


def _smoothed(bench: Bench) -> Iterator[str]:
    network = load(bench, "mnist_spectral_mlp", 20 if bench.quick else 100)
    rows = []
    for sigma in (0.1, 0.25, 0.5, 1.0):
        work = network.work(sigma)
        found = SmoothedMargin(norm=("l2",)).estimate(work)
        wrong, _ = _sampled(network, sigma, 1000 if bench.quick else 10_000)
        certified = [i for i, (one,) in enumerate(found) if one.value > 0]
        bounds = [(found[i][0].details or {})[P_ERROR] for i in certified]
        broken = sum(1 - p > b + 3 * (b * (1 - b) / 10_000) ** 0.5 for p, b in zip(wrong[certified].tolist(), bounds, strict=True))
        radius = median(one.value for (one,) in found)
        rows.append([f"{sigma:g}", f"{len(certified)} of {len(found)}", f"{radius:.3f}", f"{median(bounds):.2g}", str(broken)])
    headers = ["sigma", "certified", "median radius", "median p_error", "images with more errors than p_error"]
    yield Table(headers, rows, "## smoothed_margin on mnist_spectral_mlp, l2, 100 images").markdown()
    yield ""


def _sampled(network: Network, sigma: float, draws: int) -> tuple[Tensor, Tensor]:
    """p_robust and the mean margin of each image, by Monte Carlo (images,)."""
    work = network.work(sigma)
    kept, margin = torch.zeros(len(network.x), dtype=torch.float64), torch.zeros(len(network.x), dtype=torch.float64)
    for batch, logits in work.engine.noisy_logits(work.x, work.ids, work.at, draws):
        y = work.clean.predicted[batch.image][:, None]
        rest = logits.scatter(1, y, -torch.inf).amax(1)
        difference = (logits.gather(1, y)[:, 0] - rest).double()
        kept.index_add_(0, batch.image, (difference > 0).double())
        margin.index_add_(0, batch.image, difference)
    return kept / draws, margin / draws


def _moments(bench: Bench) -> Iterator[str]:
    rows, pairs = [], []
    for name, sigmas in SIGMAS.items():
        network = load(bench, name, 5 if bench.quick else 100)
        chain = chain_of(network.model, network.x[0])
        first = first_covariance(chain, network.x[0])
        for sigma in sigmas:
            draws = 1000 if bench.quick else 10_000
            p, margin = _sampled(network, sigma, draws)
            started = time.perf_counter()
            found = [logit_moments(chain, x, sigma, 4, first) for x in network.x]
            seconds = (time.perf_counter() - started) / len(found)
            mean, covariance = torch.stack([one.mean for one in found]), torch.stack([one.covariance for one in found])
            work = network.work(sigma)
            value, _ = mvn_cdf(*standardise(*margin_moments(mean, covariance, work.clean.predicted, work.others)))
            off = (value - p).tolist()
            rows.append([name, f"{sigma:g}", f"{float(p.mean()):.4f}", f"{fmean(off):+.4f}", *_errors(off), f"{seconds:.2f}"])
            for independent in (False, True):
                forms = closed_forms(mean, covariance, work.clean.predicted, independent=independent)
                beats = [one["p_c"] - q for one, q in zip(forms, p.tolist(), strict=True)]
                clark = [one["smoothed_margin"] - m for one, m in zip(forms, margin.tolist(), strict=True)]
                which = "as published" if independent else "with covariances"
                size = f"{float(margin.mean()):.3f}"
                errors = [f"{fmean(beats):+.4f}", *_errors(beats), size, f"{fmean(clark):+.4f}", *_errors(clark)]
                pairs.append([name, f"{sigma:g}", which, *errors])
    headers = ["network", "sigma", "p_robust (mc)", "moments - mc", "mean error", "worst error", "seconds an image"]
    yield Table(headers, rows, "## moments against Monte Carlo, 100 images, 10,000 draws").markdown()
    yield ""
    headers = ["network", "sigma", "logits", "p_c - mc", "mean error", "worst", "mean margin (mc)", "Clark - mc", "mean error", "worst"]
    yield Table(headers, pairs, "## P_c and Clark's margin against Monte Carlo").markdown()
    yield ""


def _errors(off: Sequence[float]) -> list[str]:
    return [f"{fmean(map(abs, off)):.4f}", f"{max(map(abs, off)):.4f}"]


if __name__ == "__main__":
    main()
