"""What a plugin sees of the noise: `ImageBatch.noisy`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robaudit import Result
from robaudit.engine.batch import ImageBatch
from robaudit.engine.registry import Task
from robaudit.methods.average_case.mc import MonteCarlo
from tests.cli.plugin.faulty import Faulty, estimates
from tests.unit.engine.tools import build, curved, known, work_on

DRAWS = 30


def votes(batch: ImageBatch) -> list[list[int]]:
    counts = torch.zeros((len(batch.x), batch.classes), dtype=torch.int64)
    for logits, image in batch.noisy(DRAWS):
        counts.index_put_((image, logits.argmax(1)), torch.ones_like(image), accumulate=True)
    return [[int(n) for n in row] for row in counts]


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_its_copies_are_those_of_mc(batch_size: int | None, dtype: torch.dtype) -> None:
    batch = work_on(curved().to(dtype), sigma=0.8, batch_size=batch_size, dtype=dtype)
    assert votes(batch) == [
        list(known(one.votes).counts) for one in build("mc", draws=DRAWS).estimate(batch)
    ]
    assert not batch.lost


def test_every_image_gets_its_draws_and_the_caller_the_memory() -> None:
    """What is kept is not overwritten by later batches, may be changed, and may enter autograd."""
    batch = work_on(curved(), sigma=0.8, batch_size=16)
    kept = [(logits, image, logits.clone()) for logits, image in batch.noisy(DRAWS)]
    assert torch.bincount(torch.cat([image for _, image, _ in kept])).tolist() == [DRAWS] * len(
        batch.x
    )
    for logits, _, then in kept:
        assert (logits.dtype, logits.shape[1]) == (torch.float64, batch.classes)
        assert torch.equal(logits, then)
        logits.requires_grad_(True).sum().backward()


def broken(x: Tensor) -> Tensor:
    """Not finite where an image is bright."""
    out: Tensor = curved()(x)
    return torch.where(x.flatten(1).sum(1, keepdim=True) > 13.5, out * torch.nan, out)


def test_copies_that_are_not_finite_are_failures() -> None:
    batch = work_on(broken, images=4)
    reference = [one.value for one in MonteCarlo(draws=DRAWS).estimate(batch)]
    kept = torch.zeros(4)
    for logits, image in batch.noisy(DRAWS):
        assert logits.isfinite().all()
        kept.index_add_(0, image, (logits.argmax(1) == batch.predicted[image]).float())
    assert (kept / DRAWS).tolist() == pytest.approx(reference)
    assert sum(batch.lost.values()) > 0


class Looking(Faulty):
    """Looks at its copies."""

    def estimate(self, batch: ImageBatch) -> list[Result]:
        for _ in batch.noisy(DRAWS):
            pass
        return estimates(batch)


def test_the_note_tells_of_them() -> None:
    batch = work_on(broken, images=4)
    lost = [known(one.votes).lost for one in MonteCarlo(draws=DRAWS).estimate(batch)]
    task = Task(Looking(fault=""), "looking")
    for _ in range(2):  # counted anew for each estimator
        for (one, *_), n in zip(task.results(batch), lost, strict=True):
            assert (
                one.note.endswith(f"{n} noisy copies gave non-finite logits, counted as flips")
                or not n
            )
    assert any(lost)
