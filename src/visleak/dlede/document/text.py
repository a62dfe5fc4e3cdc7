"""A result in words: the headline, statements, notes, and how to read the tables.

A leak is not visible in a score. What is measured is that leaking test images on purpose gains
hardly anything, as it would if the split leaked already; the texts claim no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from visleak.dlede.hashes import PAPER_CUT, hash_line
from visleak.dlede.judge import CLEAN, LEAKING, RULES, UNDECIDED
from visleak.dlede.judge.judge import (
    IDENTICAL,
    NO_CLEAN_CURVE,
    NONE_FOUND,
    NOT_LEARNED,
    ONE_REPETITION,
    TOO_HIGH,
    UNKNOWN_CHANCE,
    UNKNOWN_SCALE,
    memorized,
)
from visleak.dlede.results import (
    ENOUGH,
    Calibration,
    ClassCounts,
    DetectionLimit,
    DLeDeResult,
    Judgement,
    MetricJudgement,
    certainty,
    metric_name,
    percent,
    precise_rise,
    score,
)
from visleak.dlede.settings import DECIDING, Forecast
from visleak.quantities import counted, duration, listed

NAMED: Final = 3  # metrics that are named; of more a range is given
#: Verdicts in words.
VERDICTS: Final = {
    LEAKING: "the split seems to leak already",
    CLEAN: "no leak shows",
    UNDECIDED: "undecided whether the split leaks",
}
#: The reason of a verdict, by rule; ``{}`` is the threshold.
_BECAUSE: Final = {
    ("both-steps", LEAKING): "none above {}",
    ("both-steps", CLEAN): "each above {} at one step or more",
    ("any-step", LEAKING): "each at most {} at one step or more",
    ("any-step", CLEAN): "all above {}",
    ("cumulative", LEAKING): "at most {}",
    ("cumulative", CLEAN): "above {}",
}
#: Why the detection limit is not known, by code.
_NO_LIMIT: Final = {
    UNKNOWN_CHANCE: "no leak would be found while the score of guessing is not known (--chance)",
    UNKNOWN_SCALE: "no leak would be found by metrics that are not shares from 0 to 1 for which"
    " higher is better",
    IDENTICAL: "the smallest leak that would be found is not known: all repetitions are the same",
    NO_CLEAN_CURVE: "the smallest leak that would be found is not known: no split without leaks"
    " shows how these scores rise (--calibrate)",
    ONE_REPETITION: "the smallest leak that would be found is not known from one repetition",
    NONE_FOUND: "no leak would be found with probability {}: before the scores rise little enough,"
    " they start too high for a verdict (--calibrate)",
}


def headline(result: DLeDeResult) -> str:
    """Return the verdict in one line that can be repeated."""
    judged = result.judgement
    if result.proof:
        return f"the split leaks, and nothing was trained: {result.proof}"
    if not judged.repetitions or not judged.metrics:
        steps = listed([f"{step}" for step in judged.decided_by])
        return f"nothing can be judged: no repetition has a result at {steps} % of leaks"
    if is_single(judged):
        if any(each.reason for each in judged.metrics):
            alone = f"one repetition; by the means alone {judged.on_means}"
            return f"{VERDICTS[UNDECIDED]} ({alone})"
        return f"on the means {_verdict(judged)} (one repetition, so the certainty is not known)"
    runs = f"{judged.repetitions:,} repetitions"
    if judged.verdict == UNDECIDED:
        return f"{_verdict(judged)} ({runs})"
    sure = judged.leaking if judged.verdict == LEAKING else judged.clean
    return f"{_verdict(judged)} (certainty {certainty(sure)}, {runs})"


def _verdict(judged: Judgement) -> str:
    """Return the verdict; if metrics contradict each other, that of each."""
    single = is_single(judged)
    verdict = judged.on_means if single else judged.verdict
    if verdict != UNDECIDED or not (single or judged.disagree):
        return VERDICTS[verdict]
    names: dict[str, list[str]] = {LEAKING: [], CLEAN: [], UNDECIDED: []}
    for each in judged.metrics:
        names[each.on_means if single else each.verdict].append(metric_name(each.metric))
    by = [f"by {listed(names[each])} {VERDICTS[each]}" for each in (LEAKING, CLEAN) if names[each]]
    return f"undecided: the metrics contradict each other, {' and '.join(by)}"


def statements(result: DLeDeResult) -> Iterator[str]:
    """Yield what the verdict rests on and what else was found, the most important first."""
    judged = result.judgement
    if result.proof:
        yield "--allow-proved-leak trains anyway, and shows the effect of the leak on the scores"
    elif judged.repetitions and judged.metrics:
        yield from _reasons(result)
        if not any(math.isnan(each.statistic.value) for each in judged.metrics):
            verdict = judged.on_means if is_single(judged) else judged.verdict
            because = _BECAUSE.get((judged.rule, verdict), "the threshold is {}")
            because = because.format(percent(judged.threshold))
            yield f"{increases_in_words(judged)} ({because})"
        yield from _undecided(result)
    if judged.left_out:
        every, some = judged.repetitions + judged.left_out, judged.left_out
        lack = "lacks a training run and is" if some == 1 else "lack a training run and are"
        yield f"{some} of {every} repetitions {lack} excluded"
    if result.failed:
        some = len(result.failed)
        yield (
            f"{counted(some, 'training run')} failed twice; verdicts rest on the"
            " repetitions that have all deciding steps"
        )
    if result.calibration is not None:
        yield from _calibrated(result, result.calibration)
    yield from _copies(result)
    if result.detection is not None:
        yield detection_line(result.detection)
    if result.hashes is not None:
        yield hash_line(result.hashes)
    if result.class_counts is not None and result.class_counts.classes:
        yield drift_line(result.class_counts)


def _reasons(result: DLeDeResult) -> Iterator[str]:
    """Yield why metrics cannot decide; a reason of several metrics once."""
    judged = result.judgement
    low = [each for each in judged.metrics if each.reason_code == NOT_LEARNED]
    high = [each for each in judged.metrics if each.reason_code == TOO_HIGH]
    yield from _others(each for each in judged.metrics if each.reason and each not in (*low, *high))
    if low:
        yield (
            f"{_starts(low)} hardly above guessing, and a model that has not learned the task gains"
            " nothing from leaks either: train longer, or use another model"
        )
    if high:
        rule, steps = RULES[judged.rule], judged.decided_by
        most = max(float(memorized(each.steps[0].mean.value, steps, rule)) for each in high)
        advice = "" if result.is_external else ": calibrate the threshold (--calibrate)"
        yield (
            f"{_starts(high)} so high that memorizing the leaked images alone adds about"
            f" {percent(round(most, 3))}, not more than the threshold of"
            f" {percent(judged.threshold)}; a split without leaks looks the same{advice}"
        )


def _others(metrics: Iterable[MetricJudgement]) -> Iterator[str]:
    """Yield further reasons; of metrics with the same one, once with the names of all."""
    same: dict[str, list[str]] = {}
    for each in metrics:
        name = metric_name(each.metric)
        same.setdefault(each.reason.replace(name, "{}", 1), []).append(name)
    yield from (words.replace("{}", listed(names), 1) for words, names in same.items())


def _starts(metrics: Sequence[MetricJudgement]) -> str:
    """Return the scores of metrics without leaks on purpose, with the verb of a sentence."""
    names = listed([metric_name(each.metric) for each in metrics])
    scores = listed([score(each.steps[0].mean.value) for each in metrics])
    return f"{names} of {scores} without leaks on purpose {'is' if len(metrics) == 1 else 'are'}"


def _undecided(result: DLeDeResult) -> Iterator[str]:
    """Yield the certainties of an undecided result, and how many repetitions would decide it."""
    judged = result.judgement
    if is_single(judged) or judged.verdict != UNDECIDED:
        return
    if any(each.reason for each in judged.metrics):
        yield f"by the means alone: {judged.on_means}"
        return
    yield (
        f"certainty that it leaks already {certainty(judged.leaking)}, that no leak shows"
        f" {certainty(judged.clean)}; a verdict requires {percent(judged.certainty)}"
    )
    if judged.disagree:
        return
    if judged.more is None:
        yield "more repetitions would hardly decide it"
        return
    option = f": --repetitions {result.plan.repetitions + judged.more}"
    yield (
        f"{judged.more:,} more repetition{'s' * (judged.more != 1)} would probably decide"
        f" it{'' if result.is_external else option}"
    )


def is_calibrated(result: DLeDeResult) -> bool:
    """Whether the threshold of the verdict is that of clean splits of the same images."""
    found = result.calibration
    return found is not None and math.isclose(found.threshold, result.judgement.threshold)


def is_single(judged: Judgement) -> bool:
    """Whether a judgement rests on the means alone: on one repetition, or on published means."""
    return judged.repetitions < 2


def increases_in_words(judged: Judgement) -> str:
    """Return the effect of leaks on purpose on the deciding metrics, step by step."""
    metrics, steps = judged.metrics, judged.decided_by
    if RULES[judged.rule].whole:
        rows = [[each.statistic.value for each in metrics]]
        steps = (steps[0], steps[-1])
    else:
        by_step = [{step.step: step.increase.value for step in each.steps} for each in metrics]
        rows = [[each[step] for each in by_step] for step in steps[1:]]
    falls = any(value < 0 for row in rows for value in row)
    verb = "changes" if falls else "raises"
    verb = "improves" if any(each.lower for each in metrics) else verb
    start = f"leaking {steps[1]} % of the test images on purpose {verb}"
    if len(metrics) > NAMED:
        words = [f"{start} {len(metrics):,} metrics by {_values(judged, rows[0])}"]
    else:
        pairs = zip(metrics, rows[0], strict=True)
        named = [f"{metric_name(each.metric)} by {_value(judged, value)}" for each, value in pairs]
        words = [f"{start} {listed(named)}"]
    for before, step, row in zip(steps[1:], steps[2:], rows[1:], strict=False):
        words.append(f"the next {step - before} % by {_values(judged, row)}")
    return ", ".join(words)


def _value(judged: Judgement, value: float) -> str:
    return f"{precise_rise(value, judged.threshold)} %"


def _values(judged: Judgement, values: Sequence[float]) -> str:
    if len(values) > NAMED:
        return f"{precise_rise(min(values), judged.threshold)} to {_value(judged, max(values))}"
    return listed([_value(judged, value) for value in values])


def _calibrated(result: DLeDeResult, found: Calibration) -> Iterator[str]:
    """Yield the threshold of clean splits, what follows from it, and the scores of both."""
    judged = result.judgement
    splits = f"{counted(len(found.splits), 'clean split')} of the same images"
    if not found.threshold > 0.0:
        yield f"{splits} rise too little, or too unevenly, to distinguish a split that leaks"
    elif is_calibrated(result):
        yield f"the threshold is calibrated on {splits}"
    else:
        below = [each.statistic.value <= found.threshold for each in judged.metrics]
        means = "contradict each other" if any(below) else "show no leak"
        means = f"say that {VERDICTS[LEAKING]}" if all(below) else means
        yield (
            f"calibrated on {splits} the threshold is {percent(round(found.threshold, 4))}, by"
            f" which the means {means}"
        )
    starts: dict[str, list[float]] = {}
    for each in (metric for other in found.judgements for metric in other.metrics):
        if each.steps:
            starts.setdefault(each.metric, []).append(each.steps[0].mean.value)
    for each in judged.metrics:
        if each.steps and (clean := starts.get(each.metric)):
            yield (
                f"{metric_name(each.metric)} without leaks on purpose is"
                f" {score(each.steps[0].mean.value)} on this split and"
                f" {score(sum(clean) / len(clean))} on clean splits of the same images"
            )


def _copies(result: DLeDeResult) -> Iterator[str]:
    """Yield what an audit found, first if the scores do not show it."""
    audit = result.audit
    if audit is None or result.proof:
        return
    copies, images = audit.copies or 0, audit.images or 0
    if copies and result.judgement.verdict != LEAKING:
        few = ", too few to show in the scores" if copies < ENOUGH * images else ""
        yield f"but copies of {copies:,} of {images:,} test images are in training{few}"
    yield audit.line


def detection_line(found: DetectionLimit) -> str:
    """Return the detection limit, with its assumptions."""
    if math.isnan(found.share):
        words = _NO_LIMIT.get(found.reason_code, "no leak of any size can be found by such scores")
        return words.format(f"{found.probability:g}")
    size, beyond = f"{percent(found.share)} of the test images or more", ""
    if found.up_to < 1.0:
        size = f"{percent(found.share)} to {percent(found.up_to)} of the test images"
        beyond = "; larger ones start too high for a verdict"
    return (
        f"with {found.repetitions:,} repetitions this trainer would find a leak of {size} with"
        f" probability {found.probability:g}{beyond}; this assumes that"
        f" {'; '.join(found.assumptions)}"
    )


def class_drift(found: ClassCounts) -> list[tuple[str, float, float]]:
    """Return classes with first and last share of objects, else images; most changed first."""
    counts = found.objects or found.images
    first, last = shares(counts[0]), shares(counts[-1])
    rows = list(zip(found.classes, first, last, strict=True))
    return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def shares(counts: Sequence[float]) -> list[float]:
    """Return the share of each count of their sum."""
    whole = sum(counts)
    return [count / whole if whole else 0.0 for count in counts]


def drift_line(found: ClassCounts) -> str:
    """Return a line about the class whose share changes most."""
    name, *both = class_drift(found)[0]
    first, last = (f"{100 * share:.2f}" for share in both)
    if first == last:
        return "leaks do not change the class proportions in training"
    return (
        f"leaks change the share of {name} most: from {first} to {last} % of the training"
        f" {'objects' if found.objects else 'images'} at {found.steps[-1]} %"
    )


def about(result: DLeDeResult) -> str:
    """Return what was trained."""
    plan, name = result.plan, result.trainer.get("name", "a trainer")
    runs = counted(plan.repetitions, "repetition")
    if result.is_external:
        source = result.trainer.get("source") or "training runs made elsewhere"
        return f"scores of {source}: {runs} of {len(plan.steps)} steps"
    test, train = (f"{each.images:,} images of {each.name}" for each in (result.test, result.train))
    if result.proof:
        return f"{test} against {train}; {runs} of {len(plan.steps)} steps by {name} were planned"
    how = ("nested" if plan.nested else "independent") + ", stratified" * plan.stratified
    return (
        f"{name} trained on {train}, tested on {test}; {runs} of {len(plan.steps)} steps, {how}"
        f" draws, seed {plan.seed}"
    )


def reading(result: DLeDeResult) -> Iterator[str]:
    """Yield how to read the tables, and the limits of the method."""
    judged = result.judgement
    if result.proof:
        yield (
            "the leak is proved image by image, which scores could not show with more certainty;"
            " --allow-proved-leak trains anyway, and shows the effect of the leak on scores"
        )
        return
    yield (
        "leaking means: test images that were leaked into training on purpose hardly raise the"
        " score, as in a split that leaks already; a model that has reached its ceiling, or one"
        " that cannot learn the task, rises as little"
    )
    yield (
        "the increase R of a step is relative to the step before: (C - P) / P, equation 1 of Babu"
        " et al. (2025); a metric for which lower is better counts as increased if it falls"
    )
    yield (
        f"by the rule {judged.rule} a split leaks if {RULES[judged.rule].words} of"
        f" {percent(judged.threshold)}; the paper read its 5 % off the curve of one data set"
    )
    if judged.decided_by != DECIDING and not is_calibrated(result):
        steps = ", ".join(map(str, judged.decided_by))
        yield f"the paper's threshold is for steps of 10 %; steps of {steps} % rise differently"
    if is_single(judged):
        yield "intervals and certainties need more than one repetition of every step"
    else:
        yield (
            "intervals of means are t intervals; those of increases, and certainties, come from"
            " resampling the repetitions: they reflect other draws and seeds, not other data"
        )
        yield (
            f"a certainty of {percent(judged.certainty)} means that a split right on the threshold"
            f" would be called so in about {percent(round(1.0 - judged.certainty, 6))} of such"
            " experiments, with the number of repetitions chosen beforehand; it is not the"
            " probability that this split leaks. It is one-sided, so a 95 % interval may still"
            " contain the threshold"
        )
    if result.hashes is not None:
        yield (
            f"a cut of {PAPER_CUT} bits between perceptual hashes is a convention; the table has"
            " all cuts"
        )
    if result.memory:
        yield (
            "gains of leaked images and of the others are in the metric's own unit, relative to"
            " the same images without a leak on purpose"
        )


def labelled(metric: str, result: DLeDeResult) -> str:
    """Return the name of a metric, and whether lower is better."""
    return metric_name(metric) + " (lower is better)" * (metric in result.scores.lower)


def forecast_line(found: Forecast) -> str:
    """Return the expected cost of training runs as one line."""

    def time(seconds: float) -> str:
        return "under 1 s" if seconds < 1.0 else f"about {duration(seconds)}"

    parts = [
        f"{counted(found.training_runs, 'training run')} on {found.training_images:,} images, each"
        f" tested on {found.test_images:,}"
    ]
    if found.done:
        parts.append(f"{found.done:,} finished before")
    if found.seconds is None or found.seconds_per_run is None:
        parts.append("the expected time is known after the first run")
    elif found.done < found.training_runs:
        source = "as finished ones took" if found.measured else "by a first estimate"
        at_once = f", {found.jobs:,} concurrent" if found.jobs > 1 else ""
        parts.append(
            f"{time(found.seconds)} left ({time(found.seconds_per_run)} each {source}{at_once})"
        )
    return "; ".join(parts)
