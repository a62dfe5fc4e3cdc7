"""One suite for all engines: planted answers, checked against brute force in float64."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from engines import APPROXIMATE, EXACT, PLAIN

from toy_vectors import (
    ALL,
    GRID,
    GRID_WIDTH,
    assert_same,
    brute_force,
    grid_view,
    sides_of,
    similarities,
    units,
)
from visleak.search.hits import Rows, Sides, Wanted

#: What an engine that may miss pairs must still find of the planted ones of some questions.
BAR = 0.97
PLANTED = ("copies", "seen_in_views", "with_itself", "penalised")

#: The coordinate that no view moves or flips.
MIDDLE = 2 * (GRID * GRID // 2)

Question = tuple[Sides, Wanted]


def planted(queries=60, references=400, width=GRID_WIDTH, seed=1, noise=0.05):
    """Return two sides where query i is a noisy copy of reference 3 i."""
    rng = np.random.default_rng(seed)
    reference = units(rng, references, width, repeats=0.1)
    copies = reference[3 * np.arange(queries)].astype(float)
    copies += rng.normal(0, noise, copies.shape) / np.sqrt(width)
    copies /= np.linalg.norm(copies, axis=1, keepdims=True)
    return copies.astype(np.float32), reference


def one_axis(values):
    """Return unit rows with the given values in the middle coordinate."""
    cosine = np.array(values, np.float32)
    rows = np.zeros((len(cosine), GRID_WIDTH), np.float32)
    rows[:, MIDDLE] = cosine
    rows[:, 0] = np.sqrt(np.maximum(0, 1 - cosine.astype(float) ** 2))
    return rows


def few(queries=20, references=60):
    query, reference = planted(20, 60)
    return sides_of(query[:queries], reference[:references])


def zero_vectors():
    query, reference = planted(20, 100)
    query[::5], reference[::7] = 0, 0
    return sides_of(query, reference)


def identical_vectors():
    one = units(np.random.default_rng(2), 1, GRID_WIDTH)
    reference = np.concatenate([np.repeat(one, 90, 0), units(np.random.default_rng(3), 40, 18)])
    return sides_of(np.repeat(one, 4, 0), reference)


def rounded_to_one():
    """Only a vector whose product with itself rounds to 1 reaches a threshold of 1."""
    query, reference = planted(noise=0)
    query[0] = reference[0] = one_axis([1.0])
    return sides_of(query, reference)


def along_an_axis(values, **others):
    return sides_of(one_axis([1.0]), one_axis(values), **others)


BELOW = np.nextafter(np.float32(0.85), np.float32(0))
PLAIN_QUESTIONS: dict[str, Callable[[], Question]] = {
    "copies": lambda: (sides_of(*planted()), Wanted(0.9, best=3)),
    "identical_vectors": lambda: (identical_vectors(), Wanted(0.9, best=5, cap=7)),
    # thirty of each similarity: the last of the best falls into a tie
    "ties_at_the_last_place": lambda: (
        along_an_axis(np.repeat([0.95, 0.9, 0.85], 30)),
        Wanted(None, best=45),
    ),
    # a similarity at the threshold counts, the next smaller number does not
    "exactly_reached": lambda: (along_an_axis([0.85, BELOW] * 20), Wanted(0.85, best=0)),
    "threshold_of_one": lambda: (rounded_to_one(), Wanted(1.0, best=0)),
    "capped": lambda: (sides_of(*planted()), Wanted(0.2, best=0, cap=4)),
    "everything": lambda: (few(), Wanted(-1.0, best=0)),
    "more_than_there_are": lambda: (few(), Wanted(None, best=200)),
    "nothing_similar": lambda: (few(), Wanted(1.0, best=0)),
    "zero_vectors": lambda: (zero_vectors(), Wanted(0.5, best=4)),
    "no_queries": lambda: (few(queries=0), Wanted(0.5, best=2)),
    "no_references": lambda: (few(references=0), Wanted(0.5, best=2)),
    "one_row": lambda: (few(1, 1), Wanted(0.5, best=2)),
}


def penalised():
    """The best are those of the highest similarity after a penalty; the threshold ignores it."""
    penalty = np.random.default_rng(4).random(400).astype(np.float32) / 2
    return replace(sides_of(*planted()), penalty=penalty)


def with_itself(count=150, seed=5, **others):
    """No image is a copy of itself; equal vectors are of each other."""
    rows = units(np.random.default_rng(seed), count, GRID_WIDTH, repeats=0.3)
    return sides_of(rows, rows, same=True, **others)


def seen_in_views():
    """Mirrored, turned and inverted copies."""
    query, reference = planted()
    for i in range(len(query)):
        query[i] = grid_view(query[[i]], i % 9)[0]
    return sides_of(query, reference, views=ALL, make=grid_view)


def of_a_larger_matrix():
    """Sides may be rows of a matrix on disk."""
    query, reference = planted()
    return sides_of(Rows(query, np.arange(0, 60, 2)), Rows(reference, np.arange(0, 400, 3)))


IN_VIEWS = {"views": ALL, "make": grid_view, "penalty": np.full(80, 0.1, np.float32)}
FULL_QUESTIONS = PLAIN_QUESTIONS | {
    # totals count the images of a row
    "weighted": lambda: (
        replace(sides_of(*planted()), weight=1 + np.arange(400)),
        Wanted(0.5, best=0, cap=2),
    ),
    "penalised": lambda: (penalised(), Wanted(0.9, best=3)),
    "with_itself": lambda: (with_itself(), Wanted(0.9, best=3)),
    "seen_in_views": lambda: (seen_in_views(), Wanted(0.9, best=3)),
    # of views that agree the first counts
    "views_that_agree": lambda: (
        along_an_axis([1.0, 0.9], views=ALL, make=grid_view),
        Wanted(0.5, best=1),
    ),
    "with_itself_in_views": lambda: (with_itself(80, 6, **IN_VIEWS), Wanted(0.6, best=2, cap=3)),
    "of_a_larger_matrix": lambda: (of_a_larger_matrix(), Wanted(0.9, best=3)),
}


@pytest.fixture(scope="module")
def oracle():
    """Return the answer of brute force to a question, each worked out once."""
    answers = {}

    def answer(name):
        if name not in answers:
            sides, wanted = FULL_QUESTIONS[name]()
            answers[name] = sides, wanted, brute_force(sides, wanted)
        return answers[name]

    return answer


def test_the_questions_have_the_planted_answers(oracle):
    """Otherwise agreement on them would mean nothing."""
    empty = {name for name in FULL_QUESTIONS if not len(oracle(name)[2].query)}
    assert empty == {"nothing_similar", "no_queries", "no_references"}
    assert len(oracle("copies")[2].query) >= 180
    assert oracle("exactly_reached")[2].total.tolist() == [20]
    assert oracle("capped")[2].total.max() > 4
    assert set(oracle("seen_in_views")[2].view.tolist()) == set(ALL)


@pytest.mark.parametrize("question", FULL_QUESTIONS)
@pytest.mark.parametrize("engine", EXACT)
def test_engines_that_find_everything(engine, question, oracle):
    sides, wanted, expected = oracle(question)
    for workers in (1, 2):
        assert_same(EXACT[engine]().find(sides, wanted, workers=workers), expected)


@pytest.mark.parametrize("question", PLAIN_QUESTIONS)
@pytest.mark.parametrize("engine", PLAIN)
def test_engines_for_partitions(engine, question, oracle):
    sides, wanted, expected = oracle(question)
    assert_same(PLAIN[engine]().find(sides, wanted, workers=2), expected)


@pytest.mark.parametrize("question", FULL_QUESTIONS)
@pytest.mark.parametrize("engine", APPROXIMATE)
def test_hits_of_an_index_are_right(engine, question, oracle):
    """And those that were planted are found: one that finds nothing must not pass."""
    sides, wanted, expected = oracle(question)
    found = APPROXIMATE[engine]().find(sides, wanted)
    similarity, view = similarities(sides)
    np.testing.assert_array_equal(found.similarity, similarity[found.query, found.reference])
    np.testing.assert_array_equal(found.view, view[found.query, found.reference])
    if sides.same:
        assert (found.query != found.reference).all()
    pairs = list(zip(found.query.tolist(), found.reference.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert (found.total <= expected.total).all()
    order = np.lexsort((sides.order[found.reference], -found.similarity, found.query))
    np.testing.assert_array_equal(order, np.arange(len(order)))
    most = max(wanted.best, 0 if wanted.threshold is None else wanted.cap + wanted.best)
    assert np.bincount(found.query, minlength=1).max() <= most
    if question in PLANTED:
        keys = [
            set((hits.query * 1000 + hits.reference)[hits.similarity >= wanted.threshold].tolist())
            for hits in (found, expected)
        ]
        assert len(keys[0] & keys[1]) >= BAR * len(keys[1]) >= 40 * BAR


@pytest.mark.parametrize("engine", [*APPROXIMATE, "faiss-flat"])
def test_an_index_reports_its_recall(engine, oracle):
    sides, wanted, expected = oracle("penalised")
    search = (APPROXIMATE | EXACT)[engine]()
    found = search.find(sides, wanted)
    (account,) = search.accounts
    measured = account.recall
    assert measured.queries == len(expected.total) // 2  # others were tuned on
    hit, there = (int((h.similarity >= np.float32(0.9)).sum()) for h in (found, expected))
    assert measured.pairs.total == pytest.approx(there / 2, abs=5)
    assert measured.pairs.share == pytest.approx(hit / there, abs=0.05)
    assert measured.best.total == 3 * measured.queries
    assert account.exact == (engine == "faiss-flat")
    if account.exact:
        assert measured.pairs.share == measured.best.share == measured.leaks.share == 1
