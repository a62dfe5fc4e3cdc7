"""Orders of models with and without leaked images."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from visleak.impact.benchmark import Benchmark, Leak, Scores
from visleak.impact.effects import flips_of
from visleak.impact.run import gap_of


def benchmark_of(leaked):
    ids = pa.array([str(n) for n in range(len(leaked))], pa.string())
    leak = Leak("hard", leaked, np.where(leaked, 2, -1).astype(np.int8))
    return Benchmark("test", ("train",), ids, None, (leak,))


def scored(model, values, lower=False):
    return Scores(model, {"accuracy": values}, lower=frozenset({"accuracy"} if lower else set()))


def test_a_model_that_leads_by_leaked_images_alone_falls_behind():
    """Right on all 100 that leak and on 612 of 900 others, against 70 and 630."""
    place = np.arange(1000)
    leaked = place < 100
    memory = (leaked | (place < 712)).astype(float)
    honest = ((place < 70) | ((place >= 100) & (place < 730))).astype(float)
    models = [scored("honest", honest), scored("memory", memory)]
    (flip,) = flips_of(benchmark_of(leaked), models, "accuracy")
    assert (flip.first, flip.second) == ("memory", "honest")
    assert flip.original == pytest.approx(0.012)
    assert flip.fair == pytest.approx(-0.02)
    assert flip.flipped
    assert flip.behind > 0.99
    assert flip.chance > 0.9


def test_chances_agree_with_the_normal_approximation():
    """Differences of two models: 60 images won by one, 52 by the other, none of them leaked."""
    lead = np.zeros(5000)
    lead[:60], lead[60:112] = 1.0, -1.0
    leaked = np.zeros(5000, bool)
    leaked[4000:] = True
    first, second = (lead > 0).astype(float), (lead < 0).astype(float)
    (flip,) = flips_of(
        benchmark_of(leaked), [scored("a", first), scored("b", second)], "accuracy", seed=1
    )
    # the sum of the differences has mean 8 and variance about 112; ties count half
    assert flip.behind == pytest.approx(norm.cdf(-8 / math.sqrt(112)), abs=0.03)
    # the leaked images tell the two models not apart: they change no order
    assert flip.chance == 0.0
    assert not flip.flipped


def test_of_a_loss_the_lower_one_leads():
    low, high = np.full(10, 0.2), np.full(10, 0.7)
    models = [scored("high", high, lower=True), scored("low", low, lower=True)]
    (flip,) = flips_of(benchmark_of(np.arange(10) < 2), models, "accuracy")
    assert (flip.first, flip.second, flip.behind) == ("low", "high", 0.0)
    assert flip.original == pytest.approx(-0.5)


def test_only_images_that_both_answered_are_compared():
    """A model that answers few images takes none from the comparison of two others."""
    some = np.array([1.0, 0.0, math.nan, 1.0])
    benchmark = benchmark_of(np.array([1, 0, 0, 0], bool))
    flips = flips_of(
        benchmark,
        [scored("a", some), scored("b", np.ones(4)), scored("c", np.zeros(4))],
        "accuracy",
    )
    assert {(flip.first, flip.second) for flip in flips} == {("b", "a"), ("b", "c"), ("a", "c")}
    assert {(flip.first, flip.images) for flip in flips if flip.second == "c"} == {
        ("a", 3),
        ("b", 4),
    }
    nowhere = scored("d", np.array([math.nan, math.nan, 1.0, math.nan]))
    few = flips_of(benchmark, [scored("a", some), scored("c", np.zeros(4)), nowhere], "accuracy")
    assert {(flip.first, flip.second, flip.images) for flip in few} == {("a", "c", 3)}
    assert flips_of(benchmark_of(np.zeros(4, bool)), [scored("a", some)], "accuracy") == ()


def test_the_gap_counts_images_that_changed_sides():
    before = scored("m", np.array([1, 1, 1, 1, 0, 0, math.nan]))
    after = scored("m", np.array([1, 0, 0, 1, 1, 0, 1]))
    gap = gap_of(before, after, "accuracy")
    assert (gap.images, gap.changed) == (6, (1, 2))
    assert gap.original.value == pytest.approx(2 / 6)
    assert gap.fair.value == pytest.approx(3 / 6)
    assert gap.gap.value == pytest.approx(1 / 6)
    assert gap.relative == pytest.approx(0.5)
    assert gap.p == 1.0
    assert gap.gap.low < 0 < gap.gap.high


def test_no_error_before_no_relative_gap():
    gap = gap_of(scored("m", np.ones(4)), scored("m", np.array([1, 1, 1, 0.0])), "accuracy")
    assert math.isnan(gap.relative)
