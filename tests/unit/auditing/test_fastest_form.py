"""The choice of the form in which the network makes noisy passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robaudit.auditing import fastest_form
from robaudit.auditing.fastest_form import in_fastest_form, in_recorded_form
from robaudit.auditing.prepare import PreparedAudit, Request, prepare
from robaudit.forms import Form, FormName, Layout
from robaudit.models.logits import LogitModel
from robaudit.progress import Listener
from robaudit.runs.info import FormReason, NetworkForm
from robaudit.spec.model import AuditSpec
from tests.conftest import RunCli
from tests.specs import digits, read_info, read_rows, write

LONG = 1e6
"""Seconds of an audit that repays any choice."""


class Clock:
    """A clock that networks set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


class Timed(nn.Module):
    """Ten pixels as logits; by the clock, a pass takes some seconds and each row some more."""

    def __init__(
        self, of_row: float = 1.0, of_pass: float = 0.0, change: Callable[[Tensor], Tensor] = abs
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.of_row = of_row
        self.of_pass = of_pass
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        CLOCK.now += self.of_pass + self.of_row * len(x)
        return self.change(x.flatten(1)[:, 20:30] * self.weight)


class Told(Listener):
    """Keeps notes and warnings."""

    def __init__(self) -> None:
        self.notes = list[str]()
        self.warnings = list[str]()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def prepared(network: nn.Module | None = None, **run: Any) -> PreparedAudit:
    spec = AuditSpec.model_validate(digits(limit=9, estimators=[{"mc": {"draws": 50}}], run=run))
    return prepare(Request(spec, model=network), torch.device("cpu"), Listener())


def forms(monkeypatch: pytest.MonkeyPatch, **networks: nn.Module) -> list[Form]:
    """Let each form be one of these networks, and those without one fail; the forms that are asked
    for."""
    asked = list[Form]()

    def made(model: LogitModel, form: Form, row: Tensor) -> LogitModel:
        asked.append(form)
        return model.with_network(networks[form.name], torch.contiguous_format)

    monkeypatch.setattr(fastest_form, "in_form", made)
    return asked


def chosen(
    audit: PreparedAudit, seconds: float = LONG, recorded: NetworkForm | None = None
) -> tuple[PreparedAudit, NetworkForm, Told]:
    told = Told()
    found = in_fastest_form(audit, seconds, 1e6, recorded, told, CLOCK)
    assert found.info.form is not None
    return found, found.info.form, told


def test_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    forms(monkeypatch, optimised=Timed(0.5), compiled=Timed(0.25))
    audit, form, told = chosen(prepared(Timed(), batch_size=16))
    assert (form.name, form.rows, form.reason) == (FormName.COMPILED, 16, FormReason.FASTEST)
    assert form.as_loaded == pytest.approx(1.0)
    assert form.rate == pytest.approx(4.0)
    assert told.notes == [
        "the network runs compiled, contiguous, 16 images a pass: 4 images/s (1 as loaded)"
    ]
    assert audit.engine.noisy.network.of_row == 0.25
    assert audit.engine.model.network.of_row == 1.0, "clean passes and gradients"


@pytest.mark.parametrize(
    "change",
    [
        lambda x: abs(x) * 1.01,
        lambda x: abs(x) + 1e-3 * torch.arange(10),
        lambda x: abs(x).flip(1),
        lambda x: abs(x) + torch.nan,
        lambda x: abs(x) + 0.01 * len(x),
        lambda x: abs(x)[:, :9],
    ],
)
def test_other_results_are_not_taken(
    change: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    forms(monkeypatch, optimised=Timed(0.1, change=change), compiled=Timed(0.9))
    assert chosen(prepared(Timed(), batch_size=16))[1].name is FormName.COMPILED


def test_rounding_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    forms(monkeypatch, optimised=Timed(0.1, change=lambda x: abs(x) * (1 + 2e-6)))
    assert chosen(prepared(Timed(), batch_size=16))[1].name is FormName.OPTIMISED


def test_hardly_faster_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    forms(monkeypatch, optimised=Timed(0.97), compiled=Timed(0.97))
    _, form, told = chosen(prepared(Timed(), batch_size=16))
    assert (form.name, form.reason) == (FormName.AS_LOADED, FormReason.FASTEST)
    assert told.notes == []


def test_compiling_takes_a_longer_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = forms(monkeypatch)
    for seconds, names in (
        (1.0, []),
        (100.0, [FormName.OPTIMISED]),
        (LONG, [FormName.OPTIMISED, FormName.COMPILED]),
    ):
        asked.clear()
        _, form, _ = chosen(prepared(Timed(), batch_size=16), seconds)
        assert [one.name for one in asked] == names
        assert form.reason is (FormReason.FASTEST if names else FormReason.SHORT)


def test_rows_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger where a pass costs the same for any number, smaller where rows cost more in large
    passes; as the user said, if they did."""
    forms(monkeypatch)

    class Caches(Timed):
        def forward(self, x: Tensor) -> Tensor:
            CLOCK.now += len(x) ** 2
            return super().forward(x)

    assert chosen(prepared(Timed(of_row=0.0, of_pass=1.0)))[1].rows == 4 * 128
    assert chosen(prepared(Caches()))[1].rows == 128 // 4
    assert chosen(prepared(Timed(of_row=0.0, of_pass=1.0), batch_size=16))[1].rows == 16


def test_no_choice_by_timing_where_it_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = forms(monkeypatch, optimised=Timed(0.1))

    def mixing(x: Tensor) -> Tensor:
        return abs(x) - abs(x).mean(0)

    for audit in (prepared(Timed(), deterministic=True), prepared(Timed(change=mixing))):
        _, form, _ = chosen(audit)
        assert (form.name, form.reason) == (FormName.AS_LOADED, FormReason.FIXED)
    assert asked == []


def recorded_as(name: FormName, rows: int = 16, layout: Layout = Layout.CONTIGUOUS) -> NetworkForm:
    form = Form(name, layout, rows)
    return NetworkForm.of(form, FormReason.FASTEST, as_loaded=1.0, rate=2.0)


def test_a_run_goes_on_in_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the rest is, and whatever is faster now."""
    forms(monkeypatch, optimised=Timed(2.0), compiled=Timed(0.1))
    recorded = recorded_as(FormName.OPTIMISED)
    for seconds in (0.1, LONG):
        audit, form, told = chosen(prepared(Timed(), batch_size=16), seconds, recorded)
        assert form == recorded
        assert audit.engine.noisy.network.of_row == 2.0
        assert told.notes + told.warnings == []


@pytest.mark.parametrize(
    "recorded",
    [
        recorded_as(FormName.COMPILED),  # cannot be made
        recorded_as(FormName.OPTIMISED, 10**9),  # of a stranger
        recorded_as(FormName.OPTIMISED, layout=Layout.CHANNELS_LAST),  # without convolutions
    ],
)
def test_a_form_that_cannot_be_made_again(
    recorded: NetworkForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms(monkeypatch, optimised=Timed(0.1))
    told = Told()
    audit = in_recorded_form(prepared(Timed(), batch_size=16), recorded, told)
    assert audit.info.form is not None
    assert audit.info.form.reason is FormReason.UNAVAILABLE
    (warning,) = told.warnings
    assert "may differ in the last digits" in warning


def test_a_short_run_that_becomes_long_may_change_its_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forms(monkeypatch, optimised=Timed(0.5))
    audit = prepared(Timed(), batch_size=16)
    _, form, told = chosen(audit, LONG, audit.info.form)
    assert form.name is FormName.OPTIMISED
    (warning,) = told.warnings
    assert "as loaded" in warning


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits of any length choose; nothing is compiled."""
    monkeypatch.setattr(fastest_form, "_WORTH_TRYING", 0.0)
    monkeypatch.setattr(fastest_form, "_WORTH_PASSES", 0.0)
    monkeypatch.setattr(fastest_form, "_SHARE_OF_TRIAL", LONG)


def test_audits_give_the_same_rows_in_any_form(
    tmp_path: Path, run_cli: RunCli, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = [
        {"sigma": 0.3},
        {"kind": "gaussian", "name": "clipped", "sigma": 0.3, "clip": True},
        {"kind": "poisson", "photons": 20},
    ]
    write(tmp_path, digits(limit=20, noise=noise, estimators=[{"mc": {"draws": 64}}]))
    monkeypatch.setattr(fastest_form, "_FASTER", 0.0)  # whatever is tried last
    assert run_cli("estimate", "spec.yaml", "--out", "fast").code == 0
    assert read_info(tmp_path / "fast")["form"]["name"] == "optimised"
    monkeypatch.setattr(fastest_form, "_WORTH_TRYING", LONG)
    assert run_cli("estimate", "spec.yaml", "--out", "plain").code == 0
    values = [[row["value"] for row in read_rows(tmp_path / run)] for run in ("fast", "plain")]
    assert len(values[0]) == 60
    # A copy within rounding of the border may be counted on the other side.
    differing = sum(a != b for a, b in zip(*values, strict=True))
    assert differing <= 1
    answer = run_cli("verify", "fast")
    assert answer.code == 0
    assert "bit for bit" in answer.out


def test_code_that_branches_on_values_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace would follow one branch; here the noise of the audit takes the other, but no noise
    would show it if it were smaller."""

    class Branches(Timed):
        def forward(self, x: Tensor) -> Tensor:
            logits = super().forward(x)
            return -logits if float(x.max()) > 100.0 else logits

    monkeypatch.setattr(fastest_form, "_FASTER", 0.0)
    assert chosen(prepared(Branches(), batch_size=16), 100.0)[1].name is FormName.AS_LOADED


def test_forms_are_compared_at_the_levels_of_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they differ where pixels exceed 1.2, as with a sigma of 0.2."""
    forms(monkeypatch, optimised=Timed(0.1, change=lambda x: abs(x) + (x > 1.2)))
    assert chosen(prepared(Timed(), batch_size=16))[1].name is FormName.AS_LOADED


def test_a_network_that_fails_in_larger_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    forms(monkeypatch)

    class Small(Timed):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 128:
                raise ValueError("at most 128 images")
            return super().forward(x)

    assert chosen(prepared(Small(of_row=0.0, of_pass=1.0)))[1].rows == 128


def test_networks_that_write_into_their_input_are_compared_on_whole_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class InPlace(Timed):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.mul_(2.0))

    forms(monkeypatch, optimised=InPlace(0.5))
    assert chosen(prepared(InPlace(), batch_size=16))[1].name is FormName.OPTIMISED


def test_verify_promises_no_bits_of_a_run_in_two_forms(
    tmp_path: Path, run_cli: RunCli, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, digits(limit=6, estimators=[{"mc": {"draws": 64}}, "softmax"]))
    monkeypatch.setattr(fastest_form, "_FASTER", 0.0)
    monkeypatch.setattr(fastest_form, "_WORTH_TRYING", LONG)
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    assert not read_info(tmp_path / "run")["form"].get("earlier", False)
    monkeypatch.setattr(fastest_form, "_WORTH_TRYING", 0.0)
    extended = run_cli("estimate", "spec.yaml", "--limit", "12", "--extend", "--out", "run")
    assert extended.code == 0
    assert "may differ in the last digits" in extended.err
    assert read_info(tmp_path / "run")["form"]["earlier"] is True
    answer = run_cli("verify", "run")
    assert answer.code == 0
    assert "other bits" not in answer.err
