"""Sentences that a person can repeat: they say what was found, and presume nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from impact_making import (
    TABLE_2,
    cifair,
    effect_of,
    gaps_of,
    impact_of,
    table_2,
    table_3,
    table_4,
)

from visleak.impact.headline import headlines, principal
from visleak.impact.results import Effect, Estimate, Impact


def cifar(difference: float = 0.0521, **changes: object) -> Impact:
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
    return impact_of(
        [replace(effect, comparisons=(replace(each, difference=ends, **told),))],  # type: ignore[arg-type]
        {"near or exact": 289},
        test_set="test",
    )


START = (
    "resnet20 scores 91.73 % on all 10,000 test images, 91.57 % on the 9,711 that have no"
    " near-duplicate or exact copy in train; "
)


@pytest.mark.parametrize(
    ("difference", "changes", "end"),
    [
        (0.0521, {}, "leaked images score 5.21 points higher (95 % CI +2.61 to +7.91, p < 0.001)"),
        (-0.04, {}, "leaked images score 4.00 points lower (95 % CI -6.60 to -1.30, p < 0.001)"),
        (
            0.01,
            {"p": 0.4, "adjusted": 0.4},
            "no difference of leaked images can be told from chance (+1.00 points, 95 % CI -1.60 to"
            " +3.70, p = 0.400)",
        ),
        (
            0.03,
            {"p": 0.02, "adjusted": 0.08},
            "after Holm's correction no difference of leaked images can be told from chance (+3.00"
            " points, 95 % CI +0.40 to +5.70, p = 0.020, corrected 0.080)",
        ),
        (
            0.05,
            {"within_classes_adjusted": 0.3},
            "leaked images score 5.00 points higher (95 % CI +2.40 to +7.70, p < 0.001), but within"
            " classes no difference can be told from chance",
        ),
    ],
)
def test_one_model(difference: float, changes: dict[str, object], end: str) -> None:
    assert headlines(cifar(difference, **changes)) == (START + end,)


@pytest.mark.parametrize(
    ("difference", "adjusted", "matched", "end"),
    [
        # as good as the others, who are of easier classes
        (
            0.0,
            0.9,
            0.8157,
            "p = 0.900), but they score 10.00 points higher than random images of their classes"
            " (corrected p = 0.001)",
        ),
        # worse than the others for their classes, better than those
        (
            -0.05,
            0.001,
            0.8,
            "p = 0.001), but they score 6.57 points higher than random images of their classes"
            " (corrected p = 0.001)",
        ),
        (0.05, 0.001, 0.92, "p = 0.001)"),
    ],
)
def test_what_classes_hide_is_said(
    difference: float, adjusted: float, matched: float, end: str
) -> None:
    """The others score 91.57 %."""
    changes = {"p": adjusted, "adjusted": adjusted, "within_classes_adjusted": 0.001}
    result = cifar(difference, **changes)
    (effect,) = result.effects
    row = replace(
        effect.rows[2], subset="class-matched", score=Estimate(matched), draws=1000, images=289
    )
    (line,) = headlines(replace(result, effects=(replace(effect, rows=(*effect.rows, row)),)))
    assert line.endswith(end)


def test_a_leak_that_lowers_the_score_is_said_to() -> None:
    """Table 3: conflicting labels; two models, a sentence each."""
    first, second = headlines(table_3())
    assert "81.00 % on the 48,320 that have neither a hard nor a soft leak into train" in first
    assert "leaked images score 18.56 points lower" in first
    assert second.startswith("ResNet152 scores 82.83 %")


def test_another_metric_is_named() -> None:
    (line,) = headlines(table_4())
    assert line.startswith("ViT-B-32 scores 33.22 % in r@1 on all 31,783 val images")
    effect = replace(effect_of(TABLE_2, 0, "m", "loss"), percent=False, lower=True)
    (line,) = headlines(impact_of([effect], {"hard": 271, "hard or soft": 2_281}))
    assert line.startswith("m scores 0.5418 in loss on all 50,000 val images, 0.5354 on")
    assert "leaked images score 0.1411 higher (95 % CI" in line
    assert line.endswith(", less is better)")


def test_images_without_an_answer_are_counted() -> None:
    result = cifar()
    (effect,) = result.effects
    line, *_ = headlines(replace(result, effects=(replace(effect, images=(9_600, 10_000)),)))
    assert "on the 9,600 of 10,000 test images that it answers, " in line


def test_what_was_drawn_does_not_stand_for_all() -> None:
    """With rows of 200 images the sentence is still about all images that do not leak."""
    effect = table_4().effects[0]
    hard = [replace(each, others=31_554, inflation=Estimate(0.001)) for each in effect.comparisons]
    result = impact_of([replace(effect, comparisons=tuple(hard))], {"hard": 229})
    assert "33.12 % on the 31,554 that" in headlines(result)[0]


def test_many_models_are_summed_up() -> None:
    """The Plain net and five others: no sentence each, and who changes places."""
    lines = headlines(cifair())
    assert lines == (
        "of 6 models on leaked images (near or exact) 6 score higher; all of cifar10 shows scores"
        " from 0.10 points higher (ResNet-110) to 0.10 points higher (Plain-11) than the images"
        " that have no near-duplicate or exact copy in train",
        "DenseNet-BC (L=190, k=40) is ahead of WRN-28-10 on the images that have no near-duplicate"
        " or exact copy in train, behind it on all (the order differs in 31.00 % of resamples)",
        "on the fair test set errors of 6 models change by +0.30 to +0.52 points, +0.42 on average",
    )


def test_a_summary_counts_each_way_once() -> None:
    def changed(effect: Effect, value: float, p: float) -> Effect:
        (each,) = effect.comparisons
        own = replace(each, difference=Estimate(value), adjusted=p, inflation=Estimate(value / 9))
        return replace(effect, comparisons=(own,))

    told = ((0.1, 0.01), (0.1, 0.2), (-0.09, 0.01), (0.1, 0.01), (0.1, math.nan), (0.0, 1.0))
    effects = [changed(e, *each) for e, each in zip(cifair().effects, told, strict=True)]
    line, *_ = headlines(replace(cifair(), effects=tuple(effects), flips=(), gaps=()))
    # within classes all six do
    assert line.startswith(
        "of 6 models on leaked images (near or exact) 2 score higher, 1 scores lower, 3 show no"
        " difference that can be told from chance; within classes 6 differ by more than chance;"
        " all of cifar10 shows scores from 1.00 points"
        " lower (WRN-28-10) to 1.11 points higher"
    )
    losses = [replace(effect, lower=True) for effect in effects]
    line, *_ = headlines(replace(cifair(), effects=tuple(losses), flips=(), gaps=()))
    assert "3 show no difference that can be told from chance, less is better; within" in line


def test_errors_on_both_sets() -> None:
    result = replace(cifar(), gaps=tuple(gaps_of(0, ["ResNet-110"])))
    assert headlines(result)[1] == (
        "ResNet-110 errs on 5.26 % of the test set and on 5.77 % of the fair one (gap 0.51 points,"
        " 95 % CI +0.41 to +0.61, p < 0.001)"
    )
    (other,) = gaps_of(0, ["ResNet-110"])
    other = replace(other, metric="r@1")
    assert headlines(replace(cifar(), gaps=(other,)))[1].startswith("ResNet-110 errs in r@1 on")


def test_nothing_leaks_or_nothing_can_be_compared() -> None:
    result = cifar()
    (effect,) = result.effects
    (each,) = effect.comparisons
    empty = replace(each, leaked=0, others=10_000, difference=Estimate(math.nan))
    bare = replace(result, effects=(replace(effect, comparisons=(empty,)),))
    assert headlines(replace(bare, leaks={"near or exact": 0})) == (
        "the audit knows no image of test that leaks into train, so there is nothing to compare",
    )
    assert headlines(bare)[0].startswith("nothing can be compared: no leak of test leaves both")
    assert principal(bare) == ""


def test_the_sentence_is_about_the_strongest_useful_leak() -> None:
    assert principal(table_2()) == "hard or soft"
    listed = impact_of([effect_of(TABLE_2, 0, "m")], {"hard": 271})
    renamed = replace(
        listed.effects[0],
        comparisons=(replace(listed.effects[0].comparisons[0], leak="my list"),),
    )
    result = impact_of([renamed], {"my list": 271})
    assert principal(result) == "my list"
    assert "that do not leak (my list) into train" in headlines(result)[0]
