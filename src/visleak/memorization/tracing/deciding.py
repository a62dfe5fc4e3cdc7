"""Which source is a generated image's, and which matches are of one memorized image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from visleak.groups import chained, components, numbered
from visleak.memorization.tracing.records import LAYOUT
from visleak.memorization.tracing.sources import Hit
from visleak.records import Int64

#: Grades from the best to the worst that a match may have.
ORDER: Final = ("exact", "near", LAYOUT, "similar", "different", "")


def counts(hit: Hit) -> bool:
    """Whether a hit makes its image memorized."""
    return hit.copy or hit.grade == LAYOUT


def best(hits: Iterable[Hit]) -> Hit | None:
    """Return the hit that says most of an image; ``None`` where there is none.

    What counts comes first, then what people said, the grade, the probability, the similarity.
    """
    return min(hits, key=_place, default=None)


def _place(hit: Hit) -> tuple[bool, int, bool, float, float, str, str]:
    similarity = -math.inf if math.isnan(hit.similarity) else hit.similarity
    return (
        not counts(hit),
        ORDER.index(hit.grade),
        hit.judged != "human",
        -(hit.probability or 0.0),
        -similarity,
        hit.source,
        hit.reference,
    )


def originals(
    references: Sequence[tuple[str, str]],
    digests: Sequence[str],
    alike: Iterable[tuple[int, int]],
) -> Int64:
    """Return a number for each reference: equal for those that are one memorized image.

    Args:
        references: source and id of each.
        digests: content of each; empty where it is not known.
        alike: places of two references of one layout.
    """
    first = {digest: at for at, digest in reversed(list(enumerate(digests))) if digest}
    codes = np.array([first.get(digest, -1) for digest in digests], np.int64)
    pairs = np.array(list(alike), np.int64).reshape(-1, 2)
    return components(len(references), [chained(codes), (pairs[:, 0], pairs[:, 1])])


def families(prompts: Sequence[str], nearest: Sequence[str | None]) -> Int64:
    """Return a group for each traced image: those of one prompt or of one nearest reference.

    They are no independent observations: several prompts bring one memorized image.
    """
    count = len(prompts)
    codes = []
    for texts in (prompts, [text or "" for text in nearest]):
        known = np.array([bool(text) for text in texts], np.bool_)
        numbers = numbered(np.array(texts, object).astype(str)) if count else np.empty(0, np.int64)
        codes.append(chained(np.where(known, numbers, -1)))
    return components(count, codes)


def by_image(hits: Iterable[Hit]) -> Mapping[str, list[Hit]]:
    """Return the hits of each generated image."""
    found: dict[str, list[Hit]] = {}
    for hit in hits:
        found.setdefault(hit.image, []).append(hit)
    return found
