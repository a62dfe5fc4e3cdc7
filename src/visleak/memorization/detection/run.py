"""``detect``: D of prompts, from a list to a folder of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from visleak.diffusion.model import about_model, with_tokens
from visleak.documents import digest_of
from visleak.errors import VisleakError
from visleak.lazy import library
from visleak.memorization.detection.document import files, headlines, ranked
from visleak.memorization.detection.records import (
    LISTED,
    Attribution,
    Detection,
    Listing,
    Ranked,
    Spread,
    Throughput,
    listing_of,
)
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import Scores, TriggerScore
from visleak.memorization.settings import Analysis
from visleak.progress import Progress, silent
from visleak.records import Float64
from visleak.stats.separation import (
    Separation,
    Threshold,
    needed,
    separation,
    threshold_at,
    threshold_given,
)
from visleak.storage import KeyValueStore, RunFolder

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
        analysis: options of the statistics and of the attribution to tokens.
        force: replace another result in the folder; its scores by the same model and settings are
            used.
        progress: called with steps, units done and units to do.
        note: called with notes on the run.

    Raises:
        UsageError: the folder holds another result, or an argument does not fit.
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
    report = progress or silent
    with run.claimed():
        scores, cost = scored(score, listing.texts, run.path, scores_key, report, earlier=same)
        d = scores.by(score.settings.norm)
        threshold, apart = _threshold(d[listing.ordinary], analysis), _separation(listing, d)
        reached = np.zeros(len(d), np.bool_) if threshold is None else d >= threshold.value
        rows = ranked(listing, d, general=False).tolist()
        tokens = []
        attribution = token_significance if analysis.method == "gradient" else leave_one_out
        for done, row in enumerate(rows[: analysis.tokens], 1):
            tokens.append(attribution(score, listing.texts[row]))
            report("attributing tokens", done, len(rows[: analysis.tokens]))
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
            tokens=tuple(tokens),
            throughput=cost,
            notes=(
                *(*prompts.notes, *(() if general is None else general.notes), *listing.notes),
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
    positive, kept = listing.told_apart
    if not positive.any() or not listing.ordinary.any():
        return None
    return separation(d[kept], positive[kept], listing.groups[kept], by=listing.by)


def _spreads(listing: Listing, d: Float64) -> Iterator[Spread]:
    kinds = np.array(listing.kinds)
    for kind in dict.fromkeys(listing.kinds):
        own = d[kinds == kind]
        yield Spread(kind, len(own), *np.quantile(own, [0.0, 0.5, 0.95, 1.0]).tolist())


def _notes(
    listing: Listing, threshold: Threshold | None, apart: Separation | None
) -> Iterator[str]:
    if threshold is not None and threshold.rate is not None and not threshold.supported:
        least = needed(threshold.rate) if threshold.rule == "bounded" else 1 / threshold.rate
        yield (
            f"{threshold.negatives:,} ordinary prompts cannot support a rate of"
            f" {100 * threshold.rate:g} %, which needs {least:,.0f}: the threshold lies above all"
            " of them"
        )
    ordinary = listing.groups[listing.ordinary]
    groups = len(np.unique(ordinary))
    if threshold is not None and groups < len(ordinary):
        yield (
            f"the {len(ordinary):,} ordinary prompts share images, in {groups:,} groups; the bound"
            " takes them for independent"
        )
    if apart is not None and apart.by == "lists":
        yield (
            "the list has no labels: the figures compare the two lists, not memorized with other"
            " prompts"
        )
    unknown = listing.kinds.count(LISTED)
    if apart is not None and apart.by == "labels" and unknown:
        are = "prompt without a label is" if unknown == 1 else "prompts without a label are"
        yield f"{unknown:,} {are} not part of the figures that compare kinds"


# -- scores of prompts, block by block, and the tokens that raise them ----------------------------


def token_significance(score: TriggerScore, prompt: str) -> Attribution:
    """Return how strongly D depends on the embedding of each token after the text encoder.

    The significance of a token is the L2 norm of the gradient of
    ``|| eps(x_T, f(p), T) - eps(x_T, f(""), T) ||_2`` with respect to its row of ``f(p)``, averaged
    over the noises of ``score``; the code of Wen et al. averages over steps of a guided sampling
    too, of which this is one. By the L2 norm whatever ``score.settings.norm`` says. Whether D rises
    or falls with the token is not known, and a token's meaning has spread to the rows after it:
    the end and padding are returned as one figure, ``rest``. The row of a begin token is the same
    for all prompts, and is left out; T5 (DeepFloyd IF) has none.

    Tokens are those of the model's first text encoder; what it cuts off has none. The rows that a
    T5 adds to those of CLIP (Stable Diffusion 3) belong to other tokens, and are in ``rest`` whole.

    Raises:
        UsageError: the model's prompts cannot be taken apart into tokens.
        VisleakError: its gradient is not a finite number.

    Source: Wen et al. 2024, "Detecting, Explaining, and Mitigating Memorization in Diffusion
    Models", section 4.1.
    """
    torch = library("torch", "diffusion", "the significance of tokens")
    model = with_tokens(score.model, "gradient", "attribute by leave-one-out")
    ids = model.token_ids(prompt)
    encoded = model.encode_prompt([prompt])
    norms, scores = [], []
    for noise, empty in score.noises(0):
        states = encoded.states.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            squared = score.squared_distance(encoded.with_states(states), noise, empty)
            distance = squared.sqrt().sum()
        scores.append(float(distance.item()))
        if scores[-1] == 0.0:
            # the root has no derivative there, and nothing is apart
            norms.append(np.zeros(states.shape[1]))
            continue
        (gradient,) = torch.autograd.grad(distance, states)
        norms.append(gradient[0].double().norm(dim=-1).cpu().numpy())
    each = np.asarray(norms, np.float64)
    if not np.isfinite(each).all():
        raise VisleakError(
            f"the gradient of D of {prompt[:80]!r} is not a finite number in {model.precision}; use"
            " precision fp32 or bf16"
        )
    # all texts end in one token, and some models begin with one
    first = int(each.shape[1] - model.most_tokens() > 1)
    own, rest = each[:, first : first + len(ids)], each[:, first + len(ids) :]
    return Attribution(
        prompt,
        "gradient",
        float(np.mean(scores)),
        tuple(model.token_texts(ids)),
        tuple(own.mean(0).tolist()),
        float(np.linalg.norm(rest, axis=1).mean()),
    )


def leave_one_out(score: TriggerScore, prompt: str) -> Attribution:
    """Return what D loses without each word, by the L2 norm, all under the same noises."""
    words = prompt.split()
    without = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    first, *others = score([prompt, *without]).d_l2.tolist()
    lost = tuple(first - each for each in others)
    return Attribution(prompt, "leave-one-out", first, tuple(words), lost)


#: At least this many prompts per block, in whole batches, so that none is cut short.
BLOCK: Final = 256
#: Scores, passes and seconds of each prompt: an interrupted run resumes, another analysis reuses.
SCORES: Final = "scores.sqlite"


def scored(
    score: TriggerScore,
    texts: Sequence[str],
    folder: Path,
    key: str,
    progress: Progress = silent,
    *,
    earlier: bool = False,
) -> tuple[Scores, Throughput]:
    """Return the scores of prompts, and what they cost; those of an ``earlier`` result nothing."""
    keys, width = {text: digest_of([key, text]) for text in texts}, score.settings.noises + 2
    with KeyValueStore(folder / SCORES, "scores") as store:
        held = store.known(list(keys.values()))
        rows = {text: np.frombuffer(held[at], "<f8") for text, at in keys.items() if at in held}
        # squared scores, passes and seconds, (noises + 2,); damaged ones are made again
        found = {t: row for t, row in rows.items() if len(row) == width and np.isfinite(row).all()}
        reused = set(found) if earlier else set[str]()
        missing = [text for text in keys if text not in found]
        size = -(-BLOCK // score.settings.batch) * score.settings.batch
        progress("scoring prompts", len(found), len(keys))
        for start in range(0, len(missing), size):
            block = missing[start : start + size]
            passes, seconds = score.calls, score.seconds
            squared = score(block).squared
            paid = np.array([score.calls - passes, score.seconds - seconds]) / len(block)
            made = {t: np.concatenate([row, paid]) for t, row in zip(block, squared, strict=True)}
            data = {keys[text]: row.astype("<f8").tobytes() for text, row in made.items()}
            store.add(data, replace=True)
            found |= made
            progress("scoring prompts", len(found), len(keys))
    table = np.array([found[text] for text in texts]).reshape(len(texts), -1)
    cost = table[[text not in reused for text in texts], -2:].sum(0)
    spent = Throughput(len(texts) - len(reused), round(float(cost[0])), float(cost[1]), len(reused))
    return Scores(np.sqrt(table[:, :-2]), table[:, :-2]), spent
