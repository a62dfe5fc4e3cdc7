"""ZeroCap's step: shift a language model's memory until its next words please D.

Tewel et al. 2022, "ZeroCap", section 3: the keys and values of the tokens so far are moved by a few
gradient steps on the sum of two losses: the cross-entropy of the next word to the softmax of the
match over the most probable words (there CLIP's, here D), and the divergence from what the model
would have said (equations 3 to 5). A gradient is divided by a power of its norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.encoders.libraries import library
from visleak.memorization.baselines.causal import WHAT, CausalLanguageModel, Memory
from visleak.memorization.model import Tensor

Float64 = npt.NDArray[np.float64]

#: D of the most probable next words: (beams, words) ids to (beams, words) values.
Judge = Callable[[npt.NDArray[np.int64]], Float64]

#: Added to norms, so that a gradient of 0 stays one.
TINY = 1e-15


@dataclass(frozen=True, slots=True)
class ShiftSettings:
    """How a memory is shifted; the values are those of ZeroCap's code.

    Attributes:
        iterations: gradient steps a token.
        top: most probable words that D is asked about.
        temperature: divides D before its softmax.
        guide_scale: weight of the cross-entropy to that softmax.
        ce_scale: weight of the divergence from the model's own words.
        stepsize: length of a step.
        norm_factor: power of the gradient's norm that it is divided by.
        fusion: share of the shifted probabilities in the geometric mean with the model's own.
    """

    iterations: int = 5
    top: int = 512
    temperature: float = 0.01
    guide_scale: float = 1.0
    ce_scale: float = 0.2
    stepsize: float = 0.3
    norm_factor: float = 0.9
    fusion: float = 0.99


def next_words(
    model: CausalLanguageModel,
    rows: Sequence[Sequence[int]],
    judge: Judge,
    how: ShiftSettings,
    nudge: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> Tensor:
    """Return the log-probabilities of the next word of every beam, (beams, vocabulary).

    Special tokens have none (-inf). Each beam is shifted as if it were alone.

    Args:
        model: the language model.
        rows: tokens so far, of equal length.
        judge: D of candidates.
        how: the shift.
        nudge: what is done to the logits after it.
    """
    torch = library("torch", "diffusion", WHAT)
    tokens = model.rows(rows)
    own = model.logits(tokens)
    memory = model.memory(tokens)
    if memory:
        memory = shifted(model, memory, tokens[:, -1:], own.log_softmax(-1), judge, how)
        with torch.no_grad():
            moved = model.logits_after(memory, tokens[:, -1:])
    else:
        moved = own
    moved = nudge(moved)
    mixed = how.fusion * moved.log_softmax(-1) + (1.0 - how.fusion) * own.log_softmax(-1)
    mixed[:, sorted(model.special)] = -torch.inf
    return mixed.log_softmax(-1).double().cpu()


def shifted(
    model: CausalLanguageModel,
    memory: Memory,
    last: Tensor,
    own: Tensor,
    judge: Judge,
    how: ShiftSettings,
) -> Memory:
    """Return a memory after the gradient steps.

    Args:
        model: whose memory it is.
        memory: of the tokens before the last.
        last: tokens (beams, 1).
        own: log-probabilities without a shift, (beams, vocabulary).
        judge: D of candidates.
        how: the shift.
    """
    torch = library("torch", "diffusion", WHAT)
    flat = [each.detach() for pair in memory for each in pair]
    moves = [torch.zeros_like(each) for each in flat]
    for _ in range(how.iterations):
        leaves = [move.clone().requires_grad_(True) for move in moves]
        with torch.enable_grad():
            here = [base + leaf for base, leaf in zip(flat, leaves, strict=True)]
            logs = model.logits_after(_paired(here), last).log_softmax(-1)
            loss = losses(logs, own, target(logs, model.special, judge, how), how).sum()
            gradients = torch.autograd.grad(loss, leaves)
        moves = [
            move - how.stepsize * gradient / norms(gradient) ** how.norm_factor
            for move, gradient in zip(moves, gradients, strict=True)
        ]
    return _paired([base + move for base, move in zip(flat, moves, strict=True)])


def target(logs: Tensor, special: frozenset[int], judge: Judge, how: ShiftSettings) -> Tensor:
    """Return what the next word should be by D: its softmax over the most probable words.

    Args:
        logs: log-probabilities (beams, vocabulary).
        special: ids that are no words.
        judge: D of candidates.
        how: number of words, temperature.

    Returns:
        Probabilities (beams, vocabulary), 0 outside these words.
    """
    torch = library("torch", "diffusion", WHAT)
    with torch.no_grad():
        words = logs.detach().clone()
        words[:, sorted(special)] = -torch.inf
        count = min(how.top, words.shape[1] - len(special))
        ids = words.topk(count, -1).indices
        scores = torch.from_numpy(judge(ids.cpu().numpy()))
        chances = (scores / how.temperature).softmax(-1).to(logs)
        return torch.zeros_like(logs).scatter(1, ids, chances)


def losses(logs: Tensor, own: Tensor, wanted: Tensor, how: ShiftSettings) -> Tensor:
    """Return ZeroCap's loss of every beam, (beams,): less is better.

    Args:
        logs: log-probabilities of the next word, (beams, vocabulary); gradients flow.
        own: the same without a shift.
        wanted: probabilities by D.
        how: the two weights.
    """
    guide = -(wanted * logs).sum(-1)
    apart = (logs.exp() * (logs - own)).sum(-1)
    return how.guide_scale * guide + how.ce_scale * apart


def norms(gradient: Tensor) -> Tensor:
    """Return the norm of every beam's gradient, shaped to divide it."""
    found = gradient.flatten(1).norm(dim=1) + TINY
    return found.reshape(-1, *[1] * (gradient.dim() - 1))


def _paired(flat: Sequence[Tensor]) -> Memory:
    return list(zip(flat[::2], flat[1::2], strict=True))
