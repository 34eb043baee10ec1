"""How are samples read and decoded while the network computes, in order and within bounded memory?"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Literal

import torch

from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import SampleError

_WORKERS = 4  # on CUDA
_PATIENCE = 2.0  # seconds for readers to end; one that waits longer for its disk ends with the process

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
    """Read samples in order, ahead of whoever takes them; the same samples whatever the number of workers.

    Reading begins when the first sample is asked for. The readers are threads: they end when the generator is closed or exhausted,
    and never outlive the process. An unusable sample is given as its error; any other exception, of the data set or of ``indices``,
    is raised at its place, after all that comes before it.

    Args:
        dataset: what to read; with workers, several threads read it at once.
        indices: which samples, in order; with workers, taken from it ``depth`` ahead, in the caller's thread.
        workers: threads; 0 reads in the caller's thread, when a sample is asked for.
        depth: the most samples that are read (or being read) and not yet taken; means nothing without workers.

    Yields:
        The index, and the sample or what is wrong with it.

    Raises:
        ValueError: no such number of workers or samples.
    """
    if workers < 0 or (workers and depth < 1):
        raise ValueError(f"{workers} workers and {depth} samples ahead; at least 0 and 1")
    return _ahead(_Shelf(dataset, iter(indices), depth), min(workers, depth)) if workers else _in_turn(dataset, indices)


def _in_turn(dataset: Dataset, indices: Iterable[int]) -> Generator[Read, None, None]:
    for index in indices:
        yield index, _read(dataset, index)


def _read(dataset: Dataset, index: int) -> Sample | SampleError:
    try:
        return dataset[index]
    except SampleError as error:
        return error


def _ahead(shelf: _Shelf, workers: int) -> Generator[Read, None, None]:
    readers = _started(workers, shelf.fill)
    if not readers:
        yield from _in_turn(shelf.dataset, shelf.indices)
        return
    try:
        shelf.order()
        while shelf.ordered:
            found = shelf.ordered[0].result()
            shelf.ordered.popleft()
            shelf.order()
            yield found
    finally:
        shelf.close(len(readers))
        deadline = time.monotonic() + _PATIENCE
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))


def _started(workers: int, work: Callable[[], None]) -> list[threading.Thread]:
    """As many threads as the machine gives."""
    readers: list[threading.Thread] = []
    for number in range(workers):
        reader = threading.Thread(target=work, name=f"reader {number}", daemon=True)
        try:
            reader.start()
        except RuntimeError:
            break
        readers.append(reader)
    return readers


class _Shelf:
    """Places for samples, in order: each is ordered, filled by one reader, and taken.

    Attributes:
        dataset: what is read.
        indices: what is still to be ordered.
        ordered: places that are not yet taken.
    """

    def __init__(self, dataset: Dataset, indices: Iterator[int], depth: int) -> None:
        self.dataset, self.indices, self._depth = dataset, indices, depth
        self.ordered: deque[Future[Read]] = deque()
        self._orders: SimpleQueue[tuple[int, Future[Read]] | None] = SimpleQueue()
        self._more = True

    def order(self) -> None:
        """Order places until there are as many as there may be."""
        while self._more and len(self.ordered) < self._depth:
            place: Future[Read] = Future()
            try:
                self._orders.put((next(self.indices), place))
            except StopIteration:
                self._more = False
                return
            except Exception as error:  # noqa: BLE001  its place is after all that was ordered before it
                self._more = False
                place.set_exception(error)
            self.ordered.append(place)

    def fill(self) -> None:
        """Fill one place after another until there is no more to do: the work of a reader."""
        while (order := self._orders.get()) is not None:
            index, place = order
            if place.set_running_or_notify_cancel():
                try:
                    place.set_result((index, _read(self.dataset, index)))
                except BaseException as error:  # noqa: BLE001  it belongs to whoever takes the sample
                    place.set_exception(error)
            del order, place  # a reader that waits holds no sample

    def close(self, readers: int) -> None:
        """Let so many readers finish what they read now, and end."""
        for place in self.ordered:
            place.cancel()
        for _ in range(readers):
            self._orders.put(None)
