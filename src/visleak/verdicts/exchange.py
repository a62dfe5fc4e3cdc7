"""Verdicts from and to other files: ciFAIR lists, verdicts.csv, other audit folders."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.documents import from_plain
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.quantities import counted, some
from visleak.records import GRADES
from visleak.storage import (
    IMAGES,
    AuditSummary,
    csv_cell,
    free_file,
    open_rows,
    read_summary,
    read_table,
    write_cells,
)
from visleak.verdicts.ledger import (
    COLUMNS,
    Ledger,
    Verdict,
    consensus_of,
    read_plain,
    read_verdicts,
    reviewer_name,
    write_plain,
)
from visleak.verdicts.overlay import judged_pairs

HEADER: Final = ("TestID", "TrainID", "Distance", "Judgment")
WITHIN_SUFFIX: Final = "_within_test"  # of the stem of the file with repeats within the test set
NAMED: Final = 5  # most unknown ids that a message names
SCHEMAS: Final = ("cifair", "csv")  # formats of an export


class Row(NamedTuple):
    """One row of a list: ids of the two images, and the judgment as a grade."""

    test: str
    train: str
    judgment: str


def second_path(path: Path) -> Path:
    """Return the path of the list of duplicates within the test set.

    >>> second_path(Path("lists/mine.csv")).as_posix()
    'lists/mine_within_test.csv'
    """
    return path.with_name(f"{path.stem}{WITHIN_SUFFIX}{path.suffix}")


def _chosen_set(option: str, name: str | None, names: Iterable[str]) -> str:
    """Return the set that a column of a list is of."""
    known = list(dict.fromkeys(names))
    if name is None and len(known) != 1:
        raise UsageError(
            f"a column of a list has one set; choose with {option}: {', '.join(known)}"
        )
    if name is not None and name not in known:
        raise not_one_of(option, name, known)
    return name or known[0]


def _is_plain(path: Path) -> bool:
    """Whether a table is ``verdicts.csv``, by its header."""
    with open_rows(path) as rows:
        names = rows.names
    if set(COLUMNS[:4]) <= set(names):
        return True
    wanted = [name for name in HEADER if name != "Distance"]
    if not set(wanted) <= set(names):
        found = ", ".join(names[:6]) or "none"
        raise VisleakError(
            f"{path} is not a list of pairs: it must have the columns {', '.join(wanted)}, or those"
            f" of verdicts.csv; it has {found}{' and more' if len(names) > 6 else ''}"
        )
    return False


def read_list(path: Path) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the rows of a list, and the names of ignored columns.

    ``Distance`` is checked and not used: it is of the features of the list, which differ from
    those of an audit.
    """
    with open_rows(path) as rows:
        found = tuple(map(_row, rows))
    return found, tuple(name for name in rows.names if name not in HEADER)


def _row(row: Mapping[str, str]) -> Row:
    ids = [row[name] for name in HEADER[:2]]
    judgment, distance = row["Judgment"].strip(), row.get("Distance", "").strip()
    wrong = ""
    if judgment not in ("0", "1", "2", "3"):
        wrong = f"Judgment must be 0 exact, 1 near, 2 similar or 3 different; got {judgment!r}"
    elif not all(ids):
        wrong = f"{HEADER[ids.index('')]} is empty"
    elif not _is_distance(distance):
        wrong = f"Distance must be a number of 0 or more, or empty; got {distance!r}"
    if wrong:
        raise ValueError(f"{wrong}; nothing was imported")
    return Row(ids[0], ids[1], GRADES[int(judgment)])


def _is_distance(text: str) -> bool:
    try:
        return not text or 0.0 <= float(text) < math.inf
    except ValueError:
        return False


def write_list(path: str | os.PathLike[str], pairs: pa.Table) -> None:
    """Write pairs as a list, closest first, in one step."""
    write_cells(Path(path), HEADER, _rows(pairs))


def _rows(pairs: pa.Table) -> Iterator[tuple[str, ...]]:
    """Yield rows, closest first, those of one distance as they come, those without one last."""
    similarity = pairs["similarity"].to_numpy().astype(np.float64)
    distance = np.sqrt(np.maximum(0.0, 2.0 - 2.0 * similarity))
    order = np.argsort(distance, kind="stable")
    rows = pairs.select(["query", "reference", "grade"]).take(pa.array(order)).to_pylist()
    for row, far in zip(rows, distance[order].tolist(), strict=True):
        shown = "" if math.isnan(far) else repr(far)
        code = str(GRADES.index(row["grade"]))
        yield csv_cell(row["query"]), csv_cell(row["reference"]), shown, code


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import."""

    rows: int  # in the file
    added: int  # verdicts that are new, or differ from the last one of the reviewer
    known: int  # verdicts that were valid already, or that the same reviewer has replaced since
    repeated: int  # rows that judge a pair of contents again; the last of them counts
    unknown: int  # rows about images that the audit does not have
    missing: tuple[str, ...]  # ids (of ``verdicts.csv``: digests) of those images, each once
    ignored: tuple[str, ...]  # columns that were not used
    reviewers: tuple[str, ...]  # whose verdicts they are

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report of the import."""
        parts = [f"{counted(self.added, 'verdict')} of {', '.join(self.reviewers)}"]
        parts += [f"{self.known:,} already present"] if self.known else []
        yield f"imported {', '.join(parts)}" if self.rows else "the file has no rows"
        if self.repeated:
            yield f"rows that judge a pair again, of which the last counts: {self.repeated:,}"
        if self.unknown:
            missing = _named(self.missing)
            yield f"rows on images that the audit does not have: {self.unknown:,} ({missing})"
        if self.ignored:
            yield f"ignored: {', '.join(self.ignored)}"


def import_verdicts(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    reviewer: str | None = None,
    within: bool = False,
    test: str | None = None,
    train: str | None = None,
    strict: bool = False,
) -> ImportResult:
    """Import the verdicts of a file into an audit folder: all of them, or none if a row is invalid.

    Rows about images that the audit does not have are ignored and counted.

    Args:
        folder: an audit folder.
        path: a list ``TestID,TrainID,Distance,Judgment``, whose ids are those of the audit and
            whose judgments are 0 exact, 1 near, 2 similar, 3 different; ``verdicts.csv`` of
            another audit folder, known by its header; annotations of Label Studio, ``.json``; or
            of CVAT, ``.xml``.
        reviewer: who judged; by default the list is the reviewer, under its name without suffix,
            and of CVAT the assignee. ``verdicts.csv`` and Label Studio name theirs themselves.
        within: TrainID is an id of the test set too.
        test, train: the sets of the two columns, where the audit has several.
        strict: refuse the file if it names an image that the audit does not have.
    """
    home, source = Path(folder), Path(path)
    read = _read(home, source, reviewer, within=within, test=test, train=train, strict=strict)
    latest = {(v.reviewer, v.key): v for v in read.known}
    standing = {(v.reviewer, v.key): v for v in read_verdicts(home)}
    new = []
    for of, verdict in latest.items():
        old = standing.get(of)
        if old is None or (verdict.judgment != old.judgment and verdict.time > old.time):
            new.append(verdict)
    if latest:
        with Ledger(home) as ledger:
            ledger.add(*new)
            # an earlier import may have been stopped before it could
            ledger.write_plain()
    return ImportResult(
        rows=read.rows,
        added=len(new),
        known=len(latest) - len(new),
        repeated=len(read.known) - len(latest),
        unknown=read.rows - len(read.known),
        missing=read.missing,
        ignored=read.ignored,
        reviewers=tuple(dict.fromkeys(v.reviewer for v in read.known)),
    )


def verdicts_of(
    folder: str | os.PathLike[str], path: str | os.PathLike[str]
) -> tuple[Verdict, ...]:
    """Return the verdicts of another place on images of an audit, without keeping them."""
    source = Path(path)
    return read_verdicts(source) if source.is_dir() else tuple(_read(Path(folder), source).known)


@dataclass(frozen=True, slots=True)
class _FileVerdicts:
    """The verdicts of a file on images of an audit; fields as of `ImportResult`."""

    rows: int
    known: list[Verdict]
    missing: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def _read(
    folder: Path,
    path: Path,
    reviewer: str | None = None,
    *,
    within: bool = False,
    test: str | None = None,
    train: str | None = None,
    strict: bool = False,
) -> _FileVerdicts:
    summary = read_summary(folder)
    if not path.is_file():
        raise UsageError(f"{path} is not a file; name the one to import")
    kind = path.suffix.lower()
    if kind not in (".json", ".xml") and not _is_plain(path):
        name = reviewer_name(path.stem if reviewer is None else reviewer)
        sets = _sets(summary, test, train, within)
        listed, ignored = read_list(path)
        read = _FileVerdicts(len(listed), *_found(folder, listed, sets, name), ignored)
    else:
        options = {"--reviewer": kind != ".xml" and reviewer is not None, "--within": within}
        options |= {"--test": test is not None, "--train": train is not None}
        if given := ", ".join(name for name, value in options.items() if value):
            raise UsageError(f"{path} names its reviewers and images itself; leave out {given}")
        if kind == ".xml":
            verdicts = _read_tags(path, reviewer)
        else:
            verdicts = _read_annotations(path) if kind == ".json" else read_plain(path)
        read = _FileVerdicts(len(verdicts), *_here(folder, verdicts))
    lost = read.rows - len(read.known)
    if lost and not read.known:
        raise VisleakError(
            f"none of the {read.rows:,} rows of {path} is about images of {folder}, which has no"
            f" {_named(read.missing)}; nothing was imported"
        )
    if lost and strict:
        raise VisleakError(
            f"{lost:,} of the {read.rows:,} rows of {path} name images that {folder} does not have"
            f" ({_named(read.missing)}); nothing was imported"
        )
    return read


def _here(folder: Path, verdicts: Sequence[Verdict]) -> tuple[list[Verdict], tuple[str, ...]]:
    """Return the verdicts on images of the audit, and the digests that it does not have."""
    wanted = pa.array(sorted({digest for v in verdicts for digest in v.key}), pa.string())
    images = read_table(folder, IMAGES, ["digest"], pc.field("digest").isin(wanted))
    there = set(images["digest"].to_pylist())
    missing = dict.fromkeys(d for v in verdicts for d in v.key if d not in there)
    return [v for v in verdicts if there.issuperset(v.key)], tuple(missing)


def _found(
    folder: Path, rows: Sequence[Row], sets: tuple[str, str], reviewer: str
) -> tuple[list[Verdict], tuple[str, ...]]:
    """Return the rows of a list as verdicts, and the ids that the audit does not have."""
    left, right = sets
    queries = _digests(folder, left, (row.test for row in rows))
    references = _digests(folder, right, (row.train for row in rows))
    missing: dict[str, None] = {}
    found = []
    for query, reference, judgment in rows:
        first, second = queries.get(query), references.get(reference)
        missing |= {id_: None for id_, d in ((query, first), (reference, second)) if not d}
        if first and second:
            about = dict(zip(NAMES, (left, query, right, reference), strict=True))
            found.append(Verdict.of(first, second, judgment, reviewer, **about))
    return found, tuple(missing)


def _digests(folder: Path, name: str, ids: Iterable[str]) -> dict[str, str | None]:
    where = (pc.field("set") == name) & pc.field("id").isin(pa.array(sorted(set(ids)), pa.string()))
    table = read_table(folder, IMAGES, ["id", "digest"], where)
    if table.num_rows and table["digest"].null_count == table.num_rows:
        raise UsageError(f"set {name!r} holds embeddings only; verdicts are kept by content")
    return dict(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))


def _named(missing: Sequence[str]) -> str:
    return some([repr(name) for name in missing], NAMED)


def _sets(
    summary: AuditSummary, test: str | None, train: str | None, within: bool
) -> tuple[str, str]:
    if within and train is not None:
        raise UsageError("with --within both columns are of the test set; leave out --train")
    own = [each for each in summary.comparisons if (each.coverage == "within") == within]
    if not own:
        raise UsageError(
            "this audit did not look for repeats within the test set, so --within has no pairs"
            if within
            else "this audit compared a set with itself alone; give --within"
        )
    left = _chosen_set("--test", test, [each.query_set for each in own])
    others = [each.reference_set for each in own if each.query_set == left]
    return left, left if within else _chosen_set("--train", train, others)


@dataclass(frozen=True, slots=True)
class ExportResult:
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
) -> ExportResult:
    """Write the verdicts of an audit folder for other tools and other folders.

    Args:
        folder: an audit folder.
        out: file to write.
        as_: ``cifair``: every pair that people judged and agree on, as a list like those that
            :func:`import_verdicts` takes, ``different`` as 3; those within the test set go to a
            second file beside it, ``_within_test`` before the suffix. ``csv``: every verdict, as
            in ``verdicts.csv``.
        reviewer: only verdicts of this one.
        test, train: the sets of the two columns, where the audit has several.
        force: replace files that are there already.
    """
    home, path = Path(folder), Path(out)
    summary = read_summary(home)
    if as_ not in SCHEMAS:
        raise not_one_of("the format", as_, SCHEMAS)
    for file in (path, second_path(path)) if as_ == "cifair" else (path,):
        free_file(file, force=force, audit=home)
    verdicts = read_verdicts(home)
    if not verdicts:
        raise UsageError(f"no pair was judged in {folder} yet; run `visleak review` on it")
    if reviewer is not None:
        names = sorted({v.reviewer for v in verdicts})
        if reviewer not in names:
            raise not_one_of("reviewer", reviewer, names)
        verdicts = tuple(v for v in verdicts if v.reviewer == reviewer)
    if as_ == "csv":
        try:
            write_plain(path, verdicts)
        except OSError as error:
            raise VisleakError(f"{path} cannot be written ({error.strerror})") from error
        return ExportResult((path,), len(verdicts), 0)
    left = _chosen_set("--test", test, [each.query_set for each in summary.comparisons])
    own = [each for each in summary.comparisons if each.query_set == left]
    others = [each.reference_set for each in own if each.coverage != "within"]
    columns = [*NAMES, "similarity", "coverage", "grade", "judged"]
    table = judged_pairs(home, columns, verdicts)
    human = pc.and_(pc.equal(table["judged"], "human"), pc.equal(table["query_set"], left))
    pairs = as_listed(table.filter(human), verdicts)
    inside = pc.equal(pairs["coverage"], "within")
    repeats, leaks = pairs.filter(inside), pairs.filter(pc.invert(inside))
    # a set that was compared with itself only has no training set
    if others:
        leaks = leaks.filter(
            pc.equal(leaks["reference_set"], _chosen_set("--train", train, others))
        )
    write_list(path, leaks)
    write_list(second_path(path), repeats)
    disputed = sum(each.disputed for each in consensus_of(verdicts).values())
    return ExportResult((path, second_path(path)), len(leaks) + len(repeats), disputed)


def as_listed(pairs: pa.Table, verdicts: Iterable[Verdict]) -> pa.Table:
    """Return pairs within a set in the direction of the lists of people.

    In a list of duplicates within the test set the first column is the image to remove; the
    tables of an audit have the lower id there. Only names, ids and labels are swapped, so the rows
    are for counting and listing.
    """
    other_way = {
        (v.query_set, v.reference, v.query) for v in verdicts if v.query_set == v.reference_set
    }
    names = (pairs[end].to_pylist() for end in ("query_set", "query", "reference"))
    mask = pc.and_(
        pc.equal(pairs["coverage"], "within"),
        pa.array([pair in other_way for pair in zip(*names, strict=True)], pa.bool_()),
    )
    if not pc.any(mask).as_py():
        return pairs
    turned = pairs
    for place, left in enumerate(pairs.column_names):
        if left.startswith("query"):
            right = f"reference{left.removeprefix('query')}"
            first = pc.if_else(mask, pairs[right], pairs[left])
            second = pc.if_else(mask, pairs[left], pairs[right])
            turned = turned.set_column(place, left, first)
            turned = turned.set_column(pairs.column_names.index(right), right, second)
    return turned


# -- annotations of Label Studio and CVAT ----------------------------------------------------------


#: Fields of a task's data that a verdict needs: content digests and names of both images.
DIGESTS: Final = ("query_digest", "reference_digest")
NAMES: Final = ("query_set", "query", "reference_set", "reference")
CONTROL: Final = "grade"  # name of the control whose choice is the verdict


@dataclass(frozen=True, slots=True)
class _Data:
    query_digest: str
    reference_digest: str
    query_set: str
    query: str
    reference_set: str
    reference: str


@dataclass(frozen=True, slots=True)
class _Choice:
    value: Mapping[str, object]
    from_name: str = ""


@dataclass(frozen=True, slots=True)
class _Annotation:
    result: tuple[_Choice, ...]
    was_cancelled: object = False
    completed_by: object = None  # a number, or a record with an address
    updated_at: object = None
    created_at: object = None


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of a JSON export of Label Studio; other fields are ignored."""

    data: _Data
    annotations: tuple[_Annotation, ...]


def _read_annotations(path: Path) -> tuple[Verdict, ...]:
    """Return the verdicts in a JSON export of Label Studio; skipped tasks have none."""
    try:
        tasks = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(tasks, list):
        raise VisleakError(
            f"{path} is not a JSON export of Label Studio: it must be a list of tasks"
        )
    found: list[Verdict] = []
    for number, task in enumerate(tasks, 1):
        try:
            found += _verdicts(from_plain(_Task, task))
        except (KeyError, TypeError, ValueError, UsageError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else error
            raise VisleakError(
                f"{path}, task {number}: {what}; export the tasks with visleak export --format"
                " labelstudio, and the annotations as JSON"
            ) from error
    return tuple(found)


def _verdicts(task: _Task) -> Iterator[Verdict]:
    about = {name: getattr(task.data, name) for name in NAMES}
    for annotation in task.annotations:
        who, time = annotation.completed_by, annotation.updated_at or annotation.created_at
        if isinstance(who, Mapping):
            who = who.get("email") or who.get("id")
        name = f"labelstudio-{who}" if isinstance(who, int) else who
        stamp = {"time": time} if isinstance(time, str) else {}
        for each in annotation.result:
            choices = each.value.get("choices")
            if each.from_name != CONTROL or not choices or annotation.was_cancelled:
                continue
            if not isinstance(name, str) or not isinstance(choices, list):
                raise TypeError(f"{who!r} must name the annotator, and {choices!r} be choices")
            left, right = task.data.query_digest, task.data.reference_digest
            yield Verdict.of(left, right, choices[0], name, **about, **stamp)


#: Images that ``export`` writes for CVAT are called NUMBER_DIGEST_DIGEST.jpg.
_NAME: Final = re.compile(r"\d+_([0-9a-f]{32})_([0-9a-f]{32})")


def image_name(number: int, digests: tuple[str, str]) -> str:
    """Return the name of the image of a pair.

    >>> image_name(7, ("a", "b"))
    '000007_a_b.jpg'
    """
    return f"{number:06}_{digests[0]}_{digests[1]}.jpg"


def _read_tags(path: Path, reviewer: str | None) -> tuple[Verdict, ...]:
    """Return the verdicts of "CVAT for images 1.1"; images without a tag have none.

    By default the reviewer is the assignee of the task, or its owner; an export of several jobs or
    a project has neither.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise VisleakError(f"{path} cannot be read as XML ({error})") from error
    images = root.findall("image")
    if root.tag != "annotations" or not images:
        raise VisleakError(
            f"{path} has no annotated images; export the task as CVAT for images 1.1"
        )
    places = itertools.product(("assignee", "owner"), ("task", "job"))
    annotators = (root.findtext(f"meta/{of}/{role}/username") for role, of in places)
    who = reviewer_name(reviewer or next(filter(None, annotators), path.stem))
    found = []
    for image in images:
        name = image.get("name", "")
        digests = _NAME.match(Path(name).stem)
        if digests is None:
            raise VisleakError(
                f"{path}: {name!r} is not an image of visleak export --format cvat; nothing was"
                " imported"
            )
        grades = [label for tag in image.findall("tag") if (label := tag.get("label")) in GRADES]
        if len(grades) > 1:
            raise VisleakError(
                f"{path}: {name} has the grades {' and '.join(grades)}; keep one, and export again"
            )
        found += [Verdict.of(digests[1], digests[2], grade, who) for grade in grades]
    return tuple(found)
