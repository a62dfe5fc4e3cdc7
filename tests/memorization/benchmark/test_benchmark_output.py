"""Sentences and tables of a benchmark, and the leaderboard."""

import json
from dataclasses import replace

import numpy as np
import pytest

from visleak.errors import UsageError, VisleakError
from visleak.memorization.benchmark import add_to, read_leaderboard
from visleak.memorization.benchmark.document import (
    cautions,
    document,
    headline,
    lines_table,
    meets,
    verdicts,
    worst_of,
)
from visleak.memorization.benchmark.leaderboard import board_of, leaderboard_markdown, table_path
from visleak.memorization.benchmark.results import (
    Benchmark,
    Change,
    Curve,
    Floor,
    ListSummary,
    Measurements,
    MethodRow,
    ReferencePoint,
    Score,
)
from visleak.memorization.mitigate import mitigation
from visleak.reporting import latex, markdown, section
from visleak.stats.group_intervals import GroupInterval


def around(value, half=0.05):
    return GroupInterval(value, value - half, value + half, 3000, 53, 8.9, "mean", 0.95)


def row_of(text, **values):
    """Return the row of a method, with changes against the first row; None was not measured."""
    made, base, scores = mitigation(text), {"top1": 0.641, "share": 0.6, "clip": 0.273}, []
    for name, value in (base | values).items():
        if value is None:
            continue
        away = value - base[name]
        change = Change(away, away - 0.01, away + 0.01, 0.0004, 0.002) if values else None
        scores.append(Score("trigger", name, around(value), change))
    seconds = {"trigger": 1.8, "general": 1.7}
    about = made.about() if made.name == "wen" else {}
    given = (made.name, made.setting, made.strength, about, tuple(scores), None, seconds)
    return MethodRow(*given)


def made(folder, *more, **changes):
    """Return rows of table 3 of Hong et al. 2024, as if they were ours."""
    about = {
        "model": {"name": "sd-1.4", "family": "sd", "digest": "m1", "precision": "fp16"},
        "sampling": {"steps": 50, "guidance": 7.5},
        "seed": 0,
        "similarity": {"name": "sscd:disc.pt", "number": "cosine", "digest": "s1"},
        "alignment": {"name": "open_clip:ViT-g-14", "digest": "a1"},
        "aesthetic": None,
        "real": None,
        "deviation": "images",
    }
    rows = [row_of("none"), row_of("rna:6", top1=0.228, clip=0.28)]
    rows += [row_of("wen:2,scope=batch", top1=0.096, clip=0.242), *more]
    result = Benchmark(
        folder=folder,
        about=about,
        triggers=ListSummary("SD1_final.csv (CSV)", 3000, 53, 8.9, 10, 3000, "d1"),
        general=ListSummary("captions_val2017.json (JSON)", 5000, 5000, 5000.0, 1, 0, "d2"),
        rows=tuple(rows),
        curves=(),
        reference=ReferencePoint("laion", around(0.088), around(0.310), {"source": "laion"}),
        notes=("2 prompts were empty",),
        key="k1",
        floor=Floor("trigger", 2000, around(0.15), around(0.12), around(0.04, 0.02)),
    )
    curves = tuple(Curve(line, "clip", around(0.85), 6) for line in result.lines)
    return replace(result, curves=curves, **changes)


def test_a_leaderboard_replaces_nothing_but_its_own_table(tmp_path):
    with pytest.raises(
        UsageError, match=r"where its table would be written; name it .*board\.json"
    ):
        table_path(tmp_path / "board.md")
    (tmp_path / "README.md").write_text("# Mine\n")
    with pytest.raises(UsageError, match=r"README\.md is not a table of a leaderboard"):
        table_path(tmp_path / "README.json")
    (tmp_path / "README.md").write_text("# Mitigation leaderboard\n\n## sd\n")
    assert table_path(tmp_path / "README.json") == tmp_path / "README.md"
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(VisleakError, match="it is not a leaderboard"):
        table_path(tmp_path / "other.json")


def test_a_share_is_read_against_the_floor_of_the_similarity(tmp_path):
    result = made(tmp_path, row_of("rta:1", top1=0.3, clip=None))
    assert ".040" in cautions(result)[0]
    page = document(result)
    for text in (markdown(page), latex(page), section(page)["markdown"]):
        assert "floor of the similarity" in text.lower()
    floor = [row for row in lines_table(result).to_pylist() if row["method"] == "floor"]
    assert [(row["number"], row["value"]) for row in floor] == [
        *(("top1", 0.15), ("top3", 0.12), ("share", 0.04))
    ]
    unknown = cautions(replace(result, floor=None))[0]
    assert unknown.startswith("floor of the similarity: not measured")
    high = replace(result.floor, share=around(0.6))
    told = cautions(replace(result, floor=high))
    assert any("within the interval of the floor" in line for line in told)


def test_the_rule_of_the_paper_is_said_of_each_method(tmp_path):
    good = row_of("ren:1.3", top1=0.05, clip=0.28)
    result = made(tmp_path, good)
    rna, wen, ren = verdicts(result)
    assert "top-1 .641 to .096 (p = .002), above the reference .088, CLIP by -.031" in wen
    assert "it does not succeed by the paper's rule, and no setting keeps the CLIP" in wen
    assert "with the CLIP score kept it reaches .228 (p = .002)" in rna
    assert headline(result).startswith(
        "top-1 similarity .641 without mitigation; .228 with RNA n=6"
    )
    assert meets(result, good) == (True, True)
    assert "at or below the reference .088" in ren
    assert "it succeeds by the paper's rule" in ren
    # by doing nothing it would
    easy = replace(result, reference=replace(result.reference, similarity=around(0.7)))
    for line in verdicts(easy):
        assert line.endswith("at or below the reference already, and none can succeed")
    unknown = verdicts(replace(result, reference=None))
    assert unknown[0].endswith("cannot be judged without a reference performance")


def test_the_worst_images_are_one_a_prompt():
    scores = np.array([[5.0, 3.0], [2.0, 2.5], [4.0, 4.5]])
    unknown = np.full((3, 2), np.nan)
    digests = (("a", "b"), ("c", "d"), ("b", "e"))
    found = worst_of(Measurements(unknown, unknown, scores, unknown, digests), 2)
    assert found == [("c", 2.0), ("b", 3.0)]


def test_a_leaderboard_takes_rows_of_others_and_keeps_boards_apart(tmp_path):
    board, result = tmp_path / "board.json", made(tmp_path)
    first = add_to(board, result, date="2026-01-02")
    assert [entry["method"] for entry in first] == ["wen", "rna", "none"]
    assert (first[0]["top1"], first[0]["setting"]) == (0.096, "l=2, batch")
    assert first[0]["hypervolume"] == 0.85
    assert add_to(board, result, date="2026-01-02") == first
    pixels = {"name": "pixels", "number": "correlation", "digest": "s2"}
    other = replace(result, about={**result.about, "similarity": pixels})
    both = add_to(board, other, date="2026-01-03")
    elsewhere = replace(result, about={**result.about, "references": "r2"})
    assert board_of(elsewhere) != board_of(result)
    assert len(both) == 6
    assert len({entry["board"] for entry in both}) == 2
    assert read_leaderboard(board) == both
    assert leaderboard_markdown(both).count("Board ") == 2
    # what somebody else adds by hand, with what was not measured as null
    content = json.loads(board.read_text())
    content["entries"].append({**content["entries"][0], "method": "new", "seconds_per_image": None})
    board.write_text(json.dumps(content))
    assert "| new |" in leaderboard_markdown(read_leaderboard(board))
    content["entries"][0]["top1"] = "low"
    board.write_text(json.dumps(content))
    with pytest.raises(VisleakError, match="is damaged in entry 1; nothing was written"):
        add_to(board, result)
