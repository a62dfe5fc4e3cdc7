"""Generated images: PNG files named by their content, and what each was made of; each made once.

An image is stored once, under a key of all that it depends on, and is never made again. A batch
enters the index as a whole, after its files are on disk: an interrupted run loses one batch at
most, and a later run makes the same images.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.diffusion.model import DiffusionModel, Sampling
from visleak.documents import digest_of
from visleak.errors import VisleakError
from visleak.images import content_digest, decode
from visleak.progress import Progress, silent
from visleak.records import Bytes8, Float32, Unreadable
from visleak.storage import KeyValueStore

#: The index, and the folder of the images.
INDEX: Final = "images.sqlite"
FOLDER: Final = "images"
#: Similarities of images that were computed.
SIMILARITIES: Final = "similarities.sqlite"


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image on disk."""

    prompt: str
    seed: int  #: of its noise
    digest: str  #: BLAKE2b-128 of the file's bytes, hexadecimal: the content digest of an audit
    seconds: float  #: its share of the time its batch took when it was made

    @property
    def path(self) -> str:
        """Path of the file, relative to the store's folder."""
        return path_of(self.digest)


def path_of(digest: str) -> str:
    """Return the file of a content, relative to the store's folder."""
    return f"{FOLDER}/{digest[:2]}/{digest}.png"


def _is_there(path: Path) -> bool:
    """Whether a file is there, and not empty as after a power cut."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


class ImageStore:
    """A folder of generated images. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index = KeyValueStore(folder / INDEX, "images")
        self._matrices = KeyValueStore(folder / SIMILARITIES, "similarities")

    def known(self, keys: Sequence[str]) -> dict[str, StoredImage]:
        """Return the images that are there, by key; what lost its file is not there."""
        found = {
            key: StoredImage(*json.loads(value)) for key, value in self._index.known(keys).items()
        }
        return {key: each for key, each in found.items() if _is_there(self.folder / each.path)}

    def add(
        self, keys: Sequence[str], jobs: Sequence[Job], pixels: Iterable[Bytes8], seconds: float
    ) -> None:
        """Keep images (height, width, 3) that took some seconds: files, then entries at once."""
        share = seconds / max(1, len(keys))
        entries = zip(keys, jobs, map(self._written, pixels), strict=True)
        values = {
            key: json.dumps([job.prompt, job.seed, digest, share]) for key, job, digest in entries
        }
        # an entry without its file is made again, and may then differ by rounding
        self._index.add(values, replace=True)

    def _written(self, pixels: Bytes8) -> str:
        """Write an image unless it is there, and return its digest."""
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        digest = content_digest(out.getvalue()).hex()
        path = self.folder / path_of(digest)
        if _is_there(path):
            return digest
        # in the folder from which the next run removes what a killed one left; not flushed, which
        # takes longer than a small image: a file damaged by a power cut has another digest
        part = self.folder / f".{digest}.png.{os.getpid()}.part"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(out.getvalue())
            os.replace(part, path)
        except OSError as error:
            raise VisleakError(f"{path} cannot be written ({error.strerror})") from error
        finally:
            part.unlink(missing_ok=True)
        return digest

    def pixels(self, digest: str) -> Bytes8:
        """Return the pixels of an image, (height, width, 3)."""
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
                f"{path} is damaged: its content does not match its name; delete it and run the"
                " same command again"
            )
        return seen.pixels

    # -- similarities that were computed ---------------------------------------------------------

    def similarities(self, key: str, count: int) -> Float32 | None:
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

    def keep_similarities(self, key: str, matrix: npt.NDArray[np.floating]) -> None:
        """Keep similarities (n, n), symmetric with ones on the diagonal."""
        values = matrix[np.triu_indices(len(matrix), 1)].astype("<f4").tobytes()
        self._matrices.add({key: values}, replace=True)

    def close(self) -> None:
        """Close the files."""
        self._index.close()
        self._matrices.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: What the step is called.
STEP: Final = "making images"


@dataclass(frozen=True, slots=True)
class Job:
    """An image to make."""

    prompt: str
    seed: int  #: of its noise, and of all else that is random about it


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes images of jobs: by the model as it is, or with something done against memorization."""

    key: str  #: all that images depend on in addition to model, sampling, prompt and seed
    #: one image per job, (n, height, width, 3), independent of its neighbours
    make: Callable[[DiffusionModel, Sequence[Job], Sampling], Bytes8]

    def __call__(self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling) -> Bytes8:
        """Return one image per job."""
        return self.make(model, jobs, sampling)


def plain_images(model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling) -> Bytes8:
    """Return the images of the model as it is."""
    encoded = model.encode_prompt([job.prompt for job in jobs])
    return model.sample(encoded, [job.seed for job in jobs], sampling)


PLAIN: Final = Maker("", plain_images)


def seeds_of(seed: int, count: int, prompt: str | None = None) -> list[int]:
    """Return the seeds of a prompt's images: more images, or prompts, never change those before."""
    made: dict[int, None] = {}
    number = 0
    while len(made) < count:
        text = f"{seed}:{number}" if prompt is None else f"{seed}:{number}:{prompt}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
        made.setdefault(int.from_bytes(digest) >> 1)
        number += 1
    return list(made)


def calls_of(images: int, sampling: Sampling) -> int:
    """Return the passes of the network that images cost: two per step with guidance above 1."""
    return images * sampling.steps * (2 if sampling.guidance > 1 else 1)


def images_of(
    store: ImageStore,
    model: DiffusionModel,
    jobs: Sequence[Job],
    sampling: Sampling,
    *,
    maker: Maker = PLAIN,
    progress: Progress = silent,
) -> list[StoredImage]:
    """Return the images of jobs, and make those that are not there yet.

    Batches are cut from the whole list, known images included, and always have ``sampling.batch``
    rows, the last one filled up: an interrupted run ends with the same images, bit for bit.
    """
    distinct = list(dict.fromkeys(jobs))
    # all that an image depends on
    made_by = ([model.digest, model.precision], sampling.steps, float(sampling.guidance), maker.key)
    keys = {job: digest_of([*made_by, job.prompt, job.seed]) for job in distinct}
    known = store.known(list(keys.values()))
    progress(STEP, len(known), len(distinct))
    for start in range(0, len(distinct), sampling.batch):
        batch = distinct[start : start + sampling.batch]
        missing = [job for job in batch if keys[job] not in known]
        if not missing:
            continue
        began = time.perf_counter()
        filled = [*batch, *[batch[-1]] * (sampling.batch - len(batch))]
        pixels = maker(model, filled, sampling)
        good = pixels.ndim == 4 and pixels.shape[3] == 3 and pixels.dtype == np.uint8
        if not good or len(pixels) != len(filled) or not pixels.size:
            raise VisleakError(
                f"model {model.name} returned an array {pixels.shape} of {pixels.dtype} for"
                f" {len(filled)} prompts; it must be uint8 (prompts, height, width, 3)"
            )
        # what only filled the batch up, or was there already, took its share too
        seconds = (time.perf_counter() - began) * len(missing) / len(filled)
        new = [keys[job] for job in missing]
        store.add(new, missing, (pixels[batch.index(job)] for job in missing), seconds)
        known.update(store.known(new))
        progress(STEP, len(known), len(distinct))
    return [known[keys[job]] for job in jobs]
