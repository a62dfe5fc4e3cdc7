"""The fewest moves that unite every component in one part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visleak.records import Int64


@dataclass(frozen=True)
class Moves:
    """Where images go from the parts they are in.

    Attributes:
        part: ``int64`` (images,): the part of each afterwards.
        straddling: ``int64``: components that were in several parts.
        fewest: how many images have to move at least so that these are in one.
        uniting: how many of them move.
        back: how many others move so that sizes stay.
    """

    part: Int64
    straddling: Int64
    fewest: int
    uniting: int
    back: int = 0


def fewest_moves(component: Int64, owner: Int64, label: Int64, parts: int) -> Moves:
    """Unite every component in the part that has most of it.

    A component of ``n`` images, ``m`` of them in one part, needs ``n - m`` moves to be in that
    part; so the part with the largest ``m`` costs least, and components do not depend on each
    other. Of parts with equally many, the one that leaves sizes and classes nearest to what they
    were.

    Args:
        component: ``int64`` (images,), from 0 on.
        owner: ``int64`` (images,): the part of each now.
        label: ``int64`` (images,): class of each, from 0 on.
        parts: how many there are.

    >>> component, owner = np.array([0, 0, 0, 1]), np.array([0, 1, 1, 0])
    >>> fewest_moves(component, owner, np.zeros(4, np.int64), 2).part.tolist()
    [1, 1, 1, 0]
    """
    counts = np.bincount(component * parts + owner, minlength=(component.max() + 1) * parts)
    counts = counts.reshape(-1, parts)
    straddling = np.flatnonzero((counts > 0).sum(axis=1) > 1)
    chosen = np.full(len(counts), -1, np.int64)
    best = counts[straddling].max(axis=1, initial=0)
    torn = (counts[straddling] == best[:, None]).sum(axis=1) > 1
    order = np.argsort(component, kind="stable")
    begin = np.searchsorted(component[order], np.arange(len(counts) + 1))
    classes = int(label.max()) + 1
    change = np.zeros((parts, classes), np.int64)
    # those that decide themselves come first; the rest then mends what they did to sizes
    for row in np.concatenate([straddling[~torn], straddling[torn]]).tolist():
        members = order[begin[row] : begin[row + 1]]
        own = np.bincount(owner[members] * classes + label[members], minlength=change.size)
        own = own.reshape(change.shape)
        among = np.flatnonzero(counts[row] == counts[row].max())
        united = [change - own for _ in among]
        for after, index in zip(united, among.tolist(), strict=True):
            after[index] += own.sum(axis=0)
        costs = [np.abs(after).sum() + np.abs(after.sum(axis=1)).sum() for after in united]
        least = int(np.argmin(costs))
        chosen[row], change = among[least], united[least]
    goal = chosen[component]
    part = np.where(goal >= 0, goal, owner)
    moved = int((part != owner).sum())
    return Moves(part, straddling, moved, moved)


def kept_sizes(
    moves: Moves, component: Int64, owner: Int64, label: Int64, parts: int, seed: int
) -> Moves:
    """Move whole components the other way until sizes and class counts are as before.

    Two ways: such as are in one part and of one class, small ones before large ones; and components
    that have to be united anyway are united elsewhere, those first that cost the fewest moves for
    their size. The second mends what the first leaves, or is all that is done: sizes decide, then
    classes, then the number of moves. What no component fits is left.

    Args:
        moves: that unite components.
        component, owner: as in :func:`fewest_moves`.
        label: ``int64`` (images,): class of each, from 0 on.
        parts: how many there are.
        seed: decides among components of one size.
    """
    classes = int(label.max(initial=0)) + 1
    now, before = (
        np.bincount(which * classes + label, minlength=parts * classes).reshape(parts, classes)
        for which in (moves.part, owner)
    )
    surplus = now - before
    part = moves.part.copy()
    order, begin = _whole(moves, component, owner, label, seed)
    sizes = np.diff(begin)
    heads = order[begin[:-1]]
    for name in np.flatnonzero((surplus != 0).any(axis=0)).tolist():
        for source in np.flatnonzero(surplus[:, name] > 0).tolist():
            able = np.flatnonzero((label[heads] == name) & (owner[heads] == source))
            for row in able.tolist():
                wanted = np.maximum(-surplus[:, name], 0)
                size = int(sizes[row])
                if not surplus[source, name] or size > min(surplus[source, name], wanted.max()):
                    break  # sizes ascend: nothing further fits
                target = int(np.argmax(wanted))
                part[order[begin[row] : begin[row + 1]]] = target
                surplus[source, name] -= size
                surplus[target, name] += size
    torn = np.isin(component, moves.straddling)

    def off(which: Int64) -> tuple[int, int, int]:
        now = np.bincount(which * classes + label, minlength=parts * classes)
        apart = now.reshape(parts, classes) - before
        moved = int((which != owner).sum())
        return int(np.abs(apart.sum(axis=1)).sum()), int(np.abs(apart).sum()), moved

    ways = [
        way
        for given in (part, moves.part)
        for way in (given, _elsewhere(given, moves.straddling, component, owner, parts))
    ]
    best = min(ways, key=off)
    changed = best != owner
    uniting, back = int(changed[torn].sum()), int(changed[~torn].sum())
    return Moves(best, moves.straddling, moves.fewest, uniting, back)


def _elsewhere(part: Int64, straddling: Int64, component: Int64, owner: Int64, parts: int) -> Int64:
    """Return the parts after uniting components elsewhere, while that brings sizes nearer."""
    counts = np.bincount(component * parts + owner, minlength=(component.max() + 1) * parts)
    own = counts.reshape(-1, parts)[straddling]
    sizes = own.sum(axis=1)
    here = np.zeros(len(own), np.int64)
    rows = np.searchsorted(straddling, component)
    torn = np.isin(component, straddling)
    here[rows[torn]] = part[torn]
    surplus = np.bincount(part, minlength=parts) - np.bincount(owner, minlength=parts)
    while len(own) and surplus.any():
        # moving all of size s from p to q changes the two surpluses by s
        gain = (
            np.abs(surplus[here])[:, None] + np.abs(surplus)
            - np.abs(surplus[here] - sizes)[:, None] - np.abs(surplus + sizes[:, None])
        )  # fmt: skip
        gain[np.arange(len(own)), here] = 0
        extra = own[np.arange(len(own)), here][:, None] - own
        worth = np.where(gain > 0, gain / (np.maximum(extra, 0) + 1.0), 0.0)
        row, target = np.unravel_index(int(np.argmax(worth)), worth.shape)
        if worth[row, target] <= 0:
            break
        surplus[here[row]] -= sizes[row]
        surplus[target] += sizes[row]
        here[row] = target
    return np.where(
        torn, here[np.minimum(rows, max(len(here) - 1, 0))] if len(here) else part, part
    )


def _whole(
    moves: Moves, component: Int64, owner: Int64, label: Int64, seed: int
) -> tuple[Int64, Int64]:
    """Return images of the components that may move, small components first, and their begins.

    May move: what is in one part already, and of one class.
    """
    sizes = np.bincount(component)
    free = np.ones(len(sizes), np.bool_)
    free[moves.straddling] = False
    by_component = np.argsort(component, kind="stable")
    begin = np.concatenate([[0], np.cumsum(sizes)])
    sorted_label = label[by_component]
    first = sorted_label[begin[:-1]]
    mixed = np.unique(component[by_component][sorted_label != np.repeat(first, sizes)])
    free[mixed] = False
    # an image's place in the draw does not depend on how components are numbered
    draw = np.random.default_rng(seed).permutation(len(component))
    chance = np.minimum.reduceat(draw[by_component], begin[:-1])
    chosen = np.flatnonzero(free)
    chosen = chosen[np.lexsort((chance[chosen], sizes[chosen]))]
    rows = [by_component[begin[row] : begin[row + 1]] for row in chosen.tolist()]
    ends = np.concatenate([[0], np.cumsum(sizes[chosen])])
    return np.concatenate([np.empty(0, np.int64), *rows]), ends.astype(np.int64)
