"""Pictures, where matplotlib is installed: the extra ``plot``."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec

from robaudit.errors import needs_extra


class Kind(StrEnum):
    """What a picture shows; drawn by the section of that name, else by the module of that name."""

    SUMMARY = "summary"
    LEVELS = "levels"
    CLASSES = "classes"
    FLAGGED = "flagged"
    CONFUSION = "confusion"
    CERTIFIED = "certified"
    SCORES = "scores"
    CURVES = "curves"
    CORRUPTION = "corruption"
    EASIEST = "easiest"
    LOSSES = "losses"
    SAMPLE = "sample"
    NOISE = "noise"


KINDS = tuple(kind for kind in Kind if kind is not Kind.NOISE)
"""The pictures of runs."""
FORMATS = ("png", "svg", "pdf")


def can_draw(*, required: bool = False, where: str = "--picture") -> bool:
    """Whether matplotlib is installed; it is not imported.

    Args:
        required: whether the caller needs matplotlib.
        where: what needs it, for the message.

    Raises:
        RobauditError: it is required and missing.
    """
    installed = find_spec("matplotlib") is not None
    if required and not installed:
        raise needs_extra(where, "matplotlib", "plot")
    return installed
