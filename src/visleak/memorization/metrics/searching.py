"""Searching a set of pictures by words: CLIP retrieval over any SOURCE."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.auditing import open_cache, workers_for
from visleak.errors import UsageError, VisleakError
from visleak.images import decode, open_pictures
from visleak.memorization.metrics.alignment import ClipAlignment, unit
from visleak.memorization.tracing.sources import PromptSource
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.workplace import Progress, Workplace, silent
from visleak.records import Bytes8, ImageSet, Picture

Float64 = npt.NDArray[np.float64]

#: Pictures that texts are compared with at a time; only bounds memory.
BLOCK: Final = 8_192

#: Decimals to which cosines are compared: what is equal to them is a tie.
TIES: Final = 12


class PicturesByPrompt(PromptSource, Protocol):
    """A search by words that hands over the pictures that it finds."""

    def about(self) -> dict[str, object]:
        """Return everything a result has to name, as plain data."""
        ...

    def pictures(self, ids: Sequence[str]) -> Sequence[Bytes8 | None]:
        """Return the pictures of some ids, ``None`` where one cannot be had."""
        ...


class FolderByPrompt:
    """A set of pictures that is searched by words: nearest by CLIP, the best first.

    Reading a set takes as long as an audit's fingerprints do; vectors are kept in the cache.

    Args:
        source: a SOURCE, such as a folder, or an opened set.
        alignment: its texts search, its encoder reads the pictures.
        workers: processes that decode; by default one for each core where there is much to read.
        cache: folder for vectors; ``None`` for none.
        progress: is told how far it is.

    Attributes:
        name: of the source.
        alignment: digest of the model.
        problems: pictures that could not be read.

    Raises:
        UsageError: there is no such source, or it has no pictures.
        VisleakError: none can be read.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | ImageSet,
        alignment: ClipAlignment,
        *,
        workers: int | None = None,
        cache: str | os.PathLike[str] | None = "default",
        progress: Progress = silent,
    ) -> None:
        images = open_pictures(source)
        self._images, self._texts = images, alignment.texts
        self.name = images.source or images.name
        self.alignment = alignment.digest
        with (
            open_cache(cache) as store,
            Workplace.at(None, workers_for(len(images), workers), store, progress) as place,
        ):
            prints = fingerprint(images, alignment.encoder, place)
            # the rows lie in a scratch folder that ends with the workplace
            self._matrix = np.array(prints.matrix)
        self.problems = (*images.problems, *prints.problems)
        if not len(prints):
            first = f", such as {self.problems[0].id!r}" if self.problems else ""
            raise VisleakError(f"none of the pictures of {self.name} can be read{first}")
        self._ids = prints.ids.to_pylist()
        # what it finds depends on its pictures: a folder of one name and size may have others
        hasher = blake2b(json.dumps(self._ids).encode(), digest_size=16)
        for start in range(0, len(self._matrix), BLOCK):
            hasher.update(self._matrix[start : start + BLOCK].tobytes())
        self._digest = hasher.hexdigest()
        self._rows = dict(zip(self._ids, range(len(self._ids)), strict=True))
        self._positions = prints.rows

    def about(self) -> dict[str, object]:
        """Return source, sizes, model, and a digest of names and vectors."""
        return {
            "source": self.name,
            "pictures": len(self._ids),
            "unreadable": len(self.problems),
            "alignment": self.alignment,
            "digest": self._digest,
        }

    def find_by_prompt(self, prompts: Sequence[str], count: int) -> list[list[str]]:
        """Return the ids of the ``count`` nearest pictures a prompt; ties go by place in the set.

        Raises:
            UsageError: ``count`` is below 1.
        """
        if count < 1:
            raise UsageError(f"count is 1 or more (MemBench: 100); got {count}")
        if not len(prompts):
            return []
        texts = self._texts(prompts)
        scores, rows = np.empty((len(texts), 0)), np.empty((len(texts), 0), np.int64)
        for start in range(0, len(self._matrix), BLOCK):
            # products of equal vectors differ in their last digits with the width of a block
            block = np.round(texts @ unit(self._matrix[start : start + BLOCK]).T, TIES)
            numbers = np.broadcast_to(start + np.arange(block.shape[1]), block.shape)
            scores, rows = np.hstack([scores, block]), np.hstack([rows, numbers])
            best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
            scores = np.take_along_axis(scores, best, axis=1)
            rows = np.take_along_axis(rows, best, axis=1)
        return [[self._ids[row] for row in found] for found in rows.tolist()]

    def vectors(self, ids: Sequence[str]) -> Float64:
        """Return the vectors that the model made of some pictures (n, width), unit rows."""
        return unit(self._matrix[[self._rows[each] for each in ids]])

    def pictures(self, ids: Sequence[str]) -> list[Bytes8 | None]:
        """Return some pictures, ``None`` where one can no longer be read."""
        rows = np.unique([self._rows[each] for each in ids]).astype(np.int64)
        stored = self._images.opener.read(self._positions[rows].tolist())
        found: dict[str, Bytes8 | None] = {}
        for row, data in zip(rows.tolist(), stored, strict=True):
            seen = data if not isinstance(data, bytes | np.ndarray) else decode(data)
            found[self._ids[row]] = seen.pixels if isinstance(seen, Picture) else None
        return [found[each] for each in ids]
