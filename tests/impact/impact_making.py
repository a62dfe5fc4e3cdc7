"""Impacts made by hand: the papers' tables."""

import math
from collections.abc import Sequence
from dataclasses import replace

from visleak.impact.results import Comparison, Effect, Flip, Gap, Impact, Row
from visleak.rates import wilson
from visleak.stats.bootstrap import Estimate

#: Part of the benchmark to images and scores in percent, for each model or metric.
Table = Sequence[tuple[str, str, int, Sequence[float]]]

#: Ramos et al. (2025), table 2; the second row of "soft" says 2,281 images there, a misprint.
TABLE_2: Table = (
    ("", "original", 50_000, [54.18]),
    ("hard", "non-leaked", 49_729, [54.15]),
    ("hard", "leaked", 271, [60.15]),
    ("hard", "random", 271, [53.51]),
    ("hard or soft", "non-leaked", 47_719, [53.54]),
    ("hard or soft", "leaked", 2_281, [67.65]),
    ("hard or soft", "random", 2_281, [54.84]),
)

#: Table 3: ResNet50 and ResNet152.
TABLE_3: Table = (
    ("", "original", 50_000, [80.37, 82.83]),
    ("hard", "non-leaked", 49_211, [81.18, 83.65]),
    ("hard", "leaked", 789, [30.16, 31.69]),
    ("hard", "same label", 11, [100.00, 100.00]),
    ("hard", "different label", 778, [29.18, 30.72]),
    ("hard", "random", 789, [83.27, 84.54]),
    ("hard or soft", "non-leaked", 48_320, [81.00, 83.52]),
    ("hard or soft", "leaked", 1_680, [62.44, 62.80]),
    ("hard or soft", "same label", 812, [96.06, 95.44]),
    ("hard or soft", "different label", 868, [30.99, 32.26]),
    ("hard or soft", "random", 1_680, [80.24, 83.04]),
)

#: ciFAIR, table 2: errors on CIFAR-10 and ciFAIR-10, on CIFAR-100 and ciFAIR-100.
ERRORS = {
    "Plain-11": (5.91, 6.43, 27.82, 31.34),
    "ResNet-110": (5.26, 5.77, 26.05, 29.24),
    "WRN-28-10": (3.89, 4.25, 18.95, 21.48),
    "DenseNet-BC (L=190, k=40)": (3.90, 4.20, 18.62, 21.02),
    "ResNeXt-29 (8x64d)": (3.56, 3.95, 18.38, 20.84),
    "PyramidNet-272-200": (3.58, 4.00, 17.05, 19.38),
}


def share(percent, images):
    """Return a share with its Wilson interval."""
    return Estimate(percent / 100, *wilson(round(percent / 100 * images), images))


def effect_of(table, at, model, metric="accuracy"):
    """Return the effect in one column of a table, with the comparisons that follow from it."""
    whole = table[0][3][at] / 100
    rows = []
    for leak, subset, images, scores in table:
        score = share(scores[at], images)
        gain = Estimate(score.value - whole, score.low - whole, score.high - whole)
        gain = gain if leak else Estimate(math.nan)
        rows.append(Row(leak, subset, images, score, gain, draws=10 if subset == "random" else 1))
    total = table[0][2]
    leaks = dict.fromkeys(leak for leak, *_ in table if leak)
    return Effect(
        model, metric, (total, total), percent=True, share=True, lower=False, rows=tuple(rows),
        comparisons=tuple(comparison_of(rows, leak) for leak in leaks),
    )  # fmt: skip


def comparison_of(rows, leak):
    own = {row.subset: row for row in rows if row.leak == leak}
    leaked, others = own["leaked"], own["non-leaked"]
    value = leaked.score.value - others.score.value
    return Comparison(
        leak=leak,
        leaked=leaked.images,
        others=others.images,
        difference=Estimate(value, value - 0.03, value + 0.03),
        p=0.0002,
        adjusted=0.0004,
        within_classes=0.012,
        within_classes_adjusted=0.024,
        fair=others.score,
        inflation=Estimate(rows[0].score.value - others.score.value, -0.001, 0.012),
    )


def impact_of(effects, leaks, **changes):
    made = Impact(
        audit="visleak-audit",
        test_set="val",
        references=("train",),
        images=effects[0].images[1],
        leaks=leaks,
        effects=tuple(effects),
        settings={"draws": 1000, "size": None, "seed": 0, "p": "mid"},
    )
    return replace(made, **changes)


def table_3():
    effects = [effect_of(TABLE_3, at, name) for at, name in enumerate(("ResNet50", "ResNet152"))]
    return impact_of(effects, {"hard": 789, "hard or soft": 1_680})


def gaps_of(first):
    """Return the gaps of the columns of a data set that begin at ``first``."""
    for model, errors in ERRORS.items():
        before, after = errors[first : first + 2]
        gap, sides = (after - before) / 100, (share(before, 10_000), share(after, 10_000))
        ends = Estimate(gap, gap - 0.001, gap + 0.001)
        yield Gap(model, "accuracy", 10_000, *sides, ends, 100 * gap / before, 0.0001, (20, 71))


def cifair(first=0):
    """Return table 2 of Barz & Denzler: 0 for CIFAR-10, 2 for CIFAR-100."""
    effects = []
    for model, errors in ERRORS.items():
        right = 100 - errors[first]
        table = (
            ("", "original", 10_000, [right]),
            ("near or exact", "non-leaked", 9_711, [right - 0.1]),
            ("near or exact", "leaked", 289, [98.0]),
        )
        effects.append(effect_of(table, 0, model))
    names = ("accuracy", "near or exact", "WRN-28-10")
    flips = (
        Flip(*names, "DenseNet-BC (L=190, k=40)", 0.0001, -0.0005, True, 0.31, 0.58, 10_000),
        Flip(*names, "Plain-11", 0.02, 0.0218, False, 0.0, 0.0, 10_000),
    )
    gaps = tuple(gaps_of(first))
    return impact_of(effects, {"near or exact": 289}, gaps=gaps, flips=flips, test_set="cifar10")
