"""How do several runs stand beside each other, a line for each estimator and noise level?"""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.report import numbers
from robaudit.report.html.content import Content
from robaudit.report.html.tables import KIND, Cell, Table, bar_of, meaning


def comparison_tables(contents: Sequence[Content], names: Sequence[str]) -> tuple[Table, ...]:
    """A table for each quantity, by noise level and estimator first, so that runs that compare stand below each other.

    Args:
        contents: of the runs.
        names: of the runs, each another.
    """
    level = numbers.sigmas(group.key.sigma for content in contents for group in content.groups)
    lines = [(group, content, name) for content, name in zip(contents, names, strict=True) for group in content.groups]
    kinds = dict.fromkeys((group.key.quantity, group.key.noise) for group, _, _ in lines)
    tables = []
    for kind in kinds:
        mine = [line for line in lines if (line[0].key.quantity, line[0].key.noise) == kind]
        order = {estimator: i for i, estimator in enumerate(dict.fromkeys(group.key.estimator for group, _, _ in mine))}
        rows = []
        for group, content, name in sorted(mine, key=lambda line: (line[0].key.sigma, order[line[0].key.estimator])):
            quantity, mean, noisy = content.quantity(kind[0]), group.mean, group.noisy_accuracy
            marked = group.with_interval < group.images
            cells = [
                Cell(name),
                Cell(f"sigma {level[group.key.sigma]}"),
                Cell(group.key.estimator),
                Cell(f"{group.images:,}"),
                Cell(numbers.NONE if group.clean_accuracy is None else numbers.share(group.clean_accuracy)),
                Cell(numbers.NONE if noisy is None else numbers.noisy_percent(noisy)),
                Cell(numbers.mean(mean, quantity, marked=marked), bar_of(mean.value, mean.lower, mean.upper, quantity)),
                Cell(numbers.interval(mean.lower, mean.upper)),
                Cell(numbers.quantile(group.p05, quantity)),
            ]
            rows.append(tuple(cells))
        heads = ("run", "noise", "estimator", "images", "right, clean", "right, noisy", "mean", KIND, "5th percentile")
        tables.append(Table(meaning(mine[0][0]), heads, tuple(rows), 3))
    return tuple(tables)


def comparison_notes(contents: Sequence[Content]) -> list[str]:
    """What must be known before lines are compared."""
    if len({content.run.info["data"].get("sha256") for content in contents}) > 1:
        return ["These runs looked at different data: a difference between two lines may come from the images."]
    return ["All runs looked at the same data. Intervals that overlap may still hide a difference, as the images are the same."]


def run_names(contents: Sequence[Content]) -> list[str]:
    """A name for each run, each another."""
    names = [content.run.info["name"] for content in contents]
    if len(set(names)) == len(names):
        return names
    named = [f"{name} ({content.run.path.name})" for name, content in zip(names, contents, strict=True)]
    return named if len(set(named)) == len(named) else [f"{i}: {name}" for i, name in enumerate(named, start=1)]
