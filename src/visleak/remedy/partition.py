"""``split``: parts of a set between which nothing leaks."""

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
from visleak.options import AUTO, Columns, keywords
from visleak.progress import Progress, silent
from visleak.records import ImageSet
from visleak.remedy.assignment import assign
from visleak.remedy.balance import Balance, Float64, Loads, counted, reasons
from visleak.remedy.found_groups import with_found_groups
from visleak.remedy.graph import Edges, Graph
from visleak.remedy.plan import (
    AUDITED,
    NOT_APPLIED,
    Auditor,
    Plan,
    Split,
    Target,
    Unbalanced,
    planned,
    refuse_output,
    refuse_ungraded,
)
from visleak.remedy.settings import SplitSettings
from visleak.settings import SEEN, Settings
from visleak.storage import AUDIT
from visleak.verdicts import read_verdicts

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
        audited: folder of a finished audit of this very set with itself; its verdicts count. By
            default the set is audited into ``out/audit``.
        apply: write the parts, once an audit of them finds no pair.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: an argument is invalid.
        Unbalanced: the parts were to be written and miss the tolerance; only the plan is written.
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
    auditor = Auditor.of(found, settings.grade, workers, cache, progress)
    graph = Graph.of(found.folder, [images])
    edges = graph.edges(found.folder, {images.name: 0}, settings.grade, auditor.verdicts)
    about = {
        "kind": "split",
        "sources": {images.name: images.source},
        "audit": str(found.folder),
        "grade": settings.grade,
        "stratify": settings.stratify,
        "group": settings.group,
        "seed": settings.seed,
    }

    def accept(plan: Plan) -> None:
        if plan.why and not settings.allow_unbalanced:
            content = plan.write(folder, NOT_APPLIED)
            raise Unbalanced(
                f"the split misses its tolerance of {plan.tolerance:.4g} ({plan.why[0]}); only the"
                " plan was written: raise --tolerance, or write it anyway with --allow-unbalanced",
                content,
            )

    target = Target(folder, found.folder, auditor, apply, settings.format)
    return planned(
        target, graph, lambda known: _plan(graph, known, shares, settings, about), edges, accept
    )


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
    counts = counted(part, len(shares), label, len(classes))
    after = Balance(tuple(shares), targets, classes, counts)
    order = np.argsort(component, kind="stable")
    begin = np.searchsorted(component[order], np.arange(component.max() + 2))

    def describe(number: int) -> str:
        return graph.describe(order[begin[number] : begin[number + 1]])

    tolerance = settings.tolerance
    why = reasons(after, Loads.of(component, label), tolerance, describe)
    return Plan(graph, edges, component, part, after, tolerance, why=why, about=about)


def shares_of(ratios: str | Mapping[str, float]) -> dict[str, float]:
    """Return name and share of each part.

    >>> shares_of("train=80%,test=.2")
    {'train': 0.8, 'test': 0.2}
    """
    pairs = (
        [tuple(map(str.strip, each.partition("=")[::2])) for each in ratios.split(",")]
        if isinstance(ratios, str)
        else [(name, str(share)) for name, share in ratios.items()]
    )
    result: dict[str, float] = {}
    for name, text in pairs:
        share = _share(text)
        if not name or share is None:
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


def _share(text: str) -> float | None:
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        return None
    return value if 0.0 < value < 1.0 else None


def _audited(
    images: ImageSet,
    folder: Path,
    chosen: SplitSettings,
    workers: int | None,
    cache: str | os.PathLike[str] | None,
    progress: Progress,
) -> Audit:
    """Return the audit of a set with itself; one of another set without verdicts is replaced."""
    run = partial(
        audit,
        # groups change no pair: without them one audit serves all choices of groups
        replace(
            images,
            groups=None,
            options={name: value for name, value in images.options.items() if name != "group"},
        ),
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
    refuse_ungraded(found.folder, found.summary)
    within = [c.query_set for c in found.summary.comparisons if c.coverage == "within"]
    sizes = {about.name: about.images for about in found.summary.sets}
    listed, ids = len(images) + len(images.problems), set(images.ids.to_pylist())
    stored = found.images()
    for name in within:
        own = set(stored.filter(pc.equal(stored["set"], name))["id"].to_pylist())
        if sizes[name] == listed and own <= ids:
            return str(name)
    raise UsageError(
        f"{found.folder} did not compare {images.source or images.name} with itself; run `visleak"
        f" audit --set {images.source or 'SOURCE'}`, or omit --audit"
    )
