"""Lists of prompts, and the ones that enter a data set: those with a record of verification."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import UsageError, VisleakError
from visleak.memorization import Prompts
from visleak.memorization.prompt_files import (
    chosen,
    joined,
    prompts_of,
    read_prompts,
    scores_of,
    traced,
    vouched,
)
from visleak.memorization.prompt_files.dataset import prompt_table
from visleak.memorization.prompt_files.selection import selected
from visleak.memorization.tracing.document import Match, Original, Replication, Trace


def match(prompt, reference, memorized, **fields):
    known = (f"{prompt}.png", prompt, 40, "train", reference, 0.9, "near", 0.9)
    return replace(Match(*known, memorized is not None, memorized), **fields)


def test_lists_join_and_fill_each_other():
    triggers = Prompts(("a", "b"), (True, None), (("u",), ()), {"group": ("0", "1")}, "one.csv")
    scores = Prompts(
        ("b", "a"),
        sources=(("v",), ("w",)),
        columns={"d_l2": ("2", "1"), "rank": ("1", "2"), "squared_noise_1": ("4", "1")},
        origin="scores.parquet",
        notes=("empty prompts that were left out: 1",),
    )
    both = joined([triggers, scores])
    assert both.texts == ("a", "b")
    assert both.sources == (("u", "w"), ("v",))
    assert both.labels == (True, None)
    # ranks, groups and noises are of the list they came from
    assert dict(both.columns) == {"d_l2": ("1", "2")}
    assert both.notes == ("scores.parquet: empty prompts that were left out: 1",)
    assert both.origin == "one.csv, scores.parquet"


def test_lists_that_contradict_each_other():
    with pytest.raises(VisleakError, match="x, y, prompt 1 of y: this prompt is also at"):
        joined([Prompts(("a",), (True,), origin="x"), Prompts(("a",), (False,), origin="y")])
    with pytest.raises(UsageError, match="prompts: give at least one list"):
        joined([])


def record(prompts):
    return list(zip(prompts.columns["verified"], prompts.columns["verified_by"], strict=True))


@pytest.mark.parametrize("turned", [False, True])
def test_one_list_that_verifies_a_prompt_is_enough_in_any_order(turned):
    """Who verified comes from the list that says true, never from one that says false."""
    one = Prompts(
        ("a", "b", "c"),
        columns={"verified": ("false", "true", "1"), "verified_by": ("Bob", "", "trace in t")},
    )
    other = Prompts(
        ("c", "b", "a"),
        columns={"verified": ("true", "0", "yes"), "verified_by": ("Cat", "Dan", "Ann")},
    )
    lists = [other, one] if turned else [one, other]
    found = joined([*lists, Prompts(("a", "b", "c"))])
    assert dict(zip(found.texts, record(found), strict=True)) == {
        "a": ("yes", "Ann"),
        "b": ("true", ""),
        "c": ("true", "Cat"),
    }


def trace_of(matches, originals):
    made = tuple(
        Original(number, "train", references, 1, 1, 1, layout=False)
        for number, references in enumerate(originals)
    )
    given = (Path("trace"), {"sets": ["train"]}, tuple(matches), len(made), 0.5, (1.0, 0.5, 1.0))
    return Trace(*given, originals=made)


def test_a_trace_verifies_prompts_and_names_all_copies_of_their_image():
    prompts = Prompts(("a", "b", "c", "d"), sources=(("given",), (), (), ()))
    matches = [
        match("a", "red.png", 0, judged="human"),
        match("b", "blue.png", 0, grade="layout"),
        match("b", "other.png", 1),
        match("c", "near.png", None),
        match("unknown", "far.png", 2),
    ]
    found = traced(
        prompts, trace_of(matches, [("red.png", "blue.png"), ("other.png",), ("far.png",)])
    )
    assert found.sources == (
        *(("given", "red.png", "blue.png"), ("red.png", "blue.png", "other.png"), (), ()),
    )
    assert found.labels == (True, True, None, None)
    assert record(found) == [
        *(("true", "trace in train: near, judged by people"), ("true", "trace in train: layout")),
        *(("false", ""), ("false", "")),
    ]
    chosen = selected(found)
    assert chosen.prompts.texts == ("a", "b")
    assert (chosen.candidates, chosen.left_out) == (4, {"not verified": 2})


def test_one_copy_among_many_images_makes_no_trigger():
    trace = replace(
        trace_of([match("a", "r", 0), match("b", "r", 0)], [("r",)]),
        prompts=(
            Replication("a", 100, 1, 0.01, 0.0, 0.05, trigger=False),
            Replication("b", 100, 80, 0.8, 0.7, 0.9, trigger=True),
        ),
    )
    found = traced(Prompts(("a", "b")), trace)
    assert found.columns["verified"] == ("false", "true")
    assert found.labels == (None, True)
    assert found.columns["replicated_share"] == ("0.01", "0.8")
    assert found.columns["tau"] == ("0.5", "0.5")
    assert prompt_table(selected(found).prompts)["replicated_share"].to_pylist() == [0.8]


def shares(share, *, trigger, tau=0.5):
    """Return a trace of all images of prompt ``a``, one of which is a copy."""
    count = round(20 * share)
    measured = Replication("a", 20, count, share, 0.0, 1.0, trigger=trigger)
    return replace(trace_of([match("a", "r", 0)], [("r",)]), tau=tau, prompts=(measured,))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("judged", ["", "human"])
def test_a_share_that_is_too_small_outweighs_copies_of_other_traces(turned, judged):
    """What people judge in a trace is a pair of images, and not how often a prompt repeats one."""
    medoids = trace_of([match("a", "r", 0, judged=judged), match("b", "s", 1)], [("r",), ("s",)])
    traces = [medoids, shares(0.25, trigger=False)]
    found = traced(Prompts(("a", "b")), *(traces[::-1] if turned else traces))
    assert record(found) == [("false", ""), ("true", "trace in train: near")]
    assert found.sources == ((), ("s",))
    assert found.columns["replicated_share"] == ("0.25", "")
    assert selected(found).prompts.texts == ("b",)


def test_a_share_that_is_too_small_takes_back_what_a_trace_said_before():
    """A list that an earlier trace verified, or nobody who is named; a person is believed."""
    for by, kept in (("trace in train: near", False), ("", False), ("Ann, by eye", True)):
        columns = {"verified": ("true",), "verified_by": (by,)}
        found = traced(Prompts(("a",), columns=columns), shares(0.25, trigger=False))
        assert record(found) == [("true", by) if kept else ("false", "")]
    images = Prompts(("a",), sources=(("u",),))
    assert record(vouched(traced(images, shares(0.25, trigger=False)), "Ann")) == [("true", "Ann")]


def test_prompts_of_a_trace_alone():
    trace = trace_of([match("b", None, None), match("a", "r", 0)], [("r",)])
    assert prompts_of(trace).texts == ("a", "b")
    with pytest.raises(VisleakError, match="the trace in trace holds no prompts"):
        prompts_of(trace_of([], []))
    with pytest.raises(VisleakError, match="prompt 'a' is labelled not memorized,"):
        traced(Prompts(("a",), (False,)), trace_of([match("a", "r", 0)], [("r",)]))


def test_somebody_vouches_for_prompts_that_name_an_image():
    prompts = vouched(Prompts(("a", "b"), sources=(("u",), ())), " Hong  et al. ")
    assert prompts.columns["verified"] == ("true", "false")
    assert prompts.columns["verified_by"] == ("Hong et al.", "")
    # a record that is there stays
    again = vouched(prompts, "another")
    assert again.columns == prompts.columns
    with pytest.raises(UsageError, match="verified-by is empty; say who verified"):
        vouched(prompts, " ")


@pytest.mark.parametrize("labels", [(), (True, None, False)])
def test_candidates_without_a_record_never_enter(labels):
    """Neither a high D nor a label nor the name of an image is a verification."""
    prompts = Prompts(("a", "b", "c"), labels, (("u",), (), ()), {"d_l2": ("99", "98", "97")})
    with pytest.raises(VisleakError, match=r"none of [23] prompts is verified; trace"):
        selected(prompts)
    chosen = selected(prompts, unverified=True)
    # what is labelled not memorized is left out in any case
    assert chosen.prompts.texts == (("a", "b") if labels else ("a", "b", "c"))
    assert chosen.left_out == ({"labelled not memorized": 1} if labels else {})
    assert set(chosen.prompts.columns["verified"]) == {"false"}


def test_a_list_with_its_own_record_is_believed_and_named():
    columns = {"verified": ("yes", "0", ""), "verified_by": ("Ann", "", "")}
    prompts = Prompts(("a", "b", "c"), columns=columns, origin="list.csv (CSV)")
    assert selected(prompts).prompts.columns["verified_by"] == ("Ann",)
    nameless = Prompts(("a",), columns={"verified": ("1",)}, origin="list.csv (CSV)")
    assert selected(nameless).prompts.columns["verified_by"] == ("list.csv (CSV)",)
    with pytest.raises(VisleakError, match=r"list\.csv \(CSV\), prompt 1, column"):
        selected(Prompts(("a",), columns={"verified": ("perhaps",)}, origin="list.csv (CSV)"))


def table(folder, header, *rows):
    file = folder / "prompts.csv"
    file.write_text("\n".join((header, *rows)) + "\n")
    return file


def result(folder, verb, **settings):
    """Write as much of a result as names its verb and settings."""
    content = {"kind": f"visleak memorization {verb}", "settings": settings}
    (folder / f"{verb}.json").write_text(json.dumps(content))


def taken(file, **choice):
    return chosen(read_prompts(file), file, **choice)


def test_the_top_are_those_of_the_highest_d(tmp_path):
    file = table(tmp_path, "prompt,d_squared,word", "b,2,x", "c,10,y", "a,2,z", "d,,w")
    assert taken(file) == read_prompts(file)
    best = taken(file, top=2)
    # numbers, not texts; ties by text; other columns come along
    assert best.texts == ("c", "a")
    assert best.columns["word"] == ("y", "z")
    assert taken(file, top=9).texts == ("c", "a", "b", "d")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 30))
def test_nothing_that_is_left_out_is_higher(scores, top):
    texts = tuple(f"prompt {number}" for number in range(len(scores)))
    prompts = Prompts(texts, columns={"d_l2": tuple(map(repr, scores))})
    found = chosen(prompts, Path(__file__), top)
    assert len(found) == min(top, len(scores))
    inside = [scores[texts.index(text)] for text in found.texts]
    outside = [score for score, text in zip(scores, texts, strict=True) if text not in found.texts]
    assert inside == sorted(inside, reverse=True)
    assert max(outside, default=0.0) <= min(inside)


@pytest.mark.parametrize("verb", ["search", "augment"])
def test_reached_is_at_least_the_kappa_of_the_search(tmp_path, verb):
    file = table(tmp_path, "prompt,d_squared", "b,4.99", "c,7", "a,5")
    result(tmp_path, verb, norm="squared", kappa=5)
    assert taken(file, reached=True).texts == ("c", "a")
    both = taken(file, reached=True, top=1)
    assert both.texts == ("c",)
    assert both.notes[-1].endswith("reached kappa 5 (d_squared) and have the highest d_squared")


def test_what_nobody_knows_is_refused_in_a_line(tmp_path):
    plain = tmp_path / "list.txt"
    plain.write_text("a\nb\n")
    with pytest.raises(UsageError, match="has no column d_l2 or d_squared; score"):
        taken(plain, top=1)
    with pytest.raises(UsageError, match="--above-threshold-only needs a list that"):
        taken(plain, reached=True)
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


def test_what_reached_a_threshold_is_high(tmp_path):
    file = table(tmp_path, "prompt,d_squared", "b,4.99", "c,7", "a,5", "e,")
    result(tmp_path, "search", norm="squared", kappa=5)
    found = scores_of(read_prompts(file), file)
    assert found.values == {"b": 4.99, "c": 7.0, "a": 5.0}
    assert found.high(()) == (frozenset("ac"), "D reached kappa 5 (d_squared)")
    (tmp_path / "search.json").unlink()
    file = table(tmp_path, "prompt,d_l2,reached", "b,4,false", "c,7,true")
    found = scores_of(read_prompts(file), file)
    assert found.high(("b",)) == (frozenset("c"), "D reached the threshold of detect")


def test_without_a_threshold_the_lowest_d_with_a_cluster_counts(tmp_path):
    rows = [f"p{number},{number}" for number in range(20)]
    file = table(tmp_path, "prompt,d_l2", *rows)
    found = scores_of(read_prompts(file), file)
    high, rule = found.high(("p15", "p18"))
    assert high == {f"p{number}" for number in range(15, 20)}
    assert "lowest D with a cluster" in rule
    # nothing is known of any cluster
    high, rule = found.high(())
    assert high == {"p18", "p19"}
    assert "highest tenth" in rule
    plain = table(tmp_path, "prompt", "a")
    assert scores_of(read_prompts(plain), plain) is None


@given(st.lists(st.frozensets(st.integers(0, 9), max_size=3), min_size=1, max_size=15))
def test_groups_are_the_closure_of_sharing(images):
    prompts = Prompts(
        tuple(f"p{number}" for number in range(len(images))),
        sources=tuple(tuple(map(str, each)) for each in images),
    )
    merged = []
    for number, names in enumerate(images):
        mine = [each for each in merged if each[1] & names]
        rest = [each for each in merged if not each[1] & names]
        members = {number}.union(*(each[0] for each in mine))
        merged = [*rest, (members, names.union(*(each[1] for each in mine)))]
    groups = prompts.groups()
    assert len(set(groups)) == len(merged)
    for members, _ in merged:
        assert len({int(groups[member]) for member in members}) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": (True,)}, "labels of prompts has 1 entries for 2 prompts"),
        ({"columns": {"n": ("1",) * 3}}, "n of prompts has 3 entries for 2 prompts"),
        ({"texts": ("a", "a")}, "a prompt is listed twice; give each once"),
        ({"texts": ("a", " ")}, "a prompt is empty; remove it"),
    ],
)
def test_a_list_refuses_to_be_born_wrong(fields, message):
    with pytest.raises(VisleakError, match=message):
        Prompts(**{"texts": ("a", "b"), **fields})
