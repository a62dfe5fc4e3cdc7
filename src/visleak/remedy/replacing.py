"""``replace``: the fair test set, in which other images stand where duplicates were.

Barz & Denzler (2020), section 4: training data and all other test images stay untouched; order,
ids and size of the test set stay as they are.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.pipeline.context import Progress, silent
from visleak.remedy.parts import Part, Piece, Substitute
from visleak.remedy.replacing_lists import lists_of
from visleak.remedy.writing import Written, refuse_taken, write
from visleak.replacements import Decision, Decisions, Selection, SelectionSettings
from visleak.replacements import open_selection as opened
from visleak.storage import read_summary, refuse_sets

#: Who chooses: people have approved, or the machine takes what is left to choose.
CHOICES: Final = ("approved", "auto")


@dataclass(frozen=True, slots=True)
class ClassLine:
    """How far a class is.

    Attributes:
        label: the class; empty where there are no labels.
        duplicates: test images of it that need a replacement.
        replaced: of them those that have one.
        left: candidates of the class that nobody decided about.
    """

    label: str
    duplicates: int
    replaced: int
    left: int


@dataclass(frozen=True)
class ReplacePlan:
    """What ``replace`` would write, or has written.

    Attributes:
        test_set: its name.
        size: images of the test set that are listed.
        grade: a pair of this grade or a stronger one makes a duplicate.
        choose: ``approved`` or ``auto``.
        seed: of the order in which candidates were tried.
        pool: usable images of the pool, and how many are not and why.
        replaced: the approvals that are used, in the order of the test set.
        missing: duplicates without a replacement, with the reason.
        classes: how far each class is.
        leaks, within: duplicates that repeat a training image, another test image; one that does
            both counts in both.
        blank, disputed: test images left out because they are blank, or because reviewers
            disagree.
        by_class: replacements are of the class of the test image.
        labels: the test set and the pool have labels.
        written: what was written; ``None`` where this is a plan only.
    """

    test_set: str
    size: int
    grade: str
    choose: str
    seed: int
    pool: Mapping[str, int]
    replaced: tuple[Decision, ...]
    missing: tuple[tuple[str, str], ...]
    classes: tuple[ClassLine, ...]
    leaks: int
    within: int
    blank: int
    disputed: int
    by_class: bool
    written: Written | None = field(default=None, compare=False)

    @property
    def duplicates(self) -> int:
        """How many test images need a replacement."""
        return len(self.replaced) + len(self.missing)

    @property
    def by_machine(self) -> int:
        """How many replacements no person has looked at."""
        return sum(each.how == "machine" for each in self.replaced)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "test_set": self.test_set,
            "images": self.size,
            "grade": self.grade,
            "choose": self.choose,
            "seed": self.seed,
            "duplicates": self.duplicates,
            "repeat_training": self.leaks,
            "repeat_test": self.within,
            "replaced": len(self.replaced),
            "chosen_by_machine": self.by_machine,
            "missing": [{"test": id_, "why": why} for id_, why in self.missing],
            "left_out": {"blank": self.blank, "disputed": self.disputed},
            "by_class": self.by_class,
            "pool": dict(self.pool),
            "classes": [
                {
                    "label": each.label,
                    "duplicates": each.duplicates,
                    "replaced": each.replaced,
                    "candidates_left": each.left,
                }
                for each in self.classes
            ],
            "written": None if self.written is None else str(self.written.folder),
        }


def replace(
    folder: str | os.PathLike[str],
    asked: SelectionSettings,
    out: str | os.PathLike[str] | None = None,
    *,
    choose: str = "approved",
    apply: bool = False,
    allow_missing: bool = False,
    as_: str = "copy",
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
) -> ReplacePlan:
    """Plan the fair test set of an audit, or write it.

    Args:
        folder: the audit folder.
        asked: pool, test set, what counts as a duplicate, seed.
        out: folder for the fair test set; needed to write.
        choose: ``approved``: what people approved; ``auto``: where they did not, the first
            candidate that the machine finds nothing against.
        apply: write; else nothing at all is written, and choices of the machine are not kept.
        allow_missing: write although some duplicates have no replacement; these stay.
        as_: ``copy``, ``link`` or ``manifest``.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: an argument is none of those allowed, or some duplicates have no replacement.
        VisleakError: see the messages of :func:`visleak.replacements.open_selection` and
            :func:`visleak.remedy.writing.write`.
    """
    if choose not in CHOICES:
        raise UsageError(f"choose must be one of {', '.join(CHOICES)}; got {choose!r}")
    if apply and out is None:
        raise UsageError("to write the fair test set, name a folder for it with -o DIR")
    if apply and out is not None:
        refuse_taken(Path(out))
        refuse_sets(read_summary(Path(folder)), Path(out))
    with opened(
        folder, asked, trial=True, workers=workers, cache=cache, progress=progress
    ) as selection:
        if choose == "auto":
            _refuse_without_classes(selection)
            step = "choosing replacements"
            selection.choose(lambda done, total: progress(step, done, total))
        plan = _plan(selection, asked, choose)
        if not apply or out is None:
            return plan
        if plan.missing and not allow_missing:
            raise UsageError(_refusal(plan))
        _keep(Path(folder), selection)
        return _written(selection, plan, Path(out), as_, progress)


def _refuse_without_classes(selection: Selection) -> None:
    """Refuse to let the machine choose where it cannot tell the class of an image.

    Raises:
        UsageError: the duplicates have labels and the pool has none.
    """
    if not selection.by_class and any(each.label for each in selection.duplicates.images):
        raise UsageError(
            "the pool has no labels and the duplicates have: the machine cannot tell which images"
            " are of a class; name the column with --label, or let people choose with `visleak"
            " review A --pool S`"
        )


def _plan(selection: Selection, asked: SelectionSettings, choose: str) -> ReplacePlan:
    found, pool = selection.duplicates, selection.pool
    approvals = selection.approvals()
    replaced: list[Decision] = []
    missing: list[tuple[str, str]] = []
    used: dict[str, int] = {}
    for each in found.images:
        decision = approvals.get((each.digest, each.copy))
        why = "nothing approved" if decision is None else selection.objection(decision)
        if decision is not None and not why:
            replaced.append(decision)
            used[each.label or ""] = used.get(each.label or "", 0) + 1
        else:
            missing.append((each.id, why))
    return ReplacePlan(
        test_set=selection.test_set,
        size=len(selection.material[selection.test_set].images),
        grade=found.grade,
        choose=choose,
        seed=asked.seed,
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
            ClassLine(each.label, each.duplicates, used.get(each.label, 0), each.left)
            for each in selection.counts()
        ),
        leaks=sum(any(not leak.within for leak in each.leaks) for each in found.images),
        within=sum(any(leak.within for leak in each.leaks) for each in found.images),
        blank=found.blank,
        disputed=found.disputed,
        by_class=selection.by_class,
    )


def _refusal(plan: ReplacePlan) -> str:
    """Say that duplicates have no replacement, and what to do."""
    short = ", ".join(
        f"{each.label or 'no class'} {each.duplicates - each.replaced:,}"
        for each in plan.classes
        if each.duplicates > each.replaced
    )
    advice = (
        "give a larger pool"
        if plan.choose == "auto"
        else "approve some with `visleak review A --pool S`, let the machine choose with --select"
        " auto"
    )
    return (
        f"{len(plan.missing):,} of {plan.duplicates:,} duplicates have no replacement ({short});"
        f" {advice}, or keep these test images as they are with --allow-missing"
    )


def _keep(folder: Path, selection: Selection) -> None:
    """Store what the machine chose among the decisions of the audit.

    Raises:
        VisleakError: somebody decided in the meantime.
    """
    chosen = selection.approvals()
    known = {each.pool_digest for each in chosen.values()}
    with Decisions(folder) as decisions:
        there = {(each.test_digest, each.copy, each.pool_digest) for each in decisions.standing()}
        for place, each in chosen.items():
            if (*place, each.pool_digest) not in there and decisions.approve(each, known):
                raise VisleakError(
                    "replacements were approved while these were chosen; run the same command again"
                )


# -- writing -------------------------------------------------------------------------------------


def _written(
    selection: Selection, plan: ReplacePlan, out: Path, as_: str, progress: Progress
) -> ReplacePlan:
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
        "grade": plan.grade,
        "choose": plan.choose,
        "seed": plan.seed,
        "pool": pool.images.source,
        "duplicates": plan.duplicates,
        "replaced": len(plan.replaced),
        "chosen_by_machine": plan.by_machine,
        "without_replacement": len(plan.missing),
    }
    lists = dict(lists_of(selection, plan.replaced, plan.missing))
    digests = [bytes(digest).hex() for digest in test.fingerprints.digests]
    written = write(
        [Part(plan.test_set, (whole,))],
        out,
        as_,
        about=about,
        extra=lists,
        known={plan.test_set: pa.table({"id": test.fingerprints.ids, "digest": digests})},
        progress=progress,
    )
    return dataclasses.replace(plan, written=written)
