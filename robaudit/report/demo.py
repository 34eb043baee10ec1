"""What `robaudit demo` prints: two models side by side, what the difference is, and the digits that flip most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from robaudit.compare.result import Comparison
from robaudit.report import numbers
from robaudit.report.tables import Table, cells, columns
from robaudit.stats.intervals import THESE_IMAGES
from robaudit.store.run import Run

_SHADES, _ASCII = " ░▒▓█", " .-+#"
_WIDE = 2  # characters for each pixel, which make it about square
_GAP = "      "


def models_table(runs: dict[str, Run]) -> Table:
    """A row for each model: clean accuracy, and mean robustness at each level.

    Args:
        runs: by the name of the model; all with the same estimator and levels.
    """
    first = next(iter(runs.values()))
    levels = numbers.level_texts(at for _, at in first.groups())
    rows = []
    for name, run in runs.items():
        means = [numbers.mean_estimate(group.mean) for group in run.summary()]
        clean = "" if run.info.clean_accuracy is None else numbers.exact_percent(run.info.clean_accuracy.value)
        rows.append(cells((name, clean, *means)))
    images = first.info.totals.samples
    return Table(
        f"Share of noisy copies that keep the prediction, {images} images",
        columns(("model",), ("clean accuracy", *levels.values())),
        tuple(rows),
        notes=("[ ] 95 % interval of the mean, images like these.",),
    )


def finding(comparison: Comparison) -> str:
    """What training with noise changes at the strongest noise, in a sentence."""
    group = comparison.groups[-1]
    change, level = group.mean, numbers.level_texts([group.key.at])[group.key.at]
    if change.measured is None or change.measured.lower <= 0.0 <= change.measured.upper:
        return f"Training with noise makes no difference at {level} that these images could show."
    verb = "raises" if change.value > 0 else "lowers"
    ends = numbers.change(change.value, *change.measured.ends)
    return f"Training with noise {verb} robustness at {level} from {change.base:.3f} to {change.new:.3f}: {ends} on {THESE_IMAGES}."


def drawn(pictures: Sequence[tuple[Tensor, Tensor]], *, ascii_only: bool) -> Iterator[str]:
    """Grey images (1, height, width), clean above noisy, side by side as text: white is dense.

    Args:
        pictures: of one size.
        ascii_only: for terminals that have no block characters.
    """
    characters = _ASCII if ascii_only else _SHADES
    for row in range(2):
        images = [pair[row].squeeze(0).clamp(0.0, 1.0) for pair in pictures]
        shades = [(image * (len(characters) - 1)).round().int().tolist() for image in images]
        for line in zip(*shades, strict=True):
            yield _GAP.join("".join(characters[value] * _WIDE for value in pixels) for pixels in line)
        yield ""
