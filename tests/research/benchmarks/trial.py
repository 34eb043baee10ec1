"""Error and cost of each setting of the estimators on one network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.methods.average_case.mmse import Mmse
from robaudit.numerics.margins import margin_gradients
from robaudit.results import Result
from tests.research.benchmarks.cost import Point, Reference
from tests.research.benchmarks.networks import Network, estimator
from tests.research.benchmarks.replay import Replay
from tests.research.benchmarks.timing import alternating, seconds, timed
from tests.unit.engine.tools import OneValue

Outcome = tuple[Sequence[Result], float]
Clean = tuple[ImageBatch, float]


@dataclass(frozen=True, slots=True)
class Setting:
    """An estimator with options, on the curve ``line``."""

    line: str
    label: str
    name: str
    options: dict[str, Any]


def settings(draws: int, linear: Sequence[int] = (5, 10)) -> list[Setting]:
    """What is tried: mc with at most so many draws, mmse with those of ``linear``."""
    found = [
        Setting("mc", f"mc {n:,}", "mc", {"draws": n})
        for n in (64, 128, 256, 512, 1024, 2048, 4096)
        if n <= draws
    ]
    line = "logit_gaussian"
    found += [
        Setting(line, f"logit_gaussian {n}", "logit_gaussian", {"draws": n})
        for n in (16, 32, 64, 128, 256, 512)
        if n <= draws
    ]
    for name in ("mmse", "mmse_mvs"):
        found += [_mmse(name, n) for n in linear if n < draws // 8 + 1]
    return found + [Setting(name, name, name, {}) for name in ("taylor", "taylor_mvs", "softmax")]


def _mmse(name: str, samples: int) -> Setting:
    pairs = samples % 2 == 0
    return Setting(
        name,
        f"{name} {samples}" + ("" if pairs else " (no pairs)"),
        name,
        {"samples": samples, "pairs": pairs},
    )


@dataclass(frozen=True)
class Trial:
    """One network at one sigma under several seeds, each with so many mc draws.

    The reference of a seed is mc with the draws of all the other seeds; mmse is tried with each
    number of draws in ``linear``.
    """

    network: Network
    sigma: float
    draws: int
    seeds: Sequence[int]
    say: Callable[[str], None]
    linear: Sequence[int] = (5, 10)

    def points(self) -> list[Point]:
        """Error and cost of every setting."""
        plans = [
            (setting, estimator(setting.name, **setting.options))
            for setting in settings(self.draws, self.linear)
        ]
        clean = self._clean()
        backward = self._backward_in_forwards()
        outcomes: list[list[Outcome]] = []
        converged: list[Tensor] = []
        for seed in self.seeds:
            replay = Replay(self.network.engine(seed))
            converged.append(
                _values(estimator("mc", draws=self.draws).estimate(self._work(replay, clean[0])))
            )
            outcomes.append(
                self._outcomes(
                    [chosen for _, chosen in plans],
                    replay,
                    clean,
                    outcomes[0] if outcomes else None,
                )
            )
            self.say(
                f"  {self.network.name}, sigma {self.sigma:g}, seed {seed}: "
                f"{replay.made / replay.spent:,.0f} noisy images/s"
            )
        references = [
            Reference.of([c for j, c in enumerate(converged) if j != i], self.draws)
            for i in range(len(self.seeds))
        ]
        return [
            self._point(setting, [one[k] for one in outcomes], references, backward)
            for k, (setting, _) in enumerate(plans)
        ]

    def _point(
        self,
        setting: Setting,
        runs: Sequence[Outcome],
        references: Sequence[Reference],
        backward: float,
    ) -> Point:
        rmse = tuple(
            reference.rmse(_values(estimates))
            for reference, (estimates, _) in zip(references, runs, strict=True)
        )
        forwards = fmean(e.forwards for estimates, _ in runs for e in estimates)
        backwards = fmean(e.backwards for estimates, _ in runs for e in estimates)
        each = fmean(took for _, took in runs) / len(self.network.x)
        return Point(
            setting.line,
            setting.label,
            rmse,
            forwards,
            backwards,
            forwards + backward * backwards,
            each,
        )

    def _outcomes(
        self, chosen: Sequence[OneValue], replay: Replay, clean: Clean, before: list[Outcome] | None
    ) -> list[Outcome]:
        """Estimates and seconds of every setting under one seed; what draws nothing is taken from
        the seed before."""
        fits: dict[tuple[int, bool], tuple[ImageBatch, float]] = {}
        passed, passing = clean
        found: list[Outcome] = []
        for k, one in enumerate(chosen):
            chunk = self._work(replay, passed)
            if isinstance(one, Mmse):
                key = (one.draws, one.pairs)
                if key not in fits:
                    fits[key] = chunk, seconds(partial(one.linear, chunk), self.network.x.device)
                chunk, fitting = fits[key]
                estimates, own = timed(partial(one.estimate, chunk), self.network.x.device)
                found.append((estimates, passing + fitting + own))
            elif before is not None and one.passes(self.network.classes)[0] == 1:
                found.append(before[k])
            else:
                spent = replay.spent
                estimates, own = timed(partial(one.estimate, chunk), self.network.x.device)
                drawn = sum(e.forwards - 1 for e in estimates)
                found.append(
                    (
                        estimates,
                        passing + own - (replay.spent - spent) + drawn * replay.spent / replay.made,
                    )
                )
        return found

    def _work(self, replay: Replay, clean: ImageBatch) -> ImageBatch:
        return replace(
            clean.select(torch.ones_like(clean.predicted, dtype=torch.bool)), engine=replay
        )

    def _clean(self) -> Clean:
        passing = partial(self.network.batch, self.sigma)
        passing()
        return timed(passing, self.network.x.device)

    def _backward_in_forwards(self) -> float:
        """Seconds of one backward pass over seconds of one noisy forward pass, so that mmse's
        passes add up to its time."""
        engine = self.network.engine()
        x = self.network.x
        rows = engine.gradient_rows(x.shape[1:], self.network.classes - 1)
        batch = x[torch.arange(rows, device=x.device) % len(x)]
        chunk = self.network.batch(self.sigma, engine)
        draws = estimator("mc", draws=128)
        contenders = {
            "forward": lambda: draws.estimate(chunk),
            "gradients": lambda: margin_gradients(self.network.model, batch),
        }
        times = alternating(contenders, x.device, 3)
        forward = times["forward"] / (128 * len(x))
        return max(0.0, (times["gradients"] / rows / forward - 1) / (self.network.classes - 1))


def _values(estimates: Sequence[Result]) -> Tensor:
    return torch.tensor([e.value for e in estimates], dtype=torch.float64)
