"""The stream against exact search through everything at once: byte for byte, however it is cut."""

import itertools
from pathlib import Path
from types import SimpleNamespace

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
from visleak.vectors import unit_rows

WIDTH = 24


def merged(queries, wanted, found):
    merger = Merger(queries, wanted)
    for number, hits in found:
        merger.add(number, hits)
    return merger.finish()


def shards(stored, cuts, seed=0):
    """Cut a matrix into partitions; its ids come in any order."""
    ids = np.array([f"{i}" for i in np.random.default_rng(seed).permutation(len(stored))], object)
    edges = [0, *sorted(min(cut, len(stored)) for cut in cuts), len(stored)]
    cuts = enumerate(itertools.pairwise(edges))
    return [Shard(stored[a:b], ids[a:b], stamp=str(number)) for number, (a, b) in cuts]


def expected(query, partitions, wanted):
    """Search everything at once: load, normalise, leave out what is no number."""
    stored = np.concatenate([np.asarray(each.stored, np.float64) for each in partitions])
    ids = np.concatenate([each.ids for each in partitions])
    loaded = unit_rows(stored)
    rows = np.flatnonzero(~loaded.broken)
    order = np.empty(len(rows), np.int64)
    order[np.argsort(ids[rows].astype(str), kind="stable")] = np.arange(len(rows))
    reference = loaded.matrix[rows]
    return ExactSearch().find(sides_of(query, reference, order=order), wanted), rows, ids, loaded


def assert_equals_exact(query, partitions, wanted, found):
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


def planted(seed, queries, references, width=WIDTH):
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


def spoiled(reference, seed, kind):
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
    damaged = SimpleNamespace(get=lambda partition: b"damaged", put=lambda *_: None)
    again = stream(query, shards(reference, []), Wanted(0.5), keep=damaged)
    assert again.total.tolist() == found.total.tolist()
    # the bytes of a later version may mean something else
    monkeypatch.setattr("visleak.search.hits.LAYOUT", b"2")
    with pytest.raises(ValueError, match="another layout"):
        PartitionHits.from_bytes(stored)


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


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_memory_of_a_mapped_partition_is_given_back(tmp_path, monkeypatch):
    query, reference = planted(10, 20, 50_000)
    path = tmp_path / "rows.npy"
    np.save(path, reference)

    def resident():
        lines = Path("/proc/self/smaps").read_text().split(str(path))[1].splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("Rss:")))

    monkeypatch.setattr(streaming, "FORGET_AFTER", 100 * WIDTH * 4)
    monkeypatch.setattr(ProductScreen, "block", 50)
    (shard,) = shards(np.load(path, mmap_mode="r"), [])
    total, before, wanted = shard.stored.sum(), resident(), Wanted(0.9, best=1)
    found = stream(query, [shard], wanted, workers=2)
    assert resident() < before / 4
    # nor are the ids of hundreds of millions of images read, but those of hits
    assert 0 < sum(shard.asked) <= 2 * len(found)
    assert shard.stored.sum() == total
    assert_equals_exact(query, [shard], wanted, found)
