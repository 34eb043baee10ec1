"""Failures too rare to be met by chance, on MNIST."""

from __future__ import annotations

from collections.abc import Mapping

from robaudit.api.run import Run
from robaudit.runs.rows import Row
from tests.research.gallery.gallery import (
    Content,
    Gallery,
    group,
    images,
    network,
    table,
    with_ends,
)

_SIGMA = 0.2
_IMAGES = 24
_DRAWS = 10_000
_ORDINARY = "rare-ordinary"
_ADVERSARIAL = "rare-adversarial"
_MODELS = {_ORDINARY: "mnist_conv_small_nat", _ADVERSARIAL: "mnist_cnn_a_adv"}
_FLOOR = -12.0
"""log10 of the p_min of splitting: rarer failures are not measured."""
_RARE = -4.0


def rare(gallery: Gallery) -> Content:
    """What 10,000 copies say of images that fail once in a million."""
    content = Content(
        about="Two CNNs on 24 test images of MNIST under Gaussian noise of sigma 0.2: one trained "
        "as usual, and one against attacks that change each pixel by up to 0.3. `mc` takes 10,000 "
        "copies of each image; [`splitting`](../research/rare_failures.md) works its way towards "
        "failures step by step.",
    )
    runs = {
        name: gallery.run(
            content,
            name,
            network(model),
            images(model, _IMAGES),
            noise={"sigma": [_SIGMA]},
            estimators=[{"mc": {"draws": _DRAWS}}, "splitting"],
        )
        for name, model in _MODELS.items()
    }
    first, second = runs.values()
    for estimator, alt in (
        ("splitting", "log10 of the failure probability of all images, sorted, by splitting"),
        ("mc", "Share of 10,000 copies that keep the class, the same images"),
    ):
        gallery.plot(
            content,
            f"rare-{estimator}",
            first,
            "summary",
            alt,
            with_=[second],
            label=["ordinary", "adversarial"],
            estimator=estimator,
        )
    _table(content, runs)
    _sentences(content, runs)
    return content


def _rows(run: Run, estimator: str) -> dict[str, Row]:
    return {row.sample_id: row for row in run.rows if row.estimator == estimator}


def _failures(row: Row) -> int:
    """Of the copies of ``mc``."""
    return round(_DRAWS * (1 - row.value))


def _measured(row: Row) -> bool:
    """Whether splitting found failures: otherwise the value is a bound."""
    return row.value > _FLOOR


def _log10(row: Row) -> str:
    if not _measured(row) or row.lower is None or row.upper is None:
        return f"<= {row.value:.0f}"
    return f"{row.value:.1f} [{row.lower:.1f}, {row.upper:.1f}]"


def _table(content: Content, runs: Mapping[str, Run]) -> None:
    by_name = {name: (_rows(run, "mc"), _rows(run, "splitting")) for name, run in runs.items()}
    rows = []
    _, of_ordinary = by_name[_ORDINARY]
    for sample in sorted(of_ordinary, key=lambda one: -of_ordinary[one].value):
        cells: list[object] = []
        for counted, measured in by_name.values():
            cells += [_failures(counted[sample]), _log10(measured[sample])]
        rows.append((sample, *cells))
    head = (
        "image",
        "ordinary: failures in 10,000",
        "log10 p_fail",
        "adversarial: failures in 10,000",
        "log10 p_fail",
    )
    content.tables.append(
        "-6 is one failure in a million copies. Intervals are for the image, over repeats:\n\n"
        + table(head, rows)
    )


def _sentences(content: Content, runs: Mapping[str, Run]) -> None:
    counted = _rows(runs[_ORDINARY], "mc")
    measured, other = (_rows(run, "splitting") for run in runs.values())
    unseen = [one for one, row in counted.items() if _failures(row) == 0]
    same = {counted[one].lower for one in unseen}
    (bound,) = same
    assert bound is not None
    values = [measured[one].value for one in unseen]
    content.say(
        f"Of the {_IMAGES} images, {len(unseen)} lose none of their 10,000 copies on the ordinary "
        f"network, and `mc` can only say the same of each: a failure probability of at most "
        f"{1 - bound:.1e}.",
        if_=len(unseen) > _IMAGES / 2,
    )
    content.say(
        "Yet they differ by more than six orders of magnitude: splitting measures "
        f"10^{max(values):.1f} for one of them, and less than 10^{_FLOOR:.0f} for "
        f"{sum(v == _FLOOR for v in values)}.",
        if_=max(values) - min(values) > 6,
    )
    # The image of either network whose failures are nearest to one in a million.
    name, sample, nearest = min(
        (
            (name, one, row)
            for name, rows in (("ordinary", measured), ("adversarially trained", other))
            for one, row in rows.items()
        ),
        key=lambda found: abs(found[2].value + 6),
    )
    content.say(
        f"One failure in a million is within reach: image {sample} fails on the {name} network "
        f"with log10 p = {_log10(nearest)}, at a cost of {nearest.forwards:,} passes; plain copies "
        f"would show ten such failures in ten million.",
        if_=abs(nearest.value + 6) < 0.5,
    )
    both = [one for one in measured if _measured(measured[one]) and _measured(other[one])]
    worse = [one for one in both if other[one].value > measured[one].value]
    step = max(both, key=lambda one: other[one].value - measured[one].value)
    content.say(
        "Training against attacks of 0.3 did not make failures under noise rarer: of the "
        f"{len(both)} images that both networks fail measurably, {len(worse)} fail more often on "
        f"the trained one, most of all image {step}, with log10 p = {_log10(other[step])} instead "
        f"of {_log10(measured[step])}.",
        if_=len(worse) > len(both) / 2 and other[step].value - measured[step].value > 5,
    )
    trained, plain = (
        group(runs[name], "mc", "gaussian", _SIGMA).mean.population
        for name in (_ADVERSARIAL, _ORDINARY)
    )
    content.say(
        f"The mean of p_robust says the opposite, {with_ends(trained)} against {with_ends(plain)}, "
        "because it is made by the few images that fail often, and not by the others.",
        if_=trained.value > plain.value,
    )
    content.surprise = (
        f"{len(unseen)} digits that survive 10,000 noisy copies look alike; their failure "
        f"probabilities lie between 1 in {round(10 ** -max(values), -4):,.0f} and less than 1 in a "
        "million million."
    )
