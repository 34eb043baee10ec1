"""Run folders from strangers: what a reader of results must not believe, print raw, or follow."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robaudit import audit, load_spec
from robaudit.rows import COLUMNS
from tests.specs import digits, laid_out, read_info, write
from tests.states import change as change_state
from tests.system.hostile.case import Case
from tests.system.hostile.data import SPECIAL, place

HEAD = f'{{"schema_version": 2,\n"columns": {json.dumps(COLUMNS)},\n"rows": [\n'.encode()
READERS = ("show", "bias-report", "flag-samples")
REPORT = ("report", "run", "--format", "md")
RESUME = ("estimate", "spec.yaml", "--out", "run")
PICTURES = ("flag-samples", "run", "--threshold", "1", "--images", "pictures")
JOURNAL = bytes.fromhex("d9d505f920a163d7")  # how SQLite marks a journal
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


def info_text(text: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (run_folder(folder) / "run.json").write_bytes(text)

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


def rows(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], None]:
    """samples.json with its rows changed."""

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


def beside(content: bytes, name: str = "state.db") -> Callable[[Path], None]:
    """An unfinished run with this as its state, or beside it."""

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


def wrong_values() -> dict[str, Callable[[Path], None]]:
    """run.json with the right keys and wrong values."""
    keys = ("status", "name", "spec", "data", "model", "noise", "quantities", "totals", "seconds", "skipped", "files", "warnings")
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        f"{key} is 3": lambda d, k=key: d.update({k: 3})  # type: ignore[misc]
        for key in keys
    }
    changes |= {
        "class names of nothing": lambda d: d["data"].update(class_names=[]),
        "a quantity without an end": lambda d: d["quantities"][0].update(high=1e308),
        "a checksum of a list": lambda d: d["files"].update({"samples.json": []}),
        "seconds at a level of another name": lambda d: d.update(seconds={"mc@gaussian:x=0.2": 1}),
        "a sample skipped for no reason": lambda d: d.update(skipped=[{}]),
        "10^18 samples": lambda d: d["totals"].update(samples=10**18),
    }
    return {name: info(change) for name, change in changes.items()}


def wrong_rows() -> dict[str, Callable[[Path], None]]:
    """samples.json with a matching checksum and wrong rows."""
    found: dict[str, Callable[[Path], None]] = {
        "nothing": samples(b""),
        "a list": samples([]),
        "rows of lists": samples({"schema_version": 2, "rows": [[], []]}),
        "another version": samples({"schema_version": 9, "rows": []}),
        "NaN": each(value=math.nan),
        "a number of 10^5 digits": samples(HEAD + b"9" * 10**5 + b"\n]}\n"),
        "100,000 lists deep": samples(HEAD + b"[" * 100_000 + b"]" * 100_000 + b"\n]}\n"),
        "a line of 20 MB": samples(HEAD + b" " * 20_000_000 + b"\n]}\n"),
        "text that is none": samples(HEAD + b'"\xff\xfe"\n]}\n'),
        "a row less one column": rows(lambda r: r[0].pop("level")),
        "one row twice": rows(lambda r: r.append(dict(r[0]))),
    }
    values: dict[str, Any] = {
        "sample_id": None, "label": 10**30, "predicted": None, "level": 10**400, "estimator": [], "quantity": "unknown", "value": 10**400,
        "lower": 7, "flips_to": "x", "forwards": -1, "note": 3, "interval": 3, "votes": {"counts": [[1]]}, "certificate": {"label": -1},
        "numbers": {"a": "x"},
    }  # fmt: skip
    return found | {f"a wrong {key}": each(**{key: odd}) for key, odd in values.items()}


def all_cases() -> dict[str, Case]:
    texts: dict[str, bytes] = {
        "nothing": b"",
        "a list": b"[]",
        "a number of 10^5 digits": b'{"schema_version": ' + b"9" * 10**5 + b"}",
        "100,000 mappings deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "no text": b"\xff\xfe\x00",
        "the version only": b'{"schema_version": 2}',
    }
    steered: dict[str, Callable[[dict[str, Any]], object]] = {
        "the model's name": lambda d: d["model"].update(name=ESCAPE),
        "the data's name": lambda d: d["data"].update(where=ESCAPE),
        "a warning": lambda d: d.update(warnings=[ESCAPE]),
        "a skip": lambda d: d.update(skipped=[{"sample_id": "x", "reason": ESCAPE}]),
        "class names": lambda d: d["data"].update(class_names=[ESCAPE] * 10),
        "class names of half characters": lambda d: d["data"].update(class_names=["\ud800"] * 10),
        "a quantity's unit": lambda d: d["quantities"][0].update(unit=ESCAPE),
        "the status": lambda d: d.update(status=ESCAPE),
    }
    makers = {
        **{f"run.json: {name}": info_text(text) for name, text in texts.items()},
        **{f"run.json: {name}": make for name, make in wrong_values().items()},
        **{f"samples.json: {name}": make for name, make in wrong_rows().items()},
        **{f"run.json: {what}": special("run.json", what) for what in SPECIAL},
        **{f"samples.json: {what}": special("samples.json", what) for what in SPECIAL if "GB" not in what},  # a hash takes its time
        **{f"escapes in {name}": info(change) for name, change in steered.items()},
        **{f"escapes in {key}": each(**{key: ESCAPE}) for key in ("sample_id", "estimator", "noise", "quantity", "note", "interval")},
    }
    cases = {
        f"{name} ({READERS[i % 3]})": Case(make, "", (READERS[i % 3], "run"), (0, 2, 5), "a pipe" in name)
        for i, (name, make) in enumerate(makers.items())
    }
    states: dict[str, Callable[[Path], None]] = {
        "no database": beside(b"junk" * 1000),
        "10 MB of zeros": beside(bytes(10**7)),
        "a journal that names another file": beside(
            b"x" * 600 + b"canary" + bytes(8) + bytes.fromhex("d9d505f920a163d7"), "state.db-journal"
        ),
        "a view for a table": state(
            "DROP TABLE seconds", "CREATE VIEW seconds AS SELECT 1 AS id, 1 AS flush, 'clean' AS step, 1 AS seconds"
        ),
        "a trigger": state("CREATE TRIGGER gone AFTER INSERT ON rows BEGIN DELETE FROM rows; END"),
        "a later version": state("PRAGMA user_version = 9"),
        "rows of blobs": state("UPDATE rows SET row = x'ff00'"),
        "rows that are deep": state(f"UPDATE rows SET row = x'{zlib.compress(100_000 * b'[', wbits=-12).hex()}'"),  # noqa: S608
        "entries that are no JSON": state("UPDATE tasks SET entry = '{'"),
    }
    cases |= {f"state: {name}": Case(make, "run", RESUME) for name, make in states.items()}
    cases |= {f"state: {what}": Case(special("state.db", what), "", RESUME, (0, 2)) for what in SPECIAL if "GB" not in what}
    cases |= {
        f"resumed with another {key}": Case(
            info(lambda d, k=key, v=other: d.update({k: v, "status": "running"})),  # type: ignore[misc]
            "run", RESUME, (0, 2),
        )
        for key, other in {"name": "../../escaped", "identity": 3, "spec": []}.items()
    }  # fmt: skip
    code = {"kind": "python", "target": "os:mkdir", "options": {"path": "canary"}}
    return cases | {
        "pictures of a sample that leads out": Case(each(sample_id="../../../escaped"), "no longer has a sample", PICTURES),
        "pictures of a spec that runs code": Case(info(lambda d: d["spec"].update(dataset=code)), "--trust", PICTURES),
        "pictures of a spec that is none": Case(info(lambda d: d.update(spec={"model": 3})), "run.json, spec: ", PICTURES),
        "pictures of a folder that is none": Case(info(lambda d: d.update(spec_folder=3)), "run", PICTURES),
        "report: gates of a number": Case(info(lambda d: d["spec"].update(gates=5)), "run.json", REPORT),
        "report: notes of a number": Case(info(lambda d: d["model"].update(notes=5)), "run.json", REPORT),
    }


RUNS = all_cases()
