"""Genz's separation of variables for an ordered normal orthant probability, point by point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf, normal_quantile
from robaudit.numerics.ordering import NO_TIE, OrderedFactor
from robaudit.numerics.rowwise import aligned, product, total

# z(p) = (1/2 - p) N(s) / D(s) with s = sqrt(2 - log(4 p (1 - p))), minimax in the relative error (3.7e-6) for |Phi^-1(p)|
# <= 10.5, fitted by reweighted least squares. Coefficients rise with the power of s.
_NUMERATOR = (8.44888632, 24.54518492, -48.29488349, 41.42816595, -16.34828229, 2.83714481)
_DENOMINATOR = (17.52117726, -21.35108168, 15.20186515, -5.65103407, 1.0)
_OFFSET = 2.0 - math.log(4.0)
_LEAST = 1e-25  # p (1 - p) is not taken smaller
_BLOCK = 16  # variables between two matrix products
_LOGARITHM = 4  # factors multiplied before a logarithm is taken, so that single precision does not underflow
_FAR = 40.0
_SQRT_HALF, _SQRT_TWO = math.sqrt(0.5), math.sqrt(2.0)


def scaled_upper_quantile(probability: Tensor, out: Tensor, scratch: Sequence[Tensor]) -> Tensor:
    """-Phi^-1(p) / sqrt 2, to a relative error of 5e-6 for p in [1e-25, 1 - 6e-8]; other p count as the nearest of these.

    Elementary operations without allocation, so it runs at the speed of the vector units: a third of the time of
    `torch.special.ndtri`.

    Args:
        probability: p, any shape, float32; overwritten.
        out: where the result goes, of the same shape and type.
        scratch: two more of the same shape and type.

    Returns:
        `out`; finite.
    """
    numerator, denominator, offset = _coefficients(probability.device)
    s, below = scratch
    torch.addcmul(probability, probability, probability, value=-1.0, out=s).clamp_min_(_LEAST).log_()
    torch.sub(offset, s, out=s).sqrt_()
    torch.add(numerator[-2], s, alpha=_NUMERATOR[-1] * math.sqrt(0.5), out=out)
    for coefficient in numerator[-3::-1]:
        torch.addcmul(coefficient, out, s, out=out)
    torch.add(denominator[-2], s, out=below)
    for coefficient in denominator[-3::-1]:
        torch.addcmul(coefficient, below, s, out=below)
    return out.div_(below).mul_(probability.neg_().add_(0.5))


@lru_cache(maxsize=8)
def _coefficients(device: torch.device) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], Tensor]:
    numerator = torch.tensor([c * math.sqrt(0.5) for c in _NUMERATOR], dtype=torch.float32, device=device)
    denominator = torch.tensor(_DENOMINATOR, dtype=torch.float32, device=device)
    return numerator.unbind(), denominator.unbind(), torch.tensor(_OFFSET, dtype=torch.float32, device=device)


class _Earlier:
    """The variables drawn so far, by row.

    Args:
        n: (variables, rows, points), filled one variable after the other from outside.
    """

    def __init__(self, n: Tensor) -> None:
        self._n = n
        variables, rows, points = n.shape
        size = min(variables, _BLOCK)
        self._left = n.new_empty(size, rows, points)
        self._known = aligned(rows, _BLOCK, points, n) if variables > _BLOCK else None
        self._by_row: Tensor | None = None
        self._copied = 0

    def sums(self, weights: Tensor, rows: list[int], i: int) -> Tensor:
        """Weighted sums of the first i variables: weights (some rows, n, i or more) -> (some rows, n, points).

        Where :meth:`by_row` says so, the rows are asked for one by one.
        """
        if not i:
            return weights.new_zeros(*weights.shape[:2], self._n.shape[2])
        if self._n.device.type != "cpu" or self.by_row(i):
            return product(weights[..., :i], self._before(i)[rows])
        some = self._n[:i, rows].unsqueeze(2)  # (i, rows, 1, points)
        each = weights[..., :i].unbind(-1)  # (rows, n)
        found = each[0].unsqueeze(-1) * some[0]
        for j in range(1, i):
            found += each[j].unsqueeze(-1) * some[j]
        return found

    def by_row(self, i: int) -> bool:
        """Whether sums of so many variables are cheaper as matrix products of single rows."""
        return self._n.device.type == "cpu" and i > _BLOCK

    def _before(self, i: int) -> Tensor:
        """The first i variables: (rows, i, points), on the CPU contiguous in each row."""
        if self._n.device.type != "cpu":
            return self._n[:i].transpose(0, 1)
        if self._by_row is None:
            variables, rows, points = self._n.shape
            self._by_row = self._n.new_empty(rows, variables, points)
        if self._copied < i:
            self._by_row[:, self._copied : i] = self._n[self._copied : i].transpose(0, 1)
            self._copied = i
        return self._by_row[:, :i]

    def taken_from(self, first: Tensor, slope: Tensor, start: int) -> Tensor:
        """What is left of the limits of a block when those before it are taken into account.

        Args:
            first: limits of the block, (size, rows, 1).
            slope: (rows, variables, variables).
            start: number of the block's first variable.

        Returns:
            (size, rows, points), until the next call.
        """
        size = first.shape[0]
        left = self._left[:size]
        if not start:
            return left.copy_(first)
        acting = slope[:, start : start + size, :start]
        acting = torch.nn.functional.pad(acting, (0, 0, 0, _BLOCK - size))  # of one shape, however wide the widest row
        known = product(acting, self._before(start), out=self._known)
        return torch.sub(first, known[:, :size].transpose(0, 1), out=left)


class _Ties:
    """The ties of some rows, by level.

    Args:
        factor: the ordered factor.
        limit: limits of the ties (rows, ties), measured from the tilt.
    """

    def __init__(self, factor: OrderedFactor, limit: Tensor) -> None:
        self._factor, self._limit = factor, limit
        self._spans: dict[int, dict[int, tuple[int, int]]] = {}  # by level and row: the first tie and one after the last
        for row, levels in enumerate(factor.tie_level.tolist() if factor.tie_level.shape[1] else []):
            for column, level in enumerate(levels):
                if level < NO_TIE:
                    spans = self._spans.setdefault(level, {})
                    spans[row] = spans.get(row, (column, column))[0], column + 1

    def narrow(self, i: int, s: Tensor, u: Tensor, earlier: _Earlier, twice: Tensor, n: Tensor | None) -> None:
        """Where ties keep t_i between limits: 2 (Phi(above) - Phi(below)) into `twice`, -Phi^-1(...) / sqrt 2 into `n`.

        Args:
            i: number of the variable.
            s: -t_i / sqrt 2 without ties, (rows, points).
            u: (points,).
            earlier: the variables before it.
            twice: (rows, points), overwritten in the rows with a tie of this level.
            n: likewise; None after the last variable.
        """
        spans = self._spans.get(i)
        if spans is None:
            return
        rows = torch.tensor(list(spans), device=s.device)
        above, below = self._bounds(i, spans, earlier)
        floor = normal_cdf(below)
        mass = (normal_cdf(torch.minimum(s[rows] * -_SQRT_TWO, above)) - floor).clamp_min_(0.0)
        twice[rows] = 2.0 * mass
        if n is not None:
            n[rows] = normal_quantile(floor + u * mass).mul_(-_SQRT_HALF).clamp_(-_FAR, _FAR)

    def _bounds(self, i: int, spans: dict[int, tuple[int, int]], earlier: _Earlier) -> tuple[Tensor, Tensor]:
        """The lowest upper and the highest lower limit of each row: (rows with such a tie, points) each."""
        groups = [[row] for row in spans] if earlier.by_row(i) else [list(spans)]
        parts = []
        for rows in groups:
            columns = slice(min(spans[row][0] for row in rows), max(spans[row][1] for row in rows))
            here = (self._factor.tie_level[rows, columns] == i).unsqueeze(-1)
            side = self._factor.tie_side[rows, columns].unsqueeze(-1)
            bound = self._limit[rows, columns].unsqueeze(-1) + _SQRT_TWO * earlier.sums(self._factor.tie_slope[rows, columns], rows, i)
            above = torch.where(here & (side > 0), bound, torch.inf).amin(1)
            below = torch.where(here & (side < 0), bound, -torch.inf).amax(1)
            parts.append((above, below))
        above, below = (torch.cat(found) for found in zip(*parts, strict=True))
        return above, below


def separated_values(factor: OrderedFactor, tilt: Tensor | None, points: Tensor) -> Tensor:
    """Integrand of Genz's transformation, with each y_i drawn around its tilt.

    With t_i = limit_i - sum_{j<i} slope_ij y_j - tilt_i and y_i = tilt_i + Phi^-1(u_i Phi(t_i)), the mean of

        prod_i Phi(t_i) exp(tilt_i^2 / 2 - tilt_i y_i)

    over uniform u is the orthant probability, whatever the tilt; a good one makes the product nearly constant. Ties
    narrow the interval of their level: Phi(t_i) becomes Phi(min of the upper limits) - Phi(max of the lower ones).

    Computed with s_i = -t_i / sqrt 2 and n_i = (tilt_i - y_i) / sqrt 2, because 2 Phi(t_i) = erfc(s_i).

    Args:
        factor: the ordered factor, `rank` variables and `ties` ties.
        tilt: (rows, rank); None for the plain transformation, good to 1e-6 when the result is not itself that small.
        points: u, (rank, points) in (0, 1). Their type is that of the computation; ties need float64.

    Returns:
        (rows, points), float64, non-negative.

    Source:
        Genz (1992), J. Comput. Graph. Stat. 1, equation (5); Botev (2017), JRSS B 79, equation (8) for the tilt.
    """
    rows, width = factor.limit.shape
    count, kind = points.shape[1], points.dtype
    limit = factor.limit if tilt is None else factor.limit - tilt - _applied(factor.slope, tilt)
    real = torch.arange(width, device=points.device) < factor.rank.unsqueeze(-1)  # the others have t = 0, so their factor 2 Phi(t) is one
    first = (torch.where(real, limit, 0.0).T * -_SQRT_HALF).to(kind).unsqueeze(-1)  # (width, rows, 1)
    slope = factor.slope.to(kind)
    columns = slope.permute(2, 1, 0).contiguous().unsqueeze(-1)  # by the variable that acts: (width, width, rows, 1)
    weights = None if tilt is None else (tilt.T * _SQRT_TWO).to(kind).unsqueeze(-1).unbind()
    ties = _Ties(factor, factor.tie_limit if tilt is None else _tie_limits(factor, tilt))
    n = torch.empty(width, rows, count, dtype=kind, device=points.device)
    earlier = _Earlier(n)
    each_n, each_u, each_half = n.unbind(), points.unbind(), (0.5 * points).unbind()
    product, exponent, scratch = n.new_ones(rows, count), n.new_zeros(rows, count), n.new_empty(4, rows, count).unbind()
    twice = scratch[0]
    for start in range(0, width, _BLOCK):
        stop = min(start + _BLOCK, width)
        s = earlier.taken_from(first[start:stop], slope, start)
        each_s = s.unbind()
        for i in range(start, stop):
            out = each_n[i] if i < width - 1 else None
            if tilt is None:
                _plain(each_s[i - start], each_u[i], twice, out)
            else:
                _tailed(each_s[i - start], each_half[i], scratch, out)
            ties.narrow(i, each_s[i - start], each_u[i], earlier, twice, out)
            product.mul_(twice)
            if out is not None:
                if i + 1 < stop:
                    s[i + 1 - start :].addcmul_(columns[i, i + 1 : stop], out, value=-1.0)
                if weights is not None:  # the tilt of a last variable is zero
                    exponent.addcmul_(weights[i], out)
            if weights is not None and (i % _LOGARITHM == _LOGARITHM - 1 or out is None):
                exponent.add_(product.log_())
                product.fill_(1.0)
    if tilt is None:
        return product.double().mul_(_halvings(width, points.device)[factor.rank].unsqueeze(-1))
    constant = 0.5 * total(tilt * tilt) + factor.rank.to(tilt.dtype) * math.log(2.0)
    return exponent.double().sub_(constant.unsqueeze(-1)).exp_()


@lru_cache(maxsize=64)
def _halvings(most: int, device: torch.device) -> Tensor:
    """2^-0 to 2^-most."""
    return torch.tensor([0.5**i for i in range(most + 1)], dtype=torch.float64, device=device)


def _applied(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrices (rows, n, width) times vectors (rows, width), by row; zeros at the end of a vector change nothing."""
    return total(matrix * vector.unsqueeze(1))


def _tie_limits(factor: OrderedFactor, tilt: Tensor) -> Tensor:
    """Limits of the ties measured from the tilt."""
    if not factor.tie_level.shape[1]:
        return factor.tie_limit
    at_level = tilt.gather(1, factor.tie_level.clamp_max(tilt.shape[1] - 1))
    return factor.tie_limit - at_level - _applied(factor.tie_slope, tilt)


def _plain(s: Tensor, u: Tensor, twice: Tensor, n: Tensor | None) -> None:
    """2 Phi(t) and n = -Phi^-1(u Phi(t)) / sqrt 2, to an absolute error of rounding."""
    torch.erf(s, out=twice).neg_().add_(1.0)
    if n is not None:
        torch.erfinv(torch.mul(twice, u, out=n).neg_().add_(1.0), out=n).clamp_(-_FAR, _FAR)


def _tailed(s: Tensor, half: Tensor, scratch: tuple[Tensor, ...], n: Tensor | None) -> None:
    """The same with small relative errors; u / 2 is given, and 2 Phi(t) is the first of `scratch`."""
    twice, probability, *rest = scratch
    torch.erfc(s, out=twice)
    if n is None:
        return
    torch.mul(twice, half, out=probability)
    if s.dtype == torch.float32:
        scaled_upper_quantile(probability, n, rest)
    else:
        torch.special.ndtri(probability, out=n).mul_(-_SQRT_HALF).clamp_(-_FAR, _FAR)
