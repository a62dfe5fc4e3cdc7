"""What a study writes: figures of what is known, tables that add up, names as text."""

import csv
import json
import re
from functools import partial

import pytest
from study_making import HOSTILE, SETS, carried_out, sets_of, table, write_pictures

from visleak.progress import silent
from visleak.report import renew_report
from visleak.storage import claimed
from visleak.study.document import CELLS, UNIONS, write
from visleak.study.results import RATES

PAPER = {
    "kind": "visleak published values",
    "schema": 1,
    "source": "Somebody <b> 2020",
    "cells": [{"query": HOSTILE, "reference": "one-train", "hard": 12.34, "soft": 0.5}],
    "intra": [{"query": HOSTILE, "hard": None, "soft": [1, 2]}],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory, natural):
    root = tmp_path_factory.mktemp("output")
    write_pictures(root, natural, SETS)
    (root / "paper.json").write_text(json.dumps(PAPER))
    return root


@pytest.fixture(scope="module")
def result(root):
    """A graded study with a benchmark that has a name of its own."""
    hostile = table(HOSTILE, dataset="one", roles=["B"], source="one/test")
    text = "paper = 'paper.json'\n" + sets_of("verify = true") + hostile
    text += table("nobody", roles=["P"])
    return carried_out(root, text, finished=partial(renew_report, private=True, progress=silent))


@pytest.fixture(scope="module")
def out(root, result):
    return root / "out"


def test_figures_are_made_of_what_is_known(out, root):
    """A study without grades has no figure of them, also where one stood before."""
    assert {path.stem for path in out.glob("*.svg")} == {"matrix", "grades", "intra", "union"}
    folder = root / "plain"
    with claimed(folder):  # as the earlier study did
        pass
    (folder / "grades.png").write_bytes(b"of an earlier study")
    carried_out(root, sets_of(), out="plain")
    assert not (folder / "grades.png").exists()
    assert (folder / "matrix.png").exists()
    # nor a link to a report that nobody wrote
    assert "<a href" not in (folder / "study.html").read_text()


def test_the_json_is_the_study(out, result):
    stored = json.loads((out / "study.json").read_text())
    assert (stored["schema"], stored["kind"]) == (1, "visleak study")
    assert len(stored["comparisons"]) == len(result.cells) == 6
    assert len(stored["totals"]) == 2
    assert [each["missing"] for each in stored["sets"] if each["name"] == "nobody"] == [
        "source is not filled in"
    ]
    assert {each["query_set"] for each in stored["skipped"]} == {"one-test", HOSTILE}
    (published,) = [c["published"] for c in stored["comparisons"] if c["published"]]
    assert published == {"hard": 12.34, "soft": 0.5, "hard_or_soft": 12.84}
    assert str(out.parent) not in (out / "study.json").read_text(), "a path of this machine"


def test_the_csv_files_hold_every_rate(out, result):
    with (out / "comparisons.csv").open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert tuple(header) == CELLS
    assert len(rows) == len(result.cells) * len(RATES)
    for values in rows:
        row = dict(zip(CELLS, values, strict=True))
        rate = result.cell(values[0].lstrip("'"), values[1]).rates[row["rate"]]
        assert (int(row["count"]), int(row["total"])) == (rate.count, rate.total)
        assert float(row["low"]) == pytest.approx(rate.low, abs=1e-6)
    with (out / "benchmarks.csv").open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert tuple(header) == UNIONS
    assert len(rows) == len(result.unions) * len(RATES)


def test_a_name_is_no_markup(out):
    """On the page, in Markdown and in LaTeX; links lead to reports that are there."""
    page = (out / "study.html").read_text()
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "Somebody &lt;b&gt; 2020" in page
    assert "<img" not in (out / "study.md").read_text().replace("\\<img", "")
    tex = (out / "study.tex").read_text()
    assert r"\textless{}img src=x onerror=alert(1)\textgreater{} \$x\$ a\_b \& 50 \%" in tex
    links = re.findall(r'<a href="(.*?)"', page)
    assert len(links) == 3
    for link in links:
        assert re.fullmatch(r"audits/[-\w.%+]+/report\.html", link)
        assert (out / link).is_file()


def test_ours_and_published_values_in_one_table(out, result):
    lines = (out / "study.md").read_text()
    cell = result.cell(HOSTILE, "one-train")
    assert f"{100 * cell.rates['hard'].share:.2f} / 12.34" in lines
    assert "| 1.00-2.00 |" in lines


def test_the_same_study_gives_the_same_bytes(out, result, root):
    """No date, no random ids."""
    write(result, root / "again")
    for path in sorted((root / "again").iterdir()):
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name


def test_headlines_contain_the_main_results(result):
    total = result.totals[0].rates["hard_or_soft"]
    assert result.headlines[0].startswith(f"one-test: {total} leak into at least one")
