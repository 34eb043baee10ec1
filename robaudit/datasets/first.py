"""Which are the first readable samples of a data set?"""

from __future__ import annotations

from collections.abc import Iterator

from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import NothingLeftError, SampleError


def first_samples(dataset: Dataset, count: int, *, skip_bad: bool) -> Iterator[Sample]:
    """The first readable samples.

    Raises:
        SampleError: one is unreadable, and shall stop the run.
        NothingLeftError: none is readable.
    """
    taken = 0
    refused: SampleError | None = None
    for i in range(len(dataset)):
        if taken == count:
            return
        try:
            sample = dataset[i]
        except SampleError as error:
            if not skip_bad:
                raise error.or_skip() from error
            refused = refused or error
            continue
        taken += 1
        yield sample
    if refused is not None and not taken:
        raise NothingLeftError(dataset.where, f"none of its {len(dataset)} samples can be used", f"the first: {refused}")
