"""The noise of a camera as tables: what was measured, which kinds fit, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from robaudit.camera.curve import CurvePoint
from robaudit.camera.pairs import Finding, Remark
from robaudit.camera.result import CameraNoise
from robaudit.camera.verdict import Aspect, Candidate, Misfit
from robaudit.estimates import Estimate
from robaudit.report import numbers
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.text import count

_FEW = 2  # pairs of shots that have a line each
_COLOURS = ("red", "green", "blue")
_HEAD = (
    Column("quantity"),
    Column("value", number=True),
    Column("95 % interval", number=True),
    Column("meaning", wrap=True),
)
_CANDIDATES = (
    Column("kind"),
    Column("score", number=True),
    Column("+-", number=True),
    Column("what it misses", wrap=True),
)
_NOTES = (
    "score: the log-likelihood of differences that no fit has seen, in nats a value, less the best "
    "one. A kind fits if it misses no standard deviation by 10 %, no correlation by .1, and no "
    "excess kurtosis by 1.",
)


def camera_tables(noises: Sequence[CameraNoise]) -> Iterator[Table]:
    """Two tables for each noise, with the verdict below them."""
    if len(noises) > 1:
        names = ", ".join(noise.name for noise in noises)
        yield Table(f"{names} differ in noise at the same brightness, and are measured apart")
    for noise in noises:
        yield Table(_heading(noise), _HEAD, tuple(_rows(noise)))
        rows = tuple(_candidate_row(candidate) for candidate in noise.candidates)
        yield Table("Kinds of noise", _CANDIDATES, rows, conclusions=tuple(_conclusions(noise)))
    yield Table(notes=_NOTES)


def _heading(noise: CameraNoise) -> str:
    size = f"{noise.channels} x {noise.height} x {noise.width}"
    pairs = f"{count(noise.shots, 'shot')}, {count(noise.pairs, 'pair')} used"
    return f"Noise of {noise.name}: {pairs}, {size} pixels of {noise.bits} bits"


def _rows(noise: CameraNoise) -> Iterator[tuple[Cell, ...]]:
    """The measured quantities."""
    yield _row("standard deviation", noise.sigma, numbers.grey_levels(noise.sigma.value))
    if noise.channels > 1:
        for name, deviation in zip(_COLOURS, noise.by_channel, strict=False):
            yield _row(f"  {name}", deviation, "")
    for point in _shown(noise.curve):
        yield _row(f"  at brightness {point.brightness:.2f}", _root(point.variance), "")
    if noise.linear is not None:
        photons = noise.linear.photons
        gain = (2**noise.bits - 1) / photons.value
        yield _row("photons", photons, f"electrons of a white pixel; gain K = {gain:.3g} DN/e-")
        yield _row("read noise", noise.linear.read_noise, "temporal dark noise, in electrons")
    for lag in noise.neighbours:
        if (lag.down, lag.across) in ((0, 1), (1, 0)):
            way = "beside" if lag.across else "below"
            yield _row(f"correlation, pixel {way}", lag.correlation, "")
    if noise.length is not None:
        yield _row("correlation length", noise.length, "in pixels")
    if noise.between_channels:
        yield _row("correlation of channels", _mean(noise.between_channels), "")
    yield _row("excess kurtosis", noise.kurtosis, "0: normal; 3: Laplace")
    yield _row("fixed pattern", noise.fixed_pattern, "the same in every shot; at most this")
    if noise.defective is not None:
        yield _row("defective pixels", noise.defective, "share: unlike all around them")
    if noise.stuck is not None:
        yield _row("stuck pixels", noise.stuck, "share: never change")


def _row(name: str, estimate: Estimate, meaning: str) -> tuple[Cell, ...]:
    """A quantity with two digits of its interval's width."""
    bounds = estimate.bounds
    if bounds is None:
        return cells((name, _number(estimate.value), "", meaning))
    lower, upper = bounds
    width = upper - lower
    if not math.isfinite(width) or width == 0:
        interval = numbers.rough_interval(lower, upper)
        return cells((name, _number(estimate.value), interval, meaning))
    decimals = max(0, 1 - math.floor(math.log10(width)))
    # + 0.0: no minus sign before a zero.
    value, low, high = (
        f"{round(number, decimals) + 0.0:,.{decimals}f}"
        for number in (estimate.value, lower, upper)
    )
    return cells((name, value, f"[{low}, {high}]", meaning))


def _number(value: float) -> str:
    """Three significant digits; large numbers without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _root(variance: Estimate) -> Estimate:
    """A standard deviation from its variance."""
    bounds = variance.bounds
    ends = None if bounds is None else (math.sqrt(bounds[0]), math.sqrt(bounds[1]))
    return Estimate.measured(math.sqrt(variance.value), ends, variance.method)


def _shown(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    """A dark, a middle and a bright point of the second channel, which is green, or of the only
    one; points of few values are left out."""
    channel = min(1, max((point.channel for point in curve), default=0))
    usual = [point for point in curve if point.channel == channel and point.share >= 0.01]
    places = sorted({0, len(usual) // 2, len(usual) - 1}) if len(usual) > 1 else []
    return [usual[place] for place in places]


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of estimates of the same pixels, with the mean of their ends."""
    total = len(estimates)
    bounds = [estimate.bounds or (-1.0, 1.0) for estimate in estimates]
    ends = (sum(low for low, _ in bounds) / total, sum(high for _, high in bounds) / total)
    value = sum(estimate.value for estimate in estimates) / total
    return Estimate.measured(value, ends, estimates[0].method)


def _candidate_row(candidate: Candidate) -> tuple[Cell, ...]:
    missed = "; ".join(misfit_text(misfit) for misfit in candidate.misfits) or "nothing"
    # + 0.0: no minus sign before a zero.
    score = f"{round(candidate.score, 4) + 0.0:.4f}"
    tone = cells((candidate.kind, score, f"{candidate.error:.4f}", missed))
    return tone if candidate.misfits else cells((cell.text for cell in tone), "strong")


def misfit_text(misfit: Misfit) -> str:
    """Where a fit misses the noise: the measured number and the fitted one."""
    measured = _number(misfit.measured.value)
    fitted = _number(misfit.fitted)
    where = {
        Aspect.BRIGHTNESS: f"deviation at brightness {misfit.place or 0:.2f}",
        Aspect.NEIGHBOURS: f"correlation at {misfit.place or 0:.2g} px",
        Aspect.CHANNELS: "correlation of channels",
        Aspect.TAILS: "excess kurtosis",
    }[misfit.aspect]
    return f"{where}: {measured}, not {fitted}"


def _conclusions(noise: CameraNoise) -> Iterator[Cell]:
    """The verdict."""
    if noise.fits:
        yield Cell(f"-> {fit_text(noise)} fits.", "strong")
    else:
        yield Cell("-> None of the kinds fits: use the noise itself (kind: frames).", "warning")
        yield Cell(f"   The nearest is {fit_text(noise)}.")
    if noise.sigma.value < noise.step / 2:
        yield Cell(
            f"   The noise is less than half a step of {noise.bits} bits: these numbers are mostly "
            "those of rounding."
        )


def fit_text(noise: CameraNoise) -> str:
    """The chosen kind with its level and options: ``sensor, photons 1000, read_noise 5``."""
    fit = noise.fit
    options = "".join(f", {name} {_option(value)}" for name, value in fit.options.items())
    return f"{fit.kind}, {fit.level_name} {_number(fit.level)}{options}"


def _option(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f"{item:.3g}" for item in value) + "]"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def remark_lines(remarks: Sequence[Remark]) -> list[str]:
    """What was found, and what was done about it: a line for each kind of finding in a scene, or
    for each pair of shots if there are few."""
    groups: dict[tuple[str, Finding], list[Remark]] = {}
    for remark in remarks:
        groups.setdefault((remark.scene, remark.finding), []).append(remark)
    lines = []
    for group in groups.values():
        if len(group) <= _FEW:
            lines += [_remark_text(remark, f"shots {_pair(remark)}", "") for remark in group]
        else:
            largest = max(group, key=lambda remark: remark.amount)
            listed = ", ".join(_pair(remark) for remark in group[:_FEW])
            pairs = f"{len(group)} pairs of shots ({listed}, ...)"
            lines.append(_remark_text(largest, pairs, "up to "))
    return lines


def _pair(remark: Remark) -> str:
    return " and ".join(map(str, remark.shots))


def _remark_text(remark: Remark, shots: str, up_to: str) -> str:
    """One line of a finding."""
    amount = remark.amount
    what = {
        Finding.EXPOSURE: f"{shots}: left out, the brightness changes by {up_to}{amount:.0%}",
        Finding.MOVED: f"{shots}: left out, the scene moves by {up_to}{amount:.2g} pixels",
        Finding.LIGHT: f"{shots}: left out, the light changes in parts of the scene",
        Finding.CHANGED: f"{shots}: left out, {up_to}{amount:.0%} of the scene changes",
        Finding.CLIPPED: f"{amount:.1%} of the scene is left out: too close to black or white",
        Finding.DRIFT: f"the brightness drifts by up to {amount:.1%} from shot to shot: removed",
        Finding.PARTS: f"{shots}: {up_to}{amount:.1%} of the scene is left out, where "
        "something moves",
    }[remark.finding]
    return f"{remark.scene}: {what}"
