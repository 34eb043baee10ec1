"""Audits of objects in memory: the same rows as from files, the network left as it was, arguments
checked, runs found again."""

from __future__ import annotations

import gc
import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import robaudit
from robaudit.errors import AnotherRunError, RobauditError, RobauditWarning
from robaudit.models.fingerprint import fingerprint
from robaudit.report.gallery import RunImages
from tests.cli.stopping import time_is_over_after
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import NETWORK, digits, write
from tests.unit.api.nets import arrays, floats, network

FEW: Any = {"sigma": 0.25, "estimators": {"mc": {"draws": 20}}}


@pytest.mark.bits
def test_the_same_rows_as_from_files(tmp_path: Path) -> None:
    images, labels = arrays(8)
    np.savez(tmp_path / "digits.npz", images=images, labels=labels)
    estimators: list[Any] = ["logit_gaussian", {"mc": {"draws": 50}}, {"taylor": {}}]
    spec = {
        "model": {**NETWORK, "mean": 0.1, "std": [0.9]},
        "dataset": {"kind": "npz", "path": "digits.npz"},
        "noise": {"sigma": [0.1, "64/255"]},
        "estimators": estimators,
    }
    from_files = robaudit.audit(write(tmp_path, spec), out=tmp_path / "files")
    net = network()
    options: Any = {"sigma": [0.1, "64/255"], "mean": 0.1, "std": [0.9], "estimators": estimators}
    in_memory = robaudit.audit(net, (images, labels), **options, out=tmp_path / "memory")
    assert (tmp_path / "memory" / "samples.csv").read_bytes() == (
        tmp_path / "files" / "samples.csv"
    ).read_bytes()
    assert (tmp_path / "memory" / "samples.json").read_bytes() == (
        tmp_path / "files" / "samples.json"
    ).read_bytes()
    assert in_memory.rows == from_files.rows
    by_function = robaudit.audit(net.eval(), floats(8), **options, batch_size=8)
    assert by_function.rows == from_files.rows


def test_the_network_is_left_as_it_was() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.norm = nn.BatchNorm2d(1)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1  # type: ignore[assignment,operator]
            return self.inner(self.norm(x))  # type: ignore[no-any-return]

    net = Net().double().train()
    net.inner.requires_grad_(False)
    before = {
        name: (tensor.clone(), tensor.data_ptr(), tensor.stride())
        for name, tensor in net.state_dict().items()
    }
    flags = {name: parameter.requires_grad for name, parameter in net.named_parameters()}
    robaudit.audit(net, floats(4), sigma=0.1, estimators=["taylor", "mc"], limit=2)
    assert net.training
    assert all(module.training for module in net.modules())
    assert flags == {name: parameter.requires_grad for name, parameter in net.named_parameters()}
    after = net.state_dict()
    assert all(torch.equal(after[name], tensor) for name, (tensor, _, _) in before.items())
    for name, (_, pointer, stride) in before.items():
        assert after[name].data_ptr() == pointer
        assert after[name].stride() == stride


@pytest.mark.filterwarnings("ignore:.torch.jit.*. is deprecated")
@pytest.mark.parametrize(
    "form", ["function", "script", pytest.param("compiled", marks=pytest.mark.slow)]
)
def test_networks_in_other_forms(form: str) -> None:
    net = network().eval()
    forms: dict[str, Any] = {
        "function": lambda: lambda x: {"logits": net(x)},
        "script": lambda: torch.jit.script(net),
    }
    other = forms.get(form, lambda: torch.compile(net))()
    rows, same = (robaudit.audit(one, dataset=arrays(3), **FEW).rows for one in (net, other))
    assert [row.votes for row in same] == [row.votes for row in rows]


def test_whatever_the_caller_has_switched_off() -> None:
    options: Any = {
        "sigma": 0.1,
        "estimators": ["taylor", {"mc": {"draws": 20}}],
        "class_names": {i: f"d{i}" for i in range(10)},
    }
    rows = robaudit.audit(network(), arrays(2), **options).rows
    with torch.inference_mode():
        run = robaudit.audit(network(), arrays(2), **options)
    assert run.rows == rows
    assert run.class_names is not None
    assert run.class_names[3] == "d3"


def test_networks_that_cannot_be_audited(golden: Golden) -> None:
    class Pinned(nn.Module):
        def __deepcopy__(self, memo: object) -> nn.Module:
            raise TypeError("not this one")

    for net in (nn.LazyLinear(10), Pinned()):
        with pytest.raises(RobauditError) as caught:
            robaudit.audit(net, arrays(3), **FEW)
        golden(caught.value)


def test_a_temporary_run_lives_as_long_as_it_is_used() -> None:
    run = robaudit.audit(network(), arrays(3), **FEW)
    folder = run.path
    assert (folder / "samples.csv").exists()
    assert "in a temporary folder: out= keeps it" in repr(run)
    other = run
    del run
    gc.collect()
    assert folder.exists()
    del other
    gc.collect()
    assert not folder.exists()


def test_no_litter_after_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(RobauditError):
        robaudit.audit(lambda x: x, arrays(3), **FEW)
    assert list(tmp_path.iterdir()) == []


def test_the_same_call_finds_its_run(tmp_path: Path, golden: Golden) -> None:
    images, labels = arrays(300)
    options: Any = {"sigma": 0.2, "estimators": "softmax", "out": tmp_path / "run"}
    first = robaudit.audit(network(), (images, labels), **options)
    state = (tmp_path / "run" / "state.db").read_bytes()
    assert robaudit.audit(network(), (images, labels), **options) == first
    assert (tmp_path / "run" / "state.db").read_bytes() == state
    other = network()
    with torch.no_grad():
        next(other.parameters()).add_(0.01)
    with pytest.raises(AnotherRunError) as caught:
        robaudit.audit(other, (images, labels), **options)
    golden(caught.value)
    late = images.copy()
    late[290] = 255 - late[290]  # far behind the images that the input check sees
    with pytest.raises(AnotherRunError) as caught:
        robaudit.audit(network(), (late, labels), **options)
    golden(caught.value)
    wrong = labels.copy()
    wrong[280] = (wrong[280] + 1) % 10
    with pytest.raises(AnotherRunError) as caught:
        robaudit.audit(network(), (images, wrong), **options)
    golden(caught.value)
    with pytest.raises(RobauditError) as last:
        robaudit.audit(network(), (images, labels), **{**options, "sigma": [0.2, 0.3]}, limit=None)
    golden(last.value)


def test_more_samples_are_other_data_unless_they_extend_the_run(
    tmp_path: Path, golden: Golden
) -> None:
    images, labels = arrays(12)
    options: Any = {**FEW, "out": tmp_path / "run"}
    robaudit.audit(network(), (images[:6], labels[:6]), **options)
    before = (tmp_path / "run" / "samples.csv").read_bytes()
    with pytest.raises(AnotherRunError) as caught:
        robaudit.audit(network(), (images, labels), **options)
    golden(caught.value)
    assert (tmp_path / "run" / "samples.csv").read_bytes() == before
    with pytest.raises(AnotherRunError) as caught:
        robaudit.audit(network(), (images[:3], labels[:3]), **options)
    golden(caught.value)
    run = robaudit.audit(
        network(), (images, labels), **{**options, "sigma": [0.25, 0.1]}, extend=True
    )
    assert (len(run.rows), sorted(key.at.number for key in run.groups())) == (24, [0.1, 0.25])


def test_a_run_that_skipped_a_sample_is_found_again(tmp_path: Path) -> None:
    images, labels = floats(4)
    broken = images.clone()
    broken[1] = float("nan")
    options: Any = {**FEW, "out": tmp_path / "run", "on_error": 0.5}
    with pytest.warns(RobauditWarning, match="skipped"):
        first = robaudit.audit(network(), (broken, labels), **options)
    assert len(first.rows) == 3
    assert robaudit.audit(network(), (broken, labels), **options) == first


def test_levels_of_few_bits_are_the_decimals_that_they_stand_for() -> None:
    options: Any = {"sigma": [np.float16(0.1), torch.tensor(0.3)], "mean": torch.tensor(0.1)}
    run = robaudit.audit(network(), arrays(2), estimators={"mc": {"draws": 10}}, **options)
    assert sorted({row.level for row in run.rows}) == [0.1, 0.3]
    assert run.info.spec["model"]["mean"] == [0.1]


def test_the_digest_of_code() -> None:
    net = network()
    scale = 2.0

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return scale * net(x)  # type: ignore[no-any-return]

    before = fingerprint(scaled)
    assert fingerprint(scaled) == before
    scale = 3.0
    changed = fingerprint(scaled)
    assert changed != before
    with torch.no_grad():
        next(net.parameters()).mul_(2)
    assert fingerprint(scaled) not in (before, changed)
    assert fingerprint(lambda x: x + 1) != fingerprint(lambda x: x + 2)

    class Scaled(nn.Module):
        factor = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    one = Scaled()
    two = Scaled()
    two.factor = 2.0
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(one) == fingerprint(Scaled())


def test_a_spec_as_a_mapping_and_arguments_that_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {
        "model": NETWORK,
        "dataset": {"kind": "digits", "limit": 5},
        "noise": {"sigma": 0.2},
        "estimators": ["softmax"],
    }
    assert len(robaudit.audit(spec).rows) == 5
    run = robaudit.audit(
        spec,
        limit=2,
        sigma=[0.1, 0.3],
        estimators="mc",
        seed=7,
        gates="mean(sigma=0.1) >= 0.5",
        name="mine",
    )
    assert (len(run.rows), run.info.seed, run.info.spec["gates"], run.path.name[:5]) == (
        4,
        7,
        ["mean(sigma=0.1) >= 0.5"],
        "mine-",
    )
    mixed = robaudit.audit(spec, model=network(), out=tmp_path / "mixed")
    assert mixed.info.spec["model"]["format"] == "memory"
    assert mixed.info.spec["dataset"]["kind"] == "digits"


BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "no network": ((3, arrays(2)), {"sigma": 0.1}),
    "a class": ((nn.Linear, arrays(2)), {"sigma": 0.1}),
    "no data": ((network(),), {"sigma": 0.1}),
    "no noise": ((network(), arrays(2)), {}),
    "mean": ((network(), arrays(2)), {"sigma": 0.1, "mean": "red"}),
    "a gate": ((network(), arrays(2)), {"sigma": 0.1, "gates": ["meen >= 0.9"]}),
    "noise": ((network(), arrays(2)), {"noise": {"kind": "unifrom", "eps": 0.1}}),
    "limit": ((network(), arrays(2)), {"sigma": 0.1, "limit": 0}),
    "class names": ((network(), arrays(2)), {"sigma": 0.1, "class_names": ["a", "b"]}),
    "indices from 1": ((network(), arrays(2)), {"sigma": 0.1, "class_names": {1: "a", 2: "b"}}),
    "on_error": ((network(), arrays(2)), {"sigma": 0.1, "on_error": "go"}),
    "an empty set": ((network(), TensorDataset(torch.zeros(0, 1, 8, 8))), {"sigma": 0.1}),
    "normalised": ((network(), (floats(4)[0] * 4 - 2, [0] * 4)), {"sigma": 0.1}),
    "bytes": ((network(), (floats(4)[0] * 255, [0] * 4)), {"sigma": 0.1}),
    "grey levels": ((network(), arrays(2)), {"sigma": 8}),
    "data of a spec": (({"model": NETWORK, "dataset": {"kind": "digits"}},), {"ids": ["a"]}),
    "memory in a mapping": (({"model": NETWORK, "dataset": {"kind": "memory"}},), {"sigma": 0.1}),
}  # fmt: skip


@pytest.mark.parametrize(("positional", "named"), BAD.values(), ids=list(BAD))
def test_bad_arguments_are_named(
    positional: tuple[Any, ...], named: dict[str, Any], tmp_path: Path, golden: Golden
) -> None:
    with pytest.raises(RobauditError) as caught:
        robaudit.audit(*positional, **named, out=tmp_path / "run")
    golden(caught.value)


@pytest.mark.parametrize("form", ["net", "spec file", "mapping", "mapping of a file"])
def test_noises_of_a_file(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    noises = [{"kind": "uniform", "eps": [0.2]}, {"name": "weak", "sigma": ["1/100"]}]
    write(tmp_path, {"noise": noises}, "noise.yaml")
    spec = digits(limit=2)
    if form == "net":
        run = robaudit.audit(network(), arrays(2), noise="noise.yaml", estimators=["taylor"])
    elif form == "spec file":
        run = robaudit.audit(write(tmp_path, spec), noise=Path("noise.yaml"))
    elif form == "mapping":
        run = robaudit.audit(spec, noise="noise.yaml")
    else:
        run = robaudit.audit({**spec, "noise": "noise.yaml"})
    assert {str(row.at) for row in run.rows} == {"uniform eps 0.2", "weak sigma 0.01"}


def test_mistakes_in_noises_of_a_file(tmp_path: Path, golden: Golden) -> None:
    for text in ("noise: [{kind: unifrom, eps: 1}]", "noise: [{kind: uniform}]", "nose: 1"):
        path = write(tmp_path, text, "noise.yaml")
        with golden.raises(RobauditError):
            robaudit.audit(network(), arrays(2), noise=str(path))


def test_class_names_by_index_and_indices_by_name() -> None:
    names = [f"digit {i}" for i in range(10)]
    forms: list[Any] = [
        {str(i): name for i, name in enumerate(names)},
        {name: i for i, name in reversed([*enumerate(names)])},
    ]
    for given in forms:
        assert robaudit.audit(network(), arrays(2), **FEW, class_names=given).class_names == tuple(
            names
        )


def swapped() -> Any:
    images, labels = arrays(40)
    return images, (labels + 1) % 10


def test_a_network_of_timm_without_its_normalisation() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    net.pretrained_cfg = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.2)}  # type: ignore[assignment]  # as timm.create_model sets it
    data = (torch.rand(4, 3, 8, 8), None)
    said = r"its timm configuration has mean: \[0\.5, 0\.4, 0\.3\], std: \[0\.2, 0\.2, 0\.2\]"
    with pytest.warns(RobauditWarning, match="no mean and std are applied, but " + said):
        run = robaudit.audit(net, data, **FEW)
    assert len(run.info.warnings) == 1
    assert (
        robaudit.audit(net, data, **FEW, mean=[0.5, 0.4, 0.3], std=[0.2, 0.2, 0.2]).info.warnings
        == []
    )


PERMUTED = (
    r"clean accuracy is 0\.0% on 40 images, but \d+\.\d% with the labels permuted \(0->9, "
    r"1->0, 2->1, \.\.\.\): check the order of the"
)


def test_warnings_reach_the_caller() -> None:
    with pytest.warns(RobauditWarning, match=PERMUTED) as caught:
        run = robaudit.audit(network(), swapped(), sigma=0.1, estimators="softmax")
    assert caught[0].filename == __file__
    assert "1 warning" in repr(run)
    assert run._repr_markdown_().index(
        "check the order of the classes"
    ) < run._repr_markdown_().index("clean accuracy  0.0%")


def test_remedies_name_arguments(golden: Golden) -> None:
    """A key of a spec means nothing to a Python program."""
    images = torch.rand(4, 1, 4, 4)
    with pytest.raises(RobauditError) as caught:
        robaudit.audit(lambda x: (x.flatten(1), x), images, sigma=0.1)
    golden(caught.value)
    with pytest.raises(RobauditError) as caught:
        robaudit.audit(lambda x: x.flatten(1), images, sigma=0.1, output="z")
    golden(caught.value)


def test_a_warning_ends_an_audit_only_for_those_who_ask(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robaudit.audit(network(), swapped(), sigma=0.1, estimators="softmax")
        assert (
            "robaudit warning: Sequential: clean accuracy is 0.0% on 40 images"
            in capsys.readouterr().err
        )
        warnings.simplefilter("error", RobauditWarning)
        with pytest.raises(RobauditWarning):
            robaudit.audit(network(), swapped(), sigma=0.1, estimators="softmax")


def test_files_say_that_it_was_in_memory(tmp_path: Path, run_cli: RunCli) -> None:
    run = robaudit.audit(network(), arrays(80), **FEW, out=tmp_path / "run")
    done = run_cli("verify", "run")
    assert done.code == 2
    assert done.err == (
        "error: dataset: the data were objects in the memory of a Python program, and are not "
        "kept; pass them again: "
        "robaudit.audit(net, dataset, ..., out=RUN) checks that they are the same\n"
    )
    assert "Sequential (memory, 10 classes" in run_cli("show", "run").out
    pictures = run_cli("flag-samples", "run", "--bottom", "3", "--images", "worst")
    assert (pictures.code, pictures.err) == (2, done.err)
    report = run_cli("report", "run", "-o", "report.html")
    assert (
        report.code,
        "the data were objects in the memory of a Python program" in report.err,
    ) == (0, True)
    assert "flagged-title" not in Path("report.html").read_text(encoding="utf-8")
    assert "flagged-title" in str(run.report()), "this process has the data"
    name = run.rows[0].sample_id
    assert torch.equal(RunImages(run, [name]).clean(name), floats(80)[0][int(name)])


def test_a_spec_file_cannot_name_it(tmp_path: Path, run_cli: RunCli) -> None:
    text = "model: {path: a.pt}\ndataset:\n  kind: memory\nnoise: {sigma: 0.1}\n"
    done = run_cli("estimate", write(tmp_path, text))
    assert (done.code, done.out) == (2, "")
    assert (
        "spec.yaml:3: dataset.kind: memory stands for objects of a Python program, which a file "
        "cannot name; name files" in done.err
    )
    done = run_cli(
        "estimate",
        write(tmp_path, "model: {format: memory}\ndataset: {kind: digits}\nnoise: {sigma: 0.1}\n"),
    )
    assert "spec.yaml:1: model.format: memory stands for objects" in done.err
    assert re.search(r'"memory"(?!:)|MemorySpec', run_cli("list", "schema").out) is None


def test_a_budget_ends_an_audit_with_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "sigma": 0.05,
        "estimators": {"mc": {"draws": 200}},
        "out": tmp_path / "run",
    }
    with monkeypatch.context() as patch:
        time_is_over_after(6, patch)
        run = robaudit.audit(network(), arrays(9), budget="10m", **options)
    assert len(run.rows) == 9
    assert max(row.votes.draws for row in run.rows if row.votes) < 200
    assert "copies of each of 9 images (its time was over)" in repr(run)
    assert "(its time was over)" in run._repr_markdown_()
    assert robaudit.read_run(tmp_path / "run").rows == run.rows
    whole = robaudit.audit(network(), arrays(9), **options)
    assert {row.votes.draws for row in whole.rows if row.votes} == {200}
    assert "stopped" not in repr(whole)


def test_sampling_until_gates_are_decided(tmp_path: Path, golden: Golden) -> None:
    options: dict[str, Any] = {
        "sigma": 0.05,
        "estimators": {"mc": {"draws": 256}},
        "until_decided": True,
        "out": tmp_path / "run",
    }
    run = robaudit.audit(network(), arrays(9), gates="mean >= 0.01", **options)
    assert {row.votes.draws for row in run.rows if row.votes} == {1}
    schedule = run.info.until_decided
    assert schedule is not None
    assert [one.confidence for one in run.gate()] == [schedule.each]
    assert "population=True: for images like these" in repr(run.gate())
    assert robaudit.audit(network(), arrays(9), gates="mean >= 0.01", **options).rows == run.rows
    with pytest.raises(RobauditError) as caught:
        robaudit.audit(network(), arrays(9), gates="mean >= 0.02", **options)
    golden(caught.value)
    with pytest.raises(RobauditError) as caught:
        robaudit.audit(network(), arrays(9), **options)
    golden(caught.value)
    with pytest.raises(RobauditError) as caught:
        robaudit.audit(network(), arrays(9), sigma=0.05, confidence=0.9)
    golden(caught.value)
    with pytest.raises(RobauditError) as caught:
        robaudit.audit(network(), arrays(9), gates="mean >= 0.01", fresh=True, **options)
    golden(caught.value)


def test_two_runs_are_compared_and_one_is_verified(tmp_path: Path) -> None:
    write(tmp_path, digits(limit=4, estimators=[{"mc": {"draws": 20}}]))
    other = write(
        tmp_path,
        digits(limit=4, estimators=[{"mc": {"draws": 20}}], name="ours", noise={"sigma": [0.2]}),
        "other.yaml",
    )
    base, new = (
        robaudit.audit(path, out=tmp_path / path.stem) for path in (tmp_path / "spec.yaml", other)
    )
    found = robaudit.compare_runs(base, new.path)
    assert found[0].images == 4
    assert "ours" in repr(found)
    assert found.gate("mean_drop <= 0.5").passed
    assert robaudit.verify_run(new, 2).good


def test_the_page_names_every_argument_and_method() -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", page))
    parameters = set(inspect.signature(robaudit.audit).parameters) - {
        "what",
        "listener",
        "trust",
        "name",
    }
    methods = {name for name in vars(robaudit.Run) if not name.startswith("_")}
    assert (parameters | methods) - words == set()
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        compile(code, "docs/python.md", "exec")


def test_ctrl_c_leaves_the_results_so_far() -> None:
    net = network()
    passes = iter(range(10**9))

    def interrupted(pixels: torch.Tensor) -> torch.Tensor:
        # Later than the checks before the audit.
        if next(passes) == 60:
            raise KeyboardInterrupt
        return net(pixels)  # type: ignore[no-any-return]

    options: Any = {"sigma": 0.25, "estimators": {"mc": {"draws": 4000}}, "gates": "mean >= 0.1"}
    with pytest.raises(KeyboardInterrupt, match="copies of each of 8 images") as caught:
        robaudit.audit(interrupted, floats(8), **options)
    run = caught.value.run  # type: ignore[attr-defined]
    assert run.path.exists()
    assert run.info.stopped == "interrupted"
    assert len(run.to_pandas()) == 8
    assert "mean(estimator=mc, sigma=0.25) >= 0.1" in str(run.gate())
