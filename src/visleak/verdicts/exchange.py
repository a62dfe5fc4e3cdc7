"""Verdicts from and to files: lists of ciFAIR, and ``verdicts.csv`` of other audit folders.

Source of the schema: the lists of Barz & Denzler (2020), https://cvjena.github.io/cifair/.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.store import IMAGES, read_summary, read_table
from visleak.verdicts.cifair import Row, is_plain, read_list, second_path, write_list
from visleak.verdicts.ledger import Ledger, read_verdicts
from visleak.verdicts.orientation import as_listed
from visleak.verdicts.overlay import judged_pairs
from visleak.verdicts.plain import read_plain, write_plain
from visleak.verdicts.record import Verdict, reviewer_name
from visleak.verdicts.settling import settle

#: Most unknown ids that a message names.
NAMED: Final = 5

#: What an export is written as.
SCHEMAS: Final = ("cifair", "csv")


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of the rows of a file.

    Attributes:
        rows: in the file.
        added: verdicts that are new, or other than the reviewer's last.
        known: verdicts that stood already, or that the same reviewer has replaced since.
        repeated: rows that judge a pair of contents again; the last of them counts.
        unknown: rows about images that the audit does not have.
        missing: ids (of ``verdicts.csv``: digests) of those images, each once.
        ignored: columns that were not looked at.
        reviewers: whose verdicts they are.
    """

    rows: int
    added: int
    known: int
    repeated: int
    unknown: int
    missing: tuple[str, ...]
    ignored: tuple[str, ...]
    reviewers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exported:
    """Files written, pairs (of ``csv``: verdicts) in them, and disputed pairs left out."""

    files: tuple[Path, ...]
    written: int
    disputed: int


def import_verdicts(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    reviewer: str | None = None,
    within: bool = False,
    test: str | None = None,
    train: str | None = None,
    strict: bool = False,
) -> Imported:
    """Take the verdicts of a file into an audit folder: all of them, or none where one is wrong.

    Rows about images that the audit does not have are left in the file and counted.

    Args:
        folder: an audit folder.
        path: a list ``TestID,TrainID,Distance,Judgment``, whose ids are those of the audit and
            whose judgments are 0 exact, 1 near, 2 similar, 3 different; or ``verdicts.csv`` of
            another audit folder, known by its header.
        reviewer: who judged; by default the list is the reviewer, under its name without suffix.
            ``verdicts.csv`` names its reviewers itself.
        within: TrainID is an id of the test set too.
        test, train: the sets of the two columns, where the audit has several.
        strict: refuse the file if it names an image that the audit does not have.

    Raises:
        UsageError: there is no such file or set, or an argument does not fit the file.
        VisleakError: a row is wrong, or no row is about images of this audit.
    """
    home, source = Path(folder), Path(path)
    summary = read_summary(home)
    if not source.is_file():
        raise UsageError(f"there is no file {source} to import")
    if is_plain(source):
        chosen = {"--reviewer": reviewer, "--test": test, "--train": train}
        given = [name for name, value in chosen.items() if value is not None]
        if within or given:
            raise UsageError(
                f"{source} names its reviewers and images itself; leave out"
                f" {', '.join([*given, *(['--within'] if within else [])])}"
            )
        said = read_plain(source)
        rows, ignored = len(said), tuple[str, ...]()
        known, missing = _here(home, said)
    else:
        name = reviewer_name(source.stem if reviewer is None else reviewer)
        sets = _sets(summary, test, train, within)
        listed, ignored = read_list(source)
        rows = len(listed)
        known, missing = _found(home, listed, sets, name)
    _refuse_unknown(home, source, rows, len(known), missing, strict)
    latest = {(v.reviewer, v.key): v for v in known}
    with Ledger(home) as ledger:
        standing = {(v.reviewer, v.key): v for v in ledger.standing()}
        new = [v for of, v in latest.items() if _says_more(v, standing.get(of))]
        ledger.add(*new)
    return Imported(
        rows=rows,
        added=len(new),
        known=len(latest) - len(new),
        repeated=len(known) - len(latest),
        unknown=rows - len(known),
        missing=missing,
        ignored=ignored,
        reviewers=tuple(dict.fromkeys(v.reviewer for v in known)),
    )


def _says_more(verdict: Verdict, standing: Verdict | None) -> bool:
    """Whether a verdict is not what its reviewer says already, nor older than that."""
    if standing is None:
        return True
    return verdict.judgment != standing.judgment and verdict.time > standing.time


def _here(folder: Path, said: Sequence[Verdict]) -> tuple[list[Verdict], tuple[str, ...]]:
    """Return the verdicts on images of the audit, and the digests that it does not have."""
    wanted = pa.array(sorted({digest for v in said for digest in v.key}), pa.string())
    images = read_table(folder, IMAGES, ["digest"], pc.field("digest").isin(wanted))
    there = set(images["digest"].to_pylist())
    missing = dict.fromkeys(d for v in said for d in v.key if d not in there)
    return [v for v in said if there.issuperset(v.key)], tuple(missing)


def _found(
    folder: Path, rows: Sequence[Row], sets: tuple[str, str], reviewer: str
) -> tuple[list[Verdict], tuple[str, ...]]:
    """Return the rows of a list as verdicts, and the ids that the audit does not have."""
    left, right = sets
    sides = ([row.test for row in rows], [row.train for row in rows])
    digests = [_digests(folder, name, ids) for name, ids in zip(sets, sides, strict=True)]
    missing: dict[str, None] = {}
    found = []
    for row in rows:
        pair = digests[0].get(row.test), digests[1].get(row.train)
        missing |= {id_: None for id_, d in zip((row.test, row.train), pair, strict=True) if not d}
        if pair[0] and pair[1]:
            about = {"query_set": left, "query": row.test}
            about |= {"reference_set": right, "reference": row.train}
            found.append(Verdict.of(pair[0], pair[1], row.judgment, reviewer, **about))
    return found, tuple(missing)


def _digests(folder: Path, name: str, ids: Iterable[str]) -> dict[str, str | None]:
    """Return the content digests of some images of a set, by id."""
    where = (pc.field("set") == name) & pc.field("id").isin(pa.array(sorted(set(ids)), pa.string()))
    table = read_table(folder, IMAGES, ["id", "digest"], where)
    if table.num_rows and table["digest"].null_count == table.num_rows:
        raise UsageError(f"set {name!r} holds embeddings only; verdicts are kept by content")
    return dict(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))


def _refuse_unknown(
    folder: Path, path: Path, rows: int, known: int, missing: Sequence[str], strict: bool
) -> None:
    if not missing or (known and not strict):
        return
    if not known:
        raise VisleakError(
            f"none of the {rows:,} rows of {path} is about images of {folder}, which has no"
            f" {named(missing)}; nothing was imported"
        )
    raise VisleakError(
        f"{rows - known:,} of the {rows:,} rows of {path} are about images that {folder} does not"
        f" have ({named(missing)}); nothing was imported"
    )


def named(missing: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are.

    >>> named(["a", "b"]), named("abcdefg")
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    first = ", ".join(repr(name) for name in missing[:NAMED])
    return f"{first} and {len(missing) - NAMED:,} more" if len(missing) > NAMED else first


def _sets(
    summary: Mapping[str, object], test: str | None, train: str | None, within: bool
) -> tuple[str, str]:
    """Return the sets of the two columns of a list.

    Raises:
        UsageError: there are several to choose from, or none.
    """
    if within and train is not None:
        raise UsageError("with --within both columns are of the test set; leave out --train")
    comparisons: Sequence[Mapping[str, str]] = summary["comparisons"]  # type: ignore[assignment]
    own = [each for each in comparisons if (each["coverage"] == "within") == within]
    if not own:
        raise UsageError(
            "this audit did not look for repeats within the test set, so --within has no pairs"
            if within
            else "this audit compared a set with itself alone; give --within"
        )
    left = _chosen("--test", test, [each["query_set"] for each in own])
    if within:
        return left, left
    others = [each["reference_set"] for each in own if each["query_set"] == left]
    return left, _chosen("--train", train, others)


def _chosen(option: str, name: str | None, names: Iterable[str]) -> str:
    known = list(dict.fromkeys(names))
    if name is None and len(known) == 1:
        return known[0]
    if name is None:
        raise UsageError(f"a list is of one set a column; choose with {option}: {', '.join(known)}")
    if name not in known:
        raise UsageError(f"{option} must be one of {', '.join(known)}; got {name!r}")
    return name


def export_verdicts(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    as_: str = "cifair",
    reviewer: str | None = None,
    test: str | None = None,
    train: str | None = None,
) -> Exported:
    """Write the verdicts of an audit folder for other tools and other folders.

    Args:
        folder: an audit folder.
        out: file to write; an older one is replaced in one step.
        as_: ``cifair``: every pair that people judged and agree on, as a list like those that
            :func:`import_verdicts` takes, ``different`` as 3; those within the test set go to a
            second file beside it, ``_within_test`` before the suffix. ``csv``: every verdict, as
            in ``verdicts.csv``.
        reviewer: only what this one says.
        test, train: the sets of the two columns, where the audit has several.

    Raises:
        UsageError: an argument is none of those allowed, or nobody of that name judged.
        VisleakError: a file cannot be read or written.
    """
    home, path = Path(folder), Path(out)
    summary = read_summary(home)
    if as_ not in SCHEMAS:
        raise UsageError(f"the format must be one of {', '.join(SCHEMAS)}; got {as_!r}")
    if path.is_dir():
        raise UsageError(f"the output {path} is a folder; choose a file")
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
    summary: Mapping[str, object], test: str | None, train: str | None
) -> tuple[str, str | None]:
    """Return the sets of a list's columns; no training set where a set stands alone."""
    comparisons: Sequence[Mapping[str, str]] = summary["comparisons"]  # type: ignore[assignment]
    left = _chosen("--test", test, [each["query_set"] for each in comparisons])
    own = [each for each in comparisons if each["query_set"] == left]
    others = [each["reference_set"] for each in own if each["coverage"] != "within"]
    return left, _chosen("--train", train, others) if others else None


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
