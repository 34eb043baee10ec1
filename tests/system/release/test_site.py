"""The site of the docs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_every_page_and_every_docstring_of_the_site_can_be_read(tmp_path: Path) -> None:
    """No link leads nowhere, and no page is missing in the navigation."""
    # A process of its own: Sphinx warns of its own deprecations, which are errors here.
    done = subprocess.run(
        [sys.executable, "-m", "tests.research.site", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert 'id="robaudit.audit"' in reference
    assert 'id="robaudit.measure_noise"' in reference
