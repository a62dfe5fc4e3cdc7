"""``audit.json``: what was compared, how, and the results, for machines and for the report."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from visleak.pipeline import overlaps, rates, recordings, segments, selection
from visleak.pipeline.comparison import Comparison, relation, share_classes
from visleak.pipeline.encoded_set import Side, lost
from visleak.pipeline.run import Outcome
from visleak.quantities import counted
from visleak.rates import Rate
from visleak.records import Encoder
from visleak.settings import Settings
from visleak.storage.audit_folder import (
    AuditSummary,
    ComparisonSummary,
    EncoderSummary,
    GraderSummary,
    Omission,
    SearchSummary,
    SetSummary,
    Thresholds,
    TotalSummary,
    VerifierSummary,
)
from visleak.verification import check

#: Packages whose versions can change a pixel or a number.
PACKAGES = ("numpy", "scipy", "Pillow", "opencv-python-headless", "pyarrow")


def summarise(outcome: Outcome, encoder: Encoder, settings: Settings, tool: str) -> AuditSummary:
    """Return the content of ``audit.json``, without key, command and timings."""
    least, grader, sides = settings.overlap, outcome.grader, tuple(outcome.sides.values())
    totals = tuple(total_of(outcome, side, _population(side), least) for side in outcome.queries)
    comparisons = tuple(
        comparison_of(each, _population(each.query), least) for each in outcome.comparisons
    )
    boxes, unknown = overlaps.seen_boxes(outcome.comparisons, outcome.sides)
    verification, unverified = selection.count_skipped(each.skipped for each in outcome.comparisons)
    low = any(rates.chance_notes(comparisons))
    notes = (*_skipped(outcome, encoder, settings, low=low), *unverified, *unknown)
    queries = {side.name for side in outcome.queries}
    return AuditSummary(
        visleak=tool,
        headline="; ".join(total.headline for total in totals),
        unfinished=lost_images(outcome),
        sets=tuple(_set(side, side.name in queries) for side in sides),
        settings=settings,
        encoder=EncoderSummary(encoder.name, encoder.digest, encoder.width),
        thresholds=outcome.thresholds,
        search=SearchSummary(
            settings.search,
            _version("faiss-cpu") if settings.search == "faiss" else None,
            tuple(
                {"query_set": query, "reference_set": reference} | account.as_dict()
                for (query, reference), accounts in outcome.accounts.items()
                for account in accounts
            ),
        ),
        verifier=VerifierSummary(check.digest().hex()) if grader else None,
        grader=GraderSummary(grader.digest, grader.near_at, grader.provenance) if grader else None,
        comparisons=comparisons,
        totals=totals,
        label_conflicts=sum(map(conflicts, outcome.comparisons)),
        grouping=outcome.grouping,
        scenes=overlaps.scenes_of(sides, outcome.comparisons, outcome.queries),
        skipped=tuple(map(Omission.of, notes)),
        verification=verification,
        boxes=boxes or None,
        versions={name: _version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
    )


def lost_images(outcome: Outcome) -> int:
    """Return how many images could be read at first, and not again."""
    return sum(len(lost(side.fingerprints.problems)) for side in outcome.sides.values())


def _set(side: Side, is_query: bool) -> SetSummary:
    images, fingerprints, counts = side.images, side.fingerprints, side.embeddings
    about = SetSummary(
        name=images.name,
        dataset=images.dataset,
        roles=images.roles,
        side="query" if is_query else "reference",
        source=images.source,
        options=dict(images.options),
        has_pixels=images.has_pixels,
        frame_unit=None if images.frames is None else "ms" if images.timed else "frames",
        flat=None if side.streamed else int(fingerprints.flat.sum()),
        distinct=None if side.streamed else len(np.unique(side.contents)),
        readable=side.readable_count,
        unreadable=len(images.problems) + len(fingerprints.problems),
    )
    if counts is None:
        return replace(
            about,
            images=len(images) + len(images.problems),
            not_listed=dict(sorted(images.skipped.items())),
        )
    return replace(
        about,
        files=counts.files,
        images=counts.vectors + len(images.problems),
        listed=len(fingerprints),
        norms_off=counts.rescaled,
    )


def comparison_of(
    comparison: Comparison, population: int | None, least: float | None = None
) -> ComparisonSummary:
    """Return the entry of a comparison, whose query set is a sample of ``population`` images.

    ``least`` is the share from which an image counts as seen.
    """
    query = comparison.query
    graded = comparison.grades is not None
    found = _rates(comparison.thresholds, rates.strongest(comparison), graded, population)
    groups, timed = recordings.group_leak(comparison), comparison.recordings
    if groups is not None:
        found["group"] = recordings.rate_of(groups.queries, population)
    if timed is not None:
        found["recording"] = recordings.rate_of(timed.close, population)
    if least is not None:
        found["overlap"] = overlaps.rate([comparison], query, least, population)
    return ComparisonSummary(
        *comparison.names,
        coverage=comparison.coverage,
        modality=comparison.modality,
        queries=len(query.fingerprints),
        rates=found,
        pairs=len(comparison.pairs),
        within=rates.within(comparison) if comparison.coverage == "within" else None,
        duplicate_groups=rates.groups_of(comparison),
        chance=comparison.chance,
        groups=groups.summary() if groups is not None else None,
        recordings=timed.summary() if timed is not None else None,
        segments=segments.summary_of(comparison.segments),
        overlap=overlaps.summary_of(comparison),
    )


def _rates(
    thresholds: Thresholds, best: rates.Strongest, graded: bool, population: int | None
) -> dict[str, Rate | None]:
    hard, soft = thresholds.hard is not None, thresholds.soft is not None
    return rates.rates(best, graded, soft, population, hard=hard)


def _population(query: Side) -> int | None:
    """Return the number of readable images from which a sample of a query set was drawn.

    ``None`` where all were taken. Only images of the sample are known to be unreadable.
    """
    whole = len(query.images) if query.embeddings is None else query.embeddings.vectors
    unreadable = len(query.fingerprints.problems)
    return whole - unreadable if len(query.fingerprints) + unreadable < whole else None


def total_of(
    outcome: Outcome, query: Side, population: int | None, least: float | None = None
) -> TotalSummary:
    """Return the rates of a query set over all its references, and its headline."""
    own = [each for each in outcome.comparisons if each.query.name == query.name]
    leaks = [each for each in own if each.coverage != "within"]
    counted = leaks or own
    best = rates.union([rates.strongest(each) for each in counted])
    graded = all(each.grades is not None for each in counted)
    total = _rates(outcome.thresholds, best, graded, population)
    names = [each.reference.name for each in counted]
    headline = rates.headline(query.name, names, total, alone=not leaks)
    headline += rates.group_sentence([rates.groups_of(each) for each in counted])
    shared = [found for each in leaks if (found := recordings.group_leak(each)) is not None]
    if (groups := recordings.union_of_groups(shared)) is not None:
        total["group"] = recordings.rate_of(groups.queries, population)
        headline += recordings.group_sentence(groups, query.name)
    timed = [each.recordings for each in own if each.recordings is not None]
    if (both := recordings.union_of_recordings(timed)) is not None:
        total["recording"] = recordings.rate_of(both[1], population)
        headline += recordings.recording_sentence(timed, query.name)
    if least is not None:
        total["overlap"] = overlaps.rate(counted, query, least, population)
        if (shown := total["overlap"]) is not None:
            headline += overlaps.sentence(shown, least, query.name)
    if count := lost_images(outcome):
        headline += f"; unfinished, images that could not be read again: {count:,}"
    return TotalSummary(query.name, headline, total)


def conflicts(comparison: Comparison) -> int:
    """Return how many near or exact pairs of a comparison have different labels."""
    query, reference = comparison.query, comparison.reference
    own, others = query.images.labels, reference.images.labels
    near, pairs = comparison.near, comparison.pairs
    if near is None or own is None or others is None or not share_classes(own, others):
        return 0
    left = own.take(query.fingerprints.rows[pairs.query[near]])
    right = others.take(reference.fingerprints.rows[pairs.reference[near]])
    return int(relation(left, right, True).to_pylist().count("different"))


def _skipped(outcome: Outcome, encoder: Encoder, settings: Settings, *, low: bool) -> Iterator[str]:
    """Yield, in words, what the audit did not do and why."""
    thresholds, name = outcome.thresholds, encoder.name
    embeddings = {
        name: side.embeddings for name, side in outcome.sides.items() if side.embeddings is not None
    }
    if thresholds.soft is None and thresholds.hard is None:
        yield (
            f"degrees: no thresholds are known for encoder {name}; find them with `visleak"
            f" calibrate S --encoder {shlex.quote(name)} --fpr 1e-6` for --thresholds, or give"
            " --hard and --soft"
        )
    if encoder.views <= 1 and settings.views != "none":
        local = settings.local and settings.candidates != "nearest"
        found = "were not searched"
        if local and any(each.has_pixels for each in outcome.comparisons):
            found = "are found by local features only, in images of 96 pixels and more"
        yield (
            f"views: {name} compares images as they are; mirrored, turned and inverted copies"
            f" {found}"
        )
    if not settings.verify:
        hint = "; the thresholds are too low for these images: use `visleak calibrate`, or verify"
        yield f"verification: switched off, so there are degrees but no grades{hint if low else ''}"
    elif embeddings:
        yield (
            f"verification of {', '.join(embeddings)}: there are embeddings only, so there are"
            " degrees but no grades"
        )
    yield from (
        f"search for {query} in {reference}: {account}"
        for (query, reference), accounts in outcome.accounts.items()
        for account in accounts
        if not account.exact
    )
    if settings.sample:
        yield f"queries: a sample of {settings.sample} images per set, drawn with a fixed seed"
    if not settings.within or settings.sample:
        yield "repeats within the test sets: not searched"
    yield from _origins_not_compared(outcome)
    yield from (
        f"files of {name}: {counts.files}"
        for name, counts in embeddings.items()
        if counts.files is not None and not counts.files.complete
    )
    if rescaled := sum(counts.rescaled for counts in embeddings.values()):
        yield f"lengths: {counted(rescaled, 'vector')} not of unit length, rescaled"
    capped = sum(
        int(((each.pairs.total > settings.per_query) & ~each.query.fingerprints.flat).sum())
        for each in outcome.comparisons
    )
    if capped:
        yield (
            f"pairs: {counted(capped, 'image', 'has', 'have')} more than {settings.per_query} pairs"
            " above the soft threshold; the most similar are listed, the true count is in"
            " images.parquet"
        )


def _origins_not_compared(outcome: Outcome) -> Iterator[str]:
    """Yield why groups or times are not known, or not of all images."""
    sides = outcome.sides.values()
    yield from recordings.ungrouped(side.images for side in sides if not side.streamed)
    for side in sides:
        if side.streamed and side.images.groups is not None:
            yield f"groups of {side.name}: not compared, because its embeddings are only streamed"
    yield from recordings.unnumbered(side.images for side in sides)
    for each in outcome.comparisons:
        groups = recordings.group_leak(each)
        if why := recordings.unknown_times(each, len(groups.names) if groups else 0):
            yield why


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
