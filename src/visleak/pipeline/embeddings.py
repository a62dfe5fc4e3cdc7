"""Sets of embeddings: reading them as fingerprints, and the encoder that made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.encoders import known_request, load_encoder
from visleak.encoders.request import parse, published
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EmbeddingCounts, EncodedSet
from visleak.records import (
    AnySet,
    Bool,
    Bytes8,
    DecodedImage,
    EmbeddingSet,
    Encoder,
    Encodes,
    Fingerprints,
    Float32,
    ImageSet,
    Int64,
    Partition,
    Problem,
    Unreadable,
)
from visleak.storage import read_problems
from visleak.vectors import check_digest, forget, unit_rows

CHUNK: Final = 8192  # rows read at a time; only bounds memory
_DOMAIN: Final = b"visleak vector"  # keeps the digests of vectors apart from those of bytes
DEFAULT: Final = "builtin"  # the encoder of an audit of images if none is named
#: Encoders without a device: the option is then meant for the comparison.
WITHOUT_DEVICE: Final = (DEFAULT, "phash", "pdq")
#: Prefix of the name of an encoder that is not one of visleak's: ``other:NAME``.
FOREIGN: Final = "other"
BY_NAME: Final = "by name: "  # prefix of the digest of an encoder of which only the name is known


@dataclass(frozen=True)
class NoImages:
    """The opener of a set of embeddings, which has no images."""

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield, for each position, that the image is missing."""
        for _ in positions:
            yield Unreadable("missing", "of this set there are only embeddings")


def read_embeddings(
    images: EmbeddingSet, encoder: str, context: RunContext, drawn: Int64 | None
) -> EncodedSet:
    """Return a whole set of embeddings as fingerprints; the matrix goes to the scratch folder."""
    columns = joined_columns([part.columns() for part in images.partitions])
    step, total = f"reading {images.name}", len(images)
    rows: list[Int64] = [np.empty(0, np.int64)]
    broken: list[Int64] = [np.empty(0, np.int64)]
    rescaled = 0
    with context.column(".matrix", np.float32, (images.width,)) as matrix:
        for first, stored in _chunks(images.partitions):
            picked = np.arange(first, first + len(stored))
            if drawn is not None:
                picked = drawn[slice(*np.searchsorted(drawn, [first, first + len(stored)]))]
            unit = unit_rows(stored[picked - first])
            matrix.append(unit.matrix[~unit.broken])
            rows.append(picked[~unit.broken])
            broken.append(picked[unit.broken])
            rescaled += int(unit.off.sum())
            context.progress(step, first + len(stored), total)
        vectors = matrix.mapped()
    problems = problems_of(images, np.concatenate(broken))
    counts = EmbeddingCounts(total, rescaled, streamed=False, files=images.files)
    return encoded_set(images, np.concatenate(rows), vectors, columns, encoder, problems, counts)


def _chunks(partitions: Sequence[Partition]) -> Iterator[tuple[int, npt.NDArray[np.generic]]]:
    """Yield the number of the first row and the stored rows of bounded parts."""
    first = 0
    for partition in partitions:
        check_digest(partition)
        matrix = partition.matrix()
        for start in range(0, partition.rows, CHUNK):
            yield first + start, matrix[start : start + CHUNK]
        forget(matrix)
        first += partition.rows


# -- from columns to records ---------------------------------------------------------------------


def joined_columns(parts: Sequence[Mapping[str, pa.Array]]) -> dict[str, pa.Array]:
    """Return the columns of several partitions, joined; null where a partition lacks one."""
    table = pa.concat_tables([pa.table(dict(part)) for part in parts], promote_options="default")
    return {name: table[name].combine_chunks() for name in table.column_names}


def columns_at(
    images: EmbeddingSet, rows: Int64, names: Sequence[str] | None = None
) -> dict[str, pa.Array]:
    """Return what is known of some images of a set."""
    parts = [part.columns(inside) for part, inside in located(images.partitions, rows)]
    parts = parts or [images.partitions[0].columns(rows)]
    if names is not None:
        parts = [{name: part[name] for name in names if name in part} for part in parts]
    return joined_columns(parts)


def located(partitions: Sequence[Partition], rows: Int64) -> Iterator[tuple[Partition, Int64]]:
    """Yield the partitions of some ascending rows, and the rows within each."""
    first = 0
    for partition in partitions:
        low, high = np.searchsorted(rows, [first, first + partition.rows])
        if high > low:
            yield partition, rows[low:high] - first
        first += partition.rows


def vectors_at(images: EmbeddingSet, rows: Int64) -> Float32:
    """Return the unit vectors of some images of a set, rows ascending over all partitions."""
    parts = [np.empty((0, images.width), np.float32)]
    for partition, inside in located(images.partitions, rows):
        matrix = partition.matrix()
        parts.append(unit_rows(matrix[inside]).matrix)
        forget(matrix)
    return np.concatenate(parts)


def encoded_set(
    images: EmbeddingSet,
    rows: Int64,
    matrix: Float32,
    columns: Mapping[str, pa.Array],
    encoder: str,
    problems: tuple[Problem, ...],
    counts: EmbeddingCounts,
) -> EncodedSet:
    """Return a set of embeddings, or some rows of it, as a set of images with fingerprints."""
    known = {name: column.take(pa.array(rows)) for name, column in columns.items()}
    digests = _stored_digests(known.get("digest"))
    sizes = np.zeros((len(rows), 2), np.int32)  # 0 where they are not known
    for axis, name in enumerate(("width", "height")):
        if name in known:
            sizes[:, axis] = pc.fill_null(known[name], 0).to_numpy(zero_copy_only=False)
    fingerprints = Fingerprints(
        set=images.name,
        rows=rows,
        ids=known["id"],
        matrix=matrix,
        digests=_vector_digests(matrix) if digests is None else digests,
        sizes=sizes,
        flat=flat_of(known, len(rows)),
        encoder=encoder,
        problems=problems,
        of_bytes=digests is not None,
    )
    listed = ImageSet(
        name=images.name,
        ids=columns["id"],
        locators=columns["locator"],
        opener=NoImages(),
        labels=columns.get("label"),
        captions=columns.get("caption"),
        groups=columns.get("group"),
        dataset=images.dataset,
        roles=images.roles,
        annotated=images.annotated,
        source=images.source,
        options=images.options,
        has_pixels=False,
        problems=_published_problems(images),
    )
    return EncodedSet(listed, fingerprints, embeddings=counts)


def _published_problems(images: EmbeddingSet) -> tuple[Problem, ...]:
    """Return the images that could not be read when the vectors were made."""
    found = () if images.unreadable is None else read_problems(images.unreadable)
    return tuple(replace(each, set=images.name) for each in found)


def problems_of(images: EmbeddingSet, broken: Int64) -> tuple[Problem, ...]:
    """Return the rows of ``unreadable.csv`` of vectors without a direction."""
    found = []
    for partition, rows in located(images.partitions, np.sort(broken)):
        columns = partition.columns(rows)
        stored = partition.matrix()
        zero = {int(row) for row in rows if not stored[row].any()}
        forget(stored)
        ids, locators = columns["id"].to_pylist(), columns["locator"].to_pylist()
        for row, id_, locator in zip(rows.tolist(), ids, locators, strict=True):
            what = "holds only zeros" if row in zero else "has no finite length (NaN, infinity)"
            detail = f"row {row} of {partition.locator} {what}"
            found.append(Problem(images.name, id_, locator or "", "corrupt", detail))
    return tuple(found)


def flat_of(columns: Mapping[str, pa.Array], count: int) -> Bool:
    """Return which images are known to be flat."""
    if "flat" not in columns:
        return np.zeros(count, np.bool_)
    return np.asarray(pc.fill_null(columns["flat"], False).to_numpy(zero_copy_only=False), np.bool_)


def _stored_digests(column: pa.Array | None) -> Bytes8 | None:
    """Return digests from their hexadecimal text (n, 16); ``None`` unless all are known."""
    if column is None or column.null_count:
        return None
    try:
        joined = b"".join(bytes.fromhex(text) for text in column.to_pylist())
        return np.frombuffer(joined, np.uint8).reshape(len(column), 16)
    except ValueError as error:
        raise VisleakError(f"a content digest in a manifest's table is damaged: {error}") from error


def _vector_digests(matrix: Float32) -> Bytes8:
    """Return digests of vectors (n, 16); they never equal a digest of bytes."""
    found = np.empty((len(matrix), 16), np.uint8)
    for row, vector in enumerate(matrix):
        hashed = hashlib.blake2b(vector.tobytes(), digest_size=16, person=_DOMAIN)
        found[row] = np.frombuffer(hashed.digest(), np.uint8)
    return found


@dataclass(eq=False)
class StoredEncoder:
    """The encoder of stored vectors, of which only the name is needed."""

    # as of Encoder
    name: str
    digest: str
    width: int
    thresholds: Mapping[str, object] | None
    enough: int = 0
    views: int = 1
    cohort: Float32 | None = None

    def encode(self, images: Sequence[DecodedImage]) -> tuple[Float32, Bool]:
        """Refuse, because there is no network."""
        self._refuse("encode images")

    def view(self, vectors: Float32, view: int) -> Float32:
        """Refuse, because views of stored vectors cannot be made."""
        self._refuse("make views of vectors")

    def _refuse(self, what: str) -> NoReturn:
        raise VisleakError(
            f"encoder {self.name} is known by its stored vectors only and cannot {what};"
            f" name it with --encoder"
        )


def encoder_for(
    sets: Sequence[AnySet],
    wanted: str | Encoder | Encodes,
    options: Mapping[str, object] | None = None,
) -> Encoder:
    """Return the encoder of an audit."""
    stored = [images for images in sets if isinstance(images, EmbeddingSet)]
    if not stored:
        return load_encoder(wanted or DEFAULT, **(options or {}))
    for images in stored:
        _refuse_unknown_name(images)
    encoder = _chosen(stored, wanted, options or {}, alone=len(stored) == len(sets))
    for images in stored:
        _check(images, encoder)
    return encoder


def _refuse_unknown_name(images: EmbeddingSet) -> None:
    prefix, _, foreign = images.encoder_name.partition(":")
    if images.encoder or (prefix == FOREIGN and foreign):
        return
    try:
        known_request(images.encoder_name)
    except UsageError as error:
        end = "" if str(error).endswith("?") else "."
        raise UsageError(
            f"set {images.name!r} ({images.source}): {error}{end} For vectors of another model"
            f" write ?encoder={FOREIGN}:NAME"
        ) from error


def _chosen(
    stored: Sequence[EmbeddingSet],
    wanted: str | Encoder | Encodes,
    options: Mapping[str, object],
    *,
    alone: bool,
) -> Encoder:
    """Return the encoder; a model is loaded only where images must be encoded."""
    if not isinstance(wanted, str):
        return load_encoder(wanted, **options)
    lead = next((images for images in stored if images.encoder), stored[0])
    if not alone:
        name = wanted or lead.encoder_name
        unused = {"device"} if parse(name).name in WITHOUT_DEVICE else set()
        return load_encoder(name, **{key: options[key] for key in options if key not in unused})
    if wanted and _network(wanted) != _network(lead.encoder_name):
        if parse(wanted).name != parse(lead.encoder_name).name or not lead.encoder:
            _mismatch(lead, wanted, "")
        # the same kind under another name or from another folder: digests are compared later
        return load_encoder(wanted)
    if lead.encoder_name == DEFAULT:
        own = load_encoder(DEFAULT)
        # its cohort and views are valid for stored vectors too
        if lead.encoder in ("", own.digest):
            return own
    return StoredEncoder(
        name=lead.encoder_name,
        digest=lead.encoder or BY_NAME + lead.encoder_name,
        width=lead.width,
        thresholds=lead.thresholds if lead.encoder else published(lead.encoder_name),
    )


def _network(text: str) -> str:
    """Return an encoder's text without the resizing of images.

    Vectors of LAION, of which only the name is known, were made by ``clip`` from resized images.
    """
    request = parse(text)
    return request.named(*sorted(set(request.options) - {"prep"}))


def _check(images: EmbeddingSet, encoder: Encoder) -> None:
    if images.encoder and not encoder.digest.startswith(BY_NAME):
        same = images.encoder == encoder.digest
    else:
        same = _network(images.encoder_name) == _network(encoder.name)
    if not same:
        _mismatch(images, encoder.name, encoder.digest)
    if images.width != encoder.width:
        raise VisleakError(
            f"set {images.name!r} ({images.source}) holds vectors of {images.width} numbers,"
            f" {encoder.name} makes {encoder.width}; they cannot be compared"
        )


def _mismatch(images: EmbeddingSet, name: str, digest: str) -> NoReturn:
    theirs, ours = (
        f"{name} (digest {digest[:12]})" if digest and not digest.startswith(BY_NAME) else name
        for name, digest in ((images.encoder_name, images.encoder), (name, digest))
    )
    raise VisleakError(
        f"set {images.name!r} ({images.source}) was made with encoder {theirs}, the audit uses"
        f" {ours}; vectors of two encoders cannot be compared"
    )
