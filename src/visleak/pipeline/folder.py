"""Writing the audit folder, and knowing whether it already holds what is asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError
from visleak.grading import load_grader
from visleak.images import DECODING
from visleak.pipeline import recordings, rounds
from visleak.pipeline.run import Outcome
from visleak.pipeline.tables import image_tables, pair_tables
from visleak.pipeline.thresholds import Thresholds
from visleak.records import AnySet, EmbeddingSet, Encoder, ImageSet
from visleak.settings import Settings
from visleak.storage import (
    AUDIT,
    IMAGES,
    IMAGES_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    RECORDINGS,
    SECTIONS,
    UNREADABLE,
    AuditSummary,
    file_digest,
    read_summary,
    write_csv,
    write_problems,
    write_tables,
)
from visleak.verify import check


def key_of(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
    encoder: Encoder,
    settings: Settings,
    thresholds: Thresholds,
) -> str | None:
    """Return a digest of everything an audit's answer depends on, or ``None`` if unknowable.

    Files stand in by name, size and time of change; pictures in memory cannot be stamped, nor can
    an encoder that only this run knows.
    """
    stamps = [stamp_of(images) for images in (*queries, *references)]
    if None in stamps or not getattr(encoder, "lasting", True):
        return None
    parts: dict[str, Any] = {
        "settings": settings.as_dict(),
        "decoding": DECODING,
        "encoder": encoder.digest,
        "thresholds": [thresholds.hard, thresholds.soft, thresholds.provenance],
        "verifier": check.digest().hex(),
        "rounds": [rounds.ACROSS, rounds.WITHIN],
        "grader": load_grader().digest,
        "sets": stamps,
        "queries": len(queries),
    }
    if precision := getattr(encoder, "precision", ""):
        parts["precision"] = precision
    return digest_of(parts)


def stamp_of(images: AnySet) -> str | None:
    """Return a digest of a set's listing and of the state of its files, ``None`` if unknowable."""
    if not images.source:
        return None
    hasher = hashlib.blake2b(digest_size=16)
    about = [images.name, images.dataset, *images.roles, str(images.annotated), images.source]
    hasher.update("\0".join(about).encode(errors="surrogateescape"))
    if isinstance(images, EmbeddingSet):
        chosen = [f"{name}={value}" for name, value in sorted(images.options.items())]
        files = [f"{part.locator} {part.stamp}" for part in images.partitions]
        hasher.update("\0".join([*chosen, *files]).encode(errors="surrogateescape"))
        return hasher.hexdigest()
    # an opener of what is not a file here says itself whether that has changed
    own = getattr(images.opener, "stamp", "")
    if own is None:
        return None
    hasher.update(own.encode(errors="surrogateescape"))
    _stamp_images(hasher, images)
    return hasher.hexdigest()


def _stamp_images(hasher: hashlib.blake2b, images: ImageSet) -> None:
    columns = [images.ids, images.locators, images.labels, images.captions, images.groups]
    if images.frames is not None:
        hasher.update(b"ms" if images.timed else b"frames")
        columns.append(images.frames)
    for column in columns:
        for buffer in column.buffers() if column is not None else ():
            hasher.update(buffer or b"-")
    # a locator inside a file is FILE!MEMBER
    files = pc.unique(pc.list_element(pc.split_pattern(images.locators, "!", max_splits=1), 0))
    for file in files.to_pylist():
        try:
            status = os.stat(file)
            hasher.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
        except OSError:
            hasher.update(b"missing ")


def holds(folder: Path, key: str | None, *, force: bool) -> bool:
    """Whether the folder already holds this very audit, finished.

    One that lost images on the way is done again.

    Raises:
        UsageError: it holds another audit and ``force`` is not set.
    """
    if not (folder / AUDIT).is_file():
        return False
    if force:
        return False
    known = read_summary(folder)
    if key is not None and known.key == key:
        return not known.unfinished and all(
            (folder / name).is_file() for name in (PAIRS, IMAGES, UNREADABLE)
        )
    raise UsageError(
        f"{folder} holds another audit (other sets, files or settings); choose another folder"
        " with -o DIR, or replace it with --force"
    )


def write(folder: Path, outcome: Outcome, summary: AuditSummary) -> None:
    """Write the tables, then ``audit.json``, whose presence says that all is there."""
    try:
        (folder / AUDIT).unlink(missing_ok=True)
        (folder / RECORDINGS).unlink(missing_ok=True)
        # pages of verbs that worked on the audit that stood here before
        shutil.rmtree(folder / SECTIONS, ignore_errors=True)
        write_tables(folder / PAIRS, PAIRS_SCHEMA, pair_tables(outcome.compared, outcome.sides))
        tables = image_tables(outcome.sets, outcome.compared, outcome.sides)
        write_tables(folder / IMAGES, IMAGES_SCHEMA, tables)
        problems = [p for images in outcome.sets for p in images.problems]
        problems += [p for s in outcome.sides.values() for p in s.prints.problems]
        write_problems(folder / UNREADABLE, problems)
        if outcome.recordings:
            rows = recordings.rows(outcome.recordings)
            write_csv(folder / RECORDINGS, recordings.COLUMNS, rows)
        names = [PAIRS, IMAGES, UNREADABLE, *([RECORDINGS] if outcome.recordings else [])]
        files = {name: file_digest(folder / name) for name in names}
        replace(summary, files=files).save(folder)
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written: {error}") from error
