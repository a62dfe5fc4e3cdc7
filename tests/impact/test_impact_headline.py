"""Sentences that a person can repeat: they say what was found, and presume nothing."""

import math
from dataclasses import replace

import pytest
from impact_making import cifair, effect_of, impact_of, table_3

from visleak.impact.headline import headlines
from visleak.impact.results import MatchedComparison
from visleak.stats.bootstrap import Estimate


def cifar(difference=0.0521, **changes):
    """Return one model on 10,000 images of which 289 leak, with a comparison of one's own."""
    table = (
        ("", "original", 10_000, [91.73]),
        ("near or exact", "non-leaked", 9_711, [91.57]),
        ("near or exact", "leaked", 289, [96.78]),
    )
    effect = effect_of(table, 0, "resnet20")
    (each,) = effect.comparisons
    ends = Estimate(difference, difference - 0.026, difference + 0.027)
    told = {"p": 0.0001, "adjusted": 0.0001, "within_classes_adjusted": math.nan} | changes
    effect = replace(effect, comparisons=(replace(each, difference=ends, **told),))
    return impact_of([effect], {"near or exact": 289}, test_set="test")


@pytest.mark.parametrize(
    ("difference", "changes", "end"),
    [
        (0.0521, {}, "score 5.21 points higher (95 % CI +2.61 to +7.91, p < 0.001)"),
        (-0.04, {}, "score 4.00 points lower (95 % CI -6.60 to -1.30, p < 0.001)"),
        (0.01, {"p": 0.4, "adjusted": 0.4}, "(+1.00 points, 95 % CI -1.60 to +3.70, p = 0.400)"),
        (0.03, {"p": 0.02, "adjusted": 0.08}, "+0.40 to +5.70, p = 0.020, corrected 0.080)"),
        (0.05, {"within_classes_adjusted": 0.3}, "difference is not statistically significant"),
    ],
)
def test_one_model(difference, changes, end):
    (line,) = headlines(cifar(difference, **changes))
    start, _, verdict = line.partition("; ")
    assert start == (
        "on all 10,000 test images resnet20 scores 91.73 %, on the 9,711 without a near-duplicate"
        " or exact copy in train 91.57 %"
    )
    assert verdict.endswith(end)
    assert ("not statistically significant" in verdict) == (abs(difference) < 0.04 or bool(changes))


@pytest.mark.parametrize(("leaked", "few"), [(5, True), (6, False)])
def test_few_images_cannot_tell_easier_from_memorized(leaked, few):
    """Five pairs have no probability below 2 / 2 ** 5."""
    ends = Estimate(0.8, 0.19, 0.96)
    twinned = MatchedComparison(leaked, 1, 0, (0.4, 0.5, 0.4, 0.4), 1.0, ends, 0.07, 0.14)
    end = headlines(cifar(twinned=twinned))[-1]
    assert ("so few cannot tell" in end, "difficulty may explain" in end) == (few, not few)


@pytest.mark.parametrize(
    ("difference", "adjusted", "matched", "points"),
    [
        # as good as the others, who are of easier classes
        (0.0, 0.9, 0.8157, "10.00"),
        (0.05, 0.001, 0.92, ""),
    ],
)
def test_what_classes_hide_is_said(difference, adjusted, matched, points):
    """The others score 91.57 %."""
    changes = {"p": adjusted, "adjusted": adjusted, "within_classes_adjusted": 0.001}
    result = cifar(difference, **changes)
    (effect,) = result.effects
    row = replace(effect.rows[2], subset="class-matched", score=Estimate(matched), draws=1000)
    (line,) = headlines(replace(result, effects=(replace(effect, rows=(*effect.rows, row)),)))
    hidden = f"but they score {points} points higher than random images of their classes (corr"
    assert (hidden in line) == bool(points)
    assert line.endswith("p = 0.001)")


def test_a_summary_counts_each_way_once():
    def changed(effect, value, p):
        (each,) = effect.comparisons
        own = replace(each, difference=Estimate(value), adjusted=p, inflation=Estimate(value / 9))
        return replace(effect, comparisons=(own,))

    told = ((0.1, 0.01), (0.1, 0.2), (-0.09, 0.01), (0.1, 0.01), (0.1, math.nan), (0.0, 1.0))
    effects = [changed(e, *each) for e, each in zip(cifair().effects, told, strict=True)]
    line, *_ = headlines(replace(cifair(), effects=tuple(effects), flips=(), gaps=()))
    assert "score 2 significantly higher, 1 significantly lower, 3 without a significant" in line
    assert "within classes the difference is significant for 6;" in line
    assert "from 1.00 points lower (WRN-28-10) to 1.11 points higher" in line


def test_nothing_leaks_or_nothing_can_be_compared():
    result = cifar()
    (effect,) = result.effects
    (each,) = effect.comparisons
    empty = replace(each, leaked=0, others=10_000, difference=Estimate(math.nan))
    bare = replace(result, effects=(replace(effect, comparisons=(empty,)),))
    assert headlines(replace(bare, leaks={"near or exact": 0})) == (
        "no image of test leaks into train, so there is nothing to compare",
    )
    assert headlines(bare)[0].startswith("nothing can be compared: no leak of test leaves both")
    assert bare.principal == ""


def test_the_sentence_is_about_the_strongest_useful_leak():
    first, second = headlines(table_3())
    assert "on the 48,320 with neither a hard nor a soft leak into train 81.00 %" in first
    assert "leaked images score 18.56 points lower" in first
    assert "ResNet152 scores 82.83 %" in second
    result = cifar()
    (effect,) = result.effects
    listed = replace(effect.comparisons[0], leak="my list")
    effect = replace(effect, comparisons=(listed,), images=(9_600, 10_000))
    (line,) = headlines(replace(result, effects=(effect,)))
    assert line.startswith("on the 9,600 of 10,000 test images with a prediction resnet20")
    assert "that do not leak (my list) into train" in line
