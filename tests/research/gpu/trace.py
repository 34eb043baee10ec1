"""What a card did meanwhile: launches, waits and the share of the time that it computed, from
torch's profiler; and its load as its driver sees it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tests.research.benchmarks.timing import timed

_ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")
_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize")
_PERIOD_MS = 200


@dataclass(frozen=True, slots=True)
class Trace:
    """What the card did during some work.

    Attributes:
        seconds: of the work, from an idle card to an idle card.
        busy_seconds: during which at least one kernel or copy ran.
        launches: kernels, copies and fills.
        waits: how often the host waited for a stream or an event.
    """

    seconds: float
    busy_seconds: float
    launches: int
    waits: int

    @property
    def busy(self) -> float:
        """The share of the time that the card was busy."""
        return self.busy_seconds / self.seconds


def trace(work: Callable[[], object], device: torch.device) -> Trace:
    """Do some work on a card with torch's profiler. Keep it below a few seconds: each launch is an
    event."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cycles, which a single recording does not have
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            _, seconds = timed(work, device)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            recorded.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
    return traced(events, seconds)


def traced(events: Iterable[Mapping[str, Any]], seconds: float) -> Trace:
    """The events of a Chrome trace (times in microseconds) in numbers."""
    intervals = list[tuple[float, float]]()
    waits = 0
    for event in events:
        if event.get("cat") in _ON_CARD:
            intervals.append((event["ts"], event["ts"] + event["dur"]))
        elif event.get("name") in _WAITS:
            waits += 1
    return Trace(seconds, covered(intervals) / 1e6, len(intervals), waits)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals: kernels of several streams overlap."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Load:
    """The load of the first card while the block runs, whoever uses it.

    It is what ``nvidia-smi`` calls utilisation: the share of each sampling period in which a kernel
    ran. Where there is no such program, nothing is known.
    """

    def __init__(self) -> None:
        self._samples = list[tuple[float, float]]()  # seconds since the start, share
        self._started = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Load:
        self._started = time.monotonic()
        program = shutil.which("nvidia-smi")
        if program is None:
            return self
        wanted = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        self._process = subprocess.Popen(
            [program, "--id=0", *wanted, f"--loop-ms={_PERIOD_MS}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.note(time.monotonic() - self._started, line)

    def note(self, seconds: float, line: str) -> None:
        """Take a line of the program, so many seconds after the start."""
        text = line.strip()
        if text.isdigit():  # else: not supported
            self._samples.append((seconds, int(text) / 100))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._process is None or self._reader is None:
            return
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def mean(self, after: float = 0.0) -> float | None:
        """The mean share, from so many seconds after the start; None: unknown."""
        shares = [share for seconds, share in self._samples if seconds >= after]
        return sum(shares) / len(shares) if shares else None
