"""`qnorm_path` beside plain copies and the published sampler on real networks: values at equal cost, convergence, and speed.

Run by hand: `python -m tests.benchmarks.qnorm` computes what its file of results lacks (about an hour and a half on one core for all of
it), and writes the section and the picture of docs/research/benchmarks.md. Nothing is asserted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from robaudit.system import keep_freed_memory
from tests.benchmarks.machine import machine
from tests.benchmarks.networks import Bench
from tests.benchmarks.qnorm import picture, report, speed
from tests.benchmarks.qnorm.cases import BUDGETS, CASES, OURS, PICTURED, PICTURED_IMAGES, PICTURED_ORDERS, longer, methods
from tests.benchmarks.qnorm.results import MOST, ORDERS, Case, Results
from tests.benchmarks.report import write
from tests.shared import SHARED

PARTS = ("table", "convergence", "speed")
PICTURE = "qnorm-convergence.png"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the parts asked for, and write the report after each."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.qnorm", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--networks", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--images", type=int, default=MOST, help=f"test images of each (default and most: {MOST})")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, separated by commas (default: {','.join(PARTS)})")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default 0)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (default 1)")
    parser.add_argument("--models", type=Path, default=SHARED, help="the folder with models/ and data/; default: ../shared")
    docs = Path(__file__).resolve().parents[3] / "docs" / "research"
    parser.add_argument("--out", type=Path, default=docs, help="folder of the report; default: docs/research/")
    parser.add_argument("--results", type=Path, help="the file of all values; default: qnorm-results.json beside the report")
    parser.add_argument("--again", default="", help="compute the values of this estimator anew, for example qnorm_path")
    given = parser.parse_args(arguments)
    if unknown := set(given.only.split(",")) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    chosen = [case for case in CASES if not given.networks or case.network in given.networks.split(",")]
    if not chosen:
        parser.error(f"unknown networks; there are {', '.join(dict.fromkeys(case.network for case in CASES))}")
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    bench = Bench(torch.device("cpu"), shared=given.models, out=given.out, say=_say)
    results = Results(given.results or given.out / "qnorm-results.json", bench, given.seed)
    if given.again:
        results.forget(given.again)
    for part in given.only.split(","):
        if part == "table":
            for case in chosen:
                tabulate(results, case, min(given.images, MOST))
        elif part == "convergence":
            converge(results)
        else:
            speed.measure(results, [case for case in chosen if case.published is not None])
        written(results, given.out)


def tabulate(results: Results, case: Case, images: int) -> None:
    """Compute what the case's table needs."""
    for method in methods(case).values():
        results.of(case, method, images)
    results.of(case, longer(case), min(images, case.long_images))


def converge(results: Results) -> None:
    """Compute what the picture needs."""
    for budget in BUDGETS:
        for method in budget.methods().values():
            results.of(PICTURED, method, PICTURED_IMAGES)


def written(results: Results, out: Path) -> None:
    """Write the section and, where all is there, the picture."""
    panels = _panels(results)
    if panels:
        picture.write(
            out / PICTURE, panels, f"Mean of {PICTURED_IMAGES} images of {PICTURED.title}. Bars: the mean ends of the rows' intervals."
        )
    section = report.section(results, PICTURE if panels else "")
    write(out, {"qnorm-cpu": replace(section, machine=machine(torch.device("cpu")))})


def _panels(results: Results) -> dict[float, picture.Curves]:
    """By order, with the budgets that are complete; empty where fewer than two are."""
    curves: dict[float, dict[str, list[tuple[int, report.Mean]]]] = {q: {} for q in PICTURED_ORDERS}
    complete = 0
    for budget in BUDGETS:
        results_of = {name: results.have(PICTURED, method)[:PICTURED_IMAGES] for name, method in budget.methods().items()}
        if min(map(len, results_of.values())) < PICTURED_IMAGES:
            continue
        complete += 1
        for name, found in results_of.items():
            for place, q in enumerate(PICTURED_ORDERS):
                k = place if len(found[0].value) == len(PICTURED_ORDERS) else ORDERS.index(q)
                curves[q].setdefault(name, []).append((found[0].cost, report.Mean.of(found, k)))
    if complete < 2:
        return {}
    return {q: {name: lines[name] for name in (OURS, *(other for other in lines if other != OURS))} for q, lines in curves.items()}


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
