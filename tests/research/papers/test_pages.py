"""The papers' pages: one item, and all of them in the slow tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.research.papers import __main__ as command
from tests.research.papers.giraudon import radii, score, with_radii
from tests.research.papers.han import LINEAR
from tests.research.papers.item import (
    ITEMS,
    TRIAL,
    Claim,
    Part,
    Session,
    Verdict,
    above,
    at_most,
    judged,
    lower,
)
from tests.research.papers.page import conclusions, corrected, holm, write
from tests.shared import needs_shared


def session(folder: Path) -> Session:
    return Session(folder / "build", folder / "pages", TRIAL)


def test_a_page_has_its_item_its_picture_and_its_conclusions(tmp_path: Path) -> None:
    name = "giraudon-fig3"
    (page, index) = write(session(tmp_path), {name: ITEMS[name].make(session(tmp_path))})
    text = page.read_text(encoding="utf-8")
    assert (page.parent / f"{name}.png").stat().st_size < 100_000
    assert f"]({name}.png)" in text
    rows = [line for line in text.splitlines() if line.startswith(f"| [{name}]")]
    assert len(rows) == 6
    assert all(any(f"**{verdict}**" in row for verdict in Verdict) for row in rows)
    assert "## giraudon-fig4: Figure 4, radius against difficulty\n\nNot made yet." in text
    assert "(giraudon.md)" in index.read_text(encoding="utf-8")


def test_other_items_stay_on_their_page(tmp_path: Path) -> None:
    where = session(tmp_path)
    claim = Claim("one", Verdict.HOLDS, "p = .04", 0.04)
    (page, _) = write(where, {"rice-table1": Part("first", (claim,))})
    page.write_text(
        "# Title\n\nWritten by hand.\n\n" + page.read_text(encoding="utf-8").partition("\n\n")[2],
        encoding="utf-8",
    )
    write(where, {"rice-fig1": Part("second")})
    write(where, {"rice-fig1": Part("third", (claim, claim))})
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\nWritten by hand.\n\n## Conclusions")
    assert ("first" in text, "second" in text, "third" in text) == (True, False, True)
    assert text.count("| one | **holds** | cannot be told |") == 3
    kept = conclusions(page.parent)
    assert list(kept) == ["rice-table1", "rice-fig1"]
    assert kept["rice-fig1"] == [claim, claim]


def test_pages_of_other_papers_are_corrected_for_new_tests(tmp_path: Path) -> None:
    where = session(tmp_path)
    alone = Claim("one", Verdict.FAILS, "p = .03", 0.03)
    (page, _) = write(where, {"rice-table1": Part("first", (alone,))})
    assert "| one | **does not hold** | does not hold |" in page.read_text(encoding="utf-8")
    many = tuple(Claim("another", Verdict.OPEN, "p = .5", 0.5) for _ in range(3))
    (_, _, index) = write(where, {"giraudon-heat": Part("second", many)})
    assert "| one | **does not hold** | cannot be told |" in page.read_text(encoding="utf-8")
    assert "| all |  | 0 (0) | 1 (0) | 3 (4) |" in index.read_text(encoding="utf-8")


def test_holm_by_hand() -> None:
    assert holm([0.02, 0.005, 0.03, 0.011], 0.05) == [True, True, True, True]
    assert holm([0.03, 0.005, 0.03, 0.011], 0.05) == [False, True, False, True]
    assert holm([0.01, 0.02], 0.015) == [False, False]
    assert holm([], 0.05) == []


def test_without_a_test_nothing_is_confirmed() -> None:
    claims = [Claim("x", Verdict.OPEN, "a matter of the eye"), Claim("y", Verdict.HOLDS, "", 0.04)]
    assert corrected(claims) == [Verdict.OPEN, Verdict.HOLDS]


def test_verdicts_follow_the_tests() -> None:
    near = np.linspace(0, 0.1, 50)
    far = np.linspace(0.05, 0.25, 50)
    assert lower("x", near, far, "gain").verdict is Verdict.HOLDS
    assert lower("x", far, near, "gain").verdict is Verdict.FAILS
    assert lower("x", near, near, "gain").verdict is Verdict.OPEN
    assert at_most("x", near, 0.2, "mean").verdict is Verdict.HOLDS
    assert at_most("x", far, 0.1, "mean").verdict is Verdict.FAILS
    alike = at_most("x", np.zeros(75), 0.01, "mean")
    assert (alike.verdict, alike.evidence) == (
        Verdict.OPEN,
        "mean .000 [.000, .000] against .010, all images alike, n = 75",
    )
    enough = at_most("x", np.zeros(459), 0.01, "mean", largest=1.0)
    assert enough.verdict is Verdict.HOLDS
    assert enough.p_value == pytest.approx(0.99**459)
    few = at_most("x", np.zeros(458), 0.01, "mean", largest=1.0)
    assert few.verdict is Verdict.OPEN
    open_claim = judged("x", 50, lambda at: float(near[at].mean()), "mean", above(0.05))
    assert open_claim.verdict is Verdict.OPEN
    assert open_claim.evidence.startswith("mean .050 [")
    assert open_claim.evidence.endswith("n = 50")


@needs_shared
def test_the_scores_are_those_of_robaudit(tmp_path: Path) -> None:
    run = radii(session(tmp_path), LINEAR)
    r, g = with_radii(run)
    known = {kind.value: one.value for kind, one in run.section("scores")[0].values.items()}
    for name, nu in (("r_m", False), ("r_nu", True)):
        assert score(r, g, nu, np.arange(len(r))) == pytest.approx(known[name], rel=1e-12)


def test_an_unknown_item_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["han-fig99"])
    assert "no item is called han-fig99" in capsys.readouterr().err


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("name", ITEMS)
def test_every_item(name: str, tmp_path: Path) -> None:
    (page, _) = write(session(tmp_path), {name: ITEMS[name].make(session(tmp_path))})
    assert f"## {name}: " in page.read_text(encoding="utf-8")
