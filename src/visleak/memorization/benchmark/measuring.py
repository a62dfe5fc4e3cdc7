"""Measuring images that are there: similarity, CLIP score, aesthetic score; nothing twice.

Batches are cut from the whole list of a method's images, whatever is known already, so that a
number is the same, to the last bit, whether a run was killed in between or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.memorization.benchmark.measures import MeasureStore
from visleak.memorization.benchmark.numbers import Measured
from visleak.memorization.benchmark.plan import Judges
from visleak.memorization.benchmark.references import Reference, read_reference
from visleak.memorization.extraction.image_store import ImageStore, Stored, key_of
from visleak.memorization.metrics.aesthetic import Aesthetic
from visleak.memorization.metrics.alignment import Alignment, clip_scores
from visleak.memorization.metrics.copying import against_references
from visleak.records import Bytes8

Float64 = npt.NDArray[np.float64]

#: Images measured at a time; a kill costs as many.
CHUNK: Final = 32

#: What one batch of a kind of number is asked with: images, and their places in the list.
Asked = Callable[[Sequence[Bytes8], Sequence[int]], Float64]


class Shelf:
    """The memorized images of prompts, read when they are needed, one set of them held at a time.

    Args:
        files: by prompt.

    Raises:
        VisleakError: one cannot be read.
    """

    def __init__(self, files: Sequence[Sequence[Path]]) -> None:
        self._files = files
        read = {path: read_reference(path).digest for own in files for path in own}
        self.digests = tuple(tuple(read[path] for path in own) for own in files)
        self._held: tuple[tuple[str, ...], list[Reference]] = ((), [])

    def pictures(self, prompt: int) -> list[Bytes8]:
        """Return the pixels of a prompt's memorized images."""
        wanted = self.digests[prompt]
        if self._held[0] != wanted:
            held = [read_reference(path) for path in self._files[prompt]]
            if tuple(each.digest for each in held) != wanted:
                raise VisleakError(
                    f"the reference images of prompt {prompt + 1} changed while the benchmark ran;"
                    " run it again"
                )
            self._held = (wanted, held)
        return [each.pixels for each in self._held[1]]


@dataclass(frozen=True)
class Measuring:
    """What measures images.

    Attributes:
        images: where they are.
        values: what is known of them already.
        judges: by what they are judged.
        tell: told how many images more are measured, by each of the judges.
    """

    images: ImageStore
    values: MeasureStore
    judges: Judges
    tell: Callable[[int], None]

    def measured(
        self, made: Sequence[Stored], texts: Sequence[str], prompts: int, shelf: Shelf | None
    ) -> Measured:
        """Return what is to be known of the images of one method in one scenario.

        Args:
            made: prompt by prompt, the same number of each.
            texts: what the CLIP score of each image is against.
            prompts: how many.
            shelf: with the memorized images; ``None`` of ordinary prompts.
        """
        shape = (prompts, len(made) // prompts)
        digests = [each.digest for each in made]
        unknown = np.full(len(made), math.nan)
        clip = aesthetic = unknown
        if self.judges.alignment is not None:
            clip = self._clip(self.judges.alignment, digests, texts)
        if self.judges.aesthetic is not None:
            aesthetic = self._aesthetic(self.judges.aesthetic, digests)
        alike = unknown
        if shelf is not None:
            alike = self.similarity(digests, shape[1], shelf, range(prompts))
        rows = range(0, len(digests), shape[1])
        return Measured(
            similarity=alike.reshape(shape),
            clip=clip.reshape(shape),
            aesthetic=aesthetic.reshape(shape),
            seconds=np.array([each.seconds for each in made]).reshape(shape),
            digests=tuple(tuple(digests[row : row + shape[1]]) for row in rows),
        )

    def _clip(self, model: Alignment, digests: Sequence[str], texts: Sequence[str]) -> Float64:
        keys = [
            key_of("clip", 1, model.digest, digest, text)
            for digest, text in zip(digests, texts, strict=True)
        ]

        def scores(pictures: Sequence[Bytes8], at: Sequence[int]) -> Float64:
            return clip_scores(model, [texts[place] for place in at], pictures)

        return self._asked(keys, digests, scores)

    def _aesthetic(self, judge: Aesthetic, digests: Sequence[str]) -> Float64:
        keys = [key_of("aesthetic", 1, judge.digest, digest) for digest in digests]
        return self._asked(keys, digests, lambda pictures, _: judge(pictures))

    def similarity(
        self, digests: Sequence[str], images: int, shelf: Shelf, against_rows: Sequence[int]
    ) -> Float64:
        """Return similarities to memorized images; prompts of one set of them go together.

        Args:
            digests: of the images, prompt by prompt.
            images: a prompt.
            shelf: with the memorized images.
            against_rows: row of the shelf that each prompt's images are compared with.
        """
        similarity = self.judges.similarity
        found = np.full(len(digests), math.nan)
        prompts: dict[tuple[str, ...], list[int]] = {}
        for prompt, row in enumerate(against_rows):
            own = shelf.digests[row]
            if own:
                prompts.setdefault(own, []).append(prompt)
            else:
                self.tell(images)
        for own, rows in prompts.items():
            place_on_shelf = against_rows[rows[0]]
            places = [row * images + number for row in rows for number in range(images)]
            # the largest of them is meant, so that their order is none
            keys = [
                key_of("similarity", 1, self.judges.similarity_digest, digests[place], sorted(own))
                for place in places
            ]

            def against(
                pictures: Sequence[Bytes8], _: Sequence[int], row: int = place_on_shelf
            ) -> Float64:
                return against_references(similarity, pictures, shelf.pictures(row))

            found[places] = self._asked(keys, [digests[place] for place in places], against)
        return found

    def _asked(self, keys: Sequence[str], digests: Sequence[str], ask: Asked) -> Float64:
        """Return numbers by key, and measure those that are not known."""
        known = self.values.known(keys)
        for batch in _batches(len(keys)):
            missing = [place for place in batch if keys[place] not in known]
            if missing:
                values = ask([self.images.picture(digests[place]) for place in batch], batch)
                new = _checked(values, batch, keys)
                self.values.add({keys[place]: new[keys[place]] for place in missing})
                known |= self.values.known([keys[place] for place in missing])
            self.tell(len(batch))
        return np.array([known[key] for key in keys])


def _batches(count: int) -> Iterator[list[int]]:
    for start in range(0, count, CHUNK):
        yield list(range(start, min(start + CHUNK, count)))


def _checked(values: Float64, places: Sequence[int], keys: Sequence[str]) -> dict[str, float]:
    if np.shape(values) != (len(places),) or not np.isfinite(values).all():
        raise VisleakError(
            f"a measure returned {np.shape(values)} values for {len(places)} images, or one that is"
            " no finite number; take another model or precision"
        )
    return {keys[place]: float(value) for place, value in zip(places, values, strict=True)}
