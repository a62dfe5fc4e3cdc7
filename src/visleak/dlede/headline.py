"""What retraining says of a split in one line that a person can repeat.

Nobody sees a leak in a score. What is seen is that leaking test images on purpose gains hardly
anything, as it would if the split leaked already; the line says that, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from visleak.dlede.numbers import certainty, metric_name, percent, score, told_rise
from visleak.dlede.proving import ENOUGH
from visleak.dlede.reasons import NOT_LEARNED, TOO_HIGH, memorized
from visleak.dlede.results import DLeDe, Judgement, MetricJudgement
from visleak.dlede.rules import LEAKING, RULES

#: So many metrics are named; of more there is a range.
NAMED: Final = 3

_SAID: Final = {"leaking": "the split seems to leak already", "clean": "no leak shows"}

#: What a verdict rests on, by rule; ``{}`` is the threshold.
_BECAUSE: Final = {
    ("both-steps", "leaking"): "none above {}",
    ("both-steps", "clean"): "each above {} at one step or more",
    ("any-step", "leaking"): "each at most {} at one step or more",
    ("any-step", "clean"): "all above {}",
}
_PLAINLY: Final = {"leaking": "at most {}", "clean": "above {}"}


def headline(result: DLeDe) -> str:
    """Return the line; it is true of partial, undecided and single repetitions, too."""
    return "; ".join(_parts(result))


def _parts(result: DLeDe) -> Iterator[str]:
    judged = result.judgement
    if result.proof:
        yield f"the split leaks, and nothing was trained: {result.proof}"
        return
    if not judged.repetitions or not judged.metrics:
        steps = [f"{step}" for step in judged.decided_by]
        yield f"nothing can be judged: no repetition has a result at {listed(steps)} % of leaks"
        return
    if any(each.reason for each in judged.metrics):
        yield f"undecided: {'; '.join(_reasons(result))}"
        if not any(math.isnan(each.statistic.value) for each in judged.metrics):
            yield f"{rises(judged)} ({_runs(judged)}; by the means alone {judged.on_means})"
    else:
        yield from _verdict(result)
    if judged.left_out:
        every = judged.repetitions + judged.left_out
        one = judged.left_out == 1
        lack, are = ("lacks", "is") if one else ("lack", "are")
        yield f"{judged.left_out} of {every} repetitions {lack} a training and {are} left out"
    yield from _calibrated(result)
    yield from _copies(result)


def _copies(result: DLeDe) -> Iterator[str]:
    """Say what an audit found where the scores do not show a leak."""
    found = result.audit or {}
    copies, images = int(found.get("copies", 0)), int(found.get("images", 0))
    if copies and result.judgement.verdict != LEAKING:
        few = ", too few to show in the scores" if copies < ENOUGH * images else ""
        yield f"but there are copies of {copies:,} of {images:,} test images in training{few}"


def _reasons(result: DLeDe) -> Iterator[str]:
    """Yield why metrics cannot decide; what holds for several of them once."""
    metrics = result.judgement.metrics
    low = [each for each in metrics if each.reason_code == NOT_LEARNED]
    high = [each for each in metrics if each.reason_code == TOO_HIGH]
    yield from _others(each for each in metrics if each.reason and each not in (*low, *high))
    if low:
        names, scores = _starts(low)
        yield (
            f"{names} of {scores} without leaks on purpose {'is' if len(low) == 1 else 'are'}"
            " hardly above guessing, and a model that has not learned the task gains nothing from"
            " leaks either: train longer, or another model"
        )
    if high:
        names, scores = _starts(high)
        judged = result.judgement
        starts = [each.steps[0].mean.value for each in high]
        most = max(memorized(start, judged.decided_by, RULES[judged.rule]) for start in starts)
        advice = "" if elsewhere(result) else ": calibrate the threshold (--calibrate)"
        yield (
            f"{names} of {scores} without leaks on purpose {'is' if len(high) == 1 else 'are'} so"
            f" high that memorizing what leaks adds about {percent(round(most, 3))}, not more"
            f" than the threshold of {percent(judged.threshold)}, so that a split without leaks"
            f" looks the same{advice}"
        )


def _others(metrics: Iterable[MetricJudgement]) -> Iterator[str]:
    """Yield reasons; of metrics with the same one, once with the names of all."""
    alike: dict[str, list[MetricJudgement]] = {}
    for each in metrics:
        words = each.reason.replace(metric_name(each.metric), "{}", 1)
        alike.setdefault(words, []).append(each)
    for words, same in alike.items():
        yield words.replace("{}", listed([metric_name(each.metric) for each in same]), 1)


def _starts(metrics: Sequence[MetricJudgement]) -> tuple[str, str]:
    """Return the names of metrics and their scores without leaks on purpose."""
    names = listed([metric_name(each.metric) for each in metrics])
    return names, listed([score(each.steps[0].mean.value) for each in metrics])


def is_calibrated(result: DLeDe) -> bool:
    """Whether the threshold of the verdict is that of clean splits of the same images."""
    found = result.calibration
    return found is not None and math.isclose(found.threshold, result.judgement.threshold)


def is_single(judged: Judgement) -> bool:
    """Whether a judgement rests on the means alone: on one repetition, or on published means."""
    return judged.repetitions < 2


def _verdict(result: DLeDe) -> Iterator[str]:
    judged = result.judgement
    said = judged.on_means if is_single(judged) else judged.verdict
    start = "on the means " if is_single(judged) else ""
    if said in _SAID:
        because = _because(judged, said)
    else:
        because = f"the threshold is {percent(judged.threshold)}"
    if not is_single(judged):
        because += f"; {_runs(judged)}, {_chances(judged, said)}"
    yield f"{start}{_word(judged, said)}: {rises(judged)} ({because})"
    if is_single(judged):
        yield "how certain that is cannot be told from one repetition"
    elif said == "undecided" and not judged.disagree:
        yield _more(result)


def _runs(judged: Judgement) -> str:
    return f"{judged.repetitions:,} repetition{'s' * (judged.repetitions != 1)}"


def _word(judged: Judgement, said: str) -> str:
    if said in _SAID:
        return _SAID[said]
    verdicts = {
        each.metric: each.on_means if is_single(judged) else each.verdict for each in judged.metrics
    }
    if judged.disagree or is_single(judged):
        by = [
            f"by {listed([metric_name(m) for m, found in verdicts.items() if found == verdict])}"
            f" {told}"
            for verdict, told in _SAID.items()
            if verdict in verdicts.values()
        ]
        return f"the metrics contradict each other, {' and '.join(by)}"
    return "undecided"


def _because(judged: Judgement, said: str) -> str:
    plainly = _BECAUSE.get((judged.rule, said), _PLAINLY[said])
    return plainly.format(percent(judged.threshold))


def _chances(judged: Judgement, said: str) -> str:
    if said == "leaking":
        return f"certainty {certainty(judged.leaking)}"
    if said == "clean":
        return f"certainty {certainty(judged.clean)}"
    return (
        f"certainty that it leaks already {certainty(judged.leaking)}, that no leak shows"
        f" {certainty(judged.clean)}, a verdict needs {percent(judged.certainty)}"
    )


def _more(result: DLeDe) -> str:
    more = result.judgement.more
    if more is None:
        return "more repetitions would hardly decide it"
    told = f"{more:,} more repetition{'s' * (more != 1)} would probably decide it"
    option = "" if elsewhere(result) else f": --repetitions {result.plan.repetitions + more}"
    return told + option


def elsewhere(result: DLeDe) -> bool:
    """Whether the trainings were made elsewhere, and only their scores are known."""
    return result.trainer.get("name") == "scores"


def rises(judged: Judgement) -> str:
    """Return what leaks on purpose do to the metrics that decide, step by step."""
    metrics = judged.metrics
    if RULES[judged.rule].whole:
        values = [each.statistic.value for each in metrics]
        return f"leaking {judged.decided_by[-1]} % {_first(judged, values, values)}"
    steps = list(zip(judged.decided_by, judged.decided_by[1:], strict=False))
    rows = [[_rise(each, step) for each in metrics] for _, step in steps]
    every = [value for row in rows for value in row]
    told = [f"leaking {steps[0][1]} % {_first(judged, rows[0], every)}"]
    for (before, step), row in zip(steps[1:], rows[1:], strict=True):
        told.append(f"the next {step - before} % by {_values(judged, row)}")
    return ", ".join(told)


def _rise(each: MetricJudgement, step: int) -> float:
    return next(found.increase.value for found in each.steps if found.step == step)


def _first(judged: Judgement, values: Sequence[float], every: Sequence[float]) -> str:
    """Name the metrics with what they rise by; a metric that falls, or should, "improves"."""
    metrics = judged.metrics
    falls = any(each.lower for each in metrics) or any(value < 0 for value in every)
    start = f"of the test images on purpose {'improves' if falls else 'raises'}"
    if len(metrics) > NAMED:
        return f"{start} {len(metrics):,} metrics by {_values(judged, values)}"
    pairs = zip(metrics, values, strict=True)
    told = [
        f"{metric_name(each.metric)} by {told_rise(value, judged.threshold)} %"
        for each, value in pairs
    ]
    return f"{start} {listed(told)}"


def _values(judged: Judgement, values: Sequence[float]) -> str:
    if len(values) > NAMED:
        low, high = (told_rise(pick(values), judged.threshold) for pick in (min, max))
        return f"{low} to {high} %"
    return listed([f"{told_rise(value, judged.threshold)} %" for value in values])


def _calibrated(result: DLeDe) -> Iterator[str]:
    """Say what the threshold of clean splits of the same images is, and what follows from it."""
    found, judged = result.calibration, result.judgement
    if found is None:
        return
    of = f"{len(found.splits):,} clean split{'s' * (len(found.splits) != 1)} of the same images"
    if not found.threshold > 0.0:
        yield f"{of} rise too little, or too unevenly, to tell a split that leaks from them"
        return
    if is_calibrated(result):
        yield f"the threshold is calibrated on {of}"
        return
    below = [each.statistic.value <= found.threshold for each in judged.metrics]
    means = "say that it seems to leak already" if all(below) else "show no leak"
    if any(below) and not all(below):
        means = "contradict each other"
    limit = percent(round(found.threshold, 4))
    yield f"calibrated on {of} the threshold is {limit}, by which the means {means}"


def listed(texts: Sequence[str]) -> str:
    """Return texts as one enumeration.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *rest, last = texts
    return f"{', '.join(rest)} and {last}" if rest else last
