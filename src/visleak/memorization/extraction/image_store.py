"""Generated images on disk: PNG files named by their content, and what each was made of.

An image is stored once, whatever asks for it, and never made again: the index knows it by all
that it depends on. A batch is in the index as a whole or not at all, after its files are on disk,
so that a kill costs one batch, and what a later run makes is what this one would have made.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.errors import VisleakError
from visleak.images import content_digest, decode
from visleak.records import Bytes8, Unreadable
from visleak.storage import KeyValueStore

#: The index, and the folder of the pictures.
INDEX: Final = "images.sqlite"
PICTURES: Final = "images"

#: Similarities of images that were computed.
SIMILARITIES: Final = "similarities.sqlite"


@dataclass(frozen=True, slots=True)
class Stored:
    """An image on disk.

    Attributes:
        prompt: that made it.
        seed: of its noise.
        digest: BLAKE2b-128 of the file's bytes, hexadecimal: the content digest of an audit.
        seconds: its share of the time its batch took when it was made.
    """

    prompt: str
    seed: int
    digest: str
    seconds: float

    @property
    def path(self) -> str:
        """Where the file lies, relative to the store's folder."""
        return path_of(self.digest)


def path_of(digest: str) -> str:
    """Return the file of a content, relative to the store's folder.

    >>> path_of("abcdef")
    'images/ab/abcdef.png'
    """
    return f"{PICTURES}/{digest[:2]}/{digest}.png"


def key_of(*parts: object) -> str:
    """Return the digest of plain data, hexadecimal."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _is_there(path: Path) -> bool:
    """Whether a file is there, and not empty as after a power cut."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


class ImageStore:
    """A folder of generated images. A context manager.

    Args:
        folder: made if need be. Several processes may use it at once: who is first is kept.

    Raises:
        VisleakError: the folder cannot be made, or its index cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index = KeyValueStore(folder / INDEX, "images")
        self._matrices = KeyValueStore(folder / SIMILARITIES, "similarities")

    def known(self, keys: Sequence[str]) -> dict[str, Stored]:
        """Return the images that are there, by key; what lost its file is not there."""
        found = {key: Stored(*json.loads(value)) for key, value in self._index.known(keys).items()}
        return {key: each for key, each in found.items() if _is_there(self.folder / each.path)}

    def add(
        self,
        keys: Sequence[str],
        prompts: Sequence[str],
        seeds: Sequence[int],
        pixels: npt.NDArray[np.uint8],
        seconds: float,
    ) -> None:
        """Keep a batch: its files first, then all of its entries at once.

        Args:
            keys, prompts, seeds: one per image.
            pixels: (n, height, width, 3).
            seconds: that these images took.

        Raises:
            VisleakError: the disk refuses.
        """
        digests = [self._written(each) for each in pixels]
        share = seconds / max(1, len(keys))
        entries = zip(keys, prompts, seeds, digests, strict=True)
        values = {key: json.dumps([*entry, share]) for key, *entry in entries}
        # an entry without its file is made again, and may then differ by rounding
        self._index.add(values, replace=True)

    def _written(self, pixels: Bytes8) -> str:
        """Write a picture unless it is there, and return its digest."""
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        digest = content_digest(out.getvalue()).hex()
        path = self.folder / path_of(digest)
        if _is_there(path):
            return digest
        # beside the folders of the pictures, where the next run looks for what a kill left; not
        # flushed one by one, which takes longer than small pictures do: what a power cut left of
        # a file is seen by its digest
        beside = self.folder / f".{digest}.png.{os.getpid()}.part"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(out.getvalue())
            os.replace(beside, path)
        except OSError as error:
            raise VisleakError(f"{path} cannot be written ({error.strerror})") from error
        finally:
            beside.unlink(missing_ok=True)
        return digest

    def picture(self, digest: str) -> Bytes8:
        """Return the pixels of an image, (height, width, 3).

        Raises:
            VisleakError: its file is not there, or is not what was written.
        """
        path = self.folder / path_of(digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise VisleakError(
                f"{path} cannot be read ({error.strerror}); run the same command again to"
                " generate it"
            ) from error
        seen = decode(data)
        if content_digest(data).hex() != digest or isinstance(seen, Unreadable):
            raise VisleakError(
                f"{path} is damaged: its content is not what its name says; delete it and run the"
                " same command again"
            )
        return seen.pixels

    # -- similarities that were computed ---------------------------------------------------------

    def alike(self, key: str, count: int) -> npt.NDArray[np.float32] | None:
        """Return the kept similarities (n, n) under a key, ``None`` where there are none."""
        data = self._matrices.known([key]).get(key)
        if data is None:
            return None
        values = np.frombuffer(data, "<f4")
        across, down = np.triu_indices(count, 1)
        if len(values) != len(across):
            return None
        matrix = np.eye(count, dtype=np.float32)
        matrix[across, down] = matrix[down, across] = values
        return matrix

    def keep_alike(self, key: str, matrix: npt.NDArray[np.floating]) -> None:
        """Keep similarities (n, n), symmetric with ones on the diagonal."""
        values = matrix[np.triu_indices(len(matrix), 1)].astype("<f4").tobytes()
        self._matrices.add({key: values}, replace=True)

    def close(self) -> None:
        """Let go of the files."""
        self._index.close()
        self._matrices.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
