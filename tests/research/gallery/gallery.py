"""What a page of the gallery is made of: runs that are kept, tables of their numbers, small
pictures, and sentences that the numbers must bear out."""

from __future__ import annotations

import io
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image

import robaudit
from robaudit.api.run import Run
from robaudit.estimates import Estimate
from robaudit.files import write_atomically
from robaudit.runs.groups import GroupKey
from robaudit.stats.bootstrap import differences
from robaudit.stats.summary import GroupSummary, NoisyAccuracy
from tests.shared import SHARED, card

Floats = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[3]
_WIDTH = 940
"""Pixels of a picture: `robaudit plot` writes 2,100, for print."""
_COLOURS = 256
_THUMBNAIL = (360, 232)
SHARED_AS_WRITTEN = "../shared"
"""Where the specs of the pages expect networks and images: seen from a clone of the project."""


class ContradictionError(Exception):
    """A sentence of a page that the numbers no longer bear out."""


@dataclass(slots=True)
class Content:
    """What a maker puts on its page.

    Attributes:
        about: what was audited.
        surprise: the page in one line of the index.
        specs: of the audits, by the name of the run, as shown.
        commands: that make the page's numbers and pictures.
        tables: Markdown, with a line above each that says what it has.
        pictures: file name and alternative text.
        sentences: what the numbers show.
        seconds: that each audit took.
        dates: when they were made.
    """

    about: str = ""
    surprise: str = ""
    specs: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    pictures: list[tuple[str, str]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    dates: set[str] = field(default_factory=set)

    def say(self, sentence: str, *, if_: bool = True) -> None:
        """Add a sentence about the numbers.

        Args:
            sentence: in plain English.
            if_: what must hold of the numbers for the sentence to be true.

        Raises:
            ContradictionError: it does not hold.
        """
        if not if_:
            raise ContradictionError(sentence)
        self.sentences.append(sentence)


class Gallery:
    """Where the makers of pages get runs from and put pictures.

    Args:
        out: folder of the runs; what is there is not computed again.
        pages: folder of the pages and pictures.
    """

    def __init__(self, out: Path, pages: Path) -> None:
        self.out = out
        self.pages = pages

    def beside(self, name: str) -> str:
        """The path of a file beside the runs; on a page its name alone is shown."""
        return f"{os.path.relpath(self.out)}/{name}"

    def run(
        self,
        content: Content,
        name: str,
        model: Mapping[str, Any],
        dataset: Mapping[str, Any],
        **sections: Any,
    ) -> Run:
        """An audit; a finished one is read, an interrupted one continued.

        Args:
            content: of the page that shows its spec and seconds.
            name: of the run and its folder.
            model, dataset: sections of the spec.
            sections: the further ones.
        """
        spec = {"model": dict(model), "dataset": dict(dataset), **sections}
        # The spec as a reader of the page writes it, with the place of ../shared in a clone.
        shown = yaml.safe_dump(spec, sort_keys=False, default_flow_style=None, width=100)
        shown = shown.replace(str(SHARED), SHARED_AS_WRITTEN)
        content.specs[name] = shown.replace(self.beside(""), "")
        content.commands.append(f"robaudit estimate {name}.yaml --out {name}")
        run = robaudit.audit({"name": name, **spec}, out=self.out / name, progress=False)
        content.seconds[name] = run.info.totals.seconds
        content.dates.add(run.info.finished[:10])
        return run

    def plot(
        self, content: Content, name: str, run: Run, kind: str, alt: str, **options: Any
    ) -> None:
        """Put a picture of ``robaudit plot`` on the page; options as of :meth:`Run.plot`."""
        content.commands.append(_plot_command(run, kind, name, options))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "picture.png"
            run.plot(kind, path, **options)
            self.picture(content, name, path, alt)

    def picture(self, content: Content, name: str, path: Path, alt: str) -> None:
        """Put a PNG on the page, small enough for a repository."""
        image = Image.open(path).convert("RGB")
        if image.width > _WIDTH:
            height = round(image.height * _WIDTH / image.width)
            image = image.resize((_WIDTH, height), Image.Resampling.LANCZOS)
        _write(self.pages / f"{name}.png", image)
        content.pictures.append((f"{name}.png", alt))

    def thumbnail(self, page: str, picture: str) -> str:
        """Write the upper part of a picture in small; returns its file name."""
        image = Image.open(self.pages / picture).convert("RGB")
        across, down = _THUMBNAIL
        height = min(image.height, round(image.width * down / across))
        small = image.crop((0, 0, image.width, height))
        small.thumbnail(_THUMBNAIL, Image.Resampling.LANCZOS)
        framed = Image.new("RGB", _THUMBNAIL, "white")
        framed.paste(small, ((across - small.width) // 2, 0))
        _write(self.pages / f"{page}-small.png", framed)
        return f"{page}-small.png"


def _plot_command(run: Run, kind: str, name: str, options: Mapping[str, Any]) -> str:
    """The command line of a picture."""
    words = ["robaudit", "plot", run.path.name]
    words += [one.path.name for one in options.get("with_", ())]
    words += ["--kind", kind]
    for option, value in options.items():
        if option == "with_":
            continue
        several = value if isinstance(value, list | tuple) else [value]
        for one in several:
            words += [f"--{option.replace('_', '-')}", f"{one}"]
    return shlex.join([*words, "-o", f"{name}.png"])


def _write(path: Path, image: Image.Image) -> None:
    sink = io.BytesIO()
    few = image.quantize(_COLOURS, dither=Image.Dither.NONE)
    few.save(sink, "PNG", optimize=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, sink.getvalue())


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        name: of its file.
        title: its heading.
        make: computes it.
    """

    name: str
    title: str
    make: Callable[[Gallery], Content]


# --- networks and images of ../shared


def network(name: str) -> dict[str, Any]:
    """The section ``model`` of a network of small images."""
    about = card(name)
    path = SHARED / "models" / name / "model.torchscript.pt"
    return {"path": str(path), "mean": about["mean"], "std": about["std"]}


def images(name: str, limit: int, class_names: Sequence[str] = ()) -> dict[str, Any]:
    """The section ``dataset`` of the first test images of a network."""
    path = SHARED / "data" / f"{card(name)['dataset']}.npz"
    names = {"class_names": list(class_names)} if class_names else {}
    return {"kind": "npz", "path": str(path), "limit": limit, **names}


# --- numbers


def group(run: Run, estimator: str, noise: str, level: float) -> GroupSummary:
    """The summary of a result."""
    (found,) = [one for one in run.summary() if _is(one.key, estimator, noise, level)]
    return found


def accuracy_under(run: Run, noise: str, level: float) -> NoisyAccuracy:
    """The accuracy of the noisy copies of ``mc``."""
    found = group(run, "mc", noise, level).noisy_accuracy
    assert found is not None, "the data have labels"
    return found


def clean_accuracy(run: Run) -> Estimate:
    """The accuracy without noise."""
    found = run.info.clean_accuracy
    assert found is not None, "the data have labels"
    return Estimate.population(found.value, (found.lower, found.upper), "clopper-pearson")


def values(run: Run, estimator: str, noise: str, level: float) -> Floats:
    """The values of a result by image, (images,); NaN where there is none."""
    (columns,) = [one for key, one in run.table.items() if _is(key, estimator, noise, level)]
    found = np.full(len(run.table.ids), np.nan)
    found[columns.place] = columns.values
    return found


def right_shares(run: Run, noise: str, level: float) -> Floats:
    """The share of the noisy copies of each image that are classified as labelled, (images,)."""
    (columns,) = [one for key, one in run.table.items() if _is(key, "mc", noise, level)]
    found = np.full(len(run.table.ids), np.nan)
    found[columns.place] = columns.hits / columns.label_draws
    return found


def _is(key: GroupKey, estimator: str, noise: str, level: float) -> bool:
    return key.estimator == estimator and key.noise == noise and key.at.level == level


def mean_difference(first: Floats, second: Floats) -> Estimate:
    """The mean over images of second minus first, with robaudit's bootstrap over images."""
    each = second - first
    observed = {"": float(each.mean())}
    return differences(len(each), lambda drawn: {"": drawn @ each / drawn.sum(1)}, observed)[
        ""
    ].estimate


def apart(low: Estimate, high: Estimate) -> bool:
    """Whether one interval is wholly below the other."""
    assert low.upper is not None
    assert high.lower is not None
    return low.upper < high.lower


def with_ends(found: Estimate, digits: int = 3) -> str:
    """A value and its interval."""
    value = f"{found.value:.{digits}f}"
    if found.lower is None or found.upper is None:
        return value
    return f"{value} [{found.lower:.{digits}f}, {found.upper:.{digits}f}]"


def percent(value: float) -> str:
    """A share in whole percent, or with one decimal below 10 and above 99."""
    digits = 0 if 0.1 <= value <= 0.99 else 1
    return f"{100 * value:.{digits}f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])
