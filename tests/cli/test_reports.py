"""`show`, `bias-report` and `flag-samples`: what they print, in every format, and what they write."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from PIL import Image

from robaudit import audit, load_spec
from tests.conftest import RunCli
from tests.specs import digits, write


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 digits at two noise levels by mc and softmax: at 0.35 some answers flip."""
    folder = tmp_path_factory.mktemp("reports")
    spec = digits(limit=60, noise={"sigma": [0.1, 0.35]}, estimators=[{"mc": {"samples": 100}}, "softmax"])
    return audit(load_spec(write(folder, spec)), out=folder / "run").path


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_show_prints_what_estimate_printed(tmp_path: Path, run_cli: RunCli) -> None:
    first = run_cli("estimate", write(tmp_path, digits(limit=3)), "--out", "run")
    assert run_cli("show", "run") == (0, first.out, "")


def test_images_clean_beside_noisy(run: Path, run_cli: RunCli, tmp_path: Path) -> None:
    options = ["--estimator", "mc", "--bottom", "4"]
    code, _, err = run_cli("flag-samples", run, *options, "--images", "worst")
    assert (code, err) == (0, "8 pictures in worst\n")
    assert sorted(folder.name for folder in (tmp_path / "worst").iterdir()) == ["mc-0.1", "mc-0.35"]
    pictures = sorted((tmp_path / "worst" / "mc-0.35").iterdir())
    assert [path.name[:4] for path in pictures] == ["001-", "002-", "003-", "004-"]
    for path in pictures:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert picture.size == (160 + 8 + 160, 160), "8 x 8 digits are enlarged twenty times, with a gap between"
            assert picture.mode == "RGB"
            picture.load()
