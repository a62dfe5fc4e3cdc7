"""The best prompts of a list, by what its table and the result beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files import chosen, read_prompts, scores_of
from visleak.memorization.prompts import Prompts


def table(folder: Path, header: str, *rows: str) -> Path:
    file = folder / "prompts.csv"
    file.write_text("\n".join((header, *rows)) + "\n")
    return file


def result(folder: Path, verb: str, **settings: Any) -> None:
    """Write as much of a result as names its verb and settings."""
    content = {"kind": f"visleak memorization {verb}", "settings": settings}
    (folder / f"{verb}.json").write_text(json.dumps(content))


def taken(file: Path, **choice: Any) -> Prompts:
    return chosen(read_prompts(file), file, **choice)


def test_the_top_are_those_of_the_highest_d_and_a_note_says_so(tmp_path: Path) -> None:
    file = table(tmp_path, "prompt,d_squared,word", "b,2,x", "c,10,y", "a,2,z", "d,,w")
    assert taken(file) == read_prompts(file)
    best = taken(file, top=2)
    # numbers, not texts; ties by text; other columns come along
    assert best.texts == ("c", "a")
    assert best.columns["word"] == ("y", "z")
    assert best.notes == ("2 of 4 prompts are taken, which have the highest d_squared",)
    assert taken(file, top=9).texts == ("c", "a", "b", "d")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 30))
def test_nothing_that_is_left_out_is_higher(scores: list[float], top: int) -> None:
    texts = tuple(f"prompt {number}" for number in range(len(scores)))
    prompts = Prompts(texts, columns={"d_l2": tuple(map(repr, scores))})
    found = chosen(prompts, Path(__file__), top)
    assert len(found) == min(top, len(scores))
    inside = [scores[texts.index(text)] for text in found.texts]
    outside = [score for score, text in zip(scores, texts, strict=True) if text not in found.texts]
    assert inside == sorted(inside, reverse=True)
    assert max(outside, default=0.0) <= min(inside)


@pytest.mark.parametrize("verb", ["search", "augment"])
def test_reached_is_at_least_the_kappa_of_the_search(tmp_path: Path, verb: str) -> None:
    file = table(tmp_path, "prompt,d_squared", "b,4.99", "c,7", "a,5")
    result(tmp_path, verb, norm="squared", kappa=5)
    found = taken(file, reached=True)
    assert found.texts == ("c", "a")
    assert found.notes == ("2 of 3 prompts are taken, which reached kappa 5 (d_squared)",)
    both = taken(file, reached=True, top=1)
    assert both.texts == ("c",)
    assert both.notes[-1].endswith("reached kappa 5 (d_squared) and have the highest d_squared")


def test_what_nobody_knows_is_refused_in_a_line(tmp_path: Path) -> None:
    plain = tmp_path / "list.txt"
    plain.write_text("a\nb\n")
    with pytest.raises(UsageError, match="has no column d_l2 or d_squared; score"):
        taken(plain, top=1)
    with pytest.raises(UsageError) as refused:
        taken(plain, reached=True)
    assert "--above-threshold-only needs a list that" in str(refused.value)
    # official-code and random words have no kappa
    file = table(tmp_path, "prompt,d_squared", "a,9")
    result(tmp_path, "search", norm="squared", kappa=None)
    with pytest.raises(UsageError, match="--above-threshold-only needs a list"):
        taken(file, reached=True)
    result(tmp_path, "search", norm="squared", kappa=10.0)
    with pytest.raises(VisleakError, match=r"reached kappa 10 \(d_squared\); take the"):
        taken(file, reached=True)
    with pytest.raises(VisleakError, match=r"prompt 1, d_squared: a D is a number; got 'high'"):
        taken(table(tmp_path, "prompt,d_squared", "a,high"), top=1)


def test_what_reached_a_threshold_is_high(tmp_path: Path) -> None:
    file = table(tmp_path, "prompt,d_squared", "b,4.99", "c,7", "a,5", "e,")
    result(tmp_path, "search", norm="squared", kappa=5)
    found = scores_of(read_prompts(file), file)
    assert found is not None
    assert found.values == {"b": 4.99, "c": 7.0, "a": 5.0}
    assert found.high(()) == (frozenset("ac"), "D reached kappa 5 (d_squared)")
    (tmp_path / "search.json").unlink()
    file = table(tmp_path, "prompt,d_l2,reached", "b,4,false", "c,7,true")
    found = scores_of(read_prompts(file), file)
    assert found is not None
    assert found.high(("b",)) == (frozenset("c"), "D reached the threshold of detect")


def test_without_a_threshold_the_lowest_d_with_a_cluster_counts(tmp_path: Path) -> None:
    rows = [f"p{number},{number}" for number in range(20)]
    file = table(tmp_path, "prompt,d_l2", *rows)
    found = scores_of(read_prompts(file), file)
    assert found is not None
    high, rule = found.high(("p15", "p18"))
    assert high == {f"p{number}" for number in range(15, 20)}
    assert "lowest D with a cluster" in rule
    # nothing is known of any cluster
    high, rule = found.high(())
    assert high == {"p18", "p19"}
    assert "highest tenth" in rule
    plain = table(tmp_path, "prompt", "a")
    assert scores_of(read_prompts(plain), plain) is None
