"""Reference performance: what a search for the prompt would have shown instead.

For each trigger prompt 100 pictures are asked of a search, and the one with the best CLIP score is
kept: a picture that fits the prompt and was not made from it. Its similarity to the memorized image
is what a mitigation should come down to, its CLIP score what should be left (Hong et al. 2024,
appendix D; on Stable Diffusion 1: .088 and .310 in table 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.memorization.extraction.similarity import CopySimilarity
from visleak.memorization.metrics.alignment import Alignment
from visleak.memorization.metrics.copying import against_references
from visleak.memorization.metrics.searching import FolderByPrompt, PicturesByPrompt
from visleak.pipeline.workplace import Progress, silent
from visleak.records import Bytes8

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Best:
    """The picture that fits a prompt best, of those that a search found.

    Attributes:
        prompt: that was searched for.
        picture: id in the source; empty where nothing was found.
        clip: its CLIP score with the prompt; NaN where nothing was found.
        similarity: to the most similar of the prompt's memorized images; NaN where nothing was
            found, or none of these is at hand.
        candidates: pictures that were found and could be read.
    """

    prompt: str
    picture: str
    clip: float
    similarity: float
    candidates: int


@dataclass(frozen=True)
class ReferencePerformance:
    """What a search would have shown, prompt by prompt.

    Attributes:
        source: name of what was asked.
        count: pictures asked for a prompt.
        best: one a prompt.
    """

    source: str
    count: int
    best: tuple[Best, ...]

    @property
    def clip(self) -> Float64:
        """CLIP scores (prompts,), NaN where nothing was found."""
        return np.array([each.clip for each in self.best])

    @property
    def similarity(self) -> Float64:
        """Similarities (prompts,), NaN where there is none."""
        return np.array([each.similarity for each in self.best])


def reference_performance(
    source: PicturesByPrompt,
    prompts: Sequence[str],
    references: Sequence[Sequence[Bytes8]],
    alignment: Alignment,
    similarity: CopySimilarity,
    count: int = 100,
    *,
    progress: Progress = silent,
) -> ReferencePerformance:
    """Return the best picture of a search for each prompt.

    Args:
        source: the search.
        prompts: trigger prompts.
        references: the memorized images of each prompt; empty where none is at hand.
        alignment: makes the CLIP scores.
        similarity: the measure of copying.
        count: pictures to ask for; of ties the first that was found is kept.
        progress: is told how many prompts are done.

    Raises:
        UsageError: there is not one list of references a prompt, or nothing is asked for.
    """
    if len(references) != len(prompts):
        raise UsageError(
            f"references are one list of memorized images a prompt; got {len(references)} for"
            f" {len(prompts)} prompts"
        )
    if count < 1:
        raise UsageError(f"count is 1 or more (MemBench: 100); got {count}")
    found = source.find_by_prompt(prompts, count)
    vectors = _Vectors(source, alignment)
    best = []
    texts = alignment.texts(prompts)
    for number, (prompt, own) in enumerate(zip(prompts, references, strict=True)):
        picture, clip, candidates = vectors.best(texts[number], found[number][:count])
        alike = math.nan
        if picture and len(own):
            (pixels,) = source.pictures([picture])
            if pixels is not None:
                alike = float(against_references(similarity, [pixels], own)[0])
        best.append(Best(prompt, picture, clip, alike, candidates))
        progress("searching", number + 1, len(prompts))
    return ReferencePerformance(source.name, count, tuple(best))


class _Vectors:
    """Vectors of what a search found; each picture is read once, whichever prompt found it."""

    def __init__(self, source: PicturesByPrompt, alignment: Alignment) -> None:
        self._source, self._alignment = source, alignment
        self._known: dict[str, Float64 | None] = {}

    def best(self, text: Float64, ids: Sequence[str]) -> tuple[str, float, int]:
        """Return id and score of the picture nearest to a text, and among how many."""
        self._read([each for each in dict.fromkeys(ids) if each not in self._known])
        there = [(each, row) for each in ids if (row := self._known[each]) is not None]
        if not there:
            return "", math.nan, 0
        scores = np.array([float(np.clip(row @ text, -1.0, 1.0)) for _, row in there])
        at = int(np.argmax(scores))
        return there[at][0], float(scores[at]), len(there)

    def _read(self, ids: list[str]) -> None:
        source = self._source
        if not ids:
            return
        if isinstance(source, FolderByPrompt) and source.alignment == self._alignment.digest:
            # it has read them all by the same model
            self._known.update(zip(ids, source.vectors(ids), strict=True))
            return
        pictures = source.pictures(ids)
        seen = {each: one for each, one in zip(ids, pictures, strict=True) if one is not None}
        rows = self._alignment.images(list(seen.values())) if seen else ()
        self._known.update(dict.fromkeys(ids))
        self._known.update(zip(seen, rows, strict=True))
