"""The images of an audit in one numbering, and the pairs that connect them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit
from visleak.errors import UsageError, VisleakError
from visleak.grouping.document import sentences
from visleak.groups import chained, components, joined, nearest_frames, numbered
from visleak.records import Bool, ImageSet, Int64
from visleak.remedy.balance import encode_texts
from visleak.storage import GROUPS, IMAGES, AuditSummary, read_csv, read_summary, read_table
from visleak.storage.audit_folder import AGAIN, GROUP_COLUMNS
from visleak.verdicts import Verdict, disputed, judged_pairs
from visleak.verdicts.overlay import Level

_COLUMNS: Final = ("query_set", "query", "reference_set", "reference", "grade", "judged")


@dataclass(frozen=True)
class Edges:
    """Pairs of images that must stay in one part."""

    # (n,): rows of the graph, ``first < second``, no pair twice
    first: Int64
    second: Int64
    doubtful: Bool  # (n,): reviewers disagree about the pair

    @classmethod
    def of(cls, one: Int64, other: Int64, doubtful: Bool) -> Edges:
        """Return pairs in any order and direction as edges, each once."""
        ends = np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1)
        found, inverse = np.unique(ends, axis=0, return_inverse=True)
        flags = np.zeros(len(found), np.bool_)
        flags[inverse.ravel()[doubtful]] = True
        return cls(found[:, 0], found[:, 1], flags)

    def __len__(self) -> int:
        return len(self.first)

    def __add__(self, other: Edges) -> Edges:
        """Return the edges of both."""
        return Edges.of(
            np.concatenate([self.first, other.first]),
            np.concatenate([self.second, other.second]),
            np.concatenate([self.doubtful, other.doubtful]),
        )


NO_EDGES: Final = Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


@dataclass(frozen=True)
class Graph:
    """The readable images of some sets, one row each, in the order of the sets."""

    sets: tuple[ImageSet, ...]
    # (n,) each:
    owner: Int64  # index of the set
    position: Int64  # in the set
    content: Int64  # number of the content; equal for equal bytes
    flat: Bool  # blank
    group: Int64  # index into ``groups``, -1 without a group
    groups: tuple[str, ...]
    label: Int64  # (n,): index into ``classes``
    classes: tuple[str, ...]
    unreadable: int

    def __len__(self) -> int:
        return len(self.owner)

    @classmethod
    def of(cls, folder: Path, sets: Sequence[ImageSet]) -> Graph:
        """Return the images of an audit, with the groups and labels of the opened sets."""
        table = read_table(folder, IMAGES, ["set", "id", "digest", "flat"])
        positions, digests, flat = [], [], []
        for images in sets:
            own = table.filter(pc.equal(table["set"], images.name))
            places = pc.index_in(own["id"].combine_chunks(), images.ids)
            if not own.num_rows or places.null_count:
                raise UsageError(
                    f"{folder} is an audit of other images than set {images.name!r}"
                    f" ({images.source}); run `visleak audit` again"
                )
            position = places.to_numpy(zero_copy_only=False).astype(np.int64)
            order = np.argsort(position)
            positions.append(position[order])
            digests.append(own["digest"].combine_chunks().take(pa.array(order)))
            flat.append(own["flat"].to_numpy()[order])
        content = pa.chunked_array(digests, pa.string()).combine_chunks().dictionary_encode()
        position = np.concatenate(positions)
        group, groups = _column(sets, positions, "groups")
        label, classes = _column(sets, positions, "labels")
        known = [name for name in groups if name is not None]
        listed = sum(len(images) + len(images.problems) for images in sets)
        return cls(
            tuple(sets),
            np.repeat(np.arange(len(sets)), list(map(len, positions))),
            position,
            content.indices.to_numpy().astype(np.int64),
            np.concatenate(flat),
            np.where(group < len(known), group, -1),
            tuple(known),
            label,
            tuple("(none)" if name is None else name for name in classes),
            listed - len(position),
        )

    def rows(self, index: int, ids: pa.Array) -> Int64:
        """Return the rows of some ids of a set; -1 for unknown ids."""
        first, last = np.searchsorted(self.owner, [index, index + 1])
        own = self.sets[index].ids.take(pa.array(self.position[first:last]))
        places = pc.fill_null(pc.index_in(ids, own), -1).to_numpy(zero_copy_only=False)
        return np.where(places < 0, -1, places + first).astype(np.int64)

    def id(self, row: int) -> str:
        """Return the id of an image."""
        return str(self.sets[self.owner[row]].ids[int(self.position[row])].as_py())

    def edges(
        self, folder: Path, names: Mapping[str, int], grade: str, verdicts: Iterable[Verdict] | None
    ) -> Edges:
        """Return the pairs of an audit of a grade or stronger, with verdicts applied.

        Disputed pairs and overlaps are edges, whatever their grade. Blank images are connected by
        equal bytes only, see :meth:`components`.
        """
        table = strong_pairs(folder, grade, verdicts, or_disputed=True)
        first, second = (self._ends(table, side, names) for side in ("query", "reference"))
        valid = (first >= 0) & (second >= 0) & (first != second)
        valid &= ~(self.flat[first] | self.flat[second])
        doubtful = np.asarray(disputed(table).to_numpy(), np.bool_)
        return Edges.of(first[valid], second[valid], doubtful[valid])

    def _ends(self, table: pa.Table, side: str, names: Mapping[str, int]) -> Int64:
        result = np.full(table.num_rows, -1, np.int64)
        for name, index in names.items():
            mine = np.flatnonzero(pc.equal(table[f"{side}_set"], name).to_numpy())
            ids = table[side].take(pa.array(mine)).combine_chunks()
            result[mine] = self.rows(index, ids)
        return result

    def components(self, edges: Edges) -> Int64:
        """Return the component of each image: by edges, equal bytes and groups."""
        pairs = (edges.first, edges.second)
        return components(len(self), [pairs, chained(self.content), chained(self.group)])

    def describe(self, members: Int64) -> str:
        """Return a description of a component: its groups, or its first image."""
        groups = np.unique(self.group[members])
        groups = groups[groups >= 0]
        noun, name, count = "image", self.id(int(members[0])), len(members)
        if len(groups):
            noun, name, count = "group", self.groups[groups[0]], len(groups)
        return f"{noun}s {name} and {count - 1:,} more" if count > 1 else f"{noun} {name}"


def strong_pairs(
    folder: Path, grade: str, verdicts: Iterable[Verdict] | None, *, or_disputed: bool = False
) -> pa.Table:
    """Return the pairs of an audit that must not be separated, with verdicts applied.

    They have a grade or a stronger one, or overlap and were not judged by a person.
    """
    measured = read_summary(folder).settings.overlap is not None
    table = judged_pairs(folder, [*_COLUMNS, *(["overlap"] if measured else [])], verdicts)
    strong = pc.fill_null(pc.is_in(table["grade"], pa.array(Level(grade).names)), False)
    if measured:
        judged = pc.fill_null(pc.equal(table["judged"], "human"), False)
        strong = pc.or_(strong, pc.and_not(pc.is_valid(table["overlap"]), judged))
    return table.filter(pc.or_(strong, disputed(table)) if or_disputed else strong)


def _column(
    sets: Sequence[ImageSet], positions: Sequence[Int64], name: str
) -> tuple[Int64, tuple[str | None, ...]]:
    """Return codes and names of a column of all sets; null, if present, is the last name."""
    parts = []
    for images, position in zip(sets, positions, strict=True):
        column = getattr(images, name)
        nothing = pa.nulls(len(position), pa.string())
        parts.append(nothing if column is None else column.take(pa.array(position)))
    return encode_texts(pa.chunked_array(parts, pa.string()).combine_chunks())


# -- groups that an audit found in names -----------------------------------------------------------


class Row(NamedTuple):
    """An image of ``groups.csv``."""

    set: str
    id: str
    scheme: str  # number of its hypothesis, from 1
    group: str
    unit: str
    frame: str  # number or time; empty where there is none
    reference_set: str  # of the nearest reference image; empty where there is none
    nearest: str


class UnconfirmedGroups(UsageError):
    """Groups were found, and the user has not confirmed them."""

    def __init__(self, statements: Sequence[str]) -> None:
        super().__init__(
            f"--group auto found {statements[0]}; use it with --yes, or give --group COLUMN or"
            " --group '/REGEX/'"
        )
        self.statements = tuple(statements)

    def __reduce__(self) -> tuple[type[UnconfirmedGroups], tuple[tuple[str, ...]]]:
        return type(self), (self.statements,)


def refuse_unconfirmed(folder: Path, summary: AuditSummary, *, yes: bool) -> None:
    """Refuse an audit without found groups, or groups that are not confirmed by ``yes``."""
    believed = summary.grouping.believed if summary.grouping is not None else ()
    if not believed:
        raise UsageError(
            f"--group auto: {folder} found no groups that names state and images confirm; give"
            " --group COLUMN or --group '/REGEX/'"
        )
    if not yes:
        raise UnconfirmedGroups([line for each in believed for line in sentences(each)])


def with_found_groups(found: Audit, sets: Sequence[ImageSet], *, yes: bool) -> list[ImageSet]:
    """Return sets of an audit with the groups that it found."""
    refuse_unconfirmed(found.folder, found.summary, yes=yes)
    rows = list(found_rows(found.folder))
    place = {image: at for at, image in enumerate(dict.fromkeys((r.set, r.id) for r in rows))}
    schemes: dict[str, tuple[list[int], list[str]]] = {}
    for row in rows:
        places, units = schemes.setdefault(row.scheme, ([], []))
        places.append(place[row.set, row.id])
        units.append(row.unit)
    known = [(np.array(places, np.int64), units) for places, units in schemes.values()]
    groups = dict(zip(place, joined(len(place), known), strict=True))
    result = []
    for each in sets:
        own = [groups.get((each.name, id_)) for id_ in each.ids.to_pylist()]
        result.append(replace(each, groups=pa.array(own, pa.string())))
    return result


def refuse_ungraded(folder: Path, summary: AuditSummary) -> None:
    """Refuse an audit of a sample, or without verified pairs."""
    refuse_sample(folder, summary)
    if summary.grader is None:
        raise UsageError(
            f"{folder} has no grades, because its pairs were not verified; run `visleak audit` on"
            " images and without --no-verify"
        )


def refuse_sample(folder: Path, summary: AuditSummary) -> None:
    """Refuse an audit of a sample."""
    if summary.settings.sample:
        raise UsageError(
            f"{folder} is an audit of a sample of {summary.settings.sample:,} images; an audit of"
            " all images is needed: run `visleak audit` without --sample"
        )


def found_rows(folder: Path) -> Iterator[Row]:
    """Yield the images of ``groups.csv``."""
    path = folder / GROUPS
    try:
        rows = read_csv(path, GROUP_COLUMNS)
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read ({error}); {AGAIN}") from error
    yield from (Row(*row[: len(Row._fields)]) for row in rows)


def leaking(
    folder: Path, tests: set[str], trains: set[str], side: str, gaps: Mapping[str, int]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the images of one side whose unit is on both, with the reason and another image.

    ``gaps``: by scheme, the largest distance of frames at which an image of a unit leaks.
    """
    own, others = (tests, trains) if side == "test" else (trains, tests)
    schemes: dict[str, list[Row]] = {}
    for row in found_rows(folder):
        schemes.setdefault(row.scheme, []).append(row)
    result: dict[tuple[str, str], tuple[str, str]] = {}
    for scheme, rows in schemes.items():
        mine = [row for row in rows if row.set in own]
        beyond = [row for row in rows if row.set in others]
        if scheme in gaps:
            found = _within(mine, beyond, gaps[scheme])
        else:
            first = {row.unit: row for row in reversed(beyond)}
            found = ((row, first[row.unit]) for row in mine if row.unit in first)
        for row, other in found:
            close = f"{other.set}/{other.id}"
            if side == "test" and row.nearest:
                close = f"{row.reference_set}/{row.nearest}"
            result.setdefault((row.set, row.id), ("group", close))
    return result


def _within(mine: Sequence[Row], beyond: Sequence[Row], gap: int) -> Iterator[tuple[Row, Row]]:
    """Yield images with the nearest frame of their group on the other side, up to a distance."""
    groups = numbered(np.array([row.group for row in (*mine, *beyond)], np.str_))
    frames = np.array([int(row.frame) for row in (*mine, *beyond)], np.int64)
    split = len(mine)
    place, distance = nearest_frames(groups[:split], frames[:split], groups[split:], frames[split:])
    for at in np.flatnonzero((place >= 0) & (distance <= gap)).tolist():
        yield mine[at], beyond[place[at]]
