"""What a page is made of: items (a table or figure of a paper), the runs that they share, and
verdicts on the paper's conclusions."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy import stats

import robaudit
from robaudit.api.run import Run
from robaudit.estimates import Estimate
from robaudit.stats import bootstrap
from robaudit.stats.bootstrap import PairedDifference, differences
from robaudit.stats.class_differences import Gap
from tests.shared import PHOTO_NETWORK, SHARED, card, document, photos

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
LEVEL = 0.01
"""Of each test that decides a conclusion."""
FEWEST = 12
"""Images that a test needs to decide anything."""
REPLICATES = 20_000
"""Of the bootstrap that decides: a p-value is at least 1e-4, which Holm's correction for 500 tests
can still accept."""
SEEDS = (0, 1, 2)
"""Of the trainings of each network."""
IMAGENET = "imagenet_lite0_timm"
"""The network for photos."""
LITE0 = "EfficientNet-Lite0"
"""Its name."""
ALL_PHOTOS = 200
"""How many there are."""
TO_TRAIN = {"mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 4000}
"""Images to train on, of each data set."""


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
    p_value: float | None = None
    """Of the test that decides; None without a test."""


@dataclass(frozen=True, slots=True)
class Part:
    """What an item adds to its page: Markdown below its heading, and rows of the table of
    conclusions."""

    body: str
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is computed, as multiples of the standard form."""

    name: str
    images: float
    draws: float
    seeds: int = len(SEEDS)
    """Trainings of each network."""


STANDARD = Budget("standard", 1, 1)
FULL = Budget("full", 10, 10)
TRIAL = Budget("trial", 0.02, 0.05, seeds=1)


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained on how much.

    Attributes:
        data: one of :data:`TO_TRAIN`.
        network, objective, recipe: as in a training spec.
        images, epochs: of the standard form.
    """

    data: str
    network: Mapping[str, Any]
    objective: Any
    images: int
    epochs: int
    recipe: Mapping[str, Any] = field(default_factory=dict)


class Session:
    """Where items get their runs from and put their pictures.

    Args:
        build: folder of the runs; the same runs are not computed again.
        pages: folder of the pages and pictures.
        budget: how much to compute.
        device: what computes.
    """

    def __init__(
        self, build: Path, pages: Path, budget: Budget = STANDARD, device: str = "cpu"
    ) -> None:
        self.build = build
        self.pages = pages
        self.budget = budget
        self.device = device
        self._runs: dict[str, Run] = {}

    def images(self, number: int) -> int:
        """So many images in the standard form; never fewer than 12."""
        return max(12, round(number * self.budget.images))

    def draws(self, number: int) -> int:
        """So many draws in the standard form; never fewer than 4, and even."""
        return max(4, 2 * round(number * self.budget.draws / 2))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the trainings of each network."""
        return SEEDS[: self.budget.seeds]

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
            images: the first so many; of photos, a random sample.
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
        if network == IMAGENET:
            chosen = photos(sample={"size": min(images, ALL_PHOTOS), "seed": 0})
            spec = {"model": PHOTO_NETWORK, "dataset": chosen, **sections}
        elif isinstance(network, Path):
            known = yaml.safe_load((network / "audit.yaml").read_text())
            model = {**known["model"], "path": str(network / "model.safetensors")}
            spec = {"model": model, "dataset": {**known["dataset"], "limit": images}, **sections}
        else:
            spec = document(network, limit=images, **sections)
        folder = self.build / "runs" / self.budget.name / name
        return self._runs.setdefault(
            name, robaudit.audit({"name": name, **spec}, out=folder, progress=False)
        )

    def trained(self, name: str, training: Training, seed: int) -> Path:
        """The folder of a network that :mod:`robaudit.methods.training` trains on ../shared/data; a
        finished training is not repeated.

        Args:
            name: of the folder; the seed is added.
            training: what is trained.
            seed: of the weights and the batches.
        """
        from robaudit.methods.training.spec import training_spec
        from robaudit.methods.training.trainer import train

        folder = self.build / "trained" / self.budget.name / f"{name}-{seed}"
        to_train, to_audit = self.files(training.data)
        spec = {
            "name": name,
            "network": dict(training.network),
            "dataset": {
                "kind": "npz",
                "path": str(to_train),
                "limit": self.to_train(training.data, training.images),
            },
            "objective": training.objective,
            "epochs": training.epochs,
            "seed": seed,
            "audit": {"dataset": {"kind": "npz", "path": str(to_audit)}},
            **training.recipe,
        }
        return train(training_spec(spec), out=folder, device=self.device)

    def to_train(self, data: str, images: int) -> int:
        """The images to train on, for so many in the standard form."""
        return min(TO_TRAIN[data], self.images(images))

    def files(self, data: str) -> tuple[Path, Path]:
        """The images to train on, and those to audit on. Of CIFAR-10 only test images are in
        ../shared: the first ones are trained on, the others audited."""
        if data != "cifar10":
            train, test = (SHARED / "data" / f"{data}_{part}.npz" for part in ("train", "test"))
            return train, test
        first, rest = (self.build / "data" / f"{data}-{part}.npz" for part in ("first", "rest"))
        if not rest.exists():
            first.parent.mkdir(parents=True, exist_ok=True)
            with np.load(SHARED / "data" / "cifar10_test.npz") as whole:
                images, labels = whole["images"], whole["labels"]
            end = TO_TRAIN[data]
            np.savez(first, images=images[:end], labels=labels[:end])
            np.savez(rest, images=images[end:], labels=labels[end:])
        return first, rest

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


TRAININGS = """Tests average the trainings, and ask whether other images would give the same;
where the trainings are on both sides of the limit, nothing is decided."""
"""What the tests of trained networks are about, for their pages."""


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


def measured(
    images: int, statistic: Callable[[Places], float], replicates: int = bootstrap.REPLICATES
) -> PairedDifference:
    """A statistic of some images with its 95 % interval and the p-value of 0, by robaudit's
    bootstrap over images."""
    everyone = np.arange(images)

    def drawn(weights: Floats) -> Floats:
        return np.array([statistic(np.repeat(everyone, row)) for row in weights.astype(np.int64)])

    found = {"": statistic(everyone)}
    return differences(images, lambda weights: {"": drawn(weights)}, found, replicates)[""]


def mean(each: Floats, replicates: int = bootstrap.REPLICATES) -> PairedDifference:
    """The mean over the images that have a value, its interval, and the p-value of 0."""
    known = each[np.isfinite(each)]
    if not len(known):
        return PairedDifference(Estimate(math.nan), None, 0)
    return differences(
        len(known),
        lambda drawn: {"": drawn @ known / drawn.sum(1)},
        {"": float(known.mean())},
        replicates,
    )[""]


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a conclusion begins to hold: above a value, or below one."""

    value: float
    above: bool

    @property
    def sign(self) -> float:
        """1 if values above hold, else -1."""
        return 1.0 if self.above else -1.0


ABOVE_0 = Limit(0.0, above=True)


def above(value: float) -> Limit:
    """It holds above a value."""
    return Limit(value, above=True)


def below(value: float) -> Limit:
    """It holds below a value."""
    return Limit(value, above=False)


def judged(
    text: str,
    images: int,
    statistic: Callable[[Places], float],
    about: str,
    limit: Limit,
    trainings: Sequence[float] = (),
) -> Claim:
    """A conclusion that holds if a statistic of the images is beyond a limit: decided at
    :data:`LEVEL`.

    Where all images are alike a bootstrap knows nothing of others, and nothing is decided.

    Args:
        text: the conclusion.
        images: their number.
        statistic: of the images at some places.
        about: what the statistic is.
        limit: what it is compared with.
        trainings: the statistic of each training, where it is the mean of several. Nothing is
            decided if they are on both sides of the limit: images cannot tell what another training
            would give.
    """
    found = measured(images, lambda at: limit.sign * (statistic(at) - limit.value), REPLICATES)
    return _decided(text, found, about, limit, trainings)


def _decided(
    text: str, found: PairedDifference, about: str, limit: Limit, trainings: Sequence[float] = ()
) -> Claim:
    """The conclusion by how far a statistic is beyond its limit."""
    excess = found.estimate
    if (
        found.p_value is None
        or excess.lower is None
        or excess.upper is None
        or not math.isfinite(excess.value)
    ):
        return Claim(text, Verdict.OPEN, f"{about}: not defined on these images")
    alike = math.isclose(excess.lower, excess.upper, rel_tol=1e-9)  # but for rounding
    sides = {one > limit.value for one in trainings}
    enough = found.images >= FEWEST and not alike
    unclear = not enough or found.p_value > LEVEL or excess.value == 0 or len(sides) > 1
    verdict = Verdict.OPEN if unclear else Verdict.HOLDS if excess.value > 0 else Verdict.FAILS
    low, high = sorted(limit.sign * end + limit.value for end in (excess.lower, excess.upper))
    value = limit.sign * excess.value + limit.value
    evidence = f"{about} {number(value)} [{number(low)}, {number(high)}]"
    if limit.value:
        evidence += f" against {number(limit.value)}"
    if len(trainings) > 1:
        evidence += f" (trainings: {', '.join(map(number, trainings))})"
    evidence += ", all images alike" if alike else f", {p_words(found.p_value)}"
    evidence += f", n = {found.images:,}"
    return Claim(text, verdict, evidence, found.p_value if enough and len(sides) < 2 else None)


def lower(text: str, small: Floats, large: Floats, about: str) -> Claim:
    """A conclusion that holds if ``large`` exceeds ``small`` on average over the images that have
    both.

    Args:
        text: the conclusion.
        small, large: of each image, (images,), or of each training and image, (trainings, images).
        about: what the difference is.
    """
    return beyond(text, large - small, about, ABOVE_0)


def at_most(
    text: str, each: Floats, limit: float, about: str, largest: float | None = None
) -> Claim:
    """A conclusion that holds if the mean over the images that have a value is below ``limit``.

    Args:
        text: the conclusion.
        each: of each image.
        limit: of the mean.
        about: what the mean is of.
        largest: that a value can be. If all values are 0, the mean of all images is below the limit
            unless n images of 0 are less likely than the level: with a mean of at least ``limit``,
            a share of at least ``limit / largest`` is not 0.
    """
    if largest is not None and len(each) and not each.any():
        p_value = (1 - limit / largest) ** len(each)
        verdict = Verdict.HOLDS if p_value <= LEVEL else Verdict.OPEN
        evidence = f"{about} .000 against {number(limit)}, all 0, exact {p_words(p_value)}"
        return Claim(text, verdict, f"{evidence}, n = {len(each):,}", p_value)
    return beyond(text, each, about, below(limit))


def beyond(text: str, each: Floats, about: str, limit: Limit) -> Claim:
    """A conclusion about a mean over images, or over trainings and images (trainings, images)."""
    each = np.atleast_2d(each)
    known = each[:, np.isfinite(each).all(0)]
    if known.shape[1] < 3:
        missing = f"{about}: {known.shape[1]} of {each.shape[1]} images have a value"
        return Claim(text, Verdict.OPEN, missing)
    excess = limit.sign * (known.mean(0) - limit.value)
    found = mean(excess, REPLICATES)
    if found.p_value is not None and np.ptp(excess) > 0:
        # of few images a bootstrap is too sure
        by_t = float(stats.ttest_1samp(excess, 0.0).pvalue)
        found = replace(found, p_value=max(found.p_value, by_t))
    return _decided(text, found, about, limit, [float(one) for one in known.mean(1)])


def all_of(claims: Sequence[Claim]) -> Claim:
    """A conclusion that holds if all of several do, and fails with any of them: the one that fails,
    or is surest to hold, the least."""
    failing = [one for one in claims if one.verdict is Verdict.FAILS]
    return max(failing or claims, key=lambda one: math.inf if one.p_value is None else one.p_value)


def tested(text: str, p: float, about: str) -> Claim:
    """A conclusion that holds if a one-sided test rejects its opposite at :data:`LEVEL`."""
    verdict = Verdict.HOLDS if p <= LEVEL else Verdict.OPEN
    return Claim(text, verdict, f"{about}, {p_words(p)}", p)


def p_words(p: float) -> str:
    """A p-value in words; by the bootstrap it is never below 2 / replicates."""
    return "p <= .0001" if p <= 0.0001 else f"p = {number(p, 4 if p < 0.001 else 3)}"


def slug(name: str) -> str:
    """The name of a folder."""
    return "-".join(name.lower().replace(" = ", "").replace(",", "").split())


# --- Markdown


def number(value: float, digits: int = 3) -> str:
    """Three significant digits, and at most as many decimals, without a leading zero."""
    if not math.isfinite(value):
        return "-"
    value = 0.0 if abs(value) < 1e-12 else value  # rounding may leave a minus
    text = f"{value:.{digits}g}" if abs(value) >= 1 else f"{value:.{digits}f}"
    text = f"{value:,.0f}" if "e" in text else text
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def with_ends(found: PairedDifference | Gap) -> str:
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
