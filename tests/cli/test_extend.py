"""`--extend`: more samples, noise levels or estimators on an existing run, without computing
anything twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robaudit import audit
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_info, read_rows, write
from tests.states import flushes, query


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of 8 samples by mc and taylor_mvs at 0.2, with its spec."""
    folder = tmp_path_factory.mktemp("extended")
    audit(
        write(folder, digits(estimators=[{"mc": {"draws": 30}}, "taylor_mvs"])),
        out=folder / "run",
    )
    return folder


def lines(run: Path) -> list[str]:
    return (run / "samples.csv").read_text().splitlines()


def rows_between(run: Path, first: int, last: int) -> list[tuple[object, ...]]:
    """The rows that these flushes have written, their sample, noise level and estimator first."""
    return query(
        run,
        "SELECT name, level, estimator, rows.* FROM rows JOIN samples ON samples.id = sample "
        "JOIN tasks ON tasks.id = task "
        "WHERE rows.flush BETWEEN ? AND ? ORDER BY rows.id",
        first,
        last,
    )


EXTENSIONS = {
    "limit": (["--limit", "12"], {("mc", 0.2), ("taylor_mvs", 0.2)}, 4),
    "estimator": (["--estimator", "softmax"], {("softmax", 0.2)}, 8),
}


@pytest.mark.parametrize(
    ("options", "groups", "samples"), EXTENSIONS.values(), ids=list(EXTENSIONS)
)
def test_only_what_is_new_is_computed(
    options: list[str], groups: set[tuple[str, float]], samples: int, run: Path, run_cli: RunCli
) -> None:
    before = lines(run)
    flushes_before = flushes(run)
    first = rows_between(run, 1, flushes_before)
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend", *options).code == 0
    assert rows_between(run, 1, flushes_before) == first
    computed = {row[:3] for row in rows_between(run, flushes_before + 1, flushes(run))}
    assert {(estimator, sigma) for _, sigma, estimator in computed} == groups
    assert len(computed) == samples * len(groups)
    after = lines(run)
    assert set(before) < set(after), "the old rows are in the new table, byte for byte"
    assert len(after) == len(before) + len(computed)


def test_order_is_that_of_the_data_set_and_of_the_union_of_the_specs(
    run: Path, run_cli: RunCli
) -> None:
    assert (
        run_cli(
            "estimate",
            "spec.yaml",
            "--out",
            "run",
            "--extend",
            "--sigma",
            "0.1",
            "--estimator",
            "softmax",
            "--limit",
            "9",
        ).code
        == 0
    )
    found = [(row["sample_id"], row["level"], row["estimator"]) for row in read_rows(run)]
    ids = list(dict.fromkeys(sample for sample, _, _ in found))
    assert len(ids) == 9
    assert found == [
        (i, sigma, name)
        for i in ids
        for sigma in ("0.2", "0.1")
        for name in ("mc", "taylor_mvs", "softmax")
    ]


def test_noise_joins_a_run_without(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(noise=None, estimators=["difficulty"]))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    assert read_info(tmp_path / "run")["noise"].startswith("none; ")
    write(tmp_path, digits(estimators=["difficulty", {"mc": {"draws": 20}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend").code == 0
    assert {(row["estimator"], row["noise"]) for row in read_rows(tmp_path / "run")} == {
        ("difficulty", "none"),
        ("mc", "gaussian"),
    }


def test_what_is_there_already_needs_no_work(run: Path, run_cli: RunCli, golden: Golden) -> None:
    before = (run / "samples.csv").read_bytes()
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run", "--extend", "--limit", "3")
    assert code == 0
    golden.lines(err)
    assert (run / "samples.csv").read_bytes() == before


def test_a_smaller_limit_does_not_compute_all_samples(
    run: Path, run_cli: RunCli, refuse: Refuse
) -> None:
    """An extension adds to every sample of the run."""
    before = (run / "samples.csv").read_bytes()
    fewer = ("estimate", "spec.yaml", "--out", "run", "--extend", "--limit", "3")
    refuse(*fewer, "--estimator", "softmax")
    refuse(*fewer, "--sigma", "0.7")
    assert (run / "samples.csv").read_bytes() == before


def test_default_folder_is_found(
    tmp_path: Path, run_cli: RunCli, golden: Golden, refuse: Refuse
) -> None:
    """By an extension, and by the first command again, as it holds what is asked and more."""
    spec = write(tmp_path, digits(limit=2))
    assert run_cli("estimate", spec).code == 0
    assert run_cli("estimate", spec, "--extend", "--sigma", "0.3").code == 0
    (run,) = (tmp_path / "runs").iterdir()
    before = lines(run)
    assert len(before) == 1 + 2 * 2
    golden.lines(run_cli("estimate", spec).err)
    assert lines(run) == before
    shutil.copytree(run, tmp_path / "runs" / "spec-copy")
    refuse("estimate", spec, "--extend", "--sigma", "0.4")


def test_a_random_subset_only_grows(tmp_path: Path, run_cli: RunCli) -> None:
    found: list[set[str]] = []
    for size, options in ((3, ()), (9, ("--extend",)), (5, ("--extend",))):
        write(
            tmp_path,
            digits(dataset={"kind": "digits", "sample": {"size": size}}, estimators=["softmax"]),
        )
        assert run_cli("estimate", "spec.yaml", "--out", "run", *options).code == 0
        found.append({row["sample_id"] for row in read_rows(tmp_path / "run")})
    assert [len(ids) for ids in found] == [3, 9, 9]
    assert found[0] < found[1] == found[2]
