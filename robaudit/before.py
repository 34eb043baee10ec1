"""Are samples and model still those that a run's rows were made with?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from robaudit.datasets.base import Sample
from robaudit.errors import RunError
from robaudit.ledger import Ledger
from robaudit.parts import HeldPart
from robaudit.provenance import image_digest


class KnownParts(Protocol):
    """Gives parts back."""

    def held(self, number: int) -> HeldPart:
        """A part with what it knows of each sample."""
        ...


class Before:
    """What the first part that knows a sample says of it.

    Args:
        ledger: which parts know which samples.
        parts: the parts.
        where: the data set, for messages.
    """

    def __init__(self, ledger: Ledger, parts: KnownParts, where: str) -> None:
        self._ledger, self._parts, self._where = ledger, parts, where

    def refuse_another_image(self, index: int, sample: Sample) -> None:
        """A sample that has rows already must have the pixels they were made with.

        Raises:
            RunError: it has not.
        """
        for number in self._ledger.parts_of(index)[:1]:
            digest = self._parts.held(number).record.images.get(sample.id)
            if digest is not None and digest != image_digest(sample):
                raise RunError(f"{self._where}: {sample.id}", "this image has changed since the run began", "choose another --out")

    def refuse_another_model(self, samples: Sequence[Sample], predicted: Sequence[int]) -> None:
        """A sample that has rows already must have the label and the prediction they were made with.

        Raises:
            RunError: it has not: the data, the model's code or what it runs on has changed.
        """
        for sample, now in zip(samples, predicted, strict=True):
            index = self._ledger.index(sample.id)
            for number in [] if index is None else self._ledger.parts_of(index)[:1]:
                rows = self._parts.held(number).rows.get(sample.id, ())
                for label, then in {(row.label, row.predicted) for row in rows} - {(sample.label, now)}:
                    what = f"the label was {label} and is {sample.label}" if label != sample.label else f"was predicted {then} and is {now}"
                    remedy = "data, the model's code or the machine has changed since: choose another --out"
                    raise RunError(f"{self._where}: {sample.id}", what, remedy)
