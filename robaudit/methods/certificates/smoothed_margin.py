"""`smoothed_margin`: a radius within which the mean margin under Gaussian noise provably keeps its
sign."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.methods.certificates.certificate import certificate
from robaudit.methods.certificates.lipschitz_certificates import (
    LipschitzCertificate,
    furthest,
    rounding,
)
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.noise import Noise
from robaudit.numerics.rowwise import mean_over
from robaudit.results import Certificate, Result
from robaudit.spec.fields import SAMPLES_ARE_DRAWS


class SmoothedMargin(LipschitzCertificate):
    """A radius within which the mean of L = max over j of (z_j - z_c) under Gaussian noise stays
    negative, with confidence 1 - alpha.

    c is the class of the clean image. It certifies the mean margin, not the majority vote under
    noise: a negative mean of L implies P[c] > 1/2 only for independent and symmetric logits.
    Without any assumption it implies, at the image itself, P[class is not c] <= exp(-eps^2 / (2
    sigma^2)), eps the l2 radius (``certificate.p_error``).

    Proof. Let K_p = max_j K_cj for perturbations in l_p. L is a maximum of functions with these
    constants, so |L(x) - L(y)| <= K_p |x - y|_p. So is its mean under noise, g(x) = E L(x + N), as
    a mean of shifted functions. The mean of L over n independent draws is a function of n d
    standard normal variables with constant sigma K_2 / sqrt(n) in l2, whichever norm is certified.
    By Gaussian concentration (Tsirelson, Ibragimov and Sudakov 1976) g(x) <= mean_n L + K_2 sigma
    sqrt(2 ln(1/alpha) / n) with probability 1 - alpha. Call the right-hand side -m. Then g(x + d)
    <= -m + K_p |d|_p < 0 for |d|_p < m / K_p, the radius. By the same concentration with n = 1,
    P[L(x + N) >= 0] <= P[L - g >= m] <= exp(-m^2 / (2 K_2^2 sigma^2)). All norms share the event of
    probability 1 - alpha. Clipping of noisy pixels changes none of this.

    Cost: ``draws`` forward passes. The radius does not grow with sigma; as sigma tends to 0 it
    becomes `margin_radius` with the largest constant. Copies are computed in the precision of the
    network: ``run.precision`` does not apply.

    Source: Smoothed robustness analysis, theorem 4, with the sampling error, which the paper leaves
    out.
    """

    needs = Need.LEVEL | Need.RANDOM | Need.INPUT
    summary = (
        "a radius within which the mean margin under Gaussian noise stays positive, from a "
        "Lipschitz constant"
    )
    prefer = (
        "networks with a small Lipschitz constant; certified_radius needs none, and "
        "certifies the majority vote"
    )
    source = "Smoothed robustness analysis, theorem 4"

    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(1000, ge=1, le=10**7, description="noisy copies of each image")
    alpha: float = Field(
        0.001, gt=0, lt=1, description="the probability that an image's radius is too large"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and the draws."""
        return 1 + self.draws, 0

    def unfit(self, form: Noise, level: float | None = None) -> str:
        """Refuse noise other than isotropic normal noise, which the concentration bound needs."""
        if isinstance(form, Gaussian):
            return ""
        return "its proof needs isotropic Gaussian noise (kind: gaussian)"

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Average L, and subtract the sampling error of n draws.

        Raises:
            ModelError: the network has no constant, or the images contradict the declared constant.
        """
        bound = self.bound(batch)
        predicted = batch.predicted
        sigma = batch.level
        # K_2 of the sampling error, whichever norm is certified.
        k2 = bound.of_loss("l2", predicted)
        losses = self._losses(batch, k2, bound.span)
        lost = (~losses.isfinite()).sum(1)
        known = torch.where(lost[:, None] > 0, 0.0, losses)
        mean = mean_over(known, 1)
        # m of the proof: Smoothed robustness analysis, theorem 4, less the sampling error.
        deviation = math.sqrt(2 * math.log(1 / self.alpha) / self.draws)
        margin = -mean - k2 * sigma * deviation
        # A copy without finite logits might have any loss, so nothing is certified.
        margin = torch.where(lost > 0, -1.0, margin)
        # P[L >= 0] <= exp(-(m / K_2)^2 / (2 sigma^2)), by concentration with n = 1.
        reach = furthest(margin, k2)
        exponent = -reach.clamp_min(0).square() / (2 * sigma**2)
        p_error = torch.exp(exponent)
        by_norm = []
        for norm in self.norm:
            constants = bound.of_loss(norm, predicted)
            columns = (furthest(margin, constants), -mean, constants, p_error, predicted, lost)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            by_norm.append([self._row(*row) for row in rows])
        return list(zip(*by_norm, strict=True))

    def _losses(self, batch: ImageBatch, constants: Tensor, span: float) -> Tensor:
        """L of every noisy copy (images, draws), rounded up by the possible rounding error.

        NaN where a logit is not finite.
        """
        n = len(batch.x)
        y = batch.predicted
        model = batch.model
        losses = torch.empty(n * self.draws, dtype=torch.float64, device=batch.x.device)
        rows = batch.engine.rows(batch.x.shape[1:])
        for noisy in batch.engine.noisy_batches(batch.x, batch.ids, batch.at, self.draws, rows):
            with torch.inference_mode():
                logits = model(noisy.padded)[: len(noisy.x)].double()
            target = y[noisy.image][:, None]
            own = logits.gather(1, target)[:, 0]
            others = logits.scatter(1, target, -torch.inf).amax(1)
            # Noise of sigma adds sigma sqrt(pixels) to the norm of the pixels.
            largest = (1 + batch.level) * constants[noisy.image]
            loss = others - own + rounding(batch, logits, largest, span)
            losses[noisy.image * self.draws + noisy.draw] = torch.where(
                logits.isfinite().all(1), loss, torch.nan
            )
        return losses.view(n, self.draws)

    def _row(
        self, radius: float, mean: float, constant: float, p_error: float, predicted: int, lost: int
    ) -> Result:
        """The result of an image; ``mean``: of the smoothed margin."""
        remarks = [self.remark()] if self.lipschitz is not None else []
        if lost:
            remarks.append(f"{lost} noisy copies gave non-finite logits: nothing is certified")
        return certificate(
            radius,
            predicted,
            predicted,
            self.passes(0),
            note="; ".join(remarks),
            details=Certificate(alpha=self.alpha, p_error=p_error),
            numbers={"smoothed_margin": mean, "lipschitz": constant},
            lost=lost,
        )
