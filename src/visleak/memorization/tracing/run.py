"""Trace generated images to their sources among training images."""

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
from visleak.memorization.tracing.conclusion import conclude
from visleak.memorization.tracing.document import SECTION, content, document, files
from visleak.memorization.tracing.queries import GENERATED, Queries, open_queries
from visleak.memorization.tracing.records import Answer, Trace
from visleak.memorization.tracing.sets import AUDIT_FOLDER, AuditOptions, Sets
from visleak.pipeline.folder import stamp_of
from visleak.pipeline.workplace import Progress, silent
from visleak.records import AnySet
from visleak.reporting import section
from visleak.settings import VIEW_CHOICES
from visleak.storage import AUDIT, SECTIONS, RunFolder, write_json
from visleak.verdicts import read_verdicts

KIND: Final = "visleak memorization trace"

#: tau of definition 1, and the share of replicated images above which a prompt is in D_mem.
TAU: Final = 0.7
KAPPA_SHARE: Final = 0.5


def trace(
    target: str | os.PathLike[str],
    sources: Sequence[AnySet | str | os.PathLike[str]],
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

    All sets are compared in one audit (``out/audit``), whose pairs a person may judge with
    ``visleak review``; the next call with the same arguments counts the verdicts.

    Args:
        target: folder of ``visleak memorization extract``, or any SOURCE of generated images.
        sources: training sets, folders, published embeddings (sets or SOURCE text). Without a
            set nothing is ever called memorized.
        out: folder of the result; a result of the same request is brought up to date.
        tau: M_tau(x) = 1 if the similarity to some training image is above it (definition 1).
        kappa_share: a prompt is in D_mem if a larger share of its images has M_tau = 1.
        similarity: encoder whose cosine is compared with tau, such as ``sscd:FILE`` (MemBench);
            by default that of published fingerprints, else the project's own.
        views: of generated images that are compared: ``none`` (as definition 1), ``mirror`` for
            models trained with random flips, ``all``.
        layouts: also look for copies in other colours.
        every: all images of an extraction, not one per cluster.
        categories: CSV with ``category`` and one of ``reference``, ``image``, ``prompt``.
        workers, cache, device: as of :func:`visleak.audit`; they never change the answer.
        progress: is told how far each step is.
        force: replace another result in ``out``.
        command: command line to note in the audit.

    Raises:
        UsageError: an argument does not fit, or ``out`` holds another result.
        VisleakError: a source cannot be read.

    Source: Hong et al. 2024, "MemBench", definition 1, sections 4 and 6.
    """
    _refuse(tau, kappa_share, views)
    known = read_categories(categories) if categories is not None else None
    queries = open_queries(target, every=every)
    folder = Path(out)
    references = _opened(sources)
    options = AuditOptions(
        *(similarity, tau, views, layouts, workers),
        *(None if cache is None else str(cache), device, force, command),
    )
    sets = Sets(references, folder, options) if references else None
    about = _about(queries, sets, options, kappa_share)
    key = _key(about, tau, queries, references)
    run = RunFolder(folder, KIND)
    # a finished trace of the same request is brought up to date: people may have judged pairs
    run.reused(Trace, key, force=force, folder=folder)
    with run.claimed():
        answer = Answer((), {}) if sets is None else sets.find(queries, progress)
        made = conclude(folder, queries, answer, sets, tau=tau, kappa_share=kappa_share)
        if known is not None:
            made = known.told(made)
        result = replace(made, about=about | _judged(sets), key=key)
        audit = folder / AUDIT_FOLDER
        if (audit / AUDIT).is_file():
            write_json(audit / SECTIONS / SECTION, section(document(result)))
        run.finish(content(run, result), files(result))
    return result


def read_trace(folder: str | os.PathLike[str]) -> Trace:
    """Return the result that a folder holds.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or a newer visleak wrote it.
    """
    return RunFolder(folder, KIND).read(Trace, folder=Path(folder))


def _refuse(tau: float, kappa_share: float, views: str) -> None:
    if not -1.0 <= tau < 1.0:
        raise UsageError(f"tau is a similarity from -1 to below 1; got {tau:g}")
    if not 0.0 <= kappa_share < 1.0:
        raise UsageError(f"kappa-share is a share from 0 to below 1; got {kappa_share:g}")
    if views not in VIEW_CHOICES:
        raise UsageError(f"views must be one of {', '.join(VIEW_CHOICES)}; got {views!r}")


def _opened(sources: Sequence[AnySet | str | os.PathLike[str]]) -> list[AnySet]:
    sets = [
        open_images(each, roles=("training",)) if isinstance(each, str | os.PathLike) else each
        for each in sources
    ]
    names = [*(each.name for each in sets), GENERATED]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise UsageError(
            f"two sources are called {twice!r} ({GENERATED} is the generated images); name them"
            " NAME=SOURCE"
        )
    return sets


def _about(
    queries: Queries,
    sets: Sets | None,
    options: AuditOptions,
    kappa_share: float,
) -> dict[str, object]:
    encoder = None if sets is None else sets.encoder
    return {
        "images": "all images" if queries.every else "medoids" if queries.clusters else "images",
        "sets": [] if sets is None else sets.about()["sets"],
        "similarity": None if encoder is None else encoder.name,
        "encoder": None if encoder is None else encoder.digest,
        "kappa_share": kappa_share,
        "views": options.views,
        "layouts": options.layouts,
        "origin": dict(queries.origin),
    }


def _key(about: Mapping[str, Any], tau: float, queries: Queries, sets: Sequence[AnySet]) -> str:
    """Return a digest of everything asked; where a source cannot be stamped, of its listing."""
    every = (*([queries.images] if queries.images is not None else []), *sets)
    stamps = [stamp_of(each) or f"{each.name} {len(each)}" for each in every]
    text = json.dumps([about, tau, stamps], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def _judged(sets: Sets | None) -> dict[str, object]:
    said = () if sets is None or sets.audited is None else read_verdicts(sets.folder / AUDIT_FOLDER)
    return {"verdicts": len(said), "visleak": visleak.__version__}
