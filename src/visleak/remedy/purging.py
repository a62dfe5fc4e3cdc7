"""Data sets without the images that leak: what would go, and writing what stays."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit
from visleak.errors import UsageError, VisleakError
from visleak.pipeline import chance
from visleak.pipeline.context import Progress, silent
from visleak.records import ImageSet
from visleak.remedy.advice import advise, chosen_sets
from visleak.remedy.contents import refuse_changed
from visleak.remedy.leaving import plan_set
from visleak.remedy.parts import Part, Piece
from visleak.remedy.purge_plan import Purge, SetPlan, Wish
from visleak.remedy.results import Written
from visleak.remedy.writing import write
from visleak.storage import (
    IMAGES,
    UNREADABLE,
    AuditSummary,
    read_problems,
    read_summary,
    read_table,
    refuse_sets,
)
from visleak.verdicts import disputed, judged_pairs

_COLUMNS: Final = (
    "query_set",
    "query",
    "reference_set",
    "reference",
    "similarity",
    "grade",
    "degree",
    "coverage",
    "judged",
)


def purge(
    audit: str | os.PathLike[str] | Audit,
    *,
    side: str = "test",
    grade: str | None = "near",
    degree: str | None = None,
    set_name: str | None = None,
    within: str = "keep",
    include_disputed: bool = False,
    out: str | os.PathLike[str] | None = None,
    how: str = "manifest",
    progress: Progress = silent,
) -> Purge:
    """Plan a data set without leaking images, and write it where ``out`` is given.

    An image goes if it is in a pair of the grade (or degree) or stronger. Verdicts of people
    count; blank pictures stay. Nothing is changed in the sets themselves.

    Args:
        audit: the audit, or its folder.
        side: ``test``: images of the test sets go; ``train``: those of the training sets.
        grade: ``exact``, ``near`` or ``similar``.
        degree: ``hard`` or ``soft``, instead of a grade.
        set_name: purge this set alone.
        within: ``drop`` keeps one of each group of test images that repeat each other.
        include_disputed: count pairs on which reviewers disagree, by the machine's grade.
        out: folder to write; see :func:`visleak.remedy.writing.write`.
        how: ``manifest``, ``link`` or ``copy``.
        progress: is told how far each step is.

    Raises:
        UsageError: what is asked is not what the audit knows, or ``out`` is taken.
        VisleakError: a set changed since the audit, or it cannot be written.
    """
    opened = audit if isinstance(audit, Audit) else Audit(audit)
    wish = Wish(side, grade if degree is None else None, degree, set_name, within, include_disputed)
    planned = plan(opened.folder, wish)
    if out is None:
        return planned
    return replace(planned, written=_apply(opened, planned, Path(out), how, progress))


def plan(folder: Path, wish: Wish) -> Purge:
    """Return what a purge would remove.

    Raises:
        UsageError, VisleakError: see :func:`purge`.
    """
    summary = read_summary(folder)
    chosen = chosen_sets(summary, wish.side, wish.set)
    _refuse_sample(summary)
    pairs = judged_pairs(folder, _COLUMNS)
    names = [each.name for each in chosen]
    ungraded = _refuse_ungraded(summary, wish, pairs, names)
    strong = pairs.filter(pc.is_in(pairs[wish.column], pa.array(wish.words)))
    torn = disputed(strong)
    sides = {"test": "query", "train": "reference"}
    touched = pc.is_in(strong[f"{sides[wish.side]}_set"], pa.array(names))
    doubtful = int(pc.sum(pc.and_(touched, torn)).as_py() or 0)
    if not wish.disputed:
        strong = strong.filter(pc.invert(torn))
    leaks = strong.filter(pc.not_equal(strong["coverage"], "within"))
    inside = strong.filter(pc.equal(strong["coverage"], "within"))
    columns = ["set", "id", "digest", "label", "flat", "locator"]
    sets, flat = [], 0
    for about in chosen:
        images = read_table(folder, IMAGES, columns, pc.field("set") == about.name)
        own, blank = plan_set(about, images, leaks, inside, wish)
        sets.append(own)
        flat += blank
    lost = _distinct(leaks, "reference")
    caveats = _caveats(summary, wish, ungraded)
    return Purge(wish, tuple(sets), doubtful, flat, advise(summary, lost), caveats)


def _refuse_sample(summary: AuditSummary) -> None:
    if summary.settings.sample:
        raise UsageError(
            f"this audit looked at a sample of {summary.settings.sample} images a set; purge"
            " needs one of all: run `visleak audit` without --sample"
        )


def _refuse_ungraded(summary: AuditSummary, wish: Wish, pairs: pa.Table, names: list[str]) -> int:
    """Return how many of the pairs that decide about sets have no grade (or degree).

    Raises:
        UsageError: none of them has one.
    """
    own = "query_set" if wish.side == "test" else "reference_set"
    leaks = pc.and_(
        pc.is_in(pairs[own], pa.array(names)), pc.not_equal(pairs["coverage"], "within")
    )
    column = pairs.filter(leaks)[wish.column]
    if len(column) == 0 or column.null_count < len(column):
        return int(column.null_count) if wish.grade is not None else 0
    if wish.grade is not None and summary.thresholds.soft is not None:
        raise UsageError(
            "this audit has no grades (its pictures were not looked at); use --degree hard or"
            " --degree soft"
        )
    what = "grades" if wish.grade is not None else "degrees"
    raise UsageError(f"this audit has no {what}; audit with pictures, or with --hard and --soft")


def _caveats(summary: AuditSummary, wish: Wish, ungraded: int) -> tuple[str, ...]:
    """Return why more may leak than the audit lists."""
    said = []
    if lost := summary.unfinished:
        said.append(f"the audit is unfinished: {lost:,} images could not be read again; repeat it")
    if ungraded:
        said.append(
            f"{ungraded:,} pairs were not verified, so they have no grade and do not count;"
            " --degree counts them"
        )
    if summary.settings.candidates == "nearest" and wish.side == "train":
        said.append(
            "the audit lists each test image's one nearest training image (--candidates nearest):"
            " further copies in training stay"
        )
    said += [words for words in summary.skipped if words.startswith(("pairs:", "search"))]
    if wish.degree is not None:
        said += chance.notes(summary.comparisons)
    if wish.within == "drop":
        said += [words for words in summary.skipped if words.startswith("repeats")]
    return tuple(said)


def _distinct(pairs: pa.Table, side: str) -> int:
    return int(pairs.group_by([f"{side}_set", side]).aggregate([]).num_rows)


def _apply(audit: Audit, planned: Purge, out: Path, how: str, progress: Progress) -> Written:
    """Write the sets of a plan without what goes."""
    refuse_sets(audit.summary, out)
    parts, known = [], {}
    problems = read_problems(audit.folder / UNREADABLE)
    for each in planned.sets:
        if not each.pictures:
            if how != "manifest":
                raise UsageError(
                    f"set {each.name!r} has embeddings only, so there are no pictures to {how};"
                    " write the list of ids with --format manifest"
                )
            continue
        images = _opened(audit, each)
        known[each.name] = read_table(
            audit.folder, IMAGES, ["id", "digest"], pc.field("set") == each.name
        )
        _refuse_other_listing(
            images, known[each.name], {p.id for p in problems if p.set == each.name}
        )
        gone = pa.array([removed.id for removed in each.removed], pa.string())
        goes = pc.is_in(images.ids, gone).to_numpy(zero_copy_only=False)
        refuse_changed(images, np.flatnonzero(goes).tolist(), known[each.name])
        keep = np.flatnonzero(~goes)
        parts.append(Part(each.name, (Piece(images, keep),)))
    about = {
        "remedy": "purge",
        "audit": str(audit.folder.resolve()),
        "audit_key": audit.summary.key,
        "headline": audit.summary.headline,
    } | planned.wish.as_dict()
    return write(
        parts,
        out,
        how,
        about=about,
        removed=[removed for each in planned.sets for removed in each.removed],
        known=known,
        progress=progress,
    )


def _opened(audit: Audit, each: SetPlan) -> ImageSet:
    try:
        return cast(ImageSet, audit.images_of(each.name))
    except VisleakError as error:
        raise VisleakError(
            f"set {each.name!r} cannot be opened again as it was audited: {error}"
        ) from error


def _refuse_other_listing(images: ImageSet, known: pa.Table, unread: set[str]) -> None:
    """Refuse a set that has other images now than the audit saw.

    Raises:
        VisleakError: it does.
    """
    seen = known["id"].combine_chunks()
    new = images.ids.filter(pc.invert(pc.is_in(images.ids, seen)))
    added = next((id_ for id_ in new.to_pylist() if id_ not in unread), None)
    gone = seen.filter(pc.invert(pc.is_in(seen, images.ids)))
    for id_, what in ((added, "is new"), (gone[0].as_py() if len(gone) else None, "is gone")):
        if id_ is not None:
            raise VisleakError(
                f"set {images.name!r}: image {id_!r} {what} since the audit; run `visleak audit`"
                " again"
            )
