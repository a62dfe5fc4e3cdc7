"""What changed between two audits, in words and as a table of pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from visleak.diff.difference import Difference, Total, Turnover
from visleak.diff.pairs import APPEARED, CHANGES, MEANINGS, Side, View, reason_word
from visleak.quantities import counted
from visleak.rates import Rate, percent
from visleak.records import DEGREES, GRADES, Int64
from visleak.reporting import Document
from visleak.reporting.markup import Grid
from visleak.storage import csv_cell, write_cells

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
    unseen = f", {total.unseen:,} leak that only one audit compared" if total.unseen else ""
    if not (total.new or total.gone or total.regraded or total.unseen):
        count = next(iter(total.rates.values()))[1].count
        if not count:
            return f"{new} has no {images}, like {old}"
        return f"{new} has the same {counted(count, images)} as {old}"
    scale = "degree" if next(iter(total.rates)) in ("hard", "hard_or_soft") else "grade"
    return (
        f"{new} has {counted(total.new, images)} that {old} had not,"
        f" {total.gone:,} {'is' if total.gone == 1 else 'are'} gone,"
        f" {total.regraded:,} changed {scale}{unseen}"
    )


def _rates(total: Total) -> str:
    name, (before, after) = next(iter(total.rates.items()))
    if (before.count, before.total) == (after.count, after.total):
        return f"{WORDS[name]} {percent(after.share)} %"
    return f"{WORDS[name]} {percent(before.share)} % -> {percent(after.share)} %"


def document(found: Difference) -> Document:
    """Return what changed: headlines, then rates, images, pairs, and what else differs."""
    first, *others = headlines(found)
    changes = Grid("Changes", ["what", "change"], [list(row) for row in facts(found)], texts=2)
    return Document("Changes between two audits", first, tuple(others), (changes,))


def facts(found: Difference) -> Iterator[tuple[str, str]]:
    """Yield what changed: a word, and the change in words."""
    names = names_of(found.before.side.folder, found.after.side.folder)
    for total in found.totals:
        yield from _total_lines(total)
    for each in found.sets:
        yield "images", _images(each, names)
    yield from _pair_lines("pairs", found.counts(), names)
    yield from _worst(found)
    yield from _pair_lines("repeats", found.counts(within=True), names)
    for name, values in found.conditions.items():
        old, new = map(_value, values)
        yield "differs", f"{name}: {old} -> {new}"


def _total_lines(total: Total) -> Iterator[tuple[str, str]]:
    name = total.after if total.before == total.after else f"{total.before} -> {total.after}"
    for place, (key, (before, after)) in enumerate(total.rates.items()):
        if place and (before.count, before.total) == (after.count, after.total):
            continue
        yield "rate", f"{name}, {WORDS[key]}: {_rate(before)} -> {_rate(after)}"
    yield "", _test(total)


def _rate(rate: Rate) -> str:
    return f"{rate.count:,} of {rate.total:,} ({percent(rate.share)} %)"


def _test(total: Total) -> str:
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
        return f"{turnover.before}: not in {names[1]} ({turnover.removed:,} images)"
    if turnover.before is None:
        return f"{turnover.after}: not in {names[0]} ({turnover.added:,} images)"
    pair = turnover.before, turnover.after
    name = pair[0] if pair[0] == pair[1] else " -> ".join(pair)
    counts = {
        "the same": turnover.same,
        "renamed": turnover.renamed,
        "with another content": turnover.changed,
        f"not compared in {names[1]}" if turnover.unseen_after else "removed": turnover.removed,
        f"not compared in {names[0]}" if turnover.unseen_before else "added": turnover.added,
    }
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    unknown = "" if turnover.known else " (by id: contents are not known)"
    return f"{name}: {said or 'none'}{unknown}"


def _pair_lines(
    what: str, counts: Mapping[str, Mapping[str, int]], names: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    for change, reasons in counts.items():
        other = names[0] if change == APPEARED else names[1]
        said = [f"{count:,} {MEANINGS[why].format(other=other)}" for why, count in reasons.items()]
        if said:
            yield what, f"{sum(reasons.values()):,} {change}: {'; '.join(said)}"


def _worst(found: Difference) -> Iterator[tuple[str, str]]:
    new = found.after.side.listed
    rows = np.flatnonzero((found.changes.change == CHANGES.index(APPEARED)) & ~found.within)
    places = found.changes.after[rows]
    similarity = np.nan_to_num(new.similarity[places], nan=-1.0)
    order = np.lexsort((rows, -similarity, new.degree[places], new.grade[places]))
    for row in order[:NAMED]:
        yield "new", pair_name(found.after.side, int(places[row]))
    if len(order) > NAMED:
        yield "new", f"and {len(order) - NAMED:,} more; all of them with -o FILE.csv"


def pair_name(side: Side, place: int) -> str:
    """Return a listed pair in words."""
    pairs = side.listed
    ends = (side.images.slice(int(column[place]), 1) for column in (pairs.query, pairs.reference))
    who = " = ".join(f"{end['set'][0]} {end['id'][0]}" for end in ends)
    strength = _name(GRADES, pairs.grade[place]) or _name(DEGREES, pairs.degree[place])
    similarity = pairs.similarity[place]
    shown = "" if np.isnan(similarity) else f", similarity {similarity:.3f}"
    return f"{who}: {strength or 'no grade'}{shown}"


def _value(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}.."


COLUMNS: Final = (
    *("change", "reason", "query_set", "query", "reference_set", "reference", "within"),
    *("before_grade", "after_grade", "before_degree", "after_degree"),
    *("before_similarity", "after_similarity", "query_digest", "reference_digest"),
)

#: Rows turned into text at a time.
CHUNK: Final = 50_000


def write_changes(found: Difference, path: Path) -> None:
    """Write a row for each changed pair: leaks before repeats, new ones first, by id.

    Sets, ids and digests are those of the later audit, where it has the pair.
    """
    order = _order(found)
    parts = (rows(found, order[start : start + CHUNK]) for start in range(0, len(order), CHUNK))
    write_cells(path, COLUMNS, itertools.chain.from_iterable(parts))


def _order(found: Difference) -> Int64:
    """Return the changes in the order of the file; images are in the order of their ids."""
    query, reference = (np.zeros(len(found.changes), np.int64) for _ in range(2))
    for view, places in ((found.before, found.changes.before), (found.after, found.changes.after)):
        listed = np.flatnonzero(places >= 0)
        pairs = view.side.listed.take(places[listed])
        query[listed], reference[listed] = pairs.query, pairs.reference
    return np.lexsort((reference, query, found.changes.change, found.within))


def rows(found: Difference, which: Int64) -> Iterator[tuple[str, ...]]:
    """Yield some changes as the cells of :data:`COLUMNS`."""
    changes = found.changes
    before = _shown(found.before, changes.before[which])
    after = _shown(found.after, changes.after[which])
    within = found.within[which]
    for row, inside, old, new in zip(which.tolist(), within.tolist(), before, after, strict=True):
        sets, ids, digests = (new or old or _NOWHERE)[0]
        measured = zip((old or _NOWHERE)[1], (new or _NOWHERE)[1], strict=True)
        cells = (
            CHANGES[changes.change[row]],
            reason_word(changes.change[row], changes.reason[row]),
            *(sets[0], ids[0], sets[1], ids[1]),
            "yes" if inside else "",
            *itertools.chain.from_iterable(measured),
            *digests,
        )
        yield tuple(map(csv_cell, cells))


#: Sets, ids and digests of the two images of a pair; its grade, degree and similarity.
_Shown: TypeAlias = tuple[tuple[tuple[str, str], ...], tuple[str, str, str]]
_NOWHERE: Final[_Shown] = ((("", ""),) * 3, ("", "", ""))


def _shown(view: View, places: Int64) -> list[_Shown | None]:
    """Return some listed pairs as texts, ``None`` for -1."""
    listed = np.flatnonzero(places >= 0)
    pairs = view.side.listed.take(places[listed])
    images = view.side.images.select(["set", "id", "digest"])
    queries, references = (
        images.take(pa.array(column)).to_pylist() for column in (pairs.query, pairs.reference)
    )
    result: list[_Shown | None] = [None] * len(places)
    for at, (place, query, reference) in enumerate(
        zip(listed.tolist(), queries, references, strict=True)
    ):
        who = tuple((query[key] or "", reference[key] or "") for key in ("set", "id", "digest"))
        similarity = pairs.similarity[at]
        measured = (
            _name(GRADES, pairs.grade[at]),
            _name(DEGREES, pairs.degree[at]),
            "" if np.isnan(similarity) else str(similarity),
        )
        result[place] = who, measured
    return result


def _name(scale: Sequence[str], code: int) -> str:
    return scale[code] if code < len(scale) else ""
