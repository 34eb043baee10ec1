"""Runs as a single HTML page that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from robaudit.errors import needs_extra
from robaudit.report import words
from robaudit.report.html import facts
from robaudit.report.html.cards import PageImages, show
from robaudit.report.html.content import Content, PageSection
from robaudit.report.html.verdict import gate_line, glance, sentence
from robaudit.report.numbers import signs
from robaudit.report.sections import SectionName
from robaudit.stats.flags import Certainty
from robaudit.text import class_name, printable

if TYPE_CHECKING:
    from robaudit.report.gallery import ImageSource

_CERTAINTIES = {
    **words.CERTAINTIES,
    Certainty.NO: "not flagged: shown as one of the least robust.",
}


def page(
    content: Content, *, title: str | None = None, images: bool = True, source: ImageSource | None = None
) -> tuple[str, tuple[str, ...]]:
    """The page of one or several runs.

    Args:
        content: of the runs.
        title: the heading; by default, made from the names of the runs.
        images: whether samples are shown as images.
        source: where to read the images; None: where the specs of the runs say.

    Returns:
        The HTML, and why images are missing, one line per reason.

    Raises:
        RobauditError: jinja2 or matplotlib is not installed.
    """
    templates = environment()
    shown = show(content, source, images=images)
    style, script = _resource("style.css"), _resource("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    views = content.views
    text = templates.get_template("report.html.j2").render(
        title=title or f"Robustness of {', '.join(view.name for view in views)}",
        runs=[
            {
                "name": view.name if len(views) > 1 else "",
                "warnings": view.run.info.warnings,
                "sentence": sentence(content, view),
                "gates": gate_line(view),
                "decisions": facts.decision_table(view.decisions) if view.decisions else None,
                "facts": facts.facts(view),
                "spec": _lines(view.run.info.spec),
            }
            for view in views
        ],
        glance=glance(content),
        data_line=facts.data_line(views),
        sections=[_section(part) for part in content.parts],
        shown=shown,
        gallery=_gallery(content, shown),
        made=[facts.provenance(views), *facts.skipped_tables(views)],
        policy=policy,
        style=_safe(style),
        script=_safe(script),
        version=version("robaudit"),
        signs=signs,
    )
    return text, shown.problems


def environment() -> Any:
    """Templates that escape everything they print, control characters included.

    Raises:
        RobauditError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise needs_extra("robaudit report", "jinja2", "report") from error

    return Environment(loader=FunctionLoader(_resource), autoescape=True, undefined=StrictUndefined, finalize=_shown, trim_blocks=False)


def _shown(value: object) -> object:
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _INTERVAL.sub(lambda match: match[0].replace(" ", "\xa0"), printable(value))


_INTERVAL = re.compile(r"\[\S* \S*\]")
"""An interval, inside which lines do not break."""


def _safe(text: str) -> Any:
    """Our own text, which is already HTML."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704  package data, or our own picture


def _resource(name: str) -> str:
    return (files("robaudit.report.html") / name).read_text(encoding="utf-8")


def _section(part: PageSection) -> dict[str, Any]:
    """What the template reads of a section: its tables and picture, or the cards of the flagged samples."""
    cards = part.name is SectionName.FLAGGED
    tables = () if cards else part.tables
    return {
        "name": part.name.value,
        "title": part.section.title,
        "words": part.section.words,
        "picture": _picture(part) if any(table.columns for table in tables) else None,
        "tables": tables,
        "cards": cards,
    }


def _picture(part: PageSection) -> dict[str, Any]:
    """The picture of a section, and its caption."""
    from robaudit.report.pictures.inline import inline

    sketch = part.section.figure(part.entries, part.ask)
    return {"svg": _safe(inline(part.name.value, sketch)), "caption": sketch.caption}


def _gallery(content: Content, shown: PageImages) -> dict[str, Any]:
    """What the cards can be filtered by, and what their badges mean."""
    cards = [card for gallery in shown.galleries for card in gallery.cards]
    present, names = {card.certainty for card in cards}, content.views[0].run.class_names
    return {
        "cards": len(cards),
        "classes": [(i, class_name(i, names, 40)) for i in sorted({index for card in cards for index in card.classes})],
        "certainties": [(key, "not flagged" if key is Certainty.NO else key) for key in _CERTAINTIES if key in present],
        "words": " ".join(text for key, text in _CERTAINTIES.items() if key in present),
    }


def _lines(spec: Mapping[str, Any]) -> Any:
    """The spec as YAML, escaped line by line."""
    import yaml
    from markupsafe import Markup, escape

    text = yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True)
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())
