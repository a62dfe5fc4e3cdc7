"""``split(S)``: parts of a set between which nothing leaks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from visleak.auditing import Audit, audit
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.formats.request import check_groups
from visleak.formats.sides import open_set
from visleak.options import Columns, keywords
from visleak.pipeline import silent
from visleak.pipeline.context import Progress
from visleak.records import ImageSet
from visleak.remedy.applying import Order, conclude
from visleak.remedy.assignment import assign
from visleak.remedy.balance import Balance, Float64
from visleak.remedy.graph import TYING, Graph, Ties
from visleak.remedy.loads import Loads
from visleak.remedy.obstacles import obstacles
from visleak.remedy.plan import (
    AUDITED,
    NOTHING_DONE,
    Plan,
    Split,
    Unbalanced,
    counted,
    refuse_output,
)
from visleak.remedy.proving import Examiner, refuse_ungraded, settings_of
from visleak.remedy.shares import shares_of
from visleak.remedy.writing import HOWS
from visleak.settings import Settings
from visleak.storage import AUDIT
from visleak.verdicts import read_verdicts

#: Default of how far sizes and class shares may be off.
TOLERANCE: Final = 0.01

#: The word that stands for a set's own labels.
LABEL: Final = "label"


def split(
    source: str | os.PathLike[str] | ImageSet,
    parts: str | Mapping[str, float],
    *,
    out: str | os.PathLike[str],
    audited: str | os.PathLike[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    stratify: str | None = None,
    group: str | None = None,
    grade: str = "near",
    tolerance: float = TOLERANCE,
    seed: int = 0,
    apply: bool = False,
    how: str = "manifest",
    allow_unbalanced: bool = False,
    encoder: str = "",
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
) -> Split:
    """Split a set so that no two images that belong together come into different parts.

    Images belong together if an audit of the set calls them of the grade or stronger, if their
    bytes are equal, or if they are of one group.

    Args:
        source: the set.
        parts: names and shares, as a mapping or as text: ``train=0.8,test=0.2``.
        out: folder for the plan, and for the parts if they are written.
        audited: folder of a finished audit of this very set with itself; verdicts of people that
            lie there count. By default the set is audited into ``out/audit``.
        id, label, group: columns, as in :func:`visleak.open_images`.
        stratify: hold the shares of classes: ``label``, or the column that the classes are in.
        grade: that ties images: ``exact``, ``near`` or ``similar``.
        tolerance: how far sizes (relative) and class shares (in points) may be off, in [0, 1].
        seed: decides among what is equally good.
        apply: write the parts, once an audit of them finds nothing.
        how: ``manifest``, ``link`` or ``copy``.
        allow_unbalanced: also write what misses the tolerance.
        encoder: of the audit that is made here.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: an argument is wrong.
        Unbalanced: the parts were to be written and miss the tolerance; the plan is there.
        VisleakError: the set or the audit cannot be worked with, or leaks remain.
    """
    shares = shares_of(parts)
    check_choices(grade, tolerance, how)
    columns = Columns(id, column_of(stratify, label), group)
    if isinstance(source, str):
        images = open_set(source, columns)
    else:
        images = open_image_set(source, **keywords(columns))
    check_groups([images], group)
    if stratify is not None and images.labels is None:
        raise UsageError(f"stratify {stratify!r}: {images.source or images.name} has no labels")
    folder = Path(out)
    refuse_output(folder, [images], apply=apply)
    if audited is None:
        found = _audited_here(images, folder / AUDITED, encoder, workers, cache, progress)
    else:
        found = Audit(audited)
        images = replace(images, name=_name_in(found, images))
    examiner = Examiner(
        settings_of(found.summary),
        grade,
        read_verdicts(found.folder),
        workers=workers,
        cache=cache,
        progress=progress,
    )
    graph = Graph.of(found.folder, [images])
    ties = graph.ties(found.folder, {images.name: 0}, grade, examiner.verdicts)
    about = {
        "kind": "split",
        "sources": {images.name: images.source},
        "audit": str(found.folder),
        "grade": grade,
        "stratify": stratify,
        "group": group,
        "seed": seed,
    }

    def solve(known: Ties) -> Plan:
        return _plan(graph, known, shares, stratify is not None, tolerance, seed, about)

    def accept(plan: Plan) -> None:
        if plan.why and not allow_unbalanced:
            _refuse_unbalanced(plan, folder)

    order = Order(folder, found.folder, examiner, apply=apply, how=how)
    return conclude(order, graph, solve, ties, accept)


def _refuse_unbalanced(plan: Plan, out: Path) -> None:
    """Write a plan that misses its tolerance, and refuse to go on.

    Raises:
        Unbalanced: always.
    """
    content = plan.write(out, NOTHING_DONE)
    raise Unbalanced(
        f"the split misses its tolerance of {plan.tolerance:.4g} ({plan.why[0]}); only the plan was"
        " written: raise --tolerance, or write it all the same with --allow-unbalanced",
        content,
    )


def _plan(
    graph: Graph,
    ties: Ties,
    shares: Mapping[str, float],
    stratified: bool,
    tolerance: float,
    seed: int,
    about: dict[str, Any],
) -> Plan:
    component = graph.components(ties)
    label = graph.label if stratified else np.zeros(len(graph), np.int64)
    classes = graph.classes if stratified else ("",)
    values: Float64 = np.array(list(shares.values()), np.float64)
    loads = Loads.of(component, label)
    part = assign(component, label, values, seed)[component]
    after = Balance(tuple(shares), values, classes, counted(part, len(shares), label, len(classes)))
    order = np.argsort(component, kind="stable")
    begin = np.searchsorted(component[order], np.arange(component.max() + 2))

    def called(number: int) -> str:
        return graph.called(order[begin[number] : begin[number + 1]])

    why = obstacles(after, loads, tolerance, called)
    return Plan(graph, ties, component, part, after, tolerance, why=why, about=about)


def column_of(stratify: str | None, label: str | None) -> str | None:
    """Return the column that labels come from; ``None`` for the usual one.

    Raises:
        UsageError: two different ones are asked for.
    """
    if stratify in (None, LABEL):
        return label
    if label not in (None, stratify):
        raise UsageError(f"stratify {stratify!r} and label {label!r} name two columns; give one")
    return stratify


def check_choices(grade: str, tolerance: float, how: str) -> None:
    """Refuse words and numbers that are none.

    Raises:
        UsageError: see its message.
    """
    if grade not in TYING:
        raise UsageError(f"grade must be one of {', '.join(TYING)}; got {grade!r}")
    if not 0.0 <= tolerance <= 1.0:
        raise UsageError(f"tolerance must be a share from 0 to 1; got {tolerance}")
    if how not in HOWS:
        raise UsageError(f"as must be one of {', '.join(HOWS)}; got {how!r}")


def _audited_here(
    images: ImageSet,
    folder: Path,
    encoder: str,
    workers: int | None,
    cache: str | os.PathLike[str] | None,
    progress: Progress,
) -> Audit:
    wishes: dict[str, Any] = {
        "settings": Settings(encoder=encoder),
        "out": folder,
        "workers": workers,
        "cache": cache,
        "progress": progress,
    }
    # groups change no pair: without them the same audit serves every choice of groups
    bare = replace(images, groups=None)
    try:
        return audit(bare, **wishes)
    except UsageError:
        if not (folder / AUDIT).is_file():
            raise
    if read_verdicts(folder):
        raise UsageError(
            f"{folder} is an audit of another set, or of this one before it changed, and people"
            " judged pairs there; choose a new folder with -o DIR"
        )
    return audit(bare, force=True, **wishes)


def _name_in(found: Audit, images: ImageSet) -> str:
    """Return what an audit calls a set that it compared with itself.

    Raises:
        UsageError: it compared none with itself, or another one.
    """
    refuse_ungraded(found.folder, found.summary)
    within = [c.query_set for c in found.summary.comparisons if c.coverage == "within"]
    sizes = {about.name: about.images for about in found.summary.sets}
    listed = len(images) + len(images.problems)
    for name in within:
        stored = found.images()
        own = set(stored.filter(pc.equal(stored["set"], name))["id"].to_pylist())
        if sizes[name] == listed and own <= set(images.ids.to_pylist()):
            return str(name)
    raise UsageError(
        f"{found.folder} did not compare {images.source or images.name} with itself; run `visleak"
        f" audit --set {images.source or 'S'}`, or leave --audit out"
    )
