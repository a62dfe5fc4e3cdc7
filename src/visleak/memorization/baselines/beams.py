"""Texts that grow word by word, the likeliest kept beside each other (beam search)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from visleak.memorization.model import Tensor

#: The logit of the end is lowered by this factor at the first word (ZeroCap's code).
AT_FIRST: Final = 1.6


@dataclass(frozen=True, slots=True)
class Beam:
    """A text in the making.

    Attributes:
        ids: its tokens, without the prefix.
        total: sum of their log-probabilities.
        ended: whether it has come to its end.
    """

    ids: tuple[int, ...] = ()
    total: float = 0.0
    ended: bool = False

    @property
    def mean(self) -> float:
        """Mean log-probability of a token."""
        return self.total / max(len(self.ids), 1)


def grown(beams: Sequence[Beam], logs: Any, count: int, end: int | None) -> list[Beam]:
    """Return the best ``count`` beams after one word more, by mean log-probability.

    Args:
        beams: those that have ended stay as they are.
        logs: log-probabilities of the next word of those that have not, (beams, vocabulary).
        count: of beams.
        end: the id that ends a text.
    """
    made = [beam for beam in beams if beam.ended]
    for beam, row in zip((beam for beam in beams if not beam.ended), logs, strict=True):
        values, ids = row.topk(min(count, len(row)))
        for value, word in zip(values.tolist(), ids.tolist(), strict=True):
            if value > -np.inf:
                made.append(Beam((*beam.ids, word), beam.total + value, word == end))
    return sorted(made, key=lambda beam: (-beam.mean, beam.ids))[:count]


def nudged(logits: Tensor, end: int | None, position: int, factor: float) -> Tensor:
    """Return logits with the end made likelier, or at the first word less likely, as ZeroCap does.

    Args:
        logits: of the next word, (beams, vocabulary).
        end: the id that ends a text; ``None`` changes nothing.
        position: of the word, from 0.
        factor: a positive logit is multiplied by it, a negative one divided.
    """
    if end is None:
        return logits
    raised, power = logits.clone(), factor if position else 1.0 / AT_FIRST
    here = logits[:, end]
    raised[:, end] = here * (here > 0) * power + here * (here <= 0) / power
    return raised
