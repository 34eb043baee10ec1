"""A small real run with hostile names, and its page, made once for all tests that look at it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robaudit import audit, load_spec
from robaudit.files import json_bytes, sealed
from robaudit.report.html.content import Content, gather
from robaudit.report.html.render import page
from robaudit.runs.run import Run
from robaudit.stats.reading import read_run
from tests.specs import digits, read_info, save_npz, write
from tests.unit.report.html.tools import HOSTILE


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """40 images of noise at two levels by mc, logit_gaussian and softmax; classes and samples have
    hostile names."""
    folder = tmp_path_factory.mktemp("html")
    names = [*HOSTILE, *(f"class {i}" for i in range(len(HOSTILE), 10))]
    images = np.random.default_rng(3).integers(0, 256, (40, 1, 8, 8), dtype=np.uint8)
    save_npz(folder / "x.npz", images=images, labels=np.arange(40) % 5)
    spec = digits(
        dataset={"kind": "npz", "path": "x.npz", "class_names": [f"class {i}" for i in range(10)]},
        noise={"sigma": [0.1, 0.3]},
        estimators=[{"mc": {"draws": 40}}, {"logit_gaussian": {"draws": 16}}, "softmax"],
    )
    made = audit(load_spec(write(folder, spec)), out=folder / "run")
    info = read_info(made.path)
    info["data"]["class_names"] = names  # data with such names are refused, so a forger writes them
    (made.path / "run.json").write_bytes(json_bytes(sealed(info)))
    return read_run(made.path)


@pytest.fixture(scope="session")
def content(run: Run) -> Content:
    return gather([run])


@pytest.fixture(scope="session")
def html(content: Content) -> str:
    text, problems = page(content)
    assert problems == ()
    return text


@pytest.fixture(scope="session")
def html_file(html: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of hand-made runs are about their text; pictures have tests of their own."""
    monkeypatch.setattr(
        "robaudit.report.pictures.inline.inline",
        lambda kind, _: f'<svg role="img" data-kind="{kind}"></svg>',
    )
