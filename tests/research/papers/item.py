"""What a page is made of: items (a table or figure of a paper), the runs that they share, and
verdicts on the paper's conclusions."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

import robaudit
from robaudit.api.run import Run
from robaudit.estimates import Estimate
from robaudit.stats.bootstrap import PairedDifference, differences
from tests.shared import SHARED, card, document

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
LEVEL = 0.01
"""Of each test that decides a conclusion."""
FEWEST = 8
"""Images that a bootstrap needs to decide anything."""


class Verdict(StrEnum):
    """What a measurement says about a conclusion of a paper."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot be told"


@dataclass(frozen=True, slots=True)
class Claim:
    """A conclusion of a paper, and what we measured about it."""

    text: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True, slots=True)
class Part:
    """What an item adds to its page: Markdown below its heading, and rows of the table of
    conclusions."""

    body: str
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is computed, as multiples of the quick form."""

    name: str
    images: float
    draws: float


QUICK = Budget("quick", 1, 1)
FULL = Budget("full", 10, 10)
TRIAL = Budget("trial", 0.2, 0.05)


class Session:
    """Where items get their runs from and put their pictures.

    Args:
        build: folder of the runs; the same runs are not computed again.
        pages: folder of the pages and pictures.
        budget: how much to compute.
        device: what computes.
    """

    def __init__(
        self, build: Path, pages: Path, budget: Budget = QUICK, device: str = "cpu"
    ) -> None:
        self.build = build
        self.pages = pages
        self.budget = budget
        self.device = device
        self._runs: dict[str, Run] = {}

    def images(self, number: int) -> int:
        """So many images in the quick form; never fewer than 6."""
        return max(6, round(number * self.budget.images))

    def draws(self, number: int) -> int:
        """So many draws in the quick form; never fewer than 4, and even."""
        return max(4, 2 * round(number * self.budget.draws / 2))

    def run(
        self,
        name: str,
        network: str | Path,
        images: int,
        estimators: Sequence[Any],
        noise: Any = None,
        seed: int = 0,
        batch: int | None = None,
    ) -> Run:
        """A run of a trained network; finished ones are read, interrupted ones continued.

        Args:
            name: of the run's folder.
            network: a folder of ../shared/models, or one of :meth:`trained`.
            images: the first so many.
            estimators, noise: as in a spec.
            seed: of the noise.
            batch: images of a forward pass.
        """
        if name in self._runs:
            return self._runs[name]
        settings = {"seed": seed, "device": self.device, "as_given": True} | (
            {} if batch is None else {"batch_size": batch}
        )
        sections = {
            "noise": {"sigma": []} if noise is None else noise,
            "estimators": list(estimators),
            "run": settings,
        }
        if isinstance(network, Path):
            known = yaml.safe_load((network / "audit.yaml").read_text())
            model = {**known["model"], "path": str(network / "model.safetensors")}
            spec = {"model": model, "dataset": {**known["dataset"], "limit": images}, **sections}
        else:
            spec = document(network, limit=images, **sections)
        folder = self.build / "runs" / self.budget.name / name
        return self._runs.setdefault(
            name, robaudit.audit({"name": name, **spec}, out=folder, progress=False)
        )

    def trained(
        self,
        name: str,
        data: str,
        network: Mapping[str, Any],
        objective: Any,
        images: int,
        epochs: int,
        **recipe: Any,
    ) -> Path:
        """The folder of a network that :mod:`robaudit.methods.training` trains on ../shared/data; a
        finished training is not repeated.

        Args:
            name: of the folder.
            data: mnist or fashion_mnist.
            network, objective, recipe: as in a training spec.
            images, epochs: of the quick form.
        """
        from robaudit.methods.training.spec import training_spec
        from robaudit.methods.training.trainer import train

        folder = self.build / "trained" / self.budget.name / name
        files = SHARED / "data"
        spec = {
            "name": name,
            "network": dict(network),
            "dataset": {
                "kind": "npz",
                "path": str(files / f"{data}_train.npz"),
                "limit": min(60_000, self.images(images)),
            },
            "objective": objective,
            "epochs": epochs,
            "audit": {"dataset": {"kind": "npz", "path": str(files / f"{data}_test.npz")}},
            **recipe,
        }
        return train(training_spec(spec), out=folder, device=self.device)

    def kept(self, name: str, compute: Callable[[], Any]) -> Any:
        """What a function gives, as JSON; computed once."""
        path = self.build / "kept" / self.budget.name / f"{name}.json"
        if not path.exists():
            found = compute()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found))
        return json.loads(path.read_text())


@dataclass(frozen=True, slots=True)
class Item:
    """A table or figure.

    Attributes:
        name: such as han-fig1.
        title: heading of its part of the page.
        make: computes it.
    """

    name: str
    title: str
    make: Callable[[Session], Part]

    @property
    def paper(self) -> str:
        """The name of the page."""
        return self.name.partition("-")[0]


ITEMS: dict[str, Item] = {}
Maker = Callable[[Session], Part]


def item(name: str, title: str) -> Callable[[Maker], Maker]:
    """Enter a function as the maker of an item."""

    def enter(make: Maker) -> Maker:
        if name in ITEMS:
            raise ValueError(f"there is an item {name} already")
        ITEMS[name] = Item(name, title, make)
        return make

    return enter


# --- numbers of runs


def values(run: Run, estimator: str, level: float | None = None) -> Floats:
    """The values of an estimator at a noise level, by image; NaN where there is none."""
    columns = next(
        one
        for key, one in run.table.items()
        if key.estimator == estimator and (level is None or key.at.strength == level)
    )
    found = np.full(len(run.table.ids), math.nan)
    found[columns.place] = columns.values
    return found


def labels(run: Run) -> Places:
    """The label of each image."""
    found = {row.sample_id: -1 if row.label is None else row.label for row in run.rows}
    return np.array(list(found.values()))


def correct(run: Run) -> NDArray[np.bool_]:
    """Whether the network classifies each image correctly without noise."""
    found = {row.sample_id: bool(row.correct) for row in run.rows}
    return np.array(list(found.values()))


# --- tests


def measured(images: int, statistic: Callable[[Places], float]) -> PairedDifference:
    """A statistic of some images with its 95 % interval and the p-value of 0, by robaudit's
    bootstrap over images."""
    everyone = np.arange(images)

    def drawn(weights: Floats) -> Floats:
        return np.array([statistic(np.repeat(everyone, row)) for row in weights.astype(np.int64)])

    return differences(images, lambda weights: {"": drawn(weights)}, {"": statistic(everyone)})[""]


def mean(each: Floats) -> PairedDifference:
    """The mean over the images that have a value, its interval, and the p-value of 0."""
    known = each[np.isfinite(each)]
    if not len(known):
        return PairedDifference(Estimate(math.nan), None, 0)
    return differences(
        len(known), lambda drawn: {"": drawn @ known / drawn.sum(1)}, {"": float(known.mean())}
    )[""]


def judged(
    text: str,
    images: int,
    statistic: Callable[[Places], float],
    about: str,
    *,
    above: float | None = None,
    below: float = 0.0,
) -> Claim:
    """A conclusion that holds if a statistic of the images is above a limit, or below one: decided
    at :data:`LEVEL`.

    Where all images are alike a bootstrap knows nothing of others, and nothing is decided: no error
    in 75 images is no error below 1 %.

    Args:
        text: the conclusion.
        images: their number.
        statistic: of the images at some places.
        about: what the statistic is.
        above, below: the limit; ``below`` counts if ``above`` is None.
    """
    sign, limit = (-1.0, below) if above is None else (1.0, above)
    found = measured(images, lambda at: sign * (statistic(at) - limit))
    if (
        found.p_value is None
        or found.estimate.lower is None
        or found.estimate.upper is None
        or not math.isfinite(found.estimate.value)
    ):
        return Claim(text, Verdict.OPEN, f"{about}: not defined on these images")
    alike = found.estimate.lower == found.estimate.upper
    unclear = found.p_value > LEVEL or found.estimate.value == 0 or images < FEWEST or alike
    verdict = (
        Verdict.OPEN if unclear else Verdict.HOLDS if found.estimate.value > 0 else Verdict.FAILS
    )
    value, *ends = (
        number(sign * one + limit)
        for one in (
            found.estimate.value,
            *sorted((found.estimate.lower, found.estimate.upper), reverse=sign < 0),
        )
    )
    p = (
        "all images alike"
        if alike
        else "p <= .001"
        if found.p_value <= 0.001
        else f"p = {number(found.p_value)}"
    )
    against = f" against {number(limit)}" if limit else ""
    return Claim(text, verdict, f"{about} {value} [{', '.join(ends)}]{against}, {p}, n = {images}")


def lower(text: str, small: Floats, large: Floats, about: str) -> Claim:
    """A conclusion that holds if ``large`` exceeds ``small`` on average over the images that have
    both."""
    return _of_mean(text, large - small, about, above=0.0)


def at_most(text: str, each: Floats, limit: float, about: str) -> Claim:
    """A conclusion that holds if the mean over the images that have a value is below ``limit``."""
    return _of_mean(text, each, about, below=limit)


def _of_mean(text: str, each: Floats, about: str, **limit: float) -> Claim:
    known = each[np.isfinite(each)]
    if len(known) < 3:
        return Claim(
            text, Verdict.OPEN, f"{about}: {len(known)} of {len(each)} images have a value"
        )
    return judged(text, len(known), lambda at: float(known[at].mean()), about, **limit)


def tested(text: str, p: float, about: str) -> Claim:
    """A conclusion that holds if a one-sided test rejects its opposite at :data:`LEVEL`."""
    return Claim(
        text, Verdict.HOLDS if p <= LEVEL else Verdict.OPEN, f"{about}, p = {number(p, 4)}"
    )


# --- Markdown


def number(value: float, digits: int = 3) -> str:
    """Three significant digits, and at most as many decimals, without a leading zero."""
    if not math.isfinite(value):
        return "-"
    text = f"{value:.{digits}g}" if abs(value) >= 1 else f"{value:.{digits}f}"
    text = f"{value:,.0f}" if "e" in text else text
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def with_ends(found: PairedDifference) -> str:
    """A value and its interval."""
    if found.estimate.lower is None or found.estimate.upper is None:
        return number(found.estimate.value)
    return (
        f"{number(found.estimate.value)} [{number(found.estimate.lower)}, "
        f"{number(found.estimate.upper)}]"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def pixels(network: str, images: int) -> Floats:
    """The first test images of a network's data (images, channels, height, width), in [0, 1]."""
    with np.load(SHARED / "data" / f"{card(network)['dataset']}.npz") as data:
        return np.asarray(data["images"][:images], dtype=np.float64) / 255.0
