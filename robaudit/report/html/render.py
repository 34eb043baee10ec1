"""One or several runs as a single HTML page that loads nothing from anywhere."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from robaudit.errors import NothingLeftError, RunError, needs_extra
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.report import curve_tables, words
from robaudit.report.certified_tables import OfRun, page_tables
from robaudit.report.html import facts
from robaudit.report.html.cards import NOT_FLAGGED, Gallery, Shown, show
from robaudit.report.html.content import Content
from robaudit.report.html.tables import (
    CERTIFIED_WORDS,
    CURVE_WORDS,
    LOSS_WORDS,
    SCORE_WORDS,
    accuracy_table,
    agreement_table,
    certified_together,
    class_view,
    comparison_notes,
    comparison_tables,
    cost_table,
    curves_together,
    robustness_tables,
)
from robaudit.report.html.verdict import NO_THRESHOLD, flag_rule, sentence, tiles
from robaudit.report.loss_tables import loss_table, worst_losses_tables
from robaudit.report.pictures.page import Sketch
from robaudit.report.score_tables import table_of
from robaudit.report.summary_tables import MEANINGS, run_names
from robaudit.stats.curves import Curves
from robaudit.stats.flags import Certainty
from robaudit.store.run import Run
from robaudit.text import class_name, clipped, printable

if TYPE_CHECKING:
    from robaudit.report.gallery import ImageSource

SECTIONS = (
    ("verdict", "Verdict"),
    ("accuracy", "Accuracy"),
    ("robustness", "Robustness"),
    ("losses", "Worst case"),
    ("scores", "Radius"),
    ("certified", "Certified"),
    ("curves", "Error curves"),
    ("easiest", "Easiest images"),
    ("classes", "Classes"),
    ("samples", "Flagged samples"),
    ("agreement", "Agreement"),
    ("cost", "Cost"),
    ("made", "Provenance"),
)
_CERTAINTIES = {
    **words.CERTAINTIES,
    Certainty.NO: f"{NOT_FLAGGED}: shown as one of the least robust.",
}
_OPEN = 3  # noise levels whose classes and samples start unfolded


def page(
    contents: Sequence[Content],
    *,
    title: str | None = None,
    images: bool = True,
    source: ImageSource | None = None,
    threshold: float | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The page of one or several runs.

    Args:
        contents: of the runs, at least one.
        title: the heading; by default, made from the names of the runs.
        images: whether samples are shown as images.
        source: where these are read; None: where the specs of the runs say.
        threshold: beyond it a sample is flagged, for the pictures.

    Returns:
        The HTML, and why images are missing, one line per reason.

    Raises:
        RobauditError: jinja2 or matplotlib is not installed.
    """
    templates = environment()
    names = [clipped(printable(name), 100) for name in run_names([content.run for content in contents])]
    shown = [show(content, source, images=images) for content in contents]
    runs = [_run(content, one, name, threshold) for content, one, name in zip(contents, shown, names, strict=True)]
    style, script = _resource("style.css"), _resource("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    several = len(contents) > 1
    text = templates.get_template("report.html.j2").render(
        title=title or f"Robustness of {names[0] if not several else ', '.join(names)}",
        runs=runs,
        comparison=comparison_tables(contents, names) if several else (),
        comparison_notes=comparison_notes(contents) if several else (),
        comparison_certified=_certified(together) if (together := certified_together(contents, names)) else None,
        comparison_curves=_curves(beside) if (beside := curves_together(contents, names)) else None,
        cover=words.COVER,
        folded_from=_OPEN,
        sections=SECTIONS,
        policy=policy,
        style=_safe(style),
        script=_safe(script),
        version=version("robaudit"),
    )
    return text, tuple(dict.fromkeys(problem for one in shown for problem in one.problems))


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

    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _safe(text: str) -> Any:
    """Our own text, which is already HTML."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704  package data, or made by inline_picture


def _resource(name: str) -> str:
    return (files("robaudit.report.html") / name).read_text(encoding="utf-8")


def _run(content: Content, shown: Shown, name: str, threshold: float | None) -> dict[str, Any]:
    """What the template reads of one run."""
    beside = content.beside_losses()
    easiest = _easiest(content, threshold)
    optional = {
        "robustness": beside.groups,
        "losses": content.losses,
        "scores": content.scores,
        "certified": content.certified,
        "curves": content.curves,
        "easiest": easiest,
        "agreement": content.agreements,
    }
    has = {key for key, _ in SECTIONS if optional.get(key, True)}
    drawn = (("distribution", "robustness", beside), ("agreement", "agreement", content), ("cost", "cost", content))
    class_names = content.run.class_names
    cards = [card for gallery in shown.galleries for card in gallery.cards]
    there = {card.certainty for card in cards}
    return {
        "name": name,
        "facts": facts.facts(content),
        "has": has,
        "sentence": sentence(content),
        "warnings": content.run.info["warnings"],
        "tiles": tiles(content),
        "decisions": facts.decision_table(content.decisions) if content.decisions else None,
        "accuracy": accuracy_table(content),
        "robustness": robustness_tables(content),
        "pictures": {kind: _picture(kind, part, threshold) for kind, section, part in drawn if section in has},
        "losses": _losses(content, threshold) if content.losses else None,
        "scores": _scores(content) if content.scores else None,
        "certified": _certified(content.certified) if content.certified else None,
        "curves": _curves([content.curves]) if content.curves is not None else None,
        "easiest": easiest,
        "classes": [_classes(content, i, threshold) for i in range(len(content.biases))],
        "problems": shown.problems,
        "galleries": [_gallery(content, gallery) for gallery in shown.galleries],
        "class_options": [(i, class_name(i, class_names, 40)) for i in sorted({index for card in cards for index in card.classes})],
        "certainty_options": [(key, NOT_FLAGGED if key is Certainty.NO else key) for key in _CERTAINTIES if key in there],
        "certainty_words": " ".join(text for key, text in _CERTAINTIES.items() if key in there),
        "reduced": shown.reduced,
        "agreement": agreement_table(content),
        "cost": cost_table(content),
        "examples": shown.examples,
        "provenance": facts.provenance(content),
        "versions": facts.versions(content),
        "sessions": facts.session_table(content),
        "skipped": facts.skipped_table(content),
        "spec": _lines(content.run.info["spec"]),
    }


def _classes(content: Content, i: int, threshold: float | None) -> dict[str, Any]:
    bias = content.biases[i]
    view = class_view(content, bias)
    tested = sum(one.images > 1 for one in bias.classes) > 1
    picture = _picture("bias", content, threshold, bias.key.estimator, bias.key.at) if tested else None
    return {
        "title": view.title,
        "open": i == 0 or len(content.biases) <= _OPEN,
        "explanation": words.gap_sentence(bias),
        "picture": picture,
        "table": view.table,
        "best": view.best,
        "rest": view.rest,
        "notes": view.notes,
    }


def _losses(content: Content, threshold: float | None) -> dict[str, Any]:
    return {
        "picture": _picture("loss-q", content, threshold),
        "words": LOSS_WORDS,
        "table": loss_table(content.losses, content.by_key(), content.levels),
        "worst": list(worst_losses_tables(content.losses, content.levels)),
    }


def _scores(content: Content) -> dict[str, Any]:
    from robaudit.report.pictures import radii

    return {
        "picture": _drawn("radius", lambda: radii.sketch(content.scores)),
        "words": SCORE_WORDS,
        "tables": [table_of(one, page=True) for one in content.scores],
    }


def _certified(every: Sequence[OfRun]) -> dict[str, Any]:
    from robaudit.report.pictures import certified

    return {
        "picture": _drawn("certified", lambda: certified.sketch(every)),
        "words": CERTIFIED_WORDS,
        "tables": list(page_tables(every)),
    }


def _curves(every: Sequence[Curves]) -> dict[str, Any]:
    from robaudit.report.pictures import curves

    return {
        "picture": _drawn("curves", lambda: curves.sketch(every)),
        "words": CURVE_WORDS,
        "tables": list(curve_tables.page_tables(every)),
    }


def _easiest(content: Content, threshold: float | None) -> list[dict[str, Any]]:
    """The pictures of the easiest images that the run has enough results for."""
    found = []
    for kind in ("heat-map", "corruption-kept"):
        with contextlib.suppress(RunError, NothingLeftError):
            found.append(_picture(kind, content, threshold))
    return found


def _gallery(content: Content, gallery: Gallery) -> dict[str, Any]:
    one, level = gallery.flagged, content.levels[gallery.flagged.key.at]
    extra = max(0, len(gallery.cards) - one.beyond)
    listed = len(gallery.cards) - extra
    text = f"{one.beyond:,} of {one.total:,} images are flagged{words.bracketed_certainties(one)}: {flag_rule(one)}."
    if not one.has_threshold:
        text = f"None of {one.total:,} images is flagged: {NO_THRESHOLD}."
    if listed < one.beyond:
        text += f" Shown: the {listed:,} least robust."
    if extra:
        text += f" Also shown: {extra} of the least robust that are not flagged."
    meaning = MEANINGS.get(one.key.quantity, one.unit)
    text += f" The large number on a card is {one.key.quantity}, the {meaning}, with its 95% interval."
    return {"title": f"{one.key.estimator}, {level}", "level": level, "caption": text, "cards": gallery.cards}


def _picture(
    kind: str, content: Content, threshold: float | None, estimator: str | None = None, at: NoiseLevel | None = None
) -> dict[str, Any]:
    """An inline picture of the chosen part of the run, and its caption; its lead is in the text above it."""
    from robaudit.report.pictures import kinds

    names = list(dict.fromkeys(group.key.estimator for group in content.groups))
    levels = list(content.levels)
    one_name = estimator or (names[0] if len(names) == 1 else None)
    one_level = at if at is not None else levels[0] if len(levels) == 1 else None
    choice = kinds.Choice(
        () if one_name is None else (one_name,),
        LevelChoice() if one_level is None else one_level.choice,
        threshold,
    )
    svg, caption = kinds.inline_picture(kind, _narrowed(content), choice)
    return {"svg": _safe(svg), "caption": caption}


def _drawn(kind: str, make: Callable[[], Sketch]) -> dict[str, Any]:
    """The same of statistics that the content has already."""
    from robaudit.report.pictures import kinds

    svg, caption = kinds.inline_sketch(kind, make)
    return {"svg": _safe(svg), "caption": caption}


def _narrowed(content: Content) -> Run:
    """The run with the chosen rows only, where several but not all groups were chosen."""
    if content.whole or len(content.groups) == 1:
        return content.run
    keys = {(group.key.estimator, group.key.at) for group in content.groups}
    return replace(content.run, rows=tuple(row for row in content.run.rows if (row.estimator, row.at) in keys))


def _lines(spec: Mapping[str, Any]) -> Any:
    """The spec as YAML, escaped line by line."""
    import yaml
    from markupsafe import Markup, escape

    text = yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True)
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())
