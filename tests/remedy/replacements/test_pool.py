"""Test images that need a replacement, the order of a pool, neighbours of a candidate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.encoders import load_encoder
from visleak.pipeline.encoded_set import Side
from visleak.records import Fingerprints, ImageSet, Problem
from visleak.remedy.pool import COLUMNS, class_of, find_duplicates, make_pool
from visleak.remedy.selection import COMPARED, SHOWN, Neighbours


def made_set(
    name: str,
    ids: Sequence[str],
    digests: Sequence[Sequence[int]],
    flat: Sequence[bool] = (),
    labels: Sequence[str | None] | None = None,
    matrix: np.ndarray | None = None,
    problems: tuple[Problem, ...] = (),
) -> tuple[ImageSet, Fingerprints]:
    count, texts = len(ids), pa.array(ids, pa.string())
    prints = Fingerprints(
        set=name,
        rows=np.arange(count),
        ids=texts,
        matrix=np.ones((count, 1), np.float32) if matrix is None else matrix,
        digests=np.array(digests, np.uint8).reshape(count, 16),
        sizes=np.ones((count, 2), np.int32),
        flat=np.array(flat, np.bool_) if len(flat) else np.zeros(count, np.bool_),
        encoder="e",
    )
    known = None if labels is None else pa.array(labels, pa.string())
    return ImageSet(name, texts, texts, opener=None, labels=known, problems=problems), prints


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


def test_disputed_pairs_are_excluded():
    table = pairs(
        "0 train/0 near 0.9 disputed", "1 train/0 near 0.9 disputed", "1 train/1 near 0.8 human"
    )
    found = find_duplicates(table, *made("ab"))
    assert (ids(found), found.disputed) == (["1"], 1)
    assert [leak.id for leak in found.images[0].leaks] == ["1"]
    found = find_duplicates(table, *made("ab"), include_disputed=True)
    assert (ids(found), found.disputed) == (["0", "1"], 0)


def test_blank_images_are_excluded():
    table = pairs("0 train/0 exact 1", "1 train/0 exact 1", "1 train/1 similar 0.9")
    found = find_duplicates(table, *made("ab", flat="1"))
    assert (ids(found), found.blank) == (["0"], 1)


def test_copies_of_one_content_are_numbered():
    """Decisions are keyed by content, and two test images of equal bytes need two."""
    table = pairs("0 train/0 exact", "2 train/0 exact", "3 train/0 exact")
    found = find_duplicates(table, *made("aaab"))
    assert [(each.id, each.copy) for each in found.images] == [("0", 0), ("2", 2), ("3", 0)]
    assert found.images[0].digest == found.images[1].digest


def test_labels_and_similarities_of_duplicates():
    table = pairs("0 train/7 near -", "0 train/8 near 0.5", "1 train/8 near 0.4")
    found = find_duplicates(table, *made("ab", labels=["cat", None]))
    assert [each.label for each in found.images] == ["cat", None]
    assert [leak.similarity for leak in found.images[0].leaks] == [0.5, None]


def test_other_test_sets_are_ignored():
    table = pairs("0 train/0 near")
    other = table.set_column(0, "query_set", pa.array(["val"]))
    assert ids(find_duplicates(other, *made("a"))) == []


def pool(contents: list[int], flat: set[int] = frozenset(), labels: list[str | None] | None = None):
    ids, digests = [f"i{i}" for i in range(len(contents))], [digest(c) for c in contents]
    gone = (Problem("pool", "gone", "gone", "missing"),)
    return made_set("pool", ids, digests, [c in flat for c in contents], labels, problems=gone)


def digest(content: int) -> list[int]:
    return list(content.to_bytes(16, "big"))


def test_unusable_images_of_a_pool_are_counted():
    labels = ["Cat", "cat", "CAT", "cat", None, "dog"]
    images, prints = pool([1, 2, 2, 3, 4, 1], flat={3}, labels=labels)
    made = make_pool(images, prints, {bytes(digest(1))}, seed=0)
    assert (made.known, made.repeated, made.blank, made.unreadable) == (2, 1, 1, 1)
    assert made.usable == 2
    assert sorted(made.queues[None].tolist()) == [1, 4]
    # of equal contents the first in the set is used
    assert made.queues["cat"].tolist() == [1]
    assert set(made.queues) == {None, "cat"}


@given(
    contents=st.lists(st.integers(0, 40), min_size=1, max_size=25, unique=True),
    seed=st.integers(0, 5),
    turn=st.randoms(use_true_random=False),
)
def test_the_order_depends_on_content_and_seed_alone(contents, seed, turn):
    first = make_pool(*pool(contents), set(), seed)
    order = [contents[row] for row in first.queues[None]]
    shuffled = contents.copy()
    turn.shuffle(shuffled)
    second = make_pool(*pool(shuffled), set(), seed)
    assert [shuffled[row] for row in second.queues[None]] == order
    part = shuffled[: len(shuffled) // 2 + 1]
    third = make_pool(*pool(part), set(), seed)
    assert [part[row] for row in third.queues[None]] == [c for c in order if c in part]


def test_another_seed_is_another_order():
    contents = list(range(30))
    orders = {tuple(make_pool(*pool(contents), set(), seed).queues[None]) for seed in range(4)}
    assert len(orders) == 4


def test_the_order_is_random():
    """As many ascents as in a random permutation."""
    order = make_pool(*pool(list(range(500))), set(), 0).queues[None]
    ascents = int((np.diff(order) > 0).sum())
    assert 200 < ascents < 300


def test_an_empty_pool_and_one_without_labels():
    assert make_pool(*pool([]), set(), 0).usable == 0
    assert set(make_pool(*pool([1, 2]), set(), 0).queues) == {None}


def test_classes_are_normalised_labels():
    assert class_of("Great_White-Shark ") == "great white shark"
    assert class_of(None) is None


def side(name: str, count: int, seed: int) -> Side:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(count, 560)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    ids, digests = [f"{row:03d}" for row in range(count)], rng.integers(0, 256, (count, 16))
    images, prints = made_set(name, ids, digests, matrix=matrix)
    background = rng.uniform(0, 0.2, count).astype(np.float32)
    return Side(images, prints, background, np.arange(count))


def test_the_nearest_of_both_rankings_are_neighbours() -> None:
    """Against all similarities."""
    existing = {name: side(name, 90, seed) for seed, name in enumerate(("test", "train"))}
    pool = side("pool", 40, 7)
    neighbours = Neighbours(existing, pool, load_encoder("builtin"), (0,), 1)
    approved = np.arange(1, 40)
    found = neighbours.of(0, approved)
    compared = {(near.set, near.row) for near in found}
    query = pool.fingerprints.matrix[0].astype(np.float64)
    want = set()
    for name, own in existing.items():
        alike = own.fingerprints.matrix.astype(np.float64) @ query
        for score in (alike, alike - own.background / 2):
            want |= {(name, int(row)) for row in np.argsort(-score)[:COMPARED]}
    others = pool.fingerprints.matrix.astype(np.float64) @ query
    others[0] = -2.0
    want |= {("pool", int(row)) for row in np.argsort(-others)[:COMPARED]}
    assert compared == want
    assert len(want) > 3 * COMPARED  # the two rankings differ
    similarities = [near.similarity for near in found]
    assert similarities == sorted(similarities, reverse=True)
    assert len(found) == len(compared) > SHOWN
