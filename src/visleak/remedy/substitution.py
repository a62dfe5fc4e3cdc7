"""``replace``: the fair test set, in which duplicates are replaced by other images.

Barz & Denzler (2020), section 4: the training data, all other test images, and the order, ids and
size of the test set do not change.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.progress import Progress, silent
from visleak.records import GRADES, ImageSet
from visleak.remedy.pool import Decision, Decisions
from visleak.remedy.selection import ClassCount, Selection, distance, open_selection
from visleak.remedy.settings import ReplaceSettings
from visleak.remedy.writing import Part, Piece, Substitute, WrittenSet, refuse_existing, write
from visleak.storage import csv_of, read_summary, refuse_sets

_DEFAULTS: Final = ReplaceSettings()

#: Columns of the lists of ciFAIR.
CIFAIR: Final = ("TestID", "TrainID", "Distance", "Judgment")

#: Columns of ``replacements.csv``.
_REPLACED: Final = ("test", "pool", "class", "test_digest", "pool_digest", "how", "reviewer")


@dataclass(frozen=True)
class ReplacePlan:
    """The plan of ``replace``, and its result once written."""

    test_set: str
    size: int
    settings: ReplaceSettings
    pool: Mapping[str, int]  # numbers of usable and other images
    replaced: tuple[Decision, ...]  # approvals that are used, in the order of the test set
    missing: tuple[tuple[str, str], ...]  # id and reason
    classes: tuple[ClassCount, ...]
    leaks: int  # duplicates of training images
    within: int  # duplicates of test images
    blank: int
    disputed: int
    by_class: bool
    written: WrittenSet | None = field(default=None, compare=False)

    @property
    def duplicates(self) -> int:
        """Number of test images that need a replacement."""
        return len(self.replaced) + len(self.missing)

    @property
    def automatic(self) -> int:
        """Number of replacements that no person has checked."""
        return sum(each.how == "machine" for each in self.replaced)

    def as_dict(self) -> dict[str, object]:
        """Return the content of ``--json``."""
        return {
            "test_set": self.test_set,
            "images": self.size,
            "grade": self.settings.grade,
            "choose": self.settings.select,
            "seed": self.settings.seed,
            "duplicates": self.duplicates,
            "repeat_training": self.leaks,
            "repeat_test": self.within,
            "replaced": len(self.replaced),
            "chosen_by_machine": self.automatic,
            "missing": [{"test": id_, "why": why} for id_, why in self.missing],
            "left_out": {"blank": self.blank, "disputed": self.disputed},
            "by_class": self.by_class,
            "pool": dict(self.pool),
            "classes": [dataclasses.asdict(each) for each in self.classes],
            "written": None if self.written is None else str(self.written.folder),
        }


def replace(
    folder: str | os.PathLike[str],
    pool: str | os.PathLike[str] | ImageSet,
    settings: ReplaceSettings = _DEFAULTS,
    *,
    out: str | os.PathLike[str] | None = None,
    apply: bool = False,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
) -> ReplacePlan:
    """Plan the fair test set of an audit, or write it.

    Args:
        folder: the audit folder.
        pool: source of the replacements.
        settings: what counts as a duplicate, and how replacements are selected.
        out: folder for the fair test set; required by ``apply``.
        apply: write; otherwise nothing is written, and automatic choices are not stored.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: an argument is invalid, or some duplicates have no replacement.
        VisleakError: audit or pool cannot be used, or the result cannot be written.
    """
    if apply and out is None:
        raise UsageError("to write the fair test set, name a folder for it with -o DIR")
    if apply and out is not None:
        refuse_existing(Path(out))
        refuse_sets(read_summary(Path(folder)), Path(out))
    with open_selection(
        folder, pool, settings, trial=True, workers=workers, cache=cache, progress=progress
    ) as selection:
        if settings.select == "auto":
            if not selection.by_class and any(each.label for each in selection.duplicates.images):
                raise UsageError(
                    "the duplicates have labels and the pool has none, so the classes of its"
                    " images are unknown; name the column with --label, or let people choose with"
                    " `visleak review AUDIT_DIR --pool SOURCE`"
                )
            step = "choosing replacements"
            selection.choose(lambda done, total: progress(step, done, total))
        plan = _plan(selection, settings)
        if not apply or out is None:
            return plan
        if plan.missing and not settings.allow_missing:
            raise UsageError(_missing(plan))
        # a test set that cannot be written leaves no choices for the next call
        store = partial(_store, Path(folder), selection)
        written = _write(selection, plan, Path(out), store, progress)
        if written.reused:
            store()
        return dataclasses.replace(plan, written=written)


def _plan(selection: Selection, settings: ReplaceSettings) -> ReplacePlan:
    found, pool = selection.duplicates, selection.pool
    approvals = selection.approvals()
    replaced: list[Decision] = []
    missing: list[tuple[str, str]] = []
    used: Counter[str] = Counter()
    for each in found.images:
        decision = approvals.get((each.digest, each.copy))
        why = "nothing approved" if decision is None else selection.objection(decision)
        if decision is not None and not why:
            replaced.append(decision)
            used[each.label or ""] += 1
        else:
            missing.append((each.id, why))
    within = [[leak.within for leak in each.leaks] for each in found.images]
    return ReplacePlan(
        test_set=selection.test_set,
        size=len(selection.material[selection.test_set].images),
        settings=settings,
        pool={
            "images": len(pool.images) + len(pool.images.problems),
            "usable": pool.usable,
            "in_the_audit": pool.known,
            "repeated": pool.repeated,
            "blank": pool.blank,
            "unreadable": pool.unreadable,
        },
        replaced=tuple(replaced),
        missing=tuple(missing),
        classes=tuple(
            dataclasses.replace(each, replaced=used[each.label]) for each in selection.counts()
        ),
        leaks=sum(not all(each) for each in within),
        within=sum(map(any, within)),
        blank=found.blank,
        disputed=found.disputed,
        by_class=selection.by_class,
    )


def _missing(plan: ReplacePlan) -> str:
    lacking = {each.label: each.duplicates - each.replaced for each in plan.classes}
    short = ", ".join(f"{label or 'no class'} {n:,}" for label, n in lacking.items() if n)
    advice = "give a larger pool"
    if plan.settings.select != "auto":
        advice = (
            "approve some with `visleak review AUDIT_DIR --pool SOURCE`, select them automatically"
            " with --select auto"
        )
    return (
        f"{len(plan.missing):,} of {plan.duplicates:,} duplicates have no replacement ({short});"
        f" {advice}, or keep these test images with --allow-missing"
    )


def _store(folder: Path, selection: Selection) -> None:
    """Store automatic choices in the decisions of the audit."""
    chosen = selection.approvals()
    known = {each.pool_digest for each in chosen.values()}
    with Decisions(folder) as decisions:
        stored = {(each.test_digest, each.copy, each.pool_digest) for each in decisions.standing()}
        for place, each in chosen.items():
            if (*place, each.pool_digest) not in stored and decisions.approve(each, known):
                raise VisleakError(
                    "replacements were approved while these were chosen; repeat the command"
                )


# -- writing -------------------------------------------------------------------------------------


def _write(
    selection: Selection,
    plan: ReplacePlan,
    out: Path,
    store: Callable[[], None],
    progress: Progress,
) -> WrittenSet:
    """Write the test set; ``store`` is called once it is complete, before it gets its name."""
    test, pool = selection.material[selection.test_set], selection.pool
    by_test = {(each.test_digest, each.copy): each for each in plan.replaced}
    instead: dict[int, Substitute] = {}
    for each in selection.duplicates.images:
        decision = by_test.get((each.digest, each.copy))
        row = selection.row_of(decision.pool_digest) if decision is not None else None
        if row is not None:
            instead[each.position] = Substitute(pool.images, int(pool.fingerprints.rows[row]))
    whole = Piece(test.images, np.arange(len(test.images), dtype=np.int64), instead)
    about = {
        "verb": "replace",
        "test_set": plan.test_set,
        "grade": plan.settings.grade,
        "choose": plan.settings.select,
        "seed": plan.settings.seed,
        "pool": pool.images.source,
        "duplicates": plan.duplicates,
        "replaced": len(plan.replaced),
        "chosen_by_machine": plan.automatic,
        "without_replacement": len(plan.missing),
    }
    # duplicates as in ciFAIR, and their replacements
    extra = {
        "duplicates.csv": _csv(CIFAIR, _cifair_rows(selection, within=False)),
        "duplicates_within_test.csv": _csv(CIFAIR, _cifair_rows(selection, within=True)),
        "replacements.csv": _csv(
            _REPLACED,
            (
                (d.test, d.pool, d.label, d.test_digest, d.pool_digest, d.how, d.reviewer)
                for d in plan.replaced
            ),
        ),
    }
    if plan.missing:
        extra["without_replacement.csv"] = _csv(("test", "why"), plan.missing)
    digests = [bytes(digest).hex() for digest in test.fingerprints.digests]
    return write(
        [Part(plan.test_set, (whole,))],
        out,
        plan.settings.format,
        about=about,
        extra=extra,
        known={plan.test_set: pa.table({"id": test.fingerprints.ids, "digest": digests})},
        check=lambda folder, opened: store(),
        progress=progress,
    )


def _cifair_rows(selection: Selection, within: bool) -> list[tuple[str, ...]]:
    """Return the rows of duplicates, nearest first."""
    images, found = selection.duplicates.images, []
    several = len({leak.set for each in images for leak in each.leaks if not leak.within}) > 1
    for each in images:
        for leak in each.leaks:
            if leak.within == within:
                far = distance(selection.similarity(each, leak))
                other = f"{leak.set}/{leak.id}" if several and not within else leak.id
                found.append((far, (each.id, other, repr(far), str(GRADES.index(leak.grade)))))
    return [row for _, row in sorted(found, key=lambda each: each[0])]


def _csv(header: tuple[str, ...], rows: Iterable[Sequence[str]]) -> bytes:
    return csv_of(header, rows).encode("utf-8", "surrogateescape")
