import math

from pydantic import Field

from robaudit import Estimator, ImageBatch, Need, Quantity, Result


class Margin(Estimator):
    quantity = Quantity("margin", "logits", 0.0, math.inf)
    needs = Need.LEVEL
    summary = "lead of the predicted class over the next one on the clean image"
    prefer = "a first look; says nothing about noise"
    source = "folklore"
    scale: float = Field(1.0, gt=0, description="margins are divided by it")

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[Result]:
        leads = batch.margins.min(dim=1).values / self.scale
        return [
            Result(value=g, flips_to=c, forwards=1, backwards=0) for g, c in zip(leads.tolist(), batch.nearest(batch.margins), strict=True)
        ]
