"""Tables of certified accuracy, and their CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import pytest

from robaudit.cli import console
from robaudit.methods.certificates.accuracy import certificates_of, certified_accuracy
from robaudit.methods.certificates.certified_section import CertifiedSection, usual_radii
from robaudit.report.sections import SectionRequest, section_csv, section_of
from robaudit.report.tables import Table, Terminal
from robaudit.runs.run import Run
from tests.certified_rows import MIXED, certificate, pictured, stating
from tests.radius_rows import run_of


@pytest.mark.parametrize(
    ("largest", "radii"),
    [
        (0.0, (0.0,)),
        (0.95, (0.0, 0.25, 0.5, 0.75)),
        (0.25, (0.0, 0.25)),
        (2.0, tuple(i / 4 for i in range(9))),
        (3.9, tuple(i / 2 for i in range(8))),
        (0.03, tuple(i * 0.005 for i in range(7))),
        (0.0314, tuple(i * 0.005 for i in range(7))),
        (20.0, tuple(i * 2.5 for i in range(9))),
    ],
)
def test_usual_radii(largest: float, radii: tuple[float, ...]) -> None:
    rows = [certificate(0, largest), certificate(1, 99.0, 1), certificate(2, 0.01 * largest)]
    (found,) = certificates_of(run_of(rows))
    assert usual_radii([certified_accuracy(found)]) == pytest.approx(radii)


def tables_of(*runs: Run, radius: Sequence[float] = ()) -> list[Table]:
    section = CertifiedSection()
    request = SectionRequest(options={"radius": radius})
    return list(section.tables(section.find(runs, request), request))


def plain_text(tables: Iterable[Table]) -> str:
    """As a file has them, 120 columns wide."""
    return console.plain_text(Terminal(tables))


def test_one_norm_in_a_table() -> None:
    tables = tables_of(pictured(name="base"), pictured(12, name="new"))
    assert [(table.heading.rpartition(" ")[2], len(table.columns) - 1) for table in tables] == [
        ("l2", 4),
        ("linf", 2),
    ]
    text = plain_text(tables)
    assert text.count("At r: share of images") == 1
    assert "not certifiable" in text
    assert [
        line.split()[-1] for line in text.splitlines() if line.startswith("largest possible")
    ] == ["–"]
    assert (
        "certified_radius: a certificate is false with probability at most 0.001: at most 0.012 "
        "expected among as many." in text
    )


def test_the_numbers_of_a_table() -> None:
    rows = [*MIXED, certificate(8, 1.0, label=None)]
    text = plain_text(tables_of(run_of(rows), radius=[0.0, 0.5, 3.0]))
    lines = {
        line.split("  ")[0].strip(): line.split("  ")[-1].strip()
        for line in text.splitlines()
        if "  " in line
    }
    assert lines["clean accuracy"] == "75.0% [34.9%, 96.9%]"
    assert lines["r > 0"] == "62.5% [24.4%, 91.5%]"
    assert lines["r >= 0.5"] == "37.5% [8.5%, 75.6%]"
    assert lines["r >= 3"] == "0.0% [0.0%, 37.0%]"
    assert lines["another class certified"] == "12.5% [0.3%, 52.7%]"
    assert lines["nothing certified"] == "25.0% [3.1%, 65.1%]"
    assert lines["mean radius"].startswith("0.312 [")
    assert lines["median radius"] == "0.3"
    assert lines["largest radius"] == "0.9"
    assert "certified_radius at sigma 0.25: 1 image without a label left out." in text


def test_csv_has_every_number_once() -> None:
    found = CertifiedSection().records(pictured(), SectionRequest())

    def lines_of(request: SectionRequest) -> list[dict[str, str]]:
        name = "certified"
        return list(
            csv.DictReader(
                io.StringIO(
                    section_csv(name, section_of(name).find([pictured()], request), request)
                )
            )
        )

    lines = lines_of(SectionRequest(options={"radius": (0.0, 0.3)}))
    for one in found:
        key = one.certificates.key
        mine = [
            line
            for line in lines
            if (line["estimator"], float(line["level"])) == (key.estimator, key.at.level)
        ]
        assert [line["statistic"] for line in mine] == [
            "clean_accuracy",
            *["certified_accuracy"] * 2,
            "wrong_class",
            "abstains",
            "mean_radius",
            "median_radius",
            "largest_radius",
            "largest_possible",
        ]
        assert float(mine[2]["value"]) == one.at(0.3).value
        assert int(mine[2]["count"]) == one.at(0.3).count
        assert {line["norm"] for line in mine} == {one.certificates.key.norm}
        assert float(mine[5]["lower"]) == (one.mean.bounds or (None,))[0]
    steps = lines_of(SectionRequest(options={"radius": None}))
    assert len(steps) == sum(len(one.curve().radii) for one in found)
    assert {line["statistic"] for line in steps} == {"certified_accuracy"}


def test_a_radius_that_was_asked_about_is_shown_and_the_others_are_lower_bounds() -> None:
    rows = [certificate(i, 0.6, stated=stating(0.001, 0.9, 0.55)) for i in range(3)]
    text = plain_text(tables_of(run_of(rows)))
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("r ")] == [
        "r > 0",
        "r >= 0.25",
        "r >= 0.5",
        "r >= 0.55",
    ]
    assert (
        "certified_radius at sigma 0.25: images stopped once r >= 0.55 was decided: lower bounds "
        "at other radii." in text
    )
