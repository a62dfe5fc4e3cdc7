"""``visleak memorization dataset``."""

import json

import pytest
from calling import check_refused, refusals, refused, run

from visleak.memorization import read_prompts
from visleak.memorization.tracing.document import Match, Original, Trace, content
from visleak.memorization.tracing.run import KIND
from visleak.storage import RunFolder, write_json


@pytest.fixture
def listed(tmp_path):
    file = tmp_path / "list.csv"
    file.write_text("prompt,urls\na red bag,\"['u', 'v']\"\na red bag now,['v']\n=wall,\n")
    return file


@pytest.fixture
def traced(tmp_path):
    folder = tmp_path / "traced"
    folder.mkdir()
    common = ("train", "1.png", 0.9, "near", 0.95)
    matches = (
        Match("a.png", "a red bag", 40, *common, True, 0),
        Match("b.png", "blue rug", 30, *common, True, 0),
        Match("c.png", "=wall", 30, "train", "2.png", 0.2, "different", 0.1, False, None),
    )
    original = Original(0, "train", ("1.png", "1b.png"), 2, 2, 2, layout=False)
    made = Trace(
        folder,
        {"sets": [{"name": "train", "pictures": True}]},
        matches,
        1,
        0.5,
        (0.6, 0.2, 0.9),
        (original,),
    )
    write_json(folder / "trace.json", content(RunFolder(folder, KIND), made))
    return folder


def test_a_list_of_others(tmp_path, listed):
    out = tmp_path / "set"
    ran = run(
        "memorization", "dataset", listed, "--verified-by", "Ann, by eye\x1b[31m", "-o", out
    )  # fmt: skip
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == (
        "2 trigger prompts naming 2 sources in 1 group that share one (as good as 1.0 of one"
        " size); 1 of 3 left out"
    )
    assert lines[1].startswith("  verified by Ann, by eye")
    assert "\x1b" not in ran.out
    assert lines[2] == "  left out, not verified: 1"
    assert read_prompts(out / "prompts.parquet").texts == ("a red bag", "a red bag now")


def test_a_trace_is_the_record(tmp_path, listed, traced):
    out = tmp_path / "set"
    ran = run("memorization", "dataset", listed, "--trace", traced, "--json", "-o", out)
    assert ran.code == 0
    assert ran.out == (out / "dataset.json").read_text()
    content = json.loads(ran.out)
    assert content["headline"] == (
        "2 trigger prompts naming 4 sources in 1 group that share one (as good as 1.0 of one"
        " size); 2 of 4 left out"
    )
    assert content["verified_by"] == {"trace in train: near": 2}
    prompts = read_prompts(out / "prompts.parquet")
    # a traced prompt that no list holds enters, too
    assert prompts.texts == ("a red bag", "blue rug")
    assert prompts.sources == (("u", "v", "1.png", "1b.png"), ("1.png", "1b.png"))
    alone = run("memorization", "dataset", "--trace", traced, "-o", tmp_path / "alone")
    assert alone.out.startswith("2 trigger prompts naming 2 sources in 1 group")


def test_candidates_say_what_they_are(tmp_path, listed):
    code, message = refused("memorization", "dataset", listed, "-o", tmp_path / "set")
    assert code == 1
    assert message.startswith("none of 3 prompts is verified; trace their images")
    assert not (tmp_path / "set").exists()
    ran = run("memorization", "dataset", listed, "--unverified", "-o", tmp_path / "set")
    assert ran.out.startswith("3 candidate prompts naming 2 sources in 2 groups")
    assert "; 3 unverified" in ran.out
    assert (tmp_path / "set" / "prompts-unverified.parquet").is_file()
    assert not (tmp_path / "set" / "prompts.parquet").exists()


@refusals("""
     -> dataset needs prompts: name a list of them, or --trace DIR
    --trace {folder} -> no trace.json
    none.csv -> prompts none.csv: there is no such file
""")
def test_refusals(tmp_path, arguments, words):
    check_refused(f"memorization dataset {arguments}", words, folder=tmp_path)


def test_another_set_is_not_replaced(tmp_path, listed):
    call = ("memorization", "dataset", listed, "--verified-by", "Ann", "-o", tmp_path / "set")
    assert run(*call).code == 0
    code, message = refused(*call, "--unverified")
    assert (code, "--force replaces it" in message) == (2, True)
    assert run(*call, "--unverified", "--force").code == 0
