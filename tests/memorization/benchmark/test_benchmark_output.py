"""Tables, figures, sentences, the section of the report, and the leaderboard."""

import dataclasses
import json

import numpy as np
import pytest
from made_benchmark import benchmark_of_the_paper

from visleak.errors import UsageError, VisleakError
from visleak.memorization.benchmark import add_to, read_leaderboard
from visleak.memorization.benchmark.document import (
    cautions,
    document,
    headline,
    lines_table,
    main_grid,
    meets,
    verdicts,
    worst_of,
)
from visleak.memorization.benchmark.leaderboard import board_of, leaderboard_markdown, table_path
from visleak.memorization.benchmark.results import Measurements
from visleak.reporting import latex, markdown, section

pytestmark = pytest.mark.usefixtures("drawn_figures")


def rows_of_csv(result):
    """Return the rows of ``benchmark.csv`` as values."""
    return lines_table(result).to_pylist()


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


def test_floor_and_reference_stand_beneath_no_mitigation(tmp_path):
    grid = main_grid(benchmark_of_the_paper(tmp_path))
    assert grid.header[2:5] == ["top-1 ↓", "top-3 ↓", "> 0.5 ↓"]
    assert grid.header[8:] == ["general CLIP ↑", "general aes. ↑", "general aes. std ↓"]
    assert [row[:2] for row in grid.rows[:4]] == [
        *(["no mitigation", ""], ["floor", "other prompts' images"]),
        *(["reference", "laion"], ["RNA", "n=1"]),
    ]
    assert grid.rows[3][2] == ".479* (.419 to .539)"


def test_a_share_is_read_against_the_floor_of_the_similarity(tmp_path):
    result = benchmark_of_the_paper(tmp_path)
    told = cautions(result)[0]
    assert ".040" in told
    page = document(result)
    for text in (markdown(page), latex(page), section(page)["markdown"]):
        assert "floor of the similarity" in text.lower()
    rows = rows_of_csv(result)
    floor = [row for row in rows if row["method"] == "floor"]
    assert [(row["number"], row["value"]) for row in floor] == [
        *(("top1", 0.15), ("top3", 0.12), ("share", 0.04))
    ]
    unknown = cautions(dataclasses.replace(result, floor=None))[0]
    assert unknown.startswith("floor of the similarity: not measured")
    high = dataclasses.replace(result.floor.share, value=0.4, low=0.3, high=0.5)
    low = dataclasses.replace(result, floor=dataclasses.replace(result.floor, share=high))
    assert any("within the interval of the floor" in line for line in cautions(low))


def test_the_rule_of_the_paper_is_said_of_each_method(tmp_path):
    result = benchmark_of_the_paper(tmp_path)
    said = verdicts(result)
    assert said[2] == (
        "Wen et al. l=2, batch: top-1 .641 to .096 (p = .002), above the reference .088, CLIP by"
        " -.031 (p = .002): it does not succeed by the paper's rule, and no setting keeps the CLIP"
        " score"
    )
    assert headline(result).startswith(
        "top-1 similarity .641 without mitigation; .228 with RNA n=6"
    )
    good = dataclasses.replace(result.rows[18], method="mine", setting="k=1", scores=tuple(
        dataclasses.replace(
            each,
            interval=dataclasses.replace(
                each.interval, value={"top1": 0.05, "clip": 0.28}.get(each.name, 1.0)
            ),
        )
        for each in result.rows[18].scores
    ))  # fmt: skip
    better = dataclasses.replace(result, rows=(*result.rows, good))
    assert meets(better, good) == (True, True)
    assert "it succeeds by the paper's rule" in verdicts(better)[-1]
    assert "at or below the reference .088" in verdicts(better)[-1]


def test_no_method_succeeds_where_nothing_is_to_be_lowered(tmp_path):
    """By doing nothing it would."""
    result = benchmark_of_the_paper(tmp_path)
    similarity = dataclasses.replace(result.reference.similarity, value=0.7)
    easy = dataclasses.replace(
        result, reference=dataclasses.replace(result.reference, similarity=similarity)
    )
    for line in verdicts(easy):
        assert line.endswith("at or below the reference already, and none can succeed")


def test_without_a_reference_success_is_not_judged(tmp_path):
    result = dataclasses.replace(benchmark_of_the_paper(tmp_path), reference=None)
    assert verdicts(result)[0].endswith("cannot be judged without a reference performance")


def test_the_worst_images_are_one_a_prompt():
    scores = np.array([[5.0, 3.0], [2.0, 2.5], [4.0, 4.5]])
    unknown = np.full((3, 2), np.nan)
    digests = (("a", "b"), ("c", "d"), ("b", "e"))
    found = worst_of(Measurements(unknown, unknown, scores, unknown, digests), 2)
    assert found == [("c", 2.0), ("b", 3.0)]


def test_a_leaderboard_takes_rows_of_others_and_keeps_boards_apart(tmp_path):
    board = tmp_path / "board.json"
    result = benchmark_of_the_paper(tmp_path)
    first = add_to(board, result, date="2026-01-02")
    assert len(first) == 23
    assert first[0]["method"] == "wen"
    assert (first[0]["top1"], first[0]["setting"]) == (0.096, "l=2, batch")
    assert next(e for e in first if e["method"] == "wen")["hypervolume"] > 0.8
    assert add_to(board, result, date="2026-01-02") == first
    other = benchmark_of_the_paper(tmp_path, similarity="pixels")
    other.about["similarity"]["digest"] = "s2"
    both = add_to(board, other, date="2026-01-03")
    elsewhere = dataclasses.replace(result, about={**result.about, "references": "r2"})
    assert board_of(elsewhere) != board_of(result)
    assert len(both) == 46
    assert len({entry["board"] for entry in both}) == 2
    assert read_leaderboard(board) == both
    text = leaderboard_markdown(both)
    assert text.count("Board ") == 2
    # what somebody else adds by hand, with what was not measured as null
    content = json.loads(board.read_text())
    content["entries"].append(
        {**content["entries"][0], "method": "new", "aesthetic": None, "seconds_an_image": None}
    )
    board.write_text(json.dumps(content))
    assert len(read_leaderboard(board)) == 47
    assert "| new |" in leaderboard_markdown(read_leaderboard(board))
    content["entries"][0]["top1"] = "low"
    board.write_text(json.dumps(content))
    with pytest.raises(VisleakError, match="is damaged in entry 1; nothing was written"):
        add_to(board, result)
    board.write_text("{}")
    with pytest.raises(VisleakError, match="it is not a leaderboard; choose another file"):
        read_leaderboard(board)
