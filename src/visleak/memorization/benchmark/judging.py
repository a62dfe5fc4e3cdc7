"""A set of real images that the images of a method are compared with as a set (table 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.images import content_digest, decode
from visleak.memorization.benchmark.measures import MeasureStore
from visleak.memorization.benchmark.records import Distance
from visleak.memorization.extraction.image_store import key_of
from visleak.memorization.metrics.distances import frechet_distance, kernel_distance
from visleak.memorization.metrics.features import PictureFeatures
from visleak.pipeline.workplace import Progress, silent
from visleak.records import Bytes8, ImageSet, Unreadable
from visleak.store import replacing

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

#: Pictures read at a time; only bounds memory.
CHUNK: Final = 64

#: The numbers of a distance, as they are kept.
_NAMES: Final = ("frechet", "kernel", "kernel_low", "kernel_high")

_STEP: Final = "reading real images"


class RealImages:
    """Real images, and the network by whose features sets are compared.

    Args:
        images: the set; what cannot be read is left out and counted.
        features: from pictures to vectors.
        progress: told how many pictures are read.

    Raises:
        VisleakError: fewer than two pictures can be read.
    """

    def __init__(
        self, images: ImageSet, features: PictureFeatures, progress: Progress = silent
    ) -> None:
        self._images, self.features, self._progress = images, features, progress
        self.name = images.source or images.name
        hasher, self.count = blake2b(digest_size=16), 0
        for data in self._stored():
            hasher.update(content_digest(data))
            self.count += 1
        self.unreadable = len(images.ids) - self.count
        if self.count < 2:
            raise VisleakError(
                f"a distance needs at least 2 real images; {self.name} has {self.count} that can be"
                " read"
            )
        self.digest = key_of("real", hasher.hexdigest(), features.digest)

    def about(self) -> dict[str, Any]:
        """Return what a result has to name, as plain data."""
        return {
            "name": self.name,
            "images": self.count,
            "unreadable": self.unreadable,
            "features": self.features.name,
            "number": self.features.number,
            "digest": self.digest,
        }

    def distance(
        self,
        digests: Sequence[str],
        groups: Int64,
        picture: Callable[[str], Bytes8],
        values: MeasureStore,
        folder: Path,
    ) -> Distance:
        """Return how far generated images are from these as a set.

        Args:
            digests: of the generated images.
            groups: (n,): images of one group resemble each other.
            picture: returns the pixels of an image by its digest.
            values: what is known already.
            folder: where the features of the real images are kept.
        """
        key = key_of("distance", 1, self.digest, list(digests), groups.tolist())
        keys = {name: f"{key} {name}" for name in _NAMES}
        known = values.known(list(keys.values()))
        # an end of an interval that is not known is not kept
        if keys["kernel"] not in known:
            made = self._vectors(digests, picture)
            real = self._real(folder)
            kernel = kernel_distance(made, real, groups)
            found = {
                "kernel_low": kernel.low,
                "kernel_high": kernel.high,
                "frechet": frechet_distance(made, real),
                "kernel": kernel.value,
            }
            values.add({keys[name]: value for name, value in found.items() if np.isfinite(value)})
            known = values.known(list(keys.values()))
        numbers = {name: known.get(keys[name], float("nan")) for name in _NAMES}
        return Distance(**numbers, images=len(digests), against=self.count)

    def _vectors(self, digests: Sequence[str], picture: Callable[[str], Bytes8]) -> Float64:
        parts = []
        for start in range(0, len(digests), CHUNK):
            parts.append(self.features.images([picture(d) for d in digests[start : start + CHUNK]]))
        return np.concatenate(parts)

    def _real(self, folder: Path) -> Float64:
        """Return the features of the real images, made once a folder."""
        path = folder / f"real-{self.digest}.npy"
        try:
            held: Float64 = np.load(path, allow_pickle=False)
            if held.shape == (self.count, self.features.width):
                return held
        except (OSError, ValueError, EOFError):
            pass  # not there, or half of it: made anew
        made = np.concatenate(list(self._read()))
        with replacing(path) as beside, beside.open("wb") as file:
            np.save(file, made)
        return made

    def _read(self) -> Iterator[Float64]:
        held: list[Bytes8] = []
        for number, data in enumerate(self._stored(), 1):
            seen = decode(data)
            if not isinstance(seen, Unreadable):
                held.append(seen.pixels)
            if len(held) == CHUNK or number == self.count:
                yield self.features.images(held)
                held = []
            self._progress(_STEP, number, self.count)

    def _stored(self) -> Iterator[bytes | Bytes8]:
        """Yield what is stored of every picture that can be decoded."""
        for data in self._images.opener.read(range(len(self._images.ids))):
            if not isinstance(data, Unreadable) and not isinstance(decode(data), Unreadable):
                yield data
