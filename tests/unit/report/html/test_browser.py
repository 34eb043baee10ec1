"""The page in a real browser: nothing fails, nothing is fetched, and it fits screen, dark, phone
and paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TRANSPARENT = "rgba(0, 0, 0, 0)"


@pytest.fixture
def browser() -> Iterator[Browser]:
    """The system's Chromium; playwright's own is not asked for."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed", exc_type=ImportError
    )
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no chromium ({', '.join(NAMES)}) on the PATH")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield chromium
        finally:
            chromium.close()


def colours(page: Page) -> tuple[str, ...]:
    script = "name => getComputedStyle(document.querySelector(name)).backgroundColor"
    found = tuple(page.evaluate(script, name) for name in ("body", ".panel"))
    assert TRANSPARENT not in found
    return found


def contrast(page: Page, selector: str) -> float:
    """The contrast of a text with its card or its own ground (WCAG 2)."""
    script = """name => {
      const element = document.querySelector(name), own = getComputedStyle(element).backgroundColor;
      const panel = getComputedStyle(document.querySelector('.panel')).backgroundColor;
      const ground = own === 'rgba(0, 0, 0, 0)' ? panel : own;
      const luminance = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map((c) => c / 255)
          .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const both = [luminance(getComputedStyle(element).color), luminance(ground)];
      const [low, high] = both.sort((a, b) => a - b);
      return (high + 0.05) / (low + 0.05);
    }"""
    return float(page.evaluate(script, selector))


def test_in_chromium(browser: Browser, html_file: Path) -> None:
    assert html_file.stat().st_size < 2_000_000
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(html_file.as_uri())
    assert page.locator("svg[role=img]").count() >= 4
    texts = (".note", ".caption", "td.bad", "nav a")
    there = [text for text in texts if page.locator(text).count()]
    assert [text for text in there if contrast(page, text) < 4.5] == []
    light = colours(page)
    page.emulate_media(color_scheme="dark")
    assert set(colours(page)).isdisjoint(light)
    assert [text for text in there if contrast(page, text) < 4.5] == []

    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("nav").is_visible()
    assert colours(page)[1] == "rgb(255, 255, 255)"

    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [html_file.as_uri()]
