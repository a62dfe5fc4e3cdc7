"""What changed between two audits, in words and as a table of pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.diff.difference import Difference, Total, Turnover
from visleak.diff.pairs import APPEARED, CHANGES, MEANINGS, Side, View, reason_word
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


def document(found: Difference) -> Document:
    """Return what changed: headlines, then rates, images, pairs, and what else differs."""
    first, *others = headlines(found)
    return Document(
        "Changes between two audits",
        first,
        tuple(others),
        (Grid("Changes", ["what", "change"], [list(row) for row in facts(found)], texts=2),),
    )


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
        if not reasons:
            continue
        other = names[0] if change == APPEARED else names[1]
        total = sum(reasons.values())
        said = [
            f"{count:,} {MEANINGS[reason].format(other=other)}" for reason, count in reasons.items()
        ]
        yield what, f"{total:,} {change}: {'; '.join(said)}"


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
    own = [np.zeros(len(found.changes), np.int64) for _ in range(2)]
    for view, places in ((found.before, found.changes.before), (found.after, found.changes.after)):
        listed = np.flatnonzero(places >= 0)
        pairs = view.side.listed
        own[0][listed] = pairs.query[places[listed]]
        own[1][listed] = pairs.reference[places[listed]]
    return np.lexsort((own[1], own[0], found.changes.change, found.within))


def rows(found: Difference, which: Int64) -> Iterator[tuple[str, ...]]:
    """Yield some changes as the cells of :data:`COLUMNS`."""
    changes = found.changes
    before, after = changes.before[which], changes.after[which]
    who = [_who(found.after, after), _who(found.before, before)]
    measured = [_measured(found.before, before), _measured(found.after, after)]
    within = found.within[which]
    for place, row in enumerate(which.tolist()):
        sets, ids, digests = (who[0] if after[place] >= 0 else who[1])[place]
        old, new = measured[0][place], measured[1][place]
        cells = (
            CHANGES[changes.change[row]],
            reason_word(changes.change[row], changes.reason[row]),
            *(sets[0], ids[0], sets[1], ids[1]),
            "yes" if within[place] else "",
            *(cell for pair in zip(old, new, strict=True) for cell in pair),
            *digests,
        )
        yield tuple(csv_cell(cell) for cell in cells)


def _who(view: View, places: Int64) -> Sequence[tuple[tuple[str, str], ...]]:
    """Return sets, ids and digests of the two images of some listed pairs, ``()`` for -1."""
    listed = np.flatnonzero(places >= 0)
    pairs = view.side.listed
    ends = []
    for column in (pairs.query, pairs.reference):
        images = view.side.images.select(["set", "id", "digest"])
        ends.append(images.take(pa.array(column[places[listed]])).to_pylist())
    result: list[tuple[tuple[str, str], ...]] = [()] * len(places)
    for place, query, reference in zip(listed.tolist(), *ends, strict=True):
        result[place] = tuple(
            (query[key] or "", reference[key] or "") for key in ("set", "id", "digest")
        )
    return result


def _measured(view: View, places: Int64) -> Sequence[tuple[str, str, str]]:
    pairs = view.side.listed
    result = []
    for place in places.tolist():
        if place < 0:
            result.append(("", "", ""))
            continue
        similarity = pairs.similarity[place]
        result.append(
            (
                _name(GRADES, pairs.grade[place]),
                _name(DEGREES, pairs.degree[place]),
                "" if np.isnan(similarity) else str(similarity),
            )
        )
    return result


def _name(scale: Sequence[str], code: int) -> str:
    return scale[code] if code < len(scale) else ""
