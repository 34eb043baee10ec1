"""Coverage, by the jackknife intervals of `logit_gaussian` and `mmse`, of the value the estimator
converges to.

Two classes whose margin is a polynomial of the noise, so that the truth is known:

    g(x + e) = b + sum_i (w e_i + c e_i^3 - q e_i^2)

Under e ~ N(0, s^2 I_d) its mean is b - q s^2 d, its variance d (w^2 s^2 + 6 w c s^4 + 15 c^2 s^6 +
2 q^2 s^4), its mean gradient w + 3 c s^2 in every pixel. The quadratic part shifts the mean so far
that p below one half is possible though x is classified as itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import chi2, norm
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine
from robaudit.models import from_module
from robaudit.quantities import IntervalKind
from robaudit.results import Result
from tests.levels import gaussian_process, sigma
from tests.research.coverage.study import CASES, PROBABILITIES, Line
from tests.unit.engine.tools import build

SIGMA = 0.5
JACKKNIFE = "jackknife:approximate"


@dataclass(frozen=True, slots=True)
class Curve:
    """How a margin bends: the shares of its variance that are quadratic and cubic (the part beyond
    the linear one), of the whole 1.

    Attributes:
        name: for the table.
        quadratic: 2 q^2 s^4 d.
        cubic: 6 c^2 s^6 d, what of c e^3 is orthogonal to e.
        shape: of the images.
    """

    name: str
    quadratic: float
    cubic: float
    shape: tuple[int, int, int] = (3, 8, 8)

    @property
    def pixels(self) -> int:
        """d."""
        return math.prod(self.shape)

    @property
    def mean_shift(self) -> float:
        """q s^2 d."""
        return math.sqrt(self.quadratic * self.pixels / 2)

    def network(self, offset: float) -> torch.nn.Module:
        """Logits (g, 0) around the grey image, g with the offset b."""
        d = self.pixels
        q = math.sqrt(self.quadratic / (2 * d)) / SIGMA**2
        c = math.sqrt(self.cubic / (6 * d)) / SIGMA**3
        # of the linear part, w + 3 c s^2
        slope = math.sqrt((1 - self.quadratic - self.cubic) / d) / SIGMA

        class Polynomial(torch.nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                e = x.flatten(1) - 0.5
                g = offset + (((slope - 3 * c * SIGMA**2) * e + c * e**3 - q * e**2).double()).sum(
                    1
                )
                return torch.stack([g, torch.zeros_like(g)], dim=1).float()

        return Polynomial()

    def limit(self, estimator: str) -> float:
        """Standard deviation that the converged estimate divides the mean by: of the margin, or of
        its linear part."""
        return 1.0 if estimator == "logit_gaussian" else math.sqrt(1 - self.quadratic - self.cubic)

    def batch(self, offset: float, cases: int, seed: int) -> ImageBatch:
        """So many images that all look alike, with noise of their own."""
        model = from_module(self.network(offset))
        x = torch.full((cases, *self.shape), 0.5)
        engine = Engine(model, gaussian_process(seed, torch.device("cpu")), 2, 256)
        return ImageBatch.from_images(engine, x, sigma(SIGMA))


LINEAR = Curve("linear margin", 0.0, 0.0)
GENTLE = Curve("gently curved (.10 quadratic, .05 cubic)", 0.10, 0.05)
STRONG = Curve("strongly curved (.3 quadratic, .3 cubic)", 0.3, 0.3)
SKEWED = Curve("purely quadratic in 4 pixels", 1.0, 0.0, (1, 2, 2))
FEW = "Few draws of strongly varying gradients: the jackknife sees the bias to first order only."
FEW_FLOOR = 0.9
"""What is documented there (docs/research/coverage.md), instead of the nominal coverage."""
SETTINGS: dict[str, tuple[str, dict[str, object], tuple[Curve, ...]]] = {
    "logit_gaussian": ("logit_gaussian", {"draws": 96}, (LINEAR, GENTLE, STRONG)),
    "mmse in pairs": ("mmse", {"draws": 10}, (GENTLE, STRONG)),
    "mmse in more pairs": ("mmse", {"draws": 64}, (STRONG,)),
    "mmse without pairs": ("mmse", {"draws": 10, "pairs": False}, (LINEAR, GENTLE, STRONG)),
}


def jackknife(setting: str, curve: Curve, p: float, cases: int = CASES) -> Iterator[Line]:
    """The intervals of one estimator on one network, at one converged value (none, if x would be
    misclassified)."""
    name, options, _ = SETTINGS[setting]
    offset = curve.mean_shift + curve.limit(name) * float(norm.ppf(p))
    if offset > 0:
        rows = [
            row
            for row in build(name, **options).estimate(curve.batch(offset, cases, round(1000 * p)))
            if row.interval.kind is IntervalKind.JACKKNIFE
        ]
        yield _line(
            JACKKNIFE,
            f"{setting}; {curve.name}",
            p,
            rows,
            FEW if name == "mmse" and curve is STRONG else "",
        )


def votes(p: float, cases: int = CASES) -> Iterator[Line]:
    """Images whose margins `logit_gaussian` finds not to be normal, decided by the votes of its
    antithetic pairs."""
    offset = SKEWED.mean_shift / SKEWED.pixels * float(chi2.ppf(p, SKEWED.pixels))
    batch = SKEWED.batch(offset, cases, round(1000 * p))
    rows = [
        row
        for row in build("logit_gaussian", draws=256).estimate(batch)
        if row.interval.kind is IntervalKind.ANTITHETIC
    ]
    yield _line("antithetic pairs", f"logit_gaussian decided by votes; {SKEWED.name}", p, rows)


def _line(interval: str, setting: str, p: float, rows: Sequence[Result], exempt: str = "") -> Line:
    ends = np.array([(row.lower, row.upper) for row in rows], dtype=np.float64)
    return Line.of(
        interval, setting, p, ends[:, 0], ends[:, 1], [row.forwards - 1 for row in rows], exempt
    )


def lines(cases: int = CASES) -> Iterator[Line]:
    """All of them."""
    for setting, (_, _, curves) in SETTINGS.items():
        for curve in curves:
            for p in PROBABILITIES:
                yield from jackknife(setting, curve, p, cases)
    for p in PROBABILITIES:
        yield from votes(p, cases)
