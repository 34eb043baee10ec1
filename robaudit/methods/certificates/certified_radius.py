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

_USUAL_TO_DECIDE = 2000  # copies of a typical image with ``decide``, for the estimate of the cost


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

    With ``decide`` an image is analysed after 16, 24, 32, ... copies. It stops once it is certain,
    at level alpha, that R is at least this radius, or nearly certain that all copies would not
    certify it (:class:`robaudit.methods.certificates.smoothing.Question`). The decisions are the
    same as with all copies unless R is within about a percent of the radius; the values themselves
    mean little.

    Source: Cohen, Rosenfeld and Kolter 2019, Certified adversarial robustness via randomized
    smoothing, CERTIFY.
    """

    quantity = CERTIFIED
    needs = Need.LEVEL | Need.INPUT
    interval = CERTIFICATE
    summary = "radius within which the majority vote under noise provably keeps its class"
    prefer = (
        "a proof for any network, of its vote under noise rather than of the network "
        "itself; costs `draws` forward passes"
    )
    source = "Cohen et al. 2019 (l2); Teng et al. 2020, Lee et al. 2019 (l1)"

    renamed = SAMPLES_ARE_DRAWS
    # n, n_0 and alpha have the values of Cohen et al. 2019.
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
        # Even if all copies have one class, the bound alpha^(1/n) must exceed 1/2.
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
        draws = self.draws if self.decide is None else min(self.draws, _USUAL_TO_DECIDE)
        return 1 + self.selection + draws, 0

    def unfit(self, form: Noise, level: float | None = None) -> str:
        """Refuse noise without a theorem for the norm, and radii that all draws cannot certify."""
        theorem = theorem_of(form)
        if theorem is None:
            return (
                "certificates are known for gaussian (l2), laplace (l1) and uniform noise in "
                "the box (l1)"
            )
        if theorem.norm != self.norm:
            return f"its certificates are in {theorem.norm} (norm: {theorem.norm})"
        # Without a level, only the kind of noise can be checked.
        if not (self.decide and level):
            return ""
        beyond = Question.beyond(theorem, level, self.decide, self.draws, self.alpha)
        return beyond and f"at {form.level_name} {level:g}, {beyond}"

    def estimate(self, batch: ImageBatch) -> Sequence[tuple[Result, ...]]:
        """Choose the classes, then bound their probabilities."""
        theorem = theorem_of(batch.noise)
        if theorem is None:
            raise ValueError(f"no theorem for {batch.at.noise}; unfit() says so")
        if self.decide is None:
            selected, bounds = self._with_all_draws(batch, theorem)
            alpha = self.alpha
        else:
            selected, bounds = self._in_rounds(batch, theorem, self.decide)
            # The rest of alpha is spent on answers before the last draw.
            alpha = last_alpha(self.alpha)
        rows = zip(selected, bounds, batch.predicted.tolist(), strict=True)
        largest = largest_radius(theorem, batch.level, self.draws, alpha)
        return [(self._estimate(*row, largest),) for row in rows]

    def _with_all_draws(
        self, batch: ImageBatch, theorem: Theorem
    ) -> tuple[list[_Selected], list[_Bound]]:
        """The selected class of each image, and the bound from all draws."""
        # Cohen et al. 2019, CERTIFY: separate draws, because the same draws would favour the class
        # that they chose.
        images = range(len(batch.x))
        selection = count_votes(batch, images, 0, self.selection).tolist()
        counts = count_votes(batch, images, self.selection, self.draws).cpu().numpy()
        selected = [_selected(votes) for votes in selection]
        bounds = [
            self._bound(theorem, batch.level, votes, choice.label)
            for votes, choice in zip(counts.tolist(), selected, strict=True)
        ]
        return selected, bounds

    def _in_rounds(
        self, batch: ImageBatch, theorem: Theorem, radius: float
    ) -> tuple[list[_Selected], list[_Bound]]:
        """The selected class of each image, and the bound with which it stopped."""

        def count(images: Sequence[int], start: int, draws: int) -> Counts:
            votes: Counts = count_votes(batch, images, start, draws).cpu().numpy()
            return votes

        selected = in_rounds(len(batch.x), self.selection, count, self._select)
        labels = np.array([choice.label for choice in selected])
        return selected, self._decide(batch, theorem, radius, labels)

    def _bound(self, theorem: Theorem, level: float, votes: list[int], label: int) -> _Bound:
        """The bound from all draws of an image."""
        # Cohen et al. 2019, CERTIFY: a one-sided bound at level alpha, then R(p_lower).
        p = float(p_lower(votes[label], self.draws, self.alpha))
        return _Bound(
            p=p,
            radius=theorem.radius(p, level),
            kept=votes[label],
            draws=self.draws,
            not_finite=votes[-1],
        )

    def _select(
        self, images: NDArray[np.int64], votes: Counts, draws: int
    ) -> list[_Selected | None]:
        """Stop once the remaining copies cannot change the class."""
        # The last column counts copies without a class, which cannot win.
        ranked = np.sort(votes[:, :-1], axis=1)
        second = ranked[:, -2] if ranked.shape[1] > 1 else 0
        clear = ranked[:, -1] - second > self.selection - draws
        return [
            _selected(row) if done or draws >= self.selection else None
            for done, row in zip(clear.tolist(), votes.tolist(), strict=True)
        ]

    def _decide(
        self, batch: ImageBatch, theorem: Theorem, radius: float, label: NDArray[np.int64]
    ) -> list[_Bound]:
        """Bound the probability of each image's class until it is clear whether the radius is
        certified."""
        question = Question(theorem, batch.level, radius, self.draws, self.alpha)

        def count(images: Sequence[int], start: int, draws: int) -> Counts:
            first = self.selection + start
            votes: Counts = count_votes(batch, images, first, draws).cpu().numpy()
            return votes

        def analyse(images: NDArray[np.int64], votes: Counts, draws: int) -> list[_Bound | None]:
            kept = votes[np.arange(len(images)), label[images]]
            stop, p, certified = question.analyse(kept.astype(np.float64), draws)
            columns = (stop, p, certified, kept, votes[:, -1])
            rows = zip(*(column.tolist() for column in columns), strict=True)
            return [
                _Bound(bound, reached, k, draws, not_finite) if done else None
                for done, bound, reached, k, not_finite in rows
            ]

        return in_rounds(len(label), self.draws, count, analyse)

    def _estimate(
        self, selected: _Selected, bound: _Bound, predicted: int, largest: float
    ) -> Result:
        """The result of an image."""
        certified = bound.radius > 0.0
        lost = selected.not_finite + bound.not_finite
        remarks = []
        # An image that stopped for no may have a larger bound after all copies.
        stopped = bound.draws < self.draws
        if self.decide is not None and stopped and bound.radius < self.decide:
            remarks.append(f"stopped: {self.draws} copies would not certify {self.decide:g}")
        elif not certified:
            remarks.append("abstains: no class has a significant majority")
        if selected.label != predicted:
            remarks.append("the vote's class differs from the clean image's")
        if lost > 0:
            remarks.append(
                f"{lost} noisy copies gave non-finite logits, counted as votes for no class"
            )
        # What a reader needs to compute the bound again.
        details = Certificate(
            alpha=self.alpha,
            p_lower=bound.p,
            kept=bound.kept,
            draws=bound.draws,
            largest=largest,
            asked=self.decide,
        )
        return certificate(
            bound.radius,
            selected.label if certified else None,
            predicted,
            (1 + selected.draws + bound.draws, 0),
            note="; ".join(remarks),
            details=details,
            numbers={"selected": selected.label, "selection": selected.draws},
            lost=lost,
        )


class _Selected(NamedTuple):
    """The class with the most votes, and the number of copies.

    Attributes:
        label: the class.
        draws: number of copies.
        not_finite: number of copies whose logits were not finite.
    """

    label: int
    draws: int
    not_finite: int


class _Bound(NamedTuple):
    """The bound from the copies drawn after the selection.

    Attributes:
        p: lower bound of the class probability.
        radius: certified by p.
        kept: number of copies classified as the class.
        draws: number of copies.
        not_finite: number of copies whose logits were not finite.
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
    # Uniform noise in the l2 ball has no theorem.
    return BOX if isinstance(form, Uniform) and form.norm == "linf" else None


def _selected(votes: list[int]) -> _Selected:
    """The class with the most votes, the first if several tie."""
    most = max(votes[:-1])
    return _Selected(
        label=votes.index(most),
        draws=sum(votes),
        not_finite=votes[-1],
    )
