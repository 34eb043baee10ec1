"""Runs as a single HTML page that loads nothing from anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from robaudit.errors import NothingLeftError, RobauditError, needs_extra
from robaudit.report.html import facts
from robaudit.report.html.content import Content, PageSection, RunView
from robaudit.report.html.verdict import flag_sentence, gate_line, glance, sentence
from robaudit.report.numbers import signs
from robaudit.report.sections import FLAGGED
from robaudit.text import harmless_html, printable

if TYPE_CHECKING:
    from robaudit.report.gallery import ImageSource


def page(
    content: Content,
    *,
    title: str | None = None,
    images: bool = True,
    source: ImageSource | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The page of one or several runs.

    Args:
        content: of the runs.
        title: the heading; by default, made from the names of the runs.
        images: whether samples are shown as images.
        source: where to read the images; None: where the specs of the runs say.

    Returns:
        The HTML, and why images are missing, if they are.

    Raises:
        RobauditError: jinja2 or matplotlib is not installed.
    """
    templates = environment()
    sections = [_section(part, source, images=images) for part in content.parts]
    views = content.views
    text = templates.get_template("report.html.j2").render(
        title=title or f"Robustness of {', '.join(view.name for view in views)}",
        runs=[_run(content, view) for view in views],
        glance=glance(content),
        sections=sections,
        made=[facts.provenance(views), *facts.skipped_tables(views)],
        style=_safe(_resource("style.css")),
        version=version("robaudit"),
        signs=signs,
    )
    problems = [section["problem"] for section in sections]
    return harmless_html(text), tuple(filter(None, problems))


def _run(content: Content, view: RunView) -> dict[str, Any]:
    """The part of the template about a run."""
    return {
        "name": view.name if len(content.views) > 1 else "",
        "warnings": view.run.info.notices,
        "sentence": sentence(view),
        "flags": flag_sentence(content, view),
        "gates": gate_line(view),
        "decisions": facts.decision_table(view.decisions) if view.decisions else None,
        "facts": facts.facts(view),
        "spec": _lines(view.run.info.spec),
    }


def environment() -> Any:
    """Templates that escape everything they print, control characters included.

    Raises:
        RobauditError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise needs_extra("robaudit report", "jinja2", "report") from error

    # Names come from models, data and specs of strangers: everything is escaped, and a name that
    # the template misspells is an error instead of an empty place.
    return Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=False,
    )


def _shown(value: object) -> object:
    """A text without control characters, whose intervals and counts stay in one line."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _UNBROKEN.sub(lambda match: match[0].replace(" ", "\xa0"), printable(value))


_UNBROKEN = re.compile(r"\[\S* \S*\]|\b[\d,]+ of [\d,]+\b")
"""An interval or a count, inside which lines do not break."""


def _safe(text: str) -> Any:
    """Our own text, which is already HTML."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704  package data, or our own picture


def _resource(name: str) -> str:
    return (files("robaudit.report.html") / name).read_text(encoding="utf-8")


def _section(part: PageSection, source: ImageSource | None, *, images: bool) -> dict[str, Any]:
    """The part of the template about a section: its tables and its picture. The picture of samples
    is left out, with the reason, if their images cannot be read."""
    from robaudit.report.pictures.inline import inline

    picture = None
    problem = ""
    of_images = part.name == FLAGGED
    has_picture = part.section.has_figure and any(table.columns for table in part.tables)
    if has_picture and (images or not of_images):
        try:
            drawing = part.section.figure(part.entries, replace(part.request, data=source))
            picture = {"svg": _safe(inline(part.name, drawing)), "caption": drawing.caption}
        except NothingLeftError:
            pass  # the tables say why there is nothing to draw
        except RobauditError as error:
            if not of_images:
                raise
            problem = str(error)
    return {
        "name": part.name,
        "title": part.section.title,
        "words": part.section.words,
        "picture": picture,
        "problem": problem,
        "tables": part.tables,
    }


def _lines(spec: Mapping[str, Any]) -> Any:
    """The spec as YAML, escaped line by line."""
    import yaml
    from markupsafe import Markup, escape

    text = yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True)
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())
