"""What a study writes: figures with something on them, tables that add up, names as text."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from study_making import HOSTILE, SETS, carried_out, sets_of, table, with_reports, write_pictures

from visleak.rates import Rate
from visleak.storage import claimed
from visleak.study import Result
from visleak.study.document import CELLS, UNIONS, write
from visleak.study.results import RATES

pytestmark = pytest.mark.usefixtures("drawn_figures")

PAPER = {
    "kind": "visleak published values",
    "schema": 1,
    "source": "Somebody <b> 2020",
    "cells": [{"query": HOSTILE, "reference": "one-train", "hard": 12.34, "soft": 0.5}],
    "intra": [{"query": HOSTILE, "hard": None, "soft": [1, 2]}],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, natural: Mapping[str, np.ndarray]) -> Path:
    root = tmp_path_factory.mktemp("output")
    write_pictures(root, natural, SETS)
    (root / "paper.json").write_text(json.dumps(PAPER))
    return root


@pytest.fixture(scope="module")
def result(root: Path) -> Result:
    """A graded study with a benchmark that has a name of its own."""
    hostile = table(HOSTILE, dataset="one", roles=["B"], source="one/test")
    text = "paper = 'paper.json'\n" + sets_of("verify = true") + hostile
    return carried_out(root, text + table("nobody", roles=["P"]), **with_reports())


@pytest.fixture(scope="module")
def out(root: Path, result: Result) -> Path:
    return root / "out"


@pytest.mark.parametrize("name", ["matrix", "grades", "intra", "union"])
def test_figures_are_made_and_not_empty(out: Path, name: str) -> None:
    ElementTree.parse(out / f"{name}.svg")
    with Image.open(out / f"{name}.png") as image:
        assert image.width > 500
        colours = image.convert("RGB").getcolors(1 << 24)
    # the white page, and not only grey writing on it
    assert colours is not None
    shares = {colour: count / (image.width * image.height) for count, colour in colours}
    assert shares[255, 255, 255] < 0.97
    assert any(max(c) - min(c) > 60 and share > 0.003 for c, share in shares.items())


def test_no_figure_without_numbers(result: Result, root: Path) -> None:
    """A study without grades has no figure of them, also where one stood before."""
    folder = root / "plain"
    with claimed(folder):  # as the earlier study did
        pass
    (folder / "grades.png").write_bytes(b"of an earlier study")
    carried_out(root, sets_of(), out="plain")
    assert not (folder / "grades.png").exists()
    # nor a link to a report that nobody wrote
    assert "<a href" not in (folder / "study.html").read_text()
    assert (folder / "matrix.png").exists()


def test_the_json_is_the_study(out: Path, result: Result) -> None:
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
    text = (out / "study.json").read_text()
    assert str(out.parent) not in text, "a path of this machine"


def test_the_csv_files_hold_every_rate(out: Path, result: Result) -> None:
    with (out / "comparisons.csv").open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert tuple(header) == CELLS
    assert len(rows) == len(result.cells) * len(RATES)
    for cell in result.cells:
        each = cell.comparison
        mine = [
            dict(zip(CELLS, row, strict=True))
            for row in rows
            if row[0].lstrip("'") == each.query and row[1] == each.reference
        ]
        for row in mine:
            rate = cell.rates[row["rate"]]
            assert (int(row["count"]), int(row["total"])) == (rate.count, rate.total)
            assert float(row["low"]) == pytest.approx(rate.low, abs=1e-6)
    with (out / "benchmarks.csv").open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert tuple(header) == UNIONS
    assert len(rows) == len(result.unions) * len(RATES)


def test_a_name_is_no_markup(out: Path) -> None:
    """On the page, in Markdown, in SVG and in LaTeX."""
    page = (out / "study.html").read_text()
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "Somebody &lt;b&gt; 2020" in page
    assert not re.search(r"(src|href)=.?https?:", page)
    markdown = (out / "study.md").read_text()
    assert "<img" not in markdown.replace("\\<img", "")
    for line in markdown.splitlines():
        if line.startswith("| "):
            bare = re.sub(r"\\.", "", line)
            assert bare.count("|") > 2
    tex = (out / "study.tex").read_text()
    body = re.sub(r"\\[&%$#_{}]", "", tex)
    assert r"\textless{}img src=x onerror=alert(1)\textgreater{} \$x\$ a\_b \& 50 \%" in tex
    assert "$" not in body
    assert "#" not in body


def test_the_page_keeps_to_its_policy(out: Path) -> None:
    """No script, no network, no style but its own; links lead to reports that will be there."""
    page = (out / "study.html").read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert "default-src &#39;none&#39;" in policy or "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in page
    assert " style=" not in page
    links = re.findall(r'<a href="(.*?)"', page)
    assert len(links) == 3
    for link in links:
        assert re.fullmatch(r"audits/[-\w.%+]+/report\.html", link)
        assert (out / link).is_file()


def test_ours_and_published_values_in_one_table(out: Path, result: Result) -> None:
    """Where a named cell is computed; the rest has its own number alone."""
    lines = (out / "study.md").read_text()
    cell = result.cell(HOSTILE, "one-train")
    share = f"{100 * cell.rates['hard'].share:.2f}"
    assert f"{share} / 12.34" in lines
    assert "## Hard leaks, % (ours / published)" in lines
    assert "| 1.00-2.00 |" in lines
    assert "published: Somebody \\<b\\> 2020" in lines


def test_the_same_study_gives_the_same_bytes(out: Path, result: Result, root: Path) -> None:
    """No date, no random ids."""
    write(result, root / "again")
    for path in sorted((root / "again").iterdir()):
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name


def test_headlines_contain_the_main_results(result: Result) -> None:
    first = result.headlines[0]
    total = result.totals[0].rates["hard_or_soft"]
    assert first.startswith(f"one-test: {Rate.of(total.count, total.total)} leak into at least one")
    assert "; near or exact " in first
