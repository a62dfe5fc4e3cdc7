"""Recall at k against torchmetrics and against counts, and the paper's draws."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from visleak.impact.evaluators.retrieve import AT, DRAWN, DRAWS, Sides, hit_columns, ranks, recalls
from visleak.vectors import unit_rows


def test_recall_is_the_hit_rate_of_torchmetrics():
    torch = pytest.importorskip("torch")
    metric = pytest.importorskip("torchmetrics.functional.retrieval").retrieval_hit_rate
    rng = np.random.default_rng(0)
    images = unit_rows(rng.standard_normal((60, 16))).matrix
    owner = np.concatenate([np.arange(60), rng.integers(0, 60, 90)])
    noise = rng.standard_normal((150, 16))
    captions = unit_rows(images[owner] + 1.2 * noise).matrix
    hits = hit_columns(ranks(Sides(images, captions, owner)))
    similarities = torch.from_numpy(images @ captions.T)
    for k in AT:
        expected = [
            int(metric(similarities[row], torch.from_numpy(owner == row), top_k=k))
            for row in range(60)
        ]
        assert hits[f"r@{k}"].tolist() == expected
        assert 0 < sum(expected) < 60


def test_recall_of_all_queries_has_wilsons_interval():
    """Shares by count, ends by statsmodels."""
    found = recalls(np.array([1] * 30 + [5] * 20 + [10] * 10 + [11] * 40))
    assert [(each.k, each.share.count) for each in found] == [(1, 30), (5, 50), (10, 60)]
    for each in found:
        ends = proportion_confint(each.share.count, 100, method="wilson")
        assert (each.share.low, each.share.high) == pytest.approx(ends)
    assert all(each.drawn is None for each in found), "100 queries are no population of 200"


def test_draws_are_the_papers_protocol():
    """Ten draws of 200: mean near that of all, deviation near the hypergeometric one."""
    rng = np.random.default_rng(1)
    found = recalls(np.where(rng.random(31_783) < 0.33, 1, 30), seed=5)
    assert (DRAWN, DRAWS) == (200, 10)
    drawn = found[0].drawn
    share = found[0].share.share
    expected = np.sqrt(share * (1 - share) / DRAWN)
    assert abs(drawn.mean - share) < 4 * expected / np.sqrt(DRAWS)
    assert 0.4 * expected < drawn.deviation < 1.9 * expected
    # one set of queries serves all k
    assert {each.drawn.mean for each in found if each.drawn} == {drawn.mean}
    assert recalls(np.ones(300, int))[0].drawn.deviation == 0  # type: ignore[union-attr]
