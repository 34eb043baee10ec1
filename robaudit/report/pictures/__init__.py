"""Pictures, where matplotlib is installed: the extra ``plot``."""

from __future__ import annotations

from importlib.util import find_spec

from robaudit.errors import needs_extra


def can_draw(*, required: bool = False, where: str = "--picture") -> bool:
    """Whether matplotlib is installed; it is not imported.

    Args:
        required: a picture was asked for.
        where: what asked for it.

    Raises:
        RobauditError: it is required and missing.
    """
    installed = find_spec("matplotlib") is not None
    if required and not installed:
        raise needs_extra(where, "matplotlib", "plot")
    return installed
