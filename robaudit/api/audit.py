"""An audit from Python: of a network and samples in memory, or of a spec."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robaudit.api.arguments import naming_arguments, plain
from robaudit.api.listening import PythonListener
from robaudit.api.run import Run, TemporaryFolder, from_stored
from robaudit.errors import ModelError, NothingLeftError, SpecError
from robaudit.progress import Listener, parse_duration
from robaudit.settings import AUDIT, CONFIDENCE, EXTEND, LIMIT, NAME, Setting
from robaudit.spec.model import IN_MEMORY, AuditSpec, Precision
from robaudit.spec.origin import Location, Origin
from robaudit.spec.read import load_spec, validated, with_noises_of_file
from robaudit.spec.skipping import OnError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from robaudit.datasets.dataset import Dataset
    from robaudit.datasets.in_memory import Layout
    from robaudit.runs import run as stored

Spec = AuditSpec | str | Path | Mapping[str, Any]
Level = float | str
Levels = Level | Sequence[Level]
Entry = str | Mapping[str, Any]

_KEYS = tuple(setting for setting in AUDIT if setting.place and setting is not NAME)
"""The settings that replace a key of the spec; the name has a default of its own."""


@naming_arguments()
def audit(
    what: Any,
    /,
    dataset: object = None,
    *,
    sigma: Levels | None = None,
    noise: Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path | None = None,
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
    flag: float | None = None,
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

    ``robaudit.audit(net, dataset, sigma=[0.02, 0.05], mean=..., std=...)`` audits objects.
    ``robaudit.audit("spec.yaml")``, or a dict with the same keys, does what ``robaudit estimate``
    does, and the other arguments replace what the spec says. The network is left as it is.

    Args:
        what: a torch.nn.Module, a function from pixels (n, channels, height, width) to logits, or a
            spec.
        dataset: a torch data set of (image, label) or of mappings, (x, y) as arrays or tensors, a
            list of images, a Hugging Face data set. Pixels are uint8, or floats in [0, 1] that are
            *not normalised*: noise is added to them.
        sigma: standard deviations of Gaussian noise, in pixel units ([0, 1]); ``"8/255"`` is
            understood.
        noise: other noises, as in a spec: ``{"kind": "uniform", "eps": [8/255]}``, or the path of a
            YAML file of noises, relative to the spec (without one: to the working folder).
        estimators: names, or names with options: ``{"mc": {"draws": 2000}}``. Default: mc.
        gates: thresholds such as ``"mean >= 0.9"``; :meth:`Run.gate` decides them.
        mean, std: the network's normalisation, applied after the noise. Default: none, for networks
            that normalise themselves.
        output: key or index of the logits where the network returns several things.
        class_names: the names by class index, or as ``{index: name}`` or ``{name: index}``.
            Default: those that the data set knows.
        ids: names of the samples. Default: their indices.
        layout: "nchw" or "nhwc", the axes of arrays and tensors. Default: by which axis has 1 or 3
            entries.
        image_key, label_key: keys of samples that are mappings. Default: the usual names.
        limit: audit only the first samples.
        flag: a probability: an image that is certain to lie on one side of it takes no more noisy
            copies. For lists of images; means need all copies.
        seed: seed of the noise. Default: 0.
        device: "cpu", "cuda", "cuda:1", several as "cuda:0,cuda:1" or "cuda:all", or "auto".
            Default: where the network is.
        precision: "fp32", "tf32", "bf16" or "fp64".
        batch_size, memory, deterministic: as under ``run`` in a spec.
        as_given: audit input that cannot be meant (pixels of 0 to 255 or normalised, mean above 1,
            sigma 8, a probability instead of a logit) as it is given.
        engine: "ray" computes with the workers of a Ray cluster, to which objects in memory are
            sent.
        ray_address: the head node of the cluster, as ``--ray-address``.
        workers, gpus_per_worker: as under ``run`` in a spec.
        name: the run's name in reports. Default: the name of the network's class.
        out: the run folder. The same call finds it again: a finished run is returned, an
            interrupted one continued. Default: of objects a temporary folder, which is removed with
            the returned run; of a spec runs/<spec name>-<hash8>.
        extend: add noise levels or estimators to the run in ``out``.
        fresh: refuse a run folder that exists already.
        until_decided: draw until the gates are decided: few copies of each image first, then more,
            at most the ``draws`` of mc.
        confidence: with ``until_decided``, the confidence of all analyses together. Default: 0.95.
        on_error: at an unusable sample: "stop", or "skip" it, and fail if more than a tenth of all
            samples are skipped; a number allows that share. Skipped samples are listed and counted.
        trust: allow Python code that a spec names.
        progress: show a bar. Default: in notebooks and on terminals.
        listener: receives notes, warnings and progress instead.
        model: with a spec, the network to audit instead of the one that the spec names.
        budget: end after this time, with the results there are by then: "10m", or seconds.

    Returns:
        The run: complete, or stopped by ``budget`` or by ``until_decided``.

    Raises:
        RobauditError: something does not fit; the message begins with the argument or the place in
            the spec.
        NothingLeftError: there are no samples, or every one was skipped.
        KeyboardInterrupt: Ctrl-C stopped it; its attribute ``run`` has the results so far, if there
            are any.

    Warns:
        RobauditWarning: the input check finds something suspicious: a clean accuracy no better than
            chance, vanishing gradients, ...
    """
    # The first statement, so that the local variables are the arguments: a setting is found by its
    # name. None stands for an argument that is not given.
    arguments = locals()
    given = {
        setting.argument: arguments[setting.argument]
        for setting in _KEYS
        if arguments[setting.argument] is not None
    }
    spec, net = _spec_and_net(what, model, given, name, data_given=dataset is not None)
    if dataset is None and net is what:
        raise SpecError("dataset", "is missing", "audit(net, dataset, sigma=0.05)")
    samples = _opened(dataset, spec, ids, layout, image_key, label_key, skip_bad=on_error != "stop")
    _refuse_combinations(until_decided=until_decided, extend=extend, confidence=confidence)
    seconds = parse_duration(budget, "budget") if isinstance(budget, str) else budget
    # Here, because a spec may be refused before torch is needed.
    import torch

    from robaudit.auditing.audit import Interrupted
    from robaudit.auditing.audit import audit as audit_spec
    from robaudit.auditing.until import sample_until_decided
    from robaudit.gates.sources import parsed, refuse_beyond

    over_at = None if seconds is None else time.perf_counter() + seconds

    def run_audit(spec: AuditSpec, **more: Any) -> stored.Run:
        """The audit with what is the same for all of its calls."""
        options: dict[str, Any] = {
            "dataset": samples,
            "model": net,
            "extend": extend,
            # With gates it is checked once, before the first interim analysis.
            "fresh": fresh and not until_decided,
            "listener": listener if listener is not None else PythonListener(progress),
            "budget": None if over_at is None else max(0.0, over_at - time.perf_counter()),
            "on_error": on_error,
            "trust": trust,
            "ray_address": ray_address,
        }
        return audit_spec(spec, **{**options, **more})

    gate_list = parsed(spec.gates, "gates")
    # A run to extend may have results that the spec no longer names.
    if not until_decided and not extend:
        refuse_beyond(spec, gate_list)
    # Only a network in memory: the run of a spec is meant to be found again.
    home = TemporaryFolder() if out is None and net is what else None
    folder = home.path if home is not None else _path(out)
    try:
        # The caller may have switched gradients off.
        with torch.inference_mode(False), torch.enable_grad():
            if until_decided:
                outcome = sample_until_decided(
                    spec, gate_list, folder, run_audit, fresh=fresh, confidence=confidence
                )
                run = outcome.run
            else:
                run = run_audit(spec, out=folder)
    except Interrupted as error:
        # As for a run that is returned: a temporary folder lasts as long as it.
        raise Interrupted(from_stored(error.run, home=home, data=samples)) from None
    except BaseException:
        # Nobody could find the folder again.
        if home is not None:
            home.remove()
        raise
    return from_stored(run, home=home, data=samples)


def _path(out: str | Path | None) -> Path | None:
    return None if out is None else Path(out)


def _spec_and_net(
    what: Any, model: Any, given: Mapping[str, Any], name: str | None, *, data_given: bool
) -> tuple[AuditSpec, Any]:
    """The spec with the arguments applied, and the network in memory (None: the spec's).

    Raises:
        RobauditError: there are two networks or none, or the spec is not valid.
    """
    if isinstance(what, AuditSpec | str | Path | Mapping):
        net_given = model is not None
        spec = _changed(_as_spec(what), given, name, net_given=net_given, data_given=data_given)
        return spec, model
    if model is not None:
        raise SpecError(
            "model", "is given twice", "audit(net, dataset, ...), or audit(spec, model=net)"
        )
    return _of_objects(what, given, name), what


def _refuse_combinations(*, until_decided: bool, extend: bool, confidence: object) -> None:
    """Refuse arguments that contradict each other.

    Raises:
        SpecError: two of them do not go together.
    """
    if until_decided and extend:
        raise SpecError(
            EXTEND.argument, "cannot be combined with until_decided", "leave one of them out"
        )
    if confidence is not None and not until_decided:
        raise SpecError(
            CONFIDENCE, "is about sampling until gates are decided", "add until_decided=True"
        )


def _as_spec(what: AuditSpec | str | Path | Mapping[str, Any]) -> AuditSpec:
    if isinstance(what, AuditSpec):
        return what
    if isinstance(what, str | Path):
        return load_spec(Path(what))
    document = dict(what)
    return validated(document, with_noises_of_file(document, Origin("spec"), Path()))


def _of_objects(net: Any, given: Mapping[str, Any], name: str | None) -> AuditSpec:
    """The spec of an audit of a network and samples in memory.

    Raises:
        ModelError: the network is none.
        SpecError: no noise is given, or an argument is not valid.
    """
    if isinstance(net, type) or not callable(net):
        is_class = isinstance(net, type)
        what = f"is the class {net.__name__}" if is_class else f"is {type(net).__name__}"
        raise ModelError(
            "net",
            what,
            "give a torch.nn.Module or a function from pixels to logits, or a spec (a dict or "
            "the path of one)",
        )
    has_noise = "sigma" in given or "noise" in given
    # Radii of the network itself need no noise.
    if not has_noise and not given.get("estimators"):
        raise SpecError(
            "sigma",
            "is missing",
            "how much noise? For example sigma=[0.02, 0.05], or noise={'kind': 'uniform', 'eps': "
            "'8/255'}",
        )
    document = {"model": {"format": IN_MEMORY}, "dataset": {"kind": IN_MEMORY}}
    # Workers of Ray choose their device themselves.
    device = "auto" if given.get("engine") == "ray" else _device_of(net)
    # A function has a name of its own, a module the name of its class.
    name = name or str(getattr(net, "__name__", type(net).__name__))
    given = _with_noises_written_out(given, Path())
    origin = replace(_origin(given), name=name)
    return validated(_with(document, {"device": device, **given}), origin)


def _changed(
    spec: AuditSpec,
    given: Mapping[str, Any],
    name: str | None,
    *,
    net_given: bool,
    data_given: bool,
) -> AuditSpec:
    """The spec with the arguments applied, and with objects in memory in place of those it names.

    Raises:
        SpecError: an argument is not valid, or does not fit the spec.
    """
    objects_given = net_given or data_given
    if not (given or name or objects_given):
        return spec
    from robaudit.models.pretrained import filled

    # With what the model's own files say, as the network may be replaced.
    document = filled(spec).document()
    if "engine" not in spec.run.model_fields_set:
        # It is only the default. Left out, workers without engine="ray" are refused.
        del document["run"]["engine"]
    # How the network is fed stays; where it comes from goes.
    if net_given:
        document["model"] = {
            "format": IN_MEMORY,
            **{key: document["model"][key] for key in ("mean", "std", "output")},
        }
    # Likewise which samples are chosen, and what their classes are called.
    if data_given:
        document["dataset"] = {
            "kind": IN_MEMORY,
            **{key: document["dataset"][key] for key in ("limit", "sample", "ids", "class_names")},
        }
    if LIMIT.argument in given and document["dataset"].get("sample"):
        raise SpecError(LIMIT, "the spec audits a random subset", "change its dataset.sample.size")
    document["name"] = name or spec.name
    given = _with_noises_written_out(given, spec.base_dir)
    origin = replace(_origin(given), folder=spec.base_dir, name=name or spec.stem)
    return validated(_with(document, given), origin)


def _with_noises_written_out(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The arguments with the noises of a file in place of its path, which is relative to the
    folder.

    Raises:
        SpecError: the file is missing, or holds no noises.
    """
    written_out = dict(given)
    if isinstance(given.get("noise"), Path):
        written_out["noise"] = str(given["noise"])
    with_noises_of_file(written_out, Origin("audit", folder.absolute()), folder)
    return written_out


def _with(document: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a spec with the arguments applied."""
    for setting in _KEYS:
        if setting.argument in given and setting.argument not in _NOISE:
            _set(document, setting, plain(given[setting.argument]))
    gaussian = [{"sigma": plain(given["sigma"])}] if "sigma" in given else []
    others = plain(given.get("noise", []))
    if not isinstance(others, list):
        others = [others]
    if any(argument in given for argument in _NOISE):
        document["noise"] = [*gaussian, *others]
    return document


_NOISE = ("sigma", "noise")
"""The arguments that together replace the noises of a spec, those of sigma first."""


def _set(document: dict[str, Any], setting: Setting, value: Any) -> None:
    """Set a key of the document; its section is made where it is missing."""
    *sections, key = setting.place
    for section in sections:
        document = document.setdefault(str(section), {})
    # A device may be torch's.
    document[str(key)] = str(value) if setting.argument == "device" else value


def _origin(given: Mapping[str, Any]) -> Origin:
    """The argument behind each part of the spec, for messages."""
    moved: dict[Location, Location] = {}
    for setting in _KEYS:
        if setting.argument in given and setting.argument not in _NOISE:
            moved[setting.place] = (setting.argument,)
    # The noise of sigma is the first, and others follow.
    first = 0
    if "sigma" in given:
        first = 1
        moved["noise", 0] = ("sigma",)
        moved["noise", 0, "sigma"] = ("sigma",)
    noise = given.get("noise", ())
    if isinstance(noise, Mapping):
        moved["noise", first] = ("noise",)
    elif isinstance(noise, Sequence):
        for i in range(len(noise)):
            moved["noise", first + i] = ("noise", i)
    return Origin("audit", moved=moved, arguments=True)


def _device_of(net: Any) -> str:
    """Where a network's weights are, if an audit can run there; else the CPU."""
    from torch import nn

    if not isinstance(net, nn.Module):
        # A function has no device to ask for.
        return "cpu"
    first = next(net.parameters(), None)
    if first is None or first.device.type != "cuda":
        return "cpu"
    return str(first.device)


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
        described = (ids, layout, image_key, label_key)
        if any(argument is not None for argument in described):
            raise SpecError(
                "ids, layout, image_key, label_key",
                "describe samples in memory, and there are none",
                "give dataset=",
            )
        return None
    from robaudit.datasets.in_memory import open_in_memory, refuse_random
    from robaudit.datasets.select import Selected, choose

    opened = open_in_memory(
        data,
        class_names=spec.dataset.class_names,
        ids=ids,
        layout=layout,
        image_key=image_key,
        label_key=label_key,
    )
    if not len(opened):
        raise NothingLeftError("dataset", "the data set is empty", "give it samples")
    chosen = choose(opened, spec.dataset)
    selected = Selected(opened, chosen, spec.dataset.class_names)
    # A data set that augments gives other images each time, and rows would not be reproducible.
    refuse_random(selected, skip_bad=skip_bad)
    return selected
