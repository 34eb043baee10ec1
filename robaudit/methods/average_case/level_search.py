"""The largest noise level at which a probability stays above a threshold, with draws shared by all
levels.

Only NumPy and scipy.special are used. The search draws nothing itself: it requests results by draw
number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
T = TypeVar("T")

KEPT = -1
"""The result of a draw that keeps the class; any other result is the class that it flips to."""

CONFIDENCE = 0.95
# Shares of the 5 %: all early looks get a tenth together; each main look gets four fifths of what
# is left (nine in ten searches end at the first).
_EARLY = 0.1
_MAIN = 0.8
# Draws from look to look: main looks double, early ones are a quarter, a sixteenth, ...
_GROWTH = 2
_EARLY_GROWTH = 4
_FEWEST = 160  # draws of a look
# Draws are requested in multiples of 8: inferred results are checked where padding would be wasted.
_ROWS = 8
_SCAN = 16  # draws at each octave
_LOCATE = 32  # draws that bring the top near the threshold, before the first look
# Draws of the first main look, relative to the draws that give the requested mean width: nine in
# ten searches end there.
_MARGIN = 1.6
# Passes of a search: a fixed number, and per draw of the last look.
_FIXED = 500
_EACH = 1.8
# Ends are located to a sixteenth of the tolerance, before that to 10 %.
_FINE = 16
_COARSE = 1.1
# Or to a sixteenth of this share of the width on a linear model, if that is more: the width on a
# network, where p falls two to three times as steeply. It saves passes.
_STEEPEST = 0.3
_CHECKED = 0.1  # share of the inferred results that are checked at both ends of the interval
_NON_MONOTONE = 0.05  # share of wrong results among those checked, above which a search ends
_OCTAVES = 13  # levels from the cap down: 2^13 = 8192


class DrawRequest(NamedTuple):
    """A request for the results of draws at a level, by their numbers (n,), ascending."""

    level: float
    draws: Ints


Steps = Generator[DrawRequest, Ints, T]
"""A computation that yields requests, is sent their results in order, and returns a T."""


@dataclass(frozen=True, slots=True)
class Look:
    """An analysis after n draws that may end the search.

    Attributes:
        draws: n.
        alpha: probability that its interval is wrong.
        main: whether the interval is expected to be narrow enough; earlier looks end only easy
            searches.
        few, many: at a level where P[flip] is exactly 1 - p, ``few`` or fewer flips have
            probability at most alpha/2, and so have ``many`` or more; -1 and n + 1 if no number
            qualifies.
    """

    draws: int
    alpha: float
    main: bool
    few: int
    many: int


@dataclass(frozen=True)
class SearchPlan:
    """The target of a search, and its limits.

    Attributes:
        level: p, in (.5, 1).
        tolerance: upper/lower - 1 at which the search ends.
        most: the most passes.
        cap: the largest level; the smallest is cap / 2^13.
        least: the smallest level allowed.
    """

    level: float
    tolerance: float
    most: int
    cap: float
    least: float = 0.0

    @property
    def floor(self) -> float:
        """The smallest level searched."""
        return min(self.cap, max(self.least, self.cap / 2.0**_OCTAVES))

    @property
    def flips(self) -> float:
        """P[flip] at the tolerance."""
        return 1.0 - self.level

    @cached_property
    def looks(self) -> tuple[Look, ...]:
        """All looks, fixed before the first draw; their alphas sum to less than 5 %.

        The first main look has 1.6 times the draws that on average give the requested width on a
        linear model with two classes, for which dp / d ln level = -z phi(z), z = Phi^-1(p); each
        later look has twice as many. Early looks prepare the next look, and end searches if p falls
        steeply, or does not cross the threshold between the smallest level and the largest.
        """
        alpha = 1.0 - CONFIDENCE
        main_alpha = alpha * (1.0 - _EARLY) * _MAIN
        first = self._first_main_draws(main_alpha)
        # a quarter of the first main look, a sixteenth, ...; the smallest first
        early = [_round_up(first / _EARLY_GROWTH**k) for k in range(20, 0, -1)]
        early = [n for n in early if n >= _FEWEST]
        early_alpha = alpha * _EARLY / max(1, len(early))
        looks = [self._look(n, early_alpha, main=False) for n in early]
        n = first
        # One main look at least, however few passes are allowed.
        while not looks or not looks[-1].main or _FIXED + _EACH * n <= self.most:
            looks.append(self._look(n, main_alpha, main=True))
            n = n * _GROWTH
            main_alpha = main_alpha * (1.0 - _MAIN)
        return tuple(looks)

    def _look(self, draws: int, alpha: float, *, main: bool) -> Look:
        """The analysis after some draws."""
        few, many = critical_counts(draws, self.flips, alpha / 2)
        return Look(draws, alpha, main, few, many)

    def _first_main_draws(self, alpha: float) -> int:
        """Draws of the first main look, at its alpha."""
        from scipy.special import ndtri

        deviations = float(-ndtri(alpha / 2))
        # The interval is 2 deviations of ln T / sqrt(n) wide, and ln(upper / lower) at most
        # ln(1 + tolerance).
        wanted = (
            _MARGIN
            * self._per_square_deviation
            * (2 * deviations / math.log1p(self.tolerance)) ** 2
        )
        affordable = (self.most - _FIXED) / _EACH
        return _round_up(max(_FEWEST, min(wanted, affordable)))

    def usual_width(self, look: Look) -> float:
        """The mean width of a look's interval on a linear model, in ln level."""
        from scipy.special import ndtri

        deviations = float(ndtri(look.alpha / 2))  # negative
        return -2.0 * deviations * math.sqrt(self._per_square_deviation / look.draws)

    @property
    def usual_passes(self) -> int:
        """The typical number of passes of a search: the mean on a linear model."""
        first_main = next(look for look in self.looks if look.main)
        # Measured on linear models: about 1,740 passes at a tolerance of .3, and 8,200 at .1
        # (docs/research/noise_tolerance.md).
        return min(self.most, int(1.55 * first_main.draws) + 600)

    @property
    def _per_square_deviation(self) -> float:
        """p (1 - p) / (z phi(z))^2: the variance of ln T from a single draw on a linear model."""
        from scipy.special import ndtri

        # delta method: the variance of a share over (dp / d ln level)^2; 1 / phi(z)^2 is
        # 2 pi exp(z^2)
        z = float(ndtri(self.level))
        return self.level * self.flips * 2 * math.pi * math.exp(z * z) / (z * z)


def critical_counts(draws: int, share: float, tail: float) -> tuple[int, int]:
    """The most flips that are too few for a share, and the fewest that are too many.

    Args:
        draws: n.
        share: P[flip] under the hypothesis.
        tail: largest probability of each.

    Returns:
        (largest k with P[B <= k] <= tail, or -1; smallest k with P[B >= k] <= tail, or n + 1), B ~
        Binomial(n, share).
    """
    from scipy.special import bdtr, bdtrc

    k = np.arange(draws + 1)
    few = np.flatnonzero(bdtr(k, draws, share) <= tail)
    beyond = np.flatnonzero(bdtrc(k, draws, share) <= tail)  # P[B > k]: 0 at k = n
    largest_few = int(few[-1]) if len(few) else -1
    return largest_few, int(beyond[0]) + 1


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The level at which p crosses the threshold.

    Attributes:
        value: the level of the crossing; the cap if p is above the threshold at the cap, 0 if p is
            below at the smallest level searched.
        lower, upper: 95 % interval; the upper end is infinite if p at the cap is above the
            threshold, or undecided.
        censored: whether p at the cap is above the threshold.
        reached: whether the interval, cut to the range from the smallest level to the cap, is as
            narrow as requested; false if ``most`` came first, or draws are non-monotone.
        non_monotone: more than a twentieth of the checked inferred results were wrong; no narrower
            interval is tried.
        std_error: standard error of the value, None at an end of the range.
        samples: draws behind the interval.
        passes: number of results requested.
        checked: number of inferred results that were checked.
        reversals: number of checked results that were wrong.
        flips_to: the class of most flips up to the upper end, None without flips.
    """

    value: float
    lower: float
    upper: float
    censored: bool
    reached: bool
    non_monotone: bool
    std_error: float | None
    samples: int
    passes: int
    checked: int
    reversals: int
    flips_to: int | None


def find_tolerance(plan: SearchPlan) -> Steps[Tolerance]:
    """The level at which P[draw j keeps the class at this level] falls below ``plan.level``, as a
    computation that requests results.

    Draw j has the same random variables at every level. Let T_j be the level at which it flips: if
    each draw flips once, P[keep at t] = P[T > t], the tolerance t* is the (1 - p)-quantile of T,
    and the order statistics T_(few + 1) and T_(many) of n draws enclose it: B = #{j: T_j <= t*} is
    Binomial(n, 1 - p), and t* lies outside only if B <= few or B >= many, with probability at most
    alpha. This does not depend on the choice of levels. The looks have fixed numbers of draws, and
    their alphas sum to 5 %, so the search may end at any look.

    An order statistic takes few results: a draw that keeps the class at a level is inferred to keep
    it at all lower levels. All n draws are computed only at a level slightly above t*; at lower
    levels only the draws that flipped there, a share of about 1 - p.

    If draws may flip back, few or many draws still flip at t* with probability at most alpha, so
    the interval still holds if the *number* of flips passes each of the two bounds only once as the
    level rises. But inferred results may then be wrong: a share of them is checked at both ends; if
    any is wrong, all are checked, and the ends move outwards until the flips seen there are at most
    ``few`` and at least ``many``. (A check of a tenth of the results misses 30 wrong results in 4 %
    of the cases.)

    If p itself crosses the threshold more than once, the value is the first crossing from below, as
    far as 16 draws at octaves from the smallest level on can tell.

    Args:
        plan: the search.

    Returns:
        A generator: see :data:`Steps`, and :func:`run_all`.

    Source: order statistics as confidence limits of quantiles: Thompson, Annals of Mathematical
    Statistics 7 (1936); common random numbers; looks at fixed times: Bonferroni.
    """
    return _Search(plan).run()


def run_all(
    searches: Sequence[Steps[T]],
    answer: Callable[[Sequence[int], Sequence[DrawRequest]], Sequence[Ints]],
) -> list[T]:
    """Run searches side by side, so that their draws share passes.

    Args:
        searches: computations that request results.
        answer: (indices of the requesting searches, their requests) -> results of each request.

    Returns:
        Their return values, in order.
    """
    returned: dict[int, T] = {}
    requests: dict[int, DrawRequest] = {}

    def advance(index: int, results: Ints | None) -> None:
        """Run a search up to its next request, or to its end; ``results``: None to start it."""
        search = searches[index]
        try:
            requests[index] = next(search) if results is None else search.send(results)
        except StopIteration as end:
            returned[index] = end.value

    for index in range(len(searches)):
        advance(index, None)
    while requests:
        waiting = list(requests)
        current = list(requests.values())
        requests.clear()
        for index, results in zip(waiting, answer(waiting, current), strict=True):
            advance(index, results)
    return [returned[index] for index in range(len(searches))]


class _OutOfPassesError(Exception):
    """The remaining passes do not suffice for the next request."""


class _Ends(NamedTuple):
    """The interval of a look."""

    look: Look
    lower: float
    upper: float

    @property
    def ratio(self) -> float:
        """upper/lower; infinite if the lower end is 0."""
        return self.upper / self.lower if self.lower > 0 else math.inf


class _Search:
    """The state of a search.

    Attributes:
        plan: the target.
        kept_at: the highest level at which each draw kept the class, 0 if at none (draws,).
        flipped_at: the lowest level at which it flipped, infinite if at none (draws,).
        flips_to: the class that it flipped to at that level (draws,).
        passes, checked, reversals: as in :class:`Tolerance`, so far.
        flips_by_level: flips among the draws of the current look.
        top: the level at which all draws of the look are computed, slightly above the threshold.
        value: the estimate so far.
        best: the narrowest valid interval so far.
    """

    def __init__(self, plan: SearchPlan) -> None:
        self.plan = plan
        self.kept_at = np.zeros(0)
        self.flipped_at = np.zeros(0)
        self.flips_to = np.zeros(0, dtype=np.int64)
        self.passes = 0
        self.checked = 0
        self.reversals = 0
        self.flips_by_level: dict[float, int] = {}
        self.top = plan.cap
        self.value = plan.cap
        self.best: _Ends | None = None

    def run(self) -> Steps[Tolerance]:
        """Scan the octaves, locate the threshold, and take looks until the interval is narrow
        enough."""
        look = None
        try:
            yield from self._scan()
            yield from self._locate()
            for look in self.plan.looks:
                if (yield from self._analyse(look)):
                    break
        except _OutOfPassesError:
            if look is not None and (self.best is None or self.best.look != look):
                incomplete = self._ends_so_far(look)
                # Ends of an incomplete look are not checked: once draws have flipped back, they do
                # not replace the ends of a complete look.
                narrower = self.best is None or incomplete.ratio < self.best.ratio
                if self.best is None or (not self.reversals and narrower):
                    self.best = incomplete
        return self._result()

    def _scan(self) -> Steps[None]:
        """Set the top to the first octave where too many of 16 draws flip, or to the cap."""
        self._use_draws(_SCAN)
        enough = max(3, critical_counts(_SCAN, self.plan.flips, 0.01)[1])
        self.top = self.plan.floor
        while (yield from self._count(self.top)) < enough and self.top < self.plan.cap:
            self.top = min(2 * self.top, self.plan.cap)

    def _locate(self) -> Steps[None]:
        """Lower the top to where the first look has many flips."""
        many = critical_counts(_LOCATE, self.plan.flips, 0.02)[1]
        self._use_draws(_LOCATE)
        yield from self._raise_top(many)
        yield from self._bracket(many, _COARSE)

    def _analyse(self, look: Look) -> Steps[bool]:
        """Analyse a look; return whether the search ends with it."""
        plan = self.plan
        self._use_draws(look.draws)
        yield from self._raise_top(look.many)
        if self.flips_by_level.get(plan.cap, look.draws) <= look.few:
            self.best = _Ends(look, plan.cap, math.inf)
            self.value = plan.cap
            return True
        if not look.main and not (yield from self._promising(look)):
            self.best = self._ends_so_far(look)
            self.value = min(self.best.upper, plan.cap)
            return self._reached
        fine = 1.0 + max(plan.tolerance, _STEEPEST * plan.usual_width(look)) / _FINE
        # From below: a draw that flips there also flips higher up, so the passes serve all three.
        lower, _ = yield from self._bracket(look.few + 1, fine)
        below, above = yield from self._bracket(math.ceil(look.draws * plan.flips), fine)
        self.value = _middle(below, above)
        _, upper = yield from self._bracket(look.many, fine)
        self.best = yield from self._checked(_Ends(look, lower, upper))
        return self._reached or self._non_monotone

    def _ends_so_far(self, look: Look) -> _Ends:
        """The interval from the levels visited so far."""
        upper = self._lowest_with(look.many)
        lower = self._highest_with_fewer(look.few + 1, upper)
        return _Ends(look, lower, upper)

    def _lowest_with(self, flips: int) -> float:
        """The lowest visited level with at least so many flips; infinite if there is none."""
        return min(
            (level for level, count in self.flips_by_level.items() if count >= flips),
            default=math.inf,
        )

    def _highest_with_fewer(self, flips: int, above: float) -> float:
        """The highest visited level below ``above`` with fewer flips; 0 if there is none."""
        return max(
            (
                level
                for level, count in self.flips_by_level.items()
                if count < flips and level < above
            ),
            default=0.0,
        )

    def _promising(self, look: Look) -> Steps[bool]:
        """Whether a look may be narrow enough, by coarse brackets of both ends."""
        below, upper = yield from self._bracket(look.many, _COARSE)
        if upper <= self.plan.floor or look.few < 0:
            return False
        _, above = yield from self._bracket(look.few + 1, _COARSE)
        self.top = upper if math.isfinite(upper) else self.plan.cap
        return below <= above * (1.0 + self.plan.tolerance)

    @property
    def _reached(self) -> bool:
        """Whether the interval, cut to the range from the smallest level to the cap, is as narrow
        as requested."""
        if self.best is None:
            return False
        upper = min(self.best.upper, self.plan.cap)
        lower = max(self.best.lower, self.plan.floor)
        return upper <= lower * (1.0 + self.plan.tolerance)

    @property
    def _non_monotone(self) -> bool:
        """Whether so many draws flip back that more draws would not help."""
        return self.reversals > _NON_MONOTONE * self.checked

    def _result(self) -> Tolerance:
        """What the search found."""
        no_look = Look(draws=0, alpha=0.0, main=False, few=-1, many=1)
        look, lower, upper = self.best or _Ends(no_look, 0.0, math.inf)
        value = min(max(self.value, lower), upper)
        if upper <= self.plan.floor:
            value = 0.0
        std_error = None
        if lower > 0 and math.isfinite(upper):
            # The binomial standard deviation of the number of flips; the interval spans many - few
            # of them, and between its ends levels are taken as proportional to flips.
            deviation = math.sqrt(look.draws * self.plan.level * self.plan.flips)
            std_error = deviation / max(1, look.many - look.few) * (upper - lower)
        flips = self.flips_to[(self.flipped_at <= upper) & np.isfinite(self.flipped_at)]
        return Tolerance(
            value=value,
            lower=lower,
            upper=upper,
            censored=lower >= self.plan.cap,
            reached=self._reached,
            non_monotone=self._non_monotone,
            std_error=std_error,
            samples=look.draws,
            passes=self.passes,
            checked=self.checked,
            reversals=self.reversals,
            flips_to=int(np.bincount(flips).argmax()) if len(flips) else None,
        )

    def _checked(self, ends: _Ends) -> Steps[_Ends]:
        """Check a share of the inferred results at both ends, or all results if any was wrong."""
        look, lower, upper = ends
        reversals_before = self.reversals
        for end in (lower, upper):
            if 0 < end < math.inf:
                yield from self._check(end)
        if self.reversals > reversals_before:
            lower = yield from self._lowered(lower, look)
            upper = yield from self._raised(upper, look)
        return _Ends(look, lower, upper)

    def _lowered(self, lower: float, look: Look) -> Steps[float]:
        """Lower an end until few draws flip there, without inference; to 0 below the floor."""
        draws = np.arange(look.draws)
        step = 1.0 + self.plan.tolerance / _ROWS
        while lower > 0 and (yield from self._direct(lower, draws)).sum() > look.few:
            lower = lower / step if lower / step >= self.plan.floor else 0.0
            # growing steps: each costs passes of all draws
            step = step * step
        return lower

    def _raised(self, upper: float, look: Look) -> Steps[float]:
        """Raise an end until many draws flip there, without inference; to infinity above the
        cap."""
        draws = np.arange(look.draws)
        step = 1.0 + self.plan.tolerance / _ROWS
        while upper < math.inf and (yield from self._direct(upper, draws)).sum() < look.many:
            upper = upper * step if upper * step <= self.plan.cap else math.inf
            step = step * step
        return upper

    def _check(self, level: float) -> Steps[None]:
        """Check a share of the results inferred at the level."""
        inferred = np.flatnonzero((self.kept_at != level) & (self.flipped_at != level))
        wanted = min(len(inferred), _round_up(_CHECKED * len(inferred)))
        if wanted:
            evenly = np.arange(wanted) * len(inferred) // wanted
            yield from self._request(level, inferred[evenly])

    def _raise_top(self, many: int) -> Steps[None]:
        """Raise the top until ``many`` draws flip there, or to the cap."""
        while (flips := (yield from self._count(self.top))) < many and self.top < self.plan.cap:
            # where a linear model would have so many flips, and 5 % more, so that it rarely takes
            # another step; at most an octave
            factor = 1.05 * max(1.0, math.exp(self._place(many) - self._place(flips)))
            self.top = min(self.top * min(2.0, factor), self.plan.cap)

    def _bracket(self, rank: int, ratio: float) -> Steps[tuple[float, float]]:
        """Levels (a, b] around the flip of this rank, b <= a * ratio: fewer draws flip at a, and at
        least ``rank`` at b.

        Returns:
            (a, b); (0, floor) if ``rank`` draws flip at the smallest level, (cap, inf) if fewer
            flip at the cap. The top becomes b.
        """
        floor = self.plan.floor
        # Each guess cuts a tenth or more off the bracket, in ln level: 200 are more than enough.
        for number in range(200):
            above = self._lowest_with(rank)
            below = self._highest_with_fewer(rank, above)
            if not math.isfinite(above):
                return self.plan.cap, above
            if above <= floor:
                break
            if below > 0 and above <= below * ratio:
                break
            guess = self._guess(rank, below, above, math.sqrt(ratio), number)
            yield from self._count(max(floor, guess))
        self.top = above
        return below, above

    def _guess(self, rank: int, below: float, above: float, margin: float, number: int) -> float:
        """A level inside (below, above), by linear interpolation in coordinates that make a linear
        model straight.

        Args:
            rank: of the flip that is looked for.
            below, above: levels with fewer flips, and with as many; ``below`` may be 0.
            margin: factor by which guesses fall short of it and exceed it in turn, so that both
                ends of the bracket approach.
            number: of earlier guesses.
        """
        place = self._place(rank)
        high = self._place(self.flips_by_level[above])
        if below == 0:
            # Nothing to interpolate from below yet: extrapolate, to a quarter at the least.
            factor = max(0.25, math.exp(place - high) / margin)
            return above * min(1 / margin, factor)
        low = self._place(self.flips_by_level[below])
        width = math.log(above / below)
        # Every fourth guess bisects, so that a curve that is not straight cannot stop progress.
        bisects = number % 4 == 3 or high <= low
        share = 0.5 if bisects else (place - low) / (high - low)
        side = 1 if number % 2 else -1
        position = share * width + math.log(margin) * side
        # not nearer to an end than a tenth of the bracket
        position = min(0.9 * width, max(0.1 * width, position))
        return below * math.exp(position)

    def _place(self, flips: int) -> float:
        """-ln z, z = Phi^-1(1 - share of flips): ln level plus a constant for a linear model with
        two classes."""
        from scipy.special import ndtri

        # There p = Phi(margin / (level |w|)). From a share of a half on, z <= 0 has no logarithm.
        share = (flips + 0.5) / (len(self.kept_at) + 1)
        return -math.log(max(0.05, float(ndtri(1 - share))))

    def _use_draws(self, draws: int) -> None:
        """Use ``draws`` draws from now on; results of earlier draws stay known."""
        new = draws - len(self.kept_at)
        self.kept_at = np.append(self.kept_at, np.zeros(new))
        self.flipped_at = np.append(self.flipped_at, np.full(new, np.inf))
        self.flips_to = np.append(self.flips_to, np.zeros(new, dtype=np.int64))
        self.flips_by_level = {}

    def _count(self, level: float) -> Steps[int]:
        """Flips at the level, inferred from other levels where possible."""
        unknown = np.flatnonzero((self.kept_at < level) & (self.flipped_at > level))
        if len(unknown):
            yield from self._request(level, unknown)
        flips = int((self.flipped_at <= level).sum())
        self.flips_by_level[level] = flips
        return flips

    def _direct(self, level: float, draws: Ints) -> Steps[NDArray[np.bool_]]:
        """Whether these draws flip at the level, without inference."""
        unseen = (self.kept_at[draws] != level) & (self.flipped_at[draws] != level)
        flips: NDArray[np.bool_] = self.kept_at[draws] != level
        if unseen.any():
            requested, results = yield from self._request(level, draws[unseen])
            # The request may have added draws to fill a pass.
            flips[unseen] = (results != KEPT)[np.isin(requested, draws[unseen])]
        return flips

    def _request(self, level: float, draws: Ints) -> Steps[tuple[Ints, Ints]]:
        """The results of these draws, and of a few inferred results to fill a multiple of 8.

        Returns:
            The draws (n,), ascending, and their results (n,).

        Raises:
            _OutOfPassesError: the remaining passes do not suffice.
        """
        others = np.setdiff1d(np.arange(len(self.kept_at)), draws, assume_unique=True)
        fill = min(len(others), -len(draws) % _ROWS)
        if fill:
            evenly = np.arange(fill) * len(others) // fill
            draws = np.sort(np.append(draws, others[evenly]))
        if self.passes + len(draws) > self.plan.most:
            raise _OutOfPassesError
        results = yield DrawRequest(level, draws)
        self.passes += len(draws)
        flips = results != KEPT
        kept_at = self.kept_at[draws]
        flipped_at = self.flipped_at[draws]
        inferred = (kept_at > level) | (flipped_at < level)
        wrong = inferred & (flips != (flipped_at < level))
        self.checked += int(inferred.sum())
        self.reversals += int(wrong.sum())
        lower_flip = flips & (level < flipped_at)
        self.flips_to[draws[lower_flip]] = results[lower_flip]
        self.flipped_at[draws[lower_flip]] = level
        self.kept_at[draws[~flips]] = np.maximum(kept_at[~flips], level)
        return draws, results


def _middle(below: float, above: float) -> float:
    """The geometric middle of a bracket; its other end where one is 0 or infinite."""
    if below == 0:
        return above
    if not math.isfinite(above):
        return below
    return math.sqrt(below * above)


def _round_up(number: float) -> int:
    """Round up to a multiple of 8."""
    return _ROWS * math.ceil(number / _ROWS)
