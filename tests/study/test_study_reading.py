"""Every mistake in a file of sets, or of published values, is one line with file and key."""

import json
from pathlib import Path

import pytest
from study_making import table

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.study import read_study
from visleak.study.config import Inclusion, read_paper
from visleak.study.running import locate

A = table("a", roles=["B"])


def matched(match):
    return table("a", roles=["B"], contains=[{"set": "b", "match": match}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sets = ", "is not valid TOML: Invalid value"),
        ("", "key 'sets': there are no sets; write a table [sets.NAME] for each"),
        ("sets = 3", "key 'sets': must be a table; got 3"),
        ("sets.a = 3", "key 'sets.a': must be a table [sets.NAME]; got 3"),
        ("setts = 3\n" + A, "key 'setts': there is no such key; did you mean 'sets'?"),
        (table("a", rolls=["B"]), "set 'a', key 'rolls': there is no such key; did you mean 'rol"),
        (table("a", roles="B"), "set 'a', key 'roles': must be a list; got 'B'"),
        (table("a", roles=["bench"]), "set 'a', key 'roles': 'bench' is not a role; did you mean"),
        (table("a", roles=[3]), "set 'a', key 'roles': must be a list of texts; got 3 in it"),
        (table("a", roles=["B", "B"]), "set 'a', key 'roles': 'B' is listed twice"),
        (table("a", source="x"), "set 'a', key 'roles': is missing; give some of benchmark, train"),
        (table("a", roles=["B"], source=3), "set 'a', key 'source': must be text; got 3"),
        (table("a", roles=["B"], images=True), "key 'images': must be a whole number or text; got"),
        (table("a", roles=["B"], images="3 M"), "must be a count such as 31783 or \"118k\"; got"),
        (table(" ", roles=["B"]), "set ' ', name: a set needs a name: [sets.NAME]"),
        (table("a", roles=["B"], contains=["b"]), "set 'a', key 'contains': there is no set 'b'"),
        (table("a", roles=["B"], contains=["a"]), "key 'contains': a set is not part of itself"),
        (table("a", roles=["B"], contains=[3]), "lists names of sets, or {set = .., match = ..}"),
        (table("a", roles=["B"], contains=[{"sett": "b"}]), "set 'a', key 'contains', key"),
        (table("a", roles=["B"], contains=[{"match": "id"}]), "key 'set': is missing; name the"),
        (matched("/(/"), "key 'match': '/(/' is not a regular expression: missing ), unterminated"),
        (matched("/x/"), "key 'match': must be \"id\" or \"/regex/\" with a group; got '/x/'"),
        ("[audit]\nhrad = 0.9\n" + A, "[audit], key 'hrad': there is no such key; did you mean 'h"),
        ("[audit]\nencoder = 'clpi'\n" + A, "[audit], key 'encoder': there is no encoder 'clpi';"),
        (table("a", roles=["B"], encoder="vgg"), "set 'a', key 'encoder': there is no encoder 'vg"),
        ("[audit]\nhard = '1'\n" + A, "[audit], key 'hard': must be a number; got '1'"),
        ("[audit]\nviews = 'some'\n" + A, "[audit], key 'views': views must be one of none, mir"),
        ("[audit]\nhard = 0.1\nsoft = 0.2\n" + A, "[audit], keys: hard (0.1) must not be below so"),
        ("[matrix]\nrows = []\n" + A, "[matrix], key 'rows': there is no such key; known are ref"),
        ("[matrix]\nqueries = ['b']\n" + A, "[matrix], key 'queries': there is no set 'b'; known"),
        ("[matrix]\nreferences = ['a']\n" + A, "'a' has neither the role training nor pretraining"),
        ("[matrix]\nqueries = ['t']\n" + table("t", roles=["T"]), "[matrix], key 'queries': 't'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path, text, message):
    file = tmp_path / "my.toml"
    file.write_text(text, encoding="utf-8")
    line = refusal(UsageError, read_study, file)
    assert message in line
    assert str(file) in line


def test_files_that_are_none(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe9'")
    for read, name, said in (
        (read_study, "no.toml", "no.toml is not a file; it is a TOML file with [sets"),
        (read_study, "latin.toml", "latin.toml is not valid TOML: 'utf-8' codec"),
        (read_paper, "no.json", "no.json is not a file; leave `paper` out, or name one"),
    ):
        assert said in refusal(UsageError, read, tmp_path / name)


def test_what_a_file_says(tmp_path):
    """Letters stand for roles; settings are those of an audit, repeats within apart."""
    file = tmp_path / "my.toml"
    file.write_text(
        "[audit]\nhard = 1\nthresholds = 't.json'\n"
        + table("a", roles=["B", "T"], id="name", contains=["b"])
        + table("b", roles=["pretraining"], dataset="x", images="40k")
    )
    found = read_study(file)
    assert found.title == "my"
    assert found.thresholds == tmp_path / "t.json"
    assert (found.settings.hard, found.settings.within, found.settings.verify) == (1, False, True)
    a, b = found.sets
    assert (a.roles, a.dataset, a.columns) == (("benchmark", "training"), "a", (("id", "name"),))
    assert a.contains == (Inclusion("b"),)
    assert (b.roles, b.dataset, b.images) == (("pretraining",), "x", "40k")


def test_paths_of_sets(tmp_path, monkeypatch):
    """Relative to the file, ``~``, ``${NAME}``; what is missing says why and is not opened."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("rel", "data/x", "home/pics"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ann.json").touch()
    there = {
        "rel": f"{tmp_path}/rel",
        "coco:ann.json?images=rel#x": f"coco:{tmp_path}/ann.json?images=rel#x",
        "~/pics": f"{tmp_path}/home/pics",
        "${MINE}/x": f"{tmp_path}/data/x",
        "emb:${MINE}/x?encoder=clip": f"emb:{tmp_path}/data/x?encoder=clip",
        f"{tmp_path}/rel": f"{tmp_path}/rel",
        "re*": f"{tmp_path}/re*",
        "https://host/a.tar": "https://host/a.tar",
        "hf:name/set#test": "hf:name/set#test",
    }
    missing = {
        "": "source is not filled in",
        "${NOBODY_SET_THIS}/x": "environment variable NOBODY_SET_THIS is not set",
        "nowhere/at/all": "source nowhere/at/all does not exist",
        "zz*": "source zz* does not exist",
    }
    file = tmp_path / "sets.toml"
    sources = list(enumerate((*there, *missing)))
    file.write_text("".join(table(f"{n}", roles=["B"], source=each) for n, each in sources))
    found = locate(read_study(file), {"MINE": str(tmp_path / "data")})
    located = {source: found[f"{n}"] for n, source in sources}
    assert {source: each.missing for source, each in located.items() if each.missing} == missing
    assert {source: located[source].source for source in there} == there


PUBLISHED = Path(__file__).parents[2] / "examples" / "ramos2025_reference.json"


@pytest.fixture(scope="module")
def paper():
    return read_paper(PUBLISHED)


def test_printed_totals_are_hard_plus_soft(paper):
    """The text's totals into LAION are sums of figure 3's cells, to the printed digit."""
    cells = json.loads(PUBLISHED.read_text())["cells"]
    printed = {row["query"]: row["hard_or_soft"] for row in cells if "hard_or_soft" in row}
    assert len(printed) == 5
    for query, total in printed.items():
        values = paper.of(query, "laion-400m")
        # half a unit of the last digit for each of the two terms
        assert values["hard"] + values["soft"] == pytest.approx(total, abs=0.01)


def test_what_is_not_printed_is_nothing(paper):
    assert paper.intra["gcc-val"] == {"hard": None, "soft": None}
    assert paper.intra["coco-test2014"]["soft"] == (1.35, 1.38)
    assert "hard_or_soft" not in paper.intra["coco-val2017"]
    assert paper.of("flickr30k", "nowhere") == {}


GOOD = {"kind": "visleak published values", "schema": 1, "source": "somebody", "cells": []}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], 'does not say "kind": "visleak published values"; it holds no'),
        (GOOD | {"source": 3}, "is damaged: source is missing, or no text"),
        (GOOD | {"cells": {}}, "is damaged: cells is not a list of objects"),
        (GOOD | {"cells": [{"query": "a"}]}, "is damaged: reference is missing, or no text"),
        (GOOD | {"intra": [{"query": "a", "hard": 101}]}, "is damaged: 101 is not a number of"),
        (GOOD | {"intra": [{"query": "a", "hard": True}]}, "is damaged: True is not a number of"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, content, message):
    file = tmp_path / "values.json"
    file.write_text(json.dumps(content))
    line = refusal(VisleakError, read_paper, file)
    assert message in line
    assert str(file) in line
