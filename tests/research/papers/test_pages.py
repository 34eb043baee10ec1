"""The papers' pages: one item, and all of them in the slow tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

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
    all_of,
    at_most,
    judged,
    lower,
)
from tests.research.papers.page import conclusions, corrected, holm, write
from tests.research.papers.smoothed import Comparison, Trained, compared, equals
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
    assert len(rows) == 4
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


def test_trainings_on_both_sides_decide_nothing() -> None:
    images = np.linspace(-0.1, 0.3, 200)
    alike = lower("x", np.zeros((3, 200)), np.array([images, images, images + 0.1]), "gain")
    assert (alike.verdict, alike.p_value is not None) == (Verdict.HOLDS, True)
    assert "(trainings: .100, .100, .200)" in alike.evidence
    apart = lower("x", np.zeros((3, 200)), np.array([images, images, images - 0.2]), "gain")
    assert (apart.verdict, apart.p_value) == (Verdict.OPEN, None)


def test_a_mean_of_few_images_is_not_surer_than_by_a_t_test() -> None:
    few = np.random.default_rng(0).normal(0.9, 1, 12)
    claim = lower("x", np.zeros(12), few, "gain")
    assert claim.p_value is not None
    assert claim.p_value >= ttest_1samp(few, 0).pvalue


def test_a_conclusion_of_several_is_as_sure_as_the_least() -> None:
    sure, less = Claim("x", Verdict.HOLDS, "a", 0.001), Claim("x", Verdict.HOLDS, "b", 0.009)
    unsure, failing = Claim("x", Verdict.OPEN, "c", 0.4), Claim("x", Verdict.FAILS, "d", 0.002)
    assert all_of([sure, less]) is less
    assert all_of([sure, unsure, less]) is unsure
    assert all_of([unsure, failing, less]) is failing
    untested = Claim("x", Verdict.OPEN, "e")
    assert all_of([sure, untested]) is untested


def test_networks_are_compared_at_equal_accuracy_only() -> None:
    def network(accuracy: float) -> Trained:
        clean = np.zeros((1, 1000))
        clean[:, : round(1000 * accuracy)] = 1.0
        return Trained([], clean)

    def first_half(one: Trained) -> NDArray[np.float64]:
        return one.clean[:, ::2]

    which = Comparison("better", first_half, "share")
    near = (network(0.95), network(0.955))
    assert compared("x", which, near).p_value is not None
    assert "not compared" in compared("x", which, (network(0.93), near[1])).evidence
    off = compared("x", which, near, target=0.985)
    assert (off.verdict, off.p_value) == (Verdict.OPEN, None)
    found = {
        ("A", "1"): network(0.93),
        ("A", "2"): network(0.951),
        ("B", "1"): network(0.932),
        ("B", "2"): network(0.953),
    }
    assert equals(found, "A", "B") == (("A", "2"), ("B", "2"))


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
