"""``verify(pairs, images) -> Evidence``: a cheap screen, a check for survivors, a close comparison.

The check aligns images of 256 pixels; pairs in which it finds any resemblance are then compared at
up to 1,024 pixels, where strokes and fine texture show.

In an audit the number of full checks is bounded, and in dense groups of similar images that of
screened pairs too (:mod:`visleak.pipeline.selection`). Evidence goes into the cache as soon as it
is made, so that an interrupted run loses one task per worker.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.grading import Grader, grade
from visleak.images import DECODING, decode
from visleak.pipeline.context import Handle, RunContext, shared
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost
from visleak.pipeline.evidence import packed, unpacked
from visleak.pipeline.fingerprints import TINIEST
from visleak.pipeline.local_features import content_keys
from visleak.pipeline.pixels import Drawer, Shelf, fill
from visleak.pipeline.selection import (
    CONNECTED,
    Candidates,
    Forest,
    Rounds,
    Spanning,
    most_for,
    sizes_for,
)
from visleak.records import (
    GRADES,
    Bool,
    Bytes8,
    Evidence,
    Float32,
    Grade,
    Int8,
    Int64,
    Pairs,
    Unreadable,
)
from visleak.verify import check, close, placements, screen
from visleak.verify.exact import exactly_alike, is_identical
from visleak.verify.measures import CHECKS, NOTHING, Measures

#: A pair is checked in full where its corrected similarity plus SCREEN_WEIGHT times its screen
#: score reaches GATE.
SCREEN_WEIGHT: Final = 0.35
GATE: Final = 0.12

#: The same for small images, which have a screen of their own: on judged CIFAR-10 pairs that keeps
#: 99 % of the near-duplicates and leaves out nineteen twentieths of the candidates.
SMALL_WEIGHT: Final = 0.6
SMALL_GATE: Final = 0.29

#: Pairs a task.
SCREEN_CHUNK: Final = 1024
CHECK_CHUNK: Final = 32

#: The same for the close comparison, which takes five times as long.
CLOSE_CHUNK: Final = 16

#: Pairs looked up in the cache, or put there, at a time, and rows of evidence that are held in
#: memory; only bound memory.
KNOWN_CHUNK: Final = 16_384
MEMORY_ROWS: Final = 65_536

#: Columns of stored evidence: the screen and the placement it found, the checks, the relation.
COLUMNS: Final = ("screen", "across", "down", "wider", "higher", *CHECKS)
_RECORD: Final = len(COLUMNS) + 9

#: Evidence as it is where nothing was found: what is not stored in the cache.
_USUAL: Final = np.array([*(getattr(NOTHING, name) for name in CHECKS), *np.eye(3).ravel()], "<f4")

#: Bytes of a key, ways in which a pair is checked, and what the makers of screens begin with.
_KEY: Final = 33
_WAYS: Final = 32
_SCREENS: Final = b"screens "

#: Where the columns of the check begin.
_SCREENED: Final = 5

#: The column that tells checked pairs from those that were only screened.
_SIDE: Final = COLUMNS.index("side")

#: The column that tells pairs that were compared closely.
_CLOSE: Final = COLUMNS.index("close_side")


@dataclass(frozen=True, slots=True)
class _Distinct:
    """The distinct pairs of contents of one comparison, and what is known about them.

    Attributes:
        pairs: one pair per pair of contents, the first of it in the order of pairs.
        numbers: ``int64``: number of the content of each fingerprint of either side.
        of: ``int64`` (n,): which of them each pair of the comparison is.
        table: ``float32`` (distinct, columns): evidence, filled in as it is made; NaN where
            nothing is known.
        equal: pairs of equal bytes, which need no check.
        tried, near: pairs of crowds that were verified, and those that are near or exact.
        connected: pairs whose images near pairs of crowds connect.
    """

    pairs: Pairs
    numbers: tuple[Int64, Int64]
    of: Int64
    table: Float32
    equal: Bool
    tried: Bool
    near: Bool
    connected: Bool

    @property
    def unchecked(self) -> Bool:
        """Which pairs have no evidence but the screen's."""
        return np.isnan(self.table[:, _SIDE])

    @property
    def open(self) -> Bool:
        """Which checked pairs resemble each other and were not compared closely yet."""
        structure, core = (self.table[:, COLUMNS.index(name)] for name in ("structure", "core"))
        large = self.table[:, _SIDE] > check.TINY
        worthwhile = close.is_worthwhile(structure, core)
        return np.asarray(large & worthwhile & (self.table[:, _CLOSE] < 0))

    def evidence(self, skipped: Int8 | None) -> Evidence:
        """Return the evidence on all pairs of the comparison; skipped ones have the screen's."""
        every = len(self.of) == len(self.table) and bool((np.diff(self.of) == 1).all())
        table = self.table if every else self.table[self.of]
        if skipped is not None:
            skipped = skipped[self.of]
            table[skipped > 0, _SCREENED:] = np.nan
            # of a crowd not all pairs were screened
            table[skipped == CONNECTED] = np.nan
        columns = {name: table[:, place] for place, name in enumerate(COLUMNS)}
        return Evidence(columns, table[:, len(COLUMNS) :], skipped)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Pairs of one comparison that need work.

    Attributes:
        own: the comparison's.
        index: ``int64`` (n,): which of its pairs, ascending.
    """

    own: _Distinct
    index: Int64

    @property
    def pairs(self) -> Pairs:
        return self.own.pairs

    @property
    def query(self) -> Int64:
        return self.pairs.query[self.index]

    @property
    def reference(self) -> Int64:
        return self.pairs.reference[self.index]

    @property
    def contents(self) -> tuple[Int64, Int64]:
        """Numbers of the contents of either image."""
        left, right = self.own.numbers
        return left[self.query], right[self.reference]


def verify(
    comparisons: Sequence[Pairs],
    material: Mapping[str, EncodedSet],
    place: RunContext,
    grader: Grader | None = None,
    spanning: Sequence[Spanning] = (),
) -> list[Evidence]:
    """Return the evidence on the pairs of all comparisons; pictures are decoded once a set.

    Pairs with equal bytes need no look: their evidence stays NaN. Pairs of equal contents are
    checked once.

    Args:
        comparisons: candidate pairs, one record a pair of sets.
        material: the sets and fingerprints by name.
        place: where to work; known evidence comes from its cache and new evidence goes there.
        grader: decides after each round which images proceed to the next. Without it all pairs
            that pass the screen are checked.
        spanning: of each comparison what :func:`connect` found, if it was called.

    Raises:
        ImagesLost: images cannot be read again.
    """
    distinct = [
        _distinct(pairs, material, place, spanning[number] if spanning else None)
        for number, pairs in enumerate(comparisons)
    ]
    open_ = [_Rows(each, np.flatnonzero(~each.equal & ~each.connected)) for each in distinct]
    survivors = _screened(open_, material, place)
    if grader is None:
        _verify(survivors, material, place)
        return [each.evidence(None) for each in distinct]
    skipped = _in_rounds(survivors, material, place, grader)
    return [each.evidence(own) for each, own in zip(distinct, skipped, strict=True)]


def connect(
    comparisons: Sequence[Pairs],
    material: Mapping[str, EncodedSet],
    place: RunContext,
    grader: Grader,
) -> list[Spanning]:
    """Verify the pairs that connect the crowds of each comparison.

    Args:
        comparisons: pairs of crowded images, one record a pair of sets.
        material, place, grader: as in :func:`verify`.

    Raises:
        ImagesLost: images cannot be read again.
    """
    # local features did not compare these
    crowds = [
        _distinct(replace(pairs, votes=np.zeros(len(pairs), np.float32)), material, place)
        for pairs in comparisons
    ]
    rows = [_Rows(own, np.flatnonzero(~own.equal)) for own in crowds]
    forests = [
        Forest(each.contents, each.pairs.similarity[each.index], most_for(each.pairs))
        for each in rows
    ]
    while any(len(forest.due()) for forest in forests):
        due = [_Rows(r.own, r.index[f.due()]) for r, f in zip(rows, forests, strict=True)]
        passed = _screened(due, material, place)
        _verify(passed, material, place)
        for each, survivors, forest in zip(due, passed, forests, strict=True):
            if len(each.index):
                near = survivors.index[_near(survivors, material, grader)]
                forest.proceed(np.isin(each.index, near))
    return [
        Spanning.of(
            _keys(each.pairs, each.index[forest.tried], material),
            each.own.table[each.index[forest.tried]],
            forest.near[forest.tried],
        )
        for each, forest in zip(rows, forests, strict=True)
    ]


def equal_bytes(pairs: Pairs, material: Mapping[str, EncodedSet]) -> Bool:
    """Return which pairs are two copies of the same bytes."""
    left = material[pairs.query_set].fingerprints.digests[pairs.query]
    right = material[pairs.reference_set].fingerprints.digests[pairs.reference]
    return np.asarray((left == right).all(axis=1))


def _distinct(
    pairs: Pairs,
    material: Mapping[str, EncodedSet],
    place: RunContext,
    spanning: Spanning | None = None,
) -> _Distinct:
    """Return the distinct pairs of contents of a comparison with what is known of them."""
    numbers = _numbers(pairs, material)
    left, right = numbers[0][pairs.query], numbers[1][pairs.reference]
    contents = left * (numbers[0].max(initial=0) + numbers[1].max(initial=0) + 1) + right
    code = contents * _WAYS + _ways(pairs, slice(None))
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    # in the order of pairs, which is one of ids: ties are broken by it
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    of, first = number[group], first[order]
    votes = None
    if pairs.votes is not None:
        votes = np.zeros(len(first), np.float32)
        np.maximum.at(votes, of, pairs.votes)
    distinct = replace(
        pairs,
        query=pairs.query[first],
        reference=pairs.reference[first],
        similarity=pairs.similarity[first],
        background=pairs.background[first],
        view=pairs.view[first],
        votes=votes,
    )
    table, equal = _known(distinct, material, place), left[first] == right[first]
    tried, near, connected = np.zeros((3, len(first)), np.bool_)
    if spanning is not None and len(spanning.keys):
        keys = _keys(distinct, np.arange(len(distinct)), material, tried=False)
        at, tried = spanning.find(keys)
        table[tried], near = spanning.table[at[tried]], tried & spanning.near[at]
        groups = [
            spanning.group_of(content_keys(material[name].fingerprints))[rows]
            for name, rows in (
                (pairs.query_set, distinct.query),
                (pairs.reference_set, distinct.reference),
            )
        ]
        connected = (groups[0] == groups[1]) & (groups[0] >= 0)
    return _Distinct(distinct, numbers, of, table, equal, tried, near, connected)


def _numbers(pairs: Pairs, material: Mapping[str, EncodedSet]) -> tuple[Int64, Int64]:
    """Return a number for the content of each fingerprint of either side, over both."""
    sides = [
        content_keys(material[name].fingerprints) for name in (pairs.query_set, pairs.reference_set)
    ]
    number = np.unique(np.concatenate(sides), return_inverse=True)[1].astype(np.int64)
    return number[: len(sides[0])], number[len(sides[0]) :]


# -- rounds --------------------------------------------------------------------------------------


def _in_rounds(
    survivors: Sequence[_Rows],
    material: Mapping[str, EncodedSet],
    place: RunContext,
    grader: Grader,
) -> list[Int8]:
    """Check the best candidates of each image, further ones while a round turns up any."""
    rounds = [
        Rounds(
            _candidates(rows, material),
            sizes_for(rows.pairs),
            np.flatnonzero(rows.own.tried),
            np.flatnonzero(rows.own.near),
        )
        for rows in survivors
    ]
    while any(len(own.due()) for own in rounds):
        due = [_Rows(rows.own, own.due()) for rows, own in zip(survivors, rounds, strict=True)]
        _verify(due, material, place)
        for rows, own in zip(due, rounds, strict=True):
            if len(rows.index):
                own.proceed(_near(rows, material, grader))
    return [own.skipped(len(rows.pairs)) for rows, own in zip(survivors, rounds, strict=True)]


def _candidates(rows: _Rows, material: Mapping[str, EncodedSet]) -> Candidates:
    """Return the candidates of one comparison, those that crowds connect among them."""
    own = rows.own
    index = np.union1d(rows.index, np.flatnonzero(own.connected & ~own.equal))
    every = _Rows(own, index)
    query, reference = every.contents
    votes = own.pairs.votes
    return Candidates(
        pair=index,
        query=query,
        reference=reference,
        score=_promise(every, material)[0],
        votes=np.zeros(len(index), np.float32) if votes is None else votes[index],
        within=own.pairs.query_set == own.pairs.reference_set,
    )


def _near(rows: _Rows, material: Mapping[str, EncodedSet], grader: Grader) -> Bool:
    """Return which checked pairs are near or exact."""
    pairs, index = rows.pairs, rows.index
    table = rows.own.table[index]
    columns = {name: table[:, place] for place, name in enumerate(COLUMNS)}
    graded = grade(
        pairs.similarity[index],
        pairs.background[index],
        Evidence(columns, table[:, len(COLUMNS) :]),
        equal_bytes=np.zeros(len(index), np.bool_),
        flat=material[pairs.query_set].fingerprints.flat[rows.query],
        grader=grader,
    ).grade
    return (graded >= 0) & (graded <= GRADES.index(Grade.NEAR))


# -- known evidence ------------------------------------------------------------------------------


def _keys(
    pairs: Pairs, index: Int64, material: Mapping[str, EncodedSet], *, tried: bool = True
) -> npt.NDArray[np.void]:
    """Return the cache keys of pairs: two content digests, the view, how the check is made."""
    left = material[pairs.query_set].fingerprints.digests[pairs.query[index]]
    right = material[pairs.reference_set].fingerprints.digests[pairs.reference[index]]
    way = _ways(pairs, index) if tried else pairs.view[index]
    view = way.astype(np.uint8)[:, None]
    return np.ascontiguousarray(np.concatenate([left, right, view], axis=1)).view("V33").ravel()


def _ways(pairs: Pairs, index: Int64 | slice) -> Int8:
    """Return how pairs are checked: the view, and whether local features are tried."""
    return np.asarray(pairs.view[index] + _WAYS // 2 * _tried(pairs, index), np.int8)


def _tried(pairs: Pairs, index: Int64 | slice) -> Bool:
    """Return for which pairs it is worth trying to align by local features.

    Where the local channel compared the pictures, only pairs that it found share any.
    """
    if pairs.votes is None:
        return np.ones(len(pairs.view[index]), np.bool_)
    return np.asarray(pairs.votes[index] > 0)


def _known(pairs: Pairs, material: Mapping[str, EncodedSet], place: RunContext) -> Float32:
    """Return a table of evidence, a row per pair, NaN where nothing is known yet."""
    table = _new_table(len(pairs), place)
    for part in _parts(len(pairs), KNOWN_CHUNK):
        table[part] = np.nan
        if place.cache is None:
            continue
        keys = _keys(pairs, np.arange(len(pairs))[part], material)
        names = [key.tobytes() for key in keys]
        found = place.cache.get(_maker(), names)
        for row, name in enumerate(names, part.start):
            if name in found:
                table[row, _SCREENED:] = unpacked(found[name], _USUAL)
    return table


def _new_table(rows: int, place: RunContext) -> Float32:
    """Return an empty table of evidence; a large one lies in the scratch folder."""
    shape = (rows, _RECORD)
    if rows <= MEMORY_ROWS:
        return np.empty(shape, np.float32)
    return np.memmap(place.file(".evidence"), np.float32, mode="w+", shape=shape)


def _remember(rows: _Rows, material: Mapping[str, EncodedSet], place: RunContext) -> None:
    """Put new evidence into the cache."""
    if place.cache is None:
        return
    for part in _parts(len(rows.index), KNOWN_CHUNK):
        index = rows.index[part]
        keys = (key.tobytes() for key in _keys(rows.pairs, index, material))
        checks = packed(rows.own.table[index, _SCREENED:], _USUAL)
        place.cache.put(_maker(), zip(keys, checks, strict=True))


def _maker() -> bytes:
    usual = hashlib.blake2b(_USUAL.tobytes(), digest_size=4).digest()
    return check.digest() + bytes([DECODING]) + usual


def _recall_screens(rows: _Rows, material: Mapping[str, EncodedSet], place: RunContext) -> None:
    """Fill in what the cache knows of the screens of pairs."""
    if place.cache is None:
        return
    table = rows.own.table
    for entries in _screens(rows, material):
        found = place.cache.get(_SCREENS + _maker(), [key for key, _ in entries])
        for key, index in entries:
            if key in found:
                stored = np.frombuffer(zlib.decompress(found[key]), "<f4")
                new = np.isnan(table[index, 0])
                table[index[new], :_SCREENED] = stored.reshape(_SCREENED, -1).T[new]


def _remember_screens(
    rows: _Rows, new: Int64, material: Mapping[str, EncodedSet], place: RunContext
) -> None:
    """Put the screens of pairs into the cache, those of images with new ones."""
    if place.cache is None:
        return
    queries = rows.pairs.query[rows.index]
    own = _Rows(rows.own, rows.index[np.isin(queries, rows.pairs.query[new])])
    for entries in _screens(own, material):
        place.cache.put(
            _SCREENS + _maker(),
            (
                (key, zlib.compress(own.own.table[index, :_SCREENED].T.astype("<f4").tobytes(), 1))
                for key, index in entries
            ),
        )


def _screens(
    rows: _Rows, material: Mapping[str, EncodedSet]
) -> Iterator[list[tuple[bytes, Int64]]]:
    """Yield, in blocks, the pairs of each query, and the key under which their screens are kept.

    A screen is cheap and there are many, so all of a query are one entry: the key is made of those
    of its pairs. Of the tiniest images none are kept.
    """
    large = material[rows.pairs.query_set].fingerprints.sizes[rows.query].max(axis=1, initial=0)
    rows = _Rows(rows.own, rows.index[large > TINIEST])
    edges = np.flatnonzero(np.diff(rows.query, prepend=-1, append=-1)).tolist()
    for start in range(0, len(edges) - 1, SCREEN_CHUNK):
        cut = edges[start : start + SCREEN_CHUNK + 1]
        index = rows.index[cut[0] : cut[-1]]
        keys = _keys(rows.pairs, index, material).view(np.uint8).reshape(-1, _KEY)
        yield [
            (
                hashlib.blake2b(keys[a - cut[0] : b - cut[0]].tobytes(), digest_size=16).digest(),
                index[a - cut[0] : b - cut[0]],
            )
            for a, b in itertools.pairwise(cut)
        ]


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
    small: Bool


def _screened(
    todo: Sequence[_Rows], material: Mapping[str, EncodedSet], place: RunContext
) -> list[_Rows]:
    """Screen the pairs of which nothing is known; return those of all pairs that pass."""
    for rows in todo:
        _recall_screens(rows, material, place)
    new = [_Rows(rows.own, rows.index[np.isnan(rows.own.table[rows.index, 0])]) for rows in todo]
    if any(len(rows.index) for rows in new):
        _screen(new, material, place)
        for rows, fresh in zip(todo, new, strict=True):
            _remember_screens(rows, fresh.index, material, place)
    return [_survivors(rows, material) for rows in todo]


def _screen(todo: Sequence[_Rows], material: Mapping[str, EncodedSet], place: RunContext) -> None:
    """Fill in the screen's columns of the tables."""
    drawers = _drawers(todo, material, place, screen.thumbnail, 2 * screen.SIDE)
    shelf = Shelf(drawers, place)
    for rows in todo:
        if not len(rows.index):
            continue
        table = rows.own.table
        parts = _parts(len(rows.index), SCREEN_CHUNK)
        view = rows.pairs.view[rows.index]
        small = _are_small(rows.pairs, material)[rows.index]
        tasks = (
            _ScreenTask(*_handed(rows, part, shelf), view[part], small[part]) for part in parts
        )
        results = place.each(_screen_work, tasks, "screening pairs")
        for part, found in zip(parts, results, strict=True):
            table[rows.index[part], :_SCREENED] = found
            place.progress("screening pairs", min(part.stop, len(rows.index)), len(rows.index))


def _handed(rows: _Rows, part: slice, shelf: Shelf) -> tuple[tuple[Handle, Handle], Int64, Int64]:
    """Return the drawers of both sides with what some pairs need, and their rows in them."""
    pairs, index = rows.pairs, rows.index[part]
    left, query = shelf.hand(pairs.query_set, pairs.query[index])
    right, reference = shelf.hand(pairs.reference_set, pairs.reference[index])
    return (left, right), query, reference


def _screen_work(task: _ScreenTask) -> Float32:
    """Return score and placement of some pairs, (n, 5)."""
    left, right = shared(task.drawers[0]), shared(task.drawers[1])
    query = left.stack(task.query, screen.SIDE)
    reference = right.stack(task.reference, screen.SIDE)
    left.forget()
    right.forget()
    found = np.ones((len(query), _SCREENED), np.float32)
    for rows, small in ((task.small, True), (~task.small, False)):
        sides = query[rows], reference[rows], task.view[rows]
        if not rows.any():
            continue
        if small:
            found[rows, 0], found[rows, 1:] = placements.place(*sides)
        else:
            found[rows, 0], shift = screen.screen(*sides)
            found[rows, 1:3] = shift.astype(np.float32) / screen.SIDE
    return found


def _are_small(pairs: Pairs, material: Mapping[str, EncodedSet]) -> Bool:
    """Return the pairs that are screened as small images."""
    left = material[pairs.query_set].fingerprints.sizes[pairs.query].max(axis=1, initial=0)
    right = material[pairs.reference_set].fingerprints.sizes[pairs.reference].max(axis=1, initial=0)
    return np.asarray(np.maximum(left, right) <= check.SMALL)


def _promise(rows: _Rows, material: Mapping[str, EncodedSet]) -> tuple[Float32, Bool]:
    """Return what similarity and screen promise of each pair, and whether that is enough."""
    pairs, index = rows.pairs, rows.index
    small = _are_small(pairs, material)[index]
    weight = np.where(small, SMALL_WEIGHT, SCREEN_WEIGHT).astype(np.float32)
    corrected = pairs.similarity[index] - pairs.background[index]
    # that two whole images are unlike says nothing against a crop, which their screen knows
    corrected = np.where(small, np.maximum(corrected, 0), corrected)
    score = corrected + weight * rows.own.table[index, 0]
    return score, score >= np.where(small, SMALL_GATE, GATE).astype(np.float32)


def _survivors(rows: _Rows, material: Mapping[str, EncodedSet]) -> _Rows:
    """Return the pairs that passed the screen."""
    reached = _promise(rows, material)[1] | _are_flat(rows, material)
    if rows.pairs.votes is not None:
        reached |= rows.pairs.votes[rows.index] > 0
    return _Rows(rows.own, rows.index[reached])


def _are_flat(rows: _Rows, material: Mapping[str, EncodedSet]) -> Bool:
    """Return the pairs of blank images."""
    return material[rows.pairs.query_set].fingerprints.flat[rows.query]


# -- the full check ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CheckTask:
    """Pairs to check.

    Attributes:
        drawers: bounded pictures of both sides.
        query, reference: rows in the drawers.
        view, placement, tried: what the screen and the search found for each pair.
        same_size: pictures of equal size.
        stored: names and openers of both sets, where there are ``large`` pairs.
        positions: ``int64`` (n, 2): of the pictures in their sets.
        large: pairs of pictures that were bounded: what is exact then is compared at full size.
    """

    drawers: tuple[Handle, Handle]
    query: Int64
    reference: Int64
    view: npt.NDArray[np.int8]
    placement: Float32
    same_size: Bool
    tried: Bool
    stored: tuple[tuple[str, Handle], ...]
    positions: Int64
    large: Bool


def _verify(todo: Sequence[_Rows], material: Mapping[str, EncodedSet], place: RunContext) -> None:
    """Check pairs that have not been, and compare closely those that resemble each other."""
    _check(todo, material, place)
    _compare_closely(todo, material, place)


def _check(todo: Sequence[_Rows], material: Mapping[str, EncodedSet], place: RunContext) -> None:
    """Check pairs that have not been; fill in the tables and the cache task by task."""
    todo = [_Rows(rows.own, rows.index[rows.own.unchecked[rows.index]]) for rows in todo]
    total, done = sum(len(rows.index) for rows in todo), 0
    if not total:
        return
    drawers = _drawers(todo, material, place, check.bounded, check.BOUND)
    shelf = Shelf(drawers, place)
    for rows in todo:
        parts = _parts(len(rows.index), CHECK_CHUNK)
        tasks = _check_tasks(rows, material, shelf, place, parts)
        results = place.each(_check_work, tasks, "checking pairs")
        for part, found in zip(parts, results, strict=True):
            rows.own.table[rows.index[part], _SCREENED:] = found
            # what is still open is remembered when it was compared closely
            finished = rows.index[part][~rows.own.open[rows.index[part]]]
            _remember(_Rows(rows.own, finished), material, place)
            done += len(found)
            place.progress("checking pairs", done, total)


def _check_tasks(
    rows: _Rows,
    material: Mapping[str, EncodedSet],
    shelf: Shelf,
    place: RunContext,
    parts: Sequence[slice],
) -> Iterator[_CheckTask]:
    pairs = rows.pairs
    sides = (material[pairs.query_set], material[pairs.reference_set])
    sizes = [
        own.fingerprints.sizes[at]
        for own, at in zip(sides, (rows.query, rows.reference), strict=True)
    ]
    same_size = np.asarray((sizes[0] == sizes[1]).all(axis=1))
    large = same_size & (sizes[0].max(axis=1, initial=0) > check.BOUND)
    stored = tuple((own.images.name, place.share(own.opener)) for own in sides if large.any())
    positions = np.stack(
        [sides[0].fingerprints.rows[rows.query], sides[1].fingerprints.rows[rows.reference]], axis=1
    )
    tried = _tried(pairs, rows.index)
    for part in parts:
        index = rows.index[part]
        yield _CheckTask(
            *_handed(rows, part, shelf),
            pairs.view[index],
            rows.own.table[index, 1:_SCREENED],
            same_size[part],
            tried[part],
            stored,
            positions[part],
            large[part],
        )


def _check_work(task: _CheckTask) -> Float32:
    """Return checks and relations of some pairs, (k, checks + 9)."""
    left, right = shared(task.drawers[0]), shared(task.drawers[1])
    result = np.full((len(task.query), len(CHECKS) + 9), np.nan, np.float32)
    for place, (query, reference) in enumerate(zip(task.query, task.reference, strict=True)):
        one, other = left.picture(int(query)), right.picture(int(reference))
        x, y, wider, higher = task.placement[place].tolist()
        measures, matrix = check.check(
            one,
            other,
            int(task.view[place]),
            (x, y),
            enlarged=(wider, higher),
            same_size=bool(task.same_size[place]),
            local=bool(task.tried[place]),
        )
        if task.large[place] and measures.exact == 1:
            alike, identical = _compared_at_full_size(task.stored, task.positions[place])
            measures = replace(measures, exact=float(alike), identical=float(identical))
        result[place, : len(CHECKS)] = [getattr(measures, name) for name in CHECKS]
        result[place, len(CHECKS) :] = matrix.ravel()
    left.forget()
    right.forget()
    return result


# -- the close comparison ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CloseTask:
    """Pairs to compare closely.

    Attributes:
        drawers: images of both sides, at most 1,024 pixels.
        query, reference: rows in the drawers.
        table: ``float32`` (n, columns): the evidence so far.
    """

    drawers: tuple[Handle, Handle]
    query: Int64
    reference: Int64
    table: Float32


def _compare_closely(
    todo: Sequence[_Rows], material: Mapping[str, EncodedSet], place: RunContext
) -> None:
    """Compare closely what is open; fill in the tables and the cache task by task."""
    todo = [_Rows(rows.own, rows.index[rows.own.open[rows.index]]) for rows in todo]
    total, done = sum(len(rows.index) for rows in todo), 0
    if not total:
        return
    drawers = _drawers(todo, material, place, _close_bounded, close.PLACES_SIDE)
    shelf = Shelf(drawers, place)
    for rows in todo:
        parts = _parts(len(rows.index), CLOSE_CHUNK)
        tasks = (
            _CloseTask(*_handed(rows, part, shelf), rows.own.table[rows.index[part]])
            for part in parts
        )
        results = place.each(_close_work, tasks, "comparing closely")
        for part, found in zip(parts, results, strict=True):
            rows.own.table[rows.index[part]] = found
            _remember(_Rows(rows.own, rows.index[part]), material, place)
            done += len(found)
            place.progress("comparing closely", done, total)


def _close_bounded(pixels: Bytes8) -> Bytes8:
    return check.bounded(pixels, close.PLACES_SIDE)


def _close_work(task: _CloseTask) -> Float32:
    """Return the evidence with the columns of the close comparison, (n, columns)."""
    left, right = shared(task.drawers[0]), shared(task.drawers[1])
    table = task.table.copy()
    checks = slice(_SCREENED, _SCREENED + len(CHECKS))
    for row, (query, reference) in enumerate(zip(task.query, task.reference, strict=True)):
        one, other = left.picture(int(query)), right.picture(int(reference))
        measures = Measures(*(float(value) for value in table[row, checks]))
        matrix = table[row, len(COLUMNS) :].reshape(3, 3).astype(np.float64)
        measures, relation = close.closer(measures, one, other, matrix)
        table[row, checks] = [getattr(measures, name) for name in CHECKS]
        table[row, len(COLUMNS) :] = relation.ravel()
    left.forget()
    right.forget()
    return table


def _compared_at_full_size(
    stored: Sequence[tuple[str, Handle]], positions: Int64
) -> tuple[bool, bool]:
    """Return whether two images are exactly alike, and whether identical, as they are stored.

    Raises:
        ImagesLost: one cannot be read again.
    """
    images = []
    for (name, opener), position in zip(stored, positions.tolist(), strict=True):
        data = next(iter(shared(opener).read([position])))
        image = data if isinstance(data, Unreadable) else decode(data)
        if isinstance(image, Unreadable):
            raise ImagesLost(name, [(position, image)])
        images.append(image.pixels)
    return exactly_alike(*images), is_identical(*images)


def _drawers(
    todo: Sequence[_Rows],
    material: Mapping[str, EncodedSet],
    place: RunContext,
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
        needed_rows = np.unique(np.concatenate(parts))
        drawers[name] = fill(material[name], needed_rows, reduce, enough, place)
    return drawers
