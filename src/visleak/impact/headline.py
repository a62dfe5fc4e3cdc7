"""What leaks do to scores, in sentences that can be quoted.

A leak may raise a score, lower it (the labels of copies may contradict each other), or make no
significant difference; sentences state the outcome and presume none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from visleak.impact.results import Comparison, Effect, Gap, Impact, MatchedComparison, Row
from visleak.stats.bootstrap import Estimate

SENTENCES: Final = 3  # models with a sentence each; of more there is one sentence
ALPHA: Final = 0.05  # a difference is significant below this probability

#: What images without a leak have in common; ``{}`` are the references.
_WITHOUT: Final = {
    "near or exact": "without a near-duplicate or exact copy in {}",
    "exact": "without an exact copy in {}",
    "similar or closer": "without a similar, near-duplicate or exact copy in {}",
    "hard or soft": "with neither a hard nor a soft leak into {}",
    "hard": "without a hard leak into {}",
}

_NOT_SIGNIFICANT: Final = "not statistically significant"  # of what is not significant
_DIFFICULTY: Final = "difficulty may explain all of the difference"


def headlines(result: Impact) -> tuple[str, ...]:
    """Return a sentence per model, or one about many models; then one about the fair test set.

    Prediction files that may be mixed up come first: nothing below would be true of the model.
    """
    leak, effects, test_set = result.principal, result.first_effects, result.test_set
    if leak:
        several = len(effects) > SENTENCES
        lines = [_summary(result, leak)] if several else [_one(result, e, leak) for e in effects]
        lines += [*_matched(effects, leak), *_changed_order(result, leak)]
    elif any(result.leaks.values()):
        lines = [
            f"nothing can be compared: no leak of {test_set} leaves both images that leak and"
            " images that do not"
        ]
    else:
        references = " or ".join(result.references)
        lines = [f"no image of {test_set} leaks into {references}, so there is nothing to compare"]
    warnings = (f"warning: {doubt}" for doubt in result.doubts)
    return (*warnings, *lines, *_gap_lines(result.gaps))


def without(result: Impact, leak: str) -> str:
    """Return what the images without a leak have in common, in words."""
    words = _WITHOUT.get(leak, f"that do not leak ({leak}) into {{}}")
    return words.replace("{}", " or ".join(result.references) or "the training sets")


def _one(result: Impact, effect: Effect, leak: str) -> str:
    answered, total = effect.images
    images = f"all {total:,} {result.test_set} images"
    if answered != total:
        images = f"the {answered:,} of {total:,} {result.test_set} images with a prediction"
    whole = _number(effect, effect.original.score.value)
    start = f"on {images} {effect.model} scores {whole}{_in_metric(effect)}"
    each = effect.comparison(leak)
    if each is None or not each.leaked or not each.others:
        return f"{start}; none of its predictions can be compared ({leak})"
    others = _number(effect, _others(effect, each))
    fair = f"on the {each.others:,} {without(result, leak)} {others}"
    return f"{start}, {fair}; {_verdict(effect, each)}"


def _others(effect: Effect, each: Comparison) -> float:
    """Return the score of all images that do not leak, also where their row was drawn."""
    row = effect.row(each.leak, "non-leaked")
    if row is not None and row.draws == 1:
        return row.score.value
    return effect.original.score.value - each.inflation.value


def _verdict(effect: Effect, each: Comparison) -> str:
    """State whether leaked images score higher, lower, or not significantly different."""
    less = ", lower is better" if effect.lower else ""
    within = _within(effect, each)
    if each.adjusted < ALPHA:
        certainty = f"{_interval(effect, each.difference)}, {_p(each)}{less}"
        moved = _moved(effect, each.difference.value)
        return f"leaked images score {moved} ({certainty}){within}"
    start = "after Holm's correction " if each.p < ALPHA else ""
    found = f"{_difference(effect, each)}{less}"
    return f"{start}the difference on leaked images is {_NOT_SIGNIFICANT} ({found}){within}"


def _within(effect: Effect, each: Comparison) -> str:
    """State where differences within classes contradict those over all classes.

    Leaked images of hard classes may score no higher than all others, and yet higher than others
    of their classes; within classes they may differ the other way, or not at all.
    """
    sure = each.adjusted < ALPHA
    if each.within_classes_adjusted >= ALPHA and sure:
        return f", but within classes the difference is {_NOT_SIGNIFICANT}"
    matched = effect.row(each.leak, "class-matched")
    if not each.within_classes_adjusted < ALPHA or matched is None:
        return ""
    value = _others(effect, each) + each.difference.value - matched.score.value
    if sure and value * each.difference.value > 0:
        return ""
    return (
        f", but they score {_moved(effect, value)} than random images of their classes (corrected"
        f" {_p_value(each.within_classes_adjusted)})"
    )


def _matched(effects: Sequence[Effect], leak: str) -> Iterator[str]:
    """State whether leaked images differ from others of the same difficulty."""
    known = [
        (effect, each, each.twinned)
        for effect in effects
        if (each := effect.comparison(leak)) is not None and each.twinned is not None
    ]
    if len(known) > SENTENCES:
        sure = [matched for _, _, matched in known if matched.adjusted < ALPHA]
        up = sum(matched.difference.value > 0 for matched in sure)
        yield (
            f"against images of the same class and difficulty, {up:,} of {len(known):,} models"
            f" score higher on leaked images, {len(sure) - up:,} lower, and for"
            f" {len(known) - len(sure):,} the difference is {_NOT_SIGNIFICANT}"
        )
        return
    for effect, each, matched in known:
        against = (
            f"against {matched.leaked * matched.twins:,} images of the same class and difficulty,"
            f" {matched.leaked:,} leaked images score"
        )
        start = f"for {effect.model}, {against}"
        if matched.adjusted < ALPHA:
            certainty = f"{_interval(effect, matched.difference)}, {_p(matched)}"
            yield (
                f"{start} {_moved(effect, matched.difference.value)} ({certainty}), which"
                " difficulty, as measured, does not explain"
            )
        else:
            # the least probability that so few images can have
            few = 2 * (matched.twins + 1.0) ** -matched.leaked >= ALPHA
            may = "so few cannot tell easier from memorized" if few else _DIFFICULTY
            more = f"; {may}" if each.adjusted < ALPHA else ""
            yield f"{start} not significantly differently ({_difference(effect, matched)}){more}"


def _summary(result: Impact, leak: str) -> str:
    """Summarize the inflation of many models, and for how many it is significant."""
    known = [
        (effect, each)
        for effect in result.first_effects
        if (each := effect.comparison(leak)) is not None and not math.isnan(each.difference.value)
    ]
    sure = [each for _, each in known if each.adjusted < ALPHA]
    up = sum(each.difference.value > 0 for each in sure)
    counts = (
        (up, "significantly higher"),
        (len(sure) - up, "significantly lower"),
        (len(known) - len(sure), "without a significant difference"),
    )
    found = ", ".join(f"{count:,} {how}" for count, how in counts if count)
    less = ", lower is better" if any(effect.lower for effect, _ in known) else ""
    parts = [f"of {len(known):,} models on leaked images ({leak}) score {found}{less}"]
    tested = [each for _, each in known if not math.isnan(each.within_classes_adjusted)]
    if any((each.adjusted < ALPHA) != (each.within_classes_adjusted < ALPHA) for each in tested):
        inside = sum(each.within_classes_adjusted < ALPHA for each in tested)
        parts.append(f"within classes the difference is significant for {inside:,}")
    if len({(effect.metric, effect.percent) for effect, _ in known}) == 1:
        ends = (pick(known, key=lambda pair: pair[1].inflation.value) for pick in (min, max))
        low, high = (f"{_moved(e, each.inflation.value)} ({e.model})" for e, each in ends)
        parts.append(
            f"all of {result.test_set} shows scores{_in_metric(known[0][0])} from {low} to {high}"
            f" than the images {without(result, leak)}"
        )
    return "; ".join(parts)


def _changed_order(result: Impact, leak: str) -> Iterator[str]:
    metrics = {effect.metric for effect in result.first_effects}
    own = (each for each in result.flips if each.leak == leak and each.metric in metrics)
    flipped = [flip for flip in own if flip.flipped]
    for flip in flipped[:SENTENCES]:
        yield (
            f"{flip.second} is ahead of {flip.first} on the images {without(result, leak)}, behind"
            f" it on all (the order differs in {score(flip.chance, percent=True)} % of resamples)"
        )
    if len(flipped) > SENTENCES:
        yield f"{len(flipped) - SENTENCES:,} more pairs of models change places"


def _gap_lines(gaps: Sequence[Gap]) -> Iterator[str]:
    """State how errors change on a fair test set, which has new images for the leaked ones."""
    # by model, in the first metric that it has
    own = list({gap.model: gap for gap in reversed(gaps)}.values())[::-1]
    if len(own) > SENTENCES:
        values = [gap.gap.value for gap in own]
        ends = (min(values), max(values), sum(values) / len(values))
        low, high, mean = (signed(value, percent=True) for value in ends)
        yield (
            f"on the fair test set errors of {len(own):,} models change by {low} to {high} points,"
            f" {mean} on average"
        )
        return
    for gap in own:
        metric = "" if gap.metric == "accuracy" else f" in {gap.metric}"
        before, after = (score(each.value, percent=True) for each in (gap.original, gap.fair))
        yield (
            f"the error of {gap.model}{metric} is {before} % on the test set and {after} % on the"
            f" fair one (gap {score(gap.gap.value, percent=True)} points, 95 % CI"
            f" {interval(gap.gap, percent=True)}, {_p_value(gap.p)})"
        )


def _difference(effect: Effect, each: Comparison | MatchedComparison) -> str:
    value = signed(each.difference.value, percent=effect.percent) or "unknown"
    unit = " points" if effect.percent else ""
    return f"{value}{unit}, {_interval(effect, each.difference)}, {_p(each)}"


def _interval(effect: Effect, estimate: Estimate) -> str:
    ends = interval(estimate, percent=effect.percent)
    return "no interval can be given" if ends == UNKNOWN else f"95 % CI {ends}"


def _p(each: Comparison | MatchedComparison) -> str:
    if math.isnan(each.adjusted):
        return "p unknown"
    plain, corrected = probability(each.p), probability(each.adjusted)
    return _p_value(each.p) + (f", corrected {corrected}" if corrected != plain else "")


def _p_value(p: float) -> str:
    text = probability(p)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def _moved(effect: Effect, value: float) -> str:
    unit = " points" if effect.percent else ""
    way = "lower" if value < 0 else "higher"
    return f"{score(abs(value), percent=effect.percent)}{unit} {way}"


def _number(effect: Effect, value: float) -> str:
    return score(value, percent=effect.percent) + (" %" if effect.percent else "")


def _in_metric(effect: Effect) -> str:
    return "" if effect.metric == "accuracy" else f" in {effect.metric}"


# Scores, gains, intervals and probabilities as people read them: shares are percentages with two
# decimals, other scores have four significant digits; what is not known is empty.

UNKNOWN: Final = ""


def score(value: float, *, percent: bool) -> str:
    """Return a score or a deviation as text.

    >>> score(0.9173, percent=True), score(0.012345, percent=False), score(math.nan, percent=True)
    ('91.73', '0.01235', '')
    """
    if math.isnan(value):
        return UNKNOWN
    return f"{_rounded(100.0 * value, 2):.2f}" if percent else _significant(value)


def signed(value: float, *, percent: bool) -> str:
    """Return a difference as text, with its sign.

    >>> signed(0.0597, percent=True), signed(-0.0003, percent=True), signed(1e-9, percent=True)
    ('+5.97', '-0.03', '0.00')
    """
    text = score(value, percent=percent)
    return text if text in (UNKNOWN, "0", "0.00") or text.startswith("-") else f"+{text}"


def interval(estimate: Estimate, *, percent: bool, sign: bool = True) -> str:
    """Return the ends of an interval as text.

    >>> interval(Estimate(0.05, -0.004, 0.1), percent=True)
    '-0.40 to +10.00'
    """
    write = signed if sign else score
    low, high = (write(end, percent=percent) for end in (estimate.low, estimate.high))
    return UNKNOWN if UNKNOWN in (low, high) else f"{low} to {high}"


def estimated(estimate: Estimate, *, percent: bool, sign: bool = False, ends: bool = True) -> str:
    """Return a number with its interval, where one is known.

    >>> estimated(Estimate(0.5, 0.4, 0.6), percent=True), estimated(Estimate(0.5), percent=True)
    ('50.00 (40.00 to 60.00)', '50.00')
    """
    value = (signed if sign else score)(estimate.value, percent=percent)
    between = interval(estimate, percent=percent, sign=sign) if ends else UNKNOWN
    return f"{value} ({between})" if between else value


def deviating(row: Row, *, percent: bool) -> str:
    """Return the mean of a drawn row and the standard deviation of its draws, as in table 4.

    >>> deviating(Row("hard", "leaked", 200, Estimate(0.4555), Estimate(0.1), 0.0119, 10),
    ...     percent=True)
    '45.55 ± 1.19'
    """
    mean, spread = (score(each, percent=percent) for each in (row.score.value, row.deviation))
    return mean if UNKNOWN in (mean, spread) else f"{mean} ± {spread}"


def probability(p: float) -> str:
    """Return a probability with three decimals.

    >>> probability(0.0004), probability(0.0125), probability(1.0), probability(math.nan)
    ('<0.001', '0.013', '1.000', '')
    """
    if math.isnan(p):
        return UNKNOWN
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _significant(value: float) -> str:
    """Return four significant digits; from a thousand on, all digits before the point.

    >>> [_significant(value) for value in (0.0, 1.5, -0.00004, 12345.6, 999.96)]
    ['0', '1.500', '-4.000e-05', '12,346', '1,000']
    """
    if value == 0.0:
        return "0"
    power = math.floor(math.log10(abs(float(f"{value:.3e}"))))
    if power < -4:
        return f"{value:.3e}"
    return f"{_rounded(value, max(0, 3 - power)):,.{max(0, 3 - power)}f}"


def _rounded(value: float, decimals: int) -> float:
    """Round, without a minus sign before zero."""
    return round(value, decimals) + 0.0
