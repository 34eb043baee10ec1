"""Run folders from strangers: what a reader of results must not believe, print raw, or follow."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robaudit import audit, load_spec
from robaudit.rows import COLUMNS
from tests.hostile.case import Case
from tests.hostile.data import SPECIAL, place
from tests.specs import digits, laid_out, read_info, write
from tests.states import change as change_state

HEAD = f'{{"schema_version": 2,\n"columns": {json.dumps(COLUMNS)},\n"rows": [\n'.encode()
READERS = ("show", "bias-report", "flag-samples")
REPORT = ("report", "run", "--format", "md")
ESCAPE = "\x1b[2J\x07\x1b]0;x\x07"


@functools.cache
def finished() -> dict[str, bytes]:
    """The files of a finished run, by relative path."""
    with tempfile.TemporaryDirectory() as place_:
        folder = Path(place_)
        audit(load_spec(write(folder, digits())), out=folder / "run")
        return {str(p.relative_to(folder / "run")): p.read_bytes() for p in (folder / "run").rglob("*") if p.is_file()}


def run_folder(folder: Path) -> Path:
    """A finished run, ``run``, and its spec."""
    for name, content in finished().items():
        path = folder / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    write(folder, digits())
    return folder / "run"


def info(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """run.json with something changed."""

    def make(folder: Path) -> None:
        path = run_folder(folder) / "run.json"
        document = read_info(path.parent)
        change(document)
        path.write_text(json.dumps(document))

    return make


def info_text(text: str | bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (run_folder(folder) / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())

    return make


def samples(content: object) -> Callable[[Path], None]:
    """samples.json with this content, and its checksum in run.json."""

    def make(folder: Path) -> None:
        run = run_folder(folder)
        data = content if isinstance(content, bytes) else laid_out(content) if isinstance(content, dict) else json.dumps(content).encode()
        (run / "samples.json").write_bytes(data)
        document = read_info(run)
        document["files"]["samples.json"] = hashlib.sha256(data).hexdigest()
        (run / "run.json").write_text(json.dumps(document))

    return make


def one_line(folder: Path) -> None:
    """A samples.json that says what the run says, otherwise laid out."""
    samples(json.dumps(json.loads(finished()["samples.json"])).encode())(folder)


def rows(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], None]:

    def make(folder: Path) -> None:
        document = json.loads(finished()["samples.json"])
        change(document["rows"])
        samples(document)(folder)

    return make


def each(**values: Any) -> Callable[[Path], None]:
    """Every row with these values."""
    return rows(lambda found: [row.update(values) for row in found])


def state(*statements: str) -> Callable[[Path], None]:
    """An unfinished run whose state was changed by these statements, with the right checksums."""

    def make(folder: Path) -> None:
        info(lambda document: document.update(status="running"))(folder)
        change_state(folder / "run", *statements)

    return make


def state_file(content: bytes) -> Callable[[Path], None]:
    """An unfinished run with this as its state."""

    def make(folder: Path) -> None:
        info(lambda document: document.update(status="running"))(folder)
        (folder / "run" / "state.db").write_bytes(content)

    return make


def journal(content: bytes, name: str = "state.db-journal") -> Callable[[Path], None]:
    """An unfinished run with this beside its state."""

    def make(folder: Path) -> None:
        info(lambda document: document.update(status="running"))(folder)
        (folder / "run" / name).write_bytes(content)

    return make


def special(name: str, what: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = run_folder(folder) / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        place(path, what)

    return make


def sparse(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        os.truncate(run_folder(folder) / name, 10 * 2**30)

    return make


def wrong_values() -> dict[str, Callable[[Path], None]]:
    """run.json with the right keys and wrong values."""
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        f"{key} is {value}": lambda d, k=key, v=value: d.update({k: v})  # type: ignore[misc]
        for key in ("status", "name", "spec", "data", "model", "noise", "quantities", "totals", "seconds", "skipped", "files", "warnings")
        for value in (3, [1])
    }
    changes |= {
        "class names of numbers": lambda d: d["data"].update(class_names=[1, 2, 3]),
        "class names of nothing": lambda d: d["data"].update(class_names=[]),
        "a quantity without a name": lambda d: d["quantities"][0].pop("name"),
        "a quantity of another kind": lambda d: d["quantities"][0].update(low="x", high=[]),
        "a quantity without an end": lambda d: d["quantities"][0].update(high=1e308),
        "an accuracy of 1e308": lambda d: d["clean_accuracy"].update(upper=1e308),
        "a checksum of a list": lambda d: d["files"].update({"samples.json": []}),
        "seconds of a list": lambda d: d.update(seconds={"mc@gaussian:sigma=0.2": [1]}),
        "seconds at a level of another name": lambda d: d.update(seconds={"mc@gaussian:x=0.2": 1}),
        "an accuracy of text": lambda d: d.update(clean_accuracy={"value": "x"}),
        "a sample skipped for no reason": lambda d: d.update(skipped=[{}]),
        "no noisy accuracy": lambda d: d.pop("noisy_accuracy"),
        "10^18 samples": lambda d: d["totals"].update(samples=10**18),
    }
    return {name: info(change) for name, change in changes.items()}


def wrong_rows() -> dict[str, Callable[[Path], None]]:
    """samples.json with a matching checksum and wrong rows."""
    found: dict[str, Callable[[Path], None]] = {
        "a list": samples([]),
        "a number": samples(3),
        "nothing": samples(b""),
        "no rows": samples({"schema_version": 2}),
        "rows of text": samples({"schema_version": 2, "rows": "abc"}),
        "rows of numbers": samples({"schema_version": 2, "rows": [1, 2]}),
        "rows of lists": samples({"schema_version": 2, "rows": [[], []]}),
        "empty rows": samples({"schema_version": 2, "rows": [{}]}),
        "no row": samples({"schema_version": 2, "rows": []}),
        "another version": samples({"schema_version": 9, "rows": []}),
        "NaN": each(value=math.nan),
        "a number of 10^5 digits": samples(HEAD + b"9" * 10**5 + b"\n]}\n"),
        "a version of 10^5 digits": samples(b'{"schema_version": ' + b"9" * 10**5 + b",\n"),
        "1e999": each(value=1e999),
        "100,000 lists deep": samples(HEAD + b"[" * 100_000 + b"]" * 100_000 + b"\n]}\n"),
        "100,000 lists deep instead": samples(b"[" * 100_000 + b"]" * 100_000),
        "a line of 20 MB": samples(HEAD + b" " * 20_000_000 + b"\n]}\n"),
        "one line for all": one_line,
        "text that is none": samples(HEAD + b'"\xff\xfe"\n]}\n'),
        "a row less one column": rows(lambda r: r[0].pop("level")),
        "a row with one column more": rows(lambda r: r[0].update(code="x")),
        "one row twice": rows(lambda r: r.append(dict(r[0]))),
    }
    values: dict[str, list[Any]] = {
        "sample_id": [3, None],
        "label": ["x", -1, 1.5, 10**30, True],
        "predicted": [None, 10**30],
        "correct": ["x", 3],
        "level_name": ["x", None],
        "level": ["x", -1, 10**400, 1e308],
        "estimator": [[]],
        "quantity": ["unknown", {}],
        "noise": [None],
        "value": ["x", 10**400, -5, -1e200],
        "lower": [[], 7, 1e308],
        "upper": [-7],
        "std_error": [-1],
        "flips_to": ["x", 10**30],
        "forwards": [None, -1],
        "note": [3],
        "interval": [3],
        "votes": ["x", [1], {}, *({"counts": one} for one in ("x", [-1], [[1]], [10**30])), {"counts": [8, 2], "split": 0.5}],
        "certificate": [3, {"label": -1}, {"alpha": 1e308}, {"largest": math.inf}],
        "numbers": ["x", {"a": "x"}, {"a": math.inf}],
    }
    for key, odd in values.items():
        found |= {f"{key} is {str(value)[:20]} ({type(value).__name__})": each(**{key: value}) for value in odd}
    return found


def all_cases() -> dict[str, Case]:
    texts: dict[str, str | bytes] = {
        "a list": "[]",
        "a number": "3",
        "nothing": "",
        "a number of 10^5 digits": '{"schema_version": ' + "9" * 10**5 + "}",
        "100,000 lists deep": "[" * 100_000 + "]" * 100_000,
        "100,000 mappings deep": '{"a":' * 100_000 + "1" + "}" * 100_000,
        "no text": b"\xff\xfe\x00",
        "UTF-16": '{"schema_version": 2}'.encode("utf-16"),
        "a version that is true": '{"schema_version": true}',
        "a version of text": '{"schema_version": "1"}',
        "the version only": '{"schema_version": 2}',
    }
    makers = {
        **{f"run.json: {name}": info_text(text) for name, text in texts.items()},
        **{f"run.json: {name}": make for name, make in wrong_values().items()},
        **{f"samples.json: {name}": make for name, make in wrong_rows().items()},
        **{f"run.json: {what}": special("run.json", what) for what in SPECIAL},
        **{f"samples.json: {what}": special("samples.json", what) for what in SPECIAL if "GB" not in what},  # a hash takes its time
    }
    cases = {
        f"{name} ({READERS[i % 3]})": Case(make, "", (READERS[i % 3], "run"), (0, 2, 5), "a pipe" in name)
        for i, (name, make) in enumerate(makers.items())
    }
    steered: dict[str, Callable[[dict[str, Any]], object]] = {
        "noise": lambda d: d.update(noise=ESCAPE),
        "the model's name": lambda d: d["model"].update(name=ESCAPE),
        "the data's name": lambda d: d["data"].update(where=ESCAPE),
        "a warning": lambda d: d.update(warnings=[ESCAPE]),
        "a skip": lambda d: d.update(skipped=[{"sample_id": "x", "reason": ESCAPE}]),
        "the device": lambda d: d.update(device=ESCAPE),
        "class names": lambda d: d["data"].update(class_names=[ESCAPE] * 10),
        "class names of half characters": lambda d: d["data"].update(class_names=["\ud800"] * 10),
        "a quantity's unit": lambda d: d["quantities"][0].update(unit=ESCAPE),
        "the version": lambda d: d.update(schema_version=ESCAPE),
        "the status": lambda d: d.update(status=ESCAPE),
    }
    for name, change in steered.items():
        for command in READERS:
            cases[f"escapes in {name} ({command})"] = Case(info(change), "run", (command, "run"), (0, 2))
    for key in ("sample_id", "estimator", "noise", "quantity", "note", "interval"):
        for command in READERS:
            cases[f"escapes in {key} ({command})"] = Case(each(**{key: ESCAPE}), "run", (command, "run"), (0, 2))
    for form in ("csv", "json", "table"):
        arguments = ("flag-samples", "run", "--threshold", "1", "--format", form)
        cases[f"ids of half characters ({form})"] = Case(each(sample_id="\ud800"), "run", arguments, (0, 2))
    cases["pictures of a sample that leads out"] = Case(
        each(sample_id="../../../escaped"),
        "no longer has a sample",
        ("flag-samples", "run", "--threshold", "1", "--images", "pictures"),
        (2,),
    )
    states: dict[str, Callable[[Path], None]] = {
        "no database": state_file(b"junk" * 1000),
        "nothing": state_file(b""),
        "10 MB of zeros": state_file(bytes(10**7)),
        "a journal that names another file": journal(b"x" * 600 + b"canary" + bytes(8) + bytes.fromhex("d9d505f920a163d7")),
        "another table": state("CREATE TABLE more (x)"),
        "a table that is not there": state("DROP TABLE skips"),
        "a view for a table": state(
            "DROP TABLE seconds", "CREATE VIEW seconds AS SELECT 1 AS id, 1 AS flush, 'clean' AS step, 1 AS seconds"
        ),
        "a trigger": state("CREATE TRIGGER gone AFTER INSERT ON rows BEGIN DELETE FROM rows; END"),
        "a later version": state("PRAGMA user_version = 9"),
        "rows of text": state("UPDATE rows SET row = 'abc'"),
        "rows of nothing": state("UPDATE rows SET row = NULL"),
        "rows of blobs": state("UPDATE rows SET row = x'ff00'"),
        "rows of infinities": state('UPDATE rows SET row = replace(row, \'"lower": \', \'"lower": 9e999, "more": \')'),
        "rows that are deep": state("UPDATE rows SET row = replace(hex(zeroblob(100000)), '00', '[')"),
        "entries that are no JSON": state("UPDATE tasks SET entry = '{'"),
        "entries in a list": state("UPDATE tasks SET entry = '[1]'"),
        "images of numbers": state("UPDATE samples SET digest = 7"),
    }
    for name, make in states.items():
        cases[f"state: {name}"] = Case(make, "run", ("estimate", "spec.yaml", "--out", "run"), (2,))
        cases[f"state: {name} (export)"] = Case(make, "run", ("show", "run", "rows"), (0, 2))
    for what in SPECIAL:
        if "GB" not in what:
            cases[f"state: {what}"] = Case(special("state.db", what), "", ("estimate", "spec.yaml", "--out", "run"), (0, 2))
    outside = ("flag-samples", "run", "--threshold", "1", "--images", "pictures")
    cases["pictures of a spec that runs code"] = Case(
        info(lambda d: d["spec"].update(dataset={"kind": "python", "target": "os:mkdir", "options": {"path": "canary"}})),
        "--trust",
        outside,
    )
    cases["pictures of a spec that is none"] = Case(info(lambda d: d.update(spec={"model": 3})), "run.json, spec: ", outside)
    cases["pictures of a folder that is none"] = Case(info(lambda d: d.update(spec_folder=3)), "run", outside)
    edited: dict[str, Callable[[dict[str, Any]], object]] = {
        "notes of a number": lambda d: d["model"].update(notes=5),
        "gates of a number": lambda d: d["spec"].update(gates=5),
        "gates of numbers": lambda d: d["spec"].update(gates=[5, None]),
        "a checksum of the data in a list": lambda d: d["data"].update(sha256=[1]),
    }
    for name, change in edited.items():
        cases[f"report: {name}"] = Case(info(change), "run.json", REPORT, (2,))
    for key, other in {"name": "../../escaped", "identity": 3, "spec": [], "model": []}.items():
        cases[f"resumed with another {key}"] = Case(
            info(lambda d, k=key, v=other: d.update({k: v, "status": "running"})),  # type: ignore[misc]
            "run",
            ("estimate", "spec.yaml", "--out", "run"),
            (0, 2),
        )
    return cases


RUNS = all_cases()
