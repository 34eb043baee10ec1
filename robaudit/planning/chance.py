"""What is more than chance in differences of a few images?"""

from __future__ import annotations

import math

import numpy as np

from robaudit.planning.trials import Floats

KNOWN_ERROR, KNOWN_BIAS = 0.003, 0.002
"""Of logit_gaussian with many draws: RMSE .001 to .004 on seven networks."""

_KNOWN_HONESTY, _KNOWN_WEIGHT = 0.43, 20


def honest(ratio: float, images: int) -> float:
    """True over stated variance of logit_gaussian: the ratio that a few images show, and what was measured on seven networks.

    There it was .24 to .56 (docs/estimators.md: the coupled draws scatter less than they say), and counts as much as 20 images do.
    """
    return float(np.clip((_KNOWN_WEIGHT * _KNOWN_HONESTY + images * ratio) / (_KNOWN_WEIGHT + images), 0.25, 1.5))


def doubted(squares: Floats, explained: float) -> float:
    """The mean square beyond what is explained, and a standard error more, at least what is known of better estimators.

    An approximation whose error no draws remove is not to be recommended because a few images happened to flatter it.
    """
    error = float(np.std(squares, ddof=1)) / math.sqrt(len(squares)) if len(squares) > 1 else 0.0
    return max(KNOWN_ERROR**2, float(np.mean(squares)) - explained + error)


def beyond(squares: Floats, explained: float, known: float) -> float:
    """The mean square beyond what is explained, if it is significant (two standard errors), else what is known."""
    rest = float(np.mean(squares)) - explained
    error = float(np.std(squares, ddof=1)) / math.sqrt(len(squares)) if len(squares) > 1 else math.inf
    return max(known, rest) if rest > 2 * error else known


def significant(differences: Floats, known: float) -> float:
    """The mean, if it is significant (two standard errors) and larger than what is known, else that."""
    mean = abs(float(np.mean(differences)))
    error = float(np.std(differences, ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return max(mean, known) if mean > 2 * error else known
