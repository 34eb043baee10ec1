"""What an audit does at an unusable sample, and how many it may skip."""

from __future__ import annotations

from typing import Literal

from robaudit.errors import SpecError
from robaudit.settings import ON_ERROR

OnError = Literal["stop", "skip"] | float
"""Stop at the first unusable sample, skip up to a tenth of all samples, or up to this share."""

_USUAL_SHARE = 0.1


def on_error_of(value: object) -> OnError:
    """The value of ``--on-error`` or of the argument.

    Raises:
        SpecError: it is neither a word nor a share.
    """
    if value == "stop":
        return "stop"
    if value == "skip":
        return "skip"
    try:
        share = float(str(value))
    except ValueError:
        share = -1.0  # refused below, with the same words as a number out of range
    if not 0.0 < share <= 1.0:
        raise SpecError(
            ON_ERROR.set_to(str(value)),
            "is not stop, skip or a share of the samples",
            "to skip up to half of them, for example: " + ON_ERROR + " 0.5",
        )
    return share


def most_skipped(on_error: OnError) -> float:
    """The share of the samples that an audit may skip."""
    if on_error == "stop":
        return 0.0
    return _USUAL_SHARE if on_error == "skip" else on_error
