"""An estimator with a bug: its certificate is half as large again as the nearest flip that an attack finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from robaudit import Estimator, ImageBatch, Interval, Part, Result
from robaudit.estimators import registry
from robaudit.estimators.base import Need
from robaudit.estimators.certificate import CERTIFICATE, certificate
from robaudit.estimators.radius_attack import RadiusAttack
from robaudit.quantities import CERTIFIED
from tests.unit.plugin import entries


class Planted(Estimator):
    """1.5 times the attacked radius, which nothing can certify.

    Source: a test.
    """

    quantity, needs = CERTIFIED, Need.GRADIENTS
    summary, prefer, source = "a wrong certificate", "a test", "a test"
    interval: ClassVar[Interval] = CERTIFICATE

    factor: float = 1.5

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part.norm("l2"),)

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 1

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        attacked = RadiusAttack(norm=("l2",), steps=5, restarts=0, polish=5).estimate(batch)
        predicted = batch.predicted.tolist()
        return [(certificate(self.factor * one[0].value, c, c, (1, 1)),) for one, c in zip(attacked, predicted, strict=True)]


@contextmanager
def installed() -> Iterator[None]:
    """As if it were installed, beside ours."""
    with entries.beside_ours(registry.GROUP, {"planted": "tests.unit.plugin.planted:Planted"}):
        yield
