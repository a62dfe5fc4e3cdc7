"""Verdicts to files: lists of ciFAIR, and a table of all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.storage import AuditSummary, free_file, read_summary
from visleak.verdicts.cifair import chosen_set, second_path, write_list
from visleak.verdicts.ledger import read_verdicts
from visleak.verdicts.orientation import as_listed
from visleak.verdicts.overlay import judged_pairs
from visleak.verdicts.plain import write_plain
from visleak.verdicts.record import Verdict
from visleak.verdicts.settling import settle

#: What an export is written as.
SCHEMAS: Final = ("cifair", "csv")


@dataclass(frozen=True, slots=True)
class Exported:
    """Files written, pairs (of ``csv``: verdicts) in them, and disputed pairs left out."""

    files: tuple[Path, ...]
    written: int
    disputed: int


def export_verdicts(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    as_: str = "cifair",
    reviewer: str | None = None,
    test: str | None = None,
    train: str | None = None,
    force: bool = False,
) -> Exported:
    """Write the verdicts of an audit folder for other tools and other folders.

    Args:
        folder: an audit folder.
        out: file to write.
        as_: ``cifair``: every pair that people judged and agree on, as a list like those that
            :func:`import_verdicts` takes, ``different`` as 3; those within the test set go to a
            second file beside it, ``_within_test`` before the suffix. ``csv``: every verdict, as
            in ``verdicts.csv``.
        reviewer: only what this one says.
        test, train: the sets of the two columns, where the audit has several.
        force: replace files that are there already.

    Raises:
        UsageError: an argument is none of those allowed, or nobody of that name judged.
        VisleakError: a file cannot be read or written.
    """
    home, path = Path(folder), Path(out)
    summary = read_summary(home)
    if as_ not in SCHEMAS:
        raise UsageError(f"the format must be one of {', '.join(SCHEMAS)}; got {as_!r}")
    for file in (path, second_path(path)) if as_ == "cifair" else (path,):
        free_file(file, force=force, audit=home)
    said = read_verdicts(home)
    if not said:
        raise UsageError(f"nobody has judged a pair of {folder} yet; run `visleak review` on it")
    if reviewer is not None:
        names = sorted({v.reviewer for v in said})
        if reviewer not in names:
            raise UsageError(f"reviewer must be one of {', '.join(names)}; got {reviewer!r}")
        said = tuple(v for v in said if v.reviewer == reviewer)
    if as_ == "csv":
        try:
            write_plain(path, said)
        except OSError as error:
            raise VisleakError(f"{path} cannot be written ({error.strerror})") from error
        return Exported((path,), len(said), 0)
    return _export_lists(home, path, said, _list_sets(summary, test, train))


def _list_sets(
    summary: AuditSummary, test: str | None, train: str | None
) -> tuple[str, str | None]:
    """Return the sets of a list's columns; no training set where a set stands alone."""
    comparisons = summary.comparisons
    left = chosen_set("--test", test, [each.query_set for each in comparisons])
    own = [each for each in comparisons if each.query_set == left]
    others = [each.reference_set for each in own if each.coverage != "within"]
    return left, chosen_set("--train", train, others) if others else None


def _export_lists(
    folder: Path, out: Path, said: Sequence[Verdict], sets: tuple[str, str | None]
) -> Exported:
    left, right = sets
    settled = settle(said)
    columns = ["query_set", "query", "reference_set", "reference", "similarity", "coverage"]
    table = judged_pairs(folder, [*columns, "grade", "judged"], said)
    human = table.filter(pc.equal(table["judged"], "human"))
    human = as_listed(human.filter(pc.equal(human["query_set"], left)), said)
    inside = pc.equal(human["coverage"], "within")
    other = pc.equal(human["reference_set"], right) if right is not None else inside
    leaks, repeats = human.filter(pc.and_not(other, inside)), human.filter(inside)
    second = second_path(out)
    write_list(out, leaks)
    write_list(second, repeats)
    disputed = sum(each.disputed for each in settled.values())
    return Exported((out, second), len(leaks) + len(repeats), disputed)
