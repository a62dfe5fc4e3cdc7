"""``fix(A)``: an existing split without leaks, by moving as few images as can be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from visleak.auditing import Audit
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.formats.request import check_groups
from visleak.formats.sources import resolved
from visleak.pipeline import silent
from visleak.pipeline.context import Progress
from visleak.records import ImageSet
from visleak.remedy.applying import Order, conclude
from visleak.remedy.balance import Balance
from visleak.remedy.graph import Graph, Ties
from visleak.remedy.moves import fewest_moves, kept_sizes
from visleak.remedy.neighbours import Neighbours
from visleak.remedy.plan import Plan, Split, counted, refuse_output
from visleak.remedy.proving import Examiner, refuse_ungraded, settings_of
from visleak.remedy.splitting import check_choices
from visleak.storage import SetSummary
from visleak.verdicts import read_verdicts

#: Why the moves are as many as they are.
FEWEST: Final = (
    "every component is united in the set that has most of it; no fewer moves can unite it"
)
MORE: Final = (
    "to keep sizes, some components are united in a set that has less of them; all others in the"
    " one that has most"
)


def fix(
    audited: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    group: str | None = None,
    grade: str = "near",
    keep_sizes: bool = False,
    seed: int = 0,
    apply: bool = False,
    how: str = "manifest",
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
) -> Split:
    """Move as few images as can be between the sets of an audit so that nothing leaks any more.

    All images that belong together come to the set that has most of them already: no fewer moves
    can unite them, and components do not depend on each other. Where two sets have as many, sizes
    decide.

    Args:
        audited: folder of the audit of an existing split: sets of one data set.
        out: folder for the plan, and for the parts if they are written.
        group: column or ``/regex/`` of groups that must not be parted either; by default those
            that the audit was told of.
        grade: that ties images: ``exact``, ``near`` or ``similar``.
        keep_sizes: move others the other way, of the same class, or unite some components in the
            other set, so that sizes and class shares stay.
        seed: decides which those are.
        apply, how, workers, cache, progress: as in :func:`visleak.remedy.split`.

    Raises:
        UsageError: an argument is wrong, or the audit is of no split.
        VisleakError: the audit cannot be worked with, or leaks remain.
    """
    check_choices(grade, 0.0, how)
    folder, found = Path(out), Audit(audited)
    refuse_ungraded(found.folder, found.summary)
    sets = _sets(found, group)
    refuse_output(folder, sets, apply=apply)
    examiner = Examiner(
        settings_of(found.summary),
        grade,
        read_verdicts(found.folder),
        workers=workers,
        cache=cache,
        progress=progress,
    )
    graph = Graph.of(found.folder, sets)
    names = {images.name: index for index, images in enumerate(sets)}
    ties = graph.ties(found.folder, names, grade, examiner.verdicts)
    couples = _compared(found, names)
    whole = [index for index in range(len(sets)) if (index, index) in couples]
    neighbours = Neighbours(examiner, graph, couples, np.isin(graph.owner, whole))
    ties += neighbours.missing()
    about = {
        "kind": "fix",
        "sources": {images.name: images.source for images in sets},
        "audit": str(found.folder),
        "grade": grade,
        "keep_sizes": keep_sizes,
        "group": group,
        "seed": seed,
    }

    def solve(known: Ties) -> Plan:
        return _plan(graph, known, neighbours, keep_sizes, seed, about)

    order = Order(folder, found.folder, examiner, apply=apply, how=how)
    return conclude(order, graph, solve, ties)


def _sets(found: Audit, group: str | None) -> list[ImageSet]:
    """Open the sets of an audit, query sets first.

    Raises:
        UsageError: there is one only, or they are of several data sets or hold no pictures.
    """
    about = found.summary.sets
    if len(about) < 2:
        raise UsageError(
            f"{found.folder} is an audit of one set, so there is no split to mend; split it with"
            " `visleak split S --ratios train=0.8,test=0.2`"
        )
    datasets = sorted({each.dataset for each in about})
    if len(datasets) > 1:
        raise UsageError(
            f"{found.folder} compares data sets ({', '.join(datasets)}); images are moved within"
            " one only: take them out with `visleak purge`"
        )
    sets = [_opened(found, each, group) for each in about]
    check_groups(sets, group)
    return sets


def _opened(found: Audit, about: SetSummary, group: str | None) -> ImageSet:
    """Open a set of an audit, its groups as asked for."""
    images = found.images_of(about.name)
    if not isinstance(images, ImageSet):
        raise UsageError(f"set {about.name!r} holds embeddings only; nothing can be moved")
    if group is None:
        return images
    base = Path(found.summary.opened_in)
    options = dict(about.options) | {"group": group}
    return open_image_set(resolved(about.source, base), name=about.name, **options)


def _compared(found: Audit, index: Mapping[str, int]) -> frozenset[tuple[int, int]]:
    """Return which sets the audit compared with which, as ascending indices."""
    couples = set()
    for each in found.summary.comparisons:
        one, other = sorted((index[each.query_set], index[each.reference_set]))
        couples.add((one, other))
    return frozenset(couples)


def _plan(
    graph: Graph,
    known: Ties,
    neighbours: Neighbours,
    keep_sizes: bool,
    seed: int,
    about: dict[str, Any],
) -> Plan:
    """Decide who moves, and look up the repeats of all who do until there are no new ones."""
    names = tuple(images.name for images in graph.sets)
    count, labelled = len(names), all(images.labels is not None for images in graph.sets)
    label = graph.label if labelled else np.zeros(len(graph), np.int64)
    classes = graph.classes if labelled else ("",)
    while True:
        ties = known + neighbours.found
        component = graph.components(ties)
        moves = fewest_moves(component, graph.owner, label, count)
        if keep_sizes:
            moves = kept_sizes(moves, component, graph.owner, label, count, seed)
        torn = np.isin(component, moves.straddling)
        if not neighbours.look(np.flatnonzero(torn | (moves.part != graph.owner))):
            break
    counts = [counted(part, count, label, len(classes)) for part in (graph.owner, moves.part)]
    shares = counts[0].sum(axis=1) / len(graph)
    before, after = (Balance(names, shares, classes, each) for each in counts)
    told = {
        "images": moves.uniting + moves.back,
        "fewest": moves.fewest,
        "uniting": moves.uniting,
        "keeping_sizes": moves.back,
        "components": len(moves.straddling),
        "why": FEWEST if moves.uniting == moves.fewest else MORE,
    }
    return Plan(
        graph, ties, component, moves.part, after, None, before, about=about | {"moves": told}
    )
