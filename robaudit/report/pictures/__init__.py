"""Pictures, where matplotlib is installed: the extra ``plot``."""

from __future__ import annotations

from importlib.util import find_spec

from robaudit.errors import needs_extra
from robaudit.report.sections import ROWS, SAMPLE, section_names

FORMATS = ("png", "svg", "pdf")


def kinds_of_picture() -> tuple[str, ...]:
    """The sections of a page; those of plugins need not have a picture."""
    return tuple(name for name in section_names() if name not in (SAMPLE, ROWS))


def can_draw(*, required: bool = False, where: str = "--picture") -> bool:
    """Whether matplotlib is installed; it is not imported.

    Args:
        required: whether the caller needs matplotlib.
        where: what needs it, for the message.

    Raises:
        RobauditError: it is required and missing.
    """
    # only the search for it is quick: it is imported by what draws
    installed = find_spec("matplotlib") is not None
    if required and not installed:
        raise needs_extra(where, "matplotlib", "plot")
    return installed
