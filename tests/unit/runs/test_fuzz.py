"""Whatever stands in a spec, a table of results or a run folder: a result, or one error that is the
user's to mend."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robaudit import audit, load_spec
from robaudit.cli.reading import print_run
from robaudit.errors import RobauditError
from robaudit.quantities import Interval
from robaudit.results import Votes
from robaudit.runs.rows import read_row
from robaudit.runs.serialise import stream_rows_json
from robaudit.stats.reading import read_run
from tests.rows import ROW, csv_text, json_text
from tests.specs import digits, read_info, write

quickly = settings(
    max_examples=100, deadline=5_000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

SPEC = yaml.safe_dump(digits(run={"seed": 3, "precision": "fp64"}), sort_keys=False)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.binary(max_size=5)
    | st.sampled_from(
        [
            "mc",
            "digits",
            "8/255",
            "robaudit:digits_cnn",
            "~nobody/x",
            "\x1b[2J",
            "\ud800",
            "\0",
            "../..",
            "9" * 5000,
        ]
    )
)
keys = st.sampled_from(
    [
        "model",
        "dataset",
        "noise",
        "estimators",
        "run",
        "sigma",
        "kind",
        "path",
        "samples",
        "mc",
        "name",
        "limit",
        "sample",
    ]
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def in_one_line(error: BaseException) -> None:
    """An error of the user's own is one line that steers no terminal."""
    assert isinstance(error, RobauditError)
    assert str(error).isprintable()


def loads(folder: Path, content: bytes, **changes: Any) -> None:
    """Load a spec; only the user's own errors may come out, in one line."""
    (folder / "spec.yaml").write_bytes(content)
    try:
        load_spec(folder / "spec.yaml", **changes)
    except RobauditError as error:
        in_one_line(error)


@st.composite
def mutated(draw: st.DrawFn, whole: str) -> str:
    """A text with some pieces removed, repeated or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(whole)))
        end = draw(st.integers(begin, min(len(whole), begin + 30)))
        other = draw(
            st.text(max_size=8)
            | st.sampled_from(
                [
                    "{",
                    "[",
                    "null",
                    "1e999",
                    "NaN",
                    '"',
                    "\n",
                    "&a ",
                    "*a",
                    "!!python/name:os ",
                    "9" * 5000,
                ]
            )
        )
        whole = (
            whole[:begin] + draw(st.sampled_from(["", other, whole[begin:end] * 2])) + whole[end:]
        )
    return whole


@quickly
@given(
    content=st.binary(max_size=300)
    | st.text("{}[]:,-?&*!|>'\"%@` \n\tab01.#<~", max_size=200).map(str.encode)
    | mutated(SPEC).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | values.map(lambda document: yaml.safe_dump(document).encode("utf-8", "surrogatepass"))
)
def test_spec_of_anything(tmp_path: Path, content: bytes) -> None:
    loads(tmp_path, content)


@quickly
@given(
    section=st.sampled_from(
        ["model", "dataset", "noise", "estimators", "run", "model.path", "noise.sigma", "run.seed"]
    ),
    value=values,
)
def test_spec_with_any_value(tmp_path: Path, section: str, value: Any) -> None:
    document: dict[str, Any] = yaml.safe_load(SPEC)
    *outer, last = section.split(".")
    (document[outer[0]] if outer else document)[last] = value
    loads(tmp_path, yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))


@quickly
@given(
    setting=st.text(max_size=30)
    | st.builds(
        "{}={}".format,
        st.sampled_from(["model.mean", "mc.draws", "run.seed", "noise"]),
        st.text(max_size=30),
    )
)
def test_any_setting(tmp_path: Path, setting: str) -> None:
    loads(tmp_path, SPEC.encode(), settings=[setting])


EXACT = Interval.parse("clopper-pearson")
RESULTS = [
    replace(ROW, sample_id="a,b", interval=EXACT, votes=Votes((8, 2))),
    replace(
        ROW,
        sample_id="c",
        label=None,
        correct=None,
        lower=None,
        upper=None,
        std_error=None,
        flips_to=None,
        numbers={"x": 0.5},
    ),
]


@quickly
@given(text=mutated(json_text(RESULTS)) | st.text(max_size=200))
def test_damaged_json(text: str) -> None:
    try:
        found = list(stream_rows_json(io.BytesIO(text.encode())))
    except RobauditError as error:
        in_one_line(error)
    else:
        json_text(found)
        csv_text(found).encode()


@quickly
@given(
    column=st.sampled_from(
        [*json.loads(json_text(RESULTS))["columns"], "votes", "certificate", "numbers"]
    ),
    value=values,
)
def test_a_row_with_any_value(column: str, value: Any) -> None:
    document = {**json.loads(json_text(RESULTS))["rows"][0], column: value}
    try:
        found = read_row(document)
    except ValueError:
        return
    csv_text([found]).encode()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    audit(load_spec(write(folder, digits(limit=3))), out=folder / "run")
    return folder / "run"


def shows(run: Path, name: str, text: str) -> None:
    """Show a copy of a run with one file changed (and, of samples.json, its checksum put right)."""
    copy = run.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in ("run.json", "samples.json"):
        shutil.copy(run / file, copy / file)
    content = text.encode("utf-8", "surrogatepass")
    (copy / name).write_bytes(content)
    if name == "samples.json":
        info = read_info(copy)
        info["files"][name] = hashlib.sha256(content).hexdigest()
        (copy / "run.json").write_text(json.dumps(info))
    try:
        print_run(read_run(copy))
    except RobauditError as error:
        in_one_line(error)


@quickly
@given(data=st.data(), name=st.sampled_from(["run.json", "samples.json"]))
def test_damaged_run(finished: Path, data: st.DataObject, name: str) -> None:
    shows(finished, name, data.draw(mutated((finished / name).read_text())))


@quickly
@given(data=st.data(), value=values)
def test_run_with_any_value(finished: Path, data: st.DataObject, value: Any) -> None:
    document: dict[str, Any] = json.loads((finished / "run.json").read_text())
    place: Any = document
    key: Any = data.draw(st.sampled_from(sorted(document)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(
            st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place)))
        )
    place[key] = value
    shows(finished, "run.json", json.dumps(document, default=str))
