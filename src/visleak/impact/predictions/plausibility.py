"""Whether a prediction file belongs to the images of its ids, or is mixed up.

Predictions and labels of the same images agree; those of neighbours, of random rows or under other
names agree less. Each check compares the file with such an alternative, and doubts it only where
the alternative fits significantly better. Files with neither predictions nor labels are compared
with the files of other models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.impact.benchmark import Scores
from visleak.impact.predictions.files import quoted
from visleak.impact.results import Gap
from visleak.records import Bool, Float64, Int64

FEWEST: Final = 30  # images below which nothing is doubted: too few to tell from a weak model
ENOUGH: Final = 200  # images from which predictions that agree with labels by chance are doubted

#: Standard errors by which an alternative must fit better, and agreement must exceed chance.
BETTER: Final = 5.0
CHANCE: Final = 3.0
PARTS: Final = 4  # parts into which a file is divided, in the order of its rows
FITTING: Final = 0.8  # share of a file's labels that must be the audited ones, by the same names
EXPLAINED: Final = 0.5  # share of the images of their classes that permuted names must explain
PER_CLASS: Final = 5  # images per class, and most classes, for names that are permuted
CLASSES: Final = 2000
RELATED: Final = 1000  # images needed to compare two models
ANSWERS: Final = 50  # images of each kind, right and wrong, that are needed

#: Standard errors up to which correct predictions of two models are uncorrelated. A weak and a
#: strong model on 1,000 images have three and more.
UNRELATED: Final = 1.5
ALPHA: Final = 0.01  # level below which a fair test set with fewer errors is doubted


@dataclass(frozen=True)
class Evidence:
    """The predicted classes of a file, by row that names an image of the test set."""

    guesses: Int64  # (m,): predicted class, -1 for one that is not a label, -2 for none
    labels: Int64  # (m,): the label to compare with, -1 for none
    names: tuple[str, ...]  # of the classes


@dataclass(frozen=True)
class Labels:
    """The labels of a file, against those of the audit."""

    # mine, theirs: (m,), -1 for none
    mine: Int64
    theirs: Int64
    shared: bool  # both are of one vocabulary; otherwise classes are matched by co-occurrence


def doubts_of(
    ids: pa.StringArray,
    every: pa.StringArray,
    unknown: int,
    evidence: Evidence | None,
    own: Labels | None,
) -> Iterator[str]:
    """Yield why a prediction file looks mixed up; nothing where it does not.

    ``ids``: of the rows that name an image of the test set, (m,). ``every``: ids of the test set,
    (n,). ``evidence``: what it predicts; ``None`` where it predicts no classes. ``own``: its
    labels; ``None`` where it or the audit has none.
    """
    found: list[str] = []
    if own is not None or evidence is not None:
        shifts = list(_shifts(ids))
        found += [] if own is None else _about_labels(own, shifts)
        found += [] if found or evidence is None else _about_guesses(evidence, shifts)
    yield from found or (_counted(ids, every) if unknown else ())


def _shifts(ids: pa.StringArray) -> Iterator[tuple[str, Int64]]:
    """Yield ways in which rows may be off by one, and the row of each row's neighbour, -1 for none.

    The neighbour of an id has its last number plus or minus 1, wherever its row is.
    """
    keys = [_name_parts(text) for text in ids.to_pylist()]
    place = {key: row for row, key in enumerate(keys) if key is not None}
    for step, way in ((1, "lowered"), (-1, "raised")):
        rows = [
            -1 if key is None else place.get((key[0], key[1] + step, key[2]), -1) for key in keys
        ]
        yield f"each id is {way} by one", np.array(rows, np.int64)
    order = np.arange(len(ids))
    for step, way in ((1, "up"), (-1, "down")):
        moved = order + step
        rows_of = np.where((moved >= 0) & (moved < len(ids)), moved, -1)
        yield f"rows are moved {way} by one row", rows_of


def _name_parts(text: str) -> tuple[str, int, str] | None:
    """Return an id as the text before its last number, the number, and the text after it.

    >>> _name_parts("a1/img_0042.png"), _name_parts("none")
    (('a1/img_', 42, '.png'), None)
    """
    found = re.fullmatch(r"(.*?)([0-9]{1,15})([^0-9]*)", text, re.DOTALL)
    return None if found is None else (found[1], int(found[2]), found[3])


def _about_guesses(evidence: Evidence, shifts: Sequence[tuple[str, Int64]]) -> Iterator[str]:
    guesses, labels = evidence.guesses, evidence.labels
    known = (labels >= 0) & (guesses > -2)
    if int(known.sum()) < FEWEST:
        return
    right = known & (guesses == labels)
    fit = f"{_percent(right[known])} of its predictions are the label"
    if renamed := _permuted(guesses[known], labels[known], evidence.names):
        yield f"class names look permuted: {fit}, but {renamed}"
        return
    moved = ((way, guesses[rows], known & (rows >= 0) & known[rows]) for way, rows in shifts)
    if better := _best_shift(labels, right, moved):
        yield f"ids look off by one: {fit}, but {better}"
        return
    yield from _shuffled(guesses, labels, known)


def _shuffled(guesses: Int64, labels: Int64, known: Bool) -> Iterator[str]:
    """Yield that predictions agree with labels by chance only: all of them, or those of parts."""
    rows = np.arange(len(labels))
    if not (at_chance := _at_chance(guesses, labels, [rows[known]])):
        parts = [part[known[part]] for part in np.array_split(rows, PARTS)]
        fit = [_agreement(guesses[part], labels[part])[0] for part in parts if len(part) > 1]
        # in parts of a weak model chance may be all there is
        if any(2 * BETTER < excess < np.inf for excess in fit):
            at_chance = _at_chance(guesses, labels, parts)
    if at_chance:
        near, expected = at_chance[0]
        places = " and ".join(f"{part[0]:,} to {part[-1]:,}" for part, _ in at_chance)
        yield (
            f"rows {'' if len(near) == known.sum() else f'{places} '}look shuffled, or of other"
            f" images: {_percent(guesses[near] == labels[near])} of its predictions are the label,"
            f" no more than rows in random order give ({100 * expected:.1f} %)"
        )


def _at_chance(guesses: Int64, labels: Int64, parts: Iterable[Int64]) -> list[tuple[Int64, float]]:
    """Return the parts that agree by chance only, and how often shuffled rows would."""
    tested = [
        (part, *_agreement(guesses[part], labels[part])) for part in parts if len(part) >= ENOUGH
    ]
    return [(part, expected) for part, excess, expected in tested if excess < CHANCE]


def _about_labels(own: Labels, shifts: Sequence[tuple[str, Int64]]) -> Iterator[str]:
    known = (own.mine >= 0) & (own.theirs >= 0)
    if int(known.sum()) < FEWEST:
        return
    mine, seen = _translated(own, own.mine, known)
    fits = mine == own.theirs
    fit = f"its column `label` fits the audited labels of {_percent(fits[seen])} of the images"
    moved = []
    for way, rows in shifts:
        translated, both = _translated(own, own.mine[rows], known & (rows >= 0) & known[rows])
        moved.append((way, translated, both & seen))
    if better := _best_shift(own.theirs, fits, moved):
        yield f"ids look off by one: {fit}, but of {better}"
        return
    excess, expected = _agreement(mine[seen], own.theirs[seen])
    if excess < CHANCE:
        yield (
            f"rows look shuffled, or of other images: {fit}, no more than rows in random order"
            f" give ({100 * expected:.1f} %)"
        )
    elif own.shared and float(fits[seen].mean()) < FITTING:
        yield f"rows look mixed up in part, or of other images: {fit} only"


def _best_shift(labels: Int64, right: Bool, moved: Iterable[tuple[str, Int64, Bool]]) -> str:
    """Return which neighbours fit far better than the rows themselves, or nothing.

    A row that is missing or twice moves those behind it only, so parts of the file count as well.
    """
    ways = list(moved)
    rows = np.arange(len(labels))
    for parts in ([rows], np.array_split(rows, PARTS)):
        found: list[tuple[float, str]] = []
        for part in parts:
            of = "" if len(part) == len(rows) else f" of rows {part[0]:,} to {part[-1]:,}"
            for way, classes, both in ways:
                near = part[both[part]]
                if len(near) < FEWEST:
                    continue
                hit = classes[near] == labels[near]
                better = _exceeds(hit, right[near])
                # where the rows fit worse than by chance, wrong neighbours fit better too
                if better > BETTER and _agreement(classes[near], labels[near])[0] > BETTER:
                    found.append((better, f"{_percent(hit)}{of} where {way}"))
        if found:
            return max(found)[1]
    return ""


def _translated(own: Labels, mine: Int64, known: Bool) -> tuple[Int64, Bool]:
    """Return labels of the file as audited classes, and the rows that may be counted.

    Where names differ, a class is the audited one that it co-occurs with most often in every
    other row; the rows between are held out to test whether that fits.
    """
    if own.shared or not known.any():
        return mine, known
    fitted, held_out = (known & (np.arange(len(known)) % 2 == part) for part in (0, 1))
    if not fitted.any():
        return mine, held_out
    counts = np.zeros((int(mine[known].max()) + 1, int(own.theirs[fitted].max()) + 1), np.int64)
    np.add.at(counts, (mine[fitted], own.theirs[fitted]), 1)
    matched = counts.argmax(axis=1)[np.where(known, mine, 0)]
    return np.asarray(np.where(known, matched, -1)), held_out


def _exceeds(moved: Bool, right: Bool) -> float:
    """Return by how many standard errors an alternative is right more often (McNemar)."""
    gained, lost = int((moved & ~right).sum()), int((right & ~moved).sum())
    return (gained - lost) / float(np.sqrt(gained + lost)) if gained + lost else 0.0


def _agreement(guesses: Int64, labels: Int64) -> tuple[float, float]:
    """Return by how many standard errors agreement exceeds that of shuffled rows, and the latter.

    By mean and variance under all orders of the rows; infinite where every order agrees equally.
    """
    size = int(max(guesses.max(), labels.max())) + 1
    n = len(labels)
    mine = np.bincount(guesses[guesses >= 0], minlength=size).astype(np.float64)
    theirs = np.bincount(labels, minlength=size).astype(np.float64)
    product = float((mine * theirs).sum())
    spread = product**2 - n * float((mine * theirs * (mine + theirs)).sum()) + n**2 * product
    variance = spread / (n**2 * (n - 1))
    if variance < 1e-9:
        return float("inf"), product / n**2
    count = int((guesses == labels).sum())
    return (count - product / n) / float(np.sqrt(variance)), product / n**2


def _permuted(guesses: Int64, labels: Int64, names: Sequence[str]) -> str:
    """Return how names would have to change so that predictions fit far better, or nothing."""
    from scipy.optimize import linear_sum_assignment

    if len(names) > CLASSES:
        return ""
    inside = guesses >= 0
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (guesses[inside], labels[inside]), 1)
    # the assignment keeps a name wherever another one fits no better
    _, best = linear_sum_assignment(-(counts + 1e-6 * np.eye(len(names))))
    moved = np.flatnonzero(best != np.arange(len(names)))
    concerned = int(counts[moved].sum())
    if not len(moved) or concerned < max(FEWEST, PER_CLASS * len(moved)):
        return ""
    now, then = int(counts[moved, moved].sum()), int(counts[moved, best[moved]].sum())
    better = (then - now) / float(np.sqrt(max(1, then + now)))
    if then < EXPLAINED * concerned or then < 2 * now or better < BETTER:
        return ""
    total = int(counts[np.arange(len(names)), best].sum())
    few = ", ".join(f"{quoted(names[k])} means {quoted(names[best[k]])}" for k in moved[:3])
    more = f" and {len(moved) - 3:,} more are renamed" if len(moved) > 3 else ""
    return f"{100 * total / len(labels):.1f} % if {few}{more}"


def _counted(ids: pa.StringArray, every: pa.StringArray) -> Iterator[str]:
    """Yield that ids are counted from another number, where one end is missing."""
    absent = pc.invert(pc.is_in(every, value_set=ids)).to_numpy(zero_copy_only=False)
    if len(every) < FEWEST or int(absent.sum()) != 1:
        return
    lost = _name_parts(every[int(absent.argmax())].as_py())
    keys = [key for text in every.to_pylist() if (key := _name_parts(text)) is not None]
    numbers = [key[1] for key in keys]
    whole = len(set(numbers)) == len(every) and {key[0] for key in keys} == {keys[0][0]}
    if lost is not None and whole and lost[1] in (min(numbers), max(numbers)):
        end = "first" if lost[1] == min(numbers) else "last"
        yield (
            f"ids may be off by one: the {end} image alone is missing, as where one side counts"
            " from 0 and the other from 1"
        )


def between(
    models: Sequence[Scores], files: Mapping[str, str], ids: pa.StringArray
) -> Iterator[str]:
    """Yield doubts from comparing files of several models.

    Images are hard or easy for all models, so correct predictions are correlated. Where those of
    one model are uncorrelated with all others, its rows are of other images.
    """
    yield from _same_predictions(models)
    yield from _other_units(models)
    yield from _swapped_names([scores.model for scores in models], files)
    related: dict[str, list[bool]] = {}
    apart: list[tuple[Scores, Scores]] = []
    for one, other in combinations(models, 2):
        if (excess := _related(one, other)) is not None:
            for scores in (one, other):
                related.setdefault(scores.model, []).append(excess > UNRELATED)
            if excess <= UNRELATED:
                apart.append((one, other))
    lonely = [model for model, found in related.items() if not any(found)]
    if not lonely or len(lonely) == len(related) > 2:
        return
    yield _moved_apart(apart, ids) or (
        f"rows of {' or '.join(lonely)} look shuffled, or of other images: correct predictions"
        " of the models are no more correlated than in random order, although images are hard or"
        " easy for all"
    )


def _moved_apart(apart: Sequence[tuple[Scores, Scores]], ids: pa.StringArray) -> str:
    """Return models whose correct predictions are correlated if one is moved by a row, if any."""
    for way, rows in _shifts(ids) if apart else ():
        for one, other in apart:
            excess = _related(one, other, rows)
            if excess is not None and excess > BETTER:
                return (
                    f"ids of {one.model} or {other.model} look off by one: their correct"
                    f" predictions are only correlated where, of {one.model}, {way}"
                )
    return ""


def _related(one: Scores, other: Scores, rows: Int64 | None = None) -> float | None:
    """Return by how many standard errors correct predictions of two models are correlated.

    ``rows``: image whose prediction of the first is used for each image; -1 for none.
    """
    first, second = (each.values.get("accuracy") for each in (one, other))
    if first is None or second is None:
        return None
    if rows is not None:
        first = np.where(rows >= 0, first[rows], np.nan)
    both = ~np.isnan(first) & ~np.isnan(second)
    first, second = first[both], second[both]
    if len(first) < RELATED:
        return None
    for values in (first, second):
        if min(int((values == 1).sum()), int((values == 0).sum())) < ANSWERS:
            return None
    return float(np.corrcoef(first, second)[0, 1] * np.sqrt(len(first)))


def _same_predictions(models: Sequence[Scores]) -> Iterator[str]:
    for one, other in combinations(models, 2):
        shared = one.values.keys() & other.values.keys()
        varied = any(_varies(one.values[name]) for name in shared)
        equal = all(
            np.array_equal(one.values[name], other.values[name], equal_nan=True) for name in shared
        )
        if shared and equal and varied and int(one.answered.sum()) >= FEWEST:
            yield f"{one.model} and {other.model} have the same predictions for all images"


def _other_units(models: Sequence[Scores]) -> Iterator[str]:
    """Yield metrics that are shares for one model, and for another one mostly above 1."""
    for one, other in permutations(models, 2):
        for metric in one.values.keys() & other.values.keys() - one.lower:
            middle = float(np.nanmedian(other.values[metric]))
            if one.in_percent(metric) and _varies(one.values[metric]) and middle > 1:
                yield (
                    f"{quoted(metric)} has different units: 0 to 1 for {one.model}, and for"
                    f" {other.model} a median of {middle:g}"
                )


def _varies(values: Float64) -> bool:
    known = values[~np.isnan(values)]
    return len(known) > 0 and bool((known != known[0]).any())


def _swapped_names(models: Sequence[str], files: Mapping[str, str]) -> Iterator[str]:
    """Yield models each of which has the file that is named after the other one."""
    for one, other in combinations(models, 2):
        names = [re.sub(r"[^a-z0-9]", "", each.lower()) for each in (one, other)]
        own = [re.sub(r"[^a-z0-9]", "", files.get(each, "").lower()) for each in (one, other)]
        crossed = all(names) and names[0] in own[1] and names[1] in own[0]
        apart = names[0] not in own[0] and names[1] not in own[1]
        if crossed and (apart or (names != own and names == own[::-1])):
            yield (
                f"files look swapped: {one} has {quoted(files[one])} and {other} has"
                f" {quoted(files[other])}"
            )


def doubtful_gaps(gaps: Sequence[Gap]) -> Iterator[str]:
    """Yield models with fewer errors on the fair test set, which has no leaks."""
    for gap in gaps:
        if gap.gap.value < 0 and gap.p < ALPHA:
            yield (
                f"{gap.model}: --predictions and --fair-predictions look swapped: its"
                f" error is {100 * gap.original.value:.2f} % on the test set and lower on the fair"
                f" one, {100 * gap.fair.value:.2f} %"
            )


def _percent(values: Bool) -> str:
    return f"{100 * float(values.mean()):.1f} %"
