"""Checks of model and data before an audit: impossible input stops it, suspicious input warns in
one line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robaudit.auditing.environment import image_digest
from robaudit.auditing.mistakes import Labelled, accuracy_warnings
from robaudit.auditing.preparations import Preparation, further_samples
from robaudit.auditing.units import Finding, accepted, pixel_findings
from robaudit.datasets.dataset import Dataset, Labels, Sample, first_samples
from robaudit.datasets.select import random_subset
from robaudit.engine.passes import Engine, rows_by_rule
from robaudit.errors import DataError, ModelError, SampleError
from robaudit.levels import NoiseLevel
from robaudit.memory import is_out_of_memory
from robaudit.models.logits import LogitModel
from robaudit.models.pretrained import refuse_other_tasks
from robaudit.numerics.margins import NEVER, margin_gradients
from robaudit.plugins import reference
from robaudit.progress import Listener
from robaudit.spec.model import Precision

# The number of images that are checked. Of large ones fewer: 256 MB of pixels at most.
_MOST_CHECKED = 256
_FEWEST_CHECKED = 32
_CHECKED_BYTES = 2**28
_ROWS = 64  # in a pass
_GRADIENT_IMAGES = 8  # of which gradients are computed
# Images, and noisy copies of each, for the effect of a lower precision.
_IMAGES = 16
_COPIES = 32
_SAME = 1e-6  # relative difference of logits that are the same but for rounding
_SUM_ROUNDING = 1e-3  # by which the sum of probabilities may miss 1
# Times the range of pixels: so far away, logits of networks without a sigmoid leave [0, 1].
_FAR = 30.0


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The result of the check of the first images.

    Attributes:
        classes: number of logits.
        part: whether they are a random part of the run's images, and not all of them.
        labelled: number of the checked images that have a label.
        correct: number of those that are classified as labelled.
        warnings: one line each.
        seen: pixel digest and label of each checked image, by sample id.
        pixels: the smallest and the largest pixel value.
    """

    classes: int
    part: bool
    labelled: int
    correct: int
    warnings: tuple[str, ...]
    seen: Mapping[str, tuple[str, int | None]]
    pixels: tuple[float, float]


def check_input(
    model: LogitModel,
    dataset: Dataset,
    *,
    gradients: bool,
    skip_bad: bool,
    as_given: bool = False,
    scaled: bool = False,
    prepared: Callable[[Sequence[int]], Sequence[Preparation]] = lambda _shape: (),
) -> InputCheck:
    """Check a random part of the images (at most 256) before anything expensive is computed.

    The warnings about a low accuracy are about 256 images, if the data set has them: the images of
    a smaller run are completed by others of its data set. Where these leave it open whether a
    mistake explains the accuracy, further images of the run are read until it is clear.

    Args:
        model: the model, in full precision.
        dataset: the samples.
        gradients: whether an estimator of the run needs gradients.
        skip_bad: whether to pass over unreadable samples (they are listed later).
        as_given: whether to accept impossible pixel values, and probabilities in place of logits,
            with a warning.
        scaled: whether the spec sets the value of full intensity.
        prepared: gives other ways to prepare images, from the shape of the run's images.

    Raises:
        ModelError: the model does not choose one class for each image, does not run on these
            images, returns a probability, has logits that are not finite, or has no gradients.
        DataError: labels or class names do not match the logits, or pixel values are impossible.
        NothingLeftError: no sample is readable.
    """
    # Transformers' networks say what they were trained for.
    config = getattr(model.network, "config", None)
    refuse_other_tasks(getattr(config, "problem_type", None), model.name)
    places, rest = _random_part(dataset, skip_bad=skip_bad)
    samples, seen = _samples_at(model, dataset, places, skip_bad=skip_bad)
    x = torch.stack([sample.pixels for sample in samples]).to(model.device)
    pixels = float(x.min()), float(x.max())
    # Before the first pass: pixels on another scale make all that follows meaningless.
    findings = pixel_findings(dataset.where, *pixels, scaled=scaled)
    warnings = list(accepted(findings, as_given=as_given))
    logits = _forward(model, x)
    # The first pass of a size is special: libraries allocate for it. Memory is measured on a single
    # image next.
    _forward(model, x[:1])
    classes = logits.shape[1]
    if classes < 2:
        raise ModelError(model.name, "has a single class", "a classifier has at least two")
    labels = _labels_of(samples)
    _check_names(model, dataset, classes)
    all_labels = dataset.labels()
    if not skip_bad:
        _check_labels(model, dataset, labels.numpy() if all_labels is None else all_labels, classes)
    finite = logits.isfinite().all(1)
    if not finite.any():
        raise ModelError(
            model.name,
            f"its logits are not finite on any of {len(x)} clean images",
            "look for NaN weights, or a wrong mean/std or scale",
        )
    usable = x[finite.to(x.device)]
    warnings += accepted(_output_findings(model, usable, logits[finite]), as_given=as_given)
    known = (labels >= 0) & (labels < classes) & finite
    correct = (logits.argmax(1) == labels)[known]
    number = _number_checked(samples[0])
    further = list(_further(model, dataset, samples, number)) if known.any() else []
    if further:
        further_x = torch.stack([sample.pixels for sample in further]).to(model.device)
        x = torch.cat([x, further_x])
        logits = torch.cat([logits, _forward(model, further_x)])
    images = _labelled([*samples, *further], x, logits)
    warnings += accuracy_warnings(
        model,
        images,
        classes,
        lambda part: _forward(model, part).argmax(1),
        prepared(x.shape[1:]),
        _more(model, dataset, rest, x.shape[1:]),
    )
    if gradients:
        # A few images show whether gradients exist, and whether they vanish.
        warnings += _gradient_warnings(model, usable[:_GRADIENT_IMAGES])
    return InputCheck(
        classes=classes,
        part=len(rest) > 0,
        labelled=int(known.sum()),
        correct=int(correct.sum()),
        warnings=tuple(warnings),
        seen=seen,
        pixels=pixels,
    )


def _random_part(dataset: Dataset, *, skip_bad: bool) -> tuple[Sequence[int], Sequence[int]]:
    """The places of the samples that are checked, in the order of the data set, and of the others,
    in random order.

    The first ones of a folder would be those of its first classes. The seed is fixed: the same
    data, the same warnings.
    """
    first = next(first_samples(dataset, 1, skip_bad=skip_bad))
    total = len(dataset)
    part = random_subset(total, min(total, _number_checked(first)), 0)
    chosen = np.asarray(part)
    rest = np.setdiff1d(np.arange(total), chosen)
    return chosen.tolist(), np.random.RandomState(0).permutation(rest).tolist()


def _samples_at(
    model: LogitModel, dataset: Dataset, places: Sequence[int], *, skip_bad: bool
) -> tuple[list[Sample], dict[str, tuple[str, int | None]]]:
    """The samples at these places, in the model's precision; pixel digest and label of each, by
    id."""
    samples: list[Sample] = []
    seen: dict[str, tuple[str, int | None]] = {}
    for sample in first_samples(dataset, len(places), skip_bad=skip_bad, places=places):
        # Digests are those of the pixels as they were read, before any conversion.
        seen[sample.id] = (image_digest(sample), sample.label)
        samples.append(replace(sample, pixels=sample.pixels.to(model.dtype)))
    return samples, seen


def _more(
    model: LogitModel, dataset: Dataset, places: Sequence[int], shape: Sequence[int]
) -> Iterator[Labelled]:
    """The labelled images at these places, batch by batch; the audit itself will report those that
    cannot be read."""
    for start in range(0, len(places), _ROWS):
        samples = []
        for place in places[start : start + _ROWS]:
            with contextlib.suppress(SampleError):
                sample = dataset[place]
                if sample.pixels.shape == shape:
                    samples.append(replace(sample, pixels=sample.pixels.to(model.dtype)))
        if samples:
            x = torch.stack([sample.pixels for sample in samples]).to(model.device)
            yield _labelled(samples, x, _forward(model, x))


def _number_checked(sample: Sample) -> int:
    """The number of images of this size that are checked."""
    bytes_of_image = 8 * sample.pixels.numel()  # in float64, the largest
    return min(_MOST_CHECKED, max(_FEWEST_CHECKED, _CHECKED_BYTES // bytes_of_image))


def _labels_of(samples: Sequence[Sample]) -> Tensor:
    """The labels (n,); -1 where unknown."""
    return torch.tensor([-1 if sample.label is None else sample.label for sample in samples])


def _further(
    model: LogitModel, dataset: Dataset, samples: Sequence[Sample], number: int
) -> Iterator[Sample]:
    """Samples of the same shape that the run leaves out, to make up the number."""
    for sample in further_samples(dataset, number):
        if sample.pixels.shape == samples[0].pixels.shape:
            yield replace(sample, pixels=sample.pixels.to(model.dtype))


def _labelled(samples: Sequence[Sample], x: Tensor, logits: Tensor) -> Labelled:
    """The samples whose label is one of the classes and whose logits are finite, with their
    predicted classes, in random order."""
    labels = _labels_of(samples)
    known = (labels >= 0) & (labels < logits.shape[1]) & logits.isfinite().all(1)
    # In random order, because the first of them show which corrections to try on all, and class
    # folders have images of one class there. The seed is fixed: the same data, the same warnings.
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    order = order[known[order]]
    ids = [samples[place].id for place in order.tolist()]
    return Labelled(ids, x[order.to(x.device)], labels[order], logits.argmax(1)[order])


def _forward(model: LogitModel, x: Tensor) -> Tensor:
    """The logits (n, classes) in float64 on the CPU."""

    def logits(rows: int) -> Tensor:
        with torch.inference_mode():
            return torch.cat([model(part).double().cpu() for part in x.split(rows)]).clone()

    return _in_passes(logits, min(_ROWS, rows_by_rule(x.shape[1:], model.device)), model.name)


def _in_passes(work: Callable[[int], Tensor], rows: int, where: str) -> Tensor:
    """The result of ``work`` with this many images in a pass; the number is halved for as long as
    memory runs out.

    Raises:
        ModelError: a single image does not fit into memory.
    """
    while True:
        try:
            return work(rows)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if rows == 1:
                raise ModelError(
                    where, "a single image does not fit into memory", "give it more memory"
                ) from error
        rows //= 2


def _check_labels(model: LogitModel, dataset: Dataset, labels: Labels, classes: int) -> None:
    """Check labels; -1 is none. The data set may know all of them without reading pixels, else they
    are those of the first images."""
    highest = int(labels.max(initial=-1))
    lowest = int(labels[labels >= 0].min(initial=classes))
    # Of many classes, a run rarely has the first.
    if highest == classes and lowest >= 1:
        what = (
            f"the labels run from {lowest} to {highest}, but {model.name} counts its {classes} "
            "classes from 0"
        )
        raise DataError(dataset.where, what, "subtract 1 from each label")
    if highest >= classes:
        raise DataError(
            dataset.where,
            f"label {highest} is out of range: {model.name} has {classes} classes",
            f"labels run from 0 to {classes - 1}",
        )


def _check_names(model: LogitModel, dataset: Dataset, classes: int) -> None:
    """Check that there are as many class names as logits."""
    names = dataset.class_names
    if names is not None and len(names) != classes:
        raise DataError(
            dataset.where,
            f"has {len(names)} class names, but {model.name} has {classes} classes",
            "name every class once, in logit order",
        )


def _output_findings(model: LogitModel, x: Tensor, logits: Tensor) -> Iterator[Finding]:
    """Findings about outputs that are the same for all images, or probabilities.

    Args:
        model: the network.
        x: images (n, channels, height, width).
        logits: of these images (n, classes).
    """
    images = len(x)
    logits = logits[:, (logits > NEVER).any(0)]  # without the classes that the network masks
    spread = float((logits - logits[0]).abs().max())
    same_logits = spread <= _SAME * float(logits.abs().max())
    different_images = images > 1 and bool((x != x[0]).any())
    if different_images and same_logits:
        remedy = "look for a layer without its weights, or a wrong mean, std or scale"
        yield (
            f"{model.name}: its logits are the same for all {images} images that were checked; "
            f"{remedy}"
        )
        return
    if not _within_unit(logits):
        return
    sums_to_one = float((logits.sum(1) - 1).abs().max()) < _SUM_ROUNDING
    if not sums_to_one and _leaves_unit(model, x):
        return  # logits that happen to be small on these images
    # A network with a single output z is audited with the logits 0 and z.
    one_output = logits.shape[1] == 2 and bool((logits[:, 0] == 0).all())
    if one_output:
        what = (
            f"its one output lies within [0, 1] on all {images} images: it looks like a "
            "probability, and class 1 would always win"
        )
        yield ModelError(
            model.name,
            what,
            "return the logit, which the layer before the sigmoid gives: it is positive for "
            "class 1",
        )
    else:
        option = "output" if model.in_memory else "model.output"
        remedy = (
            f"their margins are far from normal: return the logits, or name the logits in {option}"
        )
        yield f"{model.name}: the outputs look like probabilities, not logits; {remedy}"


def _within_unit(outputs: Tensor) -> bool:
    """Whether all outputs are within [0, 1]."""
    return float(outputs.min()) >= 0 and float(outputs.max()) <= 1


def _leaves_unit(model: LogitModel, x: Tensor) -> bool:
    """Whether outputs leave [0, 1] for images far beyond [0, 1], where logits are large. False if
    the network refuses such images."""
    far = _FAR * (x[:_IMAGES] - 0.5)
    try:
        return not _within_unit(_forward(model, torch.cat([0.5 + far, 0.5 - far])))
    except ModelError:
        return False


def _gradient_warnings(model: LogitModel, x: Tensor) -> Iterator[str]:
    """The warning that gradients vanish on some of these images.

    Raises:
        ModelError: the network has no gradients.
    """
    # The margin to the nearest class only: cheap for any number of classes.
    nearest = _forward(model, x).topk(2, dim=1).indices.to(x.device)

    def margin_gradients_of(rows: int) -> Tensor:
        parts = zip(x.split(rows), nearest.split(rows), strict=True)
        gradients = [
            margin_gradients(model, part, classes[:, 0], classes[:, 1:])[2]
            for part, classes in parts
        ]
        return torch.cat(gradients)  # (n, 1, pixels)

    # A backward pass takes several times the memory of a forward pass.
    rows = max(1, min(len(x), rows_by_rule(x.shape[1:], model.device) // 4))
    try:
        u = _in_passes(margin_gradients_of, rows, model.name)
    except (ValueError, RuntimeError) as error:
        first_line = str(error).strip().splitlines()[0][:200]
        raise ModelError(
            model.name,
            f"has no gradients ({first_line})",
            f"use {reference()}, or another estimator that needs none",
        ) from error
    vanishing = int((u.square().sum((1, 2)) == 0).sum())
    if vanishing:
        consequence = (
            "what is computed from gradients is 1 or 0 there, and attacks find nothing: "
            f"use {reference()}"
        )
        yield f"{model.name}: gradients vanish on {vanishing} of {len(x)} images; {consequence}"


def precision_effects(
    engine: Engine,
    dataset: Dataset,
    levels: Sequence[NoiseLevel],
    precision: Precision,
    listener: Listener,
    *,
    skip_bad: bool,
) -> list[dict[str, Any]]:
    """Measure the effect of a lower precision: pass 32 noisy copies of each of the first 16 images
    through the network in fp32 and in ``precision``, with the same noise.

    Returns:
        An entry of run.json for each level: how many copies change class (``changed``), and how
        many keep the class of the clean image in fp32 (``kept_fp32``) and in the lower precision
        (``kept``). The listener gets a line about each.
    """
    model = engine.model
    effects = list[dict[str, Any]]()
    samples = list(first_samples(dataset, _IMAGES, skip_bad=skip_bad))
    ids = [sample.id for sample in samples]
    x = torch.stack([sample.pixels.to(model.dtype) for sample in samples]).to(model.device)
    copies = len(x) * _COPIES
    exact = copy(engine)
    exact.model = engine.model.rounding(False)
    predicted = exact.logits(x).argmax(1)
    for at in levels:
        # Counted on the device, so that nothing waits for it within the loop.
        counts = torch.zeros(3, dtype=torch.int64, device=x.device)
        for batch in engine.noisy_batches(x, ids, at, _COPIES, engine.rows(x.shape[1:])):
            clean_class = predicted[batch.image]
            with torch.inference_mode():
                # The same padded batch: with other sizes, rounding would differ for that reason.
                lower = engine.noisy_model_under(at.noise)(batch.padded)[: len(batch.x)].argmax(1)
                full = exact.model_under(at.noise)(batch.padded)[: len(batch.x)].argmax(1)
            changed_now = (lower != full).sum()
            kept_fp32_now = (full == clean_class).sum()
            kept_now = (lower == clean_class).sum()
            counts += torch.stack([changed_now, kept_fp32_now, kept_now])
        changed, kept_fp32, kept = counts.tolist()
        what = f"{changed} of {copies} noisy copies ({len(x)} images) change class"
        listener.note(
            f"precision {precision} at {at}: {what}; kept {kept / copies:.1%}, in fp32 "
            f"{kept_fp32 / copies:.1%}"
        )
        effect = {
            "precision": precision,
            **at.document(),
            "images": len(x),
            "copies": copies,
            "changed": changed,
            "kept_fp32": kept_fp32,
            "kept": kept,
        }
        effects.append(effect)
    return effects
