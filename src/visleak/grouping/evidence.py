"""Whether images of one group by their names are more similar than chance.

Pairs that a scheme puts together are compared with pairs of the same images that it does not put
together, within one class and, for neighbours of a sequence, within one sequence: so neither a
class nor the place of a recording can explain what the scheme claims.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from visleak.groups import numbered, rank_within
from visleak.records import Bool, Float32, Float64, Int64
from visleak.storage.audit_folder import Decay, GroupEvidence

#: Pairs that are compared; permutations of them; images whose nearest one is looked for among how
#: many.
PAIRS: Final = 400
DRAWS: Final = 2999
ASKED: Final = 200
POOL: Final = 500
#: Successive shots that are compared with each other.
STRETCH: Final = 24
#: Permutations that are made at once, and as extreme ones from which no more are made.
BLOCK: Final = 100
PLENTY: Final = 20
#: Bars of the decay, pairs of each at most, and at least.
BARS: Final = 16
PER_BAR: Final = 400
LEAST: Final = 10
#: Share of the excess similarity of the nearest frames that is left at the chosen distance.
HALF: Final = 0.5


class Compare(Protocol):
    """Similarities of images by their places among the members of a scheme."""

    def cross(self, first: Int64, second: Int64) -> Float32:
        """Return the similarities of all pairs of two selections, (n, m)."""

    def paired(self, first: Int64, second: Int64) -> Float32:
        """Return the similarity of each image to its counterpart, (n,)."""


@dataclass(frozen=True, slots=True)
class Members:
    """The images of which a scheme gives the group."""

    # int64 (n,): numbers of the group, of the class (equal where classes are unknown) and of the
    # content; number or time of the frame, zeros where there is none
    group: Int64
    frame: Int64
    stratum: Int64
    content: Int64

    def __len__(self) -> int:
        return len(self.group)


def of_neighbours(
    members: Members, compare: Compare, most: int | None = None, *, near_by: bool = False
) -> GroupEvidence:
    """Return whether successive frames are more similar than other frames of their sequence.

    ``near_by`` compares with frames of a short stretch only: a list that is sorted by class is
    similar over longer ones.
    """
    order = np.lexsort((members.content, members.frame, members.group))
    first, second = order[:-1], order[1:]
    apart = members.frame[second] - members.frame[first]
    found = (members.group[first] == members.group[second]) & (apart > 0)
    found &= members.content[first] != members.content[second]
    if most is not None:
        found &= apart <= most
    rank = _rank_of_frame(members)
    near, chance, asked = _nearest(
        members.group,
        compare,
        lambda one, others: np.abs(rank[others] - rank[one]) == 1,
        lambda one, others: rank[others] != rank[one],
        members,
    )
    first, second = first[found], second[found]
    chosen = np.sort(_draw(len(first), PAIRS))
    first, second = first[chosen], second[chosen]
    stretch = rank // STRETCH if near_by else members.group
    both = np.stack([members.group, stretch], axis=1)[first]
    stratum = np.unique(both, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    # frames beside each other cannot be counter-examples
    auc, p, pairs = _matched(
        compare.cross(first, second),
        stratum,
        np.abs(rank[first][:, None] - rank[second][None]) <= 1,
    )
    return GroupEvidence(pairs, auc, p, near, chance, asked)


def of_groups(members: Members, compare: Compare) -> GroupEvidence:
    """Return whether images of one group are more similar than others of their class."""
    order = np.lexsort((members.frame, members.content, members.group))
    first, second = order[:-1], order[1:]
    found = (members.group[first] == members.group[second]) & (
        members.content[first] != members.content[second]
    )
    first, second = first[found], second[found]
    # one pair of each group while there are enough groups
    turn = rank_within(members.group[first])
    chosen = np.lexsort((_draw(len(first), len(first)).argsort(), turn))[:PAIRS]
    first, second = first[chosen], second[chosen]
    near, chance, asked = _nearest(
        members.stratum,
        compare,
        lambda one, others: members.group[others] == members.group[one],
        lambda one, others: members.content[others] != members.content[one],
        members,
    )
    auc, p, pairs = _matched(
        compare.cross(first, second),
        members.stratum[first],
        members.group[first][:, None] == members.group[second][None],
    )
    return GroupEvidence(pairs, auc, p, near, chance, asked)


def _rank_of_frame(members: Members) -> Int64:
    """Return the rank of each frame in its sequence; equal frames have one rank."""
    order = np.lexsort((members.frame, members.group))
    group, frame = members.group[order], members.frame[order]
    new = np.diff(frame, prepend=frame[:1]) != 0
    new[np.flatnonzero(np.diff(group)) + 1] = True
    rank = np.empty(len(members), np.int64)
    rank[order] = np.cumsum(new)
    return rank


def _draw(count: int, most: int) -> Int64:
    """Return some of ``count`` numbers, drawn with a fixed seed, in random order."""
    return np.random.default_rng(0).permutation(count)[:most]


def _matched(similarity: Float32, stratum: Int64, together: Bool) -> tuple[float, float, int]:
    """Return how often a pair is more similar than others of its stratum, p, and the pairs."""
    comparable = (stratum[:, None] == stratum[None]) & ~together
    own = np.diag(similarity)
    higher = (similarity < own[:, None]) + 0.5 * (similarity == own[:, None])
    counts = comparable.sum(axis=1)
    known = np.flatnonzero(counts)
    if not len(known):
        return math.nan, math.nan, 0
    auc = float(((higher * comparable).sum(axis=1)[known] / counts[known]).mean())
    # rank of each similarity in its row, so that no single pair decides
    rank = np.argsort(np.argsort(similarity[np.ix_(known, known)], axis=1), axis=1)
    return auc, _permuted(rank.astype(np.float64), numbered(stratum[known])), len(known)


def _permuted(value: Float64, stratum: Int64) -> float:
    """Return how likely the diagonal is so large if second images were exchanged in a stratum.

    Where as large ones are common, few permutations suffice (Besag & Clifford 1991).
    """
    rng = np.random.default_rng(0)
    order = np.argsort(stratum, kind="stable")
    value, stratum = value[np.ix_(order, order)], stratum[order]
    rows = np.arange(len(value))
    seen, reached, done = float(np.trace(value)), 0, 0
    while done < DRAWS and reached < PLENTY:
        block = min(BLOCK, DRAWS - done)
        # a random order that keeps every row in its stratum
        shuffled = np.argsort(stratum + rng.random((block, len(rows))), axis=1)
        reached += int((value[rows, shuffled].sum(axis=1) >= seen).sum())
        done += block
    return (reached + 1) / (done + 1)


def _nearest(
    pool: Int64,
    compare: Compare,
    belongs: Callable[[int, Int64], Bool],
    counts: Callable[[int, Int64], Bool],
    members: Members,
) -> tuple[float, float, int]:
    """Return how often the nearest image of a pool belongs to an image, by chance, and of how many.

    Only images with one that belongs to them in their pool are counted.
    """
    order = np.argsort(pool, kind="stable")
    begin = np.searchsorted(pool[order], np.arange(pool.max(initial=0) + 2))
    hits, chance, asked = 0, 0.0, 0
    for one in _draw(len(pool), 4 * ASKED).tolist():
        own = order[begin[pool[one]] : begin[pool[one] + 1]]
        own = own[counts(one, own) & (members.content[own] != members.content[one])]
        mine = belongs(one, own)
        if not mine.any() or mine.all():
            continue
        others = own[~mine]
        others = np.concatenate([own[mine][:POOL], others[_draw(len(others), POOL)]])
        similarity = compare.cross(np.array([one]), others)[0]
        hits += bool(belongs(one, others[[int(np.argmax(similarity))]])[0])
        chance += float(mine.mean())
        asked += 1
        if asked == ASKED:
            break
    if not asked:
        return math.nan, math.nan, 0
    return hits / asked, chance / asked, asked


# -- decay ----------------------------------------------------------------------------------------


def decay(members: Members, compare: Compare) -> tuple[tuple[Decay, ...], float, int | None]:
    """Return how similarity decays over the distance of frames, its base, and where half is left.

    The base is the similarity of frames of one sequence wherever they lie. The chosen distance is
    the largest up to which the excess over the base is at least half of that of the nearest
    frames; ``None`` where the nearest frames are not above the base.
    """
    order = np.lexsort((members.frame, members.group))
    first, second = _at_lags(members.group[order])
    first, second = order[first], order[second]
    apart = members.frame[second] - members.frame[first]
    known = (apart > 0) & (members.content[first] != members.content[second])
    first, second, apart = first[known], second[known], apart[known]
    if not len(apart):
        return (), math.nan, None
    ends = _ends(apart)
    bar = np.searchsorted(ends, apart)
    bars = []
    for place, end in enumerate(ends.tolist()):
        own = np.flatnonzero(bar == place)
        own = own[_draw(len(own), PER_BAR)]
        if len(own) >= LEAST:
            similar = compare.paired(first[own], second[own])
            bars.append(Decay(end, round(float(similar.mean()), 4), len(own)))
    base, gap = _base(members, compare), None
    if bars and bars[0].similarity > base:
        half = HALF * (bars[0].similarity - base)
        for each in itertools.takewhile(lambda each: each.similarity - base >= half, bars):
            gap = each.up_to
    return tuple(bars), round(base, 4), gap


def _at_lags(group: Int64) -> tuple[Int64, Int64]:
    """Return pairs of places of one group, some lags apart in its order."""
    pairs = []
    for lag in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
        own = np.flatnonzero(group[lag:] == group[:-lag]) if lag < len(group) else np.empty(0, int)
        own = own[_draw(len(own), BARS * PER_BAR)]
        pairs.append((own, own + lag))
    first, second = (np.concatenate(ends).astype(np.int64) for ends in zip(*pairs, strict=True))
    return first, second


def _ends(apart: Int64) -> Int64:
    """Return the ends of bars: distances that double every second time, from the smallest."""
    start, last = int(apart.min()), int(apart.max())
    ends = [start]
    while ends[-1] < last and len(ends) < BARS:
        after = max(ends[-1] + start, 2 * ends[-2] if len(ends) > 1 else 2 * start)
        ends.append(min(after, last))
    return np.array(ends, np.int64)


def _base(members: Members, compare: Compare) -> float:
    """Return the mean similarity of images of one group, drawn at random."""
    order = np.argsort(members.group, kind="stable")
    rng = np.random.default_rng(0)
    place = rng.integers(len(order), size=4 * PER_BAR)
    group = members.group[order]
    begin, end = np.searchsorted(group, group[place]), np.searchsorted(group, group[place], "right")
    other = begin + (rng.random(len(place)) * (end - begin)).astype(np.int64)
    first, second = order[place], order[other]
    known = members.content[first] != members.content[second]
    first, second = first[known][:PER_BAR], second[known][:PER_BAR]
    return float(compare.paired(first, second).mean()) if len(first) else math.nan
