"""Which test images need a replacement, worked out on tables written by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest
from made_sets import made_set

from visleak.errors import UsageError
from visleak.remedy.pool import COLUMNS, find_duplicates


def made(contents: str, flat: str = "", labels: list[str | None] | None = None):
    ids = [str(i) for i in range(len(contents))]
    return made_set(
        "test", ids, [[ord(c)] * 16 for c in contents], [i in flat for i in ids], labels
    )


def pairs(*rows: str) -> pa.Table:
    """Return pairs from ``QUERY SET/REFERENCE GRADE [SIMILARITY [JUDGED]]``."""
    found = []
    for row in rows:
        query, reference, grade, similarity, judged, *_ = [*row.split(), "-", ""]
        other, _, name = reference.partition("/")
        number = None if similarity in ("-", "") else float(similarity)
        coverage = "within" if other == "test" else "intra"
        cells = ("test", query, other, name, number, grade, coverage, judged.strip("-") or None)
        found.append(dict(zip(COLUMNS, cells, strict=True)))
    kinds = {"similarity": pa.float32()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    return pa.Table.from_pylist(found, schema)


def ids(found) -> list[str]:
    return [each.id for each in found.images]


def test_the_rule_of_the_paper():
    """Queries of pairs with train; of a pair within test only the query; both lists count once."""
    table = pairs(
        "4 train/9 near 0.9",
        "1 train/9 exact 1",
        "2 test/3 similar 0.7",
        "1 test/5 near 0.8",
        "0 train/8 different 0.2",
    )
    assert ids(find_duplicates(table, *made("abcdef"))) == ["1", "4"]
    found = find_duplicates(table, *made("abcdef"), "similar")
    assert ids(found) == ["1", "2", "4"]
    one = found.images[0]
    assert [(leak.set, leak.id, leak.within) for leak in one.leaks] == [
        ("train", "9", False),
        ("test", "5", True),
    ]
    assert [leak.id for each in found.images for leak in each.leaks] == ["9", "5", "3", "9"]


@pytest.mark.parametrize(
    ("grade", "want"), [("exact", ["0"]), ("near", ["0", "1"]), ("similar", ["0", "1", "2"])]
)
def test_a_grade_means_it_or_stronger(grade, want):
    table = pairs("0 train/0 exact", "1 train/0 near", "2 train/0 similar", "3 train/0 different")
    assert ids(find_duplicates(table, *made("abcd"), grade)) == want


def test_a_wrong_grade():
    with pytest.raises(UsageError, match="grade must be one of exact, near, similar; got 'soft'"):
        find_duplicates(pairs("0 train/0 near"), *made("a"), "soft")


def test_disputed_pairs_wait():
    table = pairs(
        "0 train/0 near 0.9 disputed", "1 train/0 near 0.9 disputed", "1 train/1 near 0.8 human"
    )
    found = find_duplicates(table, *made("ab"))
    assert (ids(found), found.disputed) == (["1"], 1)
    assert [leak.id for leak in found.images[0].leaks] == ["1"]
    found = find_duplicates(table, *made("ab"), include_disputed=True)
    assert (ids(found), found.disputed) == (["0", "1"], 0)


def test_blank_pictures_are_left_out_and_counted():
    table = pairs("0 train/0 exact 1", "1 train/0 exact 1", "1 train/1 similar 0.9")
    found = find_duplicates(table, *made("ab", flat="1"))
    assert (ids(found), found.blank) == (["0"], 1)


def test_copies_of_one_content_are_told_apart():
    """Decisions are keyed by content; two test images of equal bytes need two replacements."""
    table = pairs("0 train/0 exact", "2 train/0 exact", "3 train/0 exact")
    found = find_duplicates(table, *made("aaab"))
    assert [(each.id, each.copy) for each in found.images] == [("0", 0), ("2", 2), ("3", 0)]
    assert found.images[0].digest == found.images[1].digest


def test_labels_and_unmeasured_similarities_come_along():
    table = pairs("0 train/7 near -", "0 train/8 near 0.5", "1 train/8 near 0.4")
    found = find_duplicates(table, *made("ab", labels=["cat", None]))
    assert [each.label for each in found.images] == ["cat", None]
    assert [leak.similarity for leak in found.images[0].leaks] == [0.5, None]


def test_other_test_sets_are_not_looked_at():
    table = pairs("0 train/0 near")
    other = table.set_column(0, "query_set", pa.array(["val"]))
    assert ids(find_duplicates(other, *made("a"))) == []
