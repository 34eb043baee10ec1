"""What must be read before any table: clean accuracy first, then model, data and noise?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robaudit.spec import sigma_text
from robaudit.text import count, printable


def headline(info: Mapping[str, Any]) -> list[str]:
    """The lines above a run's tables, from run.json."""
    totals, data, model = info["totals"], info["data"], info["model"]
    skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
    passes = f"{totals['forwards']:,} forward and {totals['backwards']:,} backward passes"
    lines = [
        f"clean accuracy  {accuracy_words(info['clean_accuracy'])}",
        *_noisy(info["noisy_accuracy"]),
        f"model           {model['name']} ({model['format']}, {model['classes']} classes, sha256 {model['sha256'][:8]})",
        f"data            {data['where']}: {count(totals['samples'], 'sample')}{skipped}",
        f"noise           {info['noise']}",
        f"run             seed {info['seed']}, {info['device']}, {passes}",
    ]
    lines += [f"warning         {text}" for text in info["warnings"]]
    lines += [f"skipped         {skip['reason']}" for skip in info["skipped"][:3]]
    if len(info["skipped"]) > 3:
        lines.append(f"skipped         and {len(info['skipped']) - 3} more: see run.json")
    return [printable(line) for line in lines]


def accuracy_words(share: Mapping[str, Any] | None) -> str:
    """``92.0 % (46 of 50)``, or that there are no labels."""
    if share is None:
        return "not measured (no labels)"
    return f"{share['value']:.1%} ({share['count']} of {share['total']}; 95 % interval {share['lower']:.1%} to {share['upper']:.1%})"


def _noisy(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{'under noise' if i == 0 else '':15} {e['value']:.1%} at sigma {sigma_text(e['sigma'])} "
        f"({e['estimator']}; 95 % interval {e['lower']:.1%} to {e['upper']:.1%})"
        for i, e in enumerate(entries)
    ]
