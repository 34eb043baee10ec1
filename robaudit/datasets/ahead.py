"""Read samples ahead in threads while the network computes, in order and in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import torch

from robaudit.datasets.dataset import Dataset, Sample
from robaudit.errors import SampleError

_THREADS_ON_CUDA = 4

Read = tuple[int, Sample | SampleError]


def readers(device: torch.device, kind: str) -> int:
    """The number of threads that read ahead: none on the CPU, whose cores the network needs.

    Args:
        device: the network's.
        kind: of the data set; ``python`` code may not be thread-safe.
    """
    return 0 if device.type == "cpu" or kind == "python" else _THREADS_ON_CUDA


def read_ahead(
    dataset: Dataset, indices: Iterable[int], workers: int, depth: int
) -> Generator[Read, None, None]:
    """Read samples in order, ahead of the caller; the number of workers does not change the result.

    Reading begins with the first request. An unusable sample is yielded as its error; any other
    exception of the data set is raised in order. The readers end when the generator is closed or
    exhausted.

    Threads, not the processes of torch's DataLoader: decoders release the interpreter's lock, and a
    data set need not be pickled.

    Args:
        dataset: what to read; with workers, several threads read it at once.
        indices: which samples, in order; with workers, taken ``depth`` ahead, in the caller's
            thread.
        workers: threads; 0 reads in the caller's thread, on request.
        depth: the most samples read or being read ahead of the caller; ignored without workers.

    Yields:
        The index, and the sample or its error.
    """
    if not workers:
        yield from (_read(dataset, index) for index in indices)
        return
    pool = ThreadPoolExecutor(min(workers, depth), thread_name_prefix="reader")
    # Lazy: a read begins when `waiting` takes it.
    reads = (pool.submit(_read, dataset, index) for index in indices)
    try:
        waiting: deque[Future[Read]] = deque(islice(reads, depth))
        while waiting:
            result = waiting.popleft().result()
            # Begin the next read before the caller computes, so that the two overlap.
            waiting.extend(islice(reads, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _read(dataset: Dataset, index: int) -> Read:
    try:
        return index, dataset[index]
    except SampleError as error:
        return index, error
