"""Ids of a file against those of the audit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from predictions_making import IDS, benchmark

from visleak.errors import VisleakError
from visleak.impact.predictions.matching import coverage_note, match, unknown_note


@pytest.mark.parametrize(
    ("ids", "theirs", "hint"),
    [
        ([f"{n:03d}.png" for n in range(20)], IDS, "ids agree without their folders"),
        ([i.removesuffix(".png") for i in IDS], IDS, "ids agree without their suffixes"),
        ([f"/data/{n:03d}.jpg" for n in range(20)], IDS, "ids agree without folders and suffixes"),
        ([i.replace("/", "\\") for i in IDS], IDS, "ids agree with `/` between folders"),
        (
            [f"./{i}" for i in IDS],
            IDS,
            "ids agree with `/` between folders and without `./` before",
        ),
        ([i.upper() for i in IDS], IDS, "ids agree without regard to case"),
        ([f" {i}" for i in IDS], IDS, "ids agree without spaces around them"),
        ([f"{n}.0" for n in range(20)], [str(n) for n in range(20)], "zeros and `.0`"),
        ([f"{n:04d}" for n in range(20)], [str(n) for n in range(20)], "without leading zeros"),
        ([str(n) for n in range(20)], IDS, "its ids look like row numbers"),
        ([f"q{n}" for n in range(20)], [str(n) for n in range(20)], "uses row numbers as ids of"),
        ([f"q{n}" for n in range(20)], IDS, "ids must be those of the audit (column `id`"),
    ],
)
def test_ids_that_match_nothing_get_the_likely_reason(ids, theirs, hint):
    with pytest.raises(VisleakError) as caught:
        match(pa.array(ids), benchmark(theirs), "f.csv")
    said = str(caught.value)
    assert said.startswith("f.csv: none of its ids is one of set 'test' (20 and 20 ids): it has")
    assert f"set 'test' has {theirs[0]!r}" in said
    assert hint in said
    assert "\n" not in said


@pytest.mark.parametrize(("size", "share"), [(19, ""), (18, "90.0"), (1, "5.0")])
def test_below_95_percent_is_refused_unless_allowed(size, share):
    """At 95 % exactly it is said only."""
    ids = pa.array(IDS[:size])
    found = match(ids, benchmark(), "f.csv")
    answered = np.arange(20) < size
    arguments = (answered, found, ids, benchmark(), "f.csv")
    rest = f"not in the file: {20 - size}, without a value: 0, such as '{IDS[size]}'"
    if not share:
        (note,) = coverage_note(*arguments, False)
        assert (
            f"19 of the 20 readable images of set 'test' have a prediction (95.0 %); {rest}" in note
        )
        return
    with pytest.raises(VisleakError) as caught:
        list(coverage_note(*arguments, False))
    assert str(caught.value) == (
        f"f.csv: only {size} of the 20 readable images of set 'test' have a prediction ({share} %);"
        f" {rest}; 95 % are needed: complete the file, or accept it with --allow-partial"
    )
    (note,) = coverage_note(*arguments, True)
    assert note.startswith(f"only {size} of the 20")
    assert note.endswith("scores, gains and leaks are those of the images with a prediction")


def test_a_share_below_95_percent_never_looks_enough():
    """94.99 % is not shown as 95.0."""
    ids = [str(n) for n in range(10_000)]
    some = pa.array(ids[:9_499])
    found = match(some, benchmark(ids, None), "f")
    with pytest.raises(VisleakError, match=r"9,499 of the 10,000 .* \(94\.9 %\)"):
        list(
            coverage_note(np.arange(10_000) < 9_499, found, some, benchmark(ids, None), "f", False)
        )


def test_no_answer_at_all_is_refused_even_if_partial_is_allowed():
    ids = pa.array(IDS)
    found = match(ids, benchmark(), "f")
    with pytest.raises(VisleakError, match=r"only 0 of the 20 .* without a value: 20"):
        list(coverage_note(np.zeros(20, bool), found, ids, benchmark(), "f", True))


def test_answers_for_other_images_are_said():
    ids = pa.array([*IDS, "x"])
    (note,) = unknown_note(match(ids, benchmark(), "f"), ids, benchmark())
    assert note == (
        "1 of its 21 predictions (4.8 %) are not for a readable image of set 'test' and are"
        " ignored, such as 'x'"
    )
    ids = pa.array([*IDS, *map(str, range(30))])
    (note,) = unknown_note(match(ids, benchmark(), "f"), ids, benchmark())
    assert note.startswith(
        "most of the file is about other images: 30 of its 50 predictions (60.0 %)"
    )
