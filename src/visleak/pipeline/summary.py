"""``audit.json``: what was compared, how, and what came out, for machines and for the report."""

from __future__ import annotations

import platform
import shlex
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from visleak.pipeline import chance, group_leaks, rates, recordings, selection
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.embeddings import Taken
from visleak.pipeline.encoded_set import lost
from visleak.pipeline.labels import comparable, relation
from visleak.pipeline.run import Outcome
from visleak.records import Encoder, Fingerprints, ImageSet
from visleak.settings import Settings
from visleak.stats import Rate
from visleak.storage.summary import (
    AuditSummary,
    ComparisonSummary,
    EncoderSummary,
    GraderSummary,
    SearchSummary,
    SetFiles,
    SetSummary,
    ThresholdSummary,
    TotalSummary,
    VerifierSummary,
)
from visleak.verify import check

#: Packages whose versions can change a pixel or a number.
PACKAGES = ("numpy", "scipy", "Pillow", "opencv-python-headless", "pyarrow")


def summarise(outcome: Outcome, encoder: Encoder, settings: Settings, tool: str) -> AuditSummary:
    """Return the content of ``audit.json``, without key, command and timings.

    Args:
        outcome: what the run found.
        encoder: that was used.
        settings: that were used.
        tool: visleak's own version.
    """
    totals = tuple(_total(outcome, images) for images in outcome.queries)
    comparisons = tuple(_comparison(outcome, each) for each in outcome.compared)
    thresholds, grader = outcome.thresholds, outcome.grader
    verification, unverified = selection.account(each.skipped for each in outcome.compared)
    low = any(chance.notes(comparisons))
    return AuditSummary(
        visleak=tool,
        headline="; ".join(total.headline for total in totals),
        unfinished=_lost(outcome),
        sets=tuple(_set(outcome, images) for images in outcome.sets),
        settings=settings,
        encoder=EncoderSummary(encoder.name, encoder.digest, encoder.width),
        thresholds=ThresholdSummary(
            thresholds.hard, thresholds.soft, thresholds.provenance, thresholds.provisional
        ),
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
        label_conflicts=sum(_conflicts(outcome, each) for each in outcome.compared),
        skipped=(*_skipped(outcome, encoder, settings, low=low), *unverified),
        verification=verification,
        versions={name: _version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
    )


def _lost(outcome: Outcome) -> int:
    """Return how many images could be read at first, and not again."""
    return sum(len(lost(own.fingerprints.problems)) for own in outcome.sides.values())


def _set(outcome: Outcome, images: ImageSet) -> SetSummary:
    about = SetSummary(
        name=images.name,
        dataset=images.dataset,
        roles=images.roles,
        side="query" if images in outcome.queries else "reference",
        source=images.source,
        options=dict(images.options),
        pictures=images.pictures,
        frame_unit=None if images.frames is None else "ms" if images.timed else "frames",
    )
    taken = outcome.embeddings.get(images.name)
    if taken is not None:
        return _with_embeddings(about, taken)
    fingerprints = outcome.sides[images.name].fingerprints
    return replace(
        about,
        images=len(images) + len(images.problems),
        readable=len(fingerprints),
        flat=int(fingerprints.flat.sum()),
        unreadable=len(images.problems) + len(fingerprints.problems),
        distinct=_distinct(fingerprints),
        not_listed=dict(sorted(images.skipped.items())),
    )


def _with_embeddings(about: SetSummary, taken: Taken) -> SetSummary:
    """Return a set of embeddings with its counts; of a streamed one, some are not known."""
    fingerprints = taken.fingerprints
    unreadable = len(fingerprints.problems)
    return replace(
        about,
        files=None if taken.files is None else SetFiles(**asdict(taken.files)),
        images=taken.vectors,
        readable=taken.vectors - unreadable if taken.streamed else len(fingerprints),
        flat=None if taken.streamed else int(fingerprints.flat.sum()),
        unreadable=unreadable,
        distinct=None if taken.streamed else _distinct(fingerprints),
        listed=len(fingerprints),
        norms_off=taken.off,
    )


def _distinct(fingerprints: Fingerprints) -> int:
    return len(np.unique(np.ascontiguousarray(fingerprints.digests).view("V16")))


def _comparison(outcome: Outcome, compared: Comparison) -> ComparisonSummary:
    query, reference = compared.query, compared.reference
    side, names = outcome.sides[query.name], (query.name, reference.name)
    found = dict(
        _rates(outcome, query, rates.strongest(compared, side), compared.grades is not None)
    )
    leak, timed = _group_leak(outcome, compared), outcome.recordings.get(names)
    population = _population(outcome, query)
    if leak is not None:
        found["group"] = group_leaks.rate_of(leak, population)
    if timed is not None:
        found["recording"] = recordings.rate_of(timed.close, population)
    return ComparisonSummary(
        *names,
        coverage=compared.coverage,
        modality=compared.modality,
        queries=len(side.fingerprints),
        rates=found,
        pairs=len(compared.pairs),
        within=rates.within(compared, side) if compared.coverage == "within" else None,
        duplicate_groups=rates.groups_of(compared, side, outcome.sides[reference.name]),
        chance=outcome.chance.get(names),
        groups=leak.summary() if leak is not None else None,
        recordings=timed.summary() if timed is not None else None,
    )


def _group_leak(outcome: Outcome, compared: Comparison) -> group_leaks.GroupLeak | None:
    passing = [name for name, taken in outcome.embeddings.items() if taken.streamed]
    return group_leaks.group_leak(compared, outcome.sides, passing)


def _rates(
    outcome: Outcome, images: ImageSet, best: rates.Strongest, graded: bool
) -> dict[str, Rate | None]:
    """Return the rates of a query set from the strongest that each image has."""
    return rates.rates(
        best,
        graded,
        outcome.thresholds.soft is not None,
        _population(outcome, images),
        hard=outcome.thresholds.hard is not None,
    )


def _population(outcome: Outcome, images: ImageSet) -> int | None:
    """Return of how many images that can be read a sample of a query set was drawn.

    ``None`` where all were taken. Only those drawn are known to be unreadable or not.
    """
    fingerprints = outcome.sides[images.name].fingerprints
    taken = outcome.embeddings.get(images.name)
    whole = len(images) if taken is None else taken.vectors
    lost = len(fingerprints.problems)
    return whole - lost if len(fingerprints) + lost < whole else None


def _total(outcome: Outcome, images: ImageSet) -> TotalSummary:
    """Return the rates of a query set over all its references, and its headline."""
    side = outcome.sides[images.name]
    own = [each for each in outcome.compared if each.query.name == images.name]
    leaks = [each for each in own if each.coverage != "within"]
    best = rates.union([rates.strongest(each, side) for each in leaks or own])
    graded = all(each.grades is not None for each in leaks or own)
    total = _rates(outcome, images, best, graded)
    names = [each.reference.name for each in leaks or own]
    said = rates.headline(images.name, names, total, alone=not leaks)
    said += rates.group_sentence(
        [rates.groups_of(each, side, outcome.sides[each.reference.name]) for each in leaks or own]
    )
    groups = group_leaks.union([g for c in leaks if (g := _group_leak(outcome, c)) is not None])
    if groups is not None:
        total["group"] = group_leaks.rate_of(groups, _population(outcome, images))
        said += group_leaks.sentence(groups, images.name)
    timed = [leak for (name, _), leak in outcome.recordings.items() if name == images.name]
    if (both := recordings.union(timed)) is not None:
        total["recording"] = recordings.rate_of(both[1], _population(outcome, images))
        said += recordings.sentence(timed, images.name)
    if count := _lost(outcome):
        said += f"; unfinished, images that could not be read again: {count:,}"
    return TotalSummary(images.name, said, total)


def _conflicts(outcome: Outcome, compared: Comparison) -> int:
    """Return how many near or exact pairs of a comparison have different labels."""
    own, others = compared.query.labels, compared.reference.labels
    if compared.grades is None or own is None or others is None:
        return 0
    if not comparable(compared.query, compared.reference):
        return 0
    rows = np.flatnonzero((compared.grades.grade >= 0) & (compared.grades.grade <= 1))
    left = outcome.sides[compared.query.name].fingerprints.rows[compared.pairs.query[rows]]
    right = outcome.sides[compared.reference.name].fingerprints.rows[compared.pairs.reference[rows]]
    related = relation(own.take(left), others.take(right), True)
    return int(related.to_pylist().count("different"))


def _skipped(outcome: Outcome, encoder: Encoder, settings: Settings, *, low: bool) -> list[str]:
    """Return, in words, what the audit did not do and why.

    Args:
        outcome, encoder, settings: as in :func:`summarise`.
        low: many pairs reach the thresholds by chance.
    """
    said = []
    thresholds, name = outcome.thresholds, encoder.name
    if thresholds.soft is None and thresholds.hard is None:
        said.append(
            f"degrees: no thresholds are known for encoder {name}; find them with `visleak"
            f" calibrate S --encoder {shlex.quote(name)} --fpr 1e-6` for --thresholds, or give"
            " --hard and --soft"
        )
    if encoder.views <= 1 and settings.views != "none":
        said.append(
            f"views: {name} sees pictures as they are; mirrored, turned and inverted copies"
            f" {_views_by_others(outcome, settings)}"
        )
    if not settings.verify:
        hint = "; the thresholds are too low for these images: use `visleak calibrate`, or verify"
        said.append(
            f"verification: switched off, so there are degrees but no grades{hint if low else ''}"
        )
    elif outcome.embeddings:
        names = ", ".join(outcome.embeddings)
        said.append(
            f"verification of {names}: there are embeddings only, so there are degrees but no"
            " grades"
        )
    said += [
        f"search for {query} in {reference}: {account}"
        for (query, reference), accounts in outcome.accounts.items()
        for account in accounts
        if not account.exact
    ]
    if settings.sample:
        said.append(f"queries: a sample of {settings.sample} images a set, drawn with a fixed seed")
    if not settings.within or settings.sample:
        said.append("repeats within the test sets: not looked for")
    said += _groups_not_compared(outcome)
    said += _times_not_compared(outcome)
    said += [
        f"files of {name}: {taken.files}"
        for name, taken in outcome.embeddings.items()
        if taken.files is not None and not taken.files.complete
    ]
    off = sum(taken.off for taken in outcome.embeddings.values())
    if off:
        said.append(f"lengths: {off:,} vectors were not of unit length and were made so")
    capped = _capped(outcome, settings)
    if capped:
        said.append(
            f"pairs: {capped} images have more than {settings.per_query} pairs above the soft"
            " threshold; the most alike are listed, the true count is in images.parquet"
        )
    return said


def _groups_not_compared(outcome: Outcome) -> list[str]:
    """Return whose groups are not known, or not known of all images."""
    passing = {name for name, taken in outcome.embeddings.items() if taken.streamed}
    return group_leaks.ungrouped(s for s in outcome.sets if s.name not in passing) + [
        f"groups of {images.name}: not compared, for its embeddings only pass by"
        for images in outcome.sets
        if images.name in passing and images.groups is not None
    ]


def _times_not_compared(outcome: Outcome) -> list[str]:
    """Return why nobody knows how near in time frames lie whose groups are on both sides."""
    said = recordings.unnumbered(outcome.sets)
    for each in outcome.compared:
        groups = _group_leak(outcome, each)
        why = recordings.unknown(each, len(groups.names) if groups else 0)
        said += [why] if why else []
    return said


def _views_by_others(outcome: Outcome, settings: Settings) -> str:
    """Return whether local features looked for what an encoder without views cannot see."""
    seen = any(each.query.pictures and each.reference.pictures for each in outcome.compared)
    if seen and settings.local and settings.candidates != "nearest":
        return "are found by local features only, in pictures of 96 pixels and more"
    return "were not looked for"


def _capped(outcome: Outcome, settings: Settings) -> int:
    over = 0
    for each in outcome.compared:
        flat = outcome.sides[each.query.name].fingerprints.flat
        over += int(((each.pairs.total > settings.per_query) & ~flat).sum())
    return over


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
