"""Writing the audit folder, and knowing whether it already holds what is asked for."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError
from visleak.grading import load_grader
from visleak.images import DECODING
from visleak.images.sources import place_of
from visleak.pipeline import recordings, rounds
from visleak.pipeline.run import Outcome
from visleak.pipeline.tables import image_tables, pair_tables
from visleak.pipeline.thresholds import Thresholds
from visleak.pipeline.workplace import remove_leftovers
from visleak.records import AnySet, EmbeddingSet, Encoder, ImageSet
from visleak.settings import Settings
from visleak.store import (
    AUDIT,
    IMAGES,
    IMAGES_SCHEMA,
    LOCK,
    PAIRS,
    PAIRS_SCHEMA,
    RECORDINGS,
    SECTIONS,
    UNREADABLE,
    file_digest,
    read_summary,
    refuse_foreign,
    write_csv,
    write_json,
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


def refuse_inputs(out: Path, sources: Iterable[tuple[str, str]], base: Path) -> None:
    """Refuse to write among what is read.

    Args:
        out: where something is to be written; need not be there.
        sources: names and SOURCEs of the sets.
        base: where relative SOURCEs count from.

    Raises:
        UsageError: ``out`` lies in the folder of a set, or a set lies in it.
    """
    target = out.resolve()
    for name, source in sources:
        # a set given in memory has no source
        place = source and place_of(source, base)
        if not place or not place.exists():
            continue
        place = place.resolve()
        if place.is_dir() and target.is_relative_to(place):
            raise UsageError(
                f"output {out} lies among the images of {name!r}, which are only read;"
                " choose another folder with -o DIR"
            )
        if place.is_relative_to(target):
            raise UsageError(
                f"{name!r} ({place}) lies in the output {out}, which would be written over; choose"
                " another folder with -o DIR"
            )


def refuse_sets(summary: Mapping[str, Any], out: Path) -> None:
    """Refuse to write among the images of an audit's sets: what is read stays as it is.

    Args:
        summary: ``audit.json``.
        out: file or folder of a result, which need not be there.

    Raises:
        UsageError: it lies in a set, or a set in it.
    """
    sources = [(each["name"], each["source"]) for each in summary["sets"]]
    refuse_inputs(out, sources, Path(summary.get("opened_in", ".")))


@contextlib.contextmanager
def claimed(folder: Path, sets: Sequence[AnySet] = ()) -> Iterator[None]:
    """Hold a folder for this run; remove what killed runs left behind.

    Args:
        folder: new, empty, or one that visleak wrote.
        sets: that are read.

    Raises:
        UsageError: the name is taken by a file, by files of somebody else, or by a set.
        VisleakError: it cannot be written, or another run is at it.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the output {folder} is a file; choose a folder with -o DIR")
    refuse_inputs(folder, [(images.name, images.source) for images in sets], Path())
    refuse_foreign(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise VisleakError(f"the output folder {folder} cannot be written: {error}") from error
    with lock:
        _lock(lock.fileno(), folder)
        remove_leftovers(folder)
        yield


def _lock(handle: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system: the writers are atomic anyway
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise VisleakError(
                f"another run is writing to {folder}; wait for it or choose another -o DIR"
            ) from error


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
    if key is not None and known.get("key") == key:
        return not known.get("unfinished") and all(
            (folder / name).is_file() for name in (PAIRS, IMAGES, UNREADABLE)
        )
    raise UsageError(
        f"{folder} holds another audit (other sets, files or settings); choose another folder"
        " with -o DIR, or replace it with --force"
    )


def write(folder: Path, outcome: Outcome, summary: dict[str, Any]) -> None:
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
        write_json(folder / AUDIT, summary | {"files": files})
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written: {error}") from error
