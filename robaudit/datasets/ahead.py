"""Samples read ahead by threads while the network computes, in order and in bounded memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue
from typing import Literal

import torch

from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import SampleError

_WORKERS = 4  # on CUDA
_PATIENCE = 2.0  # seconds to wait for readers at the end

Read = tuple[int, Sample | SampleError]


def default_workers(asked: int | Literal["auto"], device: torch.device, kind: str) -> int:
    """How many threads read ahead.

    Args:
        asked: run.workers of the spec.
        device: where the network runs: on the CPU it needs the cores itself.
        kind: of the data set; ``python`` is code that may never have met a second thread.
    """
    if asked != "auto":
        return asked
    return 0 if device.type == "cpu" or kind == "python" else _WORKERS


def read_ahead(dataset: Dataset, indices: Iterable[int], workers: int, depth: int) -> Generator[Read, None, None]:
    """Read samples in order, ahead of the caller; the samples are the same whatever the number of workers.

    Reading begins when the first sample is asked for. An unusable sample is given as its error; any other exception, of the data set
    or of ``indices``, is raised at its place, after everything that comes before it.

    The readers end when the generator is closed or exhausted. They are daemon threads, not a ThreadPoolExecutor, whose threads the
    interpreter waits for at exit: a reader that hangs on a dead disk must not keep the process alive.

    Args:
        dataset: what to read; with workers, several threads read it at once.
        indices: which samples, in order; with workers, taken ``depth`` ahead, in the caller's thread.
        workers: threads; 0 reads in the caller's thread, when a sample is asked for.
        depth: the most samples read or being read ahead of the caller; ignored without workers.

    Yields:
        The index, and the sample or what is wrong with it.

    Raises:
        ValueError: workers or depth out of range.
    """
    if workers < 0 or (workers and depth < 1):
        raise ValueError(f"{workers} workers and {depth} samples ahead; at least 0 and 1")
    return _by_threads(dataset, indices, min(workers, depth), depth) if workers else _in_turn(dataset, indices)


def _in_turn(dataset: Dataset, indices: Iterable[int]) -> Generator[Read, None, None]:
    for index in indices:
        yield index, _read(dataset, index)


def _read(dataset: Dataset, index: int) -> Sample | SampleError:
    try:
        return dataset[index]
    except SampleError as error:
        return error


def _by_threads(dataset: Dataset, indices: Iterable[int], workers: int, depth: int) -> Generator[Read, None, None]:
    orders: SimpleQueue[tuple[int, Future[Read]] | None] = SimpleQueue()
    waiting: deque[Future[Read]] = deque()
    left = iter(indices)
    readers = _start_readers(dataset, orders, workers)
    if not readers:
        yield from _in_turn(dataset, left)
        return

    def order() -> Iterator[Future[Read]]:
        """A future for each sample; if the indices raise, the last one holds the error."""
        try:
            for index in left:
                place: Future[Read] = Future()
                orders.put((index, place))
                yield place
        except Exception as error:  # noqa: BLE001  raised at its place, after everything ordered before it
            place = Future()
            place.set_exception(error)
            yield place

    places = order()
    try:
        waiting.extend(islice(places, depth))
        while waiting:
            found = waiting.popleft().result()
            waiting.extend(islice(places, 1))
            yield found
    finally:
        for place in waiting:
            place.cancel()
        for _ in readers:
            orders.put(None)
        deadline = time.monotonic() + _PATIENCE
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))


def _start_readers(dataset: Dataset, orders: SimpleQueue[tuple[int, Future[Read]] | None], workers: int) -> list[threading.Thread]:
    """As many threads as the machine allows, each filling orders until it takes a None."""

    def fill() -> None:
        while (order := orders.get()) is not None:
            index, place = order
            if place.set_running_or_notify_cancel():
                try:
                    place.set_result((index, _read(dataset, index)))
                except BaseException as error:  # noqa: BLE001  raised in the thread that takes the sample
                    place.set_exception(error)
            del order, place  # a waiting reader must not hold a sample

    readers: list[threading.Thread] = []
    for number in range(workers):
        reader = threading.Thread(target=fill, name=f"reader {number}", daemon=True)
        try:
            reader.start()
        except RuntimeError:
            break
        readers.append(reader)
    return readers
