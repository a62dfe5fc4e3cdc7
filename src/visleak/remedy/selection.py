"""Selection of replacements for duplicates: candidates, their neighbours, and decisions."""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from visleak.auditing import Audit, open_cache, workers_for
from visleak.encoders import load_encoder
from visleak.encoders.request import parse
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.formats import open_image_set
from visleak.formats.remote import redacted
from visleak.grading import Grader, grade, load_grader
from visleak.pipeline.candidates import reference_similarities, views_for
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet, Side
from visleak.pipeline.run import Comparer
from visleak.pipeline.verification import equal_bytes, verify
from visleak.progress import Progress, silent
from visleak.quantities import counted, some
from visleak.records import GRADES, EmbeddingSet, Encoder, Float32, ImageSet, Int64, Pairs
from visleak.remedy import pool as pools
from visleak.remedy.graph import refuse_ungraded
from visleak.remedy.pool import Decision, Decisions, Duplicate, Duplicates, Leak, Pool, class_of
from visleak.remedy.settings import SelectionSettings
from visleak.search.exact import ExactSearch, rescore
from visleak.search.hits import Sides, Wanted
from visleak.settings import Settings
from visleak.storage import IMAGES, read_table
from visleak.verdicts import judged_pairs, read_verdicts
from visleak.verdicts.exchange import as_listed

#: Neighbours verified per set, as many as in an audit. The three of the paper miss a copy that
#: ranks behind three similar images.
COMPARED: Final = 20

#: Share of the background similarity that is subtracted for the ranking: none, as in the paper, and
#: half, as in an audit; the neighbours of both rankings are verified.
CORRECTED: Final = (0.0, 0.5)

SHOWN: Final = 3  # neighbours that people see, as in the paper
BLOCK: Final = 8  # candidates verified together
SPARE: Final = 32  # candidates searched for together, in addition to those that are needed
MACHINE: Final = "visleak"  # reviewer of automatic decisions

_COPY: Final = {"exact": "exact copy of", "near": "near copy of", "similar": "very similar to"}
_DEFAULTS: Final = SelectionSettings()


class NotEligible(VisleakError):
    """The candidate is a copy of one of its nearest neighbours."""


def distance(similarity: float) -> float:
    """Return the Euclidean distance of unit vectors of a similarity, as ciFAIR writes it.

    >>> distance(0.5)
    1.0
    """
    return math.sqrt(max(0.0, 2.0 - 2.0 * similarity))


def _label_of(own: EncodedSet, row: int) -> str | None:
    if own.images.labels is None:
        return None
    label: str | None = own.images.labels[int(own.fingerprints.rows[row])].as_py()
    return label


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An image near a candidate."""

    set: str
    row: int
    similarity: float
    view: int  # index into ``VIEWS``: the view of the candidate with that similarity


@dataclass
class Neighbours:
    """Nearest images of candidates; the sets of the audit are searched once per candidate."""

    existing: Mapping[str, Side]  # the sets of the audit, by name
    pool: Side
    encoder: Encoder
    views: tuple[int, ...]
    workers: int  # threads
    _found: dict[int, tuple[Neighbour, ...]] = field(default_factory=dict, init=False)

    def search(self, rows: Sequence[int]) -> None:
        """Search the sets of the audit for rows of the pool, and cache the result."""
        fresh = np.array(sorted(set(rows) - self._found.keys()), np.int64)
        if not len(fresh):
            return
        found: dict[int, set[Neighbour]] = {row: set() for row in fresh.tolist()}
        queries = np.asarray(self.pool.fingerprints.matrix[fresh])
        for (name, side), share in itertools.product(self.existing.items(), CORRECTED):
            sides = self._sides(queries, side, side.background * np.float32(share))
            hits = ExactSearch().find(sides, Wanted(None, best=COMPARED), workers=self.workers)
            columns = (fresh[hits.query], hits.reference, hits.similarity, hits.view)
            for row, *near in _table_rows(*columns):
                found[row].add(Neighbour(name, *near))
        self._found |= {row: self._nearest(near) for row, near in found.items()}

    def of(self, row: int, approved: Int64) -> tuple[Neighbour, ...]:
        """Return the neighbours of a row of the pool to verify, nearest first."""
        self.search([row])
        others = approved[approved != row]
        near = list(self._found[row])
        if len(others):
            sides = self._sides(self.pool.fingerprints.matrix[[row]], self.pool)
            scored = rescore(sides, sides.query[:1], np.zeros(len(others), np.int64), others)
            near += self._nearest(
                Neighbour(self.pool.fingerprints.set, *each)
                for each in _table_rows(scored.reference, scored.similarity, scored.view)
            )[:COMPARED]
        return self._nearest(near)

    def similarity(self, names: Sequence[str], rows: Sequence[int]) -> float:
        """Return the similarity of two images of the audit, the largest over the views."""
        query, reference = (self.existing[name] for name in names)
        sides = self._sides(query.fingerprints.matrix[[rows[0]]], reference)
        places = np.zeros(1, np.int64), np.array([rows[1]], np.int64)
        return float(rescore(sides, sides.query[:1], *places).similarity[0])

    def _sides(self, query: Float32, reference: Side, penalty: Float32 | None = None) -> Sides:
        matrix = reference.fingerprints.matrix
        return Sides(
            query=query,
            reference=matrix,
            penalty=np.zeros(len(matrix), np.float32) if penalty is None else penalty,
            order=reference.order,
            views=self.views,
            make=self.encoder.view if len(self.views) > 1 else None,
        )

    def _nearest(self, found: Iterable[Neighbour]) -> tuple[Neighbour, ...]:
        places = {name: place for place, name in enumerate(self.existing)}

        def rank(near: Neighbour) -> tuple[float, int, int]:
            side = self.existing.get(near.set, self.pool)
            place = places.get(near.set, len(places))
            return -near.similarity, place, int(side.order[near.row])

        return tuple(sorted(found, key=rank))


def _table_rows(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


@dataclass(frozen=True, slots=True)
class SimilarImage:
    """A verified neighbour of a candidate."""

    set: str
    id: str
    label: str | None
    similarity: float
    grade: str | None  # of the pair; ``None`` if an image could not be read

    @property
    def distance(self) -> float:
        """Euclidean distance of the unit vectors."""
        return distance(self.similarity)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image of the pool and its verified neighbours."""

    row: int
    id: str
    label: str | None
    digest: str
    near: tuple[SimilarImage, ...]  # nearest first

    @property
    def nearest(self) -> tuple[SimilarImage, ...]:
        """The neighbours that people see."""
        return self.near[:SHOWN]

    @property
    def objection(self) -> str:
        """The reason why it cannot be approved; empty if it is eligible."""
        for near in self.near:
            if near.grade != "different":
                what = _COPY.get(near.grade or "", "could not be compared with")
                return f"not eligible: {what} {near.set}/{near.id}"
        return ""


@dataclass
class Examiner:
    """Verifies candidates against their neighbours as an audit does, each pair once."""

    sides: Mapping[str, Side]  # the sets of the audit and the pool, by name
    pool: str  # name of the pool
    neighbours: Neighbours
    views: str  # setting of the audit
    grader: Grader
    context: Callable[[], AbstractContextManager[RunContext]]  # returns a context for one call
    # by row of the pool, set and row of the neighbour
    _grades: dict[tuple[int, str, int], str | None] = field(default_factory=dict, init=False)

    def candidates(self, rows: Sequence[int], approved: Int64) -> list[Candidate]:
        """Return rows of the pool as candidates; approved rows count as neighbours."""
        near = {row: self.neighbours.of(row, approved) for row in rows}
        self._verify([(row, each) for row, found in near.items() for each in found])
        own = self.sides[self.pool]
        return [
            Candidate(
                row=row,
                id=own.fingerprints.ids[row].as_py(),
                label=_label_of(own, row),
                digest=bytes(own.fingerprints.digests[row]).hex(),
                near=tuple(self._similar(row, each) for each in found),
            )
            for row, found in near.items()
        ]

    def prepare(self, rows: Sequence[int]) -> None:
        """Verify rows against their neighbours in the audit, together."""
        self.neighbours.search(rows)
        self.candidates(rows, np.empty(0, np.int64))

    def prepared(self, rows: Sequence[int]) -> Iterator[int]:
        """Yield rows in order, prepared in blocks."""
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            self.prepare(block)
            yield from block

    def _similar(self, row: int, near: Neighbour) -> SimilarImage:
        own = self.sides[near.set]
        id_ = own.fingerprints.ids[near.row].as_py()
        graded = self._grades[row, near.set, near.row]
        return SimilarImage(near.set, id_, _label_of(own, near.row), near.similarity, graded)

    def _verify(self, couples: Iterable[tuple[int, Neighbour]]) -> None:
        """Grade pairs of a row of the pool and a neighbour that have no grade yet."""
        fresh: dict[str, list[tuple[int, Neighbour]]] = {}
        for row, near in dict.fromkeys(couples):
            if (row, near.set, near.row) not in self._grades:
                fresh.setdefault(near.set, []).append((row, near))
        if not fresh:
            return
        found = [self._pairs(name, each) for name, each in fresh.items()]
        encoder = self.neighbours.encoder
        with self.context() as context:
            measured = reference_similarities(found, self.sides, encoder, self.views, context)
            evidence = verify(measured, self.sides, context)
        for pairs, own in zip(measured, evidence, strict=True):
            grades = grade(
                pairs.similarity,
                pairs.background,
                own,
                equal_bytes=equal_bytes(pairs, self.sides),
                flat=self.sides[self.pool].fingerprints.flat[pairs.query],
                grader=self.grader,
            )
            for row, other, code in _table_rows(pairs.query, pairs.reference, grades.grade):
                known = GRADES[code] if code >= 0 else None
                self._grades[row, pairs.reference_set, other] = known

    def _pairs(self, name: str, couples: list[tuple[int, Neighbour]]) -> Pairs:
        query = np.array([row for row, _ in couples], np.int64)
        reference = np.array([near.row for _, near in couples], np.int64)
        own, other = self.sides[self.pool], self.sides[name]
        background = (own.background[query] + other.background[reference]) / 2
        return Pairs(
            query_set=self.pool,
            reference_set=name,
            query=query,
            reference=reference,
            similarity=np.array([near.similarity for _, near in couples], np.float32),
            background=background.astype(np.float32),
            view=np.array([near.view for _, near in couples], np.int8),
            total=np.zeros(len(own.fingerprints), np.int64),
        )


# -- selection -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """The state of a duplicate."""

    approved: Decision | None  # its replacement
    # the replacement if there is one, otherwise the next eligible candidate; ``None`` if no
    # candidate of the class is left
    candidate: Candidate | None
    passed: tuple[Candidate, ...]  # candidates before it that are not eligible
    left: int  # candidates without a decision


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Number of duplicates of a class, replaced ones, and candidates without a decision."""

    label: str  # empty without labels
    duplicates: int
    replaced: int
    candidates_left: int


@dataclass
class Selection:
    """The selection of replacements for the duplicates of an audit. Safe for several threads.

    Made by :func:`open_selection`.
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

    def approvals(self) -> dict[tuple[str, int], Decision]:
        """Return the valid approvals by content and copy of the test image."""
        return {
            (each.test_digest, each.copy): each
            for each in self.decisions.standing()
            if each.decision == pools.APPROVED
        }

    def similarity(self, duplicate: Duplicate, leak: Leak) -> float:
        """Return the similarity of a duplicate and its leak; computed if it is unknown."""
        if leak.similarity is not None:
            return leak.similarity
        names, ids = (self.test_set, leak.set), (duplicate.id, leak.id)
        rows = [self._row_in(name, id_) for name, id_ in zip(names, ids, strict=True)]
        return self.examiner.neighbours.similarity(names, rows)

    def label_of(self, set_name: str, id_: str) -> str | None:
        """Return the label of an image of the audit."""
        row = self._row_in(set_name, id_)
        return _label_of(self.material[set_name], row) if row >= 0 else None

    def _row_in(self, name: str, id_: str) -> int:
        return int(pc.index(self.material[name].fingerprints.ids, id_).as_py())

    def row_of(self, digest: str) -> int | None:
        """Return the row of the pool with a content."""
        return self._rows.get(digest)

    def counts(self) -> tuple[ClassCount, ...]:
        """Return the counts of each class, by name."""
        approved = self.approvals()
        by_label: dict[str, list[Duplicate]] = {}
        for each in self.duplicates.images:
            by_label.setdefault(each.label or "", []).append(each)
        return tuple(
            ClassCount(
                label=label,
                duplicates=len(own),
                replaced=sum((each.digest, each.copy) in approved for each in own),
                candidates_left=len(self._waiting(own[0].label)),
            )
            for label, own in sorted(by_label.items())
        )

    def warm_up(self) -> None:
        """Search for the neighbours of the candidates that will be needed, together."""
        with self._lock:
            self.examiner.neighbours.search(self._soon())

    def offer(self, place: int, after: str | None = None) -> Offer:
        """Return the state of a duplicate, with the candidate that comes next, cyclically."""
        with self._lock:
            duplicate = self.duplicates.images[place]
            decision = self.approvals().get((duplicate.digest, duplicate.copy))
            waiting, last = self._waiting(duplicate.label), self._rows.get(after or "")
            if decision is not None:
                own = self._rows.get(decision.pool_digest)
                shown = self.candidates([own])[0] if own is not None else None
                return Offer(decision, shown, (), len(waiting))
            if last is not None:
                rank = {row: at for at, row in enumerate(self._queue(duplicate.label).tolist())}
                waiting.sort(key=lambda row: (rank[row] <= rank.get(last, -1), rank[row]))
            passed: list[Candidate] = []
            for row in self.examiner.prepared(waiting):
                (candidate,) = self.candidates([row])
                if not candidate.objection:
                    return Offer(None, candidate, tuple(passed), len(waiting))
                passed.append(candidate)
            return Offer(None, None, tuple(passed), len(waiting))

    def candidates(self, rows: Sequence[int]) -> list[Candidate]:
        """Return rows of the pool with their verified neighbours."""
        with self._lock:
            return self.examiner.candidates(rows, self._approved(self.approvals().values()))

    def objection(self, approved: Decision) -> str:
        """Return the reason why an approval is no longer valid; empty if it is valid."""
        with self._lock:
            row = self._rows.get(approved.pool_digest)
            if row is None:
                return "not in this pool"
            if row not in self._queue(approved.label or None):
                return "of another class"
            # later approvals were compared with this one
            before = itertools.takewhile(
                lambda each: each.pool_digest != approved.pool_digest, self.approvals().values()
            )
            return self.examiner.candidates([row], self._approved(before))[0].objection

    def approve(self, place: int, digest: str, reviewer: str, how: str = "person") -> Decision:
        """Approve an image for a duplicate; it becomes a neighbour of later candidates."""
        with self._lock:
            decision = self._decision(pools.APPROVED, place, digest, reviewer, how)
            while True:
                known = {each.pool_digest for each in self.approvals().values()}
                (candidate,) = self.candidates([self._rows[digest]])
                if candidate.objection:
                    raise NotEligible(f"{candidate.id}: {candidate.objection}")
                if not self.decisions.approve(decision, known):
                    return decision

    def reject(self, place: int, digest: str, reviewer: str) -> Decision:
        """Reject an image of the pool for all duplicates."""
        with self._lock:
            decision = self._decision(pools.REJECTED, place, digest, reviewer, "person")
            self.decisions.reject(decision)
            return decision

    def undo(self, reviewer: str, since: str = "") -> Decision | None:
        """Withdraw the last decision of a reviewer since a time, and return it."""
        return self.decisions.undo(reviewer, since)

    def withdraw(self, place: int) -> Decision | None:
        """Withdraw the replacement of a duplicate, by any reviewer, and return it."""
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
        if row not in self._queue(duplicate.label):
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

    def _queue(self, label: str | None) -> Int64:
        """Return the rows of the pool that may replace an image of a class, in their order."""
        return self.pool.queues.get(class_of(label) if self.by_class else None, np.empty(0, int))

    def _waiting(self, label: str | None) -> list[int]:
        """Return the rows of the queue of a class without a decision."""
        decided = {self._rows.get(each.pool_digest) for each in self.decisions.standing()}
        return [row for row in self._queue(label).tolist() if row not in decided]

    def _soon(self) -> list[int]:
        """Return the candidates that are needed, and some spare ones."""
        approved = self.approvals()
        needed: dict[str | None, list[Duplicate]] = {}
        for each in self.duplicates.images:
            if (each.digest, each.copy) not in approved:
                needed.setdefault(class_of(each.label), []).append(each)
        return [
            row
            for own in needed.values()
            for row in self._waiting(own[0].label)[: len(own) + len(own) // 8 + SPARE]
        ]

    def _approved(self, decisions: Iterable[Decision]) -> Int64:
        rows = [self._rows.get(each.pool_digest) for each in decisions]
        return np.array([row for row in rows if row is not None], np.int64)


# -- opening an audit and a pool -------------------------------------------------------------------


@contextmanager
def open_selection(
    folder: str | os.PathLike[str],
    pool: str | os.PathLike[str] | ImageSet,
    settings: SelectionSettings = _DEFAULTS,
    *,
    trial: bool = False,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
) -> Iterator[Selection]:
    """Open an audit and a pool to choose replacements for the duplicates of a test set.

    A ``trial`` changes a copy of the decisions: nothing is written into the audit folder.
    """
    result = Audit(folder)
    name = _test_set(result, settings.set_name)
    sets = {about.name: _images_of(result, about.name) for about in result.summary.sets}
    encoder = _encoder_of(result)
    images = _opened_pool(pool, settings, sets)
    views = result.summary.settings.views
    processes = workers_for(sum(map(len, (*sets.values(), images))), workers)
    with ExitStack() as stack:
        store = stack.enter_context(open_cache(cache, (*sets.values(), images)))
        place = stack.enter_context(RunContext.at(None, processes, store, progress))
        comparer = Comparer(encoder, views_for(encoder, views), Settings(), place)
        for each in (*sets.values(), images):
            comparer.add(each, tested=False)
        _refuse_other_images(result, comparer.sides)
        verdicts = read_verdicts(result.folder)
        duplicates = pools.find_duplicates(
            as_listed(judged_pairs(result.folder, pools.COLUMNS, verdicts), verdicts),
            sets[name],
            comparer.sides[name].fingerprints,
            settings.grade,
            include_disputed=settings.include_disputed,
        )
        own = comparer.sides[images.name]
        existing = {
            bytes(digest) for n in sets for digest in comparer.sides[n].fingerprints.digests
        }
        candidates = pools.make_pool(own.images, own.fingerprints, existing, settings.seed)
        by_class = sets[name].labels is not None and own.images.labels is not None
        _refuse_useless(by_class, duplicates, candidates)
        decisions = stack.enter_context(
            Decisions.copied(result.folder, place.scratch) if trial else Decisions(result.folder)
        )

        # one worker: processes would take longer to start than a few pairs take to verify
        context = partial(RunContext.at, None, 1, store)
        audited = {each: comparer.sides[each] for each in sets}
        neighbours = Neighbours(audited, own, encoder, comparer.views, processes)
        grader = load_grader(near_at=result.summary.settings.near_at)
        examiner = Examiner(comparer.sides, images.name, neighbours, views, grader, context)
        yield Selection(duplicates, name, candidates, by_class, examiner, decisions)


def _test_set(result: Audit, name: str | None) -> str:
    refuse_ungraded(result.folder, result.summary)
    names = [total.query_set for total in result.summary.totals]
    if name is not None and name not in names:
        raise not_one_of("set", name, names)
    if name is None and len(names) > 1:
        raise UsageError(
            f"this audit has the test sets {', '.join(names)}; one is replaced at a time: choose"
            " it with --set"
        )
    return name or names[0]


def _images_of(result: Audit, name: str) -> ImageSet:
    images = result.images_of(name)
    if isinstance(images, EmbeddingSet):
        raise UsageError(
            f"set {name!r} of the audit holds embeddings only; a candidate is compared with images:"
            " audit the images themselves"
        )
    return images


def _encoder_of(result: Audit) -> Encoder:
    about = result.summary.encoder
    encoder = load_encoder(_encoder_name(about.name, Path(result.summary.opened_in)))
    if encoder.digest != about.digest:
        raise VisleakError(
            f"encoder {about.name} has digest {encoder.digest[:12]} here, the audit was made"
            f" with {about.digest[:12]}; audit again, or restore that encoder"
        )
    return encoder


def _encoder_name(name: str, base: Path) -> str:
    """Return the name of an encoder; a missing file is searched in the folder of the audit run.

    >>> _encoder_name("builtin", Path("/data"))
    'builtin'
    """
    file = parse(name).argument
    if file and not Path(file).exists() and (base / file).exists():
        return name.replace(file, str(base / file), 1)
    return name


def _opened_pool(
    pool: str | os.PathLike[str] | ImageSet,
    settings: SelectionSettings,
    sets: Mapping[str, ImageSet],
) -> ImageSet:
    """Open the pool under a name that no set of the audit has."""
    name = "pool"
    while name in sets:
        name += "+"
    if isinstance(pool, ImageSet):
        return replace(pool, name=name)
    images = open_image_set(pool, name=name, id=settings.id, label=settings.label)
    if not len(images):
        raise VisleakError(f"the pool {redacted(os.fspath(pool))} holds no images")
    return images


def _refuse_other_images(result: Audit, sides: Mapping[str, EncodedSet]) -> None:
    stored = read_table(result.folder, IMAGES, ["set", "id", "digest"])
    for about in result.summary.sets:
        prints = sides[about.name].fingerprints
        own = stored.filter(pc.equal(stored["set"], about.name))
        place = pc.index_in(own["id"].combine_chunks(), prints.ids).to_pylist()
        now = [None if at is None else bytes(prints.digests[at]).hex() for at in place]
        changed = sum(a != b for a, b in zip(own["digest"].to_pylist(), now, strict=True))
        new = len(prints.ids) - sum(at is not None for at in place)
        for count, what in ((changed, "changed since the audit"), (new, "not in the audit")):
            if count:
                raise VisleakError(
                    f"{counted(count, 'image')} of set {about.name!r} ({about.source}) {what};"
                    " audit again"
                )


def _refuse_useless(by_class: bool, duplicates: Duplicates, pool: Pool) -> None:
    if not pool.usable:
        raise VisleakError(
            f"no image of the pool can be used: {pool.known:,} are in the audit already,"
            f" {pool.blank:,} are blank, {pool.unreadable:,} cannot be read; choose another --pool"
        )
    needed = sorted({each.label for each in duplicates.images if each.label is not None})
    if by_class and needed and not any(class_of(label) in pool.queues for label in needed):
        there = sorted(label for label in pool.queues if label is not None)
        raise UsageError(
            f"no class is in both: the duplicates are of {some(needed, 5)}, the pool has"
            f" {some(there, 5) or 'none'}; choose its column with --label"
        )
