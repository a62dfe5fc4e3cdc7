"""What is particular to faiss: the choice of an index, threads, and reports of recall."""

from __future__ import annotations

import sys

import faiss
import numpy as np
import pytest

from toy_vectors import ALL, GRID_WIDTH, assert_same, brute_force, grid_view, sides_of, units
from visleak.errors import MissingExtra, UsageError
from visleak.rates import Rate
from visleak.search import faiss_search, load_search
from visleak.search.faiss_search import (
    FaissSearch,
    Layout,
    build,
    exact_answer,
    kind_for,
    only_queries,
    recall,
    sampled,
    suited,
)
from visleak.search.hits import Account, Hits, Recall, Wanted


def rows(count: int) -> np.ndarray:
    """Return a matrix of many rows that takes no memory."""
    return np.broadcast_to(np.float32(0), (count, GRID_WIDTH))


@pytest.mark.parametrize(
    ("references", "kind"),
    [(1, "flat"), (20_000, "flat"), (20_001, "hnsw"), (200_001, "ivf"), (10**6, "ivfpq")],
)
def test_the_index_is_chosen_by_size(references, kind):
    assert kind_for(references) == kind


def test_searches_without_an_index():
    assert suited(sides_of(rows(401), rows(50_000)), 200) == "hnsw"
    assert suited(sides_of(rows(400), rows(50_000)), 200) is None
    views = sides_of(rows(401), rows(50_000), views=ALL, make=grid_view)
    assert suited(views, 200) is None
    assert suited(sides_of(rows(1), rows(50)), 200) == "flat"


def test_exact_search_in_place_of_an_index_is_reported(monkeypatch):
    monkeypatch.setattr("visleak.search.faiss_search.SIZES", ((10, "flat"),))
    rng = np.random.default_rng(0)
    sides = sides_of(units(rng, 5, 8), units(rng, 40, 8))
    search, wanted = FaissSearch(), Wanted(0.5, best=2)
    assert_same(search.find(sides, wanted), brute_force(sides, wanted))
    assert search.accounts == [Account("faiss", "exact", exact=True)]


def test_few_rows_are_not_quantised():
    assert Layout.of("ivfpq", 255, 16, penalised=False).key == "Flat"
    assert Layout.of("ivfpq", 256, 16, penalised=True).key == "IVF16,PQ5np"


def test_codes_are_shorter_and_the_slack_makes_up_for_it():
    rng = np.random.default_rng(1)
    reference = units(rng, 3000, 32)
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
    told: list[int] = []
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


def test_faiss_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match="the faiss search engine needs an extra: pip install"):
        load_search("faiss")


def test_unknown_engines_are_refused():
    with pytest.raises(UsageError, match=r"search must be one of exact, faiss; got 'annoy'"):
        load_search("annoy")


def hits_of(*pairs: tuple[int, int, float], queries: int) -> Hits:
    query, reference, similarity = zip(*pairs, strict=True) if pairs else ((), (), ())
    return Hits(
        np.array(query, np.int64),
        np.array(reference, np.int64),
        np.array(similarity, np.float32),
        np.zeros(len(query), np.int8),
        np.zeros(queries, np.int64),
    )


def test_recall_by_hand():
    sides = sides_of(rows(2), rows(10))
    exact = hits_of((0, 1, 0.95), (0, 2, 0.9), (1, 3, 0.92), (1, 4, 0.5), queries=2)
    found = hits_of((0, 1, 0.95), (1, 3, 0.92), (1, 5, 0.5), queries=2)
    got = recall(found, exact, sides, Wanted(0.9, best=2))
    assert got.pairs == Rate.of(2, 3)
    assert got.leaks == Rate.of(2, 2)
    assert got.best == Rate.of(3, 4)  # 5 is as good as 4; of query 0 the second is missing
    nothing = recall(hits_of(queries=2), exact, sides, Wanted(0.9, best=2))
    assert (nothing.pairs, nothing.leaks, nothing.best.count) == (Rate.of(0, 3), Rate.of(0, 2), 0)
    assert recall(found, exact, sides, Wanted(None, best=1)).best == Rate.of(2, 2)


@pytest.mark.parametrize("same", [False, True])
def test_exact_hits_of_some_queries(same):
    rng = np.random.default_rng(4)
    reference = units(rng, 60, GRID_WIDTH, repeats=0.5)
    sides = sides_of(reference if same else units(rng, 60, GRID_WIDTH), reference, same=same)
    wanted = Wanted(0.6, best=3, cap=2)
    picked = np.array([2, 3, 30, 59])
    every = only_queries(brute_force(sides, wanted), picked)
    got = exact_answer(sides, wanted, picked, 1)
    for name in ("query", "reference", "similarity", "view"):
        np.testing.assert_array_equal(getattr(got, name), getattr(every, name))


def test_queries_for_tuning_and_measuring_are_disjoint():
    """Or the recall would be too good."""
    tuned, measured = sampled(1000, 200)
    assert len(tuned) == len(measured) == 200
    assert not set(tuned) & set(measured)
    assert [len(rows) for rows in sampled(5, 200)] == [2, 3]
    assert [rows.tolist() for rows in sampled(1, 200)] == [[0], [0]]


def test_accounts_as_sentences():
    seen = Recall(200, Rate.of(148, 150), Rate.of(90, 90), Rate.of(3900, 4000))
    account = Account("faiss", "IVF4096,PQ128np", {"nprobe": 16}, recall=seen)
    assert "faiss IVF4096,PQ128np may miss pairs: it found 98.67 % (148 of 150, 95" in str(account)
    none = Recall(200, Rate.of(0, 0), Rate.of(0, 0), Rate.of(0, 0))
    for measured, said in ((none, "sample of 200 queries there was none"), (None, "not measured")):
        assert said in str(Account("faiss", "HNSW32", recall=measured))
