"""Opening an audit and a pool to choose replacements."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from visleak import pipeline
from visleak.auditing import Audit, open_cache, workers_for
from visleak.encoders import load_encoder
from visleak.encoders.request import parse
from visleak.errors import UsageError, VisleakError
from visleak.images import open_pictures
from visleak.images.addresses import redacted
from visleak.pipeline.candidates import views_for
from visleak.pipeline.context import Progress, RunContext
from visleak.pipeline.encoded_set import EncodedSet, Side
from visleak.pipeline.run import Comparer
from visleak.records import EmbeddingSet, Encoder, ImageSet
from visleak.replacements.checking import Checker, Neighbours
from visleak.replacements.decisions import Decisions
from visleak.replacements.duplicates import COLUMNS, GRADE, Duplicates, find_duplicates
from visleak.replacements.pool import Examiner, Pool, class_of, make_pool
from visleak.replacements.selection import Selection
from visleak.settings import Settings
from visleak.storage import IMAGES, read_table
from visleak.verdicts import judged_pairs, read_verdicts
from visleak.verdicts.exchange import as_listed


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """What replacements are chosen for, and from where.

    Attributes:
        pool: SOURCE of the pool.
        id, label: columns of the pool.
        query_set: the test set; needed where the audit has several.
        grade: the weakest grade of a pair that makes a duplicate.
        include_disputed: count pairs about which reviewers disagree by the machine's grade.
        seed: of the order in which candidates are tried.
    """

    pool: str | os.PathLike[str] | ImageSet
    id: str | None = None
    label: str | None = None
    query_set: str | None = None
    grade: str = GRADE
    include_disputed: bool = False
    seed: int = 0


@contextmanager
def open_selection(
    folder: str | os.PathLike[str],
    asked: SelectionSettings,
    *,
    trial: bool = False,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = pipeline.silent,
) -> Iterator[Selection]:
    """Open an audit and a pool to choose replacements for the duplicates of a test set.

    Args:
        folder: the audit folder.
        asked: what is wanted.
        trial: decide on a copy: nothing is written into the audit folder.
        workers: processes that read images; by default one for each core.
        cache: folder for what need not be computed twice; ``None`` for none.
        progress: is told how far each step is.

    Raises:
        UsageError: the audit has no grades, no such test set or no images; or the pool has none,
            or none of the classes.
        VisleakError: the images or the encoder are not those of the audit any more.
    """
    result = Audit(folder)
    name = _test_set(result, asked.query_set)
    sets = _sets_of(result)
    encoder = _encoder_of(result)
    images = _opened_pool(asked, sets)
    views = result.summary.settings.views
    processes = workers_for(sum(map(len, (*sets.values(), images))), workers)
    with ExitStack() as stack:
        store = stack.enter_context(open_cache(cache))
        place = stack.enter_context(RunContext.at(None, processes, store, progress))
        comparer = Comparer(encoder, views_for(encoder, views), Settings(), place)
        for each in (*sets.values(), images):
            comparer.add(each, tested=False)
        _refuse_other_images(result, comparer.sides)
        said = read_verdicts(result.folder)
        duplicates = find_duplicates(
            as_listed(judged_pairs(result.folder, COLUMNS, said), said),
            sets[name],
            comparer.sides[name].fingerprints,
            asked.grade,
            include_disputed=asked.include_disputed,
        )
        pool, by_class = _pool_of(comparer, sets, images.name, name, asked.seed)
        _refuse_useless(by_class, duplicates, pool)
        decisions = stack.enter_context(
            Decisions.copied(result.folder, place.scratch) if trial else Decisions(result.folder)
        )

        def context() -> AbstractContextManager[RunContext]:
            # a few pairs at a time: to start processes would take longer than to look at them
            return RunContext.at(None, 1, store)

        existing: dict[str, Side] = {each: comparer.sides[each] for each in sets}
        neighbours = Neighbours(
            existing, comparer.sides[images.name], encoder, comparer.views, processes
        )
        near_at = result.summary.settings.near_at
        checker = Checker(
            comparer.sides, comparer.sides, images.name, encoder, views, near_at, context
        )
        yield Selection(
            duplicates=duplicates,
            test_set=name,
            pool=pool,
            by_class=by_class,
            examiner=Examiner(comparer.sides, images.name, neighbours, checker),
            decisions=decisions,
        )


def _test_set(result: Audit, asked: str | None) -> str:
    """Return the test set whose duplicates are replaced."""
    if result.summary.grader is None:
        raise UsageError(
            f"{result.folder} was audited without verification, so no pair has a grade; audit"
            " again without --no-verify"
        )
    sample = result.summary.settings.sample
    if sample:
        raise UsageError(
            f"{result.folder} is an audit of a sample of {sample:,} images; all must have been"
            " looked at to replace duplicates: audit again without --sample"
        )
    names = [str(total.query_set) for total in result.summary.totals]
    if asked is not None and asked not in names:
        raise UsageError(f"set must be one of {', '.join(names)}; got {asked!r}")
    if asked is None and len(names) > 1:
        raise UsageError(
            f"this audit has the test sets {', '.join(names)}; one is replaced at a time: choose"
            " it with --set"
        )
    return asked or names[0]


def _sets_of(result: Audit) -> dict[str, ImageSet]:
    """Return the sets of the audit, opened again."""
    sets: dict[str, ImageSet] = {}
    for about in result.summary.sets:
        images = result.images_of(about.name)
        if isinstance(images, EmbeddingSet):
            raise UsageError(
                f"set {images.name!r} of the audit holds embeddings only; a candidate is compared"
                " with images: audit the images themselves"
            )
        sets[images.name] = images
    return sets


def _encoder_of(result: Audit) -> Encoder:
    """Return the encoder of the audit.

    Raises:
        VisleakError: what goes by its name now is another one.
    """
    about = result.summary.encoder
    base = Path(result.summary.opened_in)
    encoder = load_encoder(_as_seen_from_here(about.name, base))
    if encoder.digest != about.digest:
        raise VisleakError(
            f"encoder {about.name} has digest {encoder.digest[:12]} here, the audit was made"
            f" with {about.digest[:12]}; audit again, or bring that one back"
        )
    return encoder


def _as_seen_from_here(name: str, base: Path) -> str:
    """Return an encoder's text; a file in it that is not here is sought where the audit was made.

    >>> _as_seen_from_here("builtin", Path("/data"))
    'builtin'
    """
    file = parse(name).argument
    if file and not Path(file).exists() and (base / file).exists():
        return name.replace(file, str(base / file), 1)
    return name


def _opened_pool(asked: SelectionSettings, sets: Mapping[str, ImageSet]) -> ImageSet:
    """Return the pool under a name that no set of the audit has."""
    name = "pool"
    while name in sets:
        name += "+"
    if isinstance(asked.pool, ImageSet):
        return replace(asked.pool, name=name)
    images = open_pictures(asked.pool, name=name, id=asked.id, label=asked.label)
    if not len(images):
        raise VisleakError(f"the pool {redacted(os.fspath(asked.pool))} holds no images")
    return images


def _refuse_other_images(result: Audit, material: Mapping[str, EncodedSet]) -> None:
    """Refuse sets that have changed since they were audited.

    Raises:
        VisleakError: an image is not there any more, or another one is in its place.
    """
    stored = read_table(result.folder, IMAGES, ["set", "id", "digest"])
    for about in result.summary.sets:
        name = about.name
        prints = material[name].fingerprints
        own = stored.filter(pc.equal(stored["set"], name))
        place = pc.index_in(own["id"].combine_chunks(), prints.ids).to_pylist()
        digests = own["digest"].to_pylist()
        now = [None if at is None else bytes(prints.digests[at]).hex() for at in place]
        changed = sum(a != b for a, b in zip(digests, now, strict=True))
        if changed:
            raise VisleakError(
                f"{changed:,} images of set {name!r} ({about.source}) are not those that were"
                " audited; audit again"
            )


def _pool_of(
    comparer: Comparer, sets: Mapping[str, Any], pool: str, test: str, seed: int
) -> tuple[Pool, bool]:
    """Return the pool, and whether replacements are chosen by class."""
    existing = {
        bytes(digest) for each in sets for digest in comparer.sides[each].fingerprints.digests
    }
    own = comparer.sides[pool]
    made = make_pool(own.images, own.fingerprints, existing, seed)
    return made, sets[test].labels is not None and own.images.labels is not None


def _refuse_useless(by_class: bool, duplicates: Duplicates, pool: Pool) -> None:
    """Refuse a pool that nothing can be taken from.

    Raises:
        VisleakError: none of its images can be used.
        UsageError: it has labels, and none of those that are needed.
    """
    if not pool.usable:
        raise VisleakError(
            f"no image of the pool can be used: {pool.known:,} are in the audit already,"
            f" {pool.blank:,} are blank, {pool.unreadable:,} cannot be read; choose another --pool"
        )
    needed = sorted({each.label for each in duplicates.images if each.label is not None})
    if by_class and needed and not any(class_of(label) in pool.queues for label in needed):
        there = sorted(label for label in pool.queues if label is not None)
        raise UsageError(
            f"no class is in both: the duplicates are of {_some(needed)}, the pool has"
            f" {_some(there)}; choose its column with --label"
        )


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "none"
