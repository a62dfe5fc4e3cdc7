"""Scores of prompts, block by block, and the tokens that raise them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import numpy as np

from visleak.diffusion.model import TokenModel
from visleak.documents import digest_of
from visleak.encoders.libraries import library
from visleak.errors import UsageError, VisleakError
from visleak.memorization.detection.records import Attribution, Throughput
from visleak.memorization.scores import Scores, TriggerScore
from visleak.records import Float64
from visleak.storage import KeyValueStore

METHODS: Final = ("gradient", "leave-one-out")


def attribution(score: TriggerScore, prompt: str, method: str = "gradient") -> Attribution:
    """Return what each token of a prompt has to do with its D, by one of :data:`METHODS`."""
    if method == "gradient":
        return token_significance(score, prompt)
    if method == "leave-one-out":
        return leave_one_out(score, prompt)
    raise UsageError(f"tokens are attributed by {' or '.join(METHODS)}; got {method!r}")


def token_significance(score: TriggerScore, prompt: str) -> Attribution:
    """Return how strongly D depends on the embedding of each token after the text encoder.

    The significance of a token is the L2 norm of the gradient of
    ``|| eps(x_T, f(p), T) - eps(x_T, f(""), T) ||_2`` with respect to its row of ``f(p)``, averaged
    over the noises of ``score``; the code of Wen et al. averages over steps of a guided sampling
    too, of which this is one. By the L2 norm whatever ``score.settings.norm`` says. Whether D rises
    or falls with the token is not known, and a token's meaning has spread to the rows after it:
    the end and padding are returned as one figure, ``rest``. The row of a begin token is the same
    for all prompts, and is left out; T5 (DeepFloyd IF) has none.

    Tokens are those of the model's first text encoder. The rows that a T5 adds to those of CLIP
    (Stable Diffusion 3) belong to other tokens, and are in ``rest`` whole.

    Args:
        score: at whose timestep and noises, and of which model.
        prompt: the text; what the model cuts off has no token.

    Raises:
        UsageError: the model's prompts cannot be taken apart into tokens.
        VisleakError: its gradient is not a finite number.

    Source: Wen et al. 2024, "Detecting, Explaining, and Mitigating Memorization in Diffusion
    Models", section 4.1.
    """
    torch = library("torch", "diffusion", "the significance of tokens")
    model = _with_tokens(score)
    ids = model.token_ids(prompt)
    encoded = model.encode_prompt([prompt])
    norms, scores = [], []
    for noise, empty in score.noises(0):
        states = encoded.states.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            squared = score.squared_distance(encoded.with_states(states), noise, empty)
            distance = squared.sqrt().sum()
            if distance.item() == 0.0:
                # the root has no derivative there, and nothing is apart
                norms.append(np.zeros(states.shape[1]))
                scores.append(0.0)
                continue
            (gradient,) = torch.autograd.grad(distance, states)
        norms.append(gradient[0].double().norm(dim=-1).cpu().numpy())
        scores.append(float(distance.item()))
    each = np.asarray(norms, np.float64)
    if not np.isfinite(each).all():
        raise VisleakError(
            f"the gradient of D of {prompt[:80]!r} is not a finite number in {model.precision}; use"
            " precision fp32 or bf16"
        )
    first = _begins(model, each.shape[1])
    own, rest = each[:, first : first + len(ids)], each[:, first + len(ids) :]
    return Attribution(
        prompt,
        "gradient",
        float(np.mean(scores)),
        tuple(model.token_texts(ids)),
        tuple(own.mean(0).tolist()),
        float(np.sqrt(np.square(rest).sum(1)).mean()),
    )


def _begins(model: TokenModel, rows: int) -> int:
    """Return how many rows of states stand before a prompt's own tokens, 0 or 1: all end in one."""
    return int(rows - model.most_tokens() > 1)


def _with_tokens(score: TriggerScore) -> TokenModel:
    if not hasattr(score.model, "token_ids"):
        raise UsageError(
            f"prompts of {score.model.name} cannot be taken apart into tokens; attribute by"
            " leave-one-out"
        )
    return cast(TokenModel, score.model)


def leave_one_out(score: TriggerScore, prompt: str) -> Attribution:
    """Return what D loses without each word, by the L2 norm, all under the same noises."""
    words = prompt.split()
    without = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    found = score([prompt, *without]).d_l2
    return Attribution(
        prompt,
        "leave-one-out",
        float(found[0]),
        tuple(words),
        tuple((found[0] - found[1:]).tolist()),
    )


Progress = Callable[[str, int, int], None]

#: At least this many prompts per block, in whole batches, so that none is cut short.
BLOCK: Final = 256

#: Scores, passes and seconds of each prompt: an interrupted run resumes, another analysis reuses.
SCORES: Final = "scores.sqlite"

#: Name of the step.
STEP: Final = "scoring prompts"


def scored(
    score: TriggerScore,
    texts: Sequence[str],
    folder: Path,
    key: str,
    progress: Progress | None = None,
    *,
    earlier: bool = False,
) -> tuple[Scores, Throughput]:
    """Return the scores of prompts, and what they cost; those of an ``earlier`` result nothing."""
    keys = {text: digest_of([key, text]) for text in texts}
    with KeyValueStore(folder / SCORES, "scores") as store:
        found = _held(store, keys, score.settings.noises + 2)
        reused = set(found) if earlier else set[str]()
        _make_missing(score, keys, store, found, progress)
    table = np.array([found[text] for text in texts]).reshape(len(texts), -1)
    cost = table[[text not in reused for text in texts], -2:].sum(0)
    paid = Throughput(len(texts) - len(reused), round(float(cost[0])), float(cost[1]), len(reused))
    return Scores(np.sqrt(table[:, :-2]), table[:, :-2]), paid


def _held(store: KeyValueStore, keys: Mapping[str, str], width: int) -> dict[str, Float64]:
    """Return squared scores, passes and seconds by prompt, (noises + 2,); damaged ones are none."""
    held = store.known(list(keys.values()))
    rows = {text: np.frombuffer(held[at], "<f8") for text, at in keys.items() if at in held}
    return {t: row for t, row in rows.items() if len(row) == width and np.isfinite(row).all()}


def _make_missing(
    score: TriggerScore,
    keys: Mapping[str, str],
    store: KeyValueStore,
    found: dict[str, Float64],
    progress: Progress | None,
) -> None:
    """Add the rows of prompts that are not found, a block at a time."""
    missing = [text for text in keys if text not in found]
    size = -(-BLOCK // score.settings.batch) * score.settings.batch
    report = progress or (lambda step, done, total: None)
    report(STEP, len(found), len(keys))
    for start in range(0, len(missing), size):
        block = missing[start : start + size]
        passes, seconds = score.calls, score.seconds
        squared = score(block).squared
        paid = np.array([score.calls - passes, score.seconds - seconds]) / len(block)
        made = {t: np.concatenate([row, paid]) for t, row in zip(block, squared, strict=True)}
        data = {keys[text]: row.astype("<f8").tobytes() for text, row in made.items()}
        store.add(data, replace=True)
        found |= made
        report(STEP, len(found), len(keys))
