"""The audit folder: names of its files, schemas of its tables, and the typed ``audit.json``."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import IO, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.documents import as_plain, from_plain
from visleak.errors import UsageError, VisleakError
from visleak.formats.listing import describe_skipped
from visleak.formats.sources import place_of
from visleak.rates import Rate
from visleak.records import FileCount, Problem
from visleak.settings import Settings
from visleak.storage.files import file_digest, opened_for_arrow, read_csv, write_csv, write_json

#: Columns of ``groups.csv``.
GROUP_COLUMNS: Final = (
    *("set", "id", "scheme", "group", "unit", "frame"),
    *("reference_set", "nearest", "distance"),
)


@dataclass(frozen=True, slots=True)
class GroupEvidence:
    """Whether images of one group are more similar than others of their class."""

    pairs: int = 0  # that were compared
    # share of such pairs that are more similar than a pair of two groups; 0.5 by chance
    auc: float = math.nan
    p: float = math.nan  # of a permutation test
    # share of images whose most similar image is in their group, by chance, and of how many images
    nearest: float = math.nan
    chance: float = math.nan
    asked: int = 0
    by: str = "content"  # what was compared: content or colour


@dataclass(frozen=True, slots=True)
class Decay:
    """Similarity of frames up to a distance."""

    up_to: int = 0  # the largest distance of a bar
    similarity: float = 0.0  # mean of its pairs
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class SideGroups:
    """The groups in a set."""

    set: str = ""
    images: int = 0  # readable ones
    covered: int = 0  # of which the group is known
    groups: int = 0
    units: int = 0  # independent ones: groups, or shots without a gap between them
    # from the first to the last frame of each group, added up; None without frames
    span: int | None = None


@dataclass(frozen=True, slots=True)
class SharedGroups:
    """The groups that two sets share."""

    query_set: str = ""
    reference_set: str = ""
    groups: int = 0  # in both
    units: int = 0  # units of the query set that have images in the reference set, or next to them
    queries: int = 0  # query images in a shared group
    close: int | None = None  # query images within the gap of a reference image
    # distance to the nearest reference image of the group, of query images in a shared group
    least: int | None = None
    median: int | None = None
    named: tuple[tuple[str, int], ...] = ()  # the first groups and their query images


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A possible grouping of images, its evidence, and whether it is accepted."""

    kind: str = ""  # recordings, shots, copies, subjects, tiles, places or bursts
    words: str = ""  # such as <recording>_<frame>
    # where it was read: names, EXIF, XMP, GPS, a column, or source, which has groups itself
    source: str = "names"
    group: str = ""  # patterns for --group and --frame; empty where there is none
    frame: str = ""
    believed: bool = False
    why: str = ""  # it is believed or not
    images: int = 0  # readable ones of all sets, and those of which the group is known
    covered: int = 0
    groups: int = 0
    largest: int = 0  # images of the largest group
    unit: str | None = None  # of frames: frames or ms
    step: int | None = None  # the most common distance of successive frames
    gap: int | None = None  # distance up to which frames are much more similar than chance
    evidence: GroupEvidence | None = None
    decay: tuple[Decay, ...] = ()
    base: float | None = None  # similarity of frames of one sequence, wherever they lie
    sides: tuple[SideGroups, ...] = ()
    shared: tuple[SharedGroups, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupingSummary:
    """Groups that were found without --group."""

    used: bool = False  # as --group auto
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def believed(self) -> tuple[Hypothesis, ...]:
        """The hypotheses that the images confirm."""
        return tuple(each for each in self.hypotheses if each.believed)


# -- audit.json ------------------------------------------------------------------------------------


#: Version of the folder's layout; readers refuse a newer one and read every older one.
SCHEMA: Final = 2
PAIRS_SCHEMA: Final = pa.schema(
    [
        ("query_set", pa.string()),
        ("query", pa.string()),
        ("reference_set", pa.string()),
        ("reference", pa.string()),
        ("similarity", pa.float32()),
        ("background", pa.float32()),
        ("view", pa.string()),
        ("degree", pa.string()),
        ("grade", pa.string()),
        ("probability", pa.float32()),
        ("reason", pa.string()),
        ("transform", pa.string()),
        ("matrix", pa.list_(pa.float32(), 9)),
        ("query_label", pa.string()),
        ("reference_label", pa.string()),
        ("label_relation", pa.string()),
        ("modality", pa.string()),
        ("coverage", pa.string()),
    ]
)
IMAGES_SCHEMA: Final = pa.schema(
    [
        ("set", pa.string()),
        ("id", pa.string()),
        ("digest", pa.string()),
        ("label", pa.string()),
        ("caption", pa.string()),
        ("group", pa.string()),
        ("frame", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("flat", pa.bool_()),
        ("locator", pa.string()),
        ("nearest_set", pa.string()),
        ("nearest", pa.string()),
        ("nearest_similarity", pa.float32()),
        ("background", pa.float32()),
        ("pairs_total", pa.int64()),
    ]
)
#: Columns that the two tables have as well where overlaps were measured: the share of the query
#: that the reference shows and how they lie; the share of an image that its references show
#: together, and the number of the scene that it is a part of.
OVERLAP_OF_PAIRS: Final = pa.schema(
    [("overlap", pa.float32()), ("overlap_matrix", pa.list_(pa.float32(), 9))]
)
OVERLAP_OF_IMAGES: Final = pa.schema([("seen", pa.float32()), ("scene", pa.int64())])
PROBLEM_COLUMNS: Final = ("set", "id", "locator", "reason", "detail")
PAIRS: Final = "pairs.parquet"
IMAGES: Final = "images.parquet"
AUDIT: Final = "audit.json"
#: What to do about a damaged file of an audit.
AGAIN: Final = "run the audit again with --force"
UNREADABLE: Final = "unreadable.csv"
RECORDINGS: Final = "recordings.csv"
GROUPS: Final = "groups.csv"
SEGMENTS: Final = "segments.csv"
REPORT: Final = "report.html"
SECTIONS: Final = "sections"
#: Verdicts on the pairs of an audit: a ledger, and the same as a table.
LEDGER: Final = "verdicts.sqlite"
VERDICTS: Final = "verdicts.csv"
#: Decisions on replacements: a ledger, and the same as a table.
DECISIONS: Final = "replacements.sqlite"
REPLACEMENTS: Final = "replacements.csv"
Rates: TypeAlias = Mapping[str, Rate | None]  # rates by name; None where it was not measured


def schema_of(name: str, *, overlap: bool) -> pa.Schema:
    """Return the schema of ``pairs.parquet`` or ``images.parquet``, with or without overlaps."""
    pairs, images = (PAIRS_SCHEMA, OVERLAP_OF_PAIRS), (IMAGES_SCHEMA, OVERLAP_OF_IMAGES)
    schema, more = {PAIRS: pairs, IMAGES: images}[name]
    return pa.schema([*schema, *more]) if overlap else schema


OPTIONAL: Final = {"optional": True}  # of a field that is left out of the file where it is None


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write ``unreadable.csv``: set, id, locator, reason, detail; sorted by set and id."""
    rows = sorted((p.set, p.id, p.locator, p.reason, p.detail) for p in problems)
    write_csv(path, PROBLEM_COLUMNS, rows)


def read_problems(path: Path) -> tuple[Problem, ...]:
    """Read ``unreadable.csv`` back."""
    try:
        return tuple(Problem(*row) for row in read_csv(path, PROBLEM_COLUMNS))
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read ({error}); {AGAIN}") from error


def read_table(
    folder: Path,
    name: str,
    columns: list[str] | None = None,
    where: pc.Expression | None = None,
    *,
    checked: bool = True,
) -> pa.Table:
    """Read a table of an audit folder.

    Pages have checksums, and names and statistics do not: the file must be the one that the audit
    wrote, unless it is not to be ``checked``.
    """
    with _reading(folder, name, checked=checked) as file:
        return pq.read_table(file, columns=columns, filters=where, page_checksum_verification=True)


def table_batches(
    folder: Path, name: str, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table of an audit folder, some tens of thousands at a time."""
    with (
        _reading(folder, name) as file,
        pq.ParquetFile(file, page_checksum_verification=True) as opened,
    ):
        yield from opened.iter_batches(columns=columns)


@contextmanager
def _reading(folder: Path, name: str, *, checked: bool = True) -> Iterator[Path | IO[bytes]]:
    """Open a table that the audit wrote; errors while it is read name the file."""
    path = folder / name
    try:
        if checked and not _is_own(folder, name):
            raise VisleakError(f"{path} is not the file that the audit wrote; {AGAIN}")
        with opened_for_arrow(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise VisleakError(f"{path} cannot be read ({error}); {AGAIN}") from error


def _is_own(folder: Path, name: str) -> bool:
    """Whether a table is the file of which ``audit.json`` has the digest, if it has one."""
    if not (folder / AUDIT).is_file():
        return True
    known = _known_files(folder, _stamp(folder / AUDIT))
    path = folder / name
    return name not in known or _digest_of(path, _stamp(path)) == known[name]


def _stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is replaced or written to."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=64)
def _known_files(folder: Path, stamp: tuple[int, ...]) -> Mapping[str, str]:
    """Return the digests that ``audit.json`` holds; it is read again where its stamp is another.

    A page, a review or an export reads tables many times.
    """
    return read_summary(folder).files or {}


@lru_cache(maxsize=64)
def _digest_of(path: Path, stamp: tuple[int, ...]) -> str:
    """Return the digest of a file; it is read again where its stamp is another."""
    return file_digest(path)


@dataclass(frozen=True, slots=True)
class SetSummary:
    """A set of an audit."""

    name: str = ""  # as they were given
    dataset: str = ""
    roles: tuple[str, ...] = ()
    side: str = ""  # query or reference
    source: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    has_pixels: bool = field(default=True, metadata={"former": "pictures"})
    # of frame numbers, frames or ms
    frame_unit: str | None = field(default=None, metadata=OPTIONAL)
    # of a set of embeddings: its files, images in images.parquet, vectors that were not of unit
    # length
    files: FileCount | None = field(default=None, metadata=OPTIONAL)
    images: int = 0  # all of it, with those that could not be read
    readable: int = 0  # of these
    # blank images, and contents that differ; None where embeddings were streamed
    flat: int | None = 0
    unreadable: int = 0
    distinct: int | None = 0
    listed: int | None = field(default=None, metadata=OPTIONAL)
    norms_off: int | None = field(default=None, metadata=OPTIONAL)
    # files that were not listed as images, by ending
    not_listed: Mapping[str, int] | None = field(default=None, metadata=OPTIONAL)

    @property
    def not_listed_words(self) -> str:
        """The files that were not listed as images, in words; empty if there are none."""
        return describe_skipped(self.not_listed or {})

    def place(self, base: str) -> Path | None:
        """Return its file or folder, ``None`` where it is not a single local one.

        Relative sources count from ``base``, the ``opened_in`` of the audit.
        """
        return place_of(self.source, Path(base)) if self.source else None


@dataclass(frozen=True, slots=True)
class EncoderSummary:
    """The encoder of an audit."""

    name: str = ""
    digest: str = ""
    width: int = 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where degrees begin; ``None`` where that is not known."""

    hard: float | None = None
    soft: float | None = None
    provenance: str = ""  # where they come from, in words
    provisional: bool = False  # not yet calibrated at a stated error rate


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """The search for candidates: the engine, and the misses of each index."""

    engine: str = "exact"
    version: str | None = None
    indexes: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class VerifierSummary:
    """The pixel verification of an audit."""

    digest: str = ""


@dataclass(frozen=True, slots=True)
class GraderSummary:
    """The grader of an audit; ``near_at`` is the probability from which a pair is ``near``."""

    digest: str = ""
    near_at: float | None = None
    provenance: str = ""


@dataclass(frozen=True, slots=True)
class DuplicateGroups:
    """Groups of near or exact images: their number, the images in them, the largest sizes."""

    groups: int = 0
    images: int = 0
    largest: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChanceSummary:
    """Pairs that are expected to reach a threshold by chance, by degree."""

    sampled: int = 0  # random pairs that were compared
    # references of a query that are expected to reach it
    per_image: Mapping[str, float] = field(default_factory=dict)
    # the same for all pairs of the comparison
    pairs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Groups on both sides: their number, the query images in them, and the first names."""

    shared: int = 0
    queries: int = 0
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DistanceCount:
    """A bar of a histogram of distances in time; ``up_to`` is ``None`` for all beyond."""

    up_to: int | None = None
    queries: int = 0


@dataclass(frozen=True, slots=True)
class RecordingCounts:
    """A recording on both sides."""

    recording: str = ""
    queries: int = 0  # images of it on either side
    references: int = 0
    close: int = 0  # query images within the bound of a reference image
    # query images with a near or exact pair in it; None without grades
    near_or_exact: int | None = None
    least: int = 0  # distance of its query images to the nearest reference image
    median: int = 0
    # the largest distance of a near or exact pair, None where there is none
    near_up_to: int | None = None


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """Recordings on both sides of a comparison."""

    unit: str = ""  # of distances: frames or ms
    within: int = 0  # the largest distance that counts as a leak
    shared: int = 0  # recordings on both sides, and those with a leak
    leaking: int = 0
    queries: int = 0  # query images, as in RecordingCounts
    close: int = 0
    nearest: int | None = None  # the least distance
    near_or_exact: int | None = None
    distances: tuple[DistanceCount, ...] = ()  # histogram
    # the leaking recordings with the most images within the bound
    listed: tuple[RecordingCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """Intervals of time that recordings of a comparison share."""

    count: int = 0
    named: tuple[str, ...] = ()  # the first of them in words


@dataclass(frozen=True, slots=True)
class OverlapSummary:
    """Overlaps of the images of a comparison."""

    pairs: int = 0  # that overlap
    queries: int = 0  # query images that overlap any


@dataclass(frozen=True, slots=True)
class BoxSummary:
    """Annotated objects of the query images of a comparison."""

    query_set: str = ""
    reference_set: str = ""
    total: int = 0
    seen: int = 0  # at least half of the box lies in what one reference shows
    # of the boxes that are seen: annotated in the reference as the same class, as another, or not
    same: int = 0
    different: int = 0
    unmatched: int = 0


@dataclass(frozen=True, slots=True)
class SceneSummary:
    """Scenes: images that overlaps connect."""

    scenes: int = 0
    images: int = 0  # in them
    shared: int = 0  # scenes with images of a query set and of another set
    largest: tuple[int, ...] = ()  # images of the largest


@dataclass(frozen=True, slots=True)
class ComparisonSummary:
    """A query set against a reference set."""

    query_set: str = ""
    reference_set: str = ""
    coverage: str = ""  # within, intra or inter
    modality: str = ""  # full or image-only
    queries: int = 0  # readable query images
    rates: Rates = field(default_factory=dict)  # of them
    pairs: int = 0  # rows of pairs.parquet
    # of a set compared with itself: duplicate pairs and distinct images, by grade
    within: Mapping[str, Mapping[str, int]] | None = field(default=None, metadata=OPTIONAL)
    # of graded pairs
    duplicate_groups: DuplicateGroups | None = field(default=None, metadata=OPTIONAL)
    # where there are thresholds
    chance: ChanceSummary | None = field(default=None, metadata=OPTIONAL)
    # where groups and frame numbers are known
    groups: GroupSummary | None = field(default=None, metadata=OPTIONAL)
    recordings: RecordingSummary | None = field(default=None, metadata=OPTIONAL)
    # where times are known: what recordings share, the first in words
    segments: SegmentSummary | None = field(default=None, metadata=OPTIONAL)
    # where overlaps were measured
    overlap: OverlapSummary | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class TotalSummary:
    """The rates of a query set over all its references, and their headline."""

    query_set: str = ""
    headline: str = ""
    rates: Rates = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VerificationSummary:
    """Candidates that were not verified, by reason, and the bounds of each round."""

    rounds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    stopped: int = 0
    limited: int = 0
    connected: int = 0


@dataclass(frozen=True, slots=True)
class ReviewSummary:
    """The numbers of verdicts and of what they changed."""

    judged: int = 0  # pairs
    disputed: int = 0
    reviewers: Mapping[str, int] = field(default_factory=dict)  # pairs by reviewer
    changed: int = 0  # listed pairs whose grade is another than the automatic one
    added: int = 0  # pairs that were not listed


class Topic(StrEnum):
    """The subject of an omission; its texts begin with it."""

    DEGREES = "degrees:"
    VIEWS = "views:"
    NO_VERIFICATION = "verification:"
    EMBEDDINGS = "verification of"
    SEARCH = "search for"
    SAMPLE = "queries:"
    REPEATS = "repeats within"
    GROUPS = "groups of"
    FRAMES = "frames of"
    TIME = "time between"
    FILES = "files of"
    LENGTHS = "lengths:"
    PAIRS = "pairs:"
    OTHER = ""


@dataclass(frozen=True, slots=True)
class Omission:
    """A step that an audit left out, and the reason.

    >>> Omission.of("queries: a sample of 20 images").topic is Topic.SAMPLE
    True
    """

    topic: Topic
    text: str

    @classmethod
    def of(cls, text: str) -> Omission:
        """Return the entry of a text of ``audit.json``."""
        return cls(next(topic for topic in Topic if text.startswith(topic)), text)


#: Entries of ``audit.json`` that differ between runs, and the digest of the others.
_OF_A_RUN: Final = {"digest", "timings", "opened_in", "command"}


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """The content of ``audit.json``. Fields that an older version did not write have defaults."""

    schema: int = SCHEMA
    visleak: str = ""  # version that wrote it
    headline: str = ""  # the result in one line
    unfinished: int = 0  # images that could be read at first and not again; they are in no rate
    sets: tuple[SetSummary, ...] = ()
    settings: Settings = field(default_factory=Settings)
    encoder: EncoderSummary = field(default_factory=EncoderSummary)
    thresholds: Thresholds = field(default_factory=Thresholds)
    search: SearchSummary = field(default_factory=SearchSummary)
    verifier: VerifierSummary | None = field(default_factory=VerifierSummary)
    grader: GraderSummary | None = field(default_factory=GraderSummary)
    comparisons: tuple[ComparisonSummary, ...] = ()
    totals: tuple[TotalSummary, ...] = ()
    label_conflicts: int = 0  # near or exact pairs whose labels differ
    skipped: tuple[Omission, ...] = ()  # steps that were left out; the file holds the texts
    versions: Mapping[str, str | None] = field(default_factory=dict)  # of libraries
    key: str | None = None  # digest of all that the result depends on; None if it cannot be known
    opened_in: str = "."  # folder from which relative sources count
    command: str | None = None  # the command line
    verification: VerificationSummary | None = field(default=None, metadata=OPTIONAL)
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds by step
    # digests of the tables by name
    files: Mapping[str, str] | None = field(default=None, metadata=OPTIONAL)
    # groups by names and tags, and whether the images confirm them
    grouping: GroupingSummary | None = field(default=None, metadata=OPTIONAL)
    # where overlaps were measured: the images that they connect
    scenes: SceneSummary | None = field(default=None, metadata=OPTIONAL)
    # and objects are annotated
    boxes: tuple[BoxSummary, ...] | None = field(default=None, metadata=OPTIONAL)
    # digest of the content of the file, see `summary_digest`
    digest: str | None = field(default=None, metadata=OPTIONAL)
    # where verdicts are counted; never in the file
    review: ReviewSummary | None = field(default=None, metadata=OPTIONAL)

    def set_of(self, name: str) -> SetSummary | None:
        """Return a set by its name, ``None`` if there is none of that name."""
        return next((each for each in self.sets if each.name == name), None)

    def as_dict(self) -> dict[str, object]:
        """Return the content of the file."""
        content: dict[str, object] = as_plain(self)
        return content | {"skipped": [each.text for each in self.skipped]}

    def save(self, folder: Path) -> None:
        """Write ``audit.json`` of an audit folder in one step."""
        content = self.as_dict()
        write_json(folder / AUDIT, content | {"digest": summary_digest(content)})


def summary_digest(content: Mapping[str, object]) -> str:
    """Return the digest of the content of ``audit.json``, of all that is the same in every run."""
    kept = {name: value for name, value in content.items() if name not in _OF_A_RUN}
    # in the file all names are text, and sorted as text
    text = json.dumps(json.loads(json.dumps(kept)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def is_as_written(folder: Path, digest: str | None) -> bool:
    """Whether ``audit.json`` has the digest that it states; older ones state none."""
    content = json.loads((folder / AUDIT).read_text(encoding="utf-8"))
    return digest in (None, summary_digest(content))


def read_summary(folder: Path) -> AuditSummary:
    """Read ``audit.json`` of an audit folder."""
    path = folder / AUDIT
    if not path.is_file():
        if folder.is_file() and (folder.parent / AUDIT).is_file():
            raise UsageError(f"{folder} is a file of an audit; give its folder, {folder.parent}")
        inside = next((each.parent for each in sorted(folder.glob(f"*/{AUDIT}"))), None)
        hint = f"did you mean {inside}?" if inside else "run `visleak audit` first"
        raise UsageError(f"{folder} holds no finished audit (no {AUDIT}); {hint}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise VisleakError(f"{path} is damaged ({error}); {AGAIN}") from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise VisleakError(f"{path} is not an audit's summary; {AGAIN}")
    if content["schema"] > SCHEMA:
        raise VisleakError(
            f"{path} has schema {content['schema']}, this visleak reads up to {SCHEMA}:"
            " upgrade visleak"
        )
    try:
        skipped = tuple(map(Omission.of, from_plain(tuple[str, ...], content.get("skipped", []))))
        summary: AuditSummary = replace(
            from_plain(AuditSummary, content | {"skipped": []}), skipped=skipped
        )
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise VisleakError(f"{path} is damaged ({error}); {AGAIN}") from error
    return summary
