"""What must hold between results: each relation finds what breaks it, and nothing where nothing is
wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from robaudit.methods.certificates.relations import leaving
from robaudit.numerics.image_intervals import TAIL, Floats
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.report.consistency_tables import blame_lines
from robaudit.results import Certificate, Searched
from robaudit.runs.rows import Row
from robaudit.stats.consistency import CONFIDENCE, Consistency, check
from robaudit.stats.relations import Setting, Verdict, installed_relations, norm_factor, widening
from tests.radius_rows import row
from tests.spectrum_rows import BOX, SIGMA, STRONG, exact, flip, loss, made, proof, rare, votes

PAGE = Path(__file__).parents[3] / "docs" / "research" / "spectrum.md"
Finding = tuple[str, Verdict, tuple[str, ...]]


def findings(found: Consistency) -> list[Finding]:
    return [
        (one.relation, one.verdict, tuple(key.estimator for key in one.wrong))
        for one in found.contradictions
    ]


VIOLATION = Verdict.VIOLATION
LOOSE = Verdict.APPROXIMATION
VOTE = Certificate(p_lower=0.9)


@pytest.mark.parametrize(
    ("rows", "relation", "verdict", "wrong"),
    [
        ([proof(1.0), flip(0.9)], "certified <= witnessed", VIOLATION, ("margin_radius:norm=l2",)),
        ([exact(1.0), flip(0.9)], "certified <= witnessed", VIOLATION, ("radius_exact:norm=l2",)),
        (
            [proof(1.0), exact(0.9)],
            "certified <= witnessed",
            VIOLATION,
            ("margin_radius:norm=l2", "radius_exact:norm=l2"),
        ),
        (
            [proof(1.0, "linf"), flip(0.9)],
            "certified <= witnessed",
            VIOLATION,
            ("margin_radius:norm=linf",),
        ),
        (
            [proof(1.0), flip(0.4, "linf")],
            "certified <= witnessed",
            VIOLATION,
            ("margin_radius:norm=l2",),
        ),
        (
            [proof(1.0, "l1"), flip(0.2, "linf")],
            "certified <= witnessed",
            VIOLATION,
            ("margin_radius:norm=l1",),
        ),
        (
            [proof(0.5), votes(900, 1000)],
            "noise within the certified ball",
            VIOLATION,
            ("mc", "margin_radius:norm=l2"),
        ),
        (
            [proof(0.2, "linf"), votes(999, 1000, BOX)],
            "noise within the certified ball",
            VIOLATION,
            ("margin_radius:norm=linf",),
        ),
        (
            [proof(0.1, at=SIGMA, stated=VOTE), votes(700, 1000)],
            "p_lower <= p_robust",
            VIOLATION,
            ("mc", "margin_radius:norm=l2"),
        ),
        (
            [proof(0.1, of=1, at=SIGMA, stated=VOTE), votes(700, 1000)],
            "p_lower <= p_robust",
            VIOLATION,
            ("margin_radius:norm=l2", "mc"),
        ),
        ([votes(900, 1000), rare(-3.0)], "p_robust = 1 - p_fail", VIOLATION, ("mc", "splitting")),
        (
            [loss(2.0, 10), loss(1.5, 100)],
            "Z_q rises with q",
            VIOLATION,
            ("qnorm_path:q=10", "qnorm_path:q=100"),
        ),
    ],
)
def test_what_breaks_a_relation_is_found_and_named(
    rows: list[Row], relation: str, verdict: Verdict, wrong: tuple[str, ...]
) -> None:
    found = check(made(rows))
    assert (relation, verdict, wrong) in findings(found)
    assert {one.sample_id for one in found.contradictions} == {"7"}
    assert {one[0] for one in findings(found)} <= {relation, "certified <= witnessed"}
    assert all(
        "7: " in one.text and one.at_least.bound > one.at_most.bound for one in found.contradictions
    )
    assert bool(found.violations) == (verdict is VIOLATION)


@pytest.mark.parametrize(
    "rows",
    [
        [proof(0.9), flip(0.9)],
        [exact(0.9), flip(0.9 * (1 - 1e-4))],  # rounding
        [proof(1.0), flip(0.5, "linf")],  # sqrt(4) * 0.5
        [proof(0.0), flip(0.1)],  # abstains
        [proof(0.12, at=SIGMA, stated=VOTE), flip(0.1)],  # the vote is another classifier
        [proof(0.2, "linf"), votes(1000, 1000, BOX)],
        [proof(0.5), votes(1000, 1000)],
        [proof(0.1, at=SIGMA, stated=VOTE), votes(890, 1000)],
        [votes(999, 1000), rare(-3.1)],
        [votes(100, 1000), rare(-0.04, half=30.0)],
        [votes(1000, 1000), rare(-6.0, kind=IntervalKind.UPPER_BOUND)],
        [loss(1.5, 10), loss(2.0, 100), loss(1.0, None)],
        [loss(1.5, 100, half=1.0), loss(1.3, 1000, half=1.0)],
        [loss(2.0, 10), loss(1.5, 100, name="qnorm_mc")],
        [exact(math.inf, interval=Interval(IntervalKind.CENSORED)), flip(1.0)],
    ],
)
def test_what_fits_together_is_not_accused(rows: list[Row]) -> None:
    assert findings(check(made(rows))) == []


def test_an_approximation_is_no_bug() -> None:
    """Results without an interval, those whose interval covers sampling only, and passes in a lower
    precision."""
    bare = row(
        "7",
        0.9,
        SIGMA,
        quantity=P_ROBUST.name,
        estimator="taylor",
        lower=None,
        upper=None,
        interval=Interval(IntervalKind.NONE),
    )
    found = check(made([proof(0.6), bare]))
    assert findings(found) == [("noise within the certified ball", LOOSE, ("taylor",))]
    assert not found.violations
    assert (
        findings(check(made([proof(0.2, "linf"), votes(999, 1000, BOX)], precision="bf16")))[0][1]
        is LOOSE
    )
    # known to differ from measurements
    assert findings(check(made([bare, votes(100, 1000)]))) == []
    copies = Interval(IntervalKind.LOGNORMAL, covers_bias=False)
    missed = [
        replace(loss(value, 10, name=name), interval=copies)
        for name, value in (("qnorm_path", 1.0), ("qnorm_mc", 2.0))
    ]
    assert findings(check(made(missed))) == [
        ("Z_q rises with q", LOOSE, ("qnorm_mc:q=10", "qnorm_path:q=10"))
    ]


def test_comparisons_that_need_the_number_of_pixels() -> None:
    rows = [proof(1.0), flip(0.4, "linf"), votes(999, 1000)]
    assert findings(check(made(rows, shape=None))) == []
    assert len(findings(check(made(rows)))) == 2


def test_what_the_spec_declares_is_no_bug() -> None:
    """A Lipschitz constant: where it is wrong, no estimator is to blame."""
    rows = [proof(1.0), flip(0.9)]
    run = made(rows)
    told = {"margin_radius": {"lipschitz": {"l2": 1.0, "source": "a guess"}}}
    run.info.spec["estimators"] = [
        {"name": name, "options": options} for name, options in told.items()
    ]
    found = check(run)
    assert findings(found) == [
        ("certified <= witnessed", Verdict.DECLARED, ("margin_radius:norm=l2",))
    ]
    assert not found.violations
    assert [line.partition(" is false: ")[2][:24] for line in blame_lines(found)] == [
        "margin_radius:norm=l2: 1"
    ]
    run.info.spec["estimators"] = [{"name": name, "options": {"lipschitz": None}} for name in told]
    assert [one.verdict for one in check(run).contradictions] == [VIOLATION]


def test_a_radius_that_rounding_moves() -> None:
    """Logits of 1000 with a margin of .01: a pass may see the flip somewhat before the closed form
    has it."""
    off = Searched(rounding=0.01)
    assert findings(check(made([exact(0.5, search=off), flip(0.492)]))) == []
    assert findings(check(made([proof(0.508), exact(0.5, search=off)]))) == []
    assert findings(check(made([exact(0.5, search=off), flip(0.48)]))) == [
        ("certified <= witnessed", VIOLATION, ("radius_exact:norm=l2",)),
    ]


def test_counts_and_blame() -> None:
    planted = [proof(1.0, sample_id=str(i), name="planted") for i in range(5)]
    flips = [flip(0.9 if i else 2.0, sample_id=str(i)) for i in range(5)]
    found = check(made([one for pair in zip(planted, flips, strict=True) for one in pair]))
    assert (found.images, found.violations) == (5, 4)
    (line,) = blame_lines(found)
    assert line.startswith(
        "bug in an estimator: planted:norm=l2: 4 violations on 4 images; first: sample 1: "
    )
    (radii,) = [one for one in found.relations if one.comparisons]
    assert (radii.comparisons, radii.images, radii.contradictions) == (5, 5, 4)
    document = found.document()
    assert (document["violations"], len(document["contradictions"]), document["comparisons"]) == (
        4,
        4,
        5,
    )


# --- no accusation by chance


def _simulated(generator: np.random.Generator, images: int) -> list[Row]:
    """Two classes and a linear boundary: every result is drawn from its exact distribution."""
    rows = []
    for i in range(images):
        radius = float(generator.exponential(0.2)) + 1e-3
        mine = [exact(radius, sample_id=str(i)), flip(radius, sample_id=str(i))]
        for at in (SIGMA, STRONG):
            p_fail = float(ndtr(-radius / at.number))
            for name, draws in (("mc", 1000), ("other", 200)):
                mine.append(
                    votes(draws - int(generator.binomial(draws, p_fail)), draws, at, name, str(i))
                )
            kept = int(generator.binomial(1000, 1 - p_fail))
            p_lower = float(clopper_pearson(kept, 1000, 0.998)[0])
            if p_lower > 0.5:
                mine.append(
                    proof(
                        at.number * float(ndtri(p_lower)),
                        at=at,
                        stated=Certificate(p_lower=p_lower, kept=kept, draws=1000),
                        sample_id=str(i),
                    )
                )
        rows += mine
    return rows


@pytest.mark.parametrize("runs", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_no_accusation_by_chance(runs: int) -> None:
    """95 % intervals alone would accuse a run of some hundred images; the simultaneous ones do
    not."""
    generator = np.random.default_rng(5)
    suspects = 0
    for _ in range(runs):
        run = made(_simulated(generator, 150))
        found = check(run)
        assert found.contradictions == ()
        assert found.comparisons > 1000
        for rows in (run.rows[i : i + 8] for i in range(0, 800, 8)):
            suspects += sum(
                one.excludes(pair, TAIL)
                for one in installed_relations()
                for pair in one.pairs(rows, Setting.from_info(run.info))
            )
    assert suspects > 0
    assert found.tail < (1 - CONFIDENCE) / 1000


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(1e-12, TAIL))
def test_counted_intervals_widen_at_least_as_much_as_the_exact_ones(
    draws: int, share: float, tail: float
) -> None:
    """Confidence sequences have no closed form at another confidence; Clopper-Pearson's shows that
    the rule is wide enough."""
    kept = round(share * draws)
    value = kept / draws
    scale = widening(IntervalKind.CONFIDENCE_SEQUENCE, tail)
    given_, wanted = (clopper_pearson(kept, draws, 1 - 2 * one) for one in (TAIL, tail))
    assert value - (value - given_[0]) * scale <= wanted[0] + 1e-9
    assert value + (given_[1] - value) * scale >= wanted[1] - 1e-9


@given(st.floats(1e-12, TAIL), st.floats(1e-12, TAIL), st.sampled_from(IntervalKind))
def test_intervals_widen_with_the_confidence(
    first: float, second: float, kind: IntervalKind
) -> None:
    small, large = sorted((first, second))
    assert widening(kind, small) >= widening(kind, large) >= 1.0
    assert widening(kind, TAIL) == 1.0


# --- numbers


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=8),
    st.sampled_from([1.0, 2.0, math.inf]),
    st.sampled_from([1.0, 2.0, math.inf]),
)
def test_norms_differ_by_at_most_the_factor(values: list[int], first: float, second: float) -> None:
    factor = norm_factor(first, second, len(values))
    assert factor is not None
    assert np.linalg.norm(values, first) <= factor * np.linalg.norm(values, second) * (1 + 1e-12)
    ones = np.ones(len(values))
    if first < second:
        assert np.linalg.norm(ones, first) == pytest.approx(factor * np.linalg.norm(ones, second))


_KINDS = {
    "gaussian": {"kind": "gaussian"},
    "laplace": {"kind": "laplace"},
    "box": {"kind": "uniform"},
    "ball": {"kind": "uniform", "norm": "l2"},
    "sphere": {"kind": "uniform", "norm": "l2", "support": "sphere"},
}


def _draws(name: str, level: float, pixels: int) -> Floats:
    generator = np.random.default_rng(3)
    size = (40_000, pixels)
    if name == "laplace":
        return generator.laplace(scale=level / math.sqrt(2), size=size)
    if name == "box":
        return generator.uniform(-level, level, size)
    z = generator.standard_normal(size)
    if name == "gaussian":
        return level * z
    length = np.linalg.norm(z, axis=1, keepdims=True)
    on_sphere: Floats = level * z / length
    return (
        on_sphere * generator.uniform(size=(len(z), 1)) ** (1 / pixels)
        if name == "ball"
        else on_sphere
    )


@pytest.mark.parametrize("name", _KINDS)
@pytest.mark.parametrize("order", [1.0, 2.0, math.inf])
def test_how_often_noise_leaves_a_ball(name: str, order: float) -> None:
    """Never more often than the bound; just as often in the norms that the noise is of."""
    exact_in = {
        "gaussian": (2.0, math.inf),
        "laplace": (1.0, math.inf),
        "box": (math.inf,),
        "ball": (2.0,),
        "sphere": (2.0,),
    }[name]
    draws = _draws(name, 0.3, 5)
    sizes = np.linalg.norm(draws, order, axis=1)
    for radius in np.quantile(sizes, [0.05, 0.5, 0.95, 0.999]) * 1.0001:
        left = float((sizes > radius).mean())
        bound = leaving(_KINDS[name], 0.3, 5, order, float(radius))
        error = math.sqrt(max(left * (1 - left), 1e-4) / len(draws))
        assert left <= bound + 5 * error
        if order in exact_in and name != "sphere":
            assert left == pytest.approx(bound, abs=5 * error)
    assert leaving(_KINDS[name], 1e-6, 5, order, 0.3) < 1e-9
    assert leaving(_KINDS[name], 1e6, 5, order, 0.3) > 0.999


def test_noise_of_unknown_size() -> None:
    rain = {"kind": "corruption"}
    assert leaving(rain, 3.0, 5, 2.0, 1.0) == 1.0
    assert None not in Setting.from_info(made([]).info).noises


def test_the_page_has_every_relation() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for one in installed_relations():
        assert f"| {one.name} | {one.says} | {one.source} |" in text
