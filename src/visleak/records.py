"""The record types between the steps: frozen, columnar, and validated on creation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Bytes8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

#: Why a listed image could not be read; the only reasons in ``unreadable.csv``.
REASONS: Final = (
    *("missing", "no-permission", "empty", "not-an-image", "truncated", "too-large", "corrupt"),
    *("unsupported", "io-error", "gone", "changed"),
)

#: Missing files of a set that are listed by name.
MISSING_LISTED: Final = 10

#: The eight mirror and quarter-turn views of an image, then its inversion. Turns are clockwise;
#: in ``mirror-turn-90`` the image is mirrored left-right first and turned after.
VIEWS: Final = (
    *("original", "turn-90", "turn-180", "turn-270"),
    *("mirror", "mirror-turn-90", "mirror-turn-180", "mirror-turn-270"),
    "inverted",
)


class Grade(StrEnum):
    """The result of pixel verification or of a person (Barz & Denzler 2020, section 3).

    >>> Grade("near") is Grade.NEAR
    True
    """

    #: Almost all pixels approximately identical.
    EXACT = "exact"
    #: The same camera shot, post-processed.
    NEAR = "near"
    #: Another shot that differs only at second glance.
    SIMILAR = "similar"
    #: Anything else.
    DIFFERENT = "different"


#: A grade, and a degree, as text.
GradeName: TypeAlias = Literal["exact", "near", "similar", "different"]
DegreeName: TypeAlias = Literal["hard", "soft"]

#: Grades, strongest first.
GRADES: Final = tuple(grade.value for grade in Grade)

#: Degrees, strongest first (Ramos et al. 2025, section 3).
DEGREES: Final = ("hard", "soft")

#: Uses of a set.
ROLES: Final = ("benchmark", "training", "pretraining")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why one image could not be decoded."""

    reason: str  # one of `REASONS`
    detail: str = ""  # one line for a person, without the image's name

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"reason must be one of {', '.join(REASONS)}; got {self.reason!r}")


class Refused(Exception):
    """An image, or a file, that is not read for a known reason."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.why = Unreadable(reason, detail)


@dataclass(frozen=True, slots=True)
class Problem:
    """An image of a set that could not be read: a row of ``unreadable.csv``."""

    set: str
    id: str
    locator: str
    reason: str
    detail: str = ""


class PairRow(TypedDict, total=False):
    """A row of ``pairs.parquet``, some of its columns; the last three come with verdicts."""

    query_set: str
    query: str
    reference_set: str
    reference: str
    similarity: float | None
    view: str
    degree: str | None
    grade: str | None
    probability: float | None
    reason: str | None
    transform: str | None
    matrix: list[float] | None
    query_label: str | None
    reference_label: str | None
    label_relation: str
    modality: str
    coverage: str
    machine_grade: str | None
    judged: str | None
    said: tuple[tuple[str, str], ...]


def ends_of(row: PairRow) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return set and id of the query and of the reference of a pair."""
    return (row["query_set"], row["query"]), (row["reference_set"], row["reference"])


def between(query_set: str, reference_set: str) -> str:
    """Return how a pair of sets is called.

    >>> between("test", "train"), between("test", "test")
    ('test → train', 'within test')
    """
    return f"within {query_set}" if query_set == reference_set else f"{query_set} → {reference_set}"


class ImageRow(TypedDict, total=False):
    """A row of ``images.parquet``, some of its columns."""

    set: str
    id: str
    digest: str | None
    label: str | None
    caption: str | None
    locator: str | None
    width: int | None
    height: int | None
    flat: bool
    nearest_set: str | None
    nearest: str | None
    nearest_similarity: float


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """A decoded image as it is displayed."""

    # ``uint8`` array of shape (height, width, 3), RGB, after EXIF orientation, alpha laid over
    # white. May be smaller than the file says where a partial decode was enough.
    pixels: Bytes8
    width: int  # full width in pixels, after EXIF orientation
    height: int  # full height in pixels, after EXIF orientation


class Opener(Protocol):
    """Reads the images of a set. Picklable, so that worker processes can have one each."""

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield, for each of the ascending positions and in their order, what is stored there.

        Encoded images are ``bytes``, images that are stored as arrays are ``uint8`` arrays of
        shape (height, width, 3). An image that cannot be read is :class:`Unreadable`, never an
        exception. Positions also ascend from call to call of a pass; a stream is restarted for a
        position that has passed.
        """


@runtime_checkable
class FootageOpener(Opener, Protocol):
    """An opener of recordings, which can read further frames of them."""

    def between(
        self, position: int, start: int, end: int, every: int
    ) -> Iterator[tuple[int, Bytes8]]:
        """Yield time and image of frames of the recording of an image.

        Args:
            position: of an image of the recording.
            start, end: milliseconds; frames at ``end`` are left out.
            every: milliseconds in which one frame is taken. What cannot be read is left out.
        """


@dataclass(frozen=True)
class ImageSet:
    """A named list of images and their opener; no pixels yet.

    Attributes:
        name: the set's name, unique within an audit.
        ids: Arrow string array, unique, in storage order; they identify the images.
        locators: Arrow string array: where a person finds the image (path, or archive!member).
        opener: reads the images by position in ``ids``.
        labels, captions, groups: Arrow string arrays or ``None``; null where unknown.
        frames: Arrow int64 array with the frame number of video material, or ``None``.
        timed: the frames are times, in milliseconds.
        stamps: unit of the whole numbers since 1970, empty if they are not timestamps.
        dataset: sets of one dataset leak *intra*, of two *inter*.
        roles: some of :data:`ROLES`; empty if not given.
        annotated: whether the annotations of the images are part of the set.
        source: the SOURCE text that reproduces the set.
        options: the columns it was opened with (``id``, ``label``, ``group``, ``frame``), as given.
        problems: images that could not be listed (not part of ``ids``).
        has_pixels: images can be read; ``False`` for embeddings.
        skipped: number of files of the source that are not listed, by ending.
        columns: Arrow string arrays by name: others of the source, in which values repeat.
    """

    name: str
    ids: pa.StringArray
    locators: pa.StringArray
    opener: Opener
    labels: pa.StringArray | None = None
    captions: pa.StringArray | None = None
    groups: pa.StringArray | None = None
    frames: pa.Int64Array | None = None
    timed: bool = False
    stamps: str = ""
    dataset: str = ""
    roles: tuple[str, ...] = ()
    annotated: bool = False
    source: str = ""
    problems: tuple[Problem, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    has_pixels: bool = True
    skipped: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, pa.StringArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = (self.locators, self.labels, self.captions, self.groups, self.frames)
        columns = (*own, *self.columns.values())
        if any(column is not None and len(column) != len(self.ids) for column in columns):
            raise ValueError(f"set {self.name!r}: all columns must have {len(self.ids)} rows")
        if self.ids.null_count:
            raise VisleakError(f"set {self.name!r}: an id is null; every image needs an id")
        for role in self.roles:
            if role not in ROLES:
                raise VisleakError(f"set {self.name!r}: roles are {', '.join(ROLES)}; got {role!r}")
        counts = pc.value_counts(self.ids)
        repeated = counts.filter(pc.greater(counts.field("counts"), 1))
        if len(repeated):
            value = repeated.field("values")[0]
            rows = np.flatnonzero(pc.equal(self.ids, value).to_numpy(zero_copy_only=False))
            raise VisleakError(
                f"set {self.name!r}: id {value.as_py()!r} occurs more than once, in rows {rows[0]}"
                f" and {rows[1]}; ids must be unique (choose another column with --id)"
            )

    def __repr__(self) -> str:
        parts = [f"{self.name!r}, {len(self.ids):,} images"]
        if self.labels is not None:
            parts.append(f"{len(pc.unique(self.labels.drop_null())):,} labels")
        if self.source:
            parts.append(f"from {self.source!r}")
        return f"ImageSet({', '.join(parts)})"

    def __len__(self) -> int:
        return len(self.ids)


class Partition(Protocol):
    """A part of a set of embeddings: one file of vectors. Picklable; read only when asked."""

    @property
    def locator(self) -> str:
        """Where a person finds it."""

    @property
    def rows(self) -> int:
        """Number of vectors."""

    @property
    def stamp(self) -> str:
        """Text that changes when the file does."""

    @property
    def stated(self) -> tuple[tuple[str, str], ...]:
        """Its files, and the BLAKE2b-128 in hexadecimal that a manifest states for each."""

    def matrix(self) -> npt.NDArray[Any]:
        """Return the vectors as stored, (rows, width), any float type, memory-mapped if it can be.

        Rows need not be of unit length: :func:`visleak.vectors.unit_rows` makes them so.
        """

    def columns(self, rows: Int64 | None = None) -> Mapping[str, pa.Array]:
        """Return what is known of some images (all by default): at least ``id``.

        ``label``, ``caption``, ``group``, ``digest``, ``width``, ``height`` and ``locator`` are
        there if the set has them. Ids are unique in the set.
        """


@dataclass(frozen=True, slots=True)
class FileCount:
    """How many of the files of a set are present."""

    present: int  # files that were found
    expected: int  # files that there must be, as far as their names say
    missing: tuple[str, ...] = ()  # names of files that are not present, at most `MISSING_LISTED`
    ignored: int = 0  # files of vectors in other folders of the set, which are not read

    @property
    def complete(self) -> bool:
        """Whether all files are present and read."""
        return self.present >= self.expected and not self.ignored

    def __str__(self) -> str:
        """Return the count in words.

        >>> str(FileCount(399, 400, ("img_emb_2.npy",)))
        '399 of 400 files; img_emb_2.npy is missing'
        >>> str(FileCount(3, 3, ignored=2))
        '3 of 3 files; 2 in other folders are not read'
        """
        count = f"{self.present:,} of {self.expected:,} files"
        if self.ignored:
            verb = "is" if self.ignored == 1 else "are"
            count += f"; {self.ignored:,} in other folders {verb} not read"
        absent, named = self.expected - self.present, ", ".join(self.missing)
        if absent < 1 or not named:
            return count
        more = f" and {absent - len(self.missing):,} more" if absent > len(self.missing) else ""
        return f"{count}; {named}{more} {'is' if absent == 1 else 'are'} missing"


@dataclass(frozen=True)
class EmbeddingSet:
    """A named set of embeddings made elsewhere; may be far larger than memory."""

    name: str  # the set's name, unique within an audit
    partitions: tuple[Partition, ...]  # its files, in storage order
    width: int  # number of coordinates of a vector
    encoder: str = ""  # digest of the encoder that made them; empty where only its name is known
    encoder_name: str = ""  # name of that encoder on the command line; empty if not given
    thresholds: Mapping[str, Any] | None = None  # that the encoder came with, or ``None``
    # as in `ImageSet`
    dataset: str = ""
    roles: tuple[str, ...] = ()
    annotated: bool = False
    source: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    # how many of its files are present, where it is a folder of them
    files: FileCount | None = None
    unreadable: Path | None = None  # file with the images without a vector, where there are any

    def __len__(self) -> int:
        return sum(partition.rows for partition in self.partitions)


#: What an audit compares.
AnySet = ImageSet | EmbeddingSet

#: What is opened as a set: SOURCE text, a path, a set, or an object that holds images.
Source: TypeAlias = str | os.PathLike[str] | AnySet | Sized


def _check_columns(what: str, record: object, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a record with a column of another shape; a column may be ``None``."""
    for name, shape in shapes.items():
        column = getattr(record, name)
        if column is None:
            continue
        found = column.shape if isinstance(column, np.ndarray) else (len(column),)
        if found != shape:
            raise ValueError(f"{what}: {name} is {found}, not {shape}")


@dataclass(frozen=True)
class Fingerprints:
    """The vectors of the readable images of a set, and what was measured with them."""

    set: str  # name of the set
    rows: Int64  # ``int64`` (n,), ascending: position of each fingerprint's image in its set
    ids: pa.StringArray  # Arrow string array (n,)
    matrix: Float32  # ``float32`` (n, d), unit rows; usually memory-mapped
    digests: Bytes8  # ``uint8`` (n, 16): BLAKE2b-128 of the stored bytes
    sizes: npt.NDArray[np.int32]  # ``int32`` (n, 2): full width and height in pixels
    flat: Bool  # ``bool`` (n,): next to no gradient energy (blank, black frames)
    encoder: str  # digest of the encoder, as text
    problems: tuple[Problem, ...] = ()  # the images that could not be read
    # ``digests`` are of stored bytes; otherwise they are of vectors, and never equal one of bytes
    of_bytes: bool = True

    def __post_init__(self) -> None:
        n = len(self.ids)
        width = self.matrix.shape[-1]
        shapes = {"rows": (n,), "matrix": (n, width), "digests": (n, 16), "sizes": (n, 2)}
        _check_columns(f"fingerprints of {self.set!r}", self, {**shapes, "flat": (n,)})

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Pairs:
    """Candidate pairs between two sets, found by similarity, not yet verified.

    Attributes:
        query_set, reference_set: names of the sets.
        query, reference: ``int64`` (n,): positions in the two sets' :class:`Fingerprints`.
        similarity: ``float32`` (n,), higher is more similar; cosine for the built-in encoder.
        background: ``float32`` (n,): mean similarity of the two images to their nearest images of
            a fixed cohort; the corrected similarity is ``similarity - background``.
        view: ``int8`` (n,): index into :data:`VIEWS`, the most similar view of the query.
        total: ``int64``, one per query fingerprint: pairs at or above the soft threshold, before
            any cap.
        votes: ``float32`` (n,): about how many local patches agree in one place; ``None`` where
            local features were not compared.
    """

    query_set: str
    reference_set: str
    query: Int64
    reference: Int64
    similarity: Float32
    background: Float32
    view: Int8
    total: Int64
    votes: Float32 | None = None

    def __post_init__(self) -> None:
        columns = ("reference", "similarity", "background", "view", "votes")
        _check_columns("pairs", self, dict.fromkeys(columns, (len(self.query),)))
        if not np.isfinite(self.similarity).all():
            raise ValueError("pairs: a similarity is not a number")

    def __len__(self) -> int:
        return len(self.query)

    def only(self, rows: Int64) -> Pairs:
        """Return the pairs at some positions."""
        columns = ("query", "reference", "similarity", "background", "view")
        votes = None if self.votes is None else self.votes[rows]
        chosen = {name: getattr(self, name)[rows] for name in columns}
        return replace(self, votes=votes, **chosen)


@dataclass(frozen=True)
class Evidence:
    """Measurements on candidate pairs: one column per check, one row per pair."""

    # name of a check to a ``float32`` column (n,); NaN where it was not made
    checks: Mapping[str, Float32]
    # ``float32`` (n, 9): the geometric relation, row-major 3 x 3, query to reference in unit
    # coordinates (x right, y down, the image is [0, 1] x [0, 1]); NaN where none was fitted
    matrix: Float32
    # ``int8`` (n,): candidates that were not verified, because better candidates of the image are
    # not near (1), its limit was reached (2), or near pairs connect the two images (3); 0 for all
    # others. ``None`` where no candidate could be skipped.
    skipped: Int8 | None = None

    def __post_init__(self) -> None:
        n = len(self.matrix)
        _check_columns("evidence", self, {"matrix": (n, 9), "skipped": (n,)})
        for name, column in self.checks.items():
            if column.shape != (n,):
                raise ValueError(f"evidence: check {name!r} is {column.shape}, not ({n},)")

    def __len__(self) -> int:
        return len(self.matrix)


@dataclass(frozen=True)
class Grades:
    """The grade of each pair."""

    grade: Int8  # ``int8`` (n,): index into `GRADES`; -1 where the pair was not verified
    # ``float32`` (n,) in [0, 1]: P(a careful person calls the pair near or exact); NaN where the
    # pair was not verified
    probability: Float32
    reason: tuple[str, ...] = field(repr=False)  # one line per pair, in words
    # what was done to the query to get the reference, in words
    transform: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        columns = ("probability", "reason", "transform")
        _check_columns("grades", self, dict.fromkeys(columns, (len(self.grade),)))

    def __len__(self) -> int:
        return len(self.grade)

    @classmethod
    def joined(cls, parts: Sequence[Grades]) -> Grades:
        """Return the grades of all parts, one after the other; there must be one."""
        return cls(
            np.concatenate([each.grade for each in parts]),
            np.concatenate([each.probability for each in parts]),
            tuple(reason for each in parts for reason in each.reason),
            tuple(transform for each in parts for transform in each.transform),
        )


class Encoder(Protocol):
    """Turns images into embeddings: weights, preprocessing, normalisation and thresholds.

    Attributes:
        name: on the command line.
        digest: text that changes whenever any vector it makes could change.
        width: number of coordinates of an embedding.
        enough: an image whose short side has this many pixels is large enough (0: decode all).
        views: how many of :data:`VIEWS` :meth:`view` can make of stored vectors; 1 is none.
        thresholds: ``{"hard": .., "soft": .., "provenance": ..}`` or ``None``.
        cohort: ``float32`` (m, width) unit rows of a fixed set of unrelated images, or ``None``:
            the reference of the background similarity.
    """

    name: str
    digest: str
    width: int
    enough: int
    views: int
    thresholds: Mapping[str, Any] | None
    cohort: Float32 | None

    def encode(self, images: Sequence[DecodedImage], /) -> tuple[Float32, Bool]:
        """Return unit vectors (n, width) and whether each image is flat (n,)."""

    def view(self, vectors: Float32, view: int) -> Float32:
        """Return the vectors that the given view of the same images would have."""


class Encodes(Protocol):
    """Minimal encoder interface of ``load_encoder``: one method."""

    def encode(self, images: list[Bytes8], /) -> npt.ArrayLike:
        """Return an array of floats (n, width), one row per image of ``uint8`` RGB."""


class Preparation(Protocol):
    """Turns an image into the input of a network. Picklable: it runs where images are decoded."""

    def __call__(self, image: DecodedImage, /) -> npt.NDArray[np.generic]:
        """Return the network's input for one image, without a batch axis."""


class BatchEncoder(Encoder, Protocol):
    """An encoder that takes many images at a time in one place: a network, perhaps on a GPU.

    Workers decode and prepare; :meth:`forward` is called in the main process.

    Attributes:
        batch: images per call of :meth:`forward`.
        preparation: makes the network's input of an image.
        precision: of the arithmetic (``fp32``, ``fp16``, ``bf16``). Not part of the digest, which
            tells what the vectors mean; part of the key under which they are cached.
        device: where the network runs, for people (``cpu``, ``cuda:0``).
    """

    batch: int
    preparation: Preparation
    precision: str
    device: str

    def forward(self, prepared: Sequence[npt.NDArray[np.generic]]) -> Float32:
        """Return unit vectors (n, width) of prepared images."""
