"""The fastest forms of a network's forward pass, without robaudit."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from robaudit.models.logits import rounded_products
from tests.research.benchmarks.timing import seconds

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
BARE_BATCH = 256


@dataclass(frozen=True, slots=True)
class Form:
    """A way to pass images through a network.

    Attributes:
        text: layout, batch and what else it is.
        rate: images a second.
        layout: name of the memory format.
        batch: rows of a pass.
    """

    text: str
    rate: float
    layout: str
    batch: int


class Plain:
    """A network in one precision on a device, for passes over prepared inputs.

    Args:
        network: stays as it is.
        precision: fp32, tf32 or bf16.
        device: where it runs.
        size: height and width of an image.
        least: seconds of a measurement.
    """

    def __init__(
        self, network: nn.Module, precision: str, device: torch.device, size: int, least: float
    ) -> None:
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._rounded = precision == "tf32"
        self._device = device
        self._size = size
        self._least = least
        self._network = copy.deepcopy(network).to(device, self._dtype)

    def bare(self, batch: int = BARE_BATCH) -> float:
        """Images a second of a loop over the network as it is."""
        with self._mode():
            return self._rate(self._forward("contiguous", batch), batch)

    def tried(self, batches: Sequence[int]) -> Iterator[Form]:
        """All layouts and batches, with cuDNN's choice of the fastest algorithms."""
        with self._mode(), fastest_algorithms(True):
            for layout in LAYOUTS:
                for batch in batches:
                    try:
                        rate = self._rate(self._forward(layout, batch), batch)
                    except torch.OutOfMemoryError:
                        continue
                    yield Form(f"{layout}, {batch}", rate, layout, batch)

    def graphed(self, form: Form) -> Form:
        """The form as a CUDA graph: one launch a pass."""
        with self._mode(), fastest_algorithms(True):
            forward = self._forward(form.layout, form.batch)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    forward()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                forward()
            rate = self._rate(graph.replay, form.batch)
        return Form(f"{form.text}, graph", rate, form.layout, form.batch)

    def compiled(self, form: Form) -> tuple[Form, float]:
        """The form through torch.compile, and the seconds of compiling."""
        torch.compiler.reset()
        with self._mode(), fastest_algorithms(True):
            forward = self._forward(form.layout, form.batch, torch.compile(self._network))
            started = time.perf_counter()
            forward()
            compiling = time.perf_counter() - started
            rate = self._rate(forward, form.batch)
        return Form(f"{form.text}, compiled", rate, form.layout, form.batch), compiling

    def _forward(
        self, layout: str, batch: int, network: Callable[..., object] | None = None
    ) -> Callable[[], object]:
        """A pass of prepared images."""
        memory_format = LAYOUTS[layout]
        self._network.to(memory_format=memory_format)
        x = torch.rand(batch, 3, self._size, self._size, device=self._device).to(self._dtype)
        called = self._network if network is None else network
        return partial(called, x.contiguous(memory_format=memory_format))

    def _rate(self, forward: Callable[[], object], batch: int) -> float:
        """Images a second, over at least three passes."""
        repeat(forward, 2)  # algorithms are chosen
        once = seconds(forward, self._device)
        times = max(3, int(self._least / max(once, 1e-6)))
        return times * batch / seconds(partial(repeat, forward, times), self._device)

    @contextmanager
    def _mode(self) -> Iterator[None]:
        with rounded_products(self._rounded), torch.inference_mode():
            yield


def repeat(work: Callable[[], object], times: int) -> None:
    """Do it so often."""
    for _ in range(times):
        work()


@contextmanager
def fastest_algorithms(on: bool) -> Iterator[None]:
    """Let cuDNN try its algorithms for each shape and keep the fastest, or not."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
