"""`moments`: robustness from the mean and covariance of the logits, propagated through the layers
without sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.errors import ModelError
from robaudit.methods.average_case.chain import Chain, chain_of
from robaudit.methods.average_case.linearised import cdf_notes
from robaudit.methods.average_case.mvn import mvn_cdf
from robaudit.models.logits import LogitModel
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.noise import Noise
from robaudit.numerics.margins import standardise
from robaudit.numerics.normal_moments import (
    MeanCovariance,
    mean_of_larger,
    probability_of_larger,
    through_affine,
    through_relu,
)
from robaudit.quantities import P_ROBUST
from robaudit.results import Result

_ENTRIES = 1 << 23  # values passed through a layer at once: 64 MiB


class Moments(Estimator):
    """P[N(m, S) > 0 in every component], m and S the mean and covariance of the margins in closed
    form: no draws, no gradients.

    Isotropic Gaussian noise on the pixels is propagated through the network layer by layer: affine
    maps are exact; the inputs of a ReLU are assumed normal, which gives means and variances in
    closed form and covariances as a series in the correlation
    (:func:`robaudit.numerics.normal_moments.through_relu`). The multivariate normal CDF of the
    margins is the value.

    It accepts chains of linear layers, convolutions, batch norms, average pooling and ReLU, and
    refuses other layers by name. Exact for linear networks. Otherwise its error comes from the
    normal approximation before each ReLU, which the computation does not show: it claims no
    interval. The error is small with many inputs to each unit (docs/research/lipschitz.md); check
    with `mc`.

    Cost: about twice as many forward passes as the widest layer has values, at any level, and a few
    times the memory of that layer's covariance.

    The row's numbers include two closed forms of the smoothed margin paper from the same moments:
    ``p_c``, the probability that the predicted class beats the other class with the largest mean
    (an upper bound for normal logits), and ``smoothed_margin``, the mean of its margin over the
    larger of the two next classes, by Clark's formula (also an upper bound: no certificate).

    Source: Smoothed robustness analysis, section 3.1 and eqs. 14, 16 and 17, there for independent
    variables; Clark 1961.
    """

    quantity = P_ROBUST
    needs = Need.LEVEL | Need.COVARIANCE
    summary = "normal CDF of the margins, their moments followed through the layers in closed form"
    prefer = (
        "small networks of linear layers, convolutions and ReLU: no sampling error; its own "
        "bias is unknown"
    )
    source = "Smoothed robustness analysis, eqs. 12 (corrected), 14, 16 and 17"

    order: int = Field(
        4, ge=1, le=12, description="terms of the series for covariances behind a ReLU"
    )
    features: int = Field(
        4096,
        ge=1,
        le=65536,
        description="the most values of a layer; their covariance is held in memory a few times",
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass; the rest are matrix products."""
        return 1, 0

    def unfit(self, form: Noise, level: float | None = None) -> str:
        """Refuse all noise but isotropic normal noise."""
        if not isinstance(form, Gaussian):
            return "it follows isotropic Gaussian noise (kind: gaussian) alone"
        return "clipped pixels are not normal" if form.clip else ""

    def check_model(self, model: LogitModel, image: Tensor) -> None:
        """Refuse networks that are not chains, and layers that are too wide."""
        widest = chain_of(model, image).widest
        if widest > self.features:
            mebibytes = widest**2 * 8 / 2**20  # of float64 values
            what = (
                f"moments would need the covariance of {widest} values "
                f"({mebibytes:.0f} MiB, a few times)"
            )
            remedy = f"allow it (moments: {{features: {widest}}}), or use logit_gaussian"
            raise ModelError(model.name, what, remedy)

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Propagate the moments of each image through the network."""
        chain = chain_of(batch.engine.model, batch.x[0])
        first = first_covariance(chain, batch.x[0])
        moments = [logit_moments(chain, x, batch.level, self.order, first) for x in batch.x]
        mean, covariance = (torch.stack(part) for part in zip(*moments, strict=True))
        predicted = batch.predicted
        margins, margin_covariance = margin_moments(mean, covariance, predicted, batch.others)
        z, r = standardise(margins, margin_covariance)
        p, error = mvn_cdf(z, r)
        rows = zip(
            p.clamp(0, 1).tolist(),
            batch.nearest(z),
            cdf_notes(error),
            closed_forms(mean, covariance, predicted),
            strict=True,
        )
        return [
            Result(value=value, flips_to=flip, forwards=1, note=note, numbers=numbers)
            for value, flip, note, numbers in rows
        ]


def first_covariance(chain: Chain, image: Tensor) -> Tensor:
    """A A^T of the first map A of the chain: its covariance under unit noise, the same for every
    image."""
    values = image.numel()
    unit = torch.eye(values, dtype=torch.float64, device=image.device)
    return through_affine(chain.affine[0], image.double(), unit, _rows_at_once(chain)).covariance


def logit_moments(
    chain: Chain, image: Tensor, sigma: float, order: int, first: Tensor
) -> MeanCovariance:
    """Mean and covariance of the logits under Gaussian noise.

    Args:
        chain: the network.
        image: (channels, height, width).
        sigma: of the noise.
        order: terms of the series behind a ReLU.
        first: :func:`first_covariance`.

    Source: Smoothed robustness analysis, section 3.1.
    """
    # An affine map takes the mean to its value there, and the covariance sigma^2 I to
    # sigma^2 A A^T.
    first_map, *later_maps = chain.affine
    mean = first_map(image.double()[None])[0].flatten()
    moments = MeanCovariance(mean, sigma**2 * first)
    for function, shape in zip(later_maps, chain.shapes[1:], strict=True):
        moments = through_relu(moments, order)
        mean = moments.mean.reshape(shape)
        moments = through_affine(function, mean, moments.covariance, _rows_at_once(chain))
    return moments


def _rows_at_once(chain: Chain) -> int:
    """Rows of a covariance that pass through a layer together."""
    return max(1, _ENTRIES // chain.widest)


def margin_moments(
    mean: Tensor, covariance: Tensor, y: Tensor, others: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the margins z_y - z_j.

    Args:
        mean: of the logits (images, classes).
        covariance: (images, classes, classes).
        y: the class of each image (images,).
        others: the other classes (images, classes - 1).

    Returns:
        (images, classes - 1) and (images, classes - 1, classes - 1).
    """
    classes = mean.shape[1]
    unit = torch.eye(classes, dtype=mean.dtype, device=mean.device)
    # margins = D z, with a row e_y - e_j for each other class j: their covariance is D S D^T
    differences = unit[y][:, None] - unit[others]  # (images, classes - 1, classes)
    margins = (differences @ mean[:, :, None])[:, :, 0]
    return margins, differences @ covariance @ differences.mT


def closed_forms(mean: Tensor, covariance: Tensor, y: Tensor) -> list[dict[str, float]]:
    """P_c and Clark's smoothed margin of each image.

    Args:
        mean, covariance: of the logits, as in :func:`margin_moments`.
        y: the class of each image (images,).
    """
    forms = []
    for m, s, c in zip(mean, covariance, y.tolist(), strict=True):
        first, *others = (k for k in m.argsort(descending=True).tolist() if k != c)
        variance = s.diagonal()
        # T of eq. 12: the standard deviations of the differences between logits (classes, classes)
        spread = (variance[:, None] + variance - 2 * s).clamp_min(0).sqrt()
        largest = m[first]
        if others:
            second = others[0]
            largest = mean_of_larger(m[first], m[second], spread[first, second])
        p_c = probability_of_larger(m[c], m[first], spread[c, first])  # eq. 14
        forms.append({"p_c": float(p_c), "smoothed_margin": float(m[c] - largest)})
    return forms
