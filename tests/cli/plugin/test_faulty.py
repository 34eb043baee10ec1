"""Estimators and kinds of noise that break the contract: one line that names them, and exit code
2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from robaudit import AuditSpec, ImageBatch, audit, plugins, read_run
from robaudit.plugins import NOISES
from tests.cli.plugin import entries, faulty_noise
from tests.cli.plugin.faulty import FAULTS, estimates
from tests.conftest import RunCli
from tests.specs import digits, read_info, read_rows, write

GRADIENTS = ("gram", "amplitude")
KINDS = {
    "gaussian": "robaudit.noise.gaussian:Gaussian",
    **{name.lower(): f"tests.cli.plugin.faulty_noise:{name}" for name in ("Faulty", "Undeclared")},
}


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """The faulty ones as if they were installed, beside ours."""
    faulty = (
        "Faulty",
        "WithoutPasses",
        "Undeclared",
        "Unfinished",
        "Numpy",
        "Refusing",
        "Miscounted",
    )
    names = {name.lower(): f"tests.cli.plugin.faulty:{name}" for name in faulty}
    with entries.beside_ours(plugins.ESTIMATORS, names), entries.only(NOISES, KINDS):
        yield


OF_ESTIMATORS = {
    fault: ({"estimators": [{"faulty": {"fault": fault}}]}, says)
    for fault, (_, says) in FAULTS.items()
}
OF_NOISES = {
    fault: (
        {
            "noise": {"kind": "faulty", "sigma": 0.1, "fault": fault},
            "estimators": ["taylor" if place in GRADIENTS else "mc"],
        },
        says,
    )
    for fault, (place, _, says) in faulty_noise.FAULTS.items()
}


@pytest.mark.parametrize(
    ("about", "sections", "says"),
    [
        *(
            pytest.param(
                "estimator faulty (tests.cli.plugin.faulty", *one, id=f"estimator: {fault}"
            )
            for fault, one in OF_ESTIMATORS.items()
        ),
        *(
            pytest.param("noise faulty (tests.cli.plugin.faulty_noise", *one, id=f"noise: {fault}")
            for fault, one in OF_NOISES.items()
        ),
    ],
)
def test_a_fault_names_the_plugin(
    about: str, sections: dict[str, Any], says: str, tmp_path: Path, run_cli: RunCli
) -> None:
    code, out, err = run_cli("estimate", write(tmp_path, digits(**sections)), "--out", "run", "-q")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {about}:Faulty): "), err
    assert says in err
    assert err.endswith("; fix or uninstall the plugin\n")
    assert err.count("\n") == 1


def test_what_a_noise_does_not_declare_is_told(tmp_path: Path, run_cli: RunCli) -> None:
    code, out, err = run_cli(
        "estimate",
        write(tmp_path, digits(noise={"kind": "undeclared", "sigma": 0.1})),
        "--out",
        "run",
    )
    assert (code, out) == (2, "")
    assert (
        "error: noise kind undeclared: tests.cli.plugin.faulty_noise:Undeclared does not define "
        "level_name; fix" in err
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("withoutpasses", "raised TypeError: cannot unpack non-iterable NoneType object"),
        ("undeclared", "does not define quantity"),
        ("unfinished", "does not define passes"),
        ("refusing", "raised RuntimeError: no licence"),
    ],
)
def test_what_is_missing_is_told_before_the_model_is_opened(
    name: str, says: str, tmp_path: Path, run_cli: RunCli
) -> None:
    spec = write(tmp_path, digits(estimators=[name], model={"path": "there-is-none.safetensors"}))
    code, out, err = run_cli("estimate", spec)
    assert (code, out) == (2, "")
    assert re.match(rf"error: estimator {name}( \(|: )tests\.cli\.plugin\.faulty:", err)
    assert says in err


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    spec = AuditSpec.model_validate(digits(estimators=["numpy"]))
    run = audit(spec, out=tmp_path / "run")
    assert read_run(run.path).rows == run.rows
    assert {(row.value, row.flips_to, row.numbers["x"]) for row in run.rows} == {(0.5, 1, 2.0)}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("too few", "estimate() returned Result Result("),
        ("too many", "estimate() returned tuple (Result("),
    ],
)
def test_a_value_too_few_or_too_many(
    fault: str, says: str, tmp_path: Path, run_cli: RunCli
) -> None:
    spec = write(
        tmp_path,
        digits(
            estimators=[
                {"miscounted": {"fault": fault, "q": [1, 10], "draws": 10, "target": "predicted"}}
            ]
        ),
    )
    code, out, err = run_cli("estimate", spec, "--out", "run", "-q")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(
        f"error: estimator miscounted (tests.cli.plugin.faulty:Miscounted): {says}"
    )
    assert err.endswith(" for 0, not a tuple of 2 Results; fix or uninstall the plugin\n")


def test_a_value_that_is_no_number(tmp_path: Path, run_cli: RunCli) -> None:
    """The image has no row of this computation, and its message says which of the values it was."""
    spec = write(
        tmp_path,
        digits(
            estimators=[
                {"mc": {"draws": 10}},
                {"miscounted": {"fault": "nan", "q": [1, 10], "draws": 10}},
            ]
        ),
    )
    done = run_cli("estimate", spec, "--out", "run", "-q")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "miscounted:q=10 gave nan at sigma 0.2" in done.err
    assert run_cli("estimate", spec, "--out", "run", "-q", "--on-error", "0.2").code == 0
    assert len(read_rows(tmp_path / "run")) == 7 * 3
    assert [skip["sample_id"] for skip in read_info(tmp_path / "run")["skipped"]] == ["6"]
    assert (
        "this run is complete; nothing was recomputed"
        in run_cli("estimate", spec, "--out", "run", "--on-error", "0.2").err
    )


def test_memory_that_runs_out_is_not_the_plugins_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine goes on with fewer images instead."""
    asked: list[int] = []

    def hungry(batch: ImageBatch) -> object:
        count = len(batch.ids)
        asked.append(count)
        if count > 2:
            raise torch.OutOfMemoryError
        return estimates(batch)

    monkeypatch.setitem(FAULTS, "hungry", (hungry, ""))
    spec = AuditSpec.model_validate(digits(limit=40, estimators=[{"faulty": {"fault": "hungry"}}]))
    assert len(audit(spec, out=tmp_path / "run").rows) == 40
    assert max(asked) > 2
