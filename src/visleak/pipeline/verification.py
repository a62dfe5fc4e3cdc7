"""``verify(pairs, pictures) -> Evidence``: a cheap screen for all, a full check for survivors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.images import decode
from visleak.pipeline.pictures import Drawer, Shelf, fill
from visleak.pipeline.workplace import Handle, Workplace, shared
from visleak.records import (
    Bool,
    Bytes8,
    Evidence,
    Fingerprints,
    Float32,
    ImageSet,
    Int64,
    Pairs,
    Unreadable,
)
from visleak.verify import check, screen
from visleak.verify.exact import exactly_alike
from visleak.verify.measures import CHECKS

#: A pair is checked in full where its corrected similarity plus SCREEN_WEIGHT times its screen
#: score reaches GATE: on judged CIFAR-10 pairs that keeps 99.3 % of the near-duplicates and
#: leaves out seven eighths of the candidates.
SCREEN_WEIGHT: Final = 0.35
GATE: Final = 0.12

#: Corrected similarity from which the relation of tiny pictures is searched for at length.
HOPEFUL: Final = 0.17

#: Pairs a task.
SCREEN_CHUNK: Final = 1024
CHECK_CHUNK: Final = 128

#: Columns of stored evidence: the screen, the checks, the relation.
COLUMNS: Final = ("screen", "across", "down", *CHECKS)
_RECORD: Final = len(COLUMNS) + 9


@dataclass(frozen=True, slots=True)
class Material:
    """A set with its fingerprints."""

    images: ImageSet
    prints: Fingerprints


@dataclass(frozen=True, slots=True)
class _Rows:
    """Pairs of one comparison that still need work, as rows of the two fingerprints."""

    pairs: Pairs
    index: Int64

    @property
    def query(self) -> Int64:
        return self.pairs.query[self.index]

    @property
    def reference(self) -> Int64:
        return self.pairs.reference[self.index]


def verify(
    comparisons: Sequence[Pairs], material: Mapping[str, Material], place: Workplace
) -> list[Evidence]:
    """Return the evidence on the pairs of all comparisons; pictures are decoded once a set.

    Pairs with equal bytes need no look: their evidence stays NaN.

    Args:
        comparisons: candidate pairs, one record a pair of sets.
        material: the sets and fingerprints by name.
        place: where to work; known evidence comes from its cache and new evidence goes there.
    """
    tables = [_known(pairs, material, place) for pairs in comparisons]
    todo = [
        _Rows(pairs, np.flatnonzero(np.isnan(table[:, 0]) & ~equal_bytes(pairs, material)))
        for pairs, table in zip(comparisons, tables, strict=True)
    ]
    if any(len(rows.index) for rows in todo):
        _screen(todo, tables, material, place)
        survivors = [
            _Rows(rows.pairs, rows.index[_survives(rows, table, material)])
            for rows, table in zip(todo, tables, strict=True)
        ]
        _check(survivors, tables, material, place)
        _confirm(survivors, tables, material, place)
        for rows, table in zip(todo, tables, strict=True):
            _remember(rows, table, material, place)
    return [_evidence(table) for table in tables]


def equal_bytes(pairs: Pairs, material: Mapping[str, Material]) -> Bool:
    """Return which pairs are two copies of the same bytes."""
    left = material[pairs.query_set].prints.digests[pairs.query]
    right = material[pairs.reference_set].prints.digests[pairs.reference]
    return np.asarray((left == right).all(axis=1))


def _evidence(table: Float32) -> Evidence:
    columns = {name: table[:, place] for place, name in enumerate(COLUMNS)}
    return Evidence(checks=columns, matrix=table[:, len(COLUMNS) :])


# -- known evidence ------------------------------------------------------------------------------


def _keys(pairs: Pairs, index: Int64, material: Mapping[str, Material]) -> list[bytes]:
    """Return the cache keys of pairs: two content digests, the view, how the check is made."""
    left = material[pairs.query_set].prints.digests[pairs.query[index]]
    right = material[pairs.reference_set].prints.digests[pairs.reference[index]]
    way = pairs.view[index] + 16 * _tried(pairs, index) + 32 * _hopeful(pairs, index)
    view = way.astype(np.uint8)[:, None]
    joined = np.ascontiguousarray(np.concatenate([left, right, view], axis=1)).tobytes()
    return [joined[start : start + 33] for start in range(0, len(joined), 33)]


def _tried(pairs: Pairs, index: Int64) -> Bool:
    """Return for which pairs it is worth trying to align by local features.

    Where the local channel compared the pictures, only pairs that it found share any.
    """
    if pairs.votes is None:
        return np.ones(len(index), np.bool_)
    return np.asarray(pairs.votes[index] > 0)


def _hopeful(pairs: Pairs, index: Int64) -> Bool:
    """Return for which pairs the fingerprints alone promise a relation."""
    return np.asarray(pairs.similarity[index] - pairs.background[index] >= HOPEFUL)


def _known(pairs: Pairs, material: Mapping[str, Material], place: Workplace) -> Float32:
    """Return a table of evidence, a row a pair, NaN where nothing is known yet."""
    table = np.full((len(pairs), _RECORD), np.nan, np.float32)
    if place.cache is None or not len(pairs):
        return table
    keys = _keys(pairs, np.arange(len(pairs)), material)
    found = place.cache.get(_maker(), keys)
    rows = [row for row, key in enumerate(keys) if key in found]
    if rows:
        joined = b"".join(found[keys[row]] for row in rows)
        table[rows] = np.frombuffer(joined, "<f4").reshape(-1, _RECORD)
    return table


def _remember(
    rows: _Rows, table: Float32, material: Mapping[str, Material], place: Workplace
) -> None:
    """Put new evidence into the cache; pictures that could not be decoded are left out."""
    if place.cache is None:
        return
    index = rows.index[~np.isnan(table[rows.index, 0])]
    values = table[index].astype("<f4")
    entries = zip(_keys(rows.pairs, index, material), values, strict=True)
    place.cache.put(_maker(), ((key, value.tobytes()) for key, value in entries))


def _maker() -> bytes:
    return check.digest()


def _parts(count: int, step: int) -> list[slice]:
    """Return the slices that cut ``count`` pairs into tasks."""
    return [slice(start, start + step) for start in range(0, count, step)]


# -- the screen ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ScreenTask:
    drawers: tuple[Handle, Handle]
    query: Int64
    reference: Int64
    view: npt.NDArray[np.int8]


def _screen(
    todo: Sequence[_Rows],
    tables: Sequence[Float32],
    material: Mapping[str, Material],
    place: Workplace,
) -> None:
    """Fill in the screen's columns of the tables."""
    drawers = _drawers(todo, material, place, screen.thumbnail, 2 * screen.SIDE)
    shelf = Shelf(drawers, place)
    for rows, table in zip(todo, tables, strict=True):
        if not len(rows.index):
            continue
        names = (rows.pairs.query_set, rows.pairs.reference_set)
        parts = _parts(len(rows.index), SCREEN_CHUNK)
        query, reference, view = rows.query, rows.reference, rows.pairs.view[rows.index]
        tasks = (_ScreenTask(*_handed(rows, part, shelf), view[part]) for part in parts)
        for part, (score, shift) in zip(parts, place.each(_screen_work, tasks), strict=True):
            table[rows.index[part], 0] = score
            table[rows.index[part], 1:3] = shift.astype(np.float32) / screen.SIDE
            place.progress("screening pairs", min(part.stop, len(rows.index)), len(rows.index))
        gone = _gone(drawers[names[0]], query) | _gone(drawers[names[1]], reference)
        table[rows.index[gone], 0] = np.nan


def _handed(rows: _Rows, part: slice, shelf: Shelf) -> tuple[tuple[Handle, Handle], Int64, Int64]:
    """Return the drawers of both sides with what some pairs need, and their rows in them."""
    pairs, index = rows.pairs, rows.index[part]
    left, query = shelf.hand(pairs.query_set, pairs.query[index])
    right, reference = shelf.hand(pairs.reference_set, pairs.reference[index])
    return (left, right), query, reference


def _gone(drawer: Drawer, rows: Int64) -> Bool:
    """Return which pictures could not be decoded any more."""
    return np.asarray(drawer.shape[drawer.slot[rows], 0] == 0)


def _screen_work(task: _ScreenTask) -> tuple[Float32, npt.NDArray[np.int8]]:
    left, right = shared(task.drawers[0]), shared(task.drawers[1])
    query = left.stack(task.query, screen.SIDE)
    reference = right.stack(task.reference, screen.SIDE)
    left.forget()
    right.forget()
    return screen.screen(query, reference, task.view)


def _survives(rows: _Rows, table: Float32, material: Mapping[str, Material]) -> Bool:
    """Return which screened pairs are worth a full check."""
    pairs, index = rows.pairs, rows.index
    corrected = pairs.similarity[index] - pairs.background[index]
    flat = material[pairs.query_set].prints.flat[rows.query]
    score = table[index, 0]
    reached = (corrected + SCREEN_WEIGHT * score >= GATE) | flat
    if pairs.votes is not None:
        reached |= pairs.votes[index] > 0
    return np.asarray(reached & ~np.isnan(score))


# -- the full check ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CheckTask:
    drawers: tuple[Handle, Handle]
    query: Int64
    reference: Int64
    view: npt.NDArray[np.int8]
    shift: Float32
    same_size: Bool
    tried: Bool
    hopeful: Bool


def _check(
    survivors: Sequence[_Rows],
    tables: Sequence[Float32],
    material: Mapping[str, Material],
    place: Workplace,
) -> None:
    """Fill in the columns of the full check."""
    drawers = _drawers(survivors, material, place, check.bounded, check.BOUND)
    shelf = Shelf(drawers, place)
    for rows, table in zip(survivors, tables, strict=True):
        if not len(rows.index):
            continue
        parts = _parts(len(rows.index), CHECK_CHUNK)
        tasks = _check_tasks(rows, table, material, shelf, parts)
        for part, found in zip(parts, place.each(_check_work, tasks), strict=True):
            table[rows.index[part], 3:] = found
            place.progress("checking pairs", min(part.stop, len(rows.index)), len(rows.index))


def _check_tasks(
    rows: _Rows,
    table: Float32,
    material: Mapping[str, Material],
    shelf: Shelf,
    parts: Sequence[slice],
) -> Iterator[_CheckTask]:
    same_size = _same_size(rows, material)
    tried, hopeful = _tried(rows.pairs, rows.index), _hopeful(rows.pairs, rows.index)
    for part in parts:
        index = rows.index[part]
        yield _CheckTask(
            *_handed(rows, part, shelf),
            rows.pairs.view[index],
            table[index, 1:3],
            same_size[part],
            tried[part],
            hopeful[part],
        )


def _same_size(rows: _Rows, material: Mapping[str, Material]) -> Bool:
    left = material[rows.pairs.query_set].prints.sizes[rows.query]
    right = material[rows.pairs.reference_set].prints.sizes[rows.reference]
    return np.asarray((left == right).all(axis=1))


def _check_work(task: _CheckTask) -> Float32:
    """Return checks and relations of some pairs, (k, checks + 9)."""
    left, right = shared(task.drawers[0]), shared(task.drawers[1])
    result = np.full((len(task.query), len(CHECKS) + 9), np.nan, np.float32)
    for place, (query, reference) in enumerate(zip(task.query, task.reference, strict=True)):
        one, other = left.picture(int(query)), right.picture(int(reference))
        if not (one.size and other.size):
            continue
        shift = (float(task.shift[place, 0]), float(task.shift[place, 1]))
        measures, matrix = check.check(
            one,
            other,
            int(task.view[place]),
            shift,
            same_size=bool(task.same_size[place]),
            local=bool(task.tried[place]),
            hopeful=bool(task.hopeful[place]),
        )
        result[place, : len(CHECKS)] = [getattr(measures, name) for name in CHECKS]
        result[place, len(CHECKS) :] = matrix.ravel()
    left.forget()
    right.forget()
    return result


# -- confirmation at full size -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ConfirmTask:
    openers: tuple[Handle, Handle]
    query: int
    reference: int


def _confirm(
    survivors: Sequence[_Rows],
    tables: Sequence[Float32],
    material: Mapping[str, Material],
    place: Workplace,
) -> None:
    """Look again, at full size, at pairs that were called exact when bounded."""
    column = COLUMNS.index("exact")
    for rows, table in zip(survivors, tables, strict=True):
        left, right = material[rows.pairs.query_set], material[rows.pairs.reference_set]
        large = left.prints.sizes[rows.query].max(axis=1, initial=0) > check.BOUND
        doubtful = np.flatnonzero(large & (table[rows.index, column] == 1))
        if not len(doubtful):
            continue
        openers = (place.share(left.images.opener), place.share(right.images.opener))
        query, reference = left.prints.rows[rows.query], right.prints.rows[rows.reference]
        tasks = (_ConfirmTask(openers, int(query[i]), int(reference[i])) for i in doubtful)
        for i, agreed in zip(doubtful, place.each(_confirm_work, tasks), strict=True):
            table[rows.index[i], column] = float(agreed)


def _confirm_work(task: _ConfirmTask) -> bool:
    pictures = []
    for opener, position in zip(task.openers, (task.query, task.reference), strict=True):
        data = next(iter(shared(opener).read([position])))
        picture = data if isinstance(data, Unreadable) else decode(data)
        if isinstance(picture, Unreadable):
            return False
        pictures.append(picture.pixels)
    return exactly_alike(*pictures)


def _drawers(
    todo: Sequence[_Rows],
    material: Mapping[str, Material],
    place: Workplace,
    reduce: Callable[[Bytes8], Bytes8],
    enough: int,
) -> dict[str, Drawer]:
    """Decode what the pairs need, one pass a set."""
    needed: dict[str, list[Int64]] = {}
    for rows in todo:
        needed.setdefault(rows.pairs.query_set, []).append(rows.query)
        needed.setdefault(rows.pairs.reference_set, []).append(rows.reference)
    drawers = {}
    for name, parts in needed.items():
        own = material[name]
        rows_needed = np.unique(np.concatenate(parts))
        drawers[name] = fill(own.images, own.prints, rows_needed, reduce, enough, place)
    return drawers
