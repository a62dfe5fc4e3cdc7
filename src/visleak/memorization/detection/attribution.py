"""Which tokens of a prompt raise its D?"""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from visleak.encoders.libraries import library
from visleak.errors import UsageError, VisleakError
from visleak.memorization.detection.records import Attribution
from visleak.memorization.model import TokenModel
from visleak.memorization.scores import TriggerScore

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
    or falls with the token it does not say, and a token's meaning has spread to the rows after it:
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
    """Return how many of a prompt's rows of states stand before its own tokens: 0 or 1.

    Every text encoder marks the end; where that is all that is left beside the most tokens that a
    prompt may have, nothing marks the beginning.
    """
    return int(rows - model.most_tokens() > 1)


def _with_tokens(score: TriggerScore) -> TokenModel:
    if not hasattr(score.model, "token_ids"):
        raise UsageError(
            f"prompts of {score.model.name} cannot be taken apart into tokens; attribute by"
            " leave-one-out"
        )
    return cast(TokenModel, score.model)


def leave_one_out(score: TriggerScore, prompt: str) -> Attribution:
    """Return what D loses when a word is left out of a prompt, for each word.

    D(p) - D(p without the word), by the L2 norm, all with the same noises. Needs nothing of a model
    but D. Words are what blanks separate; a prompt of one word is compared with the empty prompt.
    Costs as many passes per noise as the prompt has different words, plus one or two.
    """
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
