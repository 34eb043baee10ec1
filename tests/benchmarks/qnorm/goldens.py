"""Errors and coverage of `qnorm_path` where the answer is known.

`python -m tests.benchmarks.qnorm.goldens` prints what the tables of docs/intermediate_q.md are made of, in a few minutes.
"""

from __future__ import annotations

from robaudit.estimators.qnorm_path import QNormPath
from tests.estimators.goldens import work_of
from tests.estimators.test_qnorm import GOLDENS, ORDERS, column, covered, errors
from tests.estimators.tools import values

REPETITIONS = 200


def main() -> None:
    """Print the root mean square error of log Z, and how many intervals cover."""
    for name, golden in GOLDENS.items():
        work = work_of(golden, REPETITIONS)
        found = values(QNormPath(), work)
        for part, q in enumerate(ORDERS):
            some = column(found, part)
            _say(name, f"default, q = {q:g}", errors(golden, some, q).square().mean().sqrt().item(), covered(golden, some, q))
        for q in (100.0, 1000.0) if name != "flip" else ():
            some = column(values(QNormPath(q=(q,), temperatures=30, steps=2), work), 0)
            _say(name, f"496 gradients, q = {q:g} alone", errors(golden, some, q).square().mean().sqrt().item(), covered(golden, some, q))


def _say(name: str, what: str, rmse: float, count: int) -> None:
    print(f"{name:5}  {what:28}  RMSE {rmse:.4f}  {count} of {REPETITIONS} covered", flush=True)


if __name__ == "__main__":
    main()
