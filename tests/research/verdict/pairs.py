"""The pairs of network and noise, and what is true of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from robaudit.auditing.audit import audit
from robaudit.runs.run import Run
from robaudit.spec.model import AuditSpec
from robaudit.spec.origin import Origin
from robaudit.spec.read import validated
from tests.shared import SHARED, document

MOST = 1000
"""The copies of each image of an audit that does not end early."""
PUBLISHED = 10_000
"""The copies of each image in the paper of Han et al."""
IMAGES = 500
TRUTH_SEED = 2**31
"""Of the copies behind the truth; the audits have others."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A network with its images under a noise.

    Attributes:
        name: for the tables.
        sections: model, dataset and noise of its spec.
        truth_draws: the copies of each image behind the truth.
        whole_draws: the copies of each image of the whole data set behind the truth of the
            population; 0: this data set is too small to have one.
        by_class: whether each class has enough images for a mean of its own.
        repeats: audits of each question.
    """

    name: str
    sections: Mapping[str, Any]
    truth_draws: int
    whole_draws: int = 16
    by_class: bool = True
    repeats: int = 5

    def document(
        self,
        *,
        draws: int = MOST,
        seed: int = 0,
        subset: int | None = None,
        dataset: Mapping[str, Any] | None = None,
        **sections: Any,
    ) -> dict[str, Any]:
        """The spec of an audit, as a user writes it.

        Args:
            draws: the copies of each image.
            seed: of the noise, and of the choice of a random subset.
            subset: audit a random subset of the whole data set, of this size.
            dataset: keys that replace those of the data set; None removes a key.
            sections: sections to add.
        """
        changed = {**self.sections["dataset"], **(dataset or {})}
        if subset is not None:
            changed |= {"limit": None, "sample": {"size": subset, "seed": seed}}
        return {
            **self.sections,
            "dataset": {key: value for key, value in changed.items() if value is not None},
            "estimators": [{"mc": {"draws": draws}}],
            "run": {"seed": seed},
            **sections,
        }

    def spec(self, **changes: Any) -> AuditSpec:
        """The spec of an audit: :meth:`document` with these arguments."""
        return validated(self.document(**changes), Origin("spec"))

    def first(self, images: int, *, truth_draws: int) -> Pair:
        """The pair with its first images only, and more copies behind the truth."""
        dataset = {**self.sections["dataset"], "limit": images}
        sections = {**self.sections, "dataset": dataset}
        return Pair(f"{self.name}, {images} images", sections, truth_draws, self.whole_draws)


@dataclass(frozen=True, slots=True)
class Truth:
    """What long audits say of a pair.

    Attributes:
        values: by sample.
        labels: by sample.
        seconds_a_pass: of the long audit, start-up and checks left out.
    """

    values: Mapping[str, float]
    labels: Mapping[str, int | None]
    seconds_a_pass: float

    @classmethod
    def of(cls, run: Run) -> Truth:
        """From a complete run."""
        values = {row.sample_id: row.value for row in run.rows}
        labels = {row.sample_id: row.label for row in run.rows}
        totals = run.info.totals
        return cls(values, labels, totals.seconds / totals.forwards)

    @property
    def mean(self) -> float:
        """The mean over the images."""
        return fmean(self.values.values())

    @property
    def worst_class(self) -> float:
        """The smallest mean of a class."""
        by_class: dict[int | None, list[float]] = defaultdict(list)
        for sample, value in self.values.items():
            by_class[self.labels[sample]].append(value)
        return min(map(fmean, by_class.values()))


def truth_of(pair: Pair, cache: Path) -> Truth:
    """The truth of the images of a pair.

    Args:
        pair: network and noise.
        cache: the folder of long audits; one that is there is read, and continued if it is
            unfinished.
    """
    return Truth.of(long_audit(pair, cache))


def long_audit(pair: Pair, cache: Path) -> Run:
    """The audit behind :func:`truth_of`."""
    spec = pair.spec(draws=pair.truth_draws, seed=TRUTH_SEED)
    return audit(spec, out=_folder(cache, pair, f"{pair.truth_draws} copies"))


def whole_truth_of(pair: Pair, cache: Path) -> float:
    """The mean of the population of a pair: over its whole data set.

    Args:
        pair: network and noise.
        cache: as in :func:`truth_of`.
    """
    return fmean(row.value for row in whole_audit(pair, cache).rows)


def whole_audit(pair: Pair, cache: Path) -> Run:
    """The audit behind :func:`whole_truth_of`."""
    spec = pair.spec(draws=pair.whole_draws, seed=TRUTH_SEED, dataset={"limit": None})
    return audit(spec, out=_folder(cache, pair, f"whole data set, {pair.whole_draws} copies"))


def with_all_copies(pair: Pair, cache: Path, seed: int) -> Run:
    """The audit with all copies of each image."""
    return audit(pair.spec(seed=seed), out=_folder(cache, pair, f"{MOST} copies, seed {seed}"))


def _folder(cache: Path, pair: Pair, what: str) -> Path:
    """The run folder of a long audit."""
    return cache / f"{pair.name}, {what}".replace(" ", "_").replace(",", "")


def pairs(only: str = "") -> Iterator[Pair]:
    """The pairs with this in their name."""
    for pair in (*_small(), _imagenet()):
        if only in pair.name:
            yield pair


def _small() -> Iterator[Pair]:
    """The six pairs of MNIST, Fashion-MNIST and CIFAR-10."""
    for model, noise, words, draws in (
        ("mnist_spectral_mlp", {"sigma": 0.5}, "sigma 0.5", 4000),
        ("mnist_conv_small_nat", {"kind": "uniform", "eps": 1.0}, "uniform 1", 4000),
        ("fashion_shallow_cnn", {"sigma": 0.1}, "sigma 0.1", 4000),
        ("fashion_logistic", {"kind": "uniform", "eps": 0.5}, "uniform 0.5", 4000),
        ("cifar10_cnn_a_adv", _BLUR, "motion blur 3", 4000),
        ("cifar10_resnet20", {"sigma": 0.05}, "sigma 0.05", 1000),
    ):
        keys = document(model, limit=IMAGES, noise=noise)
        del keys["estimators"]
        yield Pair(f"{model}, {words}", keys, draws)


_BLUR = {"kind": "corruption", "name": "motion_blur", "severity": 3}


def _imagenet() -> Pair:
    """A network for ImageNet on its 200 photos, each of another class."""
    keys = {
        "model": {"path": str(SHARED / "models" / "imagenet_lite0_timm")},
        "dataset": {"kind": "images", "path": str(SHARED / "data" / "imagenet_photos")},
        "noise": {"sigma": 0.1},
    }
    name = "imagenet_lite0_timm, sigma 0.1, 200 photos"
    return Pair(name, keys, 64, whole_draws=0, by_class=False, repeats=1)
