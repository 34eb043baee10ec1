"""An audit from Python: of a network and samples in memory, or of a spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robaudit.api.arguments import naming_arguments, plain
from robaudit.api.listening import PythonListener
from robaudit.api.run import Run, TemporaryFolder, of_stored
from robaudit.errors import ModelError, NothingLeftError, SpecError
from robaudit.progress import Listener, parse_duration
from robaudit.spec.model import IN_MEMORY, AuditSpec, Precision
from robaudit.spec.origin import Location, Origin
from robaudit.spec.read import load_spec, validated

if TYPE_CHECKING:
    import torch
    from torch import nn

    from robaudit.auditing.audit import SharedSetup
    from robaudit.datasets.dataset import Dataset
    from robaudit.datasets.in_memory import Layout
    from robaudit.runs import run as stored
    from robaudit.runs.info import UntilDecided

Spec = AuditSpec | str | Path | Mapping[str, Any]
Level = float | str
Levels = Level | Sequence[Level]
Entry = str | Mapping[str, Any]
OnError = Literal["stop", "skip"]


@naming_arguments()
def audit(
    what: Any,
    /,
    dataset: object = None,
    *,
    sigma: Levels | None = None,
    noise: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    estimators: Entry | Sequence[Entry] | None = None,
    gates: str | Sequence[str] | None = None,
    mean: object = None,
    std: object = None,
    output: str | int | None = None,
    class_names: Sequence[str] | Mapping[int, str] | Mapping[str, int] | None = None,
    ids: Sequence[object] | None = None,
    layout: Layout | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
    limit: int | None = None,
    seed: int | None = None,
    device: object = None,
    precision: Precision | None = None,
    batch_size: int | Literal["auto"] | None = None,
    memory: str | int | None = None,
    deterministic: bool | None = None,
    as_given: bool | None = None,
    engine: Literal["local", "ray"] | None = None,
    ray_address: str | None = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    name: str | None = None,
    out: str | Path | None = None,
    extend: bool = False,
    fresh: bool = False,
    until_decided: bool = False,
    confidence: float | None = None,
    on_error: OnError = "stop",
    trust: bool = False,
    progress: bool | None = None,
    listener: Listener | None = None,
    model: nn.Module | Callable[[torch.Tensor], Any] | None = None,
    budget: str | float | None = None,
) -> Run:
    """Audit how robust a classifier is to noise: of a network and samples in memory, or of a spec.

    ``robaudit.audit(net, dataset, sigma=[0.02, 0.05], mean=..., std=...)`` audits objects;
    ``robaudit.audit("spec.yaml")``, or a dict with the same keys, does what ``robaudit estimate``
    does, and the other arguments replace what the spec says. The network is left as it is.

    Args:
        what: a torch.nn.Module, a function from pixels (n, channels, height, width) to logits, or a
            spec.
        dataset: a torch data set of (image, label) or of mappings, (x, y) as arrays or tensors, a
            list of images, a Hugging Face data set. Pixels are uint8, or floats in [0, 1] that are
            *not normalised*: noise is added to them.
        model: with a spec, the network to audit instead of the one that it names.
        sigma: standard deviations of Gaussian noise, in pixel units ([0, 1]); ``"8/255"`` is
            understood.
        noise: other noises, as in a spec: ``{"kind": "uniform", "eps": [8/255]}``.
        estimators: names, or names with options: ``{"mc": {"draws": 2000}}``. Default: mc.
        gates: thresholds such as ``"mean >= 0.9"``; :meth:`Run.gate` decides them.
        mean, std: of the network's normalisation, applied after the noise; none where the network
            does that itself.
        output: key or index of the logits where the network returns several things.
        class_names: by class index, or as ``{index: name}`` or ``{name: index}``; default: those
            that the data set knows.
        ids: of the samples; default: their indices.
        layout: of arrays and tensors, "nchw" or "nhwc"; default: by which axis has 1 or 3 entries.
        image_key, label_key: of samples that are mappings; default: the usual names.
        limit: only the first samples.
        seed: of the noise; default 0.
        device: "cpu", "cuda", "cuda:1", several as "cuda:0,cuda:1" or "cuda:all", or "auto".
            Default: where the network is.
        precision: "fp32", "tf32", "bf16" or "fp64".
        batch_size, memory, deterministic: as under ``run`` in a spec.
        as_given: audit input that cannot be meant (pixels of 0 to 255 or normalised, mean above 1,
            sigma 8, a probability instead of a logit) as it is given.
        engine: "ray" computes with the workers of a Ray cluster, to which objects in memory are
            sent.
        ray_address: as ``--ray-address``.
        workers, gpus_per_worker: as under ``run`` in a spec.
        name: of the run in reports; default: the name of the network's class.
        out: the run folder. The same call finds it again: a finished run is returned, an
            interrupted one continued. Default: of objects a temporary folder, which is removed with
            the returned run; of a spec runs/<spec name>-<hash8>.
        extend: add noise levels or estimators to the run in ``out``.
        fresh: refuse a run folder that is there already.
        until_decided: draw until the gates are decided: few copies of each image first, then more,
            ``samples`` of mc at most.
        confidence: with that, of all analyses together (default 0.95).
        budget: lower draws, then images, of a new run so that it takes about this long at most:
            "10m", or seconds.
        on_error: at an unusable sample: "stop", or "skip" it; skipped samples are listed and
            counted.
        trust: allow Python code that a spec names.
        progress: show a bar; default: in notebooks and on terminals.
        listener: receives notes, warnings and progress instead.

    Returns:
        The finished run.

    Raises:
        RobauditError: something does not fit; the message begins with the argument or the place in
            the spec.
        NothingLeftError: there are no samples, or every one was skipped.

    Warns:
        RobauditWarning: the input check finds something suspicious: a clean accuracy no better than
            chance, vanishing gradients, ...
    """
    arguments = locals()
    net: Any
    settings = {key: arguments[key] for key in _SETTINGS if arguments[key] is not None}
    if isinstance(what, AuditSpec | str | Path | Mapping):
        net = model
        spec = _changed(
            _as_spec(what),
            settings,
            name,
            net_given=model is not None,
            data_given=dataset is not None,
        )
    elif model is not None:
        raise SpecError(
            "model", "is given twice", "audit(net, dataset, ...), or audit(spec, model=net)"
        )
    else:
        net = what
        spec = _of_objects(what, settings, name)
        if dataset is None:
            raise SpecError("dataset", "is missing", "audit(net, dataset, sigma=0.05)")
    samples = _opened(dataset, spec, ids, layout, image_key, label_key, skip_bad=on_error == "skip")
    receiver = listener if listener is not None else PythonListener(progress)
    if until_decided and (extend or budget is not None):
        raise SpecError(
            "extend" if extend else "budget",
            "cannot be combined with until_decided",
            "leave one of them out",
        )
    if confidence is not None and not until_decided:
        raise SpecError(
            "confidence", "is about sampling until gates are decided", "add until_decided=True"
        )
    import torch

    from robaudit.auditing.audit import audit as run_audit
    from robaudit.auditing.until import sample_until_decided
    from robaudit.gates.sources import parsed, refuse_beyond

    seconds = parse_duration(budget, "budget") if isinstance(budget, str) else budget

    def audited(
        wanted: AuditSpec,
        folder: Path | None,
        until: UntilDecided | None = None,
        setup: SharedSetup | None = None,
    ) -> stored.Run:
        return run_audit(
            wanted,
            out=folder,
            dataset=samples,
            model=net,
            extend=extend,
            fresh=fresh and not until_decided,
            listener=receiver,
            budget=seconds,
            on_error=on_error,
            trust=trust,
            ray_address=ray_address,
            until=until,
            setup=setup,
        )

    asked = parsed(spec.gates, "gates")
    if not until_decided and not extend:  # a run to extend may have further results
        refuse_beyond(spec, asked)
    home = TemporaryFolder() if out is None and net is what else None
    folder = home.path if home is not None else None if out is None else Path(out)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
        ):  # the caller may have switched gradients off
            if until_decided:
                done = sample_until_decided(
                    spec, asked, folder, audited, fresh=fresh, confidence=confidence
                ).run
            else:
                done = audited(spec, folder)
    except BaseException:
        if home is not None:
            home.remove()
        raise
    return of_stored(done, home=home, data=samples)


_SETTINGS: Mapping[str, Location] = {
    "sigma": ("noise", 0, "sigma"),
    "noise": ("noise",),
    "estimators": ("estimators",),
    "gates": ("gates",),
    **{key: ("model", key) for key in ("mean", "std", "output")},
    **{key: ("dataset", key) for key in ("class_names", "limit")},
    **{
        key: ("run", key)
        for key in (
            "seed",
            "device",
            "precision",
            "batch_size",
            "memory",
            "deterministic",
            "as_given",
        )
    },
    **{key: ("run", key) for key in ("engine", "workers", "gpus_per_worker")},
}
"""The part of a spec that each argument sets."""


def _as_spec(what: AuditSpec | str | Path | Mapping[str, Any]) -> AuditSpec:
    if isinstance(what, AuditSpec):
        return what
    return (
        load_spec(Path(what))
        if isinstance(what, str | Path)
        else validated(dict(what), Origin("spec"))
    )


def _of_objects(net: Any, settings: Mapping[str, Any], name: str | None) -> AuditSpec:
    """The spec of an audit of a network and samples in memory."""
    if isinstance(net, type) or not callable(net):
        what = (
            f"is the class {net.__name__}" if isinstance(net, type) else f"is {type(net).__name__}"
        )
        raise ModelError(
            "net",
            what,
            "give a torch.nn.Module or a function from pixels to logits, or a spec (a dict or "
            "the path of one)",
        )
    if "sigma" not in settings and "noise" not in settings and not settings.get("estimators"):
        raise SpecError(
            "sigma",
            "is missing",
            "how much noise? For example sigma=[0.02, 0.05], or noise={'kind': 'uniform', 'eps': "
            "'8/255'}",
        )
    document = {"model": {"format": IN_MEMORY}, "dataset": {"kind": IN_MEMORY}}
    usual = {"device": "auto" if settings.get("engine") == "ray" else _device_of(net), **settings}
    name = name or str(getattr(net, "__name__", type(net).__name__))
    return validated(_with(document, usual), replace(_origin(settings), name=name))


def _changed(
    spec: AuditSpec,
    settings: Mapping[str, Any],
    name: str | None,
    *,
    net_given: bool,
    data_given: bool,
) -> AuditSpec:
    """The spec with the arguments applied, and with objects in memory in place of those it
    names."""
    if not (settings or name or net_given or data_given):
        return spec
    from robaudit.models.pretrained import filled

    document = filled(spec).document()
    if "engine" not in spec.run.model_fields_set:
        # only the default: arguments for another engine are then refused
        del document["run"]["engine"]
    if net_given:
        document["model"] = {
            "format": IN_MEMORY,
            **{key: document["model"][key] for key in ("mean", "std", "output")},
        }
    if data_given:
        document["dataset"] = {
            "kind": IN_MEMORY,
            **{key: document["dataset"][key] for key in ("limit", "sample", "ids", "class_names")},
        }
    if "limit" in settings and document["dataset"].get("sample"):
        raise SpecError(
            "limit", "the spec audits a random subset", "change its dataset.sample.size"
        )
    document["name"] = name or spec.name
    return validated(
        _with(document, settings),
        replace(_origin(settings), folder=spec.base_dir, name=name or spec.stem),
    )


def _with(document: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a spec with the arguments applied."""
    for key in settings:
        value = plain(settings[key])
        location = _SETTINGS[key]
        if key not in ("sigma", "noise"):
            section = document if len(location) == 1 else document.setdefault(str(location[0]), {})
            section[str(location[-1])] = str(value) if key == "device" else value
    if "sigma" in settings or "noise" in settings:
        others = plain(settings.get("noise", []))
        gaussian = [{"sigma": plain(settings["sigma"])}] if "sigma" in settings else []
        document["noise"] = [*gaussian, *(others if isinstance(others, list) else [others])]
    return document


def _origin(settings: Mapping[str, Any]) -> Origin:
    """Which argument each part of the spec comes from."""
    moved: dict[Location, Location] = {
        _SETTINGS[key]: (key,) for key in settings if key not in ("sigma", "noise")
    }
    first = 1 if "sigma" in settings else 0
    if first:
        moved[("noise", 0)] = ("sigma",)
        moved[("noise", 0, "sigma")] = ("sigma",)
    noise = settings.get("noise", ())
    if isinstance(noise, Mapping):
        moved[("noise", first)] = ("noise",)
    else:
        moved |= {
            ("noise", first + i): ("noise", i)
            for i in range(len(noise) if isinstance(noise, Sequence) else 0)
        }
    return Origin("audit", moved=moved, arguments=True)


def _device_of(net: Any) -> str:
    """Where a network's weights are, if an audit can run there; else the CPU."""
    from torch import nn

    first = next(net.parameters(), None) if isinstance(net, nn.Module) else None
    return str(first.device) if first is not None and first.device.type == "cuda" else "cpu"


def _opened(
    data: object,
    spec: AuditSpec,
    ids: Sequence[object] | None,
    layout: Layout | None,
    image_key: str | None,
    label_key: str | None,
    *,
    skip_bad: bool,
) -> Dataset | None:
    """The samples in memory as a data set, checked; None without any.

    Raises:
        SpecError: arguments describe samples, and there are none.
        NothingLeftError: the data set is empty.
    """
    if data is None:
        if any(argument is not None for argument in (ids, layout, image_key, label_key)):
            raise SpecError(
                "ids, layout, image_key, label_key",
                "describe samples in memory, and there are none",
                "give dataset=",
            )
        return None
    from robaudit.datasets.in_memory import open_in_memory, refuse_random
    from robaudit.datasets.select import Selected, choose

    about = spec.dataset
    opened = open_in_memory(
        data,
        class_names=about.class_names,
        ids=ids,
        layout=layout,
        image_key=image_key,
        label_key=label_key,
    )
    if not len(opened):
        raise NothingLeftError("dataset", "the data set is empty", "give it samples")
    opened = Selected(opened, choose(opened, about), about.class_names)
    refuse_random(opened, skip_bad=skip_bad)
    return opened
