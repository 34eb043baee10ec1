"""Part `engine`: noisy passes of the engine against the fastest form of the network and the noise
alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from robaudit.auditing.fastest_form import in_fastest_form
from robaudit.auditing.prepare import PreparedAudit, Request, prepare
from robaudit.engine.batch import ImageBatch
from robaudit.forms import Form, FormName
from robaudit.models.logits import LogitModel
from robaudit.models.network_forms import in_form, layouts_for, other_forms
from robaudit.models.pretrained import filled
from robaudit.noise.noise import shape_of
from robaudit.progress import Listener
from robaudit.spec.model import AuditSpec
from tests import levels
from tests.research.benchmarks.networks import Bench, estimator
from tests.research.benchmarks.report import Section, Table, number, target
from tests.research.benchmarks.timing import alternating, seconds
from tests.shared import MODELS, SHARED, document

SIGMA = 0.1
AIM = 0.9
IMAGENET = "imagenet_lite0_timm"
NETWORKS = (*MODELS, "cifar100_resnet14", IMAGENET)
_IMAGES = 8
_FINALISTS = 3
_ROWS = (8, 16, 32, 64, 128, 256, 512)
_MOST_VALUES = 2**21  # of a batch: 13 photos of 3 x 224 x 224
_SECONDS = 0.5  # of the passes that are timed
_FOREVER = 1e9  # seconds: any audit is long enough to look for the fastest form
Forward = Callable[[], object]


def measure(bench: Bench) -> Section:
    """Every shared model, with one thread and two: many forms of its forward pass, the noise alone
    and the engine, in turn."""
    names = MODELS[:2] if bench.quick else NETWORKS
    before = torch.get_num_threads()
    tables = []
    targets = []
    raw = {}
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            rows = []
            for name in names:
                rates, best, form = _rates(bench, name)
                fraction = rates["engine"] * (1 / rates["best"] + 1 / rates["noise"])
                cells = [number(rates[what]) for what in ("loaded", "best", "noise", "engine")]
                rows.append([name, cells[0], cells[1], best, *cells[2:], form, f"{fraction:.2f}"])
                raw[f"{name}, {threads}"] = {**rates, "form": best, "chosen": form}
                what = f"share of the possible, {name}, {threads} threads"
                targets.append(target(what, AIM, fraction, at_least=True))
                bench.say(f"  {threads} threads, " + ", ".join(rows[-1]))
            head = ["model", "as loaded", "fastest", "its form", "noise alone", "engine"]
            caption = f"{threads} thread{'s' * (threads > 1)}"
            tables.append(Table([*head, "the engine's form", "share"], rows, caption))
    finally:
        torch.set_num_threads(before)
    return Section(
        title=f"The engine's noisy passes ({bench.device.type})",
        reading=(
            "Images/s of the network as loaded and in its fastest form, both bare, on prepared "
            "inputs; of drawing the noise alone; and of `mc` (noise, sum, normalisation, forward "
            "pass, votes) in the form that an audit of some minutes chooses. `share`: engine / "
            "(1 / (1 / fastest + 1 / noise)), 1 if nothing else took time."
        ),
        tables=tables,
        targets=targets,
        notes=[
            "Fastest: of the network as loaded, optimised by torch.jit, and compiled where it is "
            "Python code; contiguous and channels last; 8 to 512 images a pass. All are tried "
            f"once, and the {_FINALISTS} fastest again in turn with the engine.",
            "The process keeps freed memory (`keep_freed_memory`), as the command line does.",
        ],
        raw=raw,
    )


def _rates(bench: Bench, name: str) -> tuple[dict[str, float], str, str]:
    """Images/s, the name of the fastest form, and that of the engine's."""
    loaded = prepared_audit(bench, name, _IMAGES)
    audit = in_fastest_form(loaded, _FOREVER, 1.0, None, Listener())
    model = loaded.engine.model
    images = torch.stack([loaded.data[i].pixels for i in range(_IMAGES)]).to(bench.device)
    x = images.to(model.dtype)
    forwards = dict(_forms(model, x))
    tried = {form: _screened(bench, forward) / form.rows for form, forward in forwards.items()}
    rows = loaded.engine.rows(x.shape[1:])
    as_loaded = Form(FormName.AS_LOADED, layouts_for(model)[0], rows)
    finalists = sorted(tried, key=lambda form: tried[form])[:_FINALISTS]
    finalists = list(dict.fromkeys([as_loaded, *finalists]))
    draws = max(32, round(_SECONDS / tried[finalists[-1]] / _IMAGES))
    passes = draws * _IMAGES
    chunk = ImageBatch.from_images(audit.engine, x, levels.sigma(SIGMA))
    counts = {form: max(1, passes // form.rows) for form in finalists}
    contenders: dict[str, Forward] = {
        form.text: partial(_repeat, forwards[form], counts[form]) for form in finalists
    }
    mc = estimator("mc", draws=draws)
    contenders["engine"] = partial(mc.estimate, chunk)
    contenders["noise"] = partial(_draw, chunk, draws)
    with torch.inference_mode():
        times = alternating(contenders, bench.device, 3 if bench.quick else 5)
    rates = {form.text: counts[form] * form.rows / times[form.text] for form in finalists}
    best = max(rates, key=lambda text: rates[text])
    chosen = audit.info.form
    found = {
        "loaded": rates[as_loaded.text],
        "best": rates[best],
        "engine": passes / times["engine"],
        "noise": passes / times["noise"],
    }
    return found, best, "" if chosen is None else chosen.form.text


def prepared_audit(bench: Bench, name: str, images: int) -> PreparedAudit:
    """The audit of a shared model on its first images."""
    given: dict[str, Any] = {}
    if name == IMAGENET:
        photos = str(SHARED / "data" / "imagenet_photos")
        given["model"] = {"path": str(SHARED / "models" / name)}
        given["dataset"] = {"kind": "images", "path": photos, "limit": images}
    else:
        given = document(name, limit=images)
    given["noise"] = {"sigma": [SIGMA]}
    given["estimators"] = [{"mc": {"draws": 1000}}]
    spec = filled(AuditSpec.model_validate(given))
    return prepare(Request(spec), bench.device, Listener())


def _forms(model: LogitModel, x: Tensor) -> Iterator[tuple[Form, Forward]]:
    """The forward pass in every form, as loaded first."""
    rows = [size for size in _ROWS if size * x[0].numel() <= _MOST_VALUES] or [_ROWS[0]]
    for name in (FormName.AS_LOADED, *other_forms(model)):
        for layout in layouts_for(model):
            made: LogitModel | None = None
            for size in rows:
                form = Form(name, layout, size)
                if made is None or name is FormName.COMPILED:
                    made = in_form(model, form, x[0])
                inputs = made.inputs(x[torch.arange(size, device=x.device) % len(x)])
                inputs = inputs.contiguous(memory_format=made.memory_format)
                yield form, partial(made.network, inputs)
                if name is FormName.COMPILED and size >= 2 * rows[0]:
                    break  # each size is compiled anew


def _screened(bench: Bench, forward: Forward) -> float:
    """Seconds of a pass after two of warming up."""
    with torch.inference_mode():
        _repeat(forward, 2)
        return min(seconds(forward, bench.device) for _ in range(3))


def _repeat(forward: Forward, times: int) -> None:
    for _ in range(times):
        forward()


def _draw(chunk: ImageBatch, draws: int) -> None:
    shape = shape_of(chunk.x)
    source = chunk.engine.noises[chunk.at.noise]
    for sample_id in chunk.ids:
        for _ in source.blocks(sample_id, draws, shape):
            pass
