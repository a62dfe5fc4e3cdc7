"""The list against a plain oracle: order, uniqueness, the paper's nearest, filters."""

import math
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_audit import image_row, write_rows
from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES, between
from visleak.review.listing import Choice, couples, describe, fixed, labels, order, read_listing
from visleak.settings import Settings
from visleak.storage.audit_folder import AuditSummary, Thresholds
from visleak.verdicts import pair_key

SETS = ("test", "train", "extra")

#: Few contents for many images, so that contents repeat.
CONTENTS = [f"{n:032x}" for n in range(6)]


NAMES = ("query_set", "query", "reference_set", "reference")

#: What an audit says of a pair.
FOUND = st.fixed_dictionaries(
    {
        "similarity": st.sampled_from([0.25, 0.5, 0.75, 0.9375, 1.0]),
        "grade": st.sampled_from([*GRADES, None]),
        "probability": st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, None]),
        "query_label": st.sampled_from(["a", "b", None]),
        "reference_label": st.sampled_from(["a", "c", None]),
    }
)


@st.composite
def audits(draw):
    """Images with their digests, and rows of ``pairs.parquet`` in its order."""
    images = {}
    for name in SETS:
        for number in range(draw(st.integers(1, 4))):
            digest = draw(st.sampled_from([*CONTENTS, None] if name == "extra" else CONTENTS))
            images[name, f"{name[:2]}{number}"] = digest
    own = [image for image in images if image[0] == "test"]
    couple = st.tuples(st.sampled_from(own), st.sampled_from(list(images)))
    rows = []
    for query, reference in draw(st.lists(couple, max_size=14, unique=True)):
        within = reference[0] == "test"
        if within and query[1] >= reference[1]:
            continue
        row = dict(zip(NAMES, (*query, *reference), strict=True))
        rows.append(row | draw(FOUND) | {"coverage": "within" if within else "intra"})
    rows.sort(
        key=lambda row: (row["query"], -row["similarity"], row["reference_set"], row["reference"])
    )
    return images, rows


def read(audit, kind="listed"):
    """Return the list, or ``None`` where it is refused because there are no images."""
    images, rows = audit
    seen = [row for row in rows if digests_of(images, row) is not None]
    held = [image_row(*image, digest=digest) for image, digest in images.items()]
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), held, rows)
        if rows and not seen:
            with pytest.raises(VisleakError, match="there are no images to review"):
                read_listing(Path(folder), kind)
            return None
        return read_listing(Path(folder), kind)


def digests_of(images, row):
    pair = (images[row["query_set"], row["query"]], images[row["reference_set"], row["reference"]])
    return None if None in pair else pair_key(*pair)


def rows_of(listing):
    return [tuple(str(listing.row(row)[name]) for name in NAMES) for row in range(len(listing))]


def best_of(images, rows):
    """Return one row a pair of contents, closest first: the slow way."""
    best = {}
    for number, row in enumerate(rows):
        key = digests_of(images, row)
        rank = (row["coverage"] == "within", -row["similarity"], number)
        if key is not None and (key not in best or rank < best[key][0]):
            best[key] = rank, row
    return [row for rank, row in sorted(best.values(), key=lambda each: each[0][1:])]


def nearest_of(images, rows):
    """Return each query's nearest among the other sets and within its own: the slow way."""
    found = {}
    for number, row in enumerate(rows):
        if digests_of(images, row) is None:
            continue
        within = row["coverage"] == "within"
        ends = [row["query"], row["reference"]] if within else [row["query"]]
        for end in ends:
            known = found.get((within, end))
            if known is None or row["similarity"] > rows[known]["similarity"]:
                found[within, end] = number
    return [rows[number] for number in sorted(set(found.values()))]


@settings(max_examples=20)
@given(audits())
def test_each_pair_of_contents_stands_once_closest_first(audit):
    listing = read(audit)
    if listing is None:
        return
    images, rows = audit
    assert rows_of(listing) == [tuple(row[name] for name in NAMES) for row in best_of(images, rows)]
    counts = Counter(digests_of(images, row) for row in rows)
    assert listing.left_out == counts.pop(None, 0)
    assert [int(n) for n in listing.repeats] == [
        counts[listing.key(row)] - 1 for row in range(len(listing))
    ]
    assert (np.diff(listing.distance) >= 0).all()
    for row in range(len(listing)):
        similarity = listing.row(row)["similarity"]
        assert math.isclose(listing.distance[row], math.sqrt(2 - 2 * similarity))
        assert listing.find(listing.name(row)) == row
    keys = [listing.key(row) for row in range(len(listing))]
    assert listing.rows_of(keys).tolist() == list(range(len(keys)))


@settings(max_examples=20)
@given(audits())
def test_the_papers_list_is_the_one_nearest_of_each_image(audit):
    listing = read(audit, "nearest")
    if listing is None:
        return
    images, rows = audit
    expected = best_of(images, nearest_of(images, rows))
    assert rows_of(listing) == [tuple(row[name] for name in NAMES) for row in expected]


CHOICES = st.builds(
    Choice,
    grade=st.sampled_from(["", "exact", "near+", "similar+", "near", "different", "none"]),
    label=st.sampled_from(["", "a", "c", "zebra"]),
    sets=st.sampled_from(["", "test → train", "test → extra", "within test", "a → b"]),
    coverage=st.sampled_from(["", "leaks", "within"]),
    sort=st.sampled_from(["distance", "uncertain", "grade"]),
)


def meets(row, choice):
    ranks = {name: place for place, name in enumerate(GRADES)}
    wanted = choice.grade.rstrip("+")
    grade = ranks.get(row["grade"], 99)
    if choice.grade == "none" and row["grade"] is not None:
        return False
    if choice.grade.endswith("+") and grade > ranks[wanted]:
        return False
    if wanted in ranks and not choice.grade.endswith("+") and row["grade"] != wanted:
        return False
    if choice.label and choice.label not in (row["query_label"], row["reference_label"]):
        return False
    if choice.sets and between(row["query_set"], row["reference_set"]) != choice.sets:
        return False
    return choice.coverage in ("", "within" if row["coverage"] == "within" else "leaks")


@settings(max_examples=25)
@given(audits(), CHOICES)
def test_filters_and_order_are_those_of_the_slow_way(audit, choice):
    listing = read(audit)
    if listing is None:
        return
    ordered = order(listing, choice.sort)
    assert sorted(ordered.tolist()) == list(range(len(listing)))
    found = ordered[fixed(listing, choice)[ordered]].tolist()
    rows = [listing.row(row) for row in range(len(listing))]
    rank = {
        "distance": lambda n: n,
        "uncertain": lambda n: (
            math.inf if rows[n]["probability"] is None else abs(rows[n]["probability"] - 0.5),
            n,
        ),
        "grade": lambda n: ([*GRADES, None].index(rows[n]["grade"]), n),
    }[choice.sort]
    expected = sorted((n for n, row in enumerate(rows) if meets(row, choice)), key=rank)
    assert found == expected
    assert set(couples(listing)) == {between(r["query_set"], r["reference_set"]) for r in rows}
    seen = {row[side] for row in rows for side in ("query_label", "reference_label")}
    assert labels(listing) == sorted(seen - {None})


@given(CHOICES, st.sampled_from(["", "unjudged", "judged", "disputed"]))
def test_a_choice_comes_back_from_its_address(choice, state):
    whole = replace(choice, state=state)
    assert Choice.of(dict(parse_qsl(whole.query))) == whole
    assert whole.filtered == sum(
        map(bool, (whole.grade, whole.label, whole.sets, whole.coverage, state))
    )


def test_what_there_is_not_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"grade must be one of exact, near\+, similar\+, near,"):
        Choice(grade="nearly")
    with pytest.raises(UsageError, match=r"^candidates must be one of listed, nearest; got 'all'$"):
        read_listing(tmp_path, "all")


def test_a_name_that_means_no_pair_is_none(finished):
    listing = read_listing(finished)
    name = listing.name(0)
    one, other = name.split("-")
    assert listing.find(f"{other}-{one}") == 0
    for wrong in ("", "-", name + "-", one, f"{one}-{'0' * 32}", "x-y", "../..", name.upper()):
        if wrong != name:
            assert listing.find(wrong) is None
    assert listing.rows_of([("0" * 32, "1" * 32)]).tolist() == [-1]
    assert listing.rows_of([]).tolist() == []


def summary(candidates, soft=0.62):
    return AuditSummary(settings=Settings(candidates=candidates), thresholds=Thresholds(soft=soft))


def test_the_page_says_where_the_list_was_cut(finished):
    listed, nearest = read_listing(finished), read_listing(finished, "nearest")
    (first, *more) = describe(listed, summary("auto"))
    assert "every pair of similarity 0.62 or more, and the best twenty" in first
    # the near copy of t00 lies in two files
    assert f"{int(listed.repeats.sum()):,} more pair" in more[0]
    for found, candidates, soft, words in (
        (listed, "auto", None, "within the test side: the best twenty of each query"),
        (listed, "nearest", 0.62, "each image's one nearest"),
        (nearest, "nearest", 0.62, "the list of Barz & Denzler (2020)"),
        (nearest, "auto", 0.62, "audit with --candidates nearest for the nearest of all"),
        (replace(listed, left_out=3), "auto", 0.62, "3 pairs with embeddings"),
    ):
        assert words in " ".join(describe(found, summary(candidates, soft)))
