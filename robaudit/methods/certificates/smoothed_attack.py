"""`smoothed_attack`: the norm of the smallest perturbation that changes the majority vote under
noise, as attacks find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.engine.objective import SoftVote
from robaudit.engine.votes import count_votes
from robaudit.methods.certificates.certified_radius import theorem_of
from robaudit.methods.certificates.smoothing import p_lower
from robaudit.methods.radius.minimal_norm import Flips, Search, passes_of, shared_flips
from robaudit.methods.radius.norm_steps import Norm, size
from robaudit.methods.radius.radius_attack import restart_uniforms
from robaudit.methods.radius.radius_estimator import Norms, SearchedRadius, flips_of, results_of
from robaudit.noise.noise import Noise, shape_of
from robaudit.numerics.rowwise import lengths
from robaudit.results import Result, Searched

PURPOSE = "smoothed attack"
"""The stream of random numbers of the search."""
_LEVEL = 0.001  # level of the test that another class is ahead, over all tries
# Copies at each point of the ray, and bisections between two of its points.
_SCREEN = 1000
_STEPS = 5
# Points beyond the flip of the soft vote, in units of its distance or of the noise, whichever is
# larger. The vote may flip a little before the soft vote, or some way behind it.
_RAY = (-0.2, 0.0, 0.1, 0.25, 0.5, 1.0)
# Points beyond the first flip on the ray, in the same unit, verified in turn: farther out the other
# class is ahead by more, so that the test is easier to pass.
_TRIES = (0.0, 0.02, 0.05, 0.1, 0.2)
_AHEAD = 2.0  # standard errors by which another class leads at a flip
_TINY = 1e-12
# Number of classes with a linearised boundary, and of chains from the image towards the nearest.
_CANDIDATES = 5
_TARGETS = 2


class SmoothedAttack(SearchedRadius):
    """The norm of the smallest perturbation that changes the majority vote, as found by a search:
    an upper bound.

    The smoothed class at a point is the majority class of its noisy copies. The search of
    `radius_attack` (:func:`robaudit.methods.radius.minimal_norm.shared_flips`) runs on the soft
    vote of `copies` fixed noisy copies, log of the mean softmax: a gradient takes `copies` passes.
    The ray to the flip of the soft vote is searched for the flip of the vote itself, with 1,000
    copies (at most `verify`) at each of about ten points. A flip counts only if another class is
    significantly ahead of the image's smoothed class among `verify` fresh copies (an exact sign
    test, level .001 over at most five tries). So, apart from the error probabilities of the test
    and the certificate, no value is below the certified radius of the same norm.

    Source: Salman et al. 2019, Provably robust deep learning via adversarially trained smoothed
    classifiers, for the gradient of the soft vote; for the search see
    :mod:`robaudit.methods.radius.minimal_norm`.
    """

    needs = Need.LEVEL | Need.GRADIENTS
    summary = (
        "the norm of the smallest perturbation that changes the majority vote under noise, "
        "as attacks find it"
    )
    prefer = "how far a certified_radius is from the truth: it lies between the two"
    source = "Salman et al. 2019; DeepFool, DDN, FMN, FAB"

    norm: Norms = Field(
        ("l2",),
        description="of the perturbations, for pixels in [0, 1]; each is a result of its own",
    )
    copies: int = Field(64, ge=1, le=10**5, description="noisy copies of a point in the soft vote")
    verify: int = Field(
        10_000,
        ge=50,
        le=10**7,
        description="noisy copies for the class of the image, and for the class of a point",
    )
    restarts: int = Field(2, ge=0, le=1000, description="chains from noise")
    steps: int = Field(10, ge=1, le=10**5, description="gradients of each chain")
    polish: int = Field(
        15, ge=0, le=10**5, description="gradients of the last chain, from the best point"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The most passes of an image; usually one of the five tries is enough."""
        search = self._search("l2", 1.0)
        screened = min(_SCREEN, self.verify) * (len(_RAY) + _STEPS)
        votes = screened + self.verify * len(_TRIES)
        gradients, forwards = passes_of([search])
        most = self.copies * (1 + gradients + forwards) + votes
        norms = len(self.norm)
        # The first pass is the clean one, and the vote of the image itself is shared by the norms.
        return 1 + self.verify + norms * most, norms * self.copies * gradients

    def unfit(self, form: Noise, level: float | None = None) -> str:
        """Refuse noise that depends on the pixels or has no certificates to compare with."""
        if theorem_of(form) is not None:
            return ""
        return "it searches under gaussian, laplace and uniform noise in the box"

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Search, in groups of images that fit into memory."""
        votes = count_votes(batch, range(len(batch.x)), 0, self.verify)
        y = votes[:, :-1].argmax(1)
        # Copies of each norm's flips, a tensor for each group.
        counts: list[list[Tensor]] = [[] for _ in self.norm]

        def search(group: Tensor) -> list[Flips]:
            flips = []
            for norm, of_norm in zip(self.norm, counts, strict=True):
                nearest, copies = self._nearest(batch, y, group, norm)
                flips.append(nearest)
                of_norm.append(copies)
            return flips

        flips, passes = flips_of(batch, batch.x[0].numel() * self.copies, search)
        passes = [(self.verify + forwards, backwards) for forwards, backwards in passes]
        by_norm = []
        for norm, nearest, of_norm in zip(self.norm, flips, counts, strict=True):
            cap = self.limit(norm, shape_of(batch.x))
            copies = torch.cat(of_norm)
            by_norm.append(self._rows(batch, votes, nearest, copies, passes, cap))
        return list(zip(*by_norm, strict=True))

    def _search(self, norm: Norm, cap: float) -> Search:
        """The options of the search in a norm."""
        return Search(
            norm=norm,
            clipped=self.clip,
            cap=cap,
            candidates=_CANDIDATES,
            targets=_TARGETS,
            restarts=self.restarts,
            steps=self.steps,
            polish=self.polish,
        )

    def _nearest(
        self, batch: ImageBatch, y: Tensor, group: Tensor, norm: Norm
    ) -> tuple[Flips, Tensor]:
        """Search the soft vote, then the vote along the rays.

        Returns:
            The flips, and the copies of each flip for the class of the image's vote and for the
            class of the flip (images, 2).
        """
        vote = SoftVote(batch, y[group], group, self.copies, PURPOSE)
        search = self._search(norm, self.limit(norm, shape_of(batch.x)))
        uniforms = partial(restart_uniforms, batch, group, f"{PURPOSE} {norm}")
        x = batch.x[group]
        own = y[group]
        (soft,) = shared_flips(vote.logits, vote.slopes, x, own, [search], uniforms)
        rays = _Rays(
            batch,
            group,
            added=soft.pixels - x,
            y=own,
            verify=self.verify,
            clipped=self.clip,
        )
        rays.verify(soft.found.nonzero()[:, 0])
        added = (rays.nearest.double() - x.double()).flatten(1)
        sizes = size(added, norm)
        radius = torch.where(rays.flipped, sizes, torch.inf)
        # A pass of the soft vote is one of all copies; the 1 is its value at the image.
        forwards = rays.spent + self.copies * (1 + soft.forwards)
        gradients = self.copies * soft.gradients
        flips = Flips(
            pixels=rays.nearest,
            radius=radius,
            label=rays.label,
            gradients=gradients,
            forwards=forwards,
            lost=rays.lost,
        )
        return flips, torch.stack([rays.kept, rays.other], 1)

    def _rows(
        self,
        batch: ImageBatch,
        votes: Tensor,
        flips: Flips,
        counts: Tensor,
        passes: Sequence[tuple[int, int]],
        cap: float,
    ) -> list[Result]:
        """The results of a chunk's images in a norm.

        Args:
            batch: the chunk.
            votes: copies of each image by class (images, classes + 1).
            flips: of each image.
            counts: copies at the flip for the class of the vote, and for the flip's (images, 2).
            passes: forwards and backwards of each image.
            cap: where the search ended.
        """
        # The last column counts copies without a class.
        by_class = votes[:, :-1]
        first, second = by_class.topk(2, dim=1).values.cpu().numpy().T
        # A sign test between the two classes with the most votes.
        sure = p_lower(first, np.maximum(first + second, 1), _LEVEL) > 0.5
        near = flips.radius <= cap
        columns = (by_class.argmax(1), *counts.unbind(1), near)
        searches = [
            Searched(label=label, kept=kept, other=other) if hit else Searched(label=label)
            for label, kept, other, hit in zip(*(c.tolist() for c in columns), strict=True)
        ]
        radius = torch.where(near, flips.radius, torch.inf)
        lost = flips.lost + votes[:, -1]
        rows = results_of(
            batch,
            radius,
            reached=flips.label,
            cap=cap,
            interval=self.interval,
            passes=passes,
            lost=lost,
            searches=searches,
        )
        remark = "the class of the vote is uncertain at the image itself"
        results = []
        for row, clear in zip(rows, sure.tolist(), strict=True):
            notes = [row.note] if clear else [remark, row.note]
            note = "; ".join(filter(None, notes))
            results.append(replace(row, note=note))
        return results


class _Rays:
    """The votes along the ray from each image of a group to the flip of its soft vote.

    Args:
        batch: the chunk.
        group: indices into the chunk (images,).
        added: the flip minus the image (images, channels, height, width).
        y: the class of each image's vote (images,).
        verify: number of copies that verify a point.
        clipped: whether points stay in [0, 1].

    Attributes:
        nearest: the first verified flip (images, channels, height, width).
        flipped: whether the image has a verified flip (images,), bool.
        label: the class ahead at the flip (images,).
        kept, other: copies of the flip with the class of the image's vote, and with ``label``.
        spent: forward passes (images,).
        lost: copies with non-finite logits (images,).
    """

    def __init__(
        self,
        batch: ImageBatch,
        group: Tensor,
        added: Tensor,
        y: Tensor,
        verify: int,
        *,
        clipped: bool,
    ) -> None:
        self._batch = batch
        self._group = group
        self._added = added
        self._y = y
        self._verify = verify
        self._screen = min(_SCREEN, verify)
        self._clipped = clipped
        self.nearest = batch.x[group].clone()
        # The unit of _RAY and _TRIES, where ``added`` has length 1.
        length = lengths(added).clamp_min(_TINY)
        self._unit = (batch.amplitude / length).clamp_min(1.0)
        self.flipped = torch.zeros(len(group), dtype=torch.bool, device=group.device)
        self.label = y.clone()
        self.kept = torch.zeros_like(y)
        self.other = torch.zeros_like(y)
        self.spent = torch.zeros_like(y)
        self.lost = torch.zeros_like(y)

    def verify(self, rows: Tensor) -> None:
        """Find the first flip of the vote on the rays of some images, and verify it there or
        somewhat farther out."""
        scale = self._first(rows)
        rows = rows[scale[rows].isfinite()]
        for number, beyond in enumerate(_TRIES):
            if not len(rows):
                return
            unit = torch.maximum(self._unit[rows], scale[rows])
            at = scale[rows] + beyond * unit
            # Fresh draws for each try: those before were used for the image and for the ray.
            start = self._verify + self._screen + number * self._verify
            kept, votes = self._votes(rows, at, start, self._verify)
            other = votes.gather(1, self.label[rows, None])[:, 0]
            both = (kept + other).clamp_min(1)
            # An exact sign test, whose level is split over the tries (Bonferroni).
            level = _LEVEL / len(_TRIES)
            ahead = p_lower(other.cpu().numpy(), both.cpu().numpy(), level) > 0.5
            sure = torch.from_numpy(ahead).to(rows.device)
            done = rows[sure]
            self.nearest[done] = self._points(done, at[sure])
            self.flipped[done] = True
            self.kept[done] = kept[sure]
            self.other[done] = other[sure]
            rows = rows[~sure]

    def _first(self, rows: Tensor) -> Tensor:
        """The first flip on the ray, in units of ``added``; infinite if there is none."""
        lower = torch.zeros(len(self._y), dtype=torch.float64, device=rows.device)
        upper = torch.full_like(lower, torch.inf)
        open_ = rows
        for beyond in _RAY:
            scale = (1 + beyond * self._unit[open_]).clamp_min(0.0)
            flips = self._flips(open_, scale)
            upper[open_[flips]] = scale[flips]
            lower[open_[~flips]] = scale[~flips]
            open_ = open_[~flips]
        hit = rows[upper[rows].isfinite()]
        for _ in range(_STEPS):
            middle = (lower[hit] + upper[hit]) / 2
            flips = self._flips(hit, middle)
            upper[hit] = torch.where(flips, middle, upper[hit])
            lower[hit] = torch.where(flips, lower[hit], middle)
        return upper

    def _flips(self, rows: Tensor, scale: Tensor) -> Tensor:
        """Whether another class is well ahead at a point (rows,); records the class.

        The draws are the same at every point, so that the vote changes with the point alone.
        """
        if not len(rows):
            return torch.zeros(0, dtype=torch.bool, device=rows.device)
        kept, votes = self._votes(rows, scale, self._verify, self._screen)
        others = votes.scatter(1, self._y[rows, None], -1)
        other, label = others.max(1)
        # The difference of two counts of n has a standard error of about sqrt(n).
        error = (other + kept).clamp_min(1).sqrt()
        flips = other - kept >= _AHEAD * error
        self.label[rows[flips]] = label[flips]
        return flips

    def _votes(self, rows: Tensor, scale: Tensor, start: int, draws: int) -> tuple[Tensor, Tensor]:
        """Votes for the class of the image's vote (rows,), and votes by class (rows, classes)."""
        pixels = self._batch.x.clone()
        pixels[self._group[rows]] = self._points(rows, scale)
        moved = replace(self._batch, x=pixels)
        votes = count_votes(moved, self._group[rows].tolist(), start, draws)
        self.spent[rows] += draws
        self.lost[rows] += votes[:, -1]
        kept = votes.gather(1, self._y[rows, None])[:, 0]
        return kept, votes[:, :-1]

    def _points(self, rows: Tensor, scale: Tensor) -> Tensor:
        """The points of the rays at these scales (rows, channels, height, width)."""
        factor = scale.to(self._added.dtype)[:, None, None, None]
        added = self._added[rows] * factor
        points: Tensor = self._batch.x[self._group[rows]] + added
        return points.clamp(0.0, 1.0) if self._clipped else points
