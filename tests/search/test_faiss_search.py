"""What is particular to faiss: the choice of an index, threads, and reports of recall."""

import faiss
import numpy as np
import pytest

from toy_vectors import ALL, GRID_WIDTH, assert_same, brute_force, grid_view, sides_of, units
from visleak.errors import UsageError
from visleak.rates import Rate
from visleak.search import faiss_search, load_search
from visleak.search.faiss_search import FaissSearch, Layout, build, recall, sampled, suited
from visleak.search.hits import Account, Hits, Wanted


def rows(count):
    """Return a matrix of many rows that takes no memory."""
    return np.broadcast_to(np.float32(0), (count, GRID_WIDTH))


def test_searches_without_an_index():
    for references, kind in ((50, "flat"), (20_001, "hnsw"), (200_001, "ivf"), (10**6, "ivfpq")):
        assert suited(sides_of(rows(401), rows(references)), 200) == kind
    assert suited(sides_of(rows(400), rows(50_000)), 200) is None
    views = sides_of(rows(401), rows(50_000), views=ALL, make=grid_view)
    assert suited(views, 200) is None
    with pytest.raises(UsageError, match="search must be one of exact, faiss; got 'annoy'"):
        load_search("annoy")


def test_exact_search_in_place_of_an_index_is_reported(monkeypatch):
    monkeypatch.setattr("visleak.search.faiss_search.SIZES", ((10, "flat"),))
    rng = np.random.default_rng(0)
    sides = sides_of(units(rng, 5, 8), units(rng, 40, 8))
    search, wanted = FaissSearch(), Wanted(0.5, best=2)
    assert_same(search.find(sides, wanted), brute_force(sides, wanted))
    assert search.accounts == [Account("faiss", "exact", exact=True)]


def test_codes_are_shorter_and_the_slack_makes_up_for_it():
    reference = units(np.random.default_rng(1), 3000, 32)
    layout = Layout.of("ivfpq", 3000, 32, penalised=False)
    index = build(layout, reference, np.zeros(3000, np.float32), lambda done: None)
    index.filled.nprobe = index.filled.nlist
    own = np.arange(0, 3000, 10)
    for slack, low, high in ((0.0, 0, 150), (index.slack, 290, 300)):
        row, _, found = index.reaching(reference[own], 0.99 - slack, penalised=False)
        assert low <= (own[row] == found).sum() <= high


def test_threads_are_as_before():
    before = faiss.omp_get_max_threads()
    rng = np.random.default_rng(2)
    sides = sides_of(units(rng, 5, 8), units(rng, 40, 8))
    told = []
    FaissSearch(progress=told.append).find(sides, Wanted(0.5), workers=before + 1)
    assert faiss.omp_get_max_threads() == before
    assert told[-1] == 40
    broken = sides_of(units(rng, 5, 8), units(rng, 40, 9))
    with pytest.raises((AssertionError, ValueError)):
        FaissSearch().find(broken, Wanted(0.5), workers=before + 1)
    assert faiss.omp_get_max_threads() == before


@pytest.mark.parametrize("crowd", [1, 50, 10**6])
def test_floods_change_no_hit(monkeypatch, crowd):
    monkeypatch.setattr(faiss_search, "CROWD", crowd)
    reference = np.repeat(units(np.random.default_rng(3), 4, GRID_WIDTH), 60, 0)
    sides = sides_of(reference[::3], reference, views=ALL, make=grid_view)
    wanted = Wanted(0.3, best=70, cap=90)
    assert_same(FaissSearch("flat").find(sides, wanted), brute_force(sides, wanted))


def test_recall_by_hand():
    def hits_of(*pairs):
        query, reference, similarity = np.array(pairs).reshape(-1, 3).T
        ends = query.astype(np.int64), reference.astype(np.int64)
        views, total = np.zeros(len(pairs), np.int8), np.zeros(2, np.int64)
        return Hits(*ends, similarity.astype(np.float32), views, total)

    sides = sides_of(rows(2), rows(10))
    exact = hits_of((0, 1, 0.95), (0, 2, 0.9), (1, 3, 0.92), (1, 4, 0.5))
    found = hits_of((0, 1, 0.95), (1, 3, 0.92), (1, 5, 0.5))
    got = recall(found, exact, sides, Wanted(0.9, best=2))
    assert got.pairs == Rate.of(2, 3)
    assert got.leaks == Rate.of(2, 2)
    assert got.best == Rate.of(3, 4)  # 5 is as good as 4; of query 0 the second is missing
    none = recall(hits_of(), hits_of(), sides, Wanted(0.9, best=0))
    assert "there was none to find" in str(Account("faiss", "HNSW32", recall=none))
    assert "not measured" in str(Account("faiss", "HNSW32"))
    nothing = recall(hits_of(), exact, sides, Wanted(0.9, best=2))
    assert (nothing.pairs, nothing.leaks, nothing.best.count) == (Rate.of(0, 3), Rate.of(0, 2), 0)
    assert recall(found, exact, sides, Wanted(None, best=1)).best == Rate.of(2, 2)


def test_queries_for_tuning_and_measuring_are_disjoint():
    """Or the recall would be too good."""
    tuned, measured = sampled(1000, 200)
    assert len(tuned) == len(measured) == 200
    assert not set(tuned) & set(measured)
    assert [len(rows) for rows in sampled(5, 200)] == [2, 3]
    assert [rows.tolist() for rows in sampled(1, 200)] == [[0], [0]]
