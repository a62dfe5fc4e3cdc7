"""Opening an audit and a pool to choose replacements."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow.compute as pc

from visleak import pipeline
from visleak.auditing import Audit, open_cache, workers_for
from visleak.encoders import load_encoder
from visleak.encoders.request import parse
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.formats import open_image_set
from visleak.formats.remote import redacted
from visleak.grading import load_grader
from visleak.pipeline.candidates import views_for
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet
from visleak.pipeline.run import Comparer
from visleak.progress import Progress
from visleak.quantities import counted, some
from visleak.records import EmbeddingSet, Encoder, ImageSet
from visleak.remedy.pool import (
    COLUMNS,
    Decisions,
    Duplicates,
    Pool,
    class_of,
    find_duplicates,
    make_pool,
)
from visleak.remedy.selection import Examiner, Neighbours, Selection
from visleak.remedy.settings import SelectionSettings
from visleak.settings import Settings
from visleak.storage import IMAGES, read_table
from visleak.verdicts import judged_pairs, read_verdicts
from visleak.verdicts.exchange import as_listed

_DEFAULTS: Final = SelectionSettings()


@contextmanager
def open_selection(
    folder: str | os.PathLike[str],
    pool: str | os.PathLike[str] | ImageSet,
    settings: SelectionSettings = _DEFAULTS,
    *,
    trial: bool = False,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = pipeline.silent,
) -> Iterator[Selection]:
    """Open an audit and a pool to choose replacements for the duplicates of a test set.

    A ``trial`` works on a copy of the decisions: nothing is written into the audit folder.
    """
    result = Audit(folder)
    name = _test_set(result, settings.set_name)
    sets = {about.name: _images_of(result, about.name) for about in result.summary.sets}
    encoder = _encoder_of(result)
    images = _opened_pool(pool, settings, sets)
    views = result.summary.settings.views
    processes = workers_for(sum(map(len, (*sets.values(), images))), workers)
    with ExitStack() as stack:
        store = stack.enter_context(open_cache(cache, (*sets.values(), images)))
        place = stack.enter_context(RunContext.at(None, processes, store, progress))
        comparer = Comparer(encoder, views_for(encoder, views), Settings(), place)
        for each in (*sets.values(), images):
            comparer.add(each, tested=False)
        _refuse_other_images(result, comparer.sides)
        verdicts = read_verdicts(result.folder)
        duplicates = find_duplicates(
            as_listed(judged_pairs(result.folder, COLUMNS, verdicts), verdicts),
            sets[name],
            comparer.sides[name].fingerprints,
            settings.grade,
            include_disputed=settings.include_disputed,
        )
        own = comparer.sides[images.name]
        existing = {
            bytes(digest) for n in sets for digest in comparer.sides[n].fingerprints.digests
        }
        candidates = make_pool(own.images, own.fingerprints, existing, settings.seed)
        by_class = sets[name].labels is not None and own.images.labels is not None
        _refuse_useless(by_class, duplicates, candidates)
        decisions = stack.enter_context(
            Decisions.copied(result.folder, place.scratch) if trial else Decisions(result.folder)
        )

        def context() -> AbstractContextManager[RunContext]:
            # a few pairs at a time: starting processes would take longer than verifying them
            return RunContext.at(None, 1, store)

        audited = {each: comparer.sides[each] for each in sets}
        neighbours = Neighbours(audited, own, encoder, comparer.views, processes)
        grader = load_grader(near_at=result.summary.settings.near_at)
        examiner = Examiner(comparer.sides, images.name, neighbours, views, grader, context)
        yield Selection(duplicates, name, candidates, by_class, examiner, decisions)


def _test_set(result: Audit, name: str | None) -> str:
    if result.summary.grader is None:
        raise UsageError(
            f"{result.folder} was audited without verification, so no pair has a grade; audit"
            " again without --no-verify"
        )
    if sample := result.summary.settings.sample:
        raise UsageError(
            f"{result.folder} is an audit of a sample of {sample:,} images; replacing duplicates"
            " needs an audit of all images: audit again without --sample"
        )
    names = [total.query_set for total in result.summary.totals]
    if name is not None and name not in names:
        raise not_one_of("set", name, names)
    if name is None and len(names) > 1:
        raise UsageError(
            f"this audit has the test sets {', '.join(names)}; one is replaced at a time: choose"
            " it with --set"
        )
    return name or names[0]


def _images_of(result: Audit, name: str) -> ImageSet:
    images = result.images_of(name)
    if isinstance(images, EmbeddingSet):
        raise UsageError(
            f"set {name!r} of the audit holds embeddings only; a candidate is compared with images:"
            " audit the images themselves"
        )
    return images


def _encoder_of(result: Audit) -> Encoder:
    about = result.summary.encoder
    encoder = load_encoder(_encoder_name(about.name, Path(result.summary.opened_in)))
    if encoder.digest != about.digest:
        raise VisleakError(
            f"encoder {about.name} has digest {encoder.digest[:12]} here, the audit was made"
            f" with {about.digest[:12]}; audit again, or restore that encoder"
        )
    return encoder


def _encoder_name(name: str, base: Path) -> str:
    """Return the text of an encoder; a missing file is searched where the audit was made.

    >>> _encoder_name("builtin", Path("/data"))
    'builtin'
    """
    file = parse(name).argument
    if file and not Path(file).exists() and (base / file).exists():
        return name.replace(file, str(base / file), 1)
    return name


def _opened_pool(
    pool: str | os.PathLike[str] | ImageSet,
    settings: SelectionSettings,
    sets: Mapping[str, ImageSet],
) -> ImageSet:
    """Return the pool under a name that no set of the audit has."""
    name = "pool"
    while name in sets:
        name += "+"
    if isinstance(pool, ImageSet):
        return replace(pool, name=name)
    images = open_image_set(pool, name=name, id=settings.id, label=settings.label)
    if not len(images):
        raise VisleakError(f"the pool {redacted(os.fspath(pool))} holds no images")
    return images


def _refuse_other_images(result: Audit, sides: Mapping[str, EncodedSet]) -> None:
    stored = read_table(result.folder, IMAGES, ["set", "id", "digest"])
    for about in result.summary.sets:
        prints = sides[about.name].fingerprints
        own = stored.filter(pc.equal(stored["set"], about.name))
        place = pc.index_in(own["id"].combine_chunks(), prints.ids).to_pylist()
        now = [None if at is None else bytes(prints.digests[at]).hex() for at in place]
        changed = sum(a != b for a, b in zip(own["digest"].to_pylist(), now, strict=True))
        new = len(prints.ids) - sum(at is not None for at in place)
        for count, what in ((changed, "changed since the audit"), (new, "not in the audit")):
            if count:
                raise VisleakError(
                    f"{counted(count, 'image')} of set {about.name!r} ({about.source}) {what};"
                    " audit again"
                )


def _refuse_useless(by_class: bool, duplicates: Duplicates, pool: Pool) -> None:
    if not pool.usable:
        raise VisleakError(
            f"no image of the pool can be used: {pool.known:,} are in the audit already,"
            f" {pool.blank:,} are blank, {pool.unreadable:,} cannot be read; choose another --pool"
        )
    needed = sorted({each.label for each in duplicates.images if each.label is not None})
    if by_class and needed and not any(class_of(label) in pool.queues for label in needed):
        there = sorted(label for label in pool.queues if label is not None)
        raise UsageError(
            f"no class is in both: the duplicates are of {some(needed, 5)}, the pool has"
            f" {some(there, 5) or 'none'}; choose its column with --label"
        )
