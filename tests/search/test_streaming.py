"""The stream against exact search through everything at once: byte for byte, however it is cut."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_vectors import Shard, sides_of, units
from visleak.search import streaming, streaming_screen
from visleak.search.exact import ExactSearch
from visleak.search.hits import Merger, PartitionHits, Wanted
from visleak.search.streaming import PartitionSearch, stream
from visleak.search.streaming_screen import ProductScreen
from visleak.vectors import forget, unit_rows

WIDTH = 24


def merged(queries, wanted, found):
    merger = Merger(queries, wanted)
    for number, hits in found:
        merger.add(number, hits)
    return merger.finish()


def shards(stored: np.ndarray, cuts: list[int], seed: int = 0) -> list[Shard]:
    """Cut a matrix into partitions; its ids come in any order."""
    ids = np.array([f"{i}" for i in np.random.default_rng(seed).permutation(len(stored))], object)
    edges = [0, *sorted(min(cut, len(stored)) for cut in cuts), len(stored)]
    cuts = enumerate(itertools.pairwise(edges))
    return [Shard(stored[a:b], ids[a:b], stamp=str(number)) for number, (a, b) in cuts]


def expected(query: np.ndarray, partitions: list[Shard], wanted: Wanted):
    """Search everything at once: load, normalise, leave out what is no number."""
    stored = np.concatenate([np.asarray(each.stored, np.float64) for each in partitions])
    ids = np.concatenate([each.ids for each in partitions])
    loaded = unit_rows(stored)
    rows = np.flatnonzero(~loaded.broken)
    order = np.empty(len(rows), np.int64)
    order[np.argsort(ids[rows].astype(str), kind="stable")] = np.arange(len(rows))
    reference = loaded.matrix[rows]
    return ExactSearch().find(sides_of(query, reference, order=order), wanted), rows, ids, loaded


def assert_equals_exact(query, partitions, wanted, found) -> None:
    hits, rows, ids, loaded = expected(query, partitions, wanted)
    offsets = np.cumsum([0, *(each.rows for each in partitions)])
    np.testing.assert_array_equal(found.query, hits.query)
    np.testing.assert_array_equal(offsets[found.partition] + found.row, rows[hits.reference])
    assert found.similarity.tobytes() == hits.similarity.tobytes()
    assert found.id.to_pylist() == ids[rows[hits.reference]].tolist()
    np.testing.assert_array_equal(found.total, hits.total)
    places = offsets[found.broken[:, 0]] + found.broken[:, 1]
    np.testing.assert_array_equal(places, np.flatnonzero(loaded.broken))
    assert found.off == loaded.off.sum()
    assert found.rows == offsets[-1]


def planted(seed: int, queries: int, references: int, width: int = WIDTH):
    """Return queries and references with copies, near copies and repeated vectors."""
    rng = np.random.default_rng(seed)
    reference = units(rng, references, width, repeats=0.4)
    query = units(rng, queries, width, repeats=0.2)
    for i in range(0, queries if references else 0, 2):
        near = reference[rng.integers(references)] + rng.normal(size=width) * rng.choice(
            [0, 0.01, 0.05]
        )
        query[i] = near / np.linalg.norm(near)
    return query, reference


def spoiled(reference: np.ndarray, seed: int, kind: str) -> np.ndarray:
    """Store vectors the way files do: in some float type, some of them damaged."""
    rng = np.random.default_rng(seed)
    rows = reference.astype(np.float64)
    if "scaled" in kind and len(rows):
        rows *= rng.choice([0.5, 1.0, 1.0099, 1.0101, 7.0], len(rows))[:, None]
    stored = rows.astype(kind.split(maxsplit=1)[0])
    if "damaged" in kind and len(rows):
        some = rng.choice(len(rows), max(1, len(rows) // 8))
        for row in some:
            stored[row, rng.integers(WIDTH)] = rng.choice([np.nan, np.inf, -np.inf])
        stored[rng.integers(len(rows))] = 0
    return stored


KINDS = ("float16", "float32", "float64", "float16 scaled damaged", "float32 scaled damaged")

questions = st.builds(
    Wanted,
    threshold=st.sampled_from([None, -1.0, 0.0, 0.3, 0.9, 0.999, 1.0]),
    best=st.sampled_from([0, 1, 2, 20, 200]),
    cap=st.sampled_from([1, 2, 7, 1000]),
)


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 30),
    st.integers(0, 120),
    st.lists(st.integers(0, 120), max_size=5),
    questions,
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.sampled_from([1, 7, 1000]),
    st.sampled_from([1, 50, 10**6]),
    st.booleans(),
)
def test_any_cut_answers_as_one_search_over_everything(
    seed, queries, references, cuts, wanted, kind, workers, block, limit, planned
):
    """Partitions, blocks, threads and what is settled when never change a byte."""
    query, reference = planted(seed, queries, references)
    partitions = shards(spoiled(reference, seed, kind), cuts, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProductScreen, "block", block)
        if planned:
            patch.setattr(streaming, "FEW_ROWS", 1)
            patch.setattr(streaming_screen, "FINDING_AXES", 0)
        patch.setattr("visleak.search.hits.COLLECTOR_LIMIT", limit)
        patch.setattr("visleak.search.hits.PENDING_LIMIT", limit)
        found = stream(query, partitions, wanted, workers=workers)
    assert_equals_exact(query, partitions, wanted, found)


def test_a_search_is_picklable_and_its_hits_survive_as_bytes():
    query, reference = planted(3, 20, 200)
    partitions = shards(spoiled(reference, 3, KINDS[3]), [50, 50, 130], 3)
    wanted = Wanted(0.9, best=3, cap=4)
    search = pickle.loads(pickle.dumps(PartitionSearch(query, wanted)))
    found = []
    for number, partition in reversed(list(enumerate(partitions))):
        hits = search.find(pickle.loads(pickle.dumps(partition)))
        found.append((number, PartitionHits.from_bytes(hits.to_bytes())))
    assert len(found[0][1])
    assert_equals_exact(query, partitions, wanted, merged(len(query), wanted, found))


def test_other_bytes_are_not_hits(monkeypatch):
    """A damaged cache must not become an answer."""
    query, reference = planted(1, 9, 60)
    found = PartitionSearch(query, Wanted(0.5)).find(shards(reference, [])[0])
    stored = found.to_bytes()
    cut = (stored[:length] for length in range(0, len(stored) - 16, 61))
    for other in (b"no hits", b"\0" * 64, *cut):
        with pytest.raises(ValueError, match="hits of a partition: bytes"):
            PartitionHits.from_bytes(other)
    assert PartitionHits.from_bytes(stored).id.equals(found.id)
    # the bytes of a later version may mean something else
    monkeypatch.setattr("visleak.search.hits.LAYOUT", b"2")
    with pytest.raises(ValueError, match="another layout"):
        PartitionHits.from_bytes(stored)


class Store(dict):
    """Stores hits by the partition's stamp."""

    def get(self, partition):
        return dict.get(self, partition.stamp)

    def put(self, partition, found):
        self[partition.stamp] = found


def test_stored_hits_are_not_searched_again():
    query, reference = planted(5, 20, 200)
    partitions = shards(reference, [40, 90], 5)
    store, wanted = Store(), Wanted(0.9, best=2)
    whole = stream(query, partitions, wanted, keep=store)
    assert [each.read for each in partitions] == [1, 1, 1]
    del store["1"]
    store["2"] = b"damaged"
    again = stream(query, partitions, wanted, keep=store)
    assert [each.read for each in partitions] == [1, 2, 2]
    assert_equals_exact(query, partitions, wanted, again)
    assert again.similarity.tobytes() == whole.similarity.tobytes()


def test_progress_counts_every_row_once_wherever_it_is_done():
    query, reference = planted(6, 5, 100)
    partitions = shards(reference, [30, 60], 6)
    store, wanted = Store(), Wanted(0.9)
    stream(query, partitions[:1], wanted, keep=store)
    for run in (None, lambda search, some: [(n, search.find(p)) for n, p in some]):
        told: list[int] = []
        stream(query, partitions, wanted, keep=Store(store), progress=told.append, run=run)
        assert told == sorted(told)
        assert told[0] == 30
        assert told[-1] == 100


def test_ids_are_read_only_for_hits():
    """Reading the metadata of hundreds of millions of images would cost more than the search."""
    query, reference = planted(7, 4, 500)
    partitions = shards(reference, [100], 7)
    found = stream(query, partitions, Wanted(0.9, best=0))
    asked = sum(sum(each.asked) for each in partitions)
    assert 0 < asked <= 2 * len(found)
    none = shards(-np.ones((50, WIDTH)), [])
    stream(np.abs(query), none, Wanted(0.9, best=0))
    assert none[0].asked == []


@pytest.mark.parametrize("even", [True, False], ids=["even", "decaying"])
@pytest.mark.parametrize("wanted", [Wanted(0.9, best=0), Wanted(0.97, best=2, cap=3)], ids=str)
def test_chosen_screens_lose_nothing_at_the_edge_of_the_threshold(even, wanted, monkeypatch):
    rng, width = np.random.default_rng(4), 96
    spectrum = np.ones(width) if even else 1 / np.arange(1, width + 1)
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    rows = rng.normal(size=(9400, width)) * np.sqrt(spectrum / spectrum.sum()) @ turn
    rows = (rows + turn[0]) / np.linalg.norm(rows + turn[0], axis=1, keepdims=True)
    query, stored = rows[:400].astype(np.float32), rows[400:]
    for number, distance in enumerate(np.tile([0, 1e-8, -1e-8, 1e-6, -1e-6, 1e-4, -1e-4], 50)):
        vector, goal = query[number].astype(np.float64), wanted.threshold + distance
        noise = rng.normal(size=width)
        noise -= noise @ vector / (vector @ vector) * vector
        stored[number * 25] = goal * vector + noise * np.sqrt(1 - goal**2) / np.linalg.norm(noise)
    monkeypatch.setattr(streaming_screen, "FINDING_AXES", 0.0)
    partitions = shards(stored.astype(np.float32), [4500, 4510], 4)
    search = PartitionSearch(query, wanted)
    found = [(n, search.find(each, workers=2)) for n, each in enumerate(partitions)]
    assert_equals_exact(query, partitions, wanted, merged(len(query), wanted, found))
    assert sum(hits.total.sum() for _, hits in found) > 100
    if not wanted.best:
        part = search._screens[True]._part
        assert part.kept < width
        assert (part.axes is None) is even


def test_memory_of_a_mapped_partition_is_given_back_on_the_way(tmp_path, monkeypatch):
    query, reference = planted(10, 20, 400)
    (shard,) = shards(reference, [], 10)
    np.save(tmp_path / "rows.npy", reference)
    shard.stored = np.load(tmp_path / "rows.npy", mmap_mode="r")
    forgotten = []

    def watched(stored):
        forgotten.append(len(stored))
        forget(stored)

    monkeypatch.setattr(streaming, "forget", watched)
    monkeypatch.setattr(streaming, "FORGET_AFTER", 100 * WIDTH * 4)
    monkeypatch.setattr(ProductScreen, "block", 50)
    wanted = Wanted(0.9, best=1)
    assert_equals_exact(query, [shard], wanted, stream(query, [shard], wanted, workers=2))
    assert forgotten == [400, 400]


def test_a_flood_of_equal_vectors_is_cut_by_id_and_counted():
    query = units(np.random.default_rng(8), 2, WIDTH)
    stored = np.repeat(query[:1], 5000, axis=0)
    partitions = shards(stored, [1000, 1500], 8)
    found = stream(query, partitions, Wanted(0.99, best=0, cap=7))
    assert found.total.tolist() == [5000, 0]
    assert found.id.to_pylist() == sorted(str(i) for i in range(5000))[:7]
