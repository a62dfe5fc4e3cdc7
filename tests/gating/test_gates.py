"""Gates: how they are read, when they fail, and their results for other tools."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from PIL import Image

import visleak
from visleak.errors import UsageError
from visleak.gating.baseline import read_baseline
from visleak.gating.gates import Gate, parse, parse_all, render, tripped
from visleak.rates import Rate
from visleak.records import FileCount
from visleak.storage import AuditSummary, ComparisonSummary, SetSummary, TotalSummary


def summary(count, total):
    keys = ("exact", "near_or_exact", "similar_or_closer", "hard", "hard_or_soft")
    rates = dict.fromkeys(keys, Rate.of(count, total))
    return AuditSummary(
        totals=(TotalSummary("test", rates=rates),),
        sets=(SetSummary("test", readable=total - count, unreadable=count),),
    )


def test_malformed_gates_are_refused():
    rates = ("", "x", "2", "-1", "101%", "nan", "1_0")
    for text in ("", "nears", "=0.1", *(f"near={rate}" for rate in rates)):
        with pytest.raises(UsageError, match=r"^--fail-on"):
            parse(text)


@pytest.mark.parametrize("name", ["exact", "near", "similar", "hard", "soft", "unreadable"])
def test_a_gate_trips_above_its_rate_only(name):
    content = summary(1, 100)
    assert len(tripped([Gate(name)], content)) == 1
    assert len(tripped([Gate(name, 0.0099)], content)) == 1
    assert tripped([Gate(name, 0.01)], content) == []
    assert tripped([Gate(name)], summary(0, 100)) == []
    # a rate of no image does not pass
    assert len(tripped([Gate(name, 1.0)], summary(0, 0))) == (name != "unreadable")


@pytest.mark.parametrize("files", [False, True])
def test_gates_bound_what_was_not_compared_in_each_set(files):
    """Another gate bounds it by 5 %, whichever side it is; a bound of one's own replaces that."""
    for lost, trips in ((5, False), (6, True)):
        part = {"readable": 100 - lost, "unreadable": lost}
        if files:
            part = {"files": FileCount(100 - lost, 100, ("img_emb_3.npy",)), "readable": 1000}
        sets = (SetSummary("test", readable=1000), SetSummary("train", **part))
        content = replace(summary(0, 100), sets=sets)
        lines = tripped(parse_all(["near"]), content)
        words = "6 of 100 train files" if files else "6 of 100 train images"
        assert [words in line and "unreadable=RATE" in line for line in lines] == [True] * trips
        assert tripped(parse_all(["near", "unreadable=10%"]), content) == []
        assert len(tripped(parse_all(["near", "unreadable"]), content)) == 1
        assert tripped(parse_all([]), content) == []


def test_a_set_of_which_nothing_was_compared_passes_no_gate():
    alone = (ComparisonSummary("test", "test", coverage="within"),)
    for flat, within, words in (
        (3, (), "every readable image of test is blank"),
        (2, alone, "test has no second image"),
        (2, (), ""),
        (1, alone, ""),
    ):
        sets = (SetSummary("test", readable=3, flat=flat),)
        content = replace(summary(0, 3), sets=sets, comparisons=within)
        lines = tripped(parse_all(["near", "unreadable=100%"]), content)
        assert [words in line for line in lines] == [True] * bool(words)


def test_percent_in_gates():
    """No rate that equals the bound trips it, whatever the fraction."""
    assert [parse(f"near={text}").allowed for text in (".5", "2.5%", "1e-3")] == [0.5, 0.025, 0.001]
    for count in range(1, 101):
        for text in (f"{count}%", str(count / 100)):
            assert tripped([parse(f"near={text}")], summary(count, 100)) == []


#: A name with characters that every format has to escape.
ODD = "a,b:c 100%<&>.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, natural):
    root = tmp_path_factory.mktemp("gates")
    for side, names in (("test", (ODD, "other.png")), ("train", ("t.png",))):
        (root / side).mkdir()
        for name in names:
            pixels = natural["coffee" if name == "other.png" else "astronaut"][:96, :96]
            Image.fromarray(pixels).save(root / side / name)
    visleak.audit(root / "test", root / "train", out=root / "out", cache=None)
    return root / "out"


def test_junit(folder):
    root = ElementTree.fromstring(render("junit", parse_all(["near", "exact=60%"]), folder))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    cases = {(case.get("classname"), case.get("name")): case for case in suite}
    failed = cases["visleak.near", "test"].find("failure")
    assert failed is not None
    assert "1 of 2 test images" in str(failed.get("message"))
    assert ODD in str(failed.text)
    assert cases["visleak.exact", "test"].find("failure") is None


def test_sarif(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    content = json.loads(render("sarif", parse_all(["near"]), folder))
    (made,) = content["runs"]
    assert content["version"] == "2.1.0"
    rules = {rule["id"] for rule in made["tool"]["driver"]["rules"]}
    assert rules == {"leak/near", "leak/unreadable"}
    gate, pair = made["results"]
    assert "locations" not in gate
    uri = pair["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "test/a%2Cb%3Ac%20100%25%3C%26%3E.png"


def test_annotations_of_github(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    gate, pair, *passed = render("github", parse_all(["near"]), folder).splitlines()
    assert gate.startswith("::error title=visleak::gate near: 1 of 2 test images (50.00 %25)")
    assert pair.startswith("::error file=test/a%2Cb%3Ac 100%25<&>.png,title=visleak near::test ")
    # known leaks pass
    known = read_baseline([folder], None)
    passed += render("github", parse_all(["near"]), folder, known).splitlines()
    assert all(line.startswith("::notice ") for line in passed)
    assert any("1 known from baseline" in line for line in passed)
