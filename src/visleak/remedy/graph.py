"""The images of an audit in one numbering, and what ties them to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.groups import chained, components
from visleak.records import GRADES, Bool, ImageSet, Int64
from visleak.remedy.balance import coded
from visleak.storage import IMAGES, read_table
from visleak.verdicts import Verdict, disputed, judged_pairs
from visleak.verdicts.level import Level

#: Grades that may tie images.
TYING: Final = GRADES[:3]

_COLUMNS: Final = ("query_set", "query", "reference_set", "reference", "grade", "judged")


@dataclass(frozen=True)
class Ties:
    """Pairs of images that must not be parted.

    Attributes:
        first, second: ``int64`` (n,): rows of the graph, ``first < second``, no pair twice.
        torn: ``bool`` (n,): reviewers disagree about it.
    """

    first: Int64
    second: Int64
    torn: Bool

    @classmethod
    def of(cls, one: Int64, other: Int64, torn: Bool) -> Ties:
        """Return pairs in any order and direction, each once, as ties."""
        ends = np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1)
        found, inverse = np.unique(ends, axis=0, return_inverse=True)
        disputed = np.zeros(len(found), np.bool_)
        disputed[inverse.ravel()[torn]] = True
        return cls(found[:, 0], found[:, 1], disputed)

    def __len__(self) -> int:
        return len(self.first)

    def __add__(self, other: Ties) -> Ties:
        """Return the ties of both."""
        return Ties.of(
            np.concatenate([self.first, other.first]),
            np.concatenate([self.second, other.second]),
            np.concatenate([self.torn, other.torn]),
        )

    @property
    def disputed(self) -> int:
        """How many reviewers disagree about."""
        return int(self.torn.sum())


#: No ties at all.
NO_TIES: Final = Ties(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


@dataclass(frozen=True)
class Graph:
    """The readable images of some sets, one row each: set by set, in the order of each set.

    Attributes:
        sets: the opened sets.
        owner: ``int64`` (n,): index of each image's set.
        position: ``int64`` (n,): where it stands there.
        content: ``int64`` (n,): number of its content; equal for equal bytes.
        flat: ``bool`` (n,): blank.
        group: ``int64`` (n,): number of its group, -1 where it has none.
        groups: names of the groups.
        label: ``int64`` (n,): number of its class.
        classes: names of the classes.
        unreadable: images of the sets that could not be read, and so are no rows.
    """

    sets: tuple[ImageSet, ...]
    owner: Int64
    position: Int64
    content: Int64
    flat: Bool
    group: Int64
    groups: tuple[str, ...]
    label: Int64
    classes: tuple[str, ...]
    unreadable: int

    def __len__(self) -> int:
        return len(self.owner)

    @classmethod
    def of(cls, folder: Path, sets: Sequence[ImageSet]) -> Graph:
        """Return the images of some sets as an audit saw them.

        Groups and labels are those of the opened sets.

        Raises:
            UsageError: the audit is not of these sets.
        """
        table = read_table(folder, IMAGES, ["set", "id", "digest", "flat"])
        owners, positions, digests, flat = [], [], [], []
        for index, images in enumerate(sets):
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
            owners.append(np.full(len(order), index, np.int64))
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
            np.concatenate(owners),
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
        """Return the rows of some ids of a set; -1 where they are none."""
        first, last = np.searchsorted(self.owner, [index, index + 1])
        own = self.sets[index].ids.take(pa.array(self.position[first:last]))
        places = pc.fill_null(pc.index_in(ids, own), -1).to_numpy(zero_copy_only=False)
        return np.where(places < 0, -1, places + first).astype(np.int64)

    def id(self, row: int) -> str:
        """Return the id of an image."""
        return str(self.sets[self.owner[row]].ids[int(self.position[row])].as_py())

    def ties(
        self, folder: Path, names: Mapping[str, int], grade: str, verdicts: Iterable[Verdict] | None
    ) -> Ties:
        """Return the pairs of an audit of a grade or stronger, verdicts of people laid over.

        Pairs that reviewers disagree about tie in any case. Blank pictures tie by their bytes
        only, so not here.

        Args:
            folder: the audit.
            names: index of the set behind each name that the audit uses.
            grade: one of :data:`TYING`.
            verdicts: to lay over; by default those of the folder.
        """
        table = judged_pairs(folder, _COLUMNS, verdicts)
        strong = pc.is_in(table["grade"], or_stronger(grade))
        table = table.filter(pc.or_(strong, disputed(table)))
        first, second = (self._ends(table, side, names) for side in ("query", "reference"))
        there = (first >= 0) & (second >= 0) & (first != second)
        there &= ~(self.flat[first] | self.flat[second])
        torn = np.asarray(disputed(table).to_numpy(), np.bool_)
        return Ties.of(first[there], second[there], torn[there])

    def _ends(self, table: pa.Table, side: str, names: Mapping[str, int]) -> Int64:
        result = np.full(table.num_rows, -1, np.int64)
        for name, index in names.items():
            mine = np.flatnonzero(pc.equal(table[f"{side}_set"], name).to_numpy())
            ids = table[side].take(pa.array(mine)).combine_chunks()
            result[mine] = self.rows(index, ids)
        return result

    def components(self, ties: Ties) -> Int64:
        """Return the component of each image: by ties, equal bytes and groups."""
        pairs = (ties.first, ties.second)
        return components(len(self), [pairs, chained(self.content), chained(self.group)])

    def called(self, members: Int64) -> str:
        """Return how a person calls a component: by its groups, else by its first image."""
        groups = np.unique(self.group[members])
        groups = groups[groups >= 0]
        if len(groups):
            rest = f" and {len(groups) - 1:,} more" if len(groups) > 1 else ""
            return f"{'groups' if rest else 'group'} {self.groups[groups[0]]}{rest}"
        rest = f" and {len(members) - 1:,} more" if len(members) > 1 else ""
        return f"{'images' if rest else 'image'} {self.id(int(members[0]))}{rest}"


def or_stronger(grade: str) -> pa.Array:
    """Return a grade and all stronger ones."""
    return pa.array(Level(grade).names)


def _column(
    sets: Sequence[ImageSet], positions: Sequence[Int64], name: str
) -> tuple[Int64, tuple[str | None, ...]]:
    """Return codes and names of a column over all sets; null is the last name, if there is one."""
    parts = []
    for images, position in zip(sets, positions, strict=True):
        column = getattr(images, name)
        taken = None if column is None else column.take(pa.array(position))
        parts.append(pa.nulls(len(position), pa.string()) if taken is None else taken)
    return coded(pa.chunked_array(parts, pa.string()).combine_chunks())
