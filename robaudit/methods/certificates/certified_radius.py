"""`certified_radius`: the radius within which the majority vote under noise provably keeps its
class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.votes import Counts, count_votes, in_rounds
from robaudit.methods.certificates.certificate import CERTIFICATE, certificate
from robaudit.methods.certificates.smoothing import (
    BOX,
    GAUSSIAN,
    LAPLACE,
    Question,
    Theorem,
    fewest_draws,
    largest_radius,
    last_alpha,
    p_lower,
)
from robaudit.names import Part
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.laplace import Laplace
from robaudit.noise.noise import Noise
from robaudit.noise.uniform import Uniform
from robaudit.quantities import CERTIFIED
from robaudit.results import Certificate, Result
from robaudit.spec.fields import SAMPLES_ARE_DRAWS, WRONG_KEY, about_key

_USUAL_TO_DECIDE = 2000


class CertifiedRadius(Estimator):
    """R such that no perturbation of norm below R changes the majority class of the noisy copies
    (randomized smoothing).

    ``selection`` copies choose the class, ``draws`` further copies bound its probability from
    below (Clopper-Pearson, one-sided), and R = sigma Phi^-1(p_lower) in l2 for Gaussian noise;
    :mod:`robaudit.methods.certificates.smoothing` has the others. The certificate is wrong with
    probability ``alpha`` at most, for each image. If p_lower is at most 1/2 it abstains: value 0,
    no class. The largest radius that can be certified grows as sqrt(log draws).

    It certifies the *smoothed* classifier, the vote, whose class may differ from the class of the
    clean image; a note says so.

    With ``decide`` an image is analysed after 16, 24, 32, ... copies and stops once it is certain,
    at level alpha, that R is at least this radius, or nearly certain that all copies would not
    certify it (:class:`robaudit.methods.certificates.smoothing.Question`). The decisions are the
    same as with all copies unless R is within about a percent of the radius; the values themselves
    mean little.

    Source: Cohen, Rosenfeld and Kolter 2019, Certified adversarial robustness via randomized
    smoothing, CERTIFY.
    """

    quantity = CERTIFIED
    needs = Need.LEVEL
    interval = CERTIFICATE
    summary = "radius within which the majority vote under noise provably keeps its class"
    prefer = (
        "a proof for any network, of its vote under noise rather than of the network "
        "itself; costs `draws` forward passes"
    )
    source = "Cohen et al. 2019 (l2); Teng et al. 2020, Lee et al. 2019 (l1)"

    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(
        100_000,
        ge=1,
        le=10**8,
        description="noisy copies of each image that bound the probability of its class",
    )
    selection: int = Field(
        100, ge=1, le=10**6, description="further copies, which choose the class"
    )
    alpha: float = Field(
        0.001, ge=1e-12, lt=0.5, description="probability of a wrong certificate, for each image"
    )
    norm: Literal["l1", "l2"] = Field(
        "l2",
        description="of the perturbations: l2 for gaussian noise, l1 for laplace and uniform noise",
    )
    decide: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="a radius: an image stops when it is clear whether it is certified",
    )

    @model_validator(mode="after")
    def _enough(self) -> Self:
        fewest = fewest_draws(self.alpha)
        if fewest is not None and self.draws < fewest:
            raise about_key(
                WRONG_KEY,
                "draws",
                f"no certificate is possible with fewer than {fewest} copies at alpha "
                f"{self.alpha:g}",
            )
        return self

    @property
    def parts(self) -> tuple[Part, ...]:
        """The norm."""
        return (Part.norm(self.norm),)

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, the selection and the draws; with ``decide`` a typical number."""
        return 1 + self.selection + (
            self.draws if self.decide is None else min(self.draws, _USUAL_TO_DECIDE)
        ), 0

    def unfit(self, form: Noise, level: float | None = None) -> str:
        """Refuse noise without a theorem for the norm, and a radius that even all draws cannot
        certify."""
        theorem = theorem_of(form)
        if theorem is None:
            return (
                "certificates are known for gaussian (l2), laplace (l1) and uniform noise in "
                "the box (l1)"
            )
        if theorem.norm != self.norm:
            return f"its certificates are in {theorem.norm} (norm: {theorem.norm})"
        beyond = (
            Question.beyond(theorem, level, self.decide, self.draws, self.alpha)
            if self.decide and level
            else ""
        )
        return beyond and f"at {form.level_name} {level:g}, {beyond}"

    def estimate(self, batch: ImageBatch) -> Sequence[tuple[Result, ...]]:
        """Choose the classes, then bound their probabilities."""
        theorem = theorem_of(batch.noise)
        if theorem is None:
            raise ValueError(f"no theorem for {batch.at.noise}; unfit() says so")
        if self.decide is None:
            chosen = [
                _chosen(votes)
                for votes in count_votes(batch, range(len(batch.x)), 0, self.selection).tolist()
            ]
            counts = (
                count_votes(batch, range(len(batch.x)), self.selection, self.draws).cpu().numpy()
            )
            bounds = [
                self._bound(theorem, batch.level, votes, top.label)
                for votes, top in zip(counts.tolist(), chosen, strict=True)
            ]
        else:
            chosen = in_rounds(
                len(batch.x),
                self.selection,
                lambda *part: count_votes(batch, *part).cpu().numpy(),
                self._select,
            )
            bounds = self._decide(
                batch, theorem, self.decide, np.array([top.label for top in chosen])
            )
        rows = zip(chosen, bounds, batch.predicted.tolist(), strict=True)
        largest = largest_radius(
            theorem,
            batch.level,
            self.draws,
            self.alpha if self.decide is None else last_alpha(self.alpha),
        )
        return [(self._estimate(*row, largest),) for row in rows]

    def _bound(self, theorem: Theorem, level: float, votes: list[int], label: int) -> _Bound:
        p = float(p_lower(votes[label], self.draws, self.alpha))
        return _Bound(p, theorem.radius(p, level), votes[label], self.draws, votes[-1])

    def _select(self, images: NDArray[np.int64], votes: Counts, draws: int) -> list[_Chosen | None]:
        """Stop once the remaining copies cannot change the class."""
        ahead = np.sort(votes[:, :-1], axis=1)
        clear = ahead[:, -1] - (ahead[:, -2] if ahead.shape[1] > 1 else 0) > self.selection - draws
        return [
            _chosen(row) if done or draws >= self.selection else None
            for done, row in zip(clear.tolist(), votes.tolist(), strict=True)
        ]

    def _decide(
        self, batch: ImageBatch, theorem: Theorem, radius: float, label: NDArray[np.int64]
    ) -> list[_Bound]:
        question = Question(theorem, batch.level, radius, self.draws, self.alpha)

        def count(images: Sequence[int], start: int, draws: int) -> Counts:
            votes: Counts = count_votes(batch, images, self.selection + start, draws).cpu().numpy()
            return votes

        def look(images: NDArray[np.int64], votes: Counts, draws: int) -> list[_Bound | None]:
            kept = votes[np.arange(len(images)), label[images]]
            rows = zip(
                *(part.tolist() for part in question.look(kept.astype(np.float64), draws)),
                kept.tolist(),
                votes.tolist(),
                strict=True,
            )
            return [
                _Bound(p, certified, k, draws, counts[-1]) if stop else None
                for stop, p, certified, k, counts in rows
            ]

        return in_rounds(len(label), self.draws, count, look)

    def _estimate(self, chosen: _Chosen, bound: _Bound, predicted: int, largest: float) -> Result:
        certified = bound.radius > 0.0
        open_ = self.decide is not None and bound.draws < self.draws and bound.radius < self.decide
        lost = chosen.not_finite + bound.not_finite
        remarks = (
            (not certified and not open_, "abstains: no class has a significant majority"),
            (
                open_,
                f"stopped: {self.draws} copies would not certify {self.decide:g}"
                if self.decide is not None
                else "",
            ),
            (chosen.label != predicted, "the vote's class differs from the clean image's"),
            (
                lost > 0,
                f"{lost} noisy copies gave non-finite logits, counted as votes for no class",
            ),
        )
        about = Certificate(
            alpha=self.alpha,
            p_lower=bound.p,
            kept=bound.kept,
            draws=bound.draws,
            largest=largest,
            asked=self.decide,
        )
        return certificate(
            bound.radius,
            chosen.label if certified else None,
            predicted,
            (1 + chosen.draws + bound.draws, 0),
            note="; ".join(text for holds, text in remarks if holds),
            about=about,
            numbers={"selected": chosen.label, "selection": chosen.draws},
            lost=lost,
        )


class _Chosen(NamedTuple):
    """The selected class, with the most votes, and the number of copies."""

    label: int
    draws: int
    not_finite: int


class _Bound(NamedTuple):
    """The bound from the copies drawn after the selection.

    Attributes:
        p: lower bound of the class probability.
        radius: certified by p.
        kept: copies classified as the class.
        draws: number of copies.
        not_finite: copies whose logits were not finite.
    """

    p: float
    radius: float
    kept: int
    draws: int
    not_finite: int


def theorem_of(form: Noise) -> Theorem | None:
    """The theorem for a kind of noise, or None."""
    if isinstance(form, Gaussian):
        return GAUSSIAN
    if isinstance(form, Laplace):
        return LAPLACE
    return BOX if isinstance(form, Uniform) and form.norm == "linf" else None


def _chosen(votes: list[int]) -> _Chosen:
    """The class with the most votes, the first if several tie."""
    most = max(votes[:-1])
    return _Chosen(votes.index(most), sum(votes), votes[-1])
