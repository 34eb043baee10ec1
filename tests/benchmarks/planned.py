"""Plans for real models, the runs they propose, and the errors of those: `python -m tests.benchmarks.planned`.

Everything happens in one process, one thing right after the other, so that a machine that is busy is equally busy for the plan and its run.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.advice.comparison import Error
from robaudit.advice.plan import Plan, Question, propose
from robaudit.advice.validate import validate
from robaudit.auditing.run import audit
from robaudit.spec.model import AuditSpec
from tests.shared import document

CASES: tuple[tuple[str, float, int, int, int, int], ...] = (
    # model, sigma, budget in seconds, images of the data set, images and draws of the reference
    ("fashion_logistic", 0.2, 20, 1000, 200, 5000),
    ("mnist_cnn_a_adv", 0.3, 30, 500, 200, 1500),
    ("cifar10_resnet20", 0.05, 60, 100, 100, 2000),
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a plan.

    Attributes:
        plan: the plan.
        seconds: what its run took.
        error: of the run's values.
    """

    plan: Plan
    seconds: float
    error: Error


def keep(model: str, sigma: float, budget: float, images: int, judged: int, draws: int, question: Question = "images") -> Kept:
    """Plan, run and judge."""
    values: dict[str, Any] = document(model, limit=images, noise={"sigma": [sigma]}, estimators=["logit_gaussian"])
    spec = AuditSpec.model_validate(values)
    with tempfile.TemporaryDirectory() as folder:
        few = AuditSpec.model_validate({**values, "dataset": {**values["dataset"], "limit": 8}})
        audit(few, out=Path(folder) / "warm")  # what a process does once is nobody's
        plan = propose(spec, budget, question=question).chosen
        values["estimators"] = [{plan.estimator: dict(plan.options)}]
        values["dataset"]["limit"] = min(images, plan.images)
        proposed = AuditSpec.model_validate(values)
        started = time.perf_counter()
        audit(proposed, out=Path(folder) / "run")
        seconds = time.perf_counter() - started
    error = validate(proposed, samples=judged, draws=draws).comparisons[0].error
    if error is None:
        raise AssertionError("a plan is for p_robust")
    return Kept(plan, seconds, error)


def main() -> None:
    """Print a line for each model and question."""
    for case in CASES:
        for question in ("images", "mean"):
            kept = keep(*case, question=question)
            plan, error = kept.plan, kept.error
            print(
                f"{case[0]} sigma {case[1]}, {case[2]} s, {question}: {plan.kind} {dict(plan.options)}, {plan.images} images; "
                f"time {plan.seconds:.1f} -> {kept.seconds:.1f} (x {kept.seconds / plan.seconds:.2f}); "
                f"RMSE {plan.error:.4f} -> {error.rmse:.4f} +- {error.rmse_error or 0:.4f} "
                f"(x {error.rmse / plan.error:.2f}); "
                f"error of the mean {plan.error_of_mean:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
