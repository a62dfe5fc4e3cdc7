"""Groups that an audit found unasked, for remedies: used once they are confirmed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from visleak.auditing import Audit
from visleak.errors import UsageError, VisleakError
from visleak.grouping.document import sentences
from visleak.groups import joined, nearest_frames
from visleak.records import ImageSet
from visleak.storage import GROUPS, AuditSummary, read_csv
from visleak.storage.groupings import GROUP_COLUMNS


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
    """Groups were found and are not confirmed yet.

    Attributes:
        statements: what was found, line by line.
    """

    def __init__(self, statements: Sequence[str]) -> None:
        super().__init__(
            f"--group auto found {statements[0]}; use it with --yes, or give --group COLUMN or"
            " --group '/REGEX/'"
        )
        self.statements = tuple(statements)

    def __reduce__(self) -> tuple[type[UnconfirmedGroups], tuple[tuple[str, ...]]]:
        return type(self), (self.statements,)


def refuse_unconfirmed(folder: Path, summary: AuditSummary, *, yes: bool) -> None:
    """Refuse groups that were not found, or not confirmed.

    Raises:
        UsageError: the audit found no groups.
        UnconfirmedGroups: it found some, and ``yes`` is not given.
    """
    believed = summary.grouping.believed if summary.grouping is not None else ()
    if not believed:
        raise UsageError(
            f"--group auto: {folder} found no groups that names state and images confirm; give"
            " --group COLUMN or --group '/REGEX/'"
        )
    if not yes:
        raise UnconfirmedGroups([line for each in believed for line in sentences(each)])


def with_found_groups(found: Audit, sets: Sequence[ImageSet], *, yes: bool) -> list[ImageSet]:
    """Return sets of an audit with the groups that it found.

    Raises:
        UsageError: see :func:`refuse_unconfirmed`.
    """
    refuse_unconfirmed(found.folder, found.summary, yes=yes)
    rows = list(found_rows(found.folder))
    images = dict.fromkeys((row.set, row.id) for row in rows)
    place = {image: at for at, image in enumerate(images)}
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


def found_rows(folder: Path) -> Iterator[Row]:
    """Yield the images of ``groups.csv``."""
    path = folder / GROUPS
    try:
        rows = read_csv(path, GROUP_COLUMNS)
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(
            f"{path} cannot be read ({error}); run the audit again with --force"
        ) from error
    yield from (Row(*row[: len(Row._fields)]) for row in rows)


def leaking(
    folder: Path, tests: set[str], trains: set[str], side: str, gaps: Mapping[str, int]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the images of one side whose unit is on both, with the reason and another image.

    Args:
        folder: of the audit.
        tests, trains: names of the sets of the two sides.
        side: ``test`` or ``train``.
        gaps: by scheme, the distance of frames from which an image of a unit does not leak.
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
            found = ((row, other) for row in mine if (other := first.get(row.unit)) is not None)
        for row, other in found:
            near = f"{row.reference_set}/{row.nearest}"
            close = near if side == "test" and row.nearest else f"{other.set}/{other.id}"
            result.setdefault((row.set, row.id), ("group", close))
    return result


def _within(mine: Sequence[Row], beyond: Sequence[Row], gap: int) -> Iterator[tuple[Row, Row]]:
    """Yield images with the nearest frame of their group on the other side, up to a distance."""
    places = {name: at for at, name in enumerate(dict.fromkeys(r.group for r in (*mine, *beyond)))}
    ends = [
        np.array(column, np.int64)
        for rows in (mine, beyond)
        for column in ([places[row.group] for row in rows], [int(row.frame) for row in rows])
    ]
    place, distance = nearest_frames(*ends)
    for at in np.flatnonzero((place >= 0) & (distance <= gap)).tolist():
        yield mine[at], beyond[place[at]]
