"""HTML as a picture, by the Chromium of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from robaudit.errors import RobauditError

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_WIDTH = 900
"""Pixels of the page."""

STYLE = """
body { margin: 16px; font: 14px/1.5 -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
  color: #1f2328; background: white; }
h3 { font-size: 17px; margin: 14px 0 8px; border-bottom: 1px solid #d1d9e0; padding-bottom: 4px; }
table { border-collapse: collapse; margin: 10px 0; }
th, td { border: 1px solid #d1d9e0; padding: 5px 11px; }
tr:nth-child(even) td { background: #f6f8fa; }
.annotation { border: 1px solid #d1d9e0; border-left: 5px solid #59636e; border-radius: 6px;
  padding: 9px 14px; margin: 10px 0; overflow-wrap: anywhere; }
.annotation.error { border-left-color: #cf222e; }
.annotation.warning { border-left-color: #bf8700; }
.annotation.notice { border-left-color: #0969da; }
.annotation b { display: block; }
"""


def screenshot(body: str, path: Path) -> None:
    """Draw HTML into a PNG file, as high as it needs.

    Raises:
        RobauditError: there is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise RobauditError("gallery", f"no {_PROGRAMS[0]} on the PATH", "install one")
    with sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        page = chromium.new_page(viewport={"width": _WIDTH, "height": 100})
        page.set_content(f"<meta charset='utf-8'><style>{STYLE}</style>{body}")
        page.screenshot(path=path, full_page=True)
        chromium.close()
