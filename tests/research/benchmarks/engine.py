"""Part `engine`: a noisy pass of the engine against the model's own best forward pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from robaudit.engine.batch import ImageBatch
from robaudit.noise.noise import shape_of
from tests.research.benchmarks.networks import Bench, Network, estimator, load, script
from tests.research.benchmarks.report import Section, Table, number, target
from tests.research.benchmarks.timing import alternating, seconds
from tests.shared import MODELS, card

SIGMA = 0.1
FINALISTS = 3
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
Forward = Callable[[], object]


def measure(bench: Bench) -> Section:
    """Every shared model: the fastest of many forms of its forward pass against the engine, in
    turn."""
    cuda = bench.device.type == "cuda"
    aim = 15.0 if cuda else 10.0
    rows = []
    raw = {}
    targets = []
    for name in MODELS[:2] if bench.quick else MODELS:
        network = load(bench, name, 8)
        best, rates = _rates(bench, network)
        overhead = 100 * (rates["best"] / rates["engine"] - 1)
        cells = [number(rates[what]) for what in ("best", "noise", "engine")]
        rows.append([name, cells[0], best, *cells[1:], f"{overhead:.0f} %"])
        raw[name] = {**rates, "form": best}
        if name == "cifar10_resnet20":
            targets.append(target(f"overhead, {name}", aim, overhead, " %"))
        bench.say(
            f"  {name}: best {rates['best']:,.0f}/s ({best}), engine {rates['engine']:,.0f}/s, "
            f"overhead {overhead:.0f} %"
        )
    return Section(
        title=f"The engine's noisy passes ({bench.device.type})",
        reading=(
            "Images/s of `mc` (noise, sum, normalisation, forward pass, votes), of the fastest "
            "bare forward pass of the same file on"
            " prepared inputs, and of drawing the noise alone; `overhead`: best / engine - 1."
        ),
        tables=[
            Table(["model", "best forward", "its form", "noise alone", "engine", "overhead"], rows)
        ],
        targets=targets,
        notes=[
            f"Best of batch {', '.join(map(str, _batches(bench)))}, contiguous and "
            "channels_last, as loaded, frozen and optimised for"
            f" inference by torch.jit: all tried once, the {FINALISTS} fastest measured again in "
            "turn with the engine.",
            "The smaller the network, the more the noise itself matters: a linear model is "
            "faster than the random numbers it needs.",
            "On both sides the process keeps freed memory (`keep_freed_memory`), as the command "
            "line does.",
        ],
        raw=raw,
    )


def _rates(bench: Bench, network: Network) -> tuple[str, dict[str, float]]:
    """The best form and the images/s of it and of the engine."""
    batches = _batches(bench)
    with _quiet(), torch.inference_mode():
        forms = dict(_forms(bench, network))
        tried = {
            form: _screened(bench, forward) / batch for form, (batch, forward) in forms.items()
        }
        finalists = sorted(tried, key=lambda form: tried[form])[:FINALISTS]
        draws = estimator(
            "mc",
            draws=16 * max(batches) // len(network.x) if bench.device.type == "cuda" else 256,
        )
        chunk = network.batch(SIGMA)
        passes = len(network.x) * draws.passes(network.classes)[0] - len(network.x)
        counts = {form: max(1, passes // forms[form][0]) for form in finalists}
        contenders: dict[str, Forward] = {
            form: partial(_repeat, forms[form][1], counts[form]) for form in finalists
        }
        contenders |= {
            "engine": partial(draws.estimate, chunk),
            "noise": partial(_draw, chunk, passes // len(network.x)),
        }
        times = alternating(contenders, bench.device, 3 if bench.quick else 5)
    rates = {form: counts[form] * forms[form][0] / times[form] for form in finalists}
    best = max(rates, key=lambda form: rates[form])
    return best, {"best": rates[best], **{who: passes / times[who] for who in ("engine", "noise")}}


def _forms(bench: Bench, network: Network) -> Iterator[tuple[str, tuple[int, Forward]]]:
    """Batch size and forward pass of every form of the file, by name."""
    about = card(network.name)
    mean, std = (
        torch.tensor(about[key], device=bench.device).view(1, -1, 1, 1) for key in ("mean", "std")
    )
    images = ((network.x - mean) / std).float()
    for layout, memory_format in FORMATS.items():
        for kind in ("as loaded", "frozen", "optimised"):
            module: Any = (
                torch.jit.load(script(network.name), map_location=bench.device)
                .eval()
                .to(memory_format=memory_format)
            )
            if kind != "as loaded":
                module = (
                    torch.jit.freeze(module)
                    if kind == "frozen"
                    else torch.jit.optimize_for_inference(torch.jit.freeze(module))
                )
            for batch in _batches(bench):
                x = images[torch.arange(batch, device=bench.device) % len(images)].contiguous(
                    memory_format=memory_format
                )
                yield f"{kind}, {layout}, {batch}", (batch, partial(module, x))


def _batches(bench: Bench) -> tuple[int, ...]:
    if bench.quick:
        return (64, 128)
    return (128, 512, 2048, 4096) if bench.device.type == "cuda" else (32, 64, 128, 256, 512)


def _screened(bench: Bench, forward: Forward) -> float:
    """Seconds of a pass after two of warming up (torch.jit compiles in the second); endless where
    the form does not run."""
    try:
        _repeat(forward, 2)
        return min(seconds(forward, bench.device) for _ in range(2))
    except RuntimeError:
        return float("inf")


def _repeat(forward: Forward, count: int) -> None:
    for _ in range(count):
        forward()


def _draw(chunk: ImageBatch, draws: int) -> None:
    shape = shape_of(chunk.x)
    for sample_id in chunk.ids:
        for _ in chunk.engine.noises[chunk.at.noise].blocks(sample_id, draws, shape):
            pass


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch.jit's remarks on its age."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
