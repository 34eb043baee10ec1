"""Part `counts`: launches and waits of six estimators, beside those of the pretended card."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import torch

from robaudit.models.logits import rounded_products
from tests.research.gpu.part import Part, Row
from tests.research.gpu.trace import trace
from tests.system.device.count import chunk
from tests.system.device.count import measure as pretended
from tests.system.device.test_budgets import OPTIONS
from tests.unit.engine.tools import values

COUNTED = ("mc", "logit_gaussian", "mmse", "noise_tolerance", "radius_attack", "certified_radius")
_MORE = 1.1
_FREE = 2


def measure(part: Part) -> None:
    """Each estimator; on a machine without a card the pretended one alone.

    A wait is what torch's debug mode warns of, as the pretended card counts it. That it counts a
    tenth more, and two, is no disagreement: it does not know every library.
    """
    if not part.on_card:
        part.left_out.append("launches and waits of a card: only on a card")
    for name in COUNTED:
        promised = pretended(name, 4 if part.tiny else 16, **OPTIONS.get(name, {}))
        images = promised.images
        row: Row = {
            "estimator": name,
            "images": images,
            "passes": promised.passes,
            "promised_launches": promised.card.launches / images,
            "promised_waits": promised.card.syncs / images,
        }
        if part.on_card:
            waits = _on_the_card(row, name, images, part.device)
            if waits > _MORE * promised.card.syncs + _FREE:
                part.wrong.append(f"{name}: {waits} waits, {promised.card.syncs} promised")
        part.add(**row)


def _on_the_card(row: Row, name: str, images: int, device: torch.device) -> int:
    """Add launches and waits on the card to a row; how often the host waited in all."""
    options = OPTIONS.get(name, {})
    with rounded_products(False):
        estimator, work = chunk(name, images, device.type, **options)
        values(estimator, work)  # libraries start
        estimator, work = chunk(name, images, device.type, **options)
        waits = warned(partial(values, estimator, work), device)
        estimator, work = chunk(name, images, device.type, **options)
        found = trace(partial(values, estimator, work), device)
    row["launches"] = found.launches / images
    row["waits"] = waits / images
    row["driver_waits"] = found.waits / images
    row["busy"] = found.busy
    return waits


def warned(work: Callable[[], object], device: torch.device) -> int:
    """How often torch says that the host waits for the card."""
    torch.cuda.synchronize(device)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in seen)
