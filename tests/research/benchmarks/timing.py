"""Times of contenders, measured in turn so that a busy moment hits all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

Contender = Callable[[], object]
T = TypeVar("T")


def timed(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """The result of one call and its seconds, what waits on a CUDA device included."""
    _synchronise(device)
    start = time.perf_counter()
    result = work()
    _synchronise(device)
    return result, time.perf_counter() - start


def seconds(work: Contender, device: torch.device) -> float:
    """Seconds of one call."""
    return timed(work, device)[1]


def alternating(
    contenders: Mapping[str, Contender], device: torch.device, repeats: int
) -> dict[str, float]:
    """Median seconds of each contender, warmed up once; they run in turn, in the opposite order
    every second round."""
    for work in contenders.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(repeats):
        for name in list(contenders)[:: -1 if i % 2 else 1]:
            times[name].append(seconds(contenders[name], device))
    return {name: statistics.median(found) for name, found in times.items()}


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
