"""``repair``: moves of images that unite every component of a split in one part."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from visleak.auditing import Audit
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.formats.request import check_pattern
from visleak.formats.sources import resolved
from visleak.options import AUTO
from visleak.progress import Progress, silent
from visleak.records import Bool, ImageSet, Int64
from visleak.remedy.balance import Balance, count_by_part
from visleak.remedy.graph import NO_EDGES, Edges, Graph, refuse_ungraded, with_found_groups
from visleak.remedy.plan import (
    Auditor,
    Plan,
    Split,
    carry_out,
    refuse_output,
)
from visleak.remedy.settings import RepairSettings

_DEFAULTS: Final = RepairSettings()

#: Explanations of the number of moves.
FEWEST: Final = (
    "every component is united in the set that has most of it; no fewer moves can unite it"
)
MORE: Final = (
    "to keep sizes, some components are united in a set that has less of them; all others in the"
    " one that has most"
)


def repair(
    audited: str | os.PathLike[str],
    settings: RepairSettings = _DEFAULTS,
    *,
    out: str | os.PathLike[str],
    apply: bool = False,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
) -> Split:
    """Move as few images as possible between the sets of an audit so that nothing leaks.

    Every component of connected images is united in the set that has most of it, which needs the
    fewest moves. If several sets have most of it, sizes decide.

    Args:
        audited: folder of the audit of an existing split: sets of one dataset.
        settings: what connects images; groups are by default those of the audit.
        out: folder for the plan, and for the parts if they are written.
        apply, workers, cache, progress: as in :func:`visleak.remedy.split`.

    Raises:
        UsageError: an argument is invalid, or the audit is not of a split.
        VisleakError: the audit cannot be used, or leaks remain.
    """
    folder, found = Path(out), Audit(audited)
    refuse_ungraded(found.folder, found.summary)
    sets = _sets(found, None if settings.group == AUTO else settings.group)
    if settings.group == AUTO:
        sets = with_found_groups(found, sets, yes=settings.yes)
    refuse_output(folder, sets, apply=apply)
    auditor = Auditor(found, settings.grade, workers, cache, progress)
    graph = Graph.of(found.folder, sets)
    names = {images.name: index for index, images in enumerate(sets)}
    compared = {
        tuple(sorted((names[each.query_set], names[each.reference_set])))
        for each in found.summary.comparisons
    }
    whole = [index for index in range(len(sets)) if (index, index) in compared]
    duplicates = _SetDuplicates(auditor, graph, np.isin(graph.owner, whole))
    edges = graph.edges(found.folder, names, settings.grade, auditor.verdicts)
    # sets that the audit did not compare with each other
    for couple in itertools.combinations(range(len(sets)), 2):
        if couple not in compared:
            rows = sorted((np.flatnonzero(graph.owner == index) for index in couple), key=len)
            edges += auditor.between(graph, *rows)
    about = {
        "kind": "fix",
        "sources": {images.name: images.source for images in sets},
        "audit": str(found.folder),
        **{name: getattr(settings, name) for name in ("grade", "keep_sizes", "group", "seed")},
    }

    def solve(known: Edges) -> Plan:
        return _plan(graph, known, duplicates, settings, about)

    return carry_out(solve, edges, auditor, folder, settings.format if apply else None)


def _sets(found: Audit, group: str | None) -> list[ImageSet]:
    """Open the sets of an audit, query sets first, with the groups of the settings."""
    about = found.summary.sets
    if len(about) < 2:
        raise UsageError(
            f"{found.folder} is an audit of one set, so there is no split to repair; split it with"
            " `visleak split SOURCE --ratios train=0.8,test=0.2`"
        )
    datasets = sorted({each.dataset for each in about})
    if len(datasets) > 1:
        raise UsageError(
            f"{found.folder} compares datasets ({', '.join(datasets)}); images are moved within"
            " one only: remove them with `visleak purge`"
        )
    sets = []
    for each in about:
        images = found.images_of(each.name)
        if not isinstance(images, ImageSet):
            raise UsageError(f"set {each.name!r} has embeddings only; nothing can be moved")
        if group is not None:
            source = resolved(each.source, Path(found.summary.opened_in))
            images = open_image_set(source, name=each.name, **{**each.options, "group": group})
        sets.append(images)
    check_pattern(sets, "group", group)
    return sets


@dataclass
class _SetDuplicates:
    """Duplicates of moving images within the sets that they leave.

    An audit does not compare train with itself, so an image that leaves train might leave a copy
    behind.
    """

    auditor: Auditor
    graph: Graph
    known: Bool  # (images,): duplicates within the image's own set are known
    found: Edges = NO_EDGES

    def search(self, rows: Int64) -> bool:
        """Search for duplicates of images within their sets; return whether any row was new."""
        new = rows[~self.known[rows]]
        for index in np.unique(self.graph.owner[new]).tolist():
            own = np.flatnonzero(self.graph.owner == index)
            moving = new[self.graph.owner[new] == index]
            self.found += self.auditor.between(self.graph, moving, own)
        self.known[new] = True
        return bool(len(new))


def _plan(
    graph: Graph,
    known: Edges,
    duplicates: _SetDuplicates,
    settings: RepairSettings,
    about: Mapping[str, object],
) -> Plan:
    """Choose the moves, and search for duplicates of moving images until there are no new ones."""
    names = tuple(images.name for images in graph.sets)
    count, labelled = len(names), all(images.labels is not None for images in graph.sets)
    label = graph.label if labelled else np.zeros(len(graph), np.int64)
    classes = graph.classes if labelled else ("",)
    while True:
        edges = known + duplicates.found
        component = graph.components(edges)
        moves = fewest_moves(component, graph.owner, label, count)
        if settings.keep_sizes:
            moves = kept_sizes(moves, component, graph.owner, label, count, settings.seed)
        torn = np.isin(component, moves.straddling)
        if not duplicates.search(np.flatnonzero(torn | (moves.part != graph.owner))):
            break
    counts = [count_by_part(part, count, label, len(classes)) for part in (graph.owner, moves.part)]
    shares = counts[0].sum(axis=1) / len(graph)
    before, after = (Balance(names, shares, classes, each) for each in counts)
    summary = {
        "images": moves.uniting + moves.back,
        "fewest": moves.fewest,
        "uniting": moves.uniting,
        "keeping_sizes": moves.back,
        "components": len(moves.straddling),
        "why": FEWEST if moves.uniting == moves.fewest else MORE,
    }
    return Plan(
        graph, edges, component, moves.part, after, None, before, about={**about, "moves": summary}
    )


# -- moves ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moves:
    """Moves of images between parts."""

    part: Int64  # (images,): the part of each afterwards
    straddling: Int64  # components that were in several parts
    fewest: int  # minimum number of moves that unites them
    uniting: int  # moves of images in these components
    back: int = 0  # moves of other images, to keep sizes


def fewest_moves(component: Int64, owner: Int64, label: Int64, parts: int) -> Moves:
    """Unite every component in the part that has most of it.

    A component of ``n`` images, ``m`` of them in one part, needs ``n - m`` moves to be in that
    part, so the part with the largest ``m`` needs fewest. Between parts with equally many images,
    sizes and classes decide.

    >>> component, owner = np.array([0, 0, 0, 1]), np.array([0, 1, 1, 0])
    >>> fewest_moves(component, owner, np.zeros(4, np.int64), 2).part.tolist()
    [1, 1, 1, 0]
    """
    counts = count_by_part(component, int(component.max()) + 1, owner, parts)
    straddling = np.flatnonzero((counts > 0).sum(axis=1) > 1)
    chosen = np.full(len(counts), -1, np.int64)
    best = counts[straddling].max(axis=1, initial=0)
    torn = (counts[straddling] == best[:, None]).sum(axis=1) > 1
    order = np.argsort(component, kind="stable")
    begin = np.searchsorted(component[order], np.arange(len(counts) + 1))
    classes = int(label.max()) + 1
    change = np.zeros((parts, classes), np.int64)
    # components without a choice come first; the others then restore sizes
    for row in np.concatenate([straddling[~torn], straddling[torn]]).tolist():
        members = order[begin[row] : begin[row + 1]]
        own = count_by_part(owner[members], parts, label[members], classes)
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

    First, components within one part and of one class move, small ones before large ones. Second,
    straddling components are united in another part, those with the fewest moves for their size
    first. Of all combinations the best is used: by sizes, then classes, then the number of moves.
    Differences that fit no component remain.
    """
    classes = int(label.max(initial=0)) + 1
    before = count_by_part(owner, parts, label, classes)
    surplus = count_by_part(moves.part, parts, label, classes) - before
    part = moves.part.copy()
    order, begin = _whole(moves, component, label, seed)
    sizes, heads = np.diff(begin), order[begin[:-1]]
    for name in np.flatnonzero((surplus != 0).any(axis=0)).tolist():
        for source in np.flatnonzero(surplus[:, name] > 0).tolist():
            able = np.flatnonzero((label[heads] == name) & (owner[heads] == source))
            for row in able.tolist():
                wanted = np.maximum(-surplus[:, name], 0)
                size = int(sizes[row])
                if not surplus[source, name] or size > min(surplus[source, name], wanted.max()):
                    break  # sizes ascend: no further component fits
                target = int(np.argmax(wanted))
                part[order[begin[row] : begin[row + 1]]] = target
                surplus[source, name] -= size
                surplus[target, name] += size

    def distance(which: Int64) -> tuple[int, int, int]:
        apart = count_by_part(which, parts, label, classes) - before
        moved = int((which != owner).sum())
        return int(np.abs(apart.sum(axis=1)).sum()), int(np.abs(apart).sum()), moved

    options = [
        option
        for given in (part, moves.part)
        for option in (given, _elsewhere(given, moves.straddling, component, owner, parts))
    ]
    best = min(options, key=distance)
    torn, changed = np.isin(component, moves.straddling), best != owner
    uniting, back = int(changed[torn].sum()), int(changed[~torn].sum())
    return Moves(best, moves.straddling, moves.fewest, uniting, back)


def _elsewhere(part: Int64, straddling: Int64, component: Int64, owner: Int64, parts: int) -> Int64:
    """Return the parts after uniting components in other parts while sizes improve."""
    own = count_by_part(component, int(component.max()) + 1, owner, parts)[straddling]
    sizes = own.sum(axis=1)
    here = np.zeros(len(own), np.int64)
    rows = np.searchsorted(straddling, component)
    torn = np.isin(component, straddling)
    here[rows[torn]] = part[torn]
    surplus = np.bincount(part, minlength=parts) - np.bincount(owner, minlength=parts)
    while len(own) and surplus.any():
        # moving a component of size s from p to q changes both surpluses by s
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
    result = part.copy()
    result[torn] = here[rows[torn]]
    return result


def _whole(moves: Moves, component: Int64, label: Int64, seed: int) -> tuple[Int64, Int64]:
    """Return the images of components in one part and of one class, small first, and begins."""
    sizes = np.bincount(component)
    by_component = np.argsort(component, kind="stable")
    begin = np.concatenate([[0], np.cumsum(sizes)])
    sorted_label = label[by_component]
    mixed = component[by_component][sorted_label != np.repeat(sorted_label[begin[:-1]], sizes)]
    free = np.ones(len(sizes), np.bool_)
    free[moves.straddling] = free[mixed] = False
    # independent of the numbers of components
    draw = np.random.default_rng(seed).permutation(len(component))
    chance = np.minimum.reduceat(draw[by_component], begin[:-1])
    chosen = np.flatnonzero(free)
    chosen = chosen[np.lexsort((chance[chosen], sizes[chosen]))]
    rows = [by_component[begin[row] : begin[row + 1]] for row in chosen.tolist()]
    ends = np.concatenate([[0], np.cumsum(sizes[chosen])])
    return np.concatenate([np.empty(0, np.int64), *rows]), ends.astype(np.int64)
