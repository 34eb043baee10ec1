"""Results without a finite value do not take the others with them."""

from __future__ import annotations

import math

import pytest

from robaudit.errors import NothingLeftError
from robaudit.report.sections import Entry, SectionRequest, section_of
from robaudit.report.summary_section import SummarySection
from robaudit.runs.run import Run
from robaudit.stats.summary import summary_of
from tests.golden import Golden
from tests.unit.gates.tools import row, run_of


@pytest.fixture
def run() -> Run:
    return run_of(
        [
            row(i, value, estimator=name)
            for i in range(3)
            for name, value in (("mc", 0.3), ("broken", math.nan))
        ]
    )


@pytest.mark.parametrize("name", ["flagged", "classes"])
def test_a_result_without_values_is_left_out(name: str, run: Run, golden: Golden) -> None:
    assert [record.key.estimator for record in section_of(name).records(run, SectionRequest())] == [
        "mc"
    ]
    with pytest.raises(NothingLeftError) as error:
        section_of(name).records(run, SectionRequest(estimators=("broken",)))
    golden(error.value)


def test_the_summary_names_it(run: Run) -> None:
    *_, last = SummarySection().tables([Entry("", run, summary_of(run))], SectionRequest())
    assert last.notes == (
        "Without a finite value for any image: broken at sigma 0.1; the column note of "
        "samples.csv says why.",
    )
