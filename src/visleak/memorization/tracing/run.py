"""Trace generated images to their sources: matches, memorized images and shares."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

import visleak
from visleak.auditing import Audit
from visleak.documents import digest_of
from visleak.errors import UsageError
from visleak.formats import open_images
from visleak.groups import chained, components, numbered
from visleak.memorization.settings import TraceSettings
from visleak.memorization.tracing.document import (
    CATEGORIES,
    LAYOUT,
    SECTION,
    Findings,
    Hit,
    Match,
    Original,
    Replication,
    Trace,
    content,
    document,
    files,
)
from visleak.memorization.tracing.sources import (
    AUDIT_FOLDER,
    GENERATED,
    Queries,
    Sets,
    open_queries,
)
from visleak.pipeline.folder import stamp_of
from visleak.progress import Progress, silent
from visleak.rates import Rate, wilson
from visleak.records import AnySet, Bytes8, Int64
from visleak.reporting import section
from visleak.stats.group_intervals import group_interval
from visleak.storage import AUDIT, SECTIONS, RunFolder, open_rows, write_json
from visleak.verdicts import read_verdicts
from visleak.verification.in_place import edge_orientations, is_tiny, layout_agreement, same_layout

#: Grades from the best to the worst that a match may have.
ORDER: Final = ("exact", "near", LAYOUT, "similar", "different", "")


def counts(hit: Hit) -> bool:
    """Whether a hit makes its image memorized."""
    return hit.copy or hit.grade == LAYOUT


def best(hits: Iterable[Hit]) -> Hit | None:
    """Return the strongest hit: by whether it counts, grade, people, probability, similarity."""

    def place(hit: Hit) -> tuple[object, ...]:
        farther = math.inf if math.isnan(hit.similarity) else -hit.similarity
        grade = (not counts(hit), ORDER.index(hit.grade), hit.judged != "human")
        return (*grade, -(hit.probability or 0.0), farther, hit.source, hit.reference)

    return min(hits, key=place, default=None)


def originals(
    references: Sequence[tuple[str, str]], digests: Sequence[str], tied: Iterable[tuple[int, int]]
) -> Int64:
    """Return a number for each reference: equal for those that are one memorized image."""
    first = {digest: at for at, digest in reversed(list(enumerate(digests))) if digest}
    codes = np.array([first.get(digest, -1) for digest in digests], np.int64)
    pairs = np.array(list(tied), np.int64).reshape(-1, 2)
    return components(len(references), [chained(codes), (pairs[:, 0], pairs[:, 1])])


def families(prompts: Sequence[str], nearest: Sequence[str | None]) -> Int64:
    """Return a group per image: those of one prompt or nearest reference are not independent."""
    codes = []
    for texts in (prompts, [text or "" for text in nearest]):
        known = np.array(texts, np.str_)
        codes.append(chained(np.where(known != "", numbered(known), -1)))
    return components(len(prompts), codes)


#: Most references that are compared for one layout with all others.
MOST_COMPARED: Final = 600


def conclude(
    folder: Path, queries: Queries, findings: Findings, sets: Sets | None, settings: TraceSettings
) -> Trace:
    """Return the trace of the findings, without ``about`` and ``key``."""
    names = [] if queries.images is None else queries.images.ids.to_pylist()
    hits = defaultdict[str, list[Hit]](list)
    for hit in findings.hits:
        hits[hit.image].append(hit)
    chosen = [best(hits[name]) for name in names]
    notes: list[str] = []
    numbers = _numbers(chosen, None if sets is None else sets.audited, notes)
    placed = zip(names, queries.prompts, queries.sizes, chosen, numbers, strict=True)
    matches = tuple(_match(*each, findings.nearest.get(each[0], math.nan)) for each in placed)
    replicated = [match for match in matches if not math.isnan(match.nearest)]
    if len(replicated) < len(matches) and sets is not None:
        missing = len(matches) - len(replicated)
        notes.append(
            f"{missing:,} of {len(matches):,} images have no M_tau: they were not compared"
        )
    several = sets is not None and len(sets.references) > 1
    return Trace(
        folder=folder,
        about={},
        matches=matches,
        memorized=len(set(numbers) - {None}),
        tau=settings.tau,
        share=_share(replicated, settings.tau),
        originals=tuple(_originals(matches, hits, several=several)),
        prompts=tuple(_prompts(replicated, settings)) if queries.every else (),
        notes=(*findings.notes, *notes),
    )


def _match(
    name: str, prompt: str, size: int, hit: Hit | None, number: int | None, nearest: float
) -> Match:
    if hit is None:
        nothing = ("", None, math.nan, "", None, False, None, "nothing was found")
        return Match(name, prompt, size, *nothing, nearest)
    return Match(
        *(name, prompt, size, hit.source, hit.reference, hit.similarity),
        *(hit.grade, hit.probability, number is not None, number, hit.refused or hit.reason),
        *(nearest, hit.structure, hit.colour, hit.judged),
    )


def _numbers(
    chosen: Sequence[Hit | None], made: Audit | None, notes: list[str]
) -> list[int | None]:
    """Return the number of the memorized image of each hit that counts, from 0."""
    digests: dict[tuple[str, str], str] = {}
    for hit in chosen:
        if hit is not None and counts(hit):
            digests.setdefault((hit.source, hit.reference), hit.digest)
    references = list(digests)
    tied = [] if made is None else list(_same_layouts(references, made, notes))
    numbers = originals(references, list(digests.values()), tied).tolist()
    number = dict(zip(references, numbers, strict=True))
    return [
        number[hit.source, hit.reference] if hit is not None and counts(hit) else None
        for hit in chosen
    ]


def _same_layouts(
    references: Sequence[tuple[str, str]], made: Audit, notes: list[str]
) -> Iterator[tuple[int, int]]:
    if len(references) > MOST_COMPARED:
        notes.append(
            f"{len(references):,} images are copied: those of one layout count as several, for only"
            f" up to {MOST_COMPARED} are compared with each other"
        )
        return
    read: dict[tuple[str, str], Bytes8] = {}
    for source in dict.fromkeys(source for source, _ in references):
        ids = [name for own, name in references if own == source]
        try:
            found = made.decoded_images(source, ids, complete=True)
        except UsageError as error:
            notes.append(f"images of {source} were not compared with each other: {error}")
            continue
        read |= {(source, name): pixels for name, pixels in found.items()}
    drawn = [
        (at, edge_orientations(read[place]))
        for at, place in enumerate(references)
        if place in read and not is_tiny(read[place])
    ]
    for row, (at, one) in enumerate(drawn):
        for other_at, other in drawn[row + 1 :]:
            if same_layout(*layout_agreement(one, other)):
                yield at, other_at


def _originals(
    matches: Sequence[Match], hits: Mapping[str, Sequence[Hit]], *, several: bool
) -> Iterator[Original]:
    groups = defaultdict[int, list[Match]](list)
    for match in matches:
        if match.memorized is not None:
            groups[match.memorized].append(match)
    for number, own in sorted(groups.items()):
        closest = sorted(own, key=lambda m: (m.grade == LAYOUT, -(m.probability or 0.0), m.image))
        listed = [f"{m.source}/{m.reference}" if several else str(m.reference) for m in closest]
        found = (hit for match in own for hit in hits[match.image] if counts(hit))
        yield Original(
            number=number,
            source=closest[0].source,
            references=tuple(dict.fromkeys(listed)),
            variants=len({hit.digest or f"{hit.source}/{hit.reference}" for hit in found}),
            matches=len(own),
            prompts=len({match.prompt for match in own}),
            layout=all(match.grade == LAYOUT for match in own),
        )


def _share(matches: Sequence[Match], tau: float) -> tuple[float, float, float]:
    """Return the share with M_tau = 1 and its interval, by groups where images share any."""
    if not matches:
        return math.nan, math.nan, math.nan
    values = [float(match.nearest > tau) for match in matches]
    nearest = [f"{m.source}\n{m.reference}" if m.verified else None for m in matches]
    tied = families([match.prompt for match in matches], nearest)
    if len(np.unique(tied)) == len(matches):
        low, high = wilson(int(sum(values)), len(values))
        return sum(values) / len(values), low, high
    found = group_interval(values, tied)
    return found.value, found.low, found.high


def _prompts(matches: Sequence[Match], settings: TraceSettings) -> list[Replication]:
    counted = defaultdict[str, list[bool]](list)
    for match in matches:
        counted[match.prompt].append(match.nearest > settings.tau)
    found = []
    for prompt, values in counted.items():
        rate = Rate.of(sum(values), len(values))
        numbers = (rate.total, rate.count, rate.share, rate.low, rate.high)
        found.append(Replication(prompt, *numbers, trigger=rate.share > settings.kappa_share))
    return sorted(found, key=lambda each: (-each.share, each.prompt))


#: Columns by which a row may name what it is about, the first that is there.
KEYS: Final = ("reference", "image", "prompt")


@dataclass(frozen=True)
class Categories:
    """Categories by reference, generated image or prompt."""

    key: str  #: one of :data:`KEYS`
    words: Mapping[str, str]  #: category of each, of ``CATEGORIES``
    origin: str  #: file they were read from

    def applied_to(self, trace: Trace) -> Trace:
        """Return a trace whose images have their category; the first match decides, with a note."""
        used: set[str] = set()
        notes, found = list(trace.notes), []
        for each in trace.originals:
            own = (match for match in trace.matches if match.memorized == each.number)
            names = [
                name for name in (str(getattr(m, self.key)) for m in own) if name in self.words
            ]
            used.update(names)
            words = list(dict.fromkeys(self.words[name] for name in names))
            if len(words) > 1:
                notes.append(
                    f"memorized image {each.number} has several categories in {self.origin}:"
                    f" {', '.join(words)}; the first is taken"
                )
            found.append(replace(each, category=words[0] if words else ""))
        unused = len(self.words) - len(used)
        if unused:
            notes.append(f"rows of {self.origin} about no memorized image: {unused:,}")
        return replace(trace, originals=tuple(found), notes=tuple(notes))


def read_categories(path: str | os.PathLike[str]) -> Categories:
    """Read a CSV file of categories."""
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"categories {file} is not a file; give a CSV file")
    words = {}
    with open_rows(file, padded=True) as rows:
        key = next((name for name in KEYS if name in rows.names), KEYS[0])
        rows.need(("category", key), f"; it needs category, and one of {', '.join(KEYS)}")
        for row in rows:
            word = row["category"].strip().lower()
            if word and word not in CATEGORIES:
                raise ValueError(f"category is one of {', '.join(CATEGORIES)}; got {word!r:.60}")
            if word and row[key]:
                words[row[key]] = word
    return Categories(key, words, file.name)


KIND: Final = "visleak memorization trace"


def trace(
    target: str | os.PathLike[str],
    sources: Sequence[AnySet | str | os.PathLike[str]],
    out: str | os.PathLike[str],
    settings: TraceSettings | None = None,
    *,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    device: str = "cpu",
    progress: Progress = silent,
    force: bool = False,
    command: str | None = None,
) -> Trace:
    """Find which images of the sources generated images are copies of.

    All sets are compared in one audit (``out/audit``), whose pairs a person may judge with
    ``visleak review``; the next call with the same arguments counts the verdicts.

    Args:
        target: folder of ``visleak memorization extract``, or any SOURCE of generated images.
        sources: training sets or published embeddings; without a training set nothing is called
            memorized.
        out: folder of the result; a result of the same request is brought up to date, another one
            is replaced with ``force``.
        settings: how images are compared.
        workers, cache, device, progress, command: as of :func:`visleak.audit`.

    Raises:
        UsageError: an argument does not fit, or ``out`` holds another result.
        VisleakError: a source cannot be read.

    Source: Hong et al. 2024, "MemBench", definition 1, sections 4 and 6.
    """
    settings = settings or TraceSettings()
    known = None if settings.categories is None else read_categories(settings.categories)
    queries = open_queries(target, every=settings.every)
    folder = Path(out)
    references = [
        open_images(each, roles=("training",)) if isinstance(each, str | os.PathLike) else each
        for each in sources
    ]
    called = [*(each.name for each in references), GENERATED]
    if twice := next((name for name in called if called.count(name) > 1), ""):
        raise UsageError(
            f"two sources are called {twice!r} ({GENERATED} is the generated images); name them"
            " NAME=SOURCE"
        )
    sets = None
    if references:
        how = {"workers": workers, "cache": cache, "force": force}
        sets = Sets(references, folder, settings, device=device, command=command, **how)
    about: dict[str, object] = {
        "images": "all images" if queries.every else "medoids" if queries.clusters else "images",
        "sets": [] if sets is None else sets.about(),
        "similarity": None if sets is None else sets.encoder.name,
        "encoder": None if sets is None else sets.encoder.digest,
        "kappa_share": settings.kappa_share,
        "views": settings.views,
        "layouts": settings.layouts,
        "origin": dict(queries.origin),
    }
    # a source without a stamp is described by its name and size
    every = references if queries.images is None else [queries.images, *references]
    stamps = [stamp_of(each) or f"{each.name} {len(each)}" for each in every]
    key = digest_of([about, settings.tau, stamps])
    run = RunFolder(folder, KIND)
    # a finished trace of the same request is brought up to date: people may have judged pairs
    run.reused(Trace, key, force=force, folder=folder)
    with run.claimed():
        findings = Findings((), {}) if sets is None else sets.find(queries, progress)
        made = conclude(folder, queries, findings, sets, settings)
        if known is not None:
            made = known.applied_to(made)
        audit = folder / AUDIT_FOLDER
        judged = () if sets is None or sets.audited is None else read_verdicts(audit)
        about |= {"verdicts": len(judged), "visleak": visleak.__version__}
        result = replace(made, about=about, key=key)
        if (audit / AUDIT).is_file():
            write_json(audit / SECTIONS / SECTION, section(document(result)))
        run.finish(content(run, result), files(result))
    return result


def read_trace(folder: str | os.PathLike[str]) -> Trace:
    """Return the result that a folder holds."""
    return RunFolder(folder, KIND).read(Trace, folder=Path(folder))
