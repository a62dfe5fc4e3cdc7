"""Recall at k against torchmetrics and against counts, and the paper's draws."""

from __future__ import annotations

import numpy as np
import pytest

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
