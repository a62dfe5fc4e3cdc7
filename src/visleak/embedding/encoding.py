"""``visleak encode``: the embeddings of a set as files that others can compare with."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import visleak
from visleak import pipeline
from visleak.auditing import open_cache, workers_for
from visleak.encoders import load_encoder
from visleak.encoders.request import parse
from visleak.errors import UsageError, VisleakError
from visleak.formats.embeddings import KIND, MANIFEST, SCHEMA, TEXTS, UNFINISHED, VECTORS
from visleak.formats.listing import describe_skipped
from visleak.pipeline.context import Engine, Processes, RunContext
from visleak.pipeline.encoded_set import are_back
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.folder import stamp_of
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.records import Encoder, Fingerprints, ImageSet, Int64, Problem
from visleak.storage import (
    UNREADABLE,
    claimed,
    file_digest,
    free_table,
    read_problems,
    remove_unfinished,
    replacing,
    write_csv,
    write_json,
    write_problems,
    write_tables,
)
from visleak.storage.cache import Cache

CHUNK: Final = 16_384  # rows written at a time; only bounds memory
GROUP: Final = 50_000  # rows per row group of the table
NOTES: Final = ".shard_*.json"  # of finished shards, until the folder is complete
SHARD: Final = 1_000_000  # images per shard
DTYPES: Final = ("float16", "float32")
SHORTEST: Final = 16  # a shorter salt can be guessed
#: Ending of the file that maps hashed ids back, and its columns.
MAPPING: Final = ".ids.csv"
MAPPING_COLUMNS: Final = ("hashed", "id", "locator")
#: Encoders from whose vectors small versions of the images can be reconstructed.
THUMBNAILS: Final = ("builtin",)


@dataclass(frozen=True, slots=True)
class Shard:
    """The files of a shard: its vectors, the table of their images, a note once both are whole."""

    folder: Path  # of the embeddings
    number: int

    @property
    def vectors(self) -> Path:
        """The file of vectors."""
        return self.folder / VECTORS / f"{VECTORS}_{self.number:04d}.npy"

    @property
    def texts(self) -> Path:
        """The table of the images."""
        return self.folder / TEXTS / f"{TEXTS}_{self.number:04d}.parquet"

    @property
    def note(self) -> Path:
        """The note."""
        return self.folder / f".shard_{self.number:04d}.json"


@dataclass(frozen=True, slots=True)
class Note:
    """A finished shard."""

    rows: int  # number of vectors
    digest: str  # BLAKE2b-128 of the file of vectors, in hexadecimal
    table: str  # that of the table
    problems: tuple[Problem, ...]  # images that could not be read


def read_note(shard: Shard) -> Note | None:
    """Return the note of a shard, ``None`` if it is not finished."""
    if not all(path.is_file() for path in (shard.note, shard.vectors, shard.texts)):
        return None
    try:
        stored = json.loads(shard.note.read_text(encoding="utf-8"))
        stored["problems"] = tuple(Problem(*row) for row in stored["problems"])
        return Note(**stored)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VisleakError(f"{shard.note} is damaged ({error!r}); use --force") from error


def write_shard(
    shard: Shard,
    prints: Fingerprints,
    order: Int64,
    dtype: str,
    table: pa.Table,
    problems: Sequence[Problem],
) -> Note:
    """Write a shard; its note last, so that a killed run leaves it unfinished."""
    shape = (len(order), prints.matrix.shape[1])
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    with replacing(shard.vectors) as part, part.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(order), CHUNK):
            rows = prints.matrix[order[start : start + CHUNK]]
            file.write(np.ascontiguousarray(rows, dtype).data)
    parts = (table.slice(start, GROUP) for start in range(0, max(1, len(table)), GROUP))
    write_tables(shard.texts, table.schema, parts)
    note = Note(len(order), file_digest(shard.vectors), file_digest(shard.texts), tuple(problems))
    write_json(shard.note, asdict(note) | {"problems": [astuple(p) for p in problems]})
    return note


def _texts_of(images: ImageSet, prints: Fingerprints) -> pa.Table:
    listed = pa.array(prints.rows)
    columns = {
        "id": images.ids,
        "label": images.labels,
        "caption": images.captions,
        "group": images.groups,
        "locator": images.locators,
    }
    known = {name: column.take(listed) for name, column in columns.items() if column is not None}
    digests = pa.array([digest.tobytes().hex() for digest in prints.digests], pa.string())
    width, height = prints.sizes.T
    return pa.table(
        {**known, "width": width, "height": height, "digest": digests, "flat": prints.flat}
    )


@dataclass(frozen=True, slots=True)
class Encoded:
    """A finished folder of embeddings."""

    folder: Path  # its path
    vectors: int  # their number
    unreadable: int  # images that could not be read
    shards: int  # number of files of vectors
    reused: bool  # it existed, and nothing was computed
    # files that the owner of an anonymous folder keeps, else ``None``
    salt: Path | None = None
    mapping: Path | None = None
    skipped: str = ""  # files of the source that are not listed, in words

    def lines(self) -> Iterator[str]:
        """Yield what was written, line by line."""
        unreadable = f", {self.unreadable:,} unreadable" if self.unreadable else ""
        vectors = counted(self.vectors, "vector")
        yield f"{vectors} in {counted(self.shards, 'file')}{unreadable}"
        if self.skipped:
            yield f"skipped: {self.skipped}"
        yield str(self.folder)
        if self.salt is not None:
            yield (
                f"keep, and never publish: {self.salt} (the salt) and {self.mapping} (which hash is"
                " which image)"
            )


@dataclass(frozen=True, slots=True)
class _Job:
    """The content of a folder, and what it depends on."""

    images: ImageSet
    encoder: Encoder
    folder: Path
    dtype: str  # of the stored numbers
    shard: int  # images per shard
    salt: Salt | None  # for anonymous ids
    names: pa.StringArray  # ids in the folder, of all images
    order: Int64  # positions of the images, in the order in which they are written
    key: str | None  # digest of everything the folder depends on; None if unknowable

    @property
    def shards(self) -> list[Shard]:
        return [Shard(self.folder, n) for n in range(-(-len(self.images) // self.shard))]

    def are_back(self, problems: Sequence[Problem]) -> bool:
        """Whether images that could not be read can be read now."""
        return are_back(self.images.opener, self.names, problems)

    def kept(self, shard: Shard) -> Note | None:
        """Return the note of a finished shard, unless it lacks images that are back."""
        note = read_note(shard)
        return None if note is None or self.are_back(note.problems) else note


def encode(
    images: ImageSet,
    encoder: str | Encoder,
    out: str | os.PathLike[str],
    *,
    shard: int = SHARD,
    dtype: str = "float16",
    anonymous: bool = False,
    salt: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = pipeline.silent,
    engine: Engine = Processes,
    force: bool = False,
) -> Encoded:
    """Write the vectors of a set in clip-retrieval's layout, with a manifest.

    An interrupted run resumes with the first missing shard.

    Args:
        images: the set.
        encoder: an encoder or its text.
        out: the folder.
        shard: images per shard.
        dtype: ``float16`` or ``float32``.
        anonymous: replace ids by salted hashes, in the order of these, and write nothing else of
            the images. The salt and a table that maps the hashes back are written next to the
            folder.
        salt: file with the salt to use.
        workers: processes; by default one per core.
        cache: folder of cached results; ``None`` for none.
        progress: called with the progress.
        engine: execution backend; by default processes of this machine.
        force: replace other embeddings in ``out``.

    Raises:
        UsageError: an argument is invalid, or ``out`` holds something else.
        VisleakError: the encoder or the disk fails.
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    if shard < 1:
        raise UsageError(f"shard must be 1 image or more; got {shard}")
    if salt is not None and not anonymous:
        raise UsageError("a salt is for anonymous ids: give --anonymous too")
    maker, folder = load_encoder(encoder), Path(out)
    secret = _salt_for(folder, Path(salt) if salt is not None else None) if anonymous else None
    job = _job(images, maker, folder, dtype, shard, secret)
    with claimed(folder, [images], MANIFEST, reads=not force):
        finished = _claim(job, force=force)
        with open_cache(cache, [images]) as store:
            processes = workers_for(len(images), workers)
            notes = [
                job.kept(each) or _written(job, each, processes, store, progress, engine)
                for each in (() if finished else job.shards)
            ]
        if not finished:
            # the files about all shards, the manifest last
            problems = [
                *_hidden(job, images.problems),
                *(p for note in notes for p in note.problems),
            ]
            write_problems(folder / UNREADABLE, problems)
            write_json(folder / MANIFEST, _manifest(job, notes, len(problems)))
        # what is only needed while a folder is written
        for leftover in (folder / UNFINISHED, *folder.glob(NOTES)):
            leftover.unlink(missing_ok=True)
        mapping = _write_mapping(folder, images, job.names) if secret else None
    manifest = _content_of(folder / MANIFEST)
    if manifest is None:
        raise VisleakError(f"{folder / MANIFEST} cannot be read")
    return Encoded(
        folder,
        manifest["vectors"],
        manifest["unreadable"],
        len(manifest["shards"]),
        reused=finished,
        salt=secret.path if secret else None,
        mapping=mapping,
        skipped=describe_skipped(images.skipped),
    )


def _job(
    images: ImageSet, encoder: Encoder, folder: Path, dtype: str, shard: int, salt: Salt | None
) -> _Job:
    names = images.ids if salt is None else salt.hashed(images.ids)
    # the order of hashes reveals nothing; that of the set might
    order = np.arange(len(names)) if salt is None else np.argsort(np.array(names.to_pylist()))
    stamp = stamp_of(images)
    parts = [stamp, encoder.digest, _precision(encoder), dtype, shard, salt is not None]
    hasher = hashlib.blake2b(
        json.dumps(parts).encode(), digest_size=16, key=salt.key if salt else b""
    )
    key = None if stamp is None else hasher.hexdigest()
    return _Job(images, encoder, folder, dtype, shard, salt, names, order, key)


def _precision(encoder: Encoder) -> str:
    """Return the arithmetic behind the vectors; networks may be run in several."""
    return str(getattr(encoder, "precision", "fp32"))


def _written(
    job: _Job, shard: Shard, workers: int, store: Cache | None, progress: Progress, engine: Engine
) -> Note:
    before = shard.number * job.shard
    positions = np.sort(job.order[before : before + job.shard])

    def report(step: str, done: int, total: int) -> None:
        progress(f"encoding {job.images.name}", before + done, len(job.images))

    with RunContext.at(job.folder, workers, store, report, engine) as place:
        # a set of one shard is read as a whole, from any source
        drawn = None if len(positions) == len(job.images) else positions
        prints = fingerprint(job.images, job.encoder, place, drawn)
        order = np.arange(len(prints))
        if job.salt is None:
            table = _texts_of(job.images, prints)
        else:
            names = job.names.take(pa.array(prints.rows))
            order = np.argsort(np.array(names.to_pylist(), str), kind="stable")
            table = pa.table({"id": names.take(pa.array(order)), "flat": prints.flat[order]})
        try:
            problems = _hidden(job, prints.problems)
            return write_shard(shard, prints, order, job.dtype, table, problems)
        except OSError as error:
            raise _unwritable(job.folder, error) from error


def _unwritable(path: Path, error: OSError) -> VisleakError:
    return VisleakError(f"{path} cannot be written ({error.strerror or error})")


def _hidden(job: _Job, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems without anything that identifies the image."""
    if job.salt is None:
        return list(problems)
    ids = job.salt.hashed(pa.array([problem.id for problem in problems], pa.string()))
    found = sorted(zip(ids.to_pylist(), [problem.reason for problem in problems], strict=True))
    return [Problem("", id_, "", reason) for id_, reason in found]


def _manifest(job: _Job, notes: Sequence[Note], unreadable: int) -> dict[str, object]:
    images, encoder, salt = job.images, job.encoder, job.salt
    about = {"set": images.name, "dataset": images.dataset, "source": images.source}
    own = encoder.thresholds or {}
    thresholds = {
        "hard": own.get("hard"),
        "soft": own.get("soft"),
        "provenance": str(own.get("provenance", "")),
        "provisional": bool(own.get("provisional", False)),
    }
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "visleak": visleak.__version__,
        "encoder": {
            "name": public_name(encoder.name) if salt else encoder.name,
            "digest": encoder.digest,
            "width": encoder.width,
            "precision": _precision(encoder),
        },
        "thresholds": None if None in thresholds.values() else thresholds,
        "dtype": job.dtype,
        "vectors": sum(note.rows for note in notes),
        "unreadable": unreadable,
        "ids": "id",
        "anonymous": salt is not None,
        **({} if salt else about),
        "shards": [
            {
                "vectors": f"{VECTORS}/{shard.vectors.name}",
                "metadata": f"{TEXTS}/{shard.texts.name}",
                "rows": note.rows,
                "digest": note.digest,
                "metadata_digest": note.table,
            }
            for shard, note in zip(job.shards, notes, strict=True)
        ],
        "key": job.key,
    }


def _content_of(path: Path) -> dict[str, Any] | None:
    """Return the content of one of our files, ``None`` if it is another one or none."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.get("kind") == KIND:
            return content
    return None


def _claim(job: _Job, *, force: bool) -> bool:
    """Prepare the folder of a job; return whether it is finished already."""
    folder = job.folder
    for place in (VECTORS, TEXTS):
        remove_unfinished(folder / place)
    manifest = _content_of(folder / MANIFEST)
    if manifest is not None or (folder / UNFINISHED).is_file():
        held = manifest or _content_of(folder / UNFINISHED) or {}
        same = job.key is not None and held.get("key") == job.key
        if not same and not force:
            raise UsageError(
                f"{folder} holds embeddings of another set, encoder or layout; choose another"
                " folder with -o DIR, or replace them with --force"
            )
        finished = same and manifest is not None and not force
        if finished and not job.are_back(read_problems(folder / UNREADABLE)):
            return True
        if not same or force:
            # what an earlier run wrote, and nothing else
            vectors, texts = f"{VECTORS}/{VECTORS}_*.npy", f"{TEXTS}/{TEXTS}_*.parquet"
            for pattern in (MANIFEST, NOTES, UNREADABLE, vectors, texts):
                for path in list(folder.glob(pattern)):
                    path.unlink()
    write_json(folder / UNFINISHED, {"kind": KIND, "schema": SCHEMA, "key": job.key})
    return False


@dataclass(frozen=True, slots=True)
class Salt:
    """The secret of an anonymous folder."""

    path: Path  # the file it is kept in, outside the folder
    key: bytes  # made of it, 64 bytes

    def hashed(self, ids: pa.StringArray) -> pa.StringArray:
        """Return the new ids: keyed BLAKE2b-128 of ids, in hexadecimal."""
        digests = (
            hashlib.blake2b(id_.encode(), key=self.key, digest_size=16) for id_ in ids.to_pylist()
        )
        return pa.array((digest.hexdigest() for digest in digests), pa.string())


def _salt_for(folder: Path, given: Path | None) -> Salt:
    """Return the salt of a folder: of a file, the one next to the folder, or a new one."""
    path = given if given is not None else _beside(folder, ".salt")
    if given is not None and not given.is_file():
        raise UsageError(f"salt {given} is not a file; leave --salt out to have one made")
    if path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"salt {path} lies in {folder}, which is published; keep it elsewhere")
    free_table(_beside(folder, MAPPING), MAPPING_COLUMNS)
    try:
        if not path.exists():
            with replacing(path) as part:
                # other users cannot read it
                handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(secrets.token_hex(32) + "\n")
        text = path.read_bytes().strip()
    except OSError as error:
        raise VisleakError(
            f"the salt {path} cannot be read or written ({error.strerror or error})"
        ) from error
    if len(text) < SHORTEST:
        raise UsageError(
            f"the salt in {path} has {len(text)} characters and can be guessed; it needs"
            f" {SHORTEST} or more"
        )
    return Salt(path, hashlib.blake2b(text).digest())


def _beside(folder: Path, ending: str) -> Path:
    plain = folder.resolve()
    return plain.with_name(plain.name + ending)


def public_name(text: str) -> str:
    """Return an encoder's text without the folders of this machine.

    >>> public_name("clip"), public_name("sscd:/nowhere/at/all.pt?resize=288")
    ('clip', 'sscd:/nowhere/at/all.pt?resize=288')
    """
    request = parse(text)
    if not request.argument or not Path(request.argument).exists():
        return text
    return replace(request, argument=Path(request.argument).name).named(*request.options)


def _write_mapping(folder: Path, images: ImageSet, hashed: pa.StringArray) -> Path:
    """Write the table of hashed and original ids next to a folder, readable only by its owner."""
    path = _beside(folder, MAPPING)
    rows = zip(hashed.to_pylist(), images.ids.to_pylist(), images.locators.to_pylist(), strict=True)
    try:
        write_csv(path, MAPPING_COLUMNS, (tuple(cell or "" for cell in row) for row in rows))
        path.chmod(0o600)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path
