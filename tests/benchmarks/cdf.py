"""Part `mvn`: the normal CDF against SciPy's."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from robaudit.numerics.mvn import mvn_cdf
from tests.benchmarks.networks import Bench
from tests.benchmarks.published import scipy_cdf
from tests.benchmarks.report import Section, Table, number, target
from tests.benchmarks.timing import Contender, alternating, timed

AIMS = {9: 0.05, 99: 1.5, 999: 60.0}
CASES = ((1000, 9, 784, 20, 2.0), (100, 99, 784, 5, 2.0), (8, 999, 3072, 1, 7.0))  # rows, k, pixels, rows for SciPy, mean limit


def margin_problems(rows: int, k: int, dimension: int, seed: int, shared: float, mean: float = 2.0) -> tuple[Tensor, Tensor]:
    """Limits and Gram correlations of k margins w_t - w_i, the class t weighing `shared` times the others."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weights = normal(rows, k + 1, dimension)
    margins = torch.nn.functional.normalize(shared * weights[:, :1] - weights[:, 1:], dim=-1)
    correlation = margins @ margins.transpose(1, 2)
    correlation.diagonal(dim1=1, dim2=2).fill_(1.0)
    return 1.5 * normal(rows, k) + 2.0 * normal(rows, 1) + mean, correlation


def measure(bench: Bench) -> Section:
    """Easy correlations (shared 1) and strong ones (shared 3); SciPy takes the first rows."""
    rows, raw, targets = [], {}, []
    for shared in (1.0, 3.0):
        for count, k, pixels, few, mean in CASES[: 2 if bench.quick else 3]:
            upper, correlation = margin_problems(count, k, pixels, 1, shared, mean)
            ours = upper.to(bench.device), correlation.to(bench.device)
            contenders: dict[str, Contender] = {"ours": partial(mvn_cdf, *ours)}
            theirs, once = timed(partial(scipy_cdf, upper[:few], correlation[:few]), bench.device)
            if k < 500:  # beyond, a problem takes SciPy ten seconds: measured once
                contenders["scipy"] = partial(scipy_cdf, upper[:few], correlation[:few])
            times = {"scipy": once, **alternating(contenders, bench.device, 1 if bench.quick else 5)}
            each = {"ours": 1e3 * times["ours"] / count, "scipy": 1e3 * times["scipy"] / few}
            value, error = (t.cpu() for t in mvn_cdf(*ours))
            apart = float((value[:few] - torch.tensor(theirs, dtype=torch.float64)).abs().max())
            errors = [f"{float(e):.1e}" for e in (error.median(), error.max())]
            ratio = each["scipy"] / each["ours"]
            rows.append(
                [str(k), str(count), f"{shared:g}", number(each["ours"]), number(each["scipy"]), number(ratio), *errors, f"{apart:.1e}"]
            )
            raw[f"k={k}, shared={shared:g}"] = each
            targets.append(target(f"k = {k}, shared {shared:g}", AIMS[k], each["ours"], " ms"))
            bench.say(f"  k = {k}, shared {shared:g}: ours {each['ours']:.3g} ms, SciPy {each['scipy']:.3g} ms")
    headers = ["k", "problems", "shared", "ours, ms", "SciPy, ms", "ratio", "median error", "largest error", "difference"]
    return Section(
        title=f"The normal CDF ({bench.device.type})",
        reading=(
            "Milliseconds per problem (ours in one batch, SciPy one by one on the CPU with the papers' maxpts=10000, abseps=releps=1e-4);"
            " `error`: our own bound (3 standard errors); `difference`: the largest difference from SciPy."
        ),
        tables=[Table(headers, rows)],
        targets=targets,
        notes=["`shared`: weight of the class that all margins have in common; 3 makes them strongly correlated."],
        raw=raw,
    )
