"""Coverage of the intervals of ``visleak impact``, and false-alarm rates of its tests.

usage: python benchmarks/impact_statistics.py

Needs no data. Coverage and false-alarm rates of scores that are right or wrong are exact sums over
all possible counts; for the many images that do not leak, only 41 equally likely counts are used,
and for more than 1,000 images only 61 numbers of right answers, evenly spaced. Results for classes,
paired answers, weights and other metrics are simulated with fixed seeds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from record import Bar, write
from scipy.stats import binom

from visleak.rates import score_interval, wilson
from visleak.stats.bootstrap import bca_difference, bca_mean, bca_weighted_mean
from visleak.stats.intervals import newcombe, newcombe_paired, weighted_wilson
from visleak.stats.permutation import hypergeometric_sum, permutation_test

Ends = tuple[float, float]
Float64 = npt.NDArray[np.float64]
Row = tuple[str, str, str, float]

#: Images and share of the limits; the first two are the duplicates of Barz & Denzler 2020.
SHARES = ((139, 0.99), (286, 0.99), (1000, 0.92))

#: Numbers of leaked and of all images: theirs, and two of ImageNet in Ramos et al.
LEAKED = ((139, 10_000), (286, 10_000), (789, 50_000), (1_680, 50_000))

#: Shares of right answers among the leaked and the others: easier, equal, and two of their tables.
PAIRS = ((0.99, 0.92), (0.92, 0.92), (0.6015, 0.5415), (0.3016, 0.8118))

#: Distributions of metrics other than right or wrong, with their means.
METRICS: dict[str, tuple[Callable[[np.random.Generator, int], Float64], float]] = {
    "average precision near 1": (lambda rng, n: rng.beta(5, 0.3, n), 5 / 5.3),
    "half are 1, the others even": (
        lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, rng.random(n)),
        0.75,
    ),
    "loss, exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
}

#: Samples per simulated case; more for fast ones.
RUNS = 500

#: Numbers of leaked images that are too small for an alarm.
FEWEST = "20 of 1,000"


def held(ends: Sequence[Ends], truth: float) -> npt.NDArray[np.bool_]:
    """Return whether intervals contain the truth."""
    array = np.array(ends)
    return (array[:, 0] <= truth) & (truth <= array[:, 1])


def percentile(k: int, n: int) -> Ends:
    """Return the percentile interval of infinitely many resamples of ``k`` right of ``n``."""
    low, high = binom.ppf([0.025, 0.975], n, k / n) / n
    return float(low), float(high)


def bca_of_counts(k: int, n: int) -> Ends:
    """Return the BCa interval of ``k`` right of ``n``, none if all or none are right."""
    return bca_mean(np.repeat([1.0, 0.0], [k, n - k]))


def of_shares() -> list[Row]:
    """Return the coverage of intervals of one share, summed over all counts."""
    rows = []
    ways = {"Wilson": wilson, "percentile bootstrap": percentile, "BCa bootstrap": bca_of_counts}
    for (n, p), (name, interval) in ((case, way) for case in SHARES for way in ways.items()):
        count = np.arange(n + 1)
        likely = binom.pmf(count, n, p)
        count, likely = count[likely > 1e-9], likely[likely > 1e-9]
        covered = held([interval(int(k), n) for k in count], p)
        rows.append((name, f"share {p:.0%}", f"{n:,}", float(likely[covered].sum())))
    return rows


def miettinen_nurminen(
    before: tuple[int, int], after: tuple[int, int], confidence: float = 0.95
) -> Ends:
    """Return the score interval of the difference of two shares, after minus before.

    For two independent samples: all differences that a score test does not reject. Its variance
    is that of the maximum-likelihood shares with this difference, times ``N / (N - 1)``.

    Returns both ends, within [-1, 1]; ``(nan, nan)`` where one sample is empty.

    Source: Miettinen & Nurminen 1985, "Comparative analysis of two rates", on the difference of
    two risks.

    >>> tuple(round(end, 4) for end in miettinen_nurminen((48, 80), (56, 70)))
    (0.0528, 0.3382)
    """
    change = after[0] / after[1] - before[0] / before[1]
    total = before[1] + after[1]
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    factor = z * z * total / (total - 1)

    def refused(difference: float) -> bool:
        return (change - difference) ** 2 > factor * _likeliest_variance(before, after, difference)

    return _boundary(refused, change, -1.0), _boundary(refused, change, 1.0)


def _likeliest_variance(
    before: tuple[int, int], after: tuple[int, int], difference: float
) -> float:
    """Return the variance of after minus before for the maximum-likelihood shares."""
    if difference < 0.0:
        before, after, difference = after, before, -difference
    share = _likeliest_share(before, after, difference)
    if 2.0 * share + difference > 1.0:
        # shares near 1 have few digits: compute with their complements
        before, after = (after[1] - after[0], after[1]), (before[1] - before[0], before[1])
        share = _likeliest_share(before, after, difference)
    other = share + difference
    return share * (1.0 - share) / before[1] + other * (1.0 - other) / after[1]


def _likeliest_share(smaller: tuple[int, int], larger: tuple[int, int], difference: float) -> float:
    """Return the maximum-likelihood share of one sample, given the difference to the other.

    ``difference``: of the true shares, in [0, 1].

    Source: Miettinen & Nurminen 1985, appendix: the root of a cubic, in closed form.
    """
    (k, n), (j, m) = smaller, larger
    cubic = float(n + m)
    square = (m + 2 * n) * difference - (n + m) - (k + j)
    linear = (n * difference - (n + m) - 2 * k) * difference + (k + j)
    if k == 0:  # one root is 0, where the closed form is not exact
        root = math.sqrt(max(0.0, square**2 - 4.0 * cubic * linear))
        return 2.0 * linear / (root - square) if linear > 0.0 else 0.0
    constant = k * difference * (1.0 - difference)
    centre = square / (3.0 * cubic)
    q = centre**3 - square * linear / (6.0 * cubic**2) + constant / (2.0 * cubic)
    p = math.copysign(math.sqrt(max(0.0, centre**2 - linear / (3.0 * cubic))), q)
    cosine = q / p**3 if p else 0.0
    angle = (math.pi + math.acos(min(1.0, max(-1.0, cosine)))) / 3.0
    return min(1.0 - difference, max(0.0, 2.0 * p * math.cos(angle) - centre))


def _boundary(refused: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the first rejected point between one that is not and the end of the scale.

    By bisection, until no number is between the two.
    """
    if not refused(outside):
        return outside
    while (middle := (inside + outside) / 2.0) not in (inside, outside):
        if refused(middle):
            outside = middle
        else:
            inside = middle
    return inside


def of_differences() -> list[Row]:
    """Return the coverage of intervals of leaked minus others."""
    rows = []
    for (leaked, images), (p, q) in ((case, pair) for case in LEAKED for pair in PAIRS):
        others = images - leaked
        count = np.arange(leaked + 1)
        likely = binom.pmf(count, leaked, p)
        count, likely = count[likely > 1e-6], likely[likely > 1e-6]
        right = binom.ppf((np.arange(41) + 0.5) / 41, others, q).astype(int)
        for name, interval in (("Newcombe", newcombe), ("Miettinen-Nurminen", miettinen_nurminen)):
            covered = 0.0
            for k, weight in zip(count, likely, strict=True):
                ends = [interval((int(j), others), (int(k), leaked)) for j in right]
                covered += weight * held(ends, p - q).mean()
            rows.append((name, f"{p:.1%} minus {q:.1%}", f"{leaked:,} of {images:,}", covered))
    return rows


def of_the_same_images() -> list[Row]:
    """Return the coverage of intervals of paired answers to the same images."""
    rng = np.random.default_rng(0)
    rows = []
    for n, cells in ((1_000, (0.91, 0.01, 0.02, 0.06)), (10_000, (0.90, 0.03, 0.02, 0.05))):
        drawn = rng.multinomial(n, cells, size=8 * RUNS).tolist()
        covered = held([newcombe_paired(*each) for each in drawn], cells[2] - cells[1])
        what = f"{cells[1]:.0%} lost, {cells[2]:.0%} won"
        rows.append(("Newcombe, paired", what, f"{n:,}", float(covered.mean())))
    return rows


def of_weighted_shares() -> list[Row]:
    """Return the coverage of intervals of a share weighted by class.

    Three classes, the last of which is underrepresented by a factor of four; and a thousand
    classes, of which the easy or the hard ones lack images.
    """
    rng = np.random.default_rng(1)
    three = np.array([400, 300, 100]), np.array([0.3, 0.3, 0.4])
    lacking = rng.integers(5, 51, 1000)
    thousand = lacking, np.full(1000, 0.001)
    cases = [
        ("all alike", *three, np.array([0.99, 0.99, 0.99])),
        ("heavy class varies", *three, np.array([0.99, 0.95, 0.8])),
        ("light class varies", *three, np.array([0.6, 0.8, 0.99])),
        ("easy classes lack images", *thousand, 1.0 - lacking / 150),
        ("hard classes lack images", *thousand, 0.6 + lacking / 150),
    ]
    rows = []
    for what, sizes, mix, shares in cases:
        weights, label = np.repeat(mix / sizes, sizes), np.repeat(np.arange(len(sizes)), sizes)
        total, kish = weights.sum(), weights.sum() ** 2 / (weights**2).sum()
        ends: dict[str, list[Ends]] = {}
        for _ in range(4 * RUNS):
            right = rng.random(len(label)) < shares[label]
            share = min(1.0, float(weights[right].sum() / total))
            variance = float(((weights * (right - share)) ** 2).sum()) / total**2
            shown = share * (1.0 - share) / variance if 0.0 < share < 1.0 else kish
            for name, interval in (
                ("Wilson, weighted", weighted_wilson(right, weights)),
                ("... Kish's size alone", score_interval(share, kish, 0.95)),
                ("... seen variance alone", score_interval(share, shown, 0.95)),
            ):
                ends.setdefault(name, []).append(interval)
        for name, each in ends.items():
            covered = held(each, float(mix @ shares)).mean()
            rows.append((name, what, f"{len(label):,}", float(covered)))
    return rows


def of_other_metrics() -> list[Row]:
    """Return the coverage of bootstrap intervals of a mean and of a difference."""
    rows = []
    for (what, (draw, truth)), n in ((m, n) for m in METRICS.items() for n in (139, 1000)):
        rng = np.random.default_rng(2)
        samples = [draw(rng, n) for _ in range(RUNS)]
        bca = [bca_mean(sample, seed=run) for run, sample in enumerate(samples)]
        plain = [
            tuple(np.quantile(sample[rng.integers(n, size=(1000, n))].mean(1), [0.025, 0.975]))
            for sample in samples
        ]
        for name, ends in (("BCa bootstrap", bca), ("percentile bootstrap", plain)):
            rows.append((name, what, f"{n:,}", float(held(ends, truth).mean())))
        if n == 1000:
            ends = [
                bca_difference(few, many, seed=run)
                for run, (few, many) in enumerate(
                    (few[:139], many[139:]) for few, many in pairwise(samples)
                )
            ]
            rows.append(("BCa, difference", what, "139 of 1,000", float(held(ends, 0.0).mean())))
    return rows


def alarms(images: int, leaked: int, right: int, mid: bool) -> float:
    """Return the probability of an alarm at 5 % for a number of right images.

    The p-value falls with the distance of a count from its expectation, so the first count with an
    alarm is found by bisection.
    """
    least, likely = hypergeometric_sum([images], [right], [leaked])
    most = least + len(likely) - 1

    def quiet(seen: int) -> bool:
        cells = (seen, leaked - seen, right - seen, images - leaked - right + seen)
        values, chosen = np.repeat([[1, 0, 1, 0], [1, 1, 0, 0]], cells, axis=1)
        return permutation_test(values, chosen, mid=mid) > 0.05

    centre = min(most, max(least, round(leaked * right / images)))
    edges = []
    for outside in (least - 1, most + 1):
        loud, calm = outside, centre
        while abs(calm - loud) > 1:
            middle = (loud + calm) // 2
            loud, calm = (loud, middle) if quiet(middle) else (middle, calm)
        edges.append(calm)
    counts = np.arange(least, most + 1)
    return float(likely[(counts < edges[0]) | (counts > edges[1])].sum())


def false_alarms() -> list[Row]:
    """Return the false-alarm rate at 5 % without an effect, over all numbers of right images."""
    rows = []
    cases = ((1_000, 139), (1_000, 20), (10_000, 139), (10_000, 1_000), (50_000, 789))
    for (images, leaked), p in ((case, p) for case in cases for p in (0.99, 0.92, 0.5)):
        right = np.arange(images + 1)
        likely = binom.pmf(right, images, p)
        if images > 1_000:  # a sample, for time
            middle = np.flatnonzero(likely > 1e-5)
            right = np.unique(np.linspace(middle[0], middle[-1], 61).astype(int))
            likely = likely[right]
        right, likely = right[likely > 1e-6], likely[likely > 1e-6]
        for name, mid in (("mid-p", True), ("conservative", False)):
            each = np.array([alarms(images, leaked, int(k), mid) for k in right])
            rate = float((likely * each).sum() / likely.sum())
            rows.append((name, f"share {p:.0%}", f"{leaked:,} of {images:,}", rate))
    return rows


def false_alarms_within_classes() -> list[Row]:
    """Return the same within ten classes, where harder ones leak more often; simulated."""
    rng = np.random.default_rng(3)
    rows = []
    for images, leaked, p in ((1_000, 139, 0.99), (1_000, 139, 0.92), (10_000, 1_000, 0.92)):
        label = np.repeat(np.arange(10), images // 10)
        share = 1.0 - (1.0 - p) * np.linspace(0.2, 1.8, 10)
        odds = np.linspace(0.5, 1.5, 10)[label]
        found = []
        for _ in range(8 * RUNS):
            chosen = np.zeros(images, bool)
            chosen[rng.choice(images, leaked, replace=False, p=odds / odds.sum())] = True
            right = rng.random(images) < share[label]
            found.append(
                [
                    permutation_test(right, chosen, label),
                    permutation_test(right, chosen, label, mid=False),
                    permutation_test(right, chosen),
                ]
            )
        rates = (np.array(found) <= 0.05).mean(axis=0)
        names = ("mid-p, classes", "conservative, classes", "mid-p, classes ignored")
        for name, rate in zip(names, rates, strict=True):
            rows.append((name, f"share {p:.0%}", f"{leaked:,} of {images:,}", float(rate)))
    return rows


def false_alarms_of_other_metrics() -> list[Row]:
    """Return the same for metrics other than right or wrong, with 499 draws per test."""
    rows = []
    for what, (draw, _) in METRICS.items():
        rng = np.random.default_rng(4)
        chosen, label = np.arange(1000) % 100 < 14, np.repeat(np.arange(10), 100)
        for name, strata in (("mid-p, drawn", None), ("mid-p, drawn, classes", label)):
            found = [
                permutation_test(draw(rng, 1000), chosen, strata, resamples=499, seed=run)
                for run in range(4 * RUNS)
            ]
            rate = float((np.array(found) <= 0.05).mean())
            rows.append((name, what, f"{chosen.sum()} of 1,000", rate))
    return rows


def seconds() -> dict[str, float]:
    """Return the seconds of one call for 50,000 images."""
    rng = np.random.default_rng(5)
    n = 50_000
    score, right = rng.beta(5, 0.3, n), rng.random(n) < 0.8
    label, leaked = rng.integers(0, 1000, n), rng.permutation(n) < 1_680
    calls: dict[str, Callable[[], object]] = {
        "BCa of a mean": lambda: bca_mean(score),
        "BCa of a mean, ten values": lambda: bca_mean(np.round(score, 1)),
        "BCa of a difference": lambda: bca_difference(score[leaked], score[~leaked]),
        "BCa of a weighted mean": lambda: bca_weighted_mean(score, 1.0 + label % 7),
        "permutation, exact": lambda: permutation_test(right, leaked),
        "permutation, exact, 1,000 classes": lambda: permutation_test(right, leaked, label),
        "permutation, drawn": lambda: permutation_test(score, leaked),
        "permutation, drawn, 1,000 classes": lambda: permutation_test(score, leaked, label),
    }
    found = {}
    for name, call in calls.items():
        begun = time.process_time()
        call()
        found[name] = round(time.process_time() - begun, 3)
    return found


def shown(title: str, questions: dict[str, Callable[[], list[Row]]]) -> dict[str, list[Row]]:
    """Compute results one by one, and print each as a table."""
    answers = {}
    for name, question in questions.items():
        answers[name] = question()
        print(f"\n{title}: {name}")
        for method, what, images, rate in answers[name]:
            print(f"  {method:<26} {what:<30} {images:>16} {100 * rate:>8.2f} %", flush=True)
    return answers


def as_json(tables: dict[str, list[Row]]) -> dict[str, list[dict[str, Any]]]:
    """Return tables for JSON."""
    return {
        name: [
            {"method": method, "of": what, "images": images, "rate": round(rate, 5)}
            for method, what, images, rate in rows
        ]
        for name, rows in tables.items()
    }


def main() -> None:
    """Measure, print and store."""
    coverage = {
        "shares": of_shares,
        "differences": of_differences,
        "same images": of_the_same_images,
        "weighted shares": of_weighted_shares,
        "other metrics": of_other_metrics,
    }
    alarm_tables = {
        "right or wrong": false_alarms,
        "within classes": false_alarms_within_classes,
        "other metrics": false_alarms_of_other_metrics,
    }
    covered = shown("How often a 95 % interval holds the truth", coverage)
    alarmed = shown("How often a test at 5 % alarms where leaks mean nothing", alarm_tables)
    taken = seconds()
    print("\nSeconds of one call at 50,000 images")
    for name, each in taken.items():
        print(f"  {name:<58} {each:>8.3f}")
    print("\nBars")
    figures = {
        "coverage": as_json(covered),
        "false_alarms": as_json(alarmed),
        "seconds_at_50000": taken,
    }
    write(__file__, bars(covered, alarmed, taken), figures)


def bars(
    coverage: dict[str, list[Row]], alarm_tables: dict[str, list[Row]], taken: dict[str, float]
) -> list[Bar]:
    """Return the results with limits, in per cent and seconds."""
    wilsons = [row for row in coverage["shares"] if row[0] == "Wilson"]
    found = [
        Bar(f"Wilson covers {what} of {images}, %", 100 * rate, 93, most=False)
        for _, what, images, rate in wilsons
    ]
    found.append(Bar("Wilson covers share 92% of 1,000, %", 100 * wilsons[-1][3], 97))
    of_shares = [
        row[3]
        for rows in coverage.values()
        for row in rows
        if row[0].startswith(("Wilson", "Newcombe", "Miettinen"))
    ]
    tests = [row for rows in alarm_tables.values() for row in rows if "ignored" not in row[0]]
    # of 20 leaked images with an error rate of 1 %, hardly any count is rare enough for an alarm
    mid = [rate for name, _, n, rate in tests if "mid-p" in name and n != FEWEST]
    return [
        *found,
        Bar("least coverage of an interval of shares, %", 100 * min(of_shares), 93, most=False),
        Bar("most false alarms of a test, %", 100 * max(row[3] for row in tests), 6.5),
        Bar("fewest false alarms, mid-p, 139 leaked or more, %", 100 * min(mid), 3.5, most=False),
        Bar("longest bootstrap, s", max(v for k, v in taken.items() if "BCa" in k), 1),
        Bar("exact test in 1,000 classes, s", taken["permutation, exact, 1,000 classes"], 0.5),
    ]


if __name__ == "__main__":
    main()
