"""Rows, intervals, tests and changes of order against numbers worked out another way."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predictions_making import leaky, scored
from scipy.stats import norm
from statsmodels.stats.multitest import multipletests

from visleak.impact.benchmark import Benchmark, Leak
from visleak.impact.effects import Sampling, effects_of, flips_of
from visleak.impact.run import gap_of
from visleak.rates import wilson

FEW = Sampling(draws=20)


def row_of(rows, subset):
    return next(row for row in rows if row.subset == subset)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60).filter(
        lambda rows: 0 < sum(leak for leak, _ in rows) < len(rows)
    )
)
def test_parts_add_up_to_the_whole(rows):
    """The weighted means that prove the papers' misprints hold of every table made here."""
    (effect,) = effects_of(leaky([a for a, _ in rows]), [scored([b for _, b in rows])], FEW)
    leaked, others = (row_of(effect.rows, name) for name in ("leaked", "non-leaked"))
    assert leaked.images + others.images == effect.original.images == len(rows)
    total = leaked.images * leaked.score.value + others.images * others.score.value
    assert total / len(rows) == pytest.approx(effect.original.score.value)
    for row in (leaked, others):
        hits = round(row.images * row.score.value)
        assert (row.score.low, row.score.high) == pytest.approx(wilson(hits, row.images))
        assert row.gain.value == pytest.approx(row.score.value - effect.original.score.value)
        assert row.gain.low <= row.gain.value + 1e-12
        assert row.gain.value <= row.gain.high + 1e-12
    (compared,) = effect.comparisons
    assert compared.difference.value == pytest.approx(leaked.score.value - others.score.value)
    assert compared.inflation.value == pytest.approx(-others.gain.value)
    # no labels: the fair score is that of the images that do not leak
    assert compared.fair.value == pytest.approx(others.score.value)
    assert 0.0 < compared.p <= 1.0


def test_the_gains_interval_covers_in_simulation():
    """A part shares images with the whole; its gain's interval must hold the true gain still."""
    rng = np.random.default_rng(0)
    leaked = np.arange(400) < 40
    true = 0.9 * (0.95 - 0.85)
    hits = 0
    for _ in range(400):
        values = (rng.random(400) < np.where(leaked, 0.95, 0.85)).astype(float)
        (effect,) = effects_of(leaky(list(leaked)), [scored(list(values))], Sampling(draws=2))
        gain = row_of(effect.rows, "leaked").gain
        hits += gain.low <= true <= gain.high
    assert hits / 400 >= 0.93


def test_few_draws_have_a_deviation_and_no_interval():
    values, leaked = [1] * 60 + [0] * 40, [True] * 20 + [False] * 80
    for draws in (10, 39, 40):
        (effect,) = effects_of(leaky(leaked), [scored(values)], Sampling(draws=draws))
        row = row_of(effect.rows, "random")
        assert row.deviation > 0.0
        ends = (row.score.low, row.score.high, row.gain.low, row.gain.high)
        assert [math.isnan(end) for end in ends] == [draws < 40] * 4


def test_a_metric_has_one_unit_whoever_scores_in_it():
    """A loss that stays below 1 for one model would be percent there, and plain for another."""
    small, large = scored([0.1, 0.5, 0.9], "a", "loss"), scored([0.1, 0.5, 2.3], "b", "loss")
    for models in ([small, large], [large, small]):
        effects = effects_of(leaky([True, False, False]), models, FEW)
        assert [effect.percent for effect in effects] == [False, False]
    (alone,) = effects_of(leaky([True, False, False]), [small], FEW)
    assert alone.percent


def test_classes_are_weighed_as_in_the_whole_benchmark():
    labels = ["easy"] * 60 + ["hard"] * 40
    values = [1.0] * 60 + [1.0] * 20 + [0.0] * 20
    (effect,) = effects_of(leaky([n < 30 for n in range(100)], labels), [scored(values)], FEW)
    (compared,) = effect.comparisons
    assert row_of(effect.rows, "non-leaked").score.value == pytest.approx(50 / 70)
    assert compared.fair.value == pytest.approx(0.8)
    # nothing but the class tells leaked images apart: the plain test takes it for the leak
    assert compared.p < 0.01
    # within classes only one outcome is possible, and half of its chance is mid-p
    assert compared.within_classes == 0.5
    assert row_of(effect.rows, "class-matched").score.value == 1.0
    assert row_of(effect.rows, "random").score.value == pytest.approx(0.8, abs=0.1)
    # a class that leaks wholly is left out of the fair score, and counted
    values = [1, 1, 1, 1, 0, 1, 0, 1]
    (effect,) = effects_of(leaky([n < 4 for n in range(8)], [*"aaaabbbb"]), [scored(values)], FEW)
    (compared,) = effect.comparisons
    assert (compared.fair.value, compared.classes_lost) == (0.5, 1)


def test_holm_corrects_over_all_models_and_leaks():
    rng = np.random.default_rng(3)
    masks = [rng.random(300) < 0.2 for _ in range(2)]
    base = leaky(list(masks[0]))
    leaks = tuple(Leak(str(n), m, np.where(m, 2, -1).astype(np.int8)) for n, m in enumerate(masks))
    benchmark = Benchmark(base.name, base.references, base.ids, None, leaks)
    models = [scored(rng.random(300) < 0.6 + 0.25 * masks[0], f"m{n}") for n in range(3)]
    effects = effects_of(benchmark, models, FEW)
    plain = [each.p for effect in effects for each in effect.comparisons]
    adjusted = [each.adjusted for effect in effects for each in effect.comparisons]
    assert len(plain) == 6
    np.testing.assert_allclose(adjusted, multipletests(plain, method="holm")[1])
    assert all(math.isnan(each.within_classes) for e in effects for each in e.comparisons)


def test_leaks_of_the_same_images_are_one_test():
    mask = np.arange(200) < 40
    base, kind = leaky(list(mask)), np.where(mask, 2, -1).astype(np.int8)
    twice = tuple(Leak(name, mask, kind) for name in ("near or exact", "near only"))
    values = [float(n % 5 > 0 or n < 40) for n in range(200)]
    models = [scored(values, "a"), scored(values[::-1], "b")]
    alone = effects_of(base, models, FEW)
    both = effects_of(Benchmark("test", ("t",), base.ids, None, twice), models, FEW)
    for one, effect in zip(alone, both, strict=True):
        assert [each.adjusted for each in effect.comparisons] == [one.comparisons[0].adjusted] * 2


def test_rows_by_label_come_where_labels_are_known():
    mask = np.array([True] * 4 + [False] * 4)
    benchmark = leaky(list(mask))
    kinds = np.array([0, 0, 1, 2, -1, -1, -1, -1], np.int8)
    told = Benchmark("test", ("t",), benchmark.ids, None, (Leak("hard", mask, kinds),))
    (effect,) = effects_of(told, [scored([1, 0, 1, 0, 1, 1, 1, 1])], FEW)
    rows = {row.subset: (row.images, row.score.value) for row in effect.rows}
    labels = [rows[f"{label} label"] for label in ("same", "different", "unknown")]
    assert labels == [(2, 0.5), (1, 1.0), (1, 0.0)]


def test_a_leak_without_images_and_one_with_all_are_rows_of_nothing():
    for leaked, empty in (([False] * 4, "leaked"), ([True] * 4, "non-leaked")):
        (effect,) = effects_of(leaky(leaked), [scored([1, 0, 1, 1])], FEW)
        row, (compared,) = row_of(effect.rows, empty), effect.comparisons
        assert row.images == 0
        assert np.isnan([row.score.value, compared.p, compared.difference.value]).all()
        other = row_of(effect.rows, "non-leaked" if empty == "leaked" else "leaked")
        assert (other.score, other.gain.value) == (effect.original.score, 0.0)


def test_images_without_an_answer_do_not_count_and_models_stay_apart():
    benchmark = leaky([True, True, False, False])
    full, part = scored([1, 0, 1, 1], "a"), scored([1, math.nan, 0, 1], "b")
    effects = effects_of(benchmark, [part, full], FEW)
    assert [(e.model, e.images) for e in effects] == [("b", (3, 4)), ("a", (4, 4))]
    assert row_of(effects[0].rows, "leaked").images == 1
    alone = effects_of(benchmark, [full], FEW)[0]
    # the correction is over what was asked; all else does not depend on the company
    assert alone.rows[1:3] == effects[1].rows[1:3]


def test_no_interval_where_one_image_decides():
    """Resamples of 1e8 among ones give ends that are multiples of it; bounded scores do not."""
    values = np.r_[np.linspace(1, 2, 199), 1e8]
    leaked = np.arange(200) % 4 == 0
    (effect,) = effects_of(leaky(leaked), [scored(values, metric="loss")], Sampling(draws=100))
    (compared,) = effect.comparisons
    for row in (effect.original, row_of(effect.rows, "non-leaked"), row_of(effect.rows, "random")):
        assert np.isnan([row.score.low, row.gain.high]).all()
    assert not math.isnan(row_of(effect.rows, "leaked").score.low)
    assert compared.difference.value < -1e5
    assert math.isnan(compared.difference.low)
    (bounded,) = effects_of(leaky(leaked), [scored(np.r_[np.zeros(199), 0.5], metric="ap")], FEW)
    assert not math.isnan(bounded.original.score.high)


def test_a_model_that_leads_by_leaked_images_alone_falls_behind():
    """Right on all 100 that leak and on 612 of 900 others, against 70 and 630."""
    place = np.arange(1000)
    leaked = place < 100
    memory = (leaked | (place < 712)).astype(float)
    honest = ((place < 70) | ((place >= 100) & (place < 730))).astype(float)
    models = [scored(honest, "honest"), scored(memory, "memory")]
    (flip,) = flips_of(leaky(leaked), models, "accuracy")
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
    (flip,) = flips_of(leaky(leaked), [scored(first, "a"), scored(second, "b")], "accuracy", seed=1)
    # the sum of the differences has mean 8 and variance about 112; ties count half
    assert flip.behind == pytest.approx(norm.cdf(-8 / math.sqrt(112)), abs=0.03)
    # the leaked images tell the two models not apart: they change no order
    assert flip.chance == 0.0
    assert not flip.flipped


def test_of_a_loss_the_lower_one_leads():
    low, high = np.full(10, 0.2), np.full(10, 0.7)
    models = [scored(high, "high", lower=True), scored(low, "low", lower=True)]
    (flip,) = flips_of(leaky(np.arange(10) < 2), models, "accuracy")
    assert (flip.first, flip.second, flip.behind) == ("low", "high", 0.0)
    assert flip.original == pytest.approx(-0.5)


def test_only_images_that_both_answered_are_compared():
    some = np.array([1.0, 0.0, math.nan, 1.0])
    benchmark = leaky(np.array([1, 0, 0, 0], bool))
    nowhere = scored(np.array([math.nan, math.nan, 1.0, math.nan]), "d")
    models = [scored(some, "a"), scored(np.ones(4), "b"), scored(np.zeros(4), "c"), nowhere]
    flips = flips_of(benchmark, models, "accuracy")
    found = {(flip.first, flip.second): flip.images for flip in flips}
    # no image of d leaks
    assert found == {("b", "a"): 3, ("b", "c"): 4, ("a", "c"): 3}


def test_the_gap_counts_images_that_changed_sides():
    before = scored(np.array([1, 1, 1, 1, 0, 0, math.nan]), "m")
    after = scored(np.array([1, 0, 0, 1, 1, 0, 1]), "m")
    gap = gap_of(before, after, "accuracy")
    assert (gap.images, gap.changed) == (6, (1, 2))
    assert gap.original.value == pytest.approx(2 / 6)
    assert gap.fair.value == pytest.approx(3 / 6)
    assert gap.gap.value == pytest.approx(1 / 6)
    assert gap.relative == pytest.approx(0.5)
    assert gap.p == 1.0
    assert gap.gap.low < 0 < gap.gap.high
    assert math.isnan(gap_of(scored(np.ones(7), "m"), after, "accuracy").relative)
