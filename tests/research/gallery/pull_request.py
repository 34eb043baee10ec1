"""What a pull request says that swaps a network for a more accurate one."""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from markdown_it import MarkdownIt

import robaudit
from robaudit.api.run import Run
from tests.research.gallery.browser import screenshot
from tests.research.gallery.classes import CIFAR
from tests.research.gallery.gallery import (
    SHARED_AS_WRITTEN,
    Content,
    Gallery,
    accuracy_under,
    apart,
    clean_accuracy,
    group,
    images,
    mean_difference,
    network,
    table,
    values,
    with_ends,
)
from tests.shared import SHARED

BASE = "main"
NEW = "pull-request"
_SIGMA = 0.1
_GATES = ("accuracy >= 0.6", "mean >= 0.75", "worst_class >= 0.5")
_DROPS = ("mean_drop <= 0.01", "noisy_accuracy_drop <= 0.01")
_ANNOTATION = re.compile(r"^::(\w+) title=(.*?)::(.*)$", re.MULTILINE)
_SIGNS = {"\N{WHITE HEAVY CHECK MARK}": "✓", "\N{CROSS MARK}": "✗"}
_UNTIL = "- Samples that changed"
"""Where the picture of the summary ends: what follows are single images."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command with ``--format github`` gave.

    Attributes:
        annotations: its standard output.
        summary: what it appended to the job summary, Markdown.
        code: its exit code.
    """

    annotations: str
    summary: str
    code: int


def gate(gallery: Gallery) -> Content:
    """The annotations and the job summary of a pull request."""
    content = Content(
        about="A pull request swaps a CIFAR-10 network: the adversarially trained CNN of the main "
        "branch for the one trained with attacks and proven bounds, which is more accurate. The "
        "pictures show what `--format github` printed and appended to the job summary, laid out "
        "like GitHub's pages. 1,000 images, Gaussian noise of sigma 0.1, 32 copies each.",
    )
    runs = [
        gallery.run(
            content,
            name,
            network(model),
            images(model, 1000, CIFAR),
            noise={"sigma": [_SIGMA]},
            estimators=[{"mc": {"draws": 32}}],
        )
        for name, model in ((BASE, "cifar10_cnn_a_adv"), (NEW, "cifar10_cnn_a_mix"))
    ]
    alone = _ran(gallery, content, "gate", NEW, *_GATES)
    drops = [word for drop in _DROPS for word in ("--gate", drop)]
    compared = _ran(gallery, content, "compare", BASE, NEW, *drops)
    _draw(
        gallery,
        content,
        "pull-request-annotations",
        _annotations(alone.annotations + compared.annotations),
        "Annotations: three gates passed, and an error says that robustness fell",
    )
    _draw(
        gallery,
        content,
        "pull-request-summary",
        _summary(compared.summary),
        "The job summary of the comparison: gates, differences, classes",
    )
    _sentences(content, runs, alone, compared)
    return content


def _ran(
    gallery: Gallery, content: Content, command: Literal["gate", "compare"], *words: str
) -> Outcome:
    """Run a command as a job of GitHub does, in the folder of the runs."""
    line = [command, *words, "--format", "github"]
    content.commands.append(shlex.join(["robaudit", *line]))
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.md"
        done = subprocess.run(
            [sys.executable, "-m", "robaudit", *line],
            cwd=gallery.out,
            env={**os.environ, "GITHUB_STEP_SUMMARY": str(summary)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1, 4):
            raise robaudit.RobauditError(command, done.stderr.strip())
        return Outcome(_shown(done.stdout), _shown(summary.read_text()), done.returncode)


def _shown(text: str) -> str:
    """The text with the place of ../shared in a clone."""
    return text.replace(str(SHARED), SHARED_AS_WRITTEN)


def _annotations(text: str) -> str:
    """The annotations as boxes."""
    boxes = []
    for level, title, message in _ANNOTATION.findall(text):
        boxes.append(
            f"<div class='annotation {level}'><b>{html.escape(unquote(title))}</b>"
            f"{html.escape(unquote(message))}</div>"
        )
    return "".join(boxes)


def _summary(text: str) -> str:
    """The job summary as HTML, with signs that every font has."""
    shown = text.partition(_UNTIL)[0]
    for sign, plain in _SIGNS.items():
        shown = shown.replace(sign, plain)
    return str(MarkdownIt("commonmark").enable("table").render(shown))


def _draw(gallery: Gallery, content: Content, name: str, body: str, alt: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.png"
        screenshot(body, path)
        gallery.picture(content, name, path, alt)


def _sentences(content: Content, runs: list[Run], alone: Outcome, compared: Outcome) -> None:
    base, new = runs
    pair = robaudit.compare_runs(base, new)
    mean_drop, accuracy_drop = pair.gate(*_DROPS)
    rows = [
        (
            name,
            with_ends(clean_accuracy(run)),
            with_ends(accuracy_under(run, "gaussian", _SIGMA).population),
            with_ends(group(run, "mc", "gaussian", _SIGMA).mean.population),
        )
        for name, run in ((BASE, base), (NEW, new))
    ]
    content.tables.append(table(("run", "accuracy", "accuracy under noise", "p_robust"), rows))
    content.say(
        "The pull request looks like progress: accuracy rises from "
        f"{with_ends(clean_accuracy(base))} to {with_ends(clean_accuracy(new))}, and the three "
        f"gates on the new network alone pass (exit code {alone.code}).",
        if_=alone.code == 0 and clean_accuracy(new).value > clean_accuracy(base).value,
    )
    content.say(
        "Compared with the main branch, image by image and on the same noise, it is stopped (exit "
        f"code {compared.code}): the share of noisy copies that keep their class falls by "
        f"{with_ends(mean_drop.estimate)}, and 0.01 was allowed.",
        if_=compared.code == 1 and mean_drop.verdict == "fail",
    )
    content.say(
        "A gate on accuracy under noise lets it pass, at a drop of "
        f"{with_ends(accuracy_drop.estimate)}: under noise, too, more copies are right than "
        "before.",
        if_=accuracy_drop.verdict == "pass" and accuracy_drop.estimate.value < 0,
    )
    content.say(
        "Both are true: the new network is right more often and more fickle, and the gate says "
        "which of the two a project wants to protect; a team that reads accuracy alone never "
        "learns that there was a choice.",
        if_=mean_drop.verdict != accuracy_drop.verdict,
    )
    of_images = mean_difference(
        values(base, "mc", "gaussian", _SIGMA), values(new, "mc", "gaussian", _SIGMA)
    )
    content.say(
        "Without pairing it would not be seen: the two intervals of p_robust in the table "
        f"overlap, and their difference for images like these, {with_ends(of_images)}, excludes 0.",
        if_=not apart(
            group(new, "mc", "gaussian", _SIGMA).mean.population,
            group(base, "mc", "gaussian", _SIGMA).mean.population,
        )
        and of_images.upper is not None
        and of_images.upper < 0,
    )
    content.surprise = (
        f"A network that is {100 * (clean_accuracy(new).value - clean_accuracy(base).value):.0f} "
        "points more accurate passes all of its own gates, and is stopped: it keeps fewer of its "
        "predictions than the one before."
    )
