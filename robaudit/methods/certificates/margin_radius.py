"""`margin_radius`: the radius certified by a Lipschitz constant of the network."""

from __future__ import annotations

import torch

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.methods.certificates.certificate import certificate
from robaudit.methods.certificates.lipschitz_certificates import (
    LipschitzCertificate,
    furthest,
    rounding,
)
from robaudit.results import Result


class MarginRadius(LipschitzCertificate):
    """min over j of (z_c - z_j) / K_cj, c the predicted class and K_cj a Lipschitz constant of z_c
    - z_j: no shorter perturbation flips it.

    It is proven, and needs no draws: (z_c - z_j)(x + d) >= (z_c - z_j)(x) - K_cj |d| > 0 for |d|
    below the radius. The constants hold everywhere, so the radius is often far below any attack's.
    How far depends on the network (1-Lipschitz layers: hardly; ordinary deep networks: uselessly
    far). It is exact for linear networks.

    A computed constant includes the model's own normalisation. A margin counts only as far as it
    exceeds the possible rounding error of the network
    (:func:`robaudit.methods.certificates.lipschitz_certificates.rounding`). A declared K of the
    logits gives K_cj = sqrt(2) K in l2 and 2 K in linf.

    Source: Tsuzuku, Sato and Sugiyama 2018, Lipschitz-margin training; Smoothed robustness
    analysis, corollary 2.1.
    """

    needs = Need.NOTHING
    summary = (
        "a radius within which the class provably stays, from a Lipschitz constant of the network"
    )
    prefer = (
        "a proof for the network itself, at the price of one pass; far too small for most "
        "deep networks"
    )
    source = "Tsuzuku et al. 2018; Smoothed robustness analysis, corollary 2.1"

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass."""
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Divide margins by constants.

        Raises:
            ModelError: the network has no constant, or the images contradict the declared constant.
        """
        bound = self.bound(batch)
        logits = batch.logits
        predicted = batch.predicted
        own = logits.gather(1, predicted[:, None])  # (images, 1)
        # Less the rounding error, so that the bound of exact arithmetic holds for the network.
        l2_constants = bound.of_margins("l2", predicted)
        margins = own - logits - rounding(batch, logits, l2_constants, bound.span)
        itself = torch.arange(batch.classes, device=logits.device) == predicted[:, None]
        by_norm = []
        for norm in self.norm:
            constants = bound.of_margins(norm, predicted)
            # Smoothed robustness analysis, corollary 2.1: min_j (z_c - z_j) / K_cj.
            radii = torch.where(itself, torch.inf, furthest(margins, constants))
            # The class that could be reached first decides.
            radius, nearest = radii.min(1)
            margin = (own - logits).gather(1, nearest[:, None])[:, 0]
            constant = constants.gather(1, nearest[:, None])[:, 0]
            columns = (radius, margin, constant, predicted)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            by_norm.append([self._row(bound.constant[norm], *row) for row in rows])
        return list(zip(*by_norm, strict=True))

    def _row(
        self, network: float, radius: float, margin: float, constant: float, predicted: int
    ) -> Result:
        """The result of an image; ``network``: the constant of all logits."""
        # By these a reader can check the quotient.
        numbers = {"margin": margin, "lipschitz": constant, "lipschitz_of_logits": network}
        return certificate(
            radius,
            predicted,
            predicted,
            (1, 0),
            note=self.remark(),
            numbers=numbers,
        )
