"""How many bytes do an image's logits, moments and normal CDFs take at their peak?

Counted from the code (what is alive at once) and checked by measurement (tests/estimators/test_memory.py).
"""

from __future__ import annotations

RECORD = 2048
"""Python's objects for a result: estimate, row, interval, remarks."""

WORK_SPACE = 2**26
"""What the normal CDF holds at once however many problems it is given: points, and pieces of bounded size."""

_LOGITS_ALIVE = 48  # for each draw and class, six float64: logits or margins, their indices, and copies
_MOMENT_MATRICES, _CDF_MATRICES = 6, 12  # k x k, float64: covariance, correlation and temporaries; pivoted factors, too
_VECTORS, _CDF_SUMS = 24, 2560  # of k float64, and sums over the shifts


def votes(classes: int, samples: int) -> int:
    """Counts by class: a tensor, a list and a tuple; numbers above 256 are objects of their own."""
    return 32 * (classes + 1) + 32 * min(classes, samples // 256)


def logits(draws: int, classes: int) -> int:
    """Logits of so many noisy copies of an image, on their way to margins and moments."""
    return _LOGITS_ALIVE * draws * classes


def moments(k: int) -> int:
    """Covariance and correlation of k margins, with copies."""
    return 8 * (_MOMENT_MATRICES * k * k + _VECTORS * k)


def normal_cdf(k: int) -> int:
    """One normal probability of k margins, with their moments."""
    return 8 * (_CDF_MATRICES * k * k + _VECTORS * k) + _CDF_SUMS


def frames(values: int) -> int:
    """Coupled noise of an image: the frame that is made with copies, and those that are kept."""
    return 1024 * values + 2**26 + 2**25


def selection(classes: int) -> int:
    """Margins of the few copies that say which classes matter, and what is computed from them."""
    return logits(8, classes)


def linear_fit(groups: int, margins: int, values: int) -> int:
    """Mean gradients of each group in float32 (and a quarter more: the C library's gaps), and the image once more."""
    return values * (5 * groups * margins + 8)
