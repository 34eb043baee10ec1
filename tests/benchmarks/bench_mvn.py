"""`mvn_cdf` against SciPy: speed and error side by side in one run.

Run by hand: `python tests/benchmarks/bench_mvn.py [threads]`. Times are medians of alternating runs, in milliseconds a
problem; on a busy machine trust the ratio, not the times.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from robaudit.numerics.mvn import mvn_cdf

REPEATS = 5


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


def milliseconds(work: Callable[[], object], problems: int) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start) / problems


def compare(rows: int, k: int, dimension: int, shared: float, scipy_rows: int, mean_limit: float = 2.0) -> None:
    upper, correlation = margin_problems(rows, k, dimension, 1, shared, mean_limit)
    mean = [0.0] * k

    def ours() -> tuple[Tensor, Tensor]:
        return mvn_cdf(upper, correlation)

    def scipy() -> list[float]:
        limits = {"maxpts": 10_000, "abseps": 1e-4, "releps": 1e-4, "allow_singular": True}
        return [multivariate_normal.cdf(upper[i].numpy(), mean, correlation[i].numpy(), **limits) for i in range(scipy_rows)]

    value, error = ours()
    difference = (value[:scipy_rows] - torch.tensor(scipy())).abs().max()
    times = [(milliseconds(ours, rows), milliseconds(scipy, scipy_rows)) for _ in range(REPEATS if k < 500 else 3)]
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{k:4d} {rows:6d} {shared:6.1f} {mean_limit:5.1f} {mine:10.3f} {theirs:10.2f} {theirs / mine:8.0f}"
        f" {error.median():9.1e} {error.max():9.1e} {difference:9.1e}",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 1:
        torch.set_num_threads(int(sys.argv[1]))
    print(f"threads {torch.get_num_threads()}, torch {torch.__version__}; times in ms a problem")
    print("   k   rows shared limit       ours      scipy    ratio  med.err   max.err max.diff")
    for shared in (1.0, 3.0):
        compare(1000, 9, 784, shared, 20)
        compare(100, 99, 784, shared, 5)
        compare(8, 999, 3072, shared, 1, mean_limit=7.0)


if __name__ == "__main__":
    main()
