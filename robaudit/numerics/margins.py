"""Margins of a classifier: values, gradients, moments under noise, tests of normality, and
standardised limits.

A margin is g_i = f_t - f_i, f the logits and t the target class: the class is t while all margins
are positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import gram, mean_over, total, variance_over

NEVER = -1e30
"""The logit of a class that never wins, in place of minus infinity: margins to it stay finite."""
_ROUNDING = 8
"""Rounding of logits, in units in the last place of the largest logit."""
SOFTNESS = 0.25
"""Softness of the votes in :func:`reflection_shift`, in standard deviations of a margin.

At a softness of .15, .3, .5 and 1, the RMSE of the corrected probability was .030, .028, .027 and
.029 with 64 draws (hard votes: .032), and .016, .015, .015 and .020 with 256 (.017).
"""


def other_classes(target: Tensor, classes: int) -> Tensor:
    """The classes other than the target, in ascending order: (n,) -> (n, classes - 1)."""
    index = torch.arange(classes - 1, device=target.device)
    # From the target on, classes are one place further.
    return index + (index >= target[:, None]).long()


def margins(logits: Tensor, target: Tensor) -> Tensor:
    """g_i = f_t - f_i for i != t, classes in ascending order: (n, classes) and (n,) -> (n, classes
    - 1)."""
    others = other_classes(target, logits.shape[1])
    own = logits.gather(1, target[:, None])
    return own - logits.gather(1, others)


def margin_gradients(
    f: Callable[[Tensor], Tensor],
    x: Tensor,
    target: Tensor | None = None,
    others: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, margins and margin gradients at x, by one forward pass and one backward pass per
    requested margin.

    It differentiates the margin itself, instead of subtracting two logit gradients: nothing cancels
    and no full Jacobian is stored. ``f`` must treat the images of a batch independently (a network
    in eval mode does).

    Args:
        f: (n, channels, height, width) -> logits (n, classes), differentiable.
        x: points (n, channels, height, width).
        target: class t of each point; argmax of the logits when None.
        others: class i of each requested margin (n, k); -1 for none, with the constant margin 1.
            All classes but t when None.

    Returns:
        logits (n, classes), margins g (n, k), gradients u_i = grad g_i (n, k, pixels), k = classes
        - 1 without ``others``.

    Raises:
        ValueError: if the logits do not depend on x through autograd.

    Source: Han et al., "Efficient Estimation of Average-Case Robustness", Propositions 3.1 and 3.3
        (c_i and u_i).
    """
    with torch.enable_grad():
        points = x.detach().requires_grad_(True)
        logits = f(points)
        if not logits.requires_grad:
            raise ValueError("the logits have no gradient with respect to the input")
        if target is None:
            target = logits.detach().argmax(1)
        if others is None:
            g = margins(logits, target)
            requested = list(range(g.shape[1]))
        else:
            g = _some_margins(logits, target, others)
            # A column in which no image requests a margin needs no backward pass.
            requested = (others >= 0).any(0).nonzero()[:, 0].tolist()
        pixels = x[0].numel()
        gradients = torch.zeros((*g.shape, pixels), dtype=x.dtype, device=x.device)
        # One backward pass per margin: on the CPU a loop takes 7.4 ms an image of ResNet20 with 10
        # classes, a single vmapped pass 8.3 and repeated inputs 13.5.
        for i in requested:
            # Images are independent, so the gradient of the sum has each image's gradient in its
            # row. The last pass may free the graph.
            is_last = i == requested[-1]
            total_margin = g[:, i].sum()
            (u,) = torch.autograd.grad(total_margin, points, retain_graph=not is_last)
            gradients[:, i] = u.flatten(1)
    return logits.detach(), g.detach(), gradients


def _some_margins(logits: Tensor, target: Tensor, others: Tensor) -> Tensor:
    """Margins to the classes ``others`` (n, k); 1 where the class is -1."""
    own = logits.gather(1, target[:, None])
    g = own - logits.gather(1, others.clamp_min(0))
    return torch.where(others >= 0, g, 1.0)


class PairMoments(NamedTuple):
    """Moments of g(x + eps) from pairs g(x + eps), g(x - eps).

    Attributes:
        mean: (batch, k).
        covariance: of g (batch, k, k), the sum for the even and the odd part.
    """

    mean: Tensor
    covariance: Tensor


def halves(margins: Tensor) -> tuple[Tensor, Tensor]:
    """Even and odd part of each pair: (batch, draws, k) -> two tensors (batch, draws / 2, k),
    float64."""
    plus = margins[:, 0::2].double()
    minus = margins[:, 1::2].double()
    return (plus + minus) / 2, (plus - minus) / 2


def pair_moments(even: Tensor, odd: Tensor) -> PairMoments:
    """Mean and covariance of g from the even and odd parts of h pairs.

    g = even + odd, and the two are uncorrelated because eps and -eps are equally likely; the odd
    part has mean zero. So mean = average of the even parts (with the error of the even part alone:
    zero for a linear model) and S = S_even (h - 1 degrees of freedom) + sum odd odd^T / h.

    Args:
        even, odd: (batch, h, k), h >= 2.
    """
    h = even.shape[1]
    mean = mean_over(even, 1)
    centred = even - mean[:, None]
    # The mean of the even part is estimated, which costs a degree of freedom. The odd part has the
    # known mean 0.
    even_covariance = gram(centred.transpose(1, 2)) / (h - 1)
    odd_covariance = gram(odd.transpose(1, 2)) / h
    return PairMoments(mean, even_covariance + odd_covariance)


def without_each_group(parts: Tensor, groups: int) -> Tensor:
    """The pairs, leaving out each group in turn; pair j is in group j modulo ``groups``.

    Args:
        parts: (batch, h, k), h a multiple of ``groups``.
        groups: how many.

    Returns:
        (groups * batch, h - h / groups, k), group by group.
    """
    batch, h, _ = parts.shape
    group = torch.arange(groups, device=parts.device)
    other_groups = other_classes(group, groups)  # (groups, groups - 1)
    first_of_turn = torch.arange(0, h, groups, device=parts.device)  # (h / groups,)
    remaining = first_of_turn[:, None] + other_groups[:, None]
    remaining = remaining.flatten(1)  # (groups, h - h / groups)
    image = torch.arange(batch, device=parts.device)
    without = parts[image[:, None], remaining[:, None]]  # (groups, batch, h - h / groups, k)
    return without.flatten(0, 1)


def standardise(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """z_i = c_i / s_i and R_ij = S_ij / (s_i s_j), so that P[N(c, S) > 0] = Phi_R(z).

    A margin without variance is constant: z = +inf if it is positive and -inf otherwise (a tie
    counts as a failure); its correlations are 0.

    Args:
        mean: c (batch, k).
        covariance: S (batch, k, k), positive semi-definite.

    Returns:
        z (batch, k) and R (batch, k, k) with unit diagonal and entries in [-1, 1], float64.

    Source: Han et al., "Efficient Estimation of Average-Case Robustness", Lemmas A.1 and A.3, in
        standardised form.
    """
    c = mean.double()
    s2 = covariance.double()
    # A propagated variance may be a little below 0 by rounding.
    s = s2.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
    is_constant = s == 0
    scale = torch.where(is_constant, 1.0, s)
    z_of_constant = torch.where(c > 0, torch.inf, -torch.inf)
    z = torch.where(is_constant, z_of_constant, c / scale)
    r = (s2 / scale[:, :, None] / scale[:, None, :]).clamp(-1, 1)
    either_is_constant = is_constant[:, :, None] | is_constant[:, None, :]
    r = torch.where(either_is_constant, 0.0, r)
    # Entries (i, j) and (j, i) are divided in different orders, and so rounded differently.
    r = (r + r.transpose(1, 2)) / 2
    r.diagonal(dim1=1, dim2=2).fill_(1.0)
    return z, r


def mv_sigmoid(z: Tensor) -> Tensor:
    """1 / (1 + sum_i exp(-z_i)) over the last dimension, float64, without overflow.

    Source: Han et al., "Efficient Estimation of Average-Case Robustness", section 3.2.3.
    """
    # The 1 of the denominator is exp(0), of the target's margin to itself.
    exponents = torch.nn.functional.pad(-z.double(), (1, 0))
    most = exponents.amax(-1, keepdim=True)
    # z = -inf fails surely: the sum is inf and the value 0, where inf - inf would be no number.
    most = torch.where(most == torch.inf, 0.0, most)
    log_sum = total(torch.exp(exponents - most)).log()
    return torch.exp(-most.squeeze(-1) - log_sum)


class Shape(NamedTuple):
    """Shape of a distribution, (batch,) each.

    Attributes:
        skewness: third standardised moment.
        kurtosis: excess over the normal distribution's.
        p_value: of normality: twice the smaller of the two-sided p-values of both.
    """

    skewness: Tensor
    kurtosis: Tensor
    p_value: Tensor


def shape_of_pairs(even: Tensor, odd: Tensor) -> Shape:
    """Skewness and excess kurtosis of antithetic draws even +- odd, tested against normality.

    The two members of a pair have correlation rho = (V_even - V_odd)/(V_even + V_odd); this
    multiplies the variances of the sample skewness and kurtosis of n normal draws by 1 + rho^3 (at
    least 1 here) and 1 + rho^4, which is treated as fewer draws. The p-values are D'Agostino's and
    Anscombe and Glynn's (accurate from about 20 draws on), combined by Bonferroni.

    Args:
        even, odd: (batch, pairs), float64.

    Source: D'Agostino 1970 (Biometrika 57); Anscombe and Glynn 1983 (Biometrika 70).
    """
    centred = even - mean_over(even, 1)[:, None]
    v_even = mean_over(centred.square(), 1)
    v_odd = mean_over(odd.square(), 1)
    variance = v_even + v_odd
    is_constant = variance <= 0
    safe_variance = torch.where(is_constant, 1.0, variance)
    draws = torch.cat([centred + odd, centred - odd], dim=1)
    u = draws / safe_variance.sqrt()[:, None]
    # Products instead of powers: the last bits of pow depend on the position in the batch.
    u2 = u.square()
    skewness = mean_over(u * u2, 1)
    kurtosis = mean_over(u2.square(), 1) - 3
    rho = torch.where(is_constant, 0.0, (v_even - v_odd) / safe_variance)
    n = torch.full_like(variance, float(u.shape[1]))
    rho2 = rho.square()
    # A negative rho would count as more than n draws; the factor is kept at 1.
    positive_rho = rho.clamp_min(0)
    draws_for_skewness = n / (1 + positive_rho * rho2)
    draws_for_kurtosis = n / (1 + rho2.square())
    z_skewness = _skewness_score(skewness, draws_for_skewness)
    z_kurtosis = _kurtosis_score(kurtosis, draws_for_kurtosis)
    z = torch.stack([z_skewness, z_kurtosis])
    # A two-sided p-value is erfc(|z| / sqrt 2); twice the smaller one (Bonferroni).
    doubled_p = 2 * torch.special.erfc(z.abs() / 2**0.5)
    p = doubled_p.amin(0).clamp_max(1.0)
    return Shape(
        torch.where(is_constant, 0.0, skewness),
        torch.where(is_constant, 0.0, kurtosis),
        torch.where(is_constant, 1.0, p),
    )


def reflection_shift(even: Tensor, odd: Tensor) -> Tensor:
    """Half the difference between P[g > 0] and the same for margins of opposite skewness: the error
    of a normal fit to skewed margins.

    A pair is g = m + e +- o: the mean, the centred even part and the odd part. The reflection m - e
    +- o has the same mean and covariance, while every cumulant of odd order changes sign: the
    cumulants of three margins are E[e_i e_j e_k] and the three E[e_i o_j o_k], which are the
    skewness of networks. So the normal fit lies midway between the two to second order in the
    cumulants, and

        D = E[v(m + e + o) + v(m + e - o) - v(m - e + o) - v(m - e - o)] / 4

    is the distance of P[g > 0] from it. This sees the skewness of the *joint* distribution, which
    single margins hide. Cumulants of even order cancel, up to a bias of order 1 / pairs; D is 0 on
    average for normal margins, and exactly 0 for linear ones (e = 0). A vote v is soft: Phi(T /
    SOFTNESS) for the smallest standardised margin T = min_i g_i / s_i. On networks this lowers the
    variance (terms linear in e have mean 0), and D itself by a factor of about (1 +
    SOFTNESS^2)^(-3/2).

    Args:
        even, odd: (batch, pairs, k), at least 2 pairs.

    Returns:
        D (batch,), in [-1/2, 1/2].

    Source: robaudit; for a single margin, to third order, it is Edgeworth's skewness / 6 (z^2 - 1)
        phi(z).
    """
    mean = mean_over(even, 1)[:, None]
    variance = variance_over(even, 1) + mean_over(odd.square(), 1)
    scale = variance.sqrt()[:, None]
    # A constant margin keeps its own unit; it is positive in all votes, or in none.
    scale = torch.where(scale > 0, scale, 1.0)
    reflected = 2 * mean - even

    def votes(part: Tensor) -> Tensor:
        """Soft votes of both members of every pair together: (batch, pairs)."""
        smallest_plus = ((part + odd) / scale).amin(2)
        smallest_minus = ((part - odd) / scale).amin(2)
        return normal_cdf(smallest_plus / SOFTNESS) + normal_cdf(smallest_minus / SOFTNESS)

    return mean_over(votes(even) - votes(reflected), 1) / 4


def _skewness_score(b1: Tensor, n: Tensor) -> Tensor:
    """The standard normal score of a sample skewness b1 of n normal draws: delta asinh(y / alpha).

    Source: D'Agostino 1970, equations for Johnson's S_U curve.
    """
    inverse_variance = (n + 1) * (n + 3) / (6 * (n - 2))
    y = b1 * inverse_variance.sqrt()
    # Kurtosis of b1 itself.
    numerator = 3 * (n * n + 27 * n - 70) * (n + 1) * (n + 3)
    beta2 = numerator / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    w2 = (2 * (beta2 - 1)).sqrt() - 1
    alpha = (2 / (w2 - 1)).sqrt()
    ratio = (y / alpha).abs()
    # asinh(x) = log1p(x + x^2 / (1 + sqrt(1 + x^2))), which cancels nothing for small x.
    square = ratio.square()
    asinh = torch.log1p(ratio + square / (1 + (1 + square).sqrt())) * y.sign()
    return asinh / (0.5 * w2.log()).sqrt()


def _kurtosis_score(excess: Tensor, n: Tensor) -> Tensor:
    """The standard normal score of a sample excess kurtosis of n normal draws.

    Source: Anscombe and Glynn 1983: mean, variance and skewness of the kurtosis, fitted by a
        transformed chi-squared variable (Wilson and Hilferty's cube root).
    """
    mean = 3 * (n - 1) / (n + 1)
    numerator = 24 * n * (n - 2) * (n - 3)
    variance = numerator / ((n + 1) ** 2 * (n + 3) * (n + 5))
    x = (excess + 3 - mean) / variance.sqrt()
    # Skewness of the kurtosis.
    squared_factor = 6 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3))
    root = squared_factor.sqrt()
    skewness = 6 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * root
    # Degrees of freedom of the chi-squared variable with this skewness.
    degrees = 6 + 8 / skewness * (2 / skewness + (1 + 4 / skewness**2).sqrt())
    scale = (2 / (degrees - 4)).sqrt()
    ratio = (1 - 2 / degrees) / (1 + x * scale)
    # By exp and log: the last bits of pow depend on the position in the batch.
    cube_root = torch.exp(ratio.abs().log() / 3) * ratio.sign()
    variance_of_root = 2 / (9 * degrees)
    return ((1 - variance_of_root) - cube_root) / variance_of_root.sqrt()


def ease(logits: Tensor, y: Tensor) -> list[tuple[float, float]]:
    """The easiness of images: the log-odds g of a class, and its margin to the largest other logit.

    With the softmax score p of the class, g = log(p / (1 - p)) = f_y - log sum_{j != y} exp f_j.

    Args:
        logits: (images, classes), float64.
        y: a class of each image (images,), int64.

    Returns:
        (g, margin) of each image.
    """
    own = logits.gather(1, y[:, None])
    others = logits.scatter(1, y[:, None], -torch.inf)
    log_odds = own - others.logsumexp(1, keepdim=True)
    margin = own - others.amax(1, keepdim=True)
    pairs = torch.cat([log_odds, margin], 1).tolist()
    return [(g, m) for g, m in pairs]


def margin_rounding(
    logits: Tensor,
    constants: Tensor,
    eps: float,
    pixels: int,
    span: float = 0.0,
) -> Tensor:
    """The most that rounding may add to margins: eps (8 max |z| + K max(span, sqrt(pixels))).

    The rounding of a layer acts as if its input were off by about eps times its size, which later
    layers amplify by at most the constant: the second term matters if the terms of a product nearly
    cancel, or the constant is huge. If a large number is added and subtracted again, intermediate
    values (the span) exceed what the pixels alone could cause. A network with a margin below the
    bound cannot be told from a network with another class nearby, so nothing is certified.

    Args:
        logits: (rows, classes).
        constants: K of margins in l2 (rows, ...).
        eps: of the network's type of number.
        pixels: values in an image.
        span: of the bound; 0: unknown.

    Returns:
        (rows, ...).
    """
    # The stand-in for minus infinity is exact, however large it is.
    unmasked = torch.where(logits <= NEVER, 0.0, logits)
    largest = unmasked.abs().amax(1)
    largest = largest.reshape(-1, *[1] * (constants.dim() - 1))
    # Pixels in [0, 1] have a norm of at most sqrt(pixels).
    size = max(span, math.sqrt(pixels))
    return eps * (_ROUNDING * largest + constants * size)
