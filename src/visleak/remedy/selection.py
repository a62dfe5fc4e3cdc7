"""Selection of replacements: candidates for each duplicate, and decisions about them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.pipeline.encoded_set import EncodedSet
from visleak.records import Int64
from visleak.remedy.candidates import Candidate, Examiner, label_of
from visleak.remedy.pool import (
    APPROVED,
    REJECTED,
    Decision,
    Decisions,
    Duplicate,
    Duplicates,
    Leak,
    Pool,
    class_of,
)

#: Reviewer of automatic decisions.
MACHINE: Final = "visleak"

#: Candidates searched for at once, in addition to those that are certainly needed.
SPARE: Final = 32


class NotEligible(VisleakError):
    """The candidate is a copy of one of its nearest neighbours."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The state of a duplicate."""

    approved: Decision | None  # its replacement, or ``None``
    # the image to decide about: the replacement if there is one, otherwise the next eligible one;
    # ``None`` if no candidate of the class is left
    candidate: Candidate | None
    passed: tuple[Candidate, ...]
    left: int


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Number of duplicates of a class, approved ones, and candidates without a decision."""

    label: str
    duplicates: int
    approved: int
    left: int


@dataclass
class Selection:
    """The selection of replacements for the duplicates of an audit. Safe for several threads.

    Made by :func:`visleak.remedy.opening.open_selection`.
    """

    duplicates: Duplicates
    test_set: str  # name of the set with the duplicates
    pool: Pool
    by_class: bool  # a replacement must have the class of the test image
    examiner: Examiner
    decisions: Decisions
    _lock: AbstractContextManager[bool] = field(default_factory=threading.RLock, init=False)

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        """Rows of the usable images of the pool by content digest, hexadecimal."""
        usable = self.pool.queues[None].tolist()
        return {bytes(self.pool.fingerprints.digests[row]).hex(): row for row in usable}

    @property
    def material(self) -> Mapping[str, EncodedSet]:
        """The sets of the audit and the pool, by name, with their fingerprints."""
        return self.examiner.sides

    # -- decisions -------------------------------------------------------------------------------

    def approvals(self) -> dict[tuple[str, int], Decision]:
        """Return the valid approvals by content and copy of the test image."""
        return {
            (each.test_digest, each.copy): each
            for each in self.decisions.standing()
            if each.decision == APPROVED
        }

    def similarity(self, duplicate: Duplicate, leak: Leak) -> float:
        """Return the similarity of a duplicate and its leak, measured if it is unknown."""
        if leak.similarity is not None:
            return leak.similarity
        sets = (self.test_set, leak.set)
        rows = [
            int(pc.index(self.material[name].fingerprints.ids, id_).as_py())
            for name, id_ in zip(sets, (duplicate.id, leak.id), strict=True)
        ]
        return self.examiner.neighbours.similarity(sets, (rows[0], rows[1]))

    def label_of(self, set_name: str, id_: str) -> str | None:
        """Return the label of an image of the audit, ``None`` for none."""
        own = self.material[set_name]
        row = int(pc.index(own.fingerprints.ids, id_).as_py())
        return label_of(own, row) if row >= 0 else None

    def row_of(self, digest: str) -> int | None:
        """Return the row of the pool with a content, ``None`` without one."""
        return self._rows.get(digest)

    def counts(self) -> tuple[ClassCount, ...]:
        """Return the counts of each class, by name."""
        approved = self.approvals()
        decided = {each.pool_digest for each in self.decisions.standing()}
        by_label: dict[str | None, list[Duplicate]] = {}
        for each in self.duplicates.images:
            by_label.setdefault(each.label, []).append(each)
        return tuple(
            ClassCount(
                label=label or "",
                duplicates=len(own),
                approved=sum((each.digest, each.copy) in approved for each in own),
                left=len(self._open(self._queue(own[0]), decided)),
            )
            for label, own in sorted(by_label.items(), key=lambda item: item[0] or "")
        )

    # -- candidates ------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Search for the neighbours of the candidates that will be needed, all at once."""
        with self._lock:
            self.examiner.neighbours.search(self._soon())

    def offer(self, place: int, after: str | None = None) -> Offer:
        """Return the state of a duplicate, with the candidate that comes next, cyclically."""
        with self._lock:
            duplicate = self.duplicates.images[place]
            decision = self.approvals().get((duplicate.digest, duplicate.copy))
            waiting, last = self._waiting(duplicate), self._rows.get(after or "")
            left = len(waiting)
            if decision is not None:
                own = self._rows.get(decision.pool_digest)
                shown = self.candidates([own])[0] if own is not None else None
                return Offer(decision, shown, (), left)
            if last is not None:
                rank = {row: at for at, row in enumerate(self._queue(duplicate).tolist())}
                waiting.sort(key=lambda row: (rank[row] <= rank.get(last, -1), rank[row]))
            passed: list[Candidate] = []
            for row in self.examiner.prepared(waiting):
                (candidate,) = self.candidates([row])
                if not candidate.objection:
                    return Offer(None, candidate, tuple(passed), left)
                passed.append(candidate)
            return Offer(None, None, tuple(passed), left)

    def candidates(self, rows: Sequence[int]) -> list[Candidate]:
        """Return rows of the pool with their verified neighbours."""
        with self._lock:
            return self.examiner.candidates(rows, self._approved(self.approvals().values()))

    def objection(self, approved: Decision) -> str:
        """Return why an approval no longer holds (pool or audit changed); empty if it does."""
        with self._lock:
            row = self._rows.get(approved.pool_digest)
            if row is None:
                return "not in this pool"
            if self.by_class and row not in self._class(approved.label or None):
                return "of another class"
            before: list[Decision] = []
            for each in self.approvals().values():
                if each.pool_digest == approved.pool_digest:
                    break
                before.append(each)
            # later ones were compared with this one
            return self.examiner.candidates([row], self._approved(before))[0].objection

    # -- approving and rejecting -----------------------------------------------------------------

    def approve(self, place: int, digest: str, reviewer: str, how: str = "person") -> Decision:
        """Approve an image for a duplicate; it becomes a neighbour of later candidates."""
        with self._lock:
            decision = self._decision(APPROVED, place, digest, reviewer, how)
            while True:
                known = {each.pool_digest for each in self.approvals().values()}
                (candidate,) = self.candidates([self._rows[digest]])
                if candidate.objection:
                    raise NotEligible(f"{candidate.id}: {candidate.objection}")
                if not self.decisions.approve(decision, known):
                    return decision

    def reject(self, place: int, digest: str, reviewer: str) -> Decision:
        """Reject an image of the pool: it is no longer offered for any duplicate."""
        with self._lock:
            decision = self._decision(REJECTED, place, digest, reviewer, "person")
            self.decisions.reject(decision)
            return decision

    def undo(self, reviewer: str, since: str = "") -> Decision | None:
        """Withdraw the last decision of a reviewer since a time, and return it."""
        return self.decisions.undo(reviewer, since)

    def withdraw(self, place: int) -> Decision | None:
        """Withdraw the replacement of a duplicate, approved by any person, and return it."""
        duplicate = self.duplicates.images[place]
        return self.decisions.withdraw(duplicate.digest, duplicate.copy)

    def choose(self, progress: Callable[[int, int], None]) -> int:
        """Choose a replacement for every duplicate without one, and return their number.

        The first candidate in the order of the pool is chosen that is not a copy of any of its
        nearest neighbours, including earlier approved images.
        """
        with self._lock:
            self.examiner.prepare(self._soon())
            chosen = 0
            for place, duplicate in enumerate(self.duplicates.images):
                if (duplicate.digest, duplicate.copy) not in self.approvals():
                    offer = self.offer(place)
                    if offer.candidate is not None:
                        self.approve(place, offer.candidate.digest, MACHINE, "machine")
                        chosen += 1
                progress(place + 1, len(self.duplicates.images))
            return chosen

    def _decision(
        self, decision: str, place: int, digest: str, reviewer: str, how: str
    ) -> Decision:
        duplicate = self.duplicates.images[place]
        row = self._rows.get(digest)
        if row is None:
            raise UsageError(f"no usable image of the pool has the content {digest!r}")
        id_ = self.pool.fingerprints.ids[row].as_py()
        if row not in self._queue(duplicate):
            raise UsageError(f"{id_} of the pool is not of the class {duplicate.label}")
        return Decision(
            decision=decision,
            test_digest=duplicate.digest,
            copy=duplicate.copy,
            pool_digest=digest,
            test_set=self.test_set,
            test=duplicate.id,
            pool=id_,
            label=duplicate.label or "",
            reviewer=reviewer,
            how=how,
        )

    # -- queues ----------------------------------------------------------------------------------

    def _queue(self, duplicate: Duplicate) -> Int64:
        return self._class(duplicate.label if self.by_class else None)

    def _class(self, label: str | None) -> Int64:
        return self.pool.queues.get(class_of(label), np.empty(0, np.int64))

    def _waiting(self, duplicate: Duplicate) -> list[int]:
        decided = {each.pool_digest for each in self.decisions.standing()}
        return self._open(self._queue(duplicate), decided)

    def _open(self, queue: Int64, decided: set[str]) -> list[int]:
        rows = {self._rows[digest] for digest in decided & self._rows.keys()}
        return [row for row in queue.tolist() if row not in rows]

    def _soon(self) -> list[int]:
        """Return the candidates that are certainly needed, and some more."""
        approved = self.approvals()
        needed: dict[str | None, list[Duplicate]] = {}
        for each in self.duplicates.images:
            if (each.digest, each.copy) not in approved:
                needed.setdefault(class_of(each.label), []).append(each)
        return [
            row
            for own in needed.values()
            for row in self._waiting(own[0])[: len(own) + len(own) // 8 + SPARE]
        ]

    def _approved(self, decisions: Iterable[Decision]) -> Int64:
        rows = [self._rows.get(each.pool_digest) for each in decisions]
        return np.array([row for row in rows if row is not None], np.int64)
