"""What leaks do to scores in sentences that a person can repeat.

A leak may raise a score, lower it (the labels of copies may contradict each other), or do nothing
that can be told from chance; a sentence says which, and presumes none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from visleak.impact.numbers import UNKNOWN, probability, score, signed, signed_interval
from visleak.impact.results import Comparison, Effect, Gap, Impact, Twinned

#: So many models have a sentence each.
SENTENCES: Final = 3

#: A difference is told from chance below this probability.
ALPHA: Final = 0.05

#: The leak of the sentences: the first of these that leaves two groups to compare.
PREFERRED: Final = ("near or exact", "hard or soft", "hard", "exact", "similar or closer")

#: What images without a leak have, in words; ``{}`` are the references.
_WITHOUT: Final = {
    "near or exact": "that have no near-duplicate or exact copy in {}",
    "exact": "that have no exact copy in {}",
    "similar or closer": "that have no similar, near-duplicate or exact copy in {}",
    "hard or soft": "that have neither a hard nor a soft leak into {}",
    "hard": "that have no hard leak into {}",
}


def headlines(result: Impact) -> tuple[str, ...]:
    """Return a sentence a model, or of many models one of all; then one about the fair test set.

    Files of predictions that may be mixed up come first: nothing below would be true of the model.
    """
    leak = principal(result)
    if not leak:
        lines = [_nothing(result)]
    else:
        chosen = first_effects(result)
        told = [_told(result, effect, leak) for effect in chosen]
        lines = told if len(told) <= SENTENCES else [_summary(result, chosen, leak)]
        lines += _beside_twins(chosen, leak)
        lines += _changed(result, chosen, leak)
    warned = (f"warning: {doubt}" for doubt in result.doubts)
    return (*warned, *lines, *_gap_lines(result.gaps))


def principal(result: Impact) -> str:
    """Return the leak that sentences and figures are about; empty where nothing is compared."""
    useful = [
        each.leak
        for effect in first_effects(result)
        for each in effect.comparisons
        if each.leaked and each.others and not math.isnan(each.difference.value)
    ]
    return next((leak for leak in (*PREFERRED, *useful) if leak in useful), "")


def first_effects(result: Impact) -> tuple[Effect, ...]:
    """Return each model's effect in the first metric that it has."""
    found: dict[str, Effect] = {}
    for effect in result.effects:
        found.setdefault(effect.model, effect)
    return tuple(found.values())


def comparison(effect: Effect, leak: str) -> Comparison | None:
    """Return an effect's comparison of a leak."""
    return next((each for each in effect.comparisons if each.leak == leak), None)


def without(result: Impact, leak: str) -> str:
    """Return what the images without a leak have in common, in words."""
    words = _WITHOUT.get(leak, f"that do not leak ({leak}) into {{}}" if leak else "")
    return words.replace("{}", " or ".join(result.references) or "the training sets")


def _nothing(result: Impact) -> str:
    if not any(result.leaks.values()):
        return (
            f"the audit knows no image of {result.test_set} that leaks into"
            f" {' or '.join(result.references)}, so there is nothing to compare"
        )
    return (
        f"nothing can be compared: no leak of {result.test_set} leaves both images that leak and"
        " images that do not"
    )


def _told(result: Impact, effect: Effect, leak: str) -> str:
    each = comparison(effect, leak)
    answered, every = effect.images
    images = f"all {every:,} {result.test_set} images"
    if answered != every:
        images = f"the {answered:,} of {every:,} {result.test_set} images that it answers"
    whole = _number(effect, effect.original.score.value)
    start = f"{effect.model} scores {whole}{_in_metric(effect)} on {images}"
    if each is None or not each.leaked or not each.others:
        return f"{start}; none of its answers can be compared ({leak})"
    others = _number(effect, _others(effect, each))
    fair = f"{others} on the {each.others:,} {without(result, leak)}"
    return f"{start}, {fair}; {_verdict(effect, each)}"


def _others(effect: Effect, each: Comparison) -> float:
    """Return the score of all images that do not leak, also where their row was drawn."""
    row = effect.row(each.leak, "non-leaked")
    if row is not None and row.draws == 1:
        return row.score.value
    return effect.original.score.value - each.inflation.value


def _verdict(effect: Effect, each: Comparison) -> str:
    """Say whether leaked images score higher, lower, or no different from chance."""
    value = each.difference.value
    ends = signed_interval(each.difference, percent=effect.percent)
    interval = "no interval can be given" if ends == UNKNOWN else f"95 % CI {ends}"
    sure = f"{interval}, {_p(each)}{', less is better' if effect.lower else ''}"
    if not each.adjusted < ALPHA:
        start = "after Holm's correction no" if each.p < ALPHA else "no"
        by = f"{signed(value, percent=effect.percent)}{' points' if effect.percent else ''}"
        told = f"{start} difference of leaked images can be told from chance ({by}, {sure})"
    else:
        told = f"leaked images score {_moved(effect, value)} ({sure})"
    return told + _within(effect, each)


def _within(effect: Effect, each: Comparison) -> str:
    """Say where images of one class differ otherwise than those of all classes do.

    Leaked images of hard classes may score no higher than all others, and yet higher than others
    of their classes; within classes they may differ the other way, or not at all.
    """
    sure = each.adjusted < ALPHA
    if each.within_classes_adjusted >= ALPHA and sure:
        return ", but within classes no difference can be told from chance"
    matched = effect.row(each.leak, "class-matched")
    if not each.within_classes_adjusted < ALPHA or matched is None:
        return ""
    value = _others(effect, each) + each.difference.value - matched.score.value
    if sure and value * each.difference.value > 0:
        return ""
    return (
        f", but they score {_moved(effect, value)} than random images of their classes (corrected"
        f" {_told_p(each.within_classes_adjusted)})"
    )


def _beside_twins(effects: Sequence[Effect], leak: str) -> Iterator[str]:
    """Say whether leaked images differ from others that are as difficult."""
    known = [
        (effect, each, each.twinned)
        for effect in effects
        if (each := comparison(effect, leak)) is not None and each.twinned is not None
    ]
    if len(known) > SENTENCES:
        sure = [twins for _, _, twins in known if twins.adjusted < ALPHA]
        up = sum(twins.difference.value > 0 for twins in sure)
        yield (
            f"against images of their class that are as difficult, {up:,} of {len(known):,} models"
            f" score higher on leaked images, {len(sure) - up:,} lower, and of"
            f" {len(known) - len(sure):,} no difference can be told from chance"
        )
        return
    for effect, each, twins in known:
        value = twins.difference.value
        ends = signed_interval(twins.difference, percent=effect.percent)
        interval = "no interval can be given" if ends == UNKNOWN else f"95 % CI {ends}"
        start = (
            f"{effect.model}: against {twins.leaked * twins.twins:,} images of their class that are"
            f" as difficult, {twins.leaked:,} leaked images score"
        )
        if twins.adjusted < ALPHA:
            yield (
                f"{start} {_moved(effect, value)} ({interval}, {_p(twins)}), which difficulty, so"
                " measured, does not explain"
            )
            continue
        by = f"{signed(value, percent=effect.percent)}{' points' if effect.percent else ''}"
        may = "; difficulty may explain all of the difference" * (each.adjusted < ALPHA)
        yield f"{start} no differently than by chance ({by}, {interval}, {_p(twins)}){may}"


def _p(each: Comparison | Twinned) -> str:
    if math.isnan(each.adjusted):
        return "p unknown"
    told = _told_p(each.p)
    if probability(each.adjusted) == probability(each.p):
        return told
    return f"{told}, corrected {probability(each.adjusted)}"


def _told_p(p: float) -> str:
    text = probability(p)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def _summary(result: Impact, effects: Sequence[Effect], leak: str) -> str:
    """Say of many models how far they are inflated, and of how many it can be told from chance."""
    known = [
        (effect, each)
        for effect in effects
        if (each := comparison(effect, leak)) is not None and not math.isnan(each.difference.value)
    ]
    sure = [(effect, each) for effect, each in known if each.adjusted < ALPHA]
    up = sum(each.difference.value > 0 for _, each in sure)
    counts = (
        (up, "score", "higher"),
        (len(sure) - up, "score", "lower"),
        (len(known) - len(sure), "show", "no difference that can be told from chance"),
    )
    said = ", ".join(
        f"{count:,} {verb}{'s' * (count == 1)} {how}" for count, verb, how in counts if count
    )
    less = ", less is better" if any(effect.lower for effect, _ in known) else ""
    parts = [f"of {len(known):,} models on leaked images ({leak}) {said}{less}"]
    tested = [each for _, each in known if not math.isnan(each.within_classes_adjusted)]
    if any((each.adjusted < ALPHA) != (each.within_classes_adjusted < ALPHA) for each in tested):
        inside = sum(each.within_classes_adjusted < ALPHA for each in tested)
        differ = "differs" if inside == 1 else "differ"
        parts.append(f"within classes {inside:,} {differ} by more than chance")
    if len({(effect.metric, effect.percent) for effect, _ in known}) == 1:
        low = min(known, key=lambda pair: pair[1].inflation.value)
        high = max(known, key=lambda pair: pair[1].inflation.value)
        first = _moved(low[0], low[1].inflation.value)
        last = _moved(high[0], high[1].inflation.value)
        parts.append(
            f"all of {result.test_set} shows scores{_in_metric(low[0])} from {first}"
            f" ({low[0].model}) to {last} ({high[0].model}) than the images"
            f" {without(result, leak)}"
        )
    return "; ".join(parts)


def _moved(effect: Effect, value: float) -> str:
    return f"{_points(effect, abs(value))} {'lower' if value < 0 else 'higher'}"


def _changed(result: Impact, effects: Sequence[Effect], leak: str) -> Iterator[str]:
    """Say whether models change places."""
    metrics = {effect.metric for effect in effects}
    own = [flip for flip in result.flips if flip.leak == leak and flip.metric in metrics]
    turned = [flip for flip in own if flip.flipped]
    for flip in turned[:SENTENCES]:
        yield (
            f"{flip.second} is ahead of {flip.first} on the images {without(result, leak)}, behind"
            f" it on all (the order differs in {score(flip.chance, percent=True)} % of resamples)"
        )
    if len(turned) > SENTENCES:
        yield f"{len(turned) - SENTENCES:,} more pairs of models change places"


def _gap_lines(gaps: Sequence[Gap]) -> Iterator[str]:
    """Say what a fair test set, with new images for the leaked ones, does to errors."""
    first = {gap.model: gap for gap in reversed(gaps)}
    own = list(dict.fromkeys(first[each.model] for each in gaps))
    if len(own) > SENTENCES:
        mean = sum(gap.gap.value for gap in own) / len(own)
        least, most = (pick(gap.gap.value for gap in own) for pick in (min, max))
        yield (
            f"on the fair test set errors of {len(own):,} models change by"
            f" {signed(least, percent=True)} to {signed(most, percent=True)} points,"
            f" {signed(mean, percent=True)} on average"
        )
        return
    for gap in own:
        named = "" if gap.metric == "accuracy" else f" in {gap.metric}"
        before, after = (score(each.value, percent=True) for each in (gap.original, gap.fair))
        yield (
            f"{gap.model} errs{named} on {before} % of the test set and on {after} % of the fair"
            f" one (gap {score(gap.gap.value, percent=True)} points, 95 % CI"
            f" {signed_interval(gap.gap, percent=True)}, {_told_p(gap.p)})"
        )


def _number(effect: Effect, value: float) -> str:
    text = score(value, percent=effect.percent)
    return f"{text} %" if effect.percent else text


def _points(effect: Effect, value: float) -> str:
    text = score(value, percent=effect.percent)
    return f"{text} points" if effect.percent else text


def _in_metric(effect: Effect) -> str:
    return "" if effect.metric == "accuracy" else f" in {effect.metric}"
