"""Tables: readable at every width, without colour, and safe with hostile names."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from robaudit.api.run import from_stored
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import NO_INTERVAL, Interval
from robaudit.report.classes_section import bias_table
from robaudit.report.flagged_section import flags_table
from robaudit.report.sections import Entry, SectionRequest, section_csv, section_of
from robaudit.report.summary_section import overall_tables
from robaudit.report.tables import Cell, Column, Table, Terminal, cells, latex_text, markdown_text
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.stats.summary import summary_of
from tests.levels import sigma
from tests.rows import ROW as PLAIN_ROW
from tests.rows import class_bias, flag, summarise
from tests.unit.engine.tools import known
from tests.unit.report.html.tools import hand_made
from tests.unit.report.pictures.made import texts

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
ROW = replace(PLAIN_ROW, level=0.05)


def mc(n: int = 48, draws: int = 2000, **more: object) -> list[Row]:
    generator = np.random.default_rng(0)
    rows = []
    for i in range(n):
        p = 1.0 if generator.random() < 0.4 else generator.beta(4, 1)
        k = int(generator.binomial(draws, p))
        lower, upper = map(float, clopper_pearson(k, draws))
        row = replace(
            ROW,
            sample_id=f"test/img-{i:05d}.png",
            label=i % 10,
            predicted=i % 10,
            value=k / draws,
            lower=lower,
            upper=upper,
        )
        rows.append(replace(row, **more))  # type: ignore[arg-type]
    return rows


TAYLOR: dict[str, Any] = {
    "estimator": "taylor_mvs",
    "lower": None,
    "upper": None,
    "std_error": None,
    "interval": NO_INTERVAL,
}
MANY = [
    *mc(),
    *mc(1000, level=8 / 255),
    *mc(**TAYLOR),
    *mc(**{**TAYLOR, "estimator": "softmax", "quantity": "confidence"}),
]


def shown(tables: Table | Iterable[Table], width: int) -> list[str]:
    """Plain lines, as a pipe gets them."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False, color_system=None)
    console.print(Terminal([tables] if isinstance(tables, Table) else tables))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 100])
def test_nothing_is_cut_off_or_broken_at_any_width(width: int) -> None:
    """Intervals stay whole; names wrap, and where that is not enough the table continues below."""
    tables = (
        *overall_tables(summarise(MANY), {("mc", sigma(0.05)): 1234.5}),
        bias_table(class_bias(mc(200), class_names=NAMES, permutations=100)),
        flags_table(flag(mc(), below=0.9), NAMES),
    )
    for table in tables:
        lines = shown(table, width)
        assert all(len(line) <= width for line in lines)
        assert not any("…" in line for line in lines)
        body = lines[next((i for i, line in enumerate(lines) if line.startswith("──")), 0) :]
        cells_of = [
            cell.text for row in table.without_details().rows for cell in row if "[" in cell.text
        ]
        together = "\n".join(body).replace(", ", ",")
        assert all(
            f"[{text.partition(' [')[2]}".replace(", ", ",") in together for text in cells_of
        )


def test_a_narrow_terminal_gets_the_columns_in_parts() -> None:
    ids = [f"a/very/long/folder/of/images/{i:04d}.png" for i in range(3)]
    wide = Table(
        "",
        (Column("sample"), *(Column(f"column {i}", number=True) for i in range(8))),
        tuple(cells((one, *["0.123 [0.100, 0.150]"] * 8)) for one in ids),
    )
    lines = shown(wide, 70)
    assert all(len(line) <= 70 for line in lines)
    text = " ".join(lines)
    assert all(f"column {i}" in text for i in range(8))
    for one in ids:
        assert sum(one[-8:] in line for line in lines) >= 2, "each part names its lines"


def test_names_that_differ_in_their_middle_stay_different() -> None:
    names = [
        f"network-trained-{how}-augmentation-on-hospital-data-epoch-120"
        for how in ("with", "without")
    ]
    lines = shown(
        Table(
            "",
            (Column("run"), *(Column("mean", number=True),) * 3),
            tuple(cells((one, *["0.1 [0.0, 0.2]"] * 3)) for one in names),
        ),
        60,
    )
    together = "".join(re.findall(r"^ ?([a-z0-9-]+)", "\n".join(lines[2:]), re.MULTILINE))
    assert all(name in together for name in names)


def test_latex_and_markdown_are_the_same_table() -> None:
    table = Table(
        "50 % & more",
        (Column("name"), Column("value", number=True), Column("these", number=True, detail=True)),
        (cells(("a_b", ">= 1", "[0, 1]")), (Cell("[c]"), Cell("~2"), Cell(""))),
        notes=("how\nto read",),
    )
    assert latex_text([table]).splitlines()[1:] == [
        "% 50 % & more",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"name & value \\",
        r"\midrule",
        r"a\_b & $\geq$ 1 \\",
        r"{}[c] & \textasciitilde{}2 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip\noindent{\footnotesize how\textbackslash{}nto read\par}",
    ]
    assert markdown_text([table]).splitlines()[:4] == [
        "### 50 % &amp; more",
        "",
        "| name | value | these |",
        "| :--- | ---: | ---: |",
    ]


def test_the_overall_table_says_what_it_shows() -> None:
    lines = shown(overall_tables(summarise(MANY), {("mc", sigma(0.05)): 12.3}), 140)
    body = "\n".join(lines)
    assert lines[0] == "p_robust: probability that noise leaves the prediction unchanged"
    assert "confidence: softmax score" in body  # another quantity, another table
    assert any(
        line.startswith("mc ") and "0.05" in line and line.endswith("12.3") for line in lines
    )
    assert any(line.startswith("taylor_mvs") and "~0." in line for line in lines)
    assert "no interval" in body
    assert "1,000" in body


def test_a_single_image_beside_others() -> None:
    rows = [*mc(3), replace(mc(1)[0], estimator="splitting")]
    for some, says in (
        (rows, "images like these; of a single image, of this image."),
        (rows[:3], "images like these."),
        (rows[3:], "this image."),
    ):
        assert f"[ ] 95 % interval of the mean, {says}" in "\n".join(
            shown(overall_tables(summarise(some)), 200)
        )


def test_a_perfect_result_has_its_interval_everywhere() -> None:
    lower, _ = clopper_pearson(2000, 2000)
    rows = [replace(row, value=1.0, lower=float(lower), upper=1.0, std_error=0.0) for row in mc()]
    body = "\n".join(shown(overall_tables(summarise(rows)), 140))
    assert "1.000 [0.926, 1.000]" in body
    assert "1.000 [0.998, 1.000]" in body
    assert "0.0% [0.0%, 7.6%]" in body, "one image in 40 may miss on this side"
    assert not re.search(r"(?<!\[)\b1\.0+\b(?! \[|\])", body), "a bare 1"
    flags = "\n".join(shown(flags_table(flag(rows, bottom=3)), 100))
    assert flags.count("1.000 [0.998, 1.000]") == 3


def test_the_bias_table_names_the_classes_and_the_verdict() -> None:
    rows = [replace(row, value=row.value * (0.5 if row.label == 3 else 1.0)) for row in mc(400)]
    lines = shown(bias_table(class_bias(rows, class_names=NAMES)), 100)
    first = next(i for i, line in enumerate(lines) if line.startswith("──")) + 1
    assert lines[first].startswith("cat ")
    assert lines[first].rstrip().endswith("lower")
    assert any(line.startswith("Least robust: cat. Most robust:") for line in lines)
    told = " ".join(lines)
    assert "significant, p < 0.001 (permuting the class labels" in told
    assert "significantly from the others: cat" in told


def test_classes_of_a_single_image_are_counted_and_left_out() -> None:
    bias = class_bias(mc(12))
    lines = shown(bias_table(bias), 100)
    assert [line.split()[:2] for line in lines if line[:1].isdigit()][:2] == [
        ["1", "2"],
        ["0", "2"],
    ]
    values = [stats.mean.value for stats in bias.classes if stats.images == 1]
    mean = sum(values) / len(values)
    note = f"8 classes have a single image each (mean {mean:.3f}) and are not shown"
    assert any(line.startswith(note) for line in lines)
    entry = Entry("run", hand_made(mc(12)), bias)
    assert len(list(section_of("classes").lines(entry, SectionRequest()))) == 10


def test_a_page_says_in_a_sentence_that_no_class_has_two_images() -> None:
    section = section_of("classes")
    entries = section.find([hand_made(mc(9))], SectionRequest())
    (table,) = section.shown(entries, SectionRequest(), page=True)
    assert not table.columns
    assert table.notes == (
        "No two of the 9 classes have two images or more, so none is compared with others.",
    )


def test_the_figure_has_the_means_of_the_table() -> None:
    pytest.importorskip("matplotlib")
    from robaudit.report.pictures.kinds import drawing_of, figure_of, size_of

    lower, upper = map(float, clopper_pearson(0, 100))
    alone = replace(
        mc(1)[0], sample_id="alone", label=11, predicted=11, value=0.0, lower=lower, upper=upper
    )
    run = hand_made([*mc(20), alone])
    (bias,) = section_of("classes").records(run, SectionRequest())
    lines = [line for line in shown(bias_table(bias), 160) if line[:1].isdigit()]
    means = [" ".join(line.split()[2:5]) for line in lines if line.split()[1] == "2"]
    assert len(means) == 10
    figure = figure_of(drawing_of("classes", [run], SectionRequest()), size_of(7.0))
    drawn = [text.removesuffix(", n 2") for text in texts(figure) if text.endswith(", n 2")]
    assert set(drawn) == set(means)
    assert not any("n 1" in text for text in texts(figure) if text.endswith("n 1"))
    assert any("1 class has a single image (value 0.000)" in text for text in texts(figure))


def test_a_single_image_has_its_own_interval_everywhere() -> None:
    """Tables, figures and the text of a run in Python."""
    pytest.importorskip("matplotlib")
    from matplotlib.lines import Line2D

    from robaudit.report.pictures.kinds import drawing_of, figure_of, size_of

    lower, _ = map(float, clopper_pearson(100, 100))
    run = hand_made([replace(mc(1)[0], value=1.0, lower=lower, upper=1.0)])
    own = "1.000 [0.963, 1.000]"
    assert own in "\n".join(shown(overall_tables(summary_of(run)), 160))
    assert own in repr(from_stored(run))
    assert own in "\n".join(
        texts(figure_of(drawing_of("summary", [run], SectionRequest()), size_of(7.0)))
    )
    levels = figure_of(drawing_of("levels", [run], SectionRequest()), size_of(7.0))
    assert lower in {
        end
        for line in levels.findobj(Line2D)
        if isinstance(line, Line2D)
        for end in np.asarray(line.get_ydata()).tolist()
    }


def test_every_bracket_of_the_summary_is_explained() -> None:
    lower, _ = clopper_pearson(2000, 2000)
    rows = [replace(row, value=1.0, lower=float(lower), upper=1.0, std_error=0.0) for row in mc()]
    text = " ".join("\n".join(shown(overall_tables(summarise(rows)), 200)).split())
    assert "[ ] 95 % interval of the mean, images like these." in text
    assert "[ ] beside a median or percentile: 95 % interval for these images." in text
    assert "share of images whose value is below, which depends on the number of draws" in text


def test_the_summary_counts_the_images_without_an_end() -> None:
    """Their mean is a bound, too."""
    about: dict[str, Any] = {
        "estimator": "qnorm_mc:q=10",
        "quantity": "loss",
        "interval": Interval.parse("lognormal:approximate"),
    }
    rows = [
        replace(
            ROW,
            sample_id=str(i),
            value=1.0,
            lower=0.8,
            upper=None if i < 3 else 1.3,
            std_error=None,
            **about,
        )
        for i in range(8)
    ]
    (group,) = summarise(rows)
    assert (group.with_interval, group.open_below, group.open_above, group.lower_bounds) == (
        8,
        0,
        3,
        0,
    )
    assert (known(group.mean.population.upper), group.mean.measured.upper) == (math.inf, math.inf)
    text = " ".join("\n".join(shown(overall_tables([group]), 200)).split())
    assert (
        "No upper end: qnorm_mc:q=10 at sigma 0.05 (3 of 8 images); the true values may be much "
        "larger" in text
    )
    assert ">= 1.000 [" in text
    assert "No upper end" not in " ".join(shown(overall_tables(summarise(rows[3:])), 200))


def test_numbers_by_votes_are_said_to_be() -> None:
    fits = [
        replace(row, interval=Interval.parse("jackknife:approximate"), estimator="logit_gaussian")
        for row in mc(20)
    ]
    voted = [replace(row, votes=Votes((90, 6), split=2), label=0, predicted=0) for row in fits]
    for tables in (overall_tables(summarise(voted)), bias_table(class_bias(voted))):
        text = " ".join(shown(tables, 300))
        assert "logit_gaussian: by the votes of the noisy copies, as in gates" in text
        assert "0.938 [" in text
    assert "by the votes" not in " ".join(shown(overall_tables(summarise(fits)), 300))


def test_the_flags_table_counts_before_it_lists_and_caps_the_list() -> None:
    flagged = flag(mc(), below=0.9)
    lines = shown(flags_table(flagged, NAMES, limit=3), 120)
    assert f"{flagged.beyond} of 48 samples are below 0.9" in lines[2]
    assert f"... and {flagged.beyond - 3} more." in lines
    assert sum("img-" in line for line in lines) == 3
    assert any(
        "without an interval." in line
        for line in shown(flags_table(flag(mc(**TAYLOR), below=0.9)), 120)
    )


def test_a_flagged_sample_is_a_line_with_its_classes_and_its_value() -> None:
    row = replace(
        ROW, label=3, predicted=5, correct=False, flips_to=7, value=0.3, lower=0.2, upper=0.4
    )
    (line,) = (line for line in shown(flags_table(flag([row])), 120) if line.startswith("a "))
    assert line.split() == ["a", "3", "5", "wrong", "0.300", "[0.200,", "0.400]", "7", "confirmed"]


def test_confirmed_and_approximate_ones_are_both_counted() -> None:
    """As rows of logit_gaussian may be: some by an exact interval, some by one that leaves out the
    bias."""
    low = replace(ROW, value=0.3, lower=0.2, upper=0.4)
    rows = [
        low,
        replace(low, sample_id="b", interval=Interval.parse("jackknife:approximate")),
        replace(ROW, sample_id="c", value=0.95, lower=0.92, upper=0.98),
    ]
    text = " ".join(shown(flags_table(flag(rows, below=0.9)), 160))
    assert "2 of 3 samples are below 0.9: 1 confirmed, 1 approximate." in text


def test_hostile_names_are_text_and_not_markup() -> None:
    rows = mc(12, sample_id="[bold]x[/bold]\x1b[2J", value=0.1)
    lines = "\n".join(shown(flags_table(flag(rows), ["[red]r[/red]"] * 10), 140))
    assert "[bold]x[/bold]\\x1b[2J" in lines
    assert "[red]r[/red]" in lines
    assert "\x1b" not in lines


def test_csv_of_classes_and_flags() -> None:
    """Their columns, and a name that a spreadsheet would take for a formula."""
    run = hand_made(mc(), data={"where": "x", "class_names": ["=cat", *NAMES[1:]], "labelled": 48})
    bias = class_bias(mc(), class_names=NAMES)
    flagged = flag(mc(), below=0.9)
    classes, flags = (
        list(
            csv.DictReader(
                io.StringIO(section_csv(name, [Entry("run", run, record)], SectionRequest()))
            )
        )
        for name, record in (("classes", bias), ("flagged", flagged))
    )
    assert {
        "q25",
        "median",
        "q75",
        "below",
        "below_count",
        "difference_lower",
        "p_value",
        "differs",
    } <= set(classes[0])
    assert {line["predicted_name"] for line in flags if line["predicted"] == "0"} == {"'=cat"}
    assert len(flags) == flagged.beyond


def test_a_mean_that_leans_is_explained() -> None:
    rows = [replace(row, interval=Interval.parse("confidence-sequence")) for row in mc(12)]
    assert any("stopped early" in line for line in shown(overall_tables(summarise(rows)), 140))
    assert not any(
        "stopped early" in line for line in shown(overall_tables(summarise(mc(12))), 140)
    )


def bounded(name: str, value: float, lower: float | None, upper: float, label: int = 0) -> Row:
    interval = Interval.parse("upper bound" if lower is None else "lognormal:4 repeats")
    about: dict[str, Any] = {
        "estimator": "splitting",
        "quantity": "log10_p_fail",
        "label": label,
        "predicted": label,
        "votes": None,
    }
    return replace(
        ROW,
        sample_id=name,
        value=value,
        lower=lower,
        upper=upper,
        std_error=None,
        interval=interval,
        **about,
    )


def test_a_mean_with_bounds_is_one_and_quantiles_are_what_is_known() -> None:
    """Rows that bound a value from one side only, on a scale without a low end."""
    measured = [
        bounded("a", -3.0, -3.2, -2.8),
        bounded("b", -6.0, -6.4, -5.6),
        bounded("c", -5.0, -5.2, -4.8, 1),
    ]
    bounds = [
        bounded("d", -12.0, None, -12.0),
        bounded("e", -12.0, None, -12.0, 1),
        bounded("f", -12.0, None, -12.0, 1),
    ]
    (group,) = summarise(measured + bounds)
    assert group.with_interval == 6
    assert group.mean.value == pytest.approx(np.mean([-3, -6, -5, -12, -12, -12]))
    assert group.mean.measured.lower == -math.inf
    assert group.mean.measured.upper is not None
    assert group.mean.value < group.mean.measured.upper < -8
    assert (group.p05.measured.lower, group.p05.measured.upper) == (-math.inf, -12.0)
    assert group.median.measured.lower == -math.inf
    # Of two neighbours: the bound itself, and an end of b so wide that the ends of all images hold
    # at once.
    assert group.median.measured.upper == pytest.approx((-12 + -6 + 3 * 0.4) / 2)
    for tables in (overall_tables([group]), bias_table(class_bias(measured + bounds))):
        text = "\n".join(shown(tables, 120))
        assert all(words in text for words in ("power of ten", "lower is better", "<= "))
        assert not any(words in text for words in ("< 0.5", "< 0.9", "~"))


def test_a_page_of_a_single_image_is_of_one_class() -> None:
    section = section_of("classes")
    entries = section.find([hand_made(mc(1))], SectionRequest())
    (table,) = section.shown(entries, SectionRequest(), page=True)
    assert table.notes == ("All images are of one class.",)
