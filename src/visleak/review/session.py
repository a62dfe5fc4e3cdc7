"""A review: the list of pairs, the verdicts on them, and how far a reviewer is."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

import visleak
from visleak.auditing import Audit
from visleak.errors import UsageError
from visleak.quantities import counted
from visleak.rates import percent
from visleak.records import GRADES, Bool, Float64, Int8, Int64, Unreadable, ends_of
from visleak.review.active import TAIL, Measured, Refit, TailSample, tail_order, tail_sample
from visleak.review.listing import Choice, Listing, couples, fixed, labels, order, read_listing
from visleak.review.registry import ImageRegistry
from visleak.storage import AuditSummary
from visleak.verdicts import Agreement, Ledger, Verdict, agreement, consensus_of
from visleak.verdicts.ledger import NEAR, Kappa, reviewer_name

#: Pairs after the one shown whose images are read ahead.
AHEAD: Final = 16

#: Filters whose rows are remembered.
REMEMBERED: Final = 32

#: Share of the near pairs that may be missed where the reviewer stops, unless another is stated.
MISS: Final = 0.05

#: Places of the order by which pairs move, otherwise for each of the reviewers who divide them.
NEIGHBOURS: Final = 32

#: Verdicts after which the grader of this audit is fitted again: pairs then change their places.
REFIT: Final = 10

#: Seconds after which all verdicts are read again, in case another process wrote one in between.
FRESH: Final = 10.0

Key = tuple[str, str]
T = TypeVar("T", bound=np.generic)

#: Constants of SplitMix64 (Steele et al. 2014).
_MIXING: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)


class ReviewSession:
    """The state of a review. Safe for several threads."""

    def __init__(
        self,
        folder: Path,
        reviewer: str,
        candidates: str = "listed",
        *,
        miss: float = MISS,
        overlap: float = 1.0,
        blind: bool = False,
    ) -> None:
        self.audit = Audit(folder)
        self.folder = folder
        self.reviewer = reviewer_name(reviewer)
        if not 0.0 < miss < 1.0:
            raise UsageError(f"the miss rate must lie between 0 and 1; got {miss:g}")
        if not 0.0 <= overlap <= 1.0:
            raise UsageError(f"the overlap must lie between 0 and 1; got {overlap:g}")
        self.miss, self.overlap, self.blind = miss, overlap, blind
        sets = self.audit.summary.sets
        without = [each.name for each in sets if not each.has_pixels]
        self.listing: Listing = read_listing(folder, candidates, without)
        # a missing set is reported at once
        rows = np.unique(np.concatenate([self.listing.query, self.listing.reference]))
        for name in self.listing.images["set"].take(rows).unique().to_pylist():
            self.audit.images_of(name)
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
        self._plain_order: Callable[[str], Int64] = lru_cache(8)(
            lambda sort: order(self.listing, sort)
        )
        self._refits: Callable[[int], Refit] = lru_cache(2)(
            lambda _: self._measured.refit(self._truth())
        )
        self.ledger = Ledger(folder)
        self.registry = ImageRegistry(self.audit.images_of, self.digest_of)

    def digest_of(self, set_name: str, image: str) -> str | None:
        """Return the content digest that an image had in the audit."""
        images = self.listing.images
        own = pc.and_(pc.equal(images["id"], image), pc.equal(images["set"], set_name))
        row = int(pc.index(own, True).as_py())
        digest: str | None = images["digest"][row].as_py() if row >= 0 else None
        return digest

    # -- verdicts ---------------------------------------------------------------------------------

    def judge(self, rows: Sequence[int], judgment: str) -> None:
        """Store one judgment of this reviewer on some pairs; they are undone together."""
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

    def _verdict(self, row: int, judgment: str) -> Verdict:
        """Return a verdict, unless an image cannot be shown: it may have another content."""
        pair = self.listing.row(row)
        for name, image in ends_of(pair):
            found = self.registry.image(name, image)
            if isinstance(found, Unreadable):
                raise UsageError(
                    f"image {image!r} of {name} cannot be shown ({found.detail or found.reason}),"
                    " so no verdict is kept"
                )
        names = ("query_set", "query", "reference_set", "reference", "similarity")
        about: dict[str, Any] = {name: value for name, value in pair.items() if name in names}
        return Verdict.of(*self.listing.key(row), judgment, self.reviewer, **about)

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
        own = {v.key: GRADES.index(v.judgment) for v in verdicts if v.reviewer == self.reviewer}
        disputed = {key: each.disputed for key, each in consensus_of(verdicts).items()}
        taken = {v.key: True for v in verdicts if v.reviewer != self.reviewer}
        return ListState(
            self._column(own, np.int8(-1)),
            self._column(disputed, np.False_),
            self._column(taken, np.False_),
            verdicts,
            dict(by_key),
        )

    def _column(self, values: Mapping[Key, object], other: T) -> npt.NDArray[T]:
        """Return a value for each row of the list: that of its key, or another one."""
        column = np.full(len(self.listing), other)
        rows = self.listing.rows_of(list(values))
        column[rows[rows >= 0]] = np.array(list(values.values()), column.dtype)[rows >= 0]
        return column

    def agreement(self) -> Agreement:
        """Return the agreement of the reviewers."""
        return agreement(self.standing().verdicts)

    def own_agreement(self) -> tuple[Kappa, ...]:
        """Return how far this reviewer agrees with each other one, over the pairs of both."""
        if len({verdict.reviewer for verdict in self.standing().verdicts}) < 2:
            return ()
        return tuple(each for each in self.agreement().kappas if self.reviewer in each.reviewers)

    # -- the grader of this audit ------------------------------------------------------------------

    @cached_property
    def _measured(self) -> Measured:
        return Measured.of(self.listing)

    @cached_property
    def _tail(self) -> Int64:
        """The unlikely pairs in the random order that is the same in every review of the audit."""
        return tail_order(self.listing, _seed(self.audit.summary))

    def _truth(self) -> Float64:
        """Return what reviewers agree on: 1 near or exact, 0 neither, NaN if nothing."""
        consensus = consensus_of(self.standing().verdicts)
        near = {key: each.grade in NEAR for key, each in consensus.items() if each.grade}
        return self._column(near, np.float64(np.nan))

    def near(self) -> Bool:
        """Return which pairs are near or exact: by verdicts, elsewhere by the automatic grade."""
        truth = self._truth()
        automatic = (self.listing.grade >= 0) & (self.listing.grade < len(NEAR))
        return np.where(np.isnan(truth), automatic, truth == 1.0)

    def refit(self) -> Refit:
        """Return the grader of this audit, fitted on verdicts as of the last multiple of ten."""
        with self._lock:
            return self._refits(len(self.standing().by_key) // REFIT)

    def outlook(self) -> Refit:
        """Return the grader of this audit, fitted on every verdict so far."""
        return self._measured.refit(self._truth())

    def tail_sample(self) -> TailSample:
        """Return the judged part of the random sample of unlikely pairs."""
        return tail_sample(self._tail, self._truth())

    def sort_of(self, choice: Choice) -> str:
        """Return the order of a choice: by default likely first, in the paper's list closest."""
        return choice.sort or ("distance" if self.listing.kind == "nearest" else "likely")

    def _ordered(self, choice: Choice) -> Int64:
        ordered = self._sorted(choice)
        whole = self.sort_of(choice) in ("sample", "distance")  # what is known is of its beginning
        if choice.state != "open" or self.overlap == 1.0 or whole:
            return ordered
        # reviewers at work at the same time would else be shown the same pair, again and again
        place = np.arange(len(ordered)) + NEIGHBOURS * self._mixed(self.reviewer)[ordered]
        return np.asarray(ordered[np.argsort(place, kind="stable")])

    def _sorted(self, choice: Choice) -> Int64:
        sort = self.sort_of(choice)
        if sort == "sample":
            return self._tail
        if sort not in ("likely", "active"):
            return self._plain_order(sort)
        fitted = self.refit()
        by = fitted.gain if sort == "active" else fitted.probability
        return np.argsort(-by, kind="stable")

    @cached_property
    def _shared(self) -> Bool:
        """The pairs that every reviewer judges: the same share in every review of the audit."""
        return np.asarray(self._mixed() < self.overlap)

    def _mixed(self, name: str = "") -> Float64:
        """Return a number from 0 to 1 for each pair: a hash of a name and of the two contents."""
        listing = self.listing
        ends = np.sort(np.stack([listing.left, listing.right]), axis=0).astype(np.uint64)
        own = np.uint64(zlib.crc32(name.encode()))
        mixed = (ends[0] * np.uint64(len(listing.digests)) + ends[1] + own) * np.uint64(_MIXING[0])
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_MIXING[1])
        return np.asarray((mixed >> np.uint64(11)) / 2.0**53)

    def hides(self, choice: Choice, row: int) -> bool:
        """Whether what the audit says of a pair is hidden until this reviewer has judged it."""
        hidden = self.blind or self.sort_of(choice) == "sample"
        return hidden and bool(self.standing().mine[row] < 0)

    # -- where one is -----------------------------------------------------------------------------

    def rows(self, choice: Choice) -> Int64:
        """Return the rows that a choice lets through, in its order."""
        keep = self._shown(choice)
        ordered = self._ordered(choice)
        return np.asarray(ordered[keep[ordered]])

    def _shown(self, choice: Choice) -> Bool:
        standing = self.standing()
        unjudged = standing.mine < 0
        by_state: dict[str, Bool] = {
            "": np.ones_like(unjudged),
            "disputed": standing.disputed,
            "settle": standing.disputed & unjudged,
            "open": unjudged & (self._shared | ~standing.taken),
            "judged": ~unjudged,
            "unjudged": unjudged,
        }
        return np.asarray(self._fixed(choice) & by_state[choice.state])

    def spot(self, row: int, choice: Choice, ahead: int = AHEAD) -> ListPosition:
        """Return where a row stands; one that the choice hides has neighbours all the same."""
        keep, ordered = self._shown(choice), self._ordered(choice)
        there = np.flatnonzero(ordered == row)
        # a pair outside a random sample stands before all of it
        at = int(there[0]) if len(there) else -1
        shown = np.flatnonzero(keep[ordered])
        before, after = shown[shown < at], shown[shown > at]
        return ListPosition(
            place=len(before),
            total=len(shown),
            inside=bool(keep[row]) and at >= 0,
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

    def restart(self, choice: Choice, step: int | None) -> int | None:
        """Return where to continue after the grader was fitted again: at the best pair of the list.

        Pairs that were skipped come again here; other orders continue with ``step``.
        """
        if self.sort_of(choice) not in ("likely", "active"):
            return step
        best = self.first(choice)
        return best if best is not None and self.standing().mine[best] < 0 else step

    def progress(self, choice: Choice) -> Progress:
        """Return how far this reviewer is in the list of a choice, whatever is judged already."""
        keep = self._fixed(choice)
        if self.sort_of(choice) == "sample":
            keep = keep & np.isin(np.arange(len(keep)), self._tail)
        mine = self.standing().mine[keep]
        judged = np.flatnonzero(mine >= 0)
        if not len(judged):
            return Progress(0, len(mine), 0, 0, None)
        broken = np.flatnonzero(mine[judged] != GRADES.index("different"))
        run = len(judged) - 1 - int(broken.max(initial=-1))
        last = int(judged[-1])
        distance = float(self.listing.distance[keep][last])
        known = None if np.isnan(distance) else distance
        return Progress(len(judged), len(mine), run, last + 1 - len(judged), known)

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


def _seed(summary: AuditSummary) -> int:
    """Return a number that the pairs of an audit decide."""
    digest = str(sorted((summary.files or {}).items()) or summary.key)
    return int.from_bytes(hashlib.blake2b(digest.encode(), digest_size=4).digest())


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
    """The verdicts that stand, by row of the list."""

    mine: Int8  # ``int8`` (n,): this reviewer's judgment as its place in ``GRADES``, -1 for none
    disputed: Bool  # ``bool`` (n,): reviewers disagree on near-or-not
    taken: Bool  # ``bool`` (n,): another reviewer has judged it
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
        return ListState(mine, disputed, self.taken, (*self.verdicts, *verdicts), by_key)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reviewer is in a list."""

    judged: int
    total: int
    run: int  # different pairs in a row, up to the last one that is judged
    passed_over: int  # pairs before that one without a verdict
    distance: float | None  # of that pair; ``None`` if nothing is judged, or it was not measured

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the paper is satisfied."""
        return self.run >= ROW


@dataclass(frozen=True, slots=True)
class ListPosition:
    """Where a pair stands among those that a choice lets through."""

    place: int
    total: int
    inside: bool
    # rows, or ``None`` at the ends
    previous: int | None
    next: int | None
    ahead: tuple[int, ...]


# -- a review as a paragraph for the methods section of a paper -----------------------------------


def methods(session: ReviewSession) -> str:
    """Return what was judged, by how many people, how far they agree, and what may be missed."""
    found = session.agreement()
    return " ".join(_sentences(session, found)) if found.judged else ""


def _sentences(session: ReviewSession, found: Agreement) -> Iterator[str]:
    people = counted(len(found.reviewers), "reviewer")
    shares = ", ".join(f"{number:,}" for number in found.reviewers.values())
    blind = f"; {session.reviewer} without sight of the automatic grade" if session.blind else ""
    yield (
        f"{counted(found.judged, 'pair')} of the {len(session.listing):,} listed by visleak"
        f" {visleak.__version__} were judged by {people} ({shares}), without sight of"
        f" the verdicts of others{blind}."
    )
    for each in found.kappas:
        names = " and ".join(each.reviewers)
        kappa = "" if each.kappa != each.kappa else f" (Cohen's kappa {each.kappa:.2f})"
        yield (
            f"{names} judged {counted(each.pairs, 'pair')} both, and agree on near-or-not in"
            f" {each.agreed:,} of them{kappa}."
        )
    if found.outvoted:
        yield f"Near-or-not was decided by a majority in {counted(found.outvoted, 'pair')}."
    if found.disputed:
        verb = "is" if found.disputed == 1 else "are"
        yield f"{counted(found.disputed, 'pair')} {verb} disputed and keep the automatic grade."
    fitted = session.outlook()
    yield f"An estimated {percent(fitted.missed)} % of the near pairs have no verdict."
    tail = session.tail_sample()
    if tail.judged:
        low, high = tail.interval
        yield (
            f"Of the {tail.size:,} pairs with a probability below {TAIL:g} a random sample of"
            f" {tail.judged:,} was judged blind; {tail.near:,} were near, so that {low:,} to"
            f" {high:,} of all are (exact 95 % interval)."
        )
