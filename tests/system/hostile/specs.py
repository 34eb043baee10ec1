"""Spec files that would run code, expand, nest without end, or say what no number or text can
be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from tests.specs import NETWORK, digits
from tests.system.hostile.case import CANARY, Case
from tests.system.hostile.data import SPECIAL, place

SPEC = "spec.yaml"


def text(content: str | bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / SPEC).write_bytes(
            content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        )

    return make


def with_line(line: str, *, without: str = "") -> Callable[[Path], None]:
    """The usual spec with a section left out and these lines at its end."""
    return text(
        yaml.safe_dump({key: value for key, value in digits().items() if key != without})
        + line
        + "\n"
    )


def doubling(levels: int) -> str:
    """Each line doubles the one before it."""
    return "l0: &l0 [x, x]\n" + "".join(
        f"l{i + 1}: &l{i + 1} [*l{i}, *l{i}]\n" for i in range(levels)
    )


def merging(levels: int) -> str:
    """Each mapping merges the one before it twice."""
    return "l0: &l0 {x: 1}\n" + "".join(
        f"l{i + 1}: &l{i + 1}\n  <<: [*l{i}, *l{i}]\n  k{i}: 1\n" for i in range(levels)
    )


TAGS = {
    "object/apply": "!!python/object/apply:os.mkdir ['%s']",
    "name": "!!python/name:os.mkdir",
    "a tag of one's own": "!mkdir '%s'",
}


def tagged(tag: str) -> Callable[[Path], None]:
    return lambda folder: with_line(
        "model: " + tag.replace("%s", str(folder / CANARY)), without="model"
    )(folder)


def special_spec(what: str) -> Callable[[Path], None]:
    return lambda folder: place(folder / SPEC, what)


def value(section: str, written: str) -> Callable[[Path], None]:
    return with_line(f"{section}: {written}", without=section)


def yaml_cases() -> dict[str, Case]:
    texts: dict[str, str | bytes] = {
        "500,000 opening brackets": "[" * 500_000,
        "an alias of itself in a list": "&a [*a]",
        "an alias of itself as a merge": "model: &a {<<: *a}",
        "a key twice by escapes": 'model: 1\n"mo\\x64el": 2',
        "a directive for tags": "%TAG ! tag:yaml.org,2002:python/\n---\nmodel: !name:os.mkdir",
        "a number of 10^6 digits": "noise: {sigma: " + "9" * 1_000_000 + "}",
        "a float of 10^5 groups": "noise: {sigma: 1" + ":59" * 100_000 + ".5}",
        "a NUL": "model: \0",
        "an escaped escape": '"\\e[2J\\a": 1',
        "a lone surrogate": "model: \ud800",
        "latin-1": "model: \xe9".encode("latin-1"),
        "nothing": "",
    }
    cases = {f"yaml: {name}": Case(text(content), SPEC) for name, content in texts.items()}
    cases |= {
        f"yaml: {name}": Case(tagged(tag), SPEC, dangerous=name == "object/apply")
        for name, tag in TAGS.items()
    }
    return cases | {
        "yaml: 100 doublings of a list": Case(text(doubling(100)), SPEC, dangerous=True),
        "yaml: 30 merges of two": Case(text(merging(30)), SPEC, dangerous=True),
        **{
            f"spec: {what}": Case(special_spec(what), SPEC, dangerous=what == "a pipe")
            for what in SPECIAL
        },
        "spec: /dev/zero": Case(
            lambda folder: None, "/dev/zero", ("estimate", "/dev/zero"), dangerous=True
        ),
        "spec: an escape in its name": Case(
            lambda folder: None, "x1b", ("estimate", "\x1b[2J.yaml")
        ),
        "spec: a name of 10^5 characters": Case(
            lambda folder: None, "xxx", ("estimate", "x" * 10**5)
        ),
    }


def value_cases() -> dict[str, Case]:
    """Valid YAML that says no audit, or too large a one."""
    return {
        "value: sigma of 1e999": Case(value("noise", "{sigma: 1e+999}"), SPEC),
        "value: 15,000 sigmas of one": Case(
            value("noise", "{sigma: [" + "1, " * 15_000 + "1]}"), SPEC
        ),
        "value: a noise of an escape": Case(value("noise", '{sigma: 1, name: "\\e[2J"}'), SPEC),
        "value: a limit of 10^400": Case(
            value("dataset", "{kind: digits, limit: 1" + "0" * 400 + "}"), SPEC, codes=(0, 2)
        ),
        "value: a device with escapes": Case(value("run", '{device: "\\e[2J\\a"}'), "x1b"),
        "value: an architecture of Python": Case(
            value("model", "{architecture: 'os:system', architecture_options: {command: x}}"),
            "--trust",
        ),
        "value: a residual network 10^9 deep": Case(
            value(
                "model",
                "{path: "
                + NETWORK["path"]
                + ", architecture: 'robaudit:cifar_resnet', architecture_options: {depth: "
                "1000000000}}",
            ),
            "too few for robaudit:cifar_resnet with depth: 1000000000",
            dangerous=True,
        ),
        "value: weights from the network": Case(
            value(
                "model",
                "{path: "
                + NETWORK["path"]
                + ", architecture: 'torchvision:resnet18', architecture_options: {weights: "
                "DEFAULT}}",
            ),
            "would read or download",
        ),
        "value: a path with a lone surrogate": Case(
            value("model", '{path: "\\ud800.pt"}'), "lone surrogate"
        ),
        "value: a data set of Python": Case(
            value("dataset", "{kind: python, target: 'os:mkdir', options: {path: canary}}"),
            "--trust",
        ),
        "value: a loader of Python": Case(
            value(
                "dataset",
                "{kind: torchvision, name: ImageFolder, root: ., options: {loader: os.system}}",
            ),
            "ImageFolder",
        ),
        "value: a cache that is unpickled": Case(
            value("dataset", "{kind: torchvision, name: LSUN, root: .}"), "unpickles a cache file"
        ),
        "value: an unknown key with escapes": Case(with_line('"\\e[2J\\a": 1'), "x1b"),
    }


SPECS = {**yaml_cases(), **value_cases()}
