"""The site of the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.research.site import build


@pytest.mark.slow
def test_every_page_and_every_docstring_of_the_site_can_be_read(tmp_path: Path) -> None:
    """No link leads nowhere, and no page is missing in the navigation."""
    assert build(tmp_path / "site") == 0
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert 'id="robaudit.audit"' in reference
    assert 'id="robaudit.measure_noise"' in reference
