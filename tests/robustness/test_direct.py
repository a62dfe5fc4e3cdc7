"""Direct search against loops over all pairs, with planted twins and collages."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_encoder import TinyEncoder, blobs

from visleak.formats import open_images
from visleak.pipeline import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.robustness import queries as direct
from visleak.robustness.conditions import named
from visleak.robustness.queries import NOT_APPLICABLE, changed_set, draw, find_twins, search
from visleak.stats import separation

CONDITIONS = named(["original", "flip-v", "crop-20", "crop-50", "gauss", "noise", "collage"])


@pytest.fixture(scope="module")
def made():
    """Fourteen images, one of them twice, one unreadable; nine queries."""
    pictures = blobs(13)
    images = open_images([*pictures, "no image", pictures[4]])
    encoder = TinyEncoder()
    with RunContext.at(None, 1, None) as place:
        prints = fingerprint(images, encoder, place)
        twins = find_twins(images, prints, place, verify=False)
        queries = np.unique([*draw(prints.rows, 9, 3), 4, 14])
        changed = changed_set(images, prints.rows, queries, CONDITIONS)
        found = fingerprint(changed.images, encoder, place)
        # the matrices are files that go with the context
        found, prints = (replace(each, matrix=np.array(each.matrix)) for each in (found, prints))
    return encoder, changed, found, prints, twins


def by_hand(made):
    """Return the similarities of each changed image to its original, twins and others, by loops."""
    _, changed, queries, whole, twins = made
    rows = []
    for row, position in enumerate(queries.rows):
        query, number = divmod(int(position), len(changed.conditions))
        owner = int(changed.queries[query])
        same = twins.of([owner])
        company = set(changed.company[query]) if changed.conditions[number].others else set()
        shown = same | twins.of(company)
        values = {
            int(place): np.float32(np.float64(queries.matrix[row]) @ np.float64(whole.matrix[at]))
            for at, place in enumerate(whole.rows)
        }
        rows.append(
            {
                "condition": number,
                "own": values[owner],
                "twin": max(v for p, v in values.items() if p in same),
                "wrong": {p: v for p, v in values.items() if p not in shown},
                "left_out": len(shown) - 1,
            }
        )
    return rows


def test_the_changed_set(made):
    """Copies are twins; a collage shows three others; 96 x 120 less 50 on each side is nothing."""
    _, changed, queries, whole, twins = made
    assert twins.of([14, 2]) == {2, 4, 14}
    assert changed.company.shape == (len(changed.queries), 3)
    for query, company in zip(changed.queries, changed.company, strict=True):
        assert len({int(query), *map(int, company)}) == 4
        assert set(company) <= set(whole.rows)
    assert all(problem.detail == NOT_APPLICABLE for problem in queries.problems)
    gone = [problem.id for problem in queries.problems]
    assert gone == [f"crop-50/{name}" for name in changed.names]
    rows = np.arange(50)
    assert draw(rows, 10, 1).tolist() == draw(rows, 10, 1).tolist()
    assert draw(rows, 10, 1).tolist() != draw(rows, 10, 2).tolist()


@pytest.mark.parametrize("blocks", [(256, 4096), (5, 3), (1, 1)])
def test_every_pair_is_counted_once(made, blocks, monkeypatch):
    monkeypatch.setattr(direct, "QUERY_BLOCK", blocks[0])
    monkeypatch.setattr(direct, "REFERENCE_BLOCK", blocks[1])
    encoder, changed, queries, whole, twins = made
    found = search(encoder, changed, queries, whole, twins, views=(0,), keep=25)
    expected = by_hand(made)
    assert found.own == pytest.approx([row["own"] for row in expected], abs=1e-6)
    assert found.others.tolist() == [len(row["wrong"]) for row in expected]
    assert found.left_out == sum(row["left_out"] for row in expected)
    best = [max(row["wrong"].values()) for row in expected]
    assert found.best_wrong == pytest.approx(best, abs=1e-6)
    right = [row["twin"] > wrong for row, wrong in zip(expected, best, strict=True)]
    assert found.right.tolist() == right
    for number, curve in enumerate(found.curves):
        own = [row["own"] for row in expected if row["condition"] == number]
        others = [v for r in expected if r["condition"] == number for v in r["wrong"].values()]
        assert curve.total == len(others)
        if not own:
            assert CONDITIONS[number].name == "crop-50"
            assert np.isnan(curve.auc)
            continue
        score, true = [*own, *others], [True] * len(own) + [False] * len(others)
        assert curve.auc == pytest.approx(separation.auc(score, true), abs=1e-9)
        for threshold in (0.2, 0.5, 0.9):
            assert curve.false(threshold) == sum(v >= np.float32(threshold) for v in others)
    every = sorted((v for row in expected for v in row["wrong"].values()), reverse=True)
    largest = found.largest
    assert largest.similarity == pytest.approx(every[:25], abs=1e-6)
    pairs = zip(largest.query, largest.reference, strict=True)
    named = [expected[row]["wrong"][at] for row, at in pairs]
    assert largest.similarity == pytest.approx(named, abs=1e-6)
