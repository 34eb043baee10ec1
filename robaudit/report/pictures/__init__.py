"""Pictures, where matplotlib is installed: the extra ``plot``."""

from __future__ import annotations

from importlib.util import find_spec

from robaudit.errors import RobauditError


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
        raise RobauditError(where, "matplotlib is not installed", "pip install 'robaudit[plot]'")
    return installed
