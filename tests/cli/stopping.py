"""Audits that end early, whatever the clock says."""

from __future__ import annotations

import pytest

from robaudit.auditing import main_loop


def time_is_over_after(looks: int, patch: pytest.MonkeyPatch) -> None:
    """Let the time of an audit be over from its ``looks``-th look at the clock on; there is one
    after each step."""
    counted = iter(range(1, 10**9))
    patch.setattr(main_loop._Clock, "is_over", property(lambda _: next(counted) > looks))
