"""How much of what a prompt makes is a copy (Hong et al. 2024, section 5; MemBench's code).

The similarity of an image is the largest to any of the memorized images of its prompt. Of the
images of a prompt (10 in the paper) it makes three numbers, each then averaged over prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.memorization.extraction.similarity import CopySimilarity
from visleak.records import Bytes8

Float64 = npt.NDArray[np.float64]

#: Similarity above which an image counts as a copy; strictly above.
LIMIT: Final = 0.5

#: Images that ``top3`` is the mean of.
BEST: Final = 3


@dataclass(frozen=True)
class Copying:
    """How much the images of prompts copy, one number per prompt; NaN where nothing was compared.

    Attributes:
        top1: ``float64`` (prompts,): similarity of the most similar image.
        top3: (prompts,): mean of the three most similar images; of all, where there are fewer.
        share: (prompts,): of the images, how many lie above the limit.
    """

    top1: Float64
    top3: Float64
    share: Float64


def copying(similarities: npt.ArrayLike, limit: float = LIMIT) -> Copying:
    """Return how much the images of prompts copy.

    Args:
        similarities: (prompts, images): of each image to the memorized images of its prompt; a
            row of NaN is a prompt of which none is at hand.
        limit: similarity that a copy lies above.

    Raises:
        UsageError: it is no such table, has no images, or a row is known in part.

    >>> found = copying([[0.9, 0.1, 0.5, 0.7]])
    >>> found.top1.tolist(), found.top3.round(3).tolist(), found.share.tolist()
    ([0.9], [0.7], [0.5])
    """
    table = np.asarray(similarities, np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise UsageError(
            f"similarities are a table of prompts and their images; got an array {table.shape}"
        )
    unknown = np.isnan(table)
    if np.isinf(table).any() or (unknown.any(1) != unknown.all(1)).any():
        raise UsageError(
            "similarities of a prompt are finite for all of its images, or NaN for all of them"
        )
    falling = -np.sort(-table, axis=1)
    share = np.where(unknown[:, 0], np.nan, (table > limit).mean(1))
    return Copying(falling[:, 0].copy(), falling[:, :BEST].mean(1), share)


def against_references(
    similarity: CopySimilarity, images: Sequence[Bytes8], references: Sequence[Bytes8]
) -> Float64:
    """Return the similarity of each image to the memorized image that it is most similar to.

    Args:
        similarity: the measure.
        images: generated ones, ``uint8`` (height, width, 3).
        references: the memorized images of their prompt.

    Returns:
        (images,).

    Raises:
        UsageError: there are no references.
    """
    if not len(references):
        raise UsageError(
            "there are no memorized images to compare with: leave such prompts out, or give theirs"
        )
    if not len(images):
        return np.empty(0)
    return np.asarray(similarity.between(images, references).max(axis=1), np.float64)
