"""A review: the list of pairs, the verdicts on them, and how far a reviewer is."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow.compute as pc

from visleak.auditing import Audit
from visleak.errors import UsageError
from visleak.records import GRADES, Bool, Int8, Int64, Unreadable, ends_of
from visleak.review.listing import Choice, Listing, couples, fixed, labels, order, read_listing
from visleak.review.registry import ImageRegistry
from visleak.verdicts import Agreement, Ledger, Verdict, agreement, consensus_of
from visleak.verdicts.record import reviewer_name

#: Pairs after the one shown whose images are read ahead.
AHEAD: Final = 16

#: Filters whose rows are remembered.
REMEMBERED: Final = 32

#: Seconds after which all verdicts are read again, in case another process wrote one in between.
FRESH: Final = 10.0

_NONE: Final = np.int8(-1)


class ReviewSession:
    """The state of a review. Safe for several threads."""

    def __init__(self, folder: Path, reviewer: str, candidates: str = "listed") -> None:
        self.audit = Audit(folder)
        self.folder = folder
        self.reviewer = reviewer_name(reviewer)
        sets = self.audit.summary.sets
        without = [each.name for each in sets if not each.has_pixels]
        self.listing: Listing = read_listing(folder, candidates, without)
        self._open_sources()
        self.couples = couples(self.listing)
        self.labels = labels(self.listing)
        self._lock = threading.RLock()
        self._stamp: tuple[int, ...] = ()
        self._read = 0.0
        self._said = 0
        self._standing: ListState | None = None
        self._fixed: Callable[[Choice], Bool] = lru_cache(REMEMBERED)(
            lambda choice: fixed(self.listing, choice)
        )
        self._order: Callable[[str], Int64] = lru_cache(8)(lambda sort: order(self.listing, sort))
        self.ledger = Ledger(folder)
        self.registry = ImageRegistry(self.audit.images_of, self.digest_of)

    def _open_sources(self) -> None:
        """Open the sets of the list, so that a missing one is reported at once."""
        listing = self.listing
        rows = np.unique(np.concatenate([listing.query, listing.reference]))
        for name in listing.images["set"].take(rows).unique().to_pylist():
            self.audit.images_of(name)

    def digest_of(self, set_name: str, image: str) -> str | None:
        """Return the content digest that an image had in the audit."""
        images = self.listing.images
        rows = np.flatnonzero(pc.equal(images["id"], image).to_numpy())
        own = (images.slice(int(row), 1).to_pylist()[0] for row in rows)
        return next((each["digest"] for each in own if each["set"] == set_name), None)

    # -- verdicts ---------------------------------------------------------------------------------

    def judge(self, rows: Sequence[int], judgment: str) -> None:
        """Store one judgment of this reviewer on some pairs; they are undone together."""
        for row in rows:
            self._refuse_unseen(row)
        verdicts = [self._verdict(row, judgment) for row in rows]
        with self._lock:
            standing, stamp = self._standing, _stamp(self.ledger.file)
            known = stamp == self._stamp and time.monotonic() - self._read < FRESH
            self.ledger.add(*verdicts)
            self._said += bool(verdicts)
            if standing is not None and known:
                # reading thousands of verdicts after each one would be slow
                self._standing = standing.plus(rows, verdicts)
                self._stamp = _stamp(self.ledger.file)

    def _refuse_unseen(self, row: int) -> None:
        """Refuse a verdict on an image that cannot be shown: a placeholder, or another content."""
        for name, image in ends_of(self.listing.row(row)):
            found = self.registry.image(name, image)
            if isinstance(found, Unreadable):
                raise UsageError(
                    f"image {image!r} of {name} cannot be shown ({found.detail or found.reason}),"
                    " so no verdict is kept"
                )

    def _verdict(self, row: int, judgment: str) -> Verdict:
        pair = self.listing.row(row)
        (query_set, query), (reference_set, reference) = ends_of(pair)
        return Verdict.of(
            *self.listing.key(row), judgment, self.reviewer,
            query_set=query_set, query=query, reference_set=reference_set, reference=reference,
            similarity=pair["similarity"],
        )  # fmt: skip

    def undo(self) -> tuple[Verdict, ...]:
        """Withdraw the last verdicts of this reviewer and return them; empty without any.

        Verdicts from before this session stay: they may be a list of hundreds that was imported
        under the same name.
        """
        with self._lock:
            if not self._said:
                return ()
            self._said -= 1
            return self.ledger.undo(self.reviewer)

    def standing(self) -> ListState:
        """Return the valid verdicts, including those of other processes."""
        with self._lock:
            stamp = _stamp(self.ledger.file)
            if self._standing is None or stamp != self._stamp:
                self._stamp, self._read = stamp, time.monotonic()
                self._standing = self._read_standing()
            return self._standing

    def _read_standing(self) -> ListState:
        verdicts = self.ledger.standing()
        by_key: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
        for verdict in verdicts:
            by_key[verdict.key].append(verdict)
        mine = np.full(len(self.listing), _NONE)
        disputed = np.zeros(len(self.listing), bool)
        own = [verdict for verdict in verdicts if verdict.reviewer == self.reviewer]
        rows = self.listing.rows_of([verdict.key for verdict in own])
        codes = np.array([GRADES.index(verdict.judgment) for verdict in own], np.int8)
        mine[rows[rows >= 0]] = codes[rows >= 0]
        keys = [key for key, consensus in consensus_of(verdicts).items() if consensus.disputed]
        rows = self.listing.rows_of(keys)
        disputed[rows[rows >= 0]] = True
        return ListState(mine, disputed, verdicts, dict(by_key))

    def agreement(self) -> Agreement:
        """Return the agreement of the reviewers."""
        return agreement(self.standing().verdicts)

    # -- where one is -----------------------------------------------------------------------------

    def rows(self, choice: Choice) -> Int64:
        """Return the rows that a choice lets through, in its order."""
        keep = self._shown(choice)
        ordered = self._order(choice.sort)
        return np.asarray(ordered[keep[ordered]])

    def _shown(self, choice: Choice) -> Bool:
        keep = self._fixed(choice)
        standing = self.standing()
        if choice.state == "disputed":
            return np.asarray(keep & standing.disputed)
        if choice.state:
            return np.asarray(keep & ((standing.mine >= 0) == (choice.state == "judged")))
        return keep

    def spot(self, row: int, choice: Choice, ahead: int = AHEAD) -> ListPosition:
        """Return where a row stands; one that the choice hides has neighbours all the same."""
        keep, ordered = self._shown(choice), self._order(choice.sort)
        at = int(np.flatnonzero(ordered == row)[0])
        shown = keep[ordered]
        before, after = np.flatnonzero(shown[:at]), at + 1 + np.flatnonzero(shown[at + 1 :])
        return ListPosition(
            place=len(before),
            total=int(shown.sum()),
            inside=bool(keep[row]),
            previous=int(ordered[before[-1]]) if len(before) else None,
            next=int(ordered[after[0]]) if len(after) else None,
            ahead=tuple(ordered[after[:ahead]].tolist()),
        )

    def first(self, choice: Choice) -> int | None:
        """Return where to begin: the first pair without a verdict of mine, else the first."""
        rows = self.rows(choice)
        if not len(rows):
            return None
        open_ = np.flatnonzero(self.standing().mine[rows] < 0)
        return int(rows[open_[0]]) if len(open_) else int(rows[0])

    def progress(self, choice: Choice) -> Progress:
        """Return how far this reviewer is in the list of a choice, whatever is judged already."""
        keep = self._fixed(choice)
        mine = self.standing().mine[keep]
        judged = np.flatnonzero(mine >= 0)
        if not len(judged):
            return Progress(0, len(mine), 0, 0, None)
        different = mine[judged] == GRADES.index("different")
        broken = np.flatnonzero(~different)
        run = len(judged) - 1 - int(broken[-1]) if len(broken) else len(judged)
        last = int(judged[-1])
        distance = float(self.listing.distance[keep][last])
        passed_over = last + 1 - len(judged)
        return Progress(
            len(judged), len(mine), run, passed_over, None if np.isnan(distance) else distance
        )

    def close(self) -> None:
        """Close the images, and write ``verdicts.csv``."""
        self.registry.close()
        try:
            if self.standing().verdicts:
                # an earlier review may have been killed before
                self.ledger.write_plain()
        finally:
            self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a SQLite file does, or what it has not yet taken in."""
    found: list[int] = []
    for each in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(OSError):
            about = each.stat()
            found += [about.st_mtime_ns, about.st_size]
    return tuple(found)


#: Barz & Denzler (2020) stop after this many different pairs in a row.
ROW: Final = 20


@dataclass(frozen=True)
class ListState:
    """The verdicts that stand, by row of the list.

    Attributes:
        mine: ``int8`` (n,): this reviewer's judgment as its place in ``GRADES``, -1 for none.
        disputed: ``bool`` (n,): reviewers disagree on near-or-not.
    """

    mine: Int8
    disputed: Bool
    verdicts: tuple[Verdict, ...]
    by_key: dict[tuple[str, str], list[Verdict]]

    def plus(self, rows: Sequence[int], verdicts: Sequence[Verdict]) -> ListState:
        """Return what stands once this reviewer has said more, of some rows."""
        mine, disputed, by_key = self.mine.copy(), self.disputed.copy(), dict(self.by_key)
        for row, verdict in zip(rows, verdicts, strict=True):
            others = [v for v in by_key.get(verdict.key, ()) if v.reviewer != verdict.reviewer]
            by_key[verdict.key] = [*others, verdict]
            mine[row] = GRADES.index(verdict.judgment)
            disputed[row] = consensus_of(by_key[verdict.key])[verdict.key].disputed
        return ListState(mine, disputed, (*self.verdicts, *verdicts), by_key)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reviewer is in a list.

    Attributes:
        distance: of that pair; ``None`` if nothing is judged, or it was not measured.
    """

    judged: int
    total: int
    run: int
    passed_over: int
    distance: float | None

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the paper is satisfied."""
        return self.run >= ROW


@dataclass(frozen=True, slots=True)
class ListPosition:
    """Where a pair stands among those that a choice lets through.

    Attributes:
        previous, next: rows, or ``None`` at the ends.
    """

    place: int
    total: int
    inside: bool
    previous: int | None
    next: int | None
    ahead: tuple[int, ...]
