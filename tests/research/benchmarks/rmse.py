"""Part `rmse`: seconds of an image to an RMSE of .01, against the published 10,000 copies."""

from __future__ import annotations

from functools import partial

import torch

from robaudit.auditing.fastest_form import in_fastest_form
from robaudit.engine.batch import ImageBatch
from robaudit.progress import Listener
from tests import levels
from tests.research.benchmarks import published
from tests.research.benchmarks.engine import IMAGENET, prepared_audit
from tests.research.benchmarks.networks import Bench, estimator
from tests.research.benchmarks.report import Section, Table, number, target
from tests.research.benchmarks.timing import alternating

PUBLISHED = 10_000
"""Copies of each image."""
_SLICE = 1024  # of them that are timed
RMSE = 0.01
AIM = 10.0
_CASES = {"cifar10_resnet20": (0.05, 48, 256), IMAGENET: (0.1, 24, 64)}
"""Sigma, images, and copies of each for the estimate of p (1 - p)."""
_LONG = 1e9  # seconds: an audit that looks for the fastest form


def measure(bench: Bench) -> Section:
    """Both in turn, on a slice of the copies."""
    rows = []
    targets = []
    raw = {}
    for name, (sigma, *sizes) in _CASES.items():
        images, draws = (8, 16) if bench.quick else sizes
        loaded = prepared_audit(bench, name, images)
        audit = in_fastest_form(loaded, _LONG, 1.0, None, Listener())
        model = loaded.engine.model
        pixels = torch.stack([loaded.data[i].pixels for i in range(images)])
        x = pixels.to(bench.device, model.dtype)
        chunk = ImageBatch.from_images(audit.engine, x, levels.sigma(sigma))
        mc = estimator("mc", draws=draws)
        values = torch.tensor([result.value for result in mc.estimate(chunk)])
        # p (1 - p) n / (n - 1) is without bias; its mean over n is the mean squared error.
        variance = float((values * (1 - values)).mean()) * draws / (draws - 1)
        needed = variance / RMSE**2
        passes = images * draws
        times = alternating(
            {
                "published": partial(published.monte_carlo, model, x[:1], sigma, _SLICE),
                "ours": partial(mc.estimate, chunk),
            },
            bench.device,
            1 if bench.quick else 3,
        )
        rates = {"published": _SLICE / times["published"], "ours": passes / times["ours"]}
        theirs = PUBLISHED / rates["published"]
        ours = needed / rates["ours"]
        cells = [number(rates["published"]), number(rates["ours"]), number(needed)]
        seconds = [number(theirs), number(ours), f"{theirs / ours:.0f}"]
        rows.append([f"{name}, sigma {sigma:g}", *cells, *seconds])
        raw[name] = {**rates, "needed": needed, "published_seconds": theirs, "seconds": ours}
        targets.append(target(f"times faster, {name}", AIM, theirs / ours, at_least=True))
        bench.say("  " + ", ".join(rows[-1]))
    head = ["network", "published: passes/s", "ours: passes/s", "copies for .01"]
    return Section(
        title=f"Seconds to an RMSE of .01 ({bench.device.type})",
        reading="Seconds for an image: the published 10,000 copies, and the copies with which the "
        "RMSE over the images is .01.",
        tables=[Table([*head, "published: s", "ours: s", "ratio"], rows)],
        targets=targets,
        notes=[
            f"Published way: batches of {published.BATCH}, the network as loaded, noise by "
            f"torch.randn_like, no intervals, timed on {_SLICE:,} copies. Ours: `mc` in the form "
            "that an audit of some minutes chooses, with votes and intervals.",
            "Copies for .01: mean p (1 - p) / .01^2 over the images.",
            "Both keep freed memory; without, the published way is slower.",
        ],
        raw=raw,
    )
