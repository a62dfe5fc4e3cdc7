"""Pairs that came, went, or are of another grade, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.groups import image_rows, is_word, rank_within, scale_codes
from visleak.records import DEGREES, GRADES, Bool, Float32, Int8, Int64
from visleak.storage import IMAGES, PAIRS, UNREADABLE, AuditSummary, read_problems, read_table
from visleak.verdicts import judged_pairs, judged_summary
from visleak.verdicts.overlay import Level, alone

APPEARED, VANISHED, CHANGED = CHANGES = ("appeared", "vanished", "changed")

#: Why a pair is in one audit only, or of another grade, in the order in which they are tried.
#: ``image new`` and ``image gone`` are one, seen from two sides.
REASONS: Final = (
    "not compared",
    "image",
    "unreadable",
    "content changed",
    "judged",
    "regraded",
    "degree",
    "below threshold",
    "not searched",
)

#: What the reasons mean, after a number of pairs; ``{other}`` is the audit without them.
MEANINGS: Final = {
    "not compared": "of sets that {other} did not compare",
    "image new": "with an image that {other} had not",
    "image gone": "with an image that {other} has not",
    "unreadable": "with an image that {other} could not read",
    "content changed": "with an image that has another content in {other}",
    "judged": "judged by a person",
    "regraded": "graded otherwise by the machine",
    "degree": "of another degree",
    "below threshold": "below the threshold of {other}",
    "not searched": "not among the candidates of {other}",
}


@dataclass(frozen=True)
class Changes:
    """Pairs at a level in at least one audit that are not the same in the other."""

    # places in the listed pairs of the two audits; -1 where it is not listed
    before: Int64
    after: Int64
    change: Int8
    reason: Int8

    def __len__(self) -> int:
        return len(self.before)


def reason_word(change: int, reason: int) -> str:
    """Return why a pair changed, from its places in :data:`CHANGES` and :data:`REASONS`."""
    if REASONS[reason] != "image":
        return REASONS[reason]
    return "image new" if CHANGES[change] == APPEARED else "image gone"


@dataclass(frozen=True)
class View:
    """An audit as seen from the other one."""

    side: Side
    matching: Matching
    sets: Mapping[str, str]


def changes(before: View, after: View, level: Level) -> Changes:
    """Compare the pairs of two audits at a level.

    Pairs are the same where both images are, contents included; those of a repeat within a set
    in either order.
    """
    old, new = before.side.listed, after.side.listed
    strong = [getattr(pairs, level.scale) <= level.code for pairs in (old, new)]
    keys = _keys(before, after)
    # of the weaker pairs only those that are strong in the other audit matter
    kept = [
        np.flatnonzero(strong[0] | np.isin(keys[0], keys[1][strong[1]])),
        np.flatnonzero(strong[1] | np.isin(keys[1], keys[0][strong[0] & (keys[0] >= 0)])),
    ]
    known = kept[0][keys[0][kept[0]] >= 0]
    _, i, j = np.intersect1d(keys[0][known], keys[1][kept[1]], return_indices=True)
    pairs = known[i], kept[1][j]
    gone, came = (np.setdiff1d(np.flatnonzero(strong[k]), pairs[k]) for k in (0, 1))
    parts = [
        _in_both(old, new, pairs, level),
        _alone(before, after, gone, VANISHED, level),
        _alone(after, before, came, APPEARED, level),
    ]
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Changes(*map(np.concatenate, columns))


def _keys(before: View, after: View) -> tuple[Int64, Int64]:
    """Return a number for each pair, the same for the same pair; -1 where an image is not there."""
    old, new, match = before.side.listed, after.side.listed, before.matching
    there = match.same_content[old.query] & match.same_content[old.reference]
    ends = match.partner[old.query], match.partner[old.reference]
    count = after.side.images.num_rows

    def numbered(left: Int64, right: Int64, within: Bool) -> Int64:
        first = np.where(within, np.minimum(left, right), left)
        second = np.where(within, np.maximum(left, right), right)
        return np.asarray(first * count + second)

    keys = np.where(there, numbered(*ends, old.within), -1)
    return keys, numbered(new.query, new.reference, new.within)


def _in_both(old: Listed, new: Listed, pairs: tuple[Int64, Int64], level: Level) -> Changes:
    first, second = old.take(pairs[0]), new.take(pairs[1])
    codes = [getattr(part, level.scale) for part in (first, second)]
    strong = [code <= level.code for code in codes]
    differ = (first.grade != second.grade) | (first.degree != second.degree)
    change = np.select(
        [strong[0] & ~strong[1], strong[1] & ~strong[0], strong[0] & strong[1] & differ],
        [CHANGES.index(VANISHED), CHANGES.index(APPEARED), CHANGES.index(CHANGED)],
        -1,
    )
    # what crosses the level does so on the level's scale; what stays above it may move on either
    moved = first.grade != second.grade
    if level.scale == "degree":
        moved &= first.degree == second.degree
    people = (first.judged > 0) | (second.judged > 0)
    reason = np.select(
        [moved & people, moved],
        [REASONS.index("judged"), REASONS.index("regraded")],
        REASONS.index("degree"),
    )
    rows = np.flatnonzero(change >= 0)
    why = change[rows].astype(np.int8), reason[rows].astype(np.int8)
    return Changes(pairs[0][rows], pairs[1][rows], *why)


def _alone(view: View, other: View, rows: Int64, which: str, level: Level) -> Changes:
    """Return pairs that the other audit does not list, and why it does not."""
    pairs = view.side.listed.take(rows)
    gone, unreadable, unlisted, changed = (np.zeros(len(pairs), bool) for _ in range(4))
    for end in (pairs.query, pairs.reference):
        fate = view.matching.fate[end]
        away = fate == ImageStatus.GONE
        lost, partly = _lost(view, other, end)
        unreadable |= away & lost
        unlisted |= away & partly & ~lost
        gone |= away & ~lost & ~partly
        changed |= fate == ImageStatus.CHANGED
    added = (pairs.judged == HUMAN) & (pairs.machine_grade > level.code)
    conditions = {
        "not compared": ~_compared(view, other, (pairs.query, pairs.reference)),
        "image": gone,
        "unreadable": unreadable,
        "content changed": changed,
        "judged": added & ~unlisted & (level.scale == "grade"),
        "below threshold": _below(view, other, pairs) & ~unlisted,
    }
    reason = np.select(
        list(conditions.values()),
        [REASONS.index(name) for name in conditions],
        REASONS.index("not searched"),
    )
    nothing = np.full(len(rows), -1, np.int64)
    return Changes(
        rows if which == VANISHED else nothing,
        rows if which == APPEARED else nothing,
        np.full(len(rows), CHANGES.index(which), np.int8),
        reason.astype(np.int8),
    )


def _lost(view: View, other: View, images: Int64) -> tuple[Bool, Bool]:
    """Return which images the other audit could not read, and which it may just not list."""
    lost, partly = np.zeros(len(images), bool), np.zeros(len(images), bool)
    for place, name in enumerate(view.side.names):
        theirs = view.sets.get(name)
        if theirs is None:
            continue
        mine = np.flatnonzero(view.side.set_of[images] == place)
        ids = sorted(id_ for set_name, id_ in other.side.unreadable if set_name == theirs)
        if ids and len(mine):
            found = pc.is_in(view.side.column("id", images[mine]), pa.array(ids, pa.string()))
            lost[mine] = found.to_numpy(zero_copy_only=False)
        partly[mine] = other.side.partly_listed(theirs)
    return lost, partly


def _compared(view: View, other: View, ends: tuple[Int64, Int64]) -> Bool:
    done = {(c.query_set, c.reference_set) for c in other.side.summary.comparisons}
    names = view.side.names
    query, reference = (view.side.set_of[end] for end in ends)
    result = np.zeros(len(query), bool)
    for own in view.side.summary.comparisons:
        left, right = own.query_set, own.reference_set
        if (view.sets.get(left), view.sets.get(right)) in done:
            result |= (query == names.index(left)) & (reference == names.index(right))
    return result


def _below(view: View, other: View, pairs: Listed) -> Bool:
    """Return which pairs the other audit need not list, for they are below its soft threshold.

    Similarities of another encoder do not compare with it.
    """
    soft = other.side.summary.thresholds.soft
    digests = [each.side.summary.encoder.digest for each in (view, other)]
    if soft is None or digests[0] != digests[1]:
        return np.zeros(len(pairs), bool)
    below: Bool = pairs.similarity < np.float32(soft)
    return below


def strongest(side: Side, level: Level) -> Int8:
    """Return for each image the strongest place on the level's scale among its leaks.

    Of repeats within a set both images count, where the set was compared with itself only.
    """
    best = np.full(side.images.num_rows, NOTHING, np.int8)
    pairs = side.listed
    code = getattr(pairs, level.scale)
    own = np.array([alone(side.summary, name) for name in side.names], bool)
    repeats = own[side.set_of[pairs.query]]
    for end, counts in (
        (pairs.query, ~pairs.within | repeats),
        (pairs.reference, pairs.within & repeats),
    ):
        np.minimum.at(best, end[counts], code[counts])
    return best


# -- the two audits of a diff as numbers: images by row, pairs by the rows of their images --------


#: Place on a scale of what has no grade or degree; weaker than every other.
NOTHING: Final = 99

#: Who spoke of a pair.
HUMAN, DISPUTED = 1, 2

_COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity", "coverage"),
    *("grade", "degree", "machine_grade", "judged"),
)


@dataclass(frozen=True)
class Listed:
    """Pairs of an audit, blank images left out. All arrays are of one length."""

    query: Int64
    reference: Int64
    grade: Int8
    degree: Int8
    machine_grade: Int8
    judged: Int8  # `HUMAN`, `DISPUTED` or 0
    similarity: Float32  # NaN if it was not measured
    within: Bool

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Int64) -> Listed:
        """Return some of the pairs."""
        return Listed(**{name: column[rows] for name, column in vars(self).items()})


class Side:
    """One audit of a diff, verdicts of people counted; an image takes about 100 bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary: AuditSummary = judged_summary(folder)
        self.images = read_table(folder, IMAGES, ["set", "id", "digest", "flat"]).combine_chunks()

    @cached_property
    def rows(self) -> Mapping[str, Int64]:
        """Rows of the images of each set; a set without readable images has none."""
        sets = self.images["set"]
        names = [each.name for each in self.summary.sets]
        return {name: np.flatnonzero(is_word(sets, name)) for name in names}

    @cached_property
    def set_of(self) -> Int64:
        """For each image the place of its set in ``summary["sets"]``."""
        result = np.full(self.images.num_rows, -1, np.int64)
        for place, rows in enumerate(self.rows.values()):
            result[rows] = place
        return result

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sets, in their order."""
        return tuple(self.rows)

    @cached_property
    def unreadable(self) -> frozenset[tuple[str, str]]:
        """Set and id of what could not be read."""
        return frozenset((p.set, p.id) for p in read_problems(self.folder / UNREADABLE))

    def column(self, name: str, rows: Int64) -> pa.Array:
        """Return a column of some images."""
        return self.images[name].combine_chunks().take(pa.array(rows))

    def partly_listed(self, name: str) -> bool:
        """Whether images of a set may be missing here only because they were not compared."""
        about = next(each for each in self.summary.sets if each.name == name)
        sampled = bool(self.summary.settings.sample) and about.side == "query"
        # embeddings that passed by: only those in a pair are listed
        return sampled or (about.listed is not None and about.distinct is None)

    @cached_property
    def listed(self) -> Listed:
        """All pairs of the audit as numbers; 40 bytes a pair."""
        table = judged_pairs(self.folder, _COLUMNS)
        query, reference = (image_rows(table, s, self.images) for s in ("query", "reference"))
        if (query < 0).any() or (reference < 0).any():
            raise VisleakError(
                f"{self.folder}: {PAIRS} names images that {IMAGES} does not; run the audit again"
            )
        blank = pc.fill_null(self.images["flat"], False).to_numpy()
        found = Listed(
            query,
            reference,
            grade=scale_codes(table["grade"], GRADES, NOTHING),
            degree=scale_codes(table["degree"], DEGREES, NOTHING),
            machine_grade=scale_codes(table["machine_grade"], GRADES, NOTHING),
            judged=scale_codes(table["judged"], ("", "human", "disputed"), 0),
            similarity=table["similarity"].to_numpy().astype(np.float32),
            within=is_word(table["coverage"], "within"),
        )
        return found.take(np.flatnonzero(~blank[found.query]))


# -- which sets of two audits correspond ----------------------------------------------------------


class ImageStatus(IntEnum):
    """What an image of one audit is in the other."""

    GONE = 0
    SAME = 1  # there, with the same id and content
    RENAMED = 2  # there, with the same content and another id
    CHANGED = 3  # its id is there, with another content


@dataclass(frozen=True)
class Matching:
    """For each image of an audit, who it is in the other."""

    partner: Int64  # row of the other's images; -1 where it is gone
    fate: Int8

    @property
    def same_content(self) -> Bool:
        """Which images are there with the same content."""
        found: Bool = (self.fate == ImageStatus.SAME) | (self.fate == ImageStatus.RENAMED)
        return found


def match_images(before: Side, after: Side, sets: Mapping[str, str]) -> tuple[Matching, Matching]:
    """Match the images of two audits, each with one at most: from before, and from after.

    First by id and content, then by content alone, in the order of ids; what is left, by id.
    Where only vectors are left of a set, content is not known, and the id alone says who it is.
    """
    forth, back = (
        Matching(
            np.full(side.images.num_rows, -1, np.int64),
            np.full(side.images.num_rows, ImageStatus.GONE, np.int8),
        )
        for side in (before, after)
    )
    for old, new in sets.items():
        left, right = before.rows[old], after.rows[new]
        for fate, mine, theirs in _matched(before, after, left, right):
            rows, partners = left[mine], right[theirs]
            forth.partner[rows], forth.fate[rows] = partners, fate
            back.partner[partners], back.fate[partners] = rows, fate
    return forth, back


def _matched(
    before: Side, after: Side, left: Int64, right: Int64
) -> Iterator[tuple[ImageStatus, Int64, Int64]]:
    """Yield places of images in two sets that correspond, and how."""
    digests = before.column("digest", left), after.column("digest", right)
    mine, theirs = paired(before.column("id", left), after.column("id", right))
    if digests[0].null_count or digests[1].null_count:
        yield ImageStatus.SAME, mine, theirs
        return
    equal = pc.equal(digests[0].take(pa.array(mine)), digests[1].take(pa.array(theirs)))
    same = np.asarray(equal.to_numpy(zero_copy_only=False), bool)
    yield ImageStatus.SAME, mine[same], theirs[same]
    free = np.ones(len(left), bool), np.ones(len(right), bool)
    free[0][mine[same]] = free[1][theirs[same]] = False
    rest = np.flatnonzero(free[0]), np.flatnonzero(free[1])
    a, b = paired(digests[0].take(pa.array(rest[0])), digests[1].take(pa.array(rest[1])))
    yield ImageStatus.RENAMED, rest[0][a], rest[1][b]
    free[0][rest[0][a]] = free[1][rest[1][b]] = False
    changed = free[0][mine] & free[1][theirs]
    yield ImageStatus.CHANGED, mine[changed], theirs[changed]


def paired(left: pa.Array, right: pa.Array) -> tuple[Int64, Int64]:
    """Return places of equal values, each used once; the first with the first.

    >>> paired(pa.array(["a", "b", "b"]), pa.array(["b", "c", "b", "b"]))
    (array([1, 2]), array([0, 2]))
    """
    both = pa.chunked_array([left, right]).dictionary_encode().combine_chunks()
    codes = np.split(both.indices.to_numpy().astype(np.int64), [len(left)])
    # the first of equal values, the second, and so on are values of their own
    first, second = (code * len(both) + rank_within(code) for code in codes)
    _, mine, theirs = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return mine, theirs


def parse_map(texts: Sequence[str]) -> dict[str, str]:
    """Return the sets of ``old=new`` texts.

    >>> parse_map(["test=test-clean"])
    {'test': 'test-clean'}
    """
    given: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise UsageError(
                f"--rename must be OLD=NEW, names of one set in both audits; got {text!r}"
            )
        if old in given or new in given.values():
            raise UsageError(f"--rename names a set twice: {text!r}")
        given[old] = new
    return given


def match_sets(
    before: AuditSummary, after: AuditSummary, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the sets that are in both audits: name before to name after.

    Those given come first, then equal names. What is left of a side (queries, references) is
    matched if it is one set before and one after.
    """
    old, new = ({each.name: each.side for each in audit.sets} for audit in (before, after))
    for which, wanted, known in (("A", given.keys(), old), ("B", given.values(), new)):
        for name in wanted:
            if name not in known:
                raise UsageError(
                    f"--rename: {which} has no set {name!r}; it has {', '.join(known)}"
                )
    matched = dict(given)
    for name in old:
        if name in new and name not in matched and name not in matched.values():
            matched[name] = name
    for side in ("query", "reference"):
        left = [name for name, own in old.items() if own == side and name not in matched]
        taken = set(matched.values())
        right = [name for name, own in new.items() if own == side and name not in taken]
        if len(left) == len(right) == 1:
            matched[left[0]] = right[0]
        elif left and right:
            raise UsageError(
                f"the sets {', '.join(left)} of A and {', '.join(right)} of B have other names; say"
                f" which is which, as in --rename {left[0]}={right[0]}"
            )
    return {name: matched[name] for name in old if name in matched}
