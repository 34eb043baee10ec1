"""Choose the fastest form of the network by measurement, before an audit that is long enough to
repay it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace

import torch
from torch import Tensor

from robaudit.auditing.batches import IMAGES, check_rows
from robaudit.auditing.prepare import PreparedAudit
from robaudit.datasets.dataset import first_samples
from robaudit.engine.estimator import Need
from robaudit.engine.passes import Engine
from robaudit.forms import Form, FormName
from robaudit.models.logits import LogitModel
from robaudit.models.network_forms import in_form, layouts_for, other_forms
from robaudit.noise.noise import shape_of
from robaudit.progress import Listener
from robaudit.runs.info import FormReason, Measured, NetworkForm, RowBits, RunInfo

# An audit of fewer seconds, or passes, runs the network as it was loaded: trying the quick forms
# takes one or two seconds, or some 500 passes of a slow network.
_WORTH_TRYING = 30.0
_WORTH_PASSES = 5000.0
_WORTH_COMPILING = 150.0  # seconds; compiling takes 5 to 30
_SHARE_OF_TRIAL = 0.2  # of the audit's seconds; after them, no further form is tried
_FASTER = 1.05  # a form must be this much faster than one that was tried before
_LARGER = 1.03  # the same for larger batches, which also save work that is not timed
_ROW_FACTORS = (2, 4)  # of the rule's rows, for larger batches
_FEWEST_ROWS = 8  # with fewer, networks on the CPU round a row differently
_TIMED_SECONDS = 0.1  # of each of the timings, whose fastest counts
_TIMINGS = 3
_COMPARED = 32  # rows, of images without noise and of noisy copies
# Largest difference of a logit from the network as it was loaded, relative to the distance of the
# largest logit of a row from the row's median: rounding explains it.
_ROUNDING = 1e-4
_OTHER_DIGITS = "{}: its rows may differ in the last digits from those computed now"

Clock = Callable[[], float]


def in_fastest_form(
    audit: PreparedAudit,
    seconds: float,
    rate: float,
    recorded: NetworkForm | None,
    listener: Listener,
    clock: Clock = time.perf_counter,
) -> PreparedAudit:
    """The audit with its noisy passes in the fastest form of the network.

    A form is taken only if its logits agree with those of the network as it was loaded up to
    rounding, and its predictions are the same, on images without noise and with that of the audit.
    Gradients and clean passes stay as they are.

    Args:
        audit: prepared.
        seconds: how long its passes will take as the network was loaded.
        rate: its passes per second.
        recorded: the form in the run.json of a run that is continued; None: the run is new.
        listener: receives a note about a form that is taken, or missed.
        clock: seconds.
    """
    loaded = _form_as_loaded(audit)
    is_short = seconds < max(_WORTH_TRYING, _WORTH_PASSES / rate)
    if recorded is not None and (is_short or recorded.reason is not FormReason.SHORT):
        return in_recorded_form(audit, recorded, listener)
    if audit.spec.run.deterministic or audit.info.rows.kind is RowBits.MIXED:
        return _with_info(audit, NetworkForm.of(loaded, FormReason.FIXED))
    if is_short:
        return audit
    listener.doing("trying faster forms of the network")
    trial = _Trial(audit, loaded, clock)
    latest = clock() + _SHARE_OF_TRIAL * seconds
    for form in trial.candidates(compiled=seconds >= _WORTH_COMPILING):
        if clock() < latest:
            trial.attempt(form)
    if audit.spec.run.batch_size == "auto" and audit.engine.model.device.type == "cpu":
        trial.attempt_other_batches()
    chosen = NetworkForm.of(
        trial.fastest,
        FormReason.FASTEST,
        as_loaded=trial.rate_as_loaded,
        rate=trial.rate,
        earlier=recorded is not None and recorded.form != trial.fastest,
    )
    if trial.fastest == loaded:
        return _with_info(audit, chosen)
    listener.note(f"the network runs {chosen.text}")
    if recorded is not None:
        listener.warn(_of_earlier_rows(recorded))
    return _with_form(audit, trial.model, chosen)


def of_workers(info: Measured, recorded: NetworkForm | None, listener: Listener) -> Measured:
    """What workers have measured, with the form of their networks: as loaded, since each would
    choose by its own timing.

    Args:
        info: measured by the workers.
        recorded: the form in the run.json of a run that is continued; None: the run is new.
        listener: receives a warning if it is another one.
    """
    if info.form is None:
        return info
    changes = recorded is not None and recorded.form != info.form.form
    earlier = changes or (recorded is not None and recorded.earlier)
    form = info.form.model_copy(update={"reason": FormReason.WORKERS, "earlier": earlier})
    if recorded is not None and changes:
        listener.warn(_of_earlier_rows(recorded))
    return info.model_copy(update={"form": form})


def as_before(info: Measured, old: RunInfo) -> Measured:
    """What this session has measured, with how the rows of a run were computed by the sessions
    before, for a run that lacks none."""
    before = {"form": old.form, "rows": old.rows, "batch_rows": old.batch_rows}
    return info.model_copy(update=before)


def in_recorded_form(
    audit: PreparedAudit, recorded: NetworkForm, listener: Listener
) -> PreparedAudit:
    """The audit with its noisy passes in the form in which a run was begun, or as loaded where this
    machine cannot make it.

    Args:
        audit: prepared.
        recorded: the form in the run.json of the run.
        listener: receives a warning if it is another one.
    """
    loaded = _form_as_loaded(audit)
    wanted = recorded.form
    if wanted == loaded:
        return _with_info(audit, recorded)
    listener.doing("preparing the network as in the run so far")
    model = None
    # A run.json may come from a stranger: no audit has larger batches than these.
    if wanted.rows <= max(_ROW_FACTORS) * loaded.rows:
        model = _accepted(audit.engine, wanted, _Comparison(audit))
    if model is not None:
        return _with_form(audit, model, recorded)
    begun = f"the run was begun {wanted.text}, which this machine cannot make"
    listener.warn(_OTHER_DIGITS.format(begun))
    return _with_info(audit, NetworkForm.of(loaded, FormReason.UNAVAILABLE, earlier=True))


def _of_earlier_rows(recorded: NetworkForm) -> str:
    """The warning that the rows so far were computed in another form."""
    return _OTHER_DIGITS.format(f"the run so far was made {recorded.form.text}")


def _form_as_loaded(audit: PreparedAudit) -> Form:
    """The form in which the audit was prepared."""
    form = audit.info.form
    if form is None:
        raise ValueError("the audit was prepared without a form of its network")
    return form.form


class _Trial:
    """The forms that are tried, and the fastest so far.

    Args:
        audit: prepared.
        loaded: the form as loaded.
        clock: seconds.

    Attributes:
        fastest, model, rate: the form, the model in it, and its images per second.
        rate_as_loaded: of the network as loaded.
    """

    def __init__(self, audit: PreparedAudit, loaded: Form, clock: Clock) -> None:
        self._engine = audit.engine
        self._comparison = _Comparison(audit)
        self._clock = clock
        self.fastest = loaded
        self.model = audit.engine.noisy
        self.rate = self._measured(self.model, loaded)
        self.rate_as_loaded = self.rate

    def candidates(self, *, compiled: bool) -> Iterator[Form]:
        """The forms to try at the rule's batch size, quick ones first."""
        model = self._engine.noisy
        rows = self.fastest.rows
        layouts = layouts_for(model)
        for layout in layouts[1:]:
            yield Form(FormName.AS_LOADED, layout, rows)
        for name in other_forms(model):
            if name is FormName.COMPILED:
                if compiled:
                    yield Form(name, layouts[0], rows)
                continue
            for layout in layouts:
                yield Form(name, layout, rows)

    def attempt(self, form: Form) -> None:
        """Make the model in a form, and keep it if it is faster and gives the same results."""
        model = _accepted(self._engine, form, self._comparison)
        if model is not None:
            self._keep_if_faster(model, form, _FASTER)

    def attempt_other_batches(self) -> None:
        """Double the rows of a pass while that makes the fastest form faster, or halve them."""
        if self.fastest.name is FormName.COMPILED:
            return
        rule = self.fastest.rows
        self._attempt_batches([factor * rule for factor in _ROW_FACTORS], factor=_LARGER)
        if self.fastest.rows == rule:
            smaller = [rule // factor for factor in _ROW_FACTORS if rule >= factor * _FEWEST_ROWS]
            self._attempt_batches(smaller, factor=_FASTER)

    def _attempt_batches(self, sizes: Sequence[int], factor: float) -> None:
        """Try batches of these sizes in turn, while each is faster than the one before."""
        for rows in sizes:
            form = replace(self.fastest, rows=rows)
            self._keep_if_faster(self.model, form, factor)
            if self.fastest != form:
                return

    def _keep_if_faster(self, model: LogitModel, form: Form, factor: float) -> None:
        """Keep the model if it is more than ``factor`` times as fast as the fastest so far."""
        try:
            rate = self._measured(model, form)
        except Exception:  # noqa: BLE001  networks may raise anything in larger batches
            return
        if rate > factor * self.rate:
            self.fastest = form
            self.model = model
            self.rate = rate

    def _measured(self, model: LogitModel, form: Form) -> float:
        """Images per second in a form."""
        rows = self._comparison.rows
        original = rows[torch.arange(form.rows, device=rows.device) % len(rows)]
        inputs = original.clone()

        def seconds_of(passes: int) -> float:
            started = self._clock()
            with torch.inference_mode():
                for _ in range(passes):
                    # The network may write into its input.
                    logits = model(inputs.copy_(original), normalised=True)
                float(logits.sum())  # waits for the device
            return self._clock() - started

        seconds_of(1)  # slower than the others: kernels are chosen and memory is allocated
        once = max(seconds_of(1), 1e-9)
        passes = max(1, round(_TIMED_SECONDS / once))
        fastest = min(seconds_of(passes) for _ in range(_TIMINGS))
        return form.rows * passes / max(fastest, 1e-9)


class _Comparison:
    """The results of the network as it was loaded, with which those of another form are compared.

    Args:
        audit: prepared, as the network was loaded.

    Attributes:
        rows: network inputs (n, channels, height, width): images without noise in turn with noisy
            copies at every level of the audit.
    """

    def __init__(self, audit: PreparedAudit) -> None:
        engine = audit.engine
        samples = list(first_samples(audit.data, _COMPARED, skip_bad=True))
        x = torch.stack([sample.pixels for sample in samples])
        x = x.to(engine.model.device, engine.model.dtype)
        levels = list(dict.fromkeys(task.at for task in audit.tasks if task.at.level is not None))
        inputs = list[Tensor]()
        for number in range(_COMPARED):
            sample = number % len(x)
            image = x[sample : sample + 1]
            which = number % (1 + len(levels))
            if which:
                at = levels[which - 1]
                ids = [samples[sample].id]
                (batch,) = engine.noisy_batches(image, ids, at, 1, 1)
                inputs.append(engine.noisy_model_under(at.noise).inputs(batch.x))
            else:
                inputs.append(engine.noisy.inputs(image))
        self.rows = torch.cat(inputs)
        self._batch = engine.rows(shape_of(x))
        self._loaded = self._logits(engine.noisy, self._batch)
        exact = self._loaded
        if engine.noisy is not engine.model:
            exact = self._logits(engine.model, self._batch)
        scale = float((exact.amax(1) - exact.median(1).values).max())
        rounded = float((self._loaded - exact).abs().nan_to_num(0.0, 0.0).max())
        # In a lower precision the network as loaded is itself rounded: another form may be twice as
        # far from full precision.
        self._allowed = max(_ROUNDING * scale, 2 * rounded)

    def agrees(self, other: LogitModel) -> bool:
        """Whether another model gives the same logits up to rounding, and the same predictions, in
        full batches and in one that is not full."""
        for size in (self._batch, max(1, self._batch - 1)):
            values = self._logits(other, size)
            # Equal infinities have no difference.
            differences = torch.where(values == self._loaded, 0.0, values - self._loaded).abs()
            if not bool((differences <= self._allowed).all()):
                return False
            if not torch.equal(values.argmax(1), self._loaded.argmax(1)):
                return False
        return True

    def _logits(self, model: LogitModel, size: int) -> Tensor:
        """The logits of all rows (n, classes), in batches of this size."""
        with torch.inference_mode():
            return torch.cat(
                [model(part.clone(), normalised=True) for part in self.rows.split(size)]
            )


def _accepted(engine: Engine, form: Form, comparison: _Comparison) -> LogitModel | None:
    """The model for noisy passes in a form; None if it cannot be made, or gives other results."""
    names = (FormName.AS_LOADED, *other_forms(engine.noisy))
    if form.name not in names or form.layout not in layouts_for(engine.noisy):
        return None
    try:
        model = in_form(engine.noisy, form, comparison.rows[0])
        return model if comparison.agrees(model) else None
    except Exception:  # noqa: BLE001  tracing and compiling may raise anything
        return None


def _with_form(audit: PreparedAudit, model: LogitModel, form: NetworkForm) -> PreparedAudit:
    """The audit with its noisy passes through this model; how its logits depend on the batch is
    measured anew."""
    # A shallow copy: noise and sizes are those of the run.
    engine = copy(audit.engine)
    engine.run_in(model, form.rows)
    gradients = any(Need.GRADIENTS in task.estimator.needs for task in audit.tasks)
    samples = first_samples(audit.data, IMAGES, skip_bad=True)
    images = torch.stack([sample.pixels for sample in samples])
    rows, warnings = check_rows(engine, images, gradients=gradients)
    info = audit.info.model_copy(update={"rows": rows, "batch_rows": form.rows})
    new_warnings = [text for text in warnings if text not in info.warnings]
    info = info.model_copy(update={"warnings": [*info.warnings, *new_warnings]})
    return _with_info(replace(audit, engine=engine, info=info), form)


def _with_info(audit: PreparedAudit, form: NetworkForm) -> PreparedAudit:
    """The audit whose run.json says the form."""
    return replace(audit, info=audit.info.model_copy(update={"form": form}))
