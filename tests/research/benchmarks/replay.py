"""Prefixes of the same noisy passes, replayed for many settings of an estimator through the
estimator's own code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from robaudit.engine.passes import Engine, NoisyRows
from robaudit.levels import NoiseLevel
from tests.research.benchmarks.timing import seconds


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the estimators read of a `NoisyRows`."""

    image: Tensor
    draw: Tensor


class Replay(Engine):
    """An engine that makes each noisy forward pass once and answers from memory afterwards.

    The noise of draw k depends on the sample and k alone, so that a setting with fewer draws sees
    what it would see by itself. Passes that are differentiated are not remembered.

    Attributes:
        spent: seconds in passes made so far.
        made: their number.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.model, engine.noises, engine.classes)
        self._engine = engine
        self._logits: dict[tuple[str, NoiseLevel, bool, bool], Tensor] = {}
        self.spent = 0.0
        self.made = 0

    def rows(self, shape: Sequence[int]) -> int:
        """Rows in one forward pass, as the engine has them."""
        return self._engine.rows(shape)

    def noisy_logits(
        self,
        x: Tensor,
        ids: Sequence[str],
        at: NoiseLevel,
        draws: int,
        *,
        start: int = 0,
        pairs: bool = False,
        orthogonal: bool = False,
        rows: int | None = None,
    ) -> Iterator[tuple[NoisyRows, Tensor]]:
        """All the passes asked for as one batch."""
        self._make(x, ids, at, start + draws, pairs, orthogonal)
        index = torch.arange(len(ids) * draws, device=x.device)
        logits = torch.cat(
            [
                self._logits[sample_id, at, pairs, orthogonal][start : start + draws]
                for sample_id in ids
            ]
        )
        yield cast(NoisyRows, Remembered(index // draws, index % draws)), logits

    def _make(
        self,
        x: Tensor,
        ids: Sequence[str],
        at: NoiseLevel,
        draws: int,
        pairs: bool,
        orthogonal: bool,
    ) -> None:
        """Make what is missing of the draws, together for the images that have as many of them."""
        have = {
            b: len(self._logits.get((sample_id, at, pairs, orthogonal), ()))
            for b, sample_id in enumerate(ids)
        }
        for begin in sorted({count for count in have.values() if count < draws}):
            some = [b for b, count in have.items() if count == begin]
            fresh = torch.empty(
                (len(some) * (draws - begin), self.classes), dtype=x.dtype, device=x.device
            )

            def run(some: list[int] = some, begin: int = begin, fresh: Tensor = fresh) -> None:
                count = draws - begin
                names = [ids[b] for b in some]
                passes = self._engine.noisy_logits(
                    x[some], names, at, count, start=begin, pairs=pairs, orthogonal=orthogonal
                )
                for batch, part in passes:
                    fresh[batch.image * count + batch.draw] = part

            self.spent += seconds(run, x.device)
            self.made += len(fresh)
            for b, part in zip(some, fresh.view(len(some), draws - begin, -1), strict=True):
                key = (ids[b], at, pairs, orthogonal)
                self._logits[key] = (
                    torch.cat([self._logits[key], part]) if key in self._logits else part
                )
