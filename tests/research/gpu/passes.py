"""Part `passes`: noisy passes a second of `mc`, beside a bare loop of the same network and its
fastest form; how busy the card is, and its memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine, fitting_passes
from robaudit.memory import free_bytes, peak, reset_peak
from robaudit.methods.average_case.mc import MonteCarlo
from robaudit.models import from_module
from robaudit.models.logits import for_noisy_passes, rounded_products
from robaudit.noise.noise import shape_of
from robaudit.spec.model import Precision
from tests import levels
from tests.levels import gaussian_process
from tests.research.benchmarks.timing import seconds
from tests.research.gpu.forms import BARE_BATCH, Form, Plain, fastest_algorithms, repeat
from tests.research.gpu.networks import RESNET18, Subject, subjects
from tests.research.gpu.part import Part, Row
from tests.research.gpu.trace import trace

PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16")
COMPILED = ("bf16", "tf32", "fp32")
"""The order in which precisions are compiled: there is hardly time for all of them."""
DRAWS = 10_000
IMAGES = 50
"""Of the published figure, 35 s on a V100. What is measured are passes a second, in full batches;
so many draws of so many images follow from them.

Source: Han et al., Average-case robustness, the table of times.
"""
FEW_COPIES = 8
_MOST_IMAGES = 1024  # of a chunk
_SIGMA = 0.1
_COMPILING = 45.0  # seconds that a compilation may take, before one was timed
_CASE = 15.0  # seconds that a case takes, roughly: with less, none is begun


@dataclass(slots=True)
class Case:
    """A network in a precision, as an audit runs it.

    Attributes:
        subject: the network.
        precision: fp32, tf32 or bf16.
        engine: with passes as large as an audit's.
        batch: a chunk of images after the clean pass.
        plain: the same network, without robaudit.
        least: seconds of a measurement.
        row: the figures so far.
        best: the fastest form so far.
    """

    subject: Subject
    precision: Precision
    engine: Engine
    batch: ImageBatch
    plain: Plain
    least: float
    row: Row = field(default_factory=dict)
    best: Form | None = None

    @property
    def text(self) -> str:
        """Network and precision."""
        return f"{self.subject.text}, {self.precision}"

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.engine.model.device

    def better(self, forms: Iterable[Form]) -> None:
        """Keep the fastest form."""
        for form in forms:
            if self.best is None or form.rate > self.best.rate:
                self.best = form
                self.row["best"] = form.rate
                self.row["form"] = form.text


def measure(part: Part) -> None:
    """Each network in each precision; then, while there is time, compiled."""
    cases = list[Case]()
    for subject in subjects(tiny=part.tiny):
        network = subject.build()
        exact, operations = reference(network, images(subject, 8))
        for precision in PRECISIONS:
            if part.on_card and part.clock.left() < _CASE:
                part.left_out.append(f"{subject.text}, {precision}: no time")
                continue
            with rounded_products(False):
                case = opened(part, subject, network, precision)
                part.add(network=subject.text, precision=precision)
                case.row = part.rows[-1]
                _measure_case(part, case, exact, operations)
            part.say(f"  {case.text}: {case.row.get('mc') or 0.0:,.0f} passes/s")
            cases.append(case)
    _compile(part, cases)


def reference(network: nn.Module, x: Tensor) -> tuple[Tensor, float]:
    """The logits of images on the CPU in float64, and the operations of a pass of one image (an
    addition and a multiplication are two)."""
    exact = copy.deepcopy(network).double()
    # The counter sees the products of plain attention only, not of its faster forms.
    torch.backends.mha.set_fastpath_enabled(False)
    counter = FlopCounterMode(display=False)
    try:
        with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), counter:
            logits: Tensor = exact(x.double())
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    return logits, counter.get_total_flops() / len(x)


def images(subject: Subject, number: int) -> Tensor:
    """Random images for a network, on the CPU."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(number, 3, subject.size, subject.size, generator=generator)


def opened(part: Part, subject: Subject, network: nn.Module, precision: Precision) -> Case:
    """A network in a precision with an engine like that of an audit."""
    least = 0.02 if part.tiny else 1.0
    # A copy: the model changes layout and type of its network.
    model = from_module(copy.deepcopy(network), device=part.device)
    model = model.rounding(precision == "tf32")
    noisy = for_noisy_passes(model, precision)
    x = images(subject, subject.images).to(part.device)
    fit = None
    if part.on_card:
        fit = fitting_passes(noisy, None, x[0], free_bytes(part.device))
    with torch.inference_mode():
        classes = model(x[:1]).shape[1]
    source = gaussian_process(0, part.device)
    engine = Engine(model, source, classes, noisy=noisy, fit=fit)
    batch = ImageBatch.from_images(engine, x, levels.sigma(_SIGMA))
    plain = Plain(network, precision, part.device, subject.size, least / 2)
    return Case(subject, precision, engine, batch, plain, least)


def _measure_case(part: Part, case: Case, exact: Tensor, operations: float) -> None:
    """All figures of a case. One that fails is reported, and the others are measured."""
    row = case.row
    row["rows"] = case.engine.rows(shape_of(case.batch.x))

    published = case.subject.name == RESNET18

    def passes_of_mc() -> None:
        reset_peak(part.device)
        rate = rate_of_mc(case, (8 if published else 3) * case.least)
        row["mc"] = rate
        row["gib"] = peak(part.device) / 2**30
        row["tera"] = rate * operations / 1e12
        if published:
            row["published"] = DRAWS * IMAGES / rate

    def bare() -> None:
        rate = case.plain.bare()
        row["bare"] = rate
        case.better([Form(f"as it is, {BARE_BATCH}", rate, "contiguous", BARE_BATCH)])

    def busy() -> None:
        passes = case.least * float(row["mc"] or 0.0)
        row["busy"] = trace(partial(mc, case, _draws_of(case, passes)), part.device).busy

    def forms() -> None:
        case.better(case.plain.tried(case.subject.batches))

    def noise() -> None:
        row["noise"] = rate_of_noise(case)

    def few_copies() -> None:
        row["few"] = rate_of_few_copies(case)

    def tuned() -> None:
        with fastest_algorithms(True):
            row["tuned"] = rate_of_mc(case, case.least)

    def error() -> None:
        row["error"] = error_of(case, exact)

    def graph() -> None:
        if case.best is not None:
            case.better([case.plain.graphed(case.best)])

    steps: list[Callable[[], None]] = [passes_of_mc, bare, error, forms, noise, few_copies, tuned]
    if part.on_card:
        steps += [busy, graph]
    for step in steps:
        try:
            step()
        except Exception as error_of_step:
            if part.on_card and not works(part.device):
                raise
            name = step.__name__.replace("_", " ")
            what = f"{type(error_of_step).__name__}: {error_of_step}"
            part.wrong.append(f"{case.text}, {name}: {what}"[:300])
        part.saved()


def works(device: torch.device) -> bool:
    """Whether a card still computes: after some errors a process cannot use it any more."""
    try:
        torch.cuda.synchronize(device)
        torch.ones(1, device=device).add_(1).item()
    except Exception:  # noqa: BLE001  whatever it is, the card does not work
        return False
    return True


def mc(case: Case, draws: int) -> None:
    """The estimator on the chunk."""
    MonteCarlo(draws=draws).estimate(case.batch)


def _draws_of(case: Case, passes: float = 0.0) -> int:
    """Copies of each image for about so many passes: at least one full batch, no batch that is not
    full, and 10,000 at most."""
    rows = case.engine.rows(shape_of(case.batch.x))
    of_a_batch = math.ceil(rows / len(case.batch.x))
    batches = min(passes / rows, DRAWS / of_a_batch)
    return of_a_batch * max(1, int(batches))


def rate_of_mc(case: Case, wanted: float) -> float:
    """Noisy passes a second, over about so many seconds."""
    number = len(case.batch.x)
    fewest = _draws_of(case)
    mc(case, fewest)  # memory is allocated, algorithms are chosen
    once = seconds(partial(mc, case, fewest), case.device)
    draws = _draws_of(case, fewest * number * wanted / once)
    if draws == fewest:  # of a large network a batch takes seconds
        return fewest * number / once
    return draws * len(case.batch.x) / seconds(partial(mc, case, draws), case.device)


def rate_of_noise(case: Case) -> float:
    """Noisy copies a second that are only made."""
    batch = case.batch
    rows = case.engine.rows(shape_of(batch.x))
    draws = _draws_of(case, 4 * rows)

    def make() -> None:
        for _ in case.engine.noisy_batches(batch.x, batch.ids, batch.at, draws, rows):
            pass

    return draws * len(batch.x) / _seconds_of_one(make, case)


def rate_of_few_copies(case: Case) -> float:
    """Passes a second of a round that takes eight copies of each of many images."""
    rows = case.engine.rows(shape_of(case.batch.x))
    number = max(FEW_COPIES, min(_MOST_IMAGES, rows // FEW_COPIES))
    x = images(case.subject, number).to(case.device)
    unknown = torch.zeros(number, dtype=torch.int64, device=case.device)
    ids = [str(i) for i in range(number)]
    batch = ImageBatch(ids, x, unknown, case.batch.at, case.engine, unknown)
    estimator = MonteCarlo(draws=1000)

    def take() -> None:
        estimator.further(batch, None, FEW_COPIES)

    return FEW_COPIES * number / _seconds_of_one(take, case)


def _seconds_of_one(work: Callable[[], None], case: Case) -> float:
    """Seconds of one call, after a first one."""
    work()
    once = seconds(work, case.device)
    if once >= case.least:
        return once
    times = math.ceil(case.least / max(once, 1e-6))
    return seconds(partial(repeat, work, times), case.device) / times


def error_of(case: Case, exact: Tensor) -> float:
    """|logits - exact| / |exact|, where the exact ones are the CPU's in float64."""
    x = images(case.subject, len(exact)).to(case.device)
    noisy = case.engine.models[-1]
    with torch.inference_mode():
        logits = noisy(x).double().cpu()
    return float((logits - exact).norm() / exact.norm())


def _compile(part: Part, cases: Iterable[Case]) -> None:
    """The fastest forms through torch.compile, in the order of :data:`COMPILED`."""
    if not part.on_card:
        part.left_out.append("busy, CUDA graphs, torch.compile: only on a card")
        return
    longest = _COMPILING
    for case in sorted(cases, key=lambda case: COMPILED.index(case.precision)):
        if case.best is None:
            continue
        if part.clock.left() < longest:
            part.left_out.append(f"{case.text}, compiled: no time")
            continue
        try:
            form, compiling = case.plain.compiled(case.best)
        except Exception as error:
            if not works(part.device):
                raise
            part.left_out.append(f"{case.text}, compiled: {type(error).__name__}: {error}"[:300])
            continue
        case.row["compiled"] = form.rate
        case.row["compiling"] = compiling
        case.better([form])
        # a compilation with its measurement, and half as much again
        longest = max(longest / 2, 1.5 * compiling + 5.0)
        part.saved()
    torch.compiler.reset()  # what was compiled holds the networks
