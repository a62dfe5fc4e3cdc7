"""``detect``: D of prompts, from a list to a folder of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from visleak.diffusion.model import about_model
from visleak.documents import digest_of
from visleak.memorization.detection.document import files, headlines, ranked
from visleak.memorization.detection.records import (
    Attribution,
    Detection,
    Listing,
    Ranked,
    Spread,
    listing_of,
)
from visleak.memorization.detection.scoring import (
    Progress,
    attribution,
    scored,
)
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import Analysis
from visleak.records import Float64
from visleak.stats.separation import (
    Separation,
    Threshold,
    needed,
    separation,
    threshold_at,
    threshold_given,
)
from visleak.storage import RunFolder

KIND: Final = "visleak memorization detect"

#: Prompts of the largest D that the result names.
TOP: Final = 20


def detect(
    score: TriggerScore,
    prompts: Prompts,
    out: str | Path,
    *,
    general: Prompts | None = None,
    analysis: Analysis | None = None,
    force: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Detection:
    """Score prompts, tell memorized from ordinary ones, and write the result.

    A finished result of the same prompts, model and settings is returned as it is; an unfinished
    one resumes, and loses a block of prompts at most.

    Args:
        score: D, by a model.
        prompts: the list; its labels, where it has any, mark the memorized ones.
        out: folder of the result.
        general: ordinary prompts, which count as not memorized.
        analysis: what is made of the scores.
        force: another result in the folder may be replaced; its scores are used where they are
            by the same model and settings.
        progress: called with steps, units done and units to do.
        note: called with what a user should know of the run.

    Raises:
        UsageError: the folder holds another result, or something asked for cannot be.
        VisleakError: a score is not a finite number, or the disk refuses.
    """
    analysis, run = analysis or Analysis(), RunFolder(out, KIND)
    listing, model = listing_of(prompts, general), score.model
    own = {name: value for name, value in score.settings.about().items() if name != "norm"}
    scores_key = digest_of([own, score.timestep, model.digest, model.precision, list(model.shape)])
    key = digest_of(
        [
            *(scores_key, score.settings.norm, list(listing.texts), list(listing.labels)),
            *([list(images) for images in listing.sources], listing.general.tolist()),
            list(vars(analysis).values()),
        ]
    )
    found = run.reused(Detection, key, force=force)
    if found is not None:
        if note is not None:
            note(f"reused: {run.path} holds this very result")
        return found
    same = run.finished and run.content().get("scores_key") == scores_key
    with run.claimed():
        scores, cost = scored(score, listing.texts, run.path, scores_key, progress, earlier=same)
        d = scores.by(score.settings.norm)
        threshold, apart = _threshold(d[listing.ordinary], analysis), _separation(listing, d)
        reached = np.zeros(len(d), np.bool_) if threshold is None else d >= threshold.value
        rows = ranked(listing, d, general=False)
        general_notes = () if general is None else general.notes
        result = Detection(
            key=key,
            scores_key=scores_key,
            settings=score.settings.about(),
            timestep=score.timestep,
            model=about_model(model),
            origin=prompts.origin,
            general_origin="" if general is None else general.origin,
            prompts=int((~listing.general).sum()),
            general=int(listing.general.sum()),
            reached=int((reached & ~listing.general).sum()),
            known=int(listing.memorized.sum()),
            known_reached=int((reached & listing.memorized).sum()),
            threshold=threshold,
            separation=apart,
            spreads=tuple(_spreads(listing, d)),
            top=tuple(
                Ranked(listing.texts[row], float(d[row]), listing.labels[row]) for row in rows[:TOP]
            ),
            tokens=_tokens(
                score, [listing.texts[r] for r in rows[: analysis.tokens]], analysis, progress
            ),
            throughput=cost,
            notes=(
                *(*prompts.notes, *general_notes, *listing.notes),
                *_notes(listing, threshold, apart),
            ),
        )
        content = run.document("; ".join(headlines(result)), result)
        for name in ("prompts_per_second", "passes_per_second"):
            content["throughput"][name] = getattr(cost, name)
        run.finish(content, files(result, listing, scores))
    return result


def read_detection(folder: str | Path) -> Detection:
    """Return the detection that a folder holds."""
    return RunFolder(folder, KIND).read(Detection)


def _threshold(ordinary: Float64, analysis: Analysis) -> Threshold | None:
    if analysis.threshold is not None:
        return threshold_given(analysis.threshold, ordinary)
    if not len(ordinary):
        return None
    return threshold_at(ordinary, analysis.fpr, bounded=analysis.bounded)


def _separation(listing: Listing, d: Float64) -> Separation | None:
    by, positive = listing.compared
    kept = positive | listing.ordinary
    if not positive.any() or not listing.ordinary.any():
        return None
    return separation(d[kept], positive[kept], listing.groups[kept], by=by)


def _spreads(listing: Listing, d: Float64) -> Iterator[Spread]:
    kinds = np.array(listing.kinds)
    for kind in dict.fromkeys(listing.kinds):
        own = d[kinds == kind]
        yield Spread(kind, len(own), *np.quantile(own, [0.0, 0.5, 0.95, 1.0]).tolist())


def _tokens(
    score: TriggerScore, texts: list[str], analysis: Analysis, progress: Progress | None
) -> tuple[Attribution, ...]:
    found = []
    for done, text in enumerate(texts, 1):
        found.append(attribution(score, text, analysis.method))
        if progress is not None:
            progress("attributing tokens", done, len(texts))
    return tuple(found)


def _notes(
    listing: Listing, threshold: Threshold | None, apart: Separation | None
) -> tuple[str, ...]:
    notes = []
    if threshold is not None and threshold.rate is not None and not threshold.supported:
        least = needed(threshold.rate) if threshold.rule == "bounded" else 1 / threshold.rate
        notes.append(
            f"{threshold.negatives:,} ordinary prompts cannot support a rate of"
            f" {100 * threshold.rate:g} %, which needs {least:,.0f}: the threshold lies above all"
            " of them"
        )
    ordinary = listing.groups[listing.ordinary]
    groups = len(np.unique(ordinary))
    if threshold is not None and groups < len(ordinary):
        notes.append(
            f"the {len(ordinary):,} ordinary prompts share images, in {groups:,} groups; the bound"
            " takes them for independent"
        )
    if apart is not None and apart.by == "lists":
        notes.append(
            "the list has no labels: the figures compare the two lists, not memorized with other"
            " prompts"
        )
    unknown = sum(
        label is None and not general
        for label, general in zip(listing.labels, listing.general.tolist(), strict=True)
    )
    if apart is not None and apart.by == "labels" and unknown:
        are = "prompt without a label is" if unknown == 1 else "prompts without a label are"
        notes.append(f"{unknown:,} {are} not part of the figures that compare kinds")
    return tuple(notes)
