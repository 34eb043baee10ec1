"""Checks of model and data before an audit: impossible input stops it, suspicious input warns in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from robaudit.auditing.environment import image_digest
from robaudit.datasets.base import Dataset, Sample, first_samples
from robaudit.errors import DataError, ModelError
from robaudit.estimators.engine import Engine, rows_by_rule
from robaudit.levels import LevelName, NoiseLevel
from robaudit.memory import is_out_of_memory
from robaudit.models.logits import LogitModel
from robaudit.noise.base import shape_of
from robaudit.noise.registry import Noise
from robaudit.numerics.margins import margin_gradients
from robaudit.spec.model import IN_MEMORY, Precision
from robaudit.spec.presets import LIKELY, NORMALISATIONS, hint
from robaudit.text import count

_MOST_CHECKED, _FEWEST_CHECKED, _CHECKED_BYTES = 256, 32, 2**28  # fewer of large images: 256 MB at most
_ROWS = 64  # in a pass
_FEWEST_LABELLED = 20  # whose accuracy says something
_IMAGES, _COPIES = 16, 32  # for the effect of a lower precision
_ROUNDING = 1e-6  # of pixels
_DRAWS, _HALF_RANGE = 4, 0.5  # of a noise whose level is above 1, to see what it does to pixels
_USUAL, _STEP = 0.5, 4.0  # a level as high is not remarkable, nor is one that is so many times another
_LEAST_GREY, _MOST_GREY = 2, 255  # levels that are likely to be grey levels; 1 to 2 are used for certificates


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The check of the first images.

    Attributes:
        classes: number of logits.
        checked: how many images were checked.
        labelled: how many of those have a label.
        correct: how many of those are classified as labelled.
        warnings: one line each.
        batch_dependent: whether an image's logits depend on the other images of its batch.
        seen: pixel digest and label of each image checked, by sample id.
        pixels: the smallest and the largest pixel value.
    """

    classes: int
    checked: int
    labelled: int
    correct: int
    warnings: tuple[str, ...]
    batch_dependent: bool
    seen: Mapping[str, tuple[str, int | None]]
    pixels: tuple[float, float]


def check_input(model: LogitModel, dataset: Dataset, *, gradients: bool, skip_bad: bool) -> InputCheck:
    """Check the first images (at most 256) before anything expensive is computed.

    Args:
        model: the model, in full precision.
        dataset: its samples.
        gradients: whether an estimator of the run needs them.
        skip_bad: pass over unreadable samples (they are listed later).

    Raises:
        ModelError: the model does not run on these images, its logits are not finite, or it has no gradients.
        DataError: labels or class names do not match the logits.
        NothingLeftError: no sample is readable.
    """
    samples: list[Sample] = []
    seen: dict[str, tuple[str, int | None]] = {}
    for sample in first_samples(dataset, _MOST_CHECKED, skip_bad=skip_bad):
        seen[sample.id] = (image_digest(sample), sample.label)
        samples.append(replace(sample, pixels=sample.pixels.to(model.dtype)))
        if len(samples) >= max(_FEWEST_CHECKED, _CHECKED_BYTES // (8 * sample.pixels.numel())):
            break
    x = torch.stack([s.pixels for s in samples]).to(model.device)
    logits = _forward(model, x, "the images")
    classes = logits.shape[1]
    if classes < 2:
        raise ModelError(model.name, "has a single class", "a classifier has at least two")
    labels = torch.tensor([-1 if s.label is None else s.label for s in samples])
    _check_names(model, dataset, classes)
    if not skip_bad:
        _check_labels(model, dataset, labels, classes)
    finite = logits.isfinite().all(1)
    if not finite.any():
        raise ModelError(
            model.name, f"its logits are not finite on any of {len(x)} clean images", "look for NaN weights, or a wrong mean/std or scale"
        )
    known = (labels >= 0) & (labels < classes) & finite
    right = (logits.argmax(1) == labels) & known
    warnings = [*_range_warnings(dataset, x), *_output_warnings(model, logits[finite])]
    warning, batch_dependent = _batch_warning(model, x[:8], logits[finite])
    warnings += [warning] if warning else []
    warnings += list(_accuracy_warnings(model, x, labels, right, known, classes))
    if gradients:
        warnings += list(_gradient_warnings(model, x[finite][:8]))
    pixels = float(x.min()), float(x.max())
    return InputCheck(classes, len(samples), int(known.sum()), int(right.sum()), tuple(warnings), batch_dependent, seen, pixels)


def level_warnings(noises: Sequence[Noise], image: Tensor, check: InputCheck) -> Iterator[str]:
    """Levels that cannot be meant for pixels in [0, 1]: 8 where 8/255 is usual.

    A level is told where it is above 1, a standard deviation or a radius, no smaller levels lead up to it, and the noise moves pixels by
    more than half their range: a ball of the Euclidean norm may well have a larger radius, and a kind may scale its level. There is at
    most one warning for each noise.

    Args:
        noises: of the run; they fit the image.
        image: the first that was checked (channels, height, width).
        check: where its pixels go beyond [0, 1], another of its warnings says what is wrong.

    Raises:
        NoiseError: the noise of a plugin fails.
    """
    if not within_unit(*check.pixels):
        return
    sample_id = next(iter(check.seen))
    for noise in noises:
        beyond = [at for at in _unprepared(noise.levels) if at.level > 1 and at.name in (LevelName.SIGMA, LevelName.EPS)]
        if beyond and _typical_change(noise, image, sample_id, beyond[0].level) > _HALF_RANGE:
            at, more = beyond[0], len(beyond) - 1
            is_ = f"and {count(more, 'more level')} are more than" if more else f"is {at.level:g} times"
            what = f"{noise.label} noise: {at.name} {at.level:g} {is_} the whole range of pixels in [0, 1]"
            grey = f"; {at.level:g}/255 = {at.level / 255:.3g} was probably meant: write {at.level:g}/255"
            yield what + (grey if _LEAST_GREY <= at.level <= _MOST_GREY else "")


def _unprepared(levels: Sequence[NoiseLevel]) -> list[NoiseLevel]:
    """The levels that no smaller ones lead up to: a grid from 0.3 to 10, say, has large levels on purpose."""
    found, reached = list[NoiseLevel](), _USUAL
    for at in sorted(levels, key=lambda at: at.level):
        if at.level <= reached:
            reached = max(reached, _STEP * at.level)
        else:
            found.append(at)
    return found


def within_unit(low: float, high: float) -> bool:
    """Whether pixels run within [0, 1], up to rounding."""
    return low >= -_ROUNDING and high <= 1 + _ROUNDING


def _typical_change(noise: Noise, image: Tensor, sample_id: str, level: float) -> float:
    """The root mean square of the change of a pixel."""
    source, x = noise.source(0, image.device, image.dtype), image[None]
    draws = source.blocks(sample_id, _DRAWS, shape_of(image))  # of a large image, a block holds fewer
    changes = torch.cat([source.noisy(x, z, level, ids=[sample_id]) - x for z in draws])
    return float(changes.square().mean().sqrt())


def _forward(model: LogitModel, x: Tensor, what: str) -> Tensor:
    shape = "x".join(str(n) for n in x.shape[1:])

    def logits(rows: int) -> Tensor:
        with torch.inference_mode():
            return torch.cat([model(part).double().cpu() for part in x.split(rows)]).clone()

    try:
        return _in_passes(logits, min(_ROWS, rows_by_rule(x.shape[1:], model.device)), model.name)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = next((line for line in reversed(str(error).strip().splitlines()) if line.strip()), type(error).__name__)
        raise ModelError(
            model.name,
            f"does not accept {what} of shape {shape} ({reason.strip()[:200]})",
            "check channels, resize and crop in the dataset section",
        ) from error


def _in_passes(work: Callable[[int], Tensor], rows: int, where: str) -> Tensor:
    """The result of ``work`` with this many images in a pass, halved for as long as memory runs out.

    Raises:
        ModelError: a single image is too much.
    """
    while True:
        try:
            return work(rows)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if rows == 1:
                raise ModelError(where, "a single image does not fit into memory", "give it more memory") from error
        rows //= 2


def _check_labels(model: LogitModel, dataset: Dataset, first: Tensor, classes: int) -> None:
    """Check every label if the data set knows them without reading pixels, else those of the first images."""
    known = dataset.labels()
    highest = int(first.max()) if known is None else int(known.max(initial=-1))
    if highest >= classes:
        raise DataError(
            dataset.where, f"label {highest} is out of range: {model.name} has {classes} classes", f"labels run from 0 to {classes - 1}"
        )


def _check_names(model: LogitModel, dataset: Dataset, classes: int) -> None:
    names = dataset.class_names
    if names is not None and len(names) != classes:
        raise DataError(
            dataset.where, f"has {len(names)} class names, but {model.name} has {classes} classes", "name every class once, in logit order"
        )


def _range_warnings(dataset: Dataset, x: Tensor) -> Iterator[str]:
    low, high = float(x.min()), float(x.max())
    if not within_unit(low, high):
        bytes_ = high > 64 and low >= 0
        advice = "they look like 0-255: set dataset.scale: 255" if bytes_ else "noise levels are meant for [0, 1]: set dataset.scale"
        yield f"{dataset.where}: pixels run from {low:.3g} to {high:.3g}, not within [0, 1]; {advice}"
    elif 0 < high <= 2 / 255:
        yield f"{dataset.where}: pixels reach only {high:.3g}; they look scaled twice: check dataset.scale"


def _output_warnings(model: LogitModel, logits: Tensor) -> Iterator[str]:
    sums_to_one = (logits.sum(1) - 1).abs().max() < 1e-3
    if bool(sums_to_one) and float(logits.min()) >= 0:
        advice = "their margins are far from normal: name the logits in model.output"
        yield f"{model.name}: the outputs look like probabilities, not logits; {advice}"
    elif logits.shape[1] == 2 and bool((logits[:, 0] == 0).all()) and float(logits.min()) >= 0 and float(logits.max()) <= 1:
        yield f"{model.name}: its one output lies within [0, 1] and looks like a probability; give the logit, which is positive for class 1"


def _batch_warning(model: LogitModel, x: Tensor, logits: Tensor) -> tuple[str, bool]:
    """Compare the logits of the same images, passed twice and one by one: they reveal randomness, or a dependence on the batch.

    Returns:
        A warning ("" if nothing is wrong), and whether an image's logits depend on the other images of its batch.
    """
    spread = float(logits.max() - logits.min())
    first, again = _forward(model, x, "the images"), _forward(model, x, "the images")
    alone = torch.cat([_forward(model, x[i : i + 1], "one image") for i in range(len(x))])
    if not torch.allclose(first, again, rtol=0, atol=1e-4 * spread, equal_nan=True):
        what = "something in it is random or keeps state, and results will not be reproducible"
        return f"{model.name}: the same images give other logits the second time; {what}", False
    if not torch.allclose(first, alone, rtol=0, atol=1e-3 * spread, equal_nan=True):
        return f"{model.name}: an image's logits depend on the other images of its batch; results depend on the batch size", True
    return "", False


def _accuracy_warnings(model: LogitModel, x: Tensor, labels: Tensor, right: Tensor, known: Tensor, classes: int) -> Iterator[str]:
    n = int(known.sum())
    if n < _FEWEST_LABELLED:
        yield from _normalisation_warnings(model)
        return
    from scipy.stats import binom

    accuracy = int(right.sum()) / n
    better = None
    for change, f in _alternatives(model, x.shape[1]):
        try:
            other = (_forward(model, f(x), "changed images").argmax(1) == labels) & known
        except ModelError:
            continue
        gained, lost = int((other & ~right).sum()), int((right & ~other).sum())
        sure = float(binom.sf(gained - 1, gained + lost, 0.5)) < 1e-4 if gained else False
        score = int(other.sum()) / n
        if sure and score - accuracy >= 0.03 and (better is None or score > better[0]):
            better = (score, change)
    if better is not None:
        yield f"{model.name}: clean accuracy is {accuracy:.1%} on {n} images, but {better[0]:.1%} with {better[1]}"
    elif float(binom.sf(int(right.sum()) - 1, n, 1 / classes)) > 0.01:
        yield f"{model.name}: clean accuracy is {accuracy:.1%} on {n} images, no better than chance; check labels, mean and std"


def _normalisation_warnings(model: LogitModel) -> Iterator[str]:
    """A network in memory that knows a normalisation which is not applied, and there are too few labels to see whether that is right."""
    own = _own_normalisation(model)
    if own is not None and model.format == IN_MEMORY and not _normalises(model):
        mean, std = own
        yield f"{model.name}: no mean and std are applied, but its timm configuration has mean: {list(mean)}, std: {list(std)}"


def _own_normalisation(model: LogitModel) -> tuple[Sequence[float], Sequence[float]] | None:
    """Mean and standard deviation in the configuration that timm gives a network."""
    config = getattr(model.network, "pretrained_cfg", None)
    mean, std = (config.get(key) if isinstance(config, Mapping) else None for key in ("mean", "std"))
    return (mean, std) if isinstance(mean, tuple | list) and isinstance(std, tuple | list) else None


def _normalises(model: LogitModel) -> bool:
    return bool((model.mean != 0).any()) or bool((model.std != 1).any())


def _alternatives(model: LogitModel, channels: int) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Corrections of common mistakes: what to change, and the map on pixels that has the same effect."""
    if channels == 3:
        yield "red and blue swapped (RGB/BGR)", lambda x: x.flip(1)
    yield "inverted pixels (1 - x)", lambda x: 1 - x
    if _normalises(model):
        yield "no mean and std (is the normalisation inside the model?)", lambda x: x * model.std + model.mean
        return
    yield "pixels times 255 (mean: 0, std: 0.00392157)", lambda x: x * 255
    for name in LIKELY:
        preset_mean, preset_std = NORMALISATIONS[name]
        if len(preset_mean) == channels or name == "half":  # colour images are not MNIST's
            yield hint(name), _normalise(preset_mean, preset_std)
    own = _own_normalisation(model)
    if own is not None and len(own[0]) == len(own[1]) == channels:
        yield f"mean: {list(own[0])}, std: {list(own[1])} of its timm configuration", _normalise(*own)


def _normalise(mean: Sequence[float], std: Sequence[float]) -> Callable[[Tensor], Tensor]:
    return lambda x: (x - x.new_tensor(mean)[:, None, None]) / x.new_tensor(std)[:, None, None]


def _gradient_warnings(model: LogitModel, x: Tensor) -> Iterator[str]:
    nearest = _forward(model, x, "the images").topk(2, dim=1).indices.to(x.device)  # one margin: cheap for any number of classes

    def gradients(rows: int) -> Tensor:
        parts = zip(x.split(rows), nearest.split(rows), strict=True)
        return torch.cat([margin_gradients(model, part, classes[:, 0], classes[:, 1:])[2] for part, classes in parts])

    try:
        u = _in_passes(gradients, max(1, min(len(x), rows_by_rule(x.shape[1:], model.device) // 4)), model.name)
    except (ValueError, RuntimeError) as error:
        what = f"has no gradients ({str(error).strip().splitlines()[0][:200]})"
        raise ModelError(model.name, what, "use mc, softmax or radius_random") from error
    dead = int((u.square().sum((1, 2)) == 0).sum())
    if dead:
        without = "taylor and mmse report 1 or 0 there, and attacks find nothing: use mc or radius_random"
        yield f"{model.name}: gradients vanish on {dead} of {len(x)} images; {without}"


@dataclass(frozen=True, slots=True)
class PrecisionEffect:
    """A comparison of the same noisy copies in fp32 and in a lower precision.

    Attributes:
        precision: tf32 or bf16.
        at: the noise and its level.
        images, copies: how many images, and noisy copies in all.
        changed: copies whose class differs.
        kept_fp32, kept: copies that keep the class of the clean image, in fp32 and in the lower precision.
    """

    precision: Precision
    at: NoiseLevel
    images: int
    copies: int
    changed: int
    kept_fp32: int
    kept: int

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return self.at.in_columns(asdict(self))

    @property
    def text(self) -> str:
        """One line for the user."""
        what = f"{self.changed} of {self.copies} noisy copies ({self.images} images) change class"
        return (
            f"precision {self.precision} at {self.at}: {what}; "
            f"kept {self.kept / self.copies:.1%}, in fp32 {self.kept_fp32 / self.copies:.1%}"
        )


def precision_effects(
    engine: Engine, dataset: Dataset, levels: Sequence[NoiseLevel], precision: Precision, *, skip_bad: bool
) -> list[PrecisionEffect]:
    """Pass 32 noisy copies of each of the first 16 images through the network in fp32 and in ``precision``, with the same noise."""
    model = engine.model
    samples = list(first_samples(dataset, _IMAGES, skip_bad=skip_bad))
    x = torch.stack([sample.pixels.to(model.dtype) for sample in samples]).to(model.device)
    ids = [sample.id for sample in samples]
    exact = copy(engine)
    exact.model = engine.model.rounding(False)
    predicted = exact.logits(x).argmax(1)
    return [_effect(engine, exact, x, ids, predicted, at, precision) for at in levels]


def _effect(
    engine: Engine, exact: Engine, x: Tensor, ids: Sequence[str], predicted: Tensor, at: NoiseLevel, precision: Precision
) -> PrecisionEffect:
    total = torch.zeros(3, dtype=torch.int64, device=x.device)
    for batch, logits in engine.noisy_logits(x, ids, at, _COPIES):
        target, lower = predicted[batch.image], logits.argmax(1)
        with torch.inference_mode():
            full = exact.model_under(at.noise)(batch.padded)[: len(target)].argmax(1)
        total += torch.stack([(lower != full).sum(), (full == target).sum(), (lower == target).sum()])
    changed, kept_fp32, kept = total.tolist()
    return PrecisionEffect(precision, at, len(x), len(x) * _COPIES, changed, kept_fp32, kept)
