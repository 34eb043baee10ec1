"""The picture of certified accuracy: which curves it has, what its caption says, and that the steps are those of the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from robaudit.report.certified_tables import of_runs
from robaudit.report.pictures import certified
from robaudit.report.pictures.kinds import Choice, inline_svg, picture, sketch_of
from robaudit.stats.certified import certificates_of, certified_accuracy
from tests.certified_rows import certificate, named, pictured, stating
from tests.radius_rows import run_of

pytest.importorskip("matplotlib")


def test_several_runs_are_named_in_one_picture() -> None:
    base = pictured(name="base")
    assert "base" not in sketch_of("certified", base, Choice()).caption
    both = sketch_of("certified", base, Choice(beside=[pictured(12, name="new")]))
    for words in (
        "base: certified_radius at sigma 0.25 (l2): mean radius",
        "new: margin_radius at sigma 0.25 (linf): mean radius",
        "9 to 12",
    ):
        assert words in both.caption
    only = sketch_of("certified", base, Choice(("certified_radius",), (0.25,)))
    assert "sigma 0.5" not in only.caption
    assert "nothing certified" in only.caption
    assert "another class" in only.caption
    assert "at most 0.9 possible" in only.caption


def test_more_results_than_colours_are_named_but_not_drawn() -> None:
    rows = [certificate(i, 0.1, estimator=f"c{k}:norm=l2") for k in range(8) for i in range(3)]
    caption = sketch_of("certified", run_of(rows), Choice()).caption
    assert "Not shown: c6 at sigma 0.25, c7 at sigma 0.25." in caption
    assert inline_svg("certified", run_of(rows)).startswith("<svg ")


def test_results_keep_their_colour_and_none_is_used_twice_in_a_panel() -> None:
    """Seven results in two panels."""
    rows = [certificate(0, 0.1, estimator=f"c{k}:norm=l2") for k in range(6)]
    rows += [certificate(0, 0.1, estimator=f"{name}:norm=linf") for name in ("c5", "other", "c0")]
    panels, _ = certified.panels_of(of_runs([run_of(rows)]))
    places = {norm: {line.words.partition(" ")[0]: line.place for line in lines} for norm, lines in panels.items()}
    assert all(len(set(of.values())) == len(of) for of in places.values())
    assert places["l2"] == {f"c{k}": k for k in range(6)}
    assert places["linf"]["c5"] == 5


@pytest.mark.parametrize(
    "rows",
    [
        [certificate(0, 0.5)],
        [certificate(i, 0.0, None) for i in range(3)],
        [certificate(i, 0.5, 1) for i in range(3)],
        [certificate(0, 1e-300), certificate(1, 1e-300)],
        [
            certificate(i, 0.5, details=stating(0.1, 0.5), estimator="a name of an estimator that is longer than its panel" * 3)
            for i in range(2)
        ],
    ],
    ids=["one image", "nothing certified", "all wrong", "tiny", "long name"],
)
def test_unusual_results_are_drawn(rows: list[object]) -> None:
    made = run_of(rows)  # type: ignore[arg-type]
    assert picture("certified", made, "svg", width=3.3)
    assert picture("certified", made, "svg", Choice(beside=[named(made, "x" * 300)]))


def test_many_steps_are_thinned_and_never_up() -> None:
    random = np.random.default_rng(1)
    (found,) = certificates_of(run_of([certificate(i, float(r)) for i, r in enumerate(random.random(3000))]))
    whole = certified_accuracy(found)
    thin = certified.thinned(whole.curve())
    assert len(thin.radii) == certified.MOST_STEPS
    assert (thin.radii[0], thin.radii[-1]) == (0.0, whole.largest)
    for r in random.random(50):
        drawn = thin.values[np.searchsorted(thin.radii, r)] if r <= whole.largest else 0.0
        assert whole.at(float(r)).value - 0.01 <= drawn <= whole.at(float(r)).value
