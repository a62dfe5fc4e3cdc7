"""Ask who is the source of generated images, and write down what came out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import visleak
from visleak.errors import UsageError
from visleak.images import open_images
from visleak.memorization.tracing.categories import read_categories
from visleak.memorization.tracing.conclusion import conclude, counts
from visleak.memorization.tracing.output import write
from visleak.memorization.tracing.queries import GENERATED, Queries, open_queries
from visleak.memorization.tracing.records import Trace
from visleak.memorization.tracing.services import Service
from visleak.memorization.tracing.sets import AUDIT_FOLDER, Asking, Sets
from visleak.memorization.tracing.sources import Answer, ImageSource
from visleak.memorization.tracing.stored import RESULT, key_in
from visleak.pipeline.folder import claimed, stamp_of
from visleak.pipeline.workplace import Progress, silent
from visleak.records import AnySet, EmbeddingSet, ImageSet
from visleak.settings import VIEW_CHOICES
from visleak.verdicts import read_verdicts

#: tau of definition 1, and the share of replicated images above which a prompt is in D_mem.
TAU: Final = 0.7
KAPPA_SHARE: Final = 0.5


def trace(
    target: str | os.PathLike[str],
    sources: Sequence[AnySet | ImageSource | str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    tau: float = TAU,
    kappa_share: float = KAPPA_SHARE,
    similarity: str = "",
    views: str = "none",
    layouts: bool = True,
    every: bool = False,
    categories: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    device: str = "cpu",
    progress: Progress = silent,
    force: bool = False,
    command: str | None = None,
) -> Trace:
    """Find which images of the sources generated images are copies of.

    Sets are asked first, all in one audit (``out/audit``), whose pairs a person may judge with
    ``visleak review``; the next call with the same arguments counts what was said. Other sources
    are asked only for images that no set verified.

    Args:
        target: folder of ``visleak memorization extract``, or any SOURCE of generated images.
        sources: training sets, folders, published fingerprints (sets or SOURCE text), search
            services. Without a set nothing is ever called memorized.
        out: folder of the result; a result of the same request is brought up to date.
        tau: M_tau(x) = 1 if the similarity to some training image is above it (definition 1).
        kappa_share: a prompt is in D_mem if a larger share of its images has M_tau = 1.
        similarity: encoder whose cosine is compared with tau, such as ``sscd:FILE`` (MemBench);
            by default that of published fingerprints, else the project's own.
        views: of generated images that are compared: ``none`` (as definition 1), ``mirror`` for
            models trained with random flips, ``all``.
        layouts: also look for copies in other colours.
        every: all images of an extraction, not one a cluster.
        categories: CSV with ``category`` and one of ``reference``, ``image``, ``prompt``.
        workers, cache, device: as of :func:`visleak.audit`; they never change the answer.
        progress: is told how far each step is.
        force: replace another result in ``out``.
        command: command line to note in the audit.

    Raises:
        UsageError: an argument does not fit, or ``out`` holds another result.
        VisleakError: a source cannot be read, or a service fails.

    Source: Hong et al. 2024, "MemBench", definition 1, sections 4 and 6.
    """
    _refuse(tau, kappa_share, views)
    known = read_categories(categories) if categories is not None else None
    queries = open_queries(target, every=every)
    folder = Path(out)
    sets, others = _opened(sources)
    if every and any(isinstance(each, Service) for each in others):
        raise UsageError(
            "--all and --service: a service is sent one image a cluster, not all; leave one out"
        )
    asking = Asking(
        *(similarity, tau, views, layouts, workers),
        *(None if cache is None else str(cache), device, force, command),
    )
    asked = Sets(sets, folder, asking) if sets else None
    about = _about(queries, asked, others, asking, kappa_share)
    key = _key(about, tau, queries, sets)
    with claimed(folder):
        _refuse_other(folder, key, force=force)
        answers = _answers(queries, asked, others, progress)
        made = conclude(folder, queries, answers, asked, tau=tau, kappa_share=kappa_share)
        if known is not None:
            made = known.told(made)
        result = replace(made, about=about | _judged(asked), key=key)
        write(result)
    return result


def _refuse(tau: float, kappa_share: float, views: str) -> None:
    if not -1.0 <= tau < 1.0:
        raise UsageError(f"tau is a similarity from -1 to below 1; got {tau:g}")
    if not 0.0 <= kappa_share < 1.0:
        raise UsageError(f"kappa-share is a share from 0 to below 1; got {kappa_share:g}")
    if views not in VIEW_CHOICES:
        raise UsageError(f"views must be one of {', '.join(VIEW_CHOICES)}; got {views!r}")


def _opened(
    sources: Sequence[AnySet | ImageSource | str | os.PathLike[str]],
) -> tuple[list[AnySet], list[ImageSource]]:
    sets: list[AnySet] = []
    others: list[ImageSource] = []
    for each in sources:
        if isinstance(each, str | os.PathLike):
            sets.append(open_images(each, roles=("training",)))
        elif isinstance(each, ImageSet | EmbeddingSet):
            sets.append(each)
        else:
            others.append(each)
    names = [each.name for each in (*sets, *others)]
    twice = next((name for name in [*names, GENERATED] if [*names, GENERATED].count(name) > 1), "")
    if twice:
        raise UsageError(
            f"two sources are called {twice!r} ({GENERATED} is the generated images); name them"
            " NAME=SOURCE"
        )
    return sets, others


def _about(
    queries: Queries,
    sets: Sets | None,
    others: Sequence[ImageSource],
    asking: Asking,
    kappa_share: float,
) -> dict[str, object]:
    encoder = None if sets is None else sets.encoder
    return {
        "images": "all images" if queries.every else "medoids" if queries.clusters else "images",
        "sets": [] if sets is None else sets.about()["sets"],
        "services": [dict(each.about()) for each in others],
        "similarity": None if encoder is None else encoder.name,
        "encoder": None if encoder is None else encoder.digest,
        "kappa_share": kappa_share,
        "views": asking.views,
        "layouts": asking.layouts,
        "origin": dict(queries.origin),
    }


def _key(about: Mapping[str, Any], tau: float, queries: Queries, sets: Sequence[AnySet]) -> str:
    """Return a digest of everything asked; where a source cannot be stamped, of its listing."""
    every = (*([queries.images] if queries.images is not None else []), *sets)
    stamps = [stamp_of(each) or f"{each.name} {len(each)}" for each in every]
    text = json.dumps([about, tau, stamps], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def _refuse_other(folder: Path, key: str, *, force: bool) -> None:
    found = key_in(folder)
    if found is not None and found != key and not force:
        raise UsageError(
            f"{folder} holds another trace ({RESULT}: other images, sources or settings); choose"
            " another folder with -o DIR, or replace it with --force"
        )


def _answers(
    queries: Queries, sets: Sets | None, others: Sequence[ImageSource], progress: Progress
) -> list[Answer]:
    """Ask the sets, then the others for what no set verified."""
    names = [] if queries.images is None else queries.images.ids.to_pylist()
    answers = []
    if sets is not None:
        answers.append(sets.find(queries, names, progress))
    done = {hit.image for answer in answers for hit in answer.hits if counts(hit)}
    rest = [name for name in names if name not in done]
    answers += [each.find(queries, rest, progress) for each in others]
    return answers


def _judged(sets: Sets | None) -> dict[str, object]:
    said = () if sets is None or sets.audited is None else read_verdicts(sets.folder / AUDIT_FOLDER)
    return {"verdicts": len(said), "visleak": visleak.__version__}
