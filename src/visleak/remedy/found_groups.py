"""Groups that an audit found unasked, for remedies: used once they are confirmed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from visleak.auditing import Audit
from visleak.errors import UsageError, VisleakError
from visleak.grouping.document import sentences
from visleak.groups import joined
from visleak.records import ImageSet
from visleak.storage import GROUPS, AuditSummary, csv_text
from visleak.storage.groupings import GROUP_COLUMNS

#: Set and id, scheme, unit, and set and id of the nearest reference image.
Row = tuple[str, str, str, str, str, str]


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
    place = {image: at for at, image in enumerate(dict.fromkeys(row[:2] for row in rows))}
    schemes: dict[str, tuple[list[int], list[str]]] = {}
    for name, id_, scheme, unit, *_ in rows:
        places, units = schemes.setdefault(scheme, ([], []))
        places.append(place[name, id_])
        units.append(unit)
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
        with path.open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read ({error}); run the audit again") from error
    if tuple(header) != GROUP_COLUMNS or any(len(row) != len(header) for row in rows):
        raise VisleakError(f"{path} is damaged; run the audit again with --force")
    for row in rows:
        known = dict(zip(header, map(csv_text, row), strict=True))
        wanted = ("set", "id", "scheme", "unit", "reference_set", "nearest")
        yield tuple(known[name] for name in wanted)  # type: ignore[misc]


def leaking(
    folder: Path, tests: set[str], trains: set[str], side: str
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the images of one side whose unit is on both, with the reason and another image.

    Args:
        folder: of the audit.
        tests, trains: names of the sets of the two sides.
        side: ``test`` or ``train``.
    """
    own, others = (tests, trains) if side == "test" else (trains, tests)
    rows = list(found_rows(folder))
    beyond: dict[tuple[str, str], str] = {}
    for name, id_, scheme, unit, *_ in rows:
        if name in others:
            beyond.setdefault((scheme, unit), f"{name}/{id_}")
    result: dict[tuple[str, str], tuple[str, str]] = {}
    for name, id_, scheme, unit, reference_set, nearest in rows:
        if name in own and (other := beyond.get((scheme, unit))) is not None:
            close = f"{reference_set}/{nearest}" if side == "test" and nearest else other
            result.setdefault((name, id_), ("group", close))
    return result
