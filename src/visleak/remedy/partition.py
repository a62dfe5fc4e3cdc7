"""``split``: parts of a set without leaks between them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc

from visleak.auditing import Audit, audit
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.formats.opening import open_set
from visleak.formats.request import check_pattern
from visleak.options import AUTO, Columns, keywords, share_of
from visleak.progress import Progress, silent
from visleak.records import Bool, Float64, ImageSet, Int64
from visleak.remedy.balance import (
    Balance,
    Loads,
    count_by_part,
    deviations,
    max_points,
    points_of,
    reasons,
)
from visleak.remedy.graph import Edges, Graph, refuse_ungraded, with_found_groups
from visleak.remedy.plan import (
    AUDITED,
    NOT_APPLIED,
    Auditor,
    Plan,
    Split,
    UnbalancedSplit,
    carry_out,
    refuse_output,
)
from visleak.remedy.settings import SplitSettings
from visleak.settings import SEEN, Settings
from visleak.storage import AUDIT
from visleak.verdicts import read_verdicts

# -- the part of each component, so that sizes and class shares are close to their targets ---------

# Components are items with one weight per class, parts are bins with one target per class:
# multi-dimensional bin assignment, which is NP-hard. Large components are assigned first, each
# to the largest deficit; single images fill the rest, class by class; moves and swaps reduce the
# remaining deviations. The tests compare with exact solutions of small instances.

#: Attempts in different orders, and components in all of them, at most.
ATTEMPTS: Final = 100
COMPONENTS: Final = 3_000

PATIENCE: Final = 50  # attempts in a row without improvement before the search ends

#: Rounds of improvement per attempt, and numbers computed per round, at most.
ROUNDS: Final = 300
WORK: Final = 400_000

HALF_AN_IMAGE: Final = 0.5 + 1e-9  # deviations of up to this many images cannot be improved
IDLE: Final = 3  # rounds without improvement before an attempt ends
EVENNESS: Final = 1e-3  # weight of all deviations together relative to the largest


def assign(component: Int64, stratum: Int64, shares: Float64, seed: int = 0) -> Int64:
    """Return the part of every component, by classes (``stratum``) and target shares of images."""
    loads = Loads.of(component, stratum)
    rng = np.random.default_rng(seed)
    single = loads.sizes == 1
    several = max(int((~single).sum()), 1)
    best, lowest, since = np.zeros(len(single), np.int64), np.inf, 0
    for attempt in range(max(1, min(ATTEMPTS, COMPONENTS // several))):
        part = _filled(loads, single, shares, rng, shuffled=attempt > 0)
        part = _improved(loads, single, part, shares, rng)
        counts = loads.counts_of(part, len(shares))
        reached = _score(counts, shares)
        since += 1
        if reached < lowest - 1e-12:
            best, lowest, since = part, reached, 0
        if since > PATIENCE or _is_even(counts, shares):
            break
    return best


# -- a first assignment --------------------------------------------------------------------------


def _filled(
    loads: Loads, single: Bool, shares: Float64, rng: np.random.Generator, *, shuffled: bool
) -> Int64:
    """Assign large components first, each to the largest deficit, and single images last."""
    part = np.zeros(len(single), np.int64)
    totals = np.bincount(loads.classes, loads.counts, loads.width).astype(np.int64)
    room = shares[:, None] * totals
    big = np.flatnonzero(~single)
    sizes = loads.sizes[big].astype(np.float64)
    if shuffled:
        sizes *= rng.uniform(0.2, 1.8, len(big))
    order = big[np.lexsort((rng.permutation(len(big)), -sizes))]
    part[order], rooms = _greedy(loads, order, room, shares)
    alone = rng.permutation(np.flatnonzero(single))
    owner = loads.classes[loads.begin[alone]]
    supply = np.bincount(owner, minlength=loads.width)
    given = _shared_out(supply, rooms, shares)
    # sorted by class: the first images of each class are assigned to the first part, and so on
    by_class = alone[np.argsort(owner, kind="stable")]
    part[by_class] = np.repeat(np.tile(np.arange(len(shares)), loads.width), given.T.ravel())
    return part


def _greedy(loads: Loads, order: Int64, room: Float64, shares: Float64) -> tuple[Int64, Float64]:
    """Return the part of each component in an order, and the remaining deficits.

    Each component is assigned to the part where it adds least to the squared deviations relative to
    the target. Plain Python, because loads are sparse and each step changes the deficits.
    """
    rooms, left = room.tolist(), room.sum(axis=1).tolist()
    weights = (1.0 / shares).tolist()
    begin, classes, counts = loads.begin.tolist(), loads.classes.tolist(), loads.counts.tolist()
    chosen = []
    for row in order.tolist():
        entries = [(classes[i], counts[i]) for i in range(begin[row], begin[row + 1])]
        size = sum(count for _, count in entries)
        best, least = 0, np.inf
        for p, weight in enumerate(weights):
            own = rooms[p]
            added = size * (size - 2.0 * left[p])
            for name, count in entries:
                added += count * (count - 2.0 * own[name])
            if added * weight < least:
                best, least = p, added * weight
        chosen.append(best)
        left[best] -= size
        for name, count in entries:
            rooms[best][name] -= count
    return np.array(chosen, np.int64), np.array(rooms).reshape(room.shape)


def _shared_out(supply: Int64, room: Float64, shares: Float64) -> Int64:
    """Return the number of single images of each class for each part, (parts, classes).

    ``supply``: how many there are, (classes,); ``room``: deficits in images, (parts, classes),
    whose sum over the parts is the supply; negative where there are too many already.
    """
    real, target = np.maximum(room, 0.0), shares[:, None]
    for _ in range(len(shares)):
        # if some parts are overfull, the others get fewer images, in proportion to their shares
        over = real.sum(axis=0) - supply
        active = real > 0
        weight = (target * active).sum(axis=0)
        less = target * over / np.where(weight > 0, weight, 1)
        real = np.maximum(np.where(active, real - less, 0.0), 0.0)
    given = np.floor(real + 1e-9).astype(np.int64)
    given -= np.maximum(given - supply, 0)  # rounding never exceeds the supply
    left = room.sum(axis=1) - given.sum(axis=1)
    for name in np.argsort(-supply, kind="stable").tolist():
        for _ in range(int(supply[name] - given[:, name].sum())):
            missing = room[:, name] - given[:, name]
            p = int(np.argmin((1.0 - 2.0 * missing + 1.0 - 2.0 * left) / shares))
            given[p, name] += 1
            left[p] -= 1
    return given


# -- moves and swaps -----------------------------------------------------------------------------


def _improved(
    loads: Loads, single: Bool, part: Int64, shares: Float64, rng: np.random.Generator
) -> Int64:
    part = part.copy()
    counts = loads.counts_of(part, len(shares))
    reached, idle = _score(counts, shares), 0
    # if only a sample of the candidates is compared, further samples are tried before the end
    patience = IDLE if (~single).sum() + loads.width > _most(loads) else 0
    for _ in range(ROUNDS):
        if _is_even(counts, shares) or idle > patience:
            break
        better, changes = _best_change(loads, single, part, counts, shares, rng)
        if better >= reached - 1e-12:
            idle += 1
            continue
        for row, to in changes:
            part[row] = to
        counts = loads.counts_of(part, len(shares))
        reached, idle = better, 0
    return part


def _best_change(
    loads: Loads,
    single: Bool,
    part: Int64,
    counts: Int64,
    shares: Float64,
    rng: np.random.Generator,
) -> tuple[float, list[tuple[int, int]]]:
    """Return the score after the best move or swap of the most deviating part, and the moves."""
    sizes, classes = points_of(counts, shares)
    worst = int(np.argmax(np.maximum(sizes, classes.max(axis=1))))
    most = _most(loads)
    own = _candidates(loads, single, part == worst, most, rng)
    best: tuple[float, list[tuple[int, int]]] = (np.inf, [])
    for other in np.delete(np.arange(len(shares)), worst).tolist():
        others = _candidates(loads, single, part == other, most, rng)
        found, out, into = _best_of(loads, (own, others), (worst, other), counts, shares)
        if found < best[0]:
            moves = [(int(own[out]), other), (int(others[into]), worst)]
            best = found, [move for move in moves if move[0] >= 0]
    return best


def _most(loads: Loads) -> int:
    """Return the number of candidates per side that are compared."""
    return max(2, int(np.sqrt(WORK / loads.width)))


def _candidates(
    loads: Loads, single: Bool, inside: Bool, most: int, rng: np.random.Generator
) -> Int64:
    """Return the candidates to leave a part: none (-1), components, one single image per class."""
    several = np.flatnonzero(inside & ~single)
    alone = np.flatnonzero(inside & single)
    _, first = np.unique(loads.classes[loads.begin[alone]], return_index=True)
    chosen = np.concatenate([several, alone[first]])
    if len(chosen) > most - 1:
        chosen = np.sort(rng.choice(chosen, most - 1, replace=False))
    return np.concatenate([[-1], chosen]).astype(np.int64)


def _best_of(
    loads: Loads,
    candidates: tuple[Int64, Int64],
    between: tuple[int, int],
    counts: Int64,
    shares: Float64,
) -> tuple[float, int, int]:
    """Return the best score of all exchanges between two parts, and the candidate of each side."""
    leaving, coming = (
        np.concatenate([np.zeros((1, loads.width), np.int64), loads.dense(rows[1:])])
        for rows in candidates
    )
    whole, total = counts.sum(axis=0), int(counts.sum())
    change = coming[None, :, :] - leaving[:, None, :]
    rest = np.delete(np.arange(len(shares)), between)
    highest, uneven = np.zeros(change.shape[:2]), np.zeros(change.shape[:2])
    if len(rest):
        sizes, classes = points_of(counts, shares)
        highest[:] = max(sizes[rest].max(), classes[rest].max())
        uneven[:] = _unevenness(counts[rest], shares[rest, None], whole, total).sum()
    for p, sign in zip(between, (1, -1), strict=True):
        new = counts[p] + sign * change
        size = new.sum(axis=2)
        np.maximum(highest, np.abs(size / (shares[p] * total) - 1.0), out=highest)
        points = np.abs(new / np.maximum(size, 1)[:, :, None] - whole / total)
        np.maximum(highest, points.max(axis=2), out=highest)
        uneven += _unevenness(new, shares[p], whole, total)
    scores = highest + EVENNESS * uneven
    out, into = np.unravel_index(int(np.argmin(scores)), scores.shape)
    return float(scores[out, into]), int(out), int(into)


def _score(counts: Int64, shares: Float64) -> float:
    whole = counts.sum(axis=0)
    uneven = _unevenness(counts, shares[:, None], whole, max(int(whole.sum()), 1))
    return max_points(counts, shares) + EVENNESS * float(uneven.sum())


def _unevenness(counts: Int64, shares: Float64 | np.float64, whole: Int64, total: int) -> Float64:
    """Return the summed squared deviations from the targets, relative to the sizes."""
    return np.asarray((((counts - shares * whole) / (shares * total)) ** 2).sum(axis=-1))


def _is_even(counts: Int64, shares: Float64) -> bool:
    """Whether no deviation exceeds half an image, so no assignment is better."""
    sizes, classes = deviations(counts, shares)
    return bool(max(np.abs(sizes).max(), np.abs(classes).max()) <= HALF_AN_IMAGE)


# -- the command -----------------------------------------------------------------------------------


_DEFAULTS: Final = SplitSettings()


def split(
    source: str | os.PathLike[str] | ImageSet,
    ratios: str | Mapping[str, float],
    settings: SplitSettings = _DEFAULTS,
    *,
    out: str | os.PathLike[str],
    audited: str | os.PathLike[str] | None = None,
    apply: bool = False,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
) -> Split:
    """Split a set so that no component of connected images is separated.

    Images are connected if an audit of the set grades their pair as strong enough, if their bytes
    are equal, or if they have the same group.

    Args:
        source: the set.
        ratios: names and shares, as a mapping or as text: ``train=0.8,test=0.2``.
        settings: what connects images, and the balance of the parts.
        out: folder for the plan, and for the parts if they are written.
        audited: folder of a finished audit of this set with itself, whose verdicts count. By
            default the set is audited into ``out/audit``.
        apply: write the parts if an audit of them finds no pair.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: an argument is invalid.
        UnbalancedSplit: the parts miss the tolerance, so only the plan was written.
        VisleakError: the set or the audit cannot be used, or leaks remain.
    """
    shares, folder = shares_of(ratios), Path(out)
    columns = Columns(settings.id, settings.label_source, settings.group)
    if isinstance(source, str):
        images = open_set(source, columns)
    else:
        images = open_image_set(source, **keywords(columns))
    check_pattern([images], "group", settings.group)
    if settings.stratify is not None and images.labels is None:
        shown = images.source or images.name
        raise UsageError(f"stratify {settings.stratify!r}: {shown} has no labels")
    refuse_output(folder, [images], apply=apply)
    if audited is None:
        found = _audited(images, folder / AUDITED, settings, workers, cache, progress)
    else:
        found = Audit(audited)
        images = replace(images, name=_name_in(found, images))
        if settings.overlap and found.summary.settings.overlap is None:
            raise UsageError(
                f"overlap: {found.folder} did not measure overlaps; run `visleak audit` with"
                " --overlap 10%, or omit --audit"
            )
    if settings.group == AUTO:
        (images,) = with_found_groups(found, [images], yes=settings.yes)
    auditor = Auditor(found, settings.grade, workers, cache, progress)
    graph = Graph.of(found.folder, [images])
    edges = graph.edges(found.folder, {images.name: 0}, settings.grade, auditor.verdicts)
    about = {
        "kind": "split",
        "sources": {images.name: images.source},
        "audit": str(found.folder),
        **{name: getattr(settings, name) for name in ("grade", "stratify", "group", "seed")},
    }

    def solve(known: Edges) -> Plan:
        return _plan(graph, known, shares, settings, about)

    def accept(plan: Plan) -> None:
        if plan.why and not settings.allow_unbalanced:
            raise UnbalancedSplit(
                f"the split misses its tolerance of {plan.tolerance:.4g} ({plan.why[0]}); only the"
                " plan was written: raise --tolerance, or write it anyway with --allow-unbalanced",
                plan.write(folder, NOT_APPLIED),
            )

    return carry_out(solve, edges, auditor, folder, settings.format if apply else None, accept)


def _plan(
    graph: Graph,
    edges: Edges,
    shares: Mapping[str, float],
    settings: SplitSettings,
    about: Mapping[str, object],
) -> Plan:
    component = graph.components(edges)
    stratified = settings.stratify is not None
    label = graph.label if stratified else np.zeros(len(graph), np.int64)
    classes = graph.classes if stratified else ("",)
    targets: Float64 = np.array(list(shares.values()), np.float64)
    part = assign(component, label, targets, settings.seed)[component]
    counts = count_by_part(part, len(shares), label, len(classes))
    after = Balance(tuple(shares), targets, classes, counts)
    order = np.argsort(component, kind="stable")
    begin = np.searchsorted(component[order], np.arange(component.max() + 2))

    def describe(number: int) -> str:
        return graph.describe(order[begin[number] : begin[number + 1]])

    tolerance = settings.tolerance
    why = reasons(after, Loads.of(component, label), tolerance, describe)
    return Plan(graph, edges, component, part, after, tolerance, why=why, about=about)


def shares_of(ratios: str | Mapping[str, float]) -> dict[str, float]:
    """Return the share of each part by name.

    >>> shares_of("train=80%,test=.2")
    {'train': 0.8, 'test': 0.2}
    """
    if isinstance(ratios, str):
        pairs = [tuple(map(str.strip, each.partition("=")[::2])) for each in ratios.split(",")]
    else:
        pairs = [(name, str(share)) for name, share in ratios.items()]
    result: dict[str, float] = {}
    for name, text in pairs:
        share = share_of(text)
        if not name or not share or share == 1:
            raise UsageError(
                "parts are names with shares between 0 and 1, such as train=0.8,test=0.2; got"
                f" {name}={text}"
            )
        if name.startswith(".") or "/" in name:
            raise UsageError(f"part {name!r} cannot be the name of a folder; choose another")
        if name in result:
            raise UsageError(f"two parts are called {name!r}; names must differ")
        result[name] = share
    total = sum(result.values())
    if len(result) < 2 or not math.isclose(total, 1.0, abs_tol=1e-6):
        raise UsageError(
            f"parts must be two or more, and their shares add up to 1; got {len(result)} that add"
            f" up to {total:.6g}"
        )
    return result


def _audited(
    images: ImageSet,
    folder: Path,
    chosen: SplitSettings,
    workers: int | None,
    cache: str | os.PathLike[str] | None,
    progress: Progress,
) -> Audit:
    """Return the audit of a set with itself; one of another set without verdicts is replaced."""
    # without groups, which do not change pairs, one audit is valid for all choices of groups
    options = {name: value for name, value in images.options.items() if name != "group"}
    run = partial(
        audit,
        replace(images, groups=None, options=options),
        settings=Settings(encoder=chosen.encoder, overlap=SEEN if chosen.overlap else None),
        out=folder,
        workers=workers,
        cache=cache,
        progress=progress,
    )
    try:
        return run()
    except UsageError:
        if not (folder / AUDIT).is_file():
            raise
    if read_verdicts(folder):
        raise UsageError(
            f"{folder} is an audit of another set, or of this one before it changed, and people"
            " judged pairs there; choose a new folder with -o DIR"
        )
    return run(force=True)


def _name_in(found: Audit, images: ImageSet) -> str:
    """Return the name of a set in an audit that compared it with itself."""
    refuse_ungraded(found.folder, found.summary)
    within = {c.query_set for c in found.summary.comparisons if c.coverage == "within"}
    listed, ids = len(images) + len(images.problems), set(images.ids.to_pylist())
    stored = found.images()
    for about in found.summary.sets:
        if about.name in within and about.images == listed:
            own = stored.filter(pc.equal(stored["set"], about.name))["id"].to_pylist()
            if ids.issuperset(own):
                return about.name
    raise UsageError(
        f"{found.folder} did not compare {images.source or images.name} with itself; run `visleak"
        f" audit --set {images.source or 'SOURCE'}`, or omit --audit"
    )
