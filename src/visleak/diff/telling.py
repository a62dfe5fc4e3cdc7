"""What changed between two audits, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from visleak.diff.difference import Difference
from visleak.diff.pairs import APPEARED, CHANGES, MEANINGS
from visleak.diff.sides import Side
from visleak.diff.totals import Total, Turnover
from visleak.records import DEGREES, GRADES
from visleak.stats import Rate, percent

#: Rates in words.
WORDS: Final = {
    "exact": "exact",
    "near_or_exact": "near or exact",
    "similar_or_closer": "similar or closer",
    "hard": "hard",
    "hard_or_soft": "hard or soft",
}

#: New leaks that are named.
NAMED: Final = 5

#: Longest value of a condition that is shown whole.
LONGEST: Final = 24


def names_of(before: Path, after: Path) -> tuple[str, str]:
    """Return what the two audits are called: the folders' names, their paths if these are equal.

    >>> names_of(Path("x/old"), Path("x/new")), names_of(Path("old/a"), Path("new/a"))
    (('old', 'new'), ('old/a', 'new/a'))
    """
    first, second = before.resolve().name, after.resolve().name
    return (first, second) if first != second else (str(before), str(after))


def headlines(found: Difference) -> Iterator[str]:
    """Yield the line a person can repeat, one for each query set that is in both."""
    old, new = names_of(found.before.side.folder, found.after.side.folder)
    if not found.totals:
        yield f"{new} and {old} have no test set in common"
    for total in found.totals:
        yield f"{_turned(total, old, new)}; {_rates(total)}"


def _turned(total: Total, old: str, new: str) -> str:
    images = f"leaking {total.after} image"
    unseen = f", {total.unseen:,} leak that only one of the two looked at" if total.unseen else ""
    if not (total.new or total.gone or total.regraded or total.unseen):
        count = next(iter(total.rates.values()))[1].count
        if not count:
            return f"{new} has no {images}, like {old}"
        return f"{new} has the same {count:,} {images}{'' if count == 1 else 's'} as {old}"
    return (
        f"{new} has {total.new:,} {images}{'' if total.new == 1 else 's'} that {old} had not,"
        f" {total.gone:,} {'is' if total.gone == 1 else 'are'} gone,"
        f" {total.regraded:,} changed {_scale(total)}{unseen}"
    )


def _scale(total: Total) -> str:
    return "degree" if next(iter(total.rates)) in ("hard", "hard_or_soft") else "grade"


def _rates(total: Total) -> str:
    name, (before, after) = next(iter(total.rates.items()))
    if (before.count, before.total) == (after.count, after.total):
        return f"{WORDS[name]} {percent(after.share)} %"
    return f"{WORDS[name]} {percent(before.share)} % -> {percent(after.share)} %"


def told(found: Difference) -> Iterator[str]:
    """Yield what changed, line by line: headlines, rates, images, pairs, and what else differs."""
    yield from headlines(found)
    yield ""
    names = names_of(found.before.side.folder, found.after.side.folder)
    for total in found.totals:
        yield from _total_lines(total)
    for each in found.sets:
        yield _images(each, names)
    yield from _pair_lines("pairs", found.counts(), names)
    yield from _worst(found)
    yield from _pair_lines("repeats", found.counts(within=True), names)
    for name, values in found.conditions.items():
        old, new = map(_value, values)
        yield _fact("differs", f"{name}: {old} -> {new}")


def _total_lines(total: Total) -> Iterator[str]:
    name = total.after if total.before == total.after else f"{total.before} -> {total.after}"
    for place, (key, (before, after)) in enumerate(total.rates.items()):
        if place and (before.count, before.total) == (after.count, after.total):
            continue
        yield _fact("rate", f"{name}, {WORDS[key]}: {_rate(before)} -> {_rate(after)}")
    yield _fact("", _test(total))


def _rate(rate: Rate) -> str:
    return f"{rate.count:,} of {rate.total:,} ({percent(rate.share)} %)"


def _test(total: Total) -> str:
    """Return how sure the change of the first rate is."""
    name = WORDS[next(iter(total.rates))]
    if total.paired:
        lost, won = total.flips
        return (
            f"{name}, the same images in both: {won:,} leak now alone, {lost:,} leaked before"
            f" alone (McNemar's exact test, p = {_p(total.p_value)})"
        )
    low, high = (100.0 * end for end in total.interval)
    if math.isnan(low):
        return f"{name}: no images to compare"
    return (
        f"{name}, other images: change between {low:+.2f} and {high:+.2f} points (95 %, Newcombe,"
        " as if the two had been drawn independently)"
    )


def _p(value: float) -> str:
    """Return a p-value with two digits that count.

    >>> _p(0.0312), _p(1.0), _p(1e-9)
    ('0.031', '1', '<0.0001')
    """
    return "<0.0001" if value < 1e-4 else f"{value:.2g}"


def _images(turnover: Turnover, names: tuple[str, str]) -> str:
    if turnover.after is None:
        words = f"{turnover.before}: not in {names[1]} ({turnover.removed:,} images)"
        return _fact("images", words)
    if turnover.before is None:
        words = f"{turnover.after}: not in {names[0]} ({turnover.added:,} images)"
        return _fact("images", words)
    pair = turnover.before, turnover.after
    name = pair[0] if pair[0] == pair[1] else " -> ".join(pair)
    counts = {
        "the same": turnover.same,
        "renamed": turnover.renamed,
        "with another content": turnover.changed,
        f"not looked at in {names[1]}" if turnover.unseen_after else "removed": turnover.removed,
        f"not looked at in {names[0]}" if turnover.unseen_before else "added": turnover.added,
    }
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    unknown = "" if turnover.known else " (by id: contents are not known)"
    return _fact("images", f"{name}: {said or 'none'}{unknown}")


def _pair_lines(
    what: str, counts: Mapping[str, Mapping[str, int]], names: tuple[str, str]
) -> Iterator[str]:
    for change, reasons in counts.items():
        if not reasons:
            continue
        other = names[0] if change == APPEARED else names[1]
        total = sum(reasons.values())
        said = [
            f"{count:,} {MEANINGS[reason].format(other=other)}" for reason, count in reasons.items()
        ]
        yield _fact(what, f"{total:,} {change}: {'; '.join(said)}")


def _worst(found: Difference) -> Iterator[str]:
    """Yield the strongest of the leaks that appeared."""
    new = found.after.side.listed
    rows = np.flatnonzero((found.changes.change == CHANGES.index(APPEARED)) & ~found.within)
    places = found.changes.after[rows]
    similarity = np.nan_to_num(new.similarity[places], nan=-1.0)
    order = np.lexsort((rows, -similarity, new.degree[places], new.grade[places]))
    for row in order[:NAMED]:
        yield _fact("new", pair_name(found.after.side, int(places[row])))
    if len(order) > NAMED:
        yield _fact("new", f"and {len(order) - NAMED:,} more; all of them with -o FILE.csv")


def pair_name(side: Side, place: int) -> str:
    """Return a listed pair in words."""
    pairs = side.listed
    ends = [
        side.images.slice(int(column[place]), 1).to_pylist()[0]
        for column in (pairs.query, pairs.reference)
    ]
    scale, code = (GRADES, pairs.grade[place])
    if code >= len(scale):
        scale, code = DEGREES, pairs.degree[place]
    strength = scale[code] if code < len(scale) else "no grade"
    who = " = ".join(f"{each['set']} {each['id']}" for each in ends)
    similarity = pairs.similarity[place]
    return f"{who}: {strength}" + ("" if np.isnan(similarity) else f", similarity {similarity:.3f}")


def _value(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}.."


def _fact(name: str, words: str) -> str:
    return f"{name:<12}{words}"
