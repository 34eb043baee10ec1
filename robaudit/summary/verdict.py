"""What does the gap between classes mean, in a word and a sentence?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from robaudit.summary.bias_result import ClassStats, Gap


def verdict_on(classes: Sequence[ClassStats], gap: Gap | None, alpha: float) -> tuple[Literal["real", "noise", "untested"], str]:
    """The verdict on the gap, and a sentence that gives its reason."""
    alone = sum(one.p_value is None for one in classes)
    more = f" {alone} of the {len(classes)} classes had a single image: listed, not tested." if alone and gap is not None else ""
    if gap is None:
        return "untested", "Untested: at least two classes with two images each are needed to tell a difference from chance."
    differing = sum(one.differs in ("lower", "higher") for one in classes)
    chance = f"{gap.null_mean:.3g} on average and up to {gap.null_q95:.3g} in 95 % of {gap.permutations} shuffles; p = {gap.p_value:.2g}"
    counted = {0: "no class differs", 1: "1 class differs"}.get(differing, f"{differing} classes differ")
    holm_says = f" Taken one by one (Holm), {counted} from the rest."
    among = f"among {len(classes) - alone} classes of these sizes"
    if gap.p_value <= alpha:
        return "real", f"Real: the gap of {gap.value:.3g} is more than chance alone gives {among} ({chance}).{holm_says}{more}"
    like = f"chance alone gives a gap like this one of {gap.value:.3g} {among} ({chance})"
    return "noise", f"Noise, as far as these images tell: {like}.{holm_says}{more}"
