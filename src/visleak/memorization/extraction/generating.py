"""Images of prompts: each made once, kept, and made in batches that never depend on a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.image_store import ImageStore, Stored, key_of
from visleak.memorization.model import Conditioning, DiffusionModel, Sampling
from visleak.pipeline.workplace import Progress, silent

#: What the step is called.
STEP: Final = "making images"


@dataclass(frozen=True, slots=True)
class Job:
    """An image that is wanted.

    Attributes:
        prompt: its text.
        seed: of its noise, and of whatever else is random about it.
    """

    prompt: str
    seed: int


class Maker(Protocol):
    """Makes images of jobs: by the model as it is, or with something done against replaying.

    Attributes:
        key: of all that its images depend on beside the model, the sampling, the prompt and the
            seed; ``""`` is the model as it is.
    """

    key: str

    def __call__(
        self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling
    ) -> npt.NDArray[np.uint8]:
        """Return one image per job, (n, height, width, 3), independent of its neighbours."""
        ...


class Plain:
    """The model as it is."""

    key = ""

    def __call__(
        self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling
    ) -> npt.NDArray[np.uint8]:
        """Encode the prompts and sample."""
        encoded = model.encode_prompt([job.prompt for job in jobs])
        return model.sample(encoded, [job.seed for job in jobs], sampling)


@dataclass(frozen=True)
class Conditioned:
    """The model with another conditioning of the jobs.

    Attributes:
        key: names the conditioning, with its settings.
        conditioning: from the model and jobs to one row of conditioning a job.
    """

    key: str
    conditioning: Callable[[DiffusionModel, Sequence[Job]], Conditioning]

    def __call__(
        self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling
    ) -> npt.NDArray[np.uint8]:
        """Make the conditioning and sample."""
        return model.sample(self.conditioning(model, jobs), [job.seed for job in jobs], sampling)


def seeds_of(seed: int, count: int, prompt: str | None = None) -> list[int]:
    """Return the seeds of a prompt's images.

    More images never change the seeds of those before. Without a prompt they are the same for
    all, so that prompts, and what is done against replaying, start from the same noises.

    Args:
        seed: whole number from 0.
        count: images.
        prompt: whose own seeds they are; ``None`` is those that all prompts share.

    Returns:
        Numbers below 2**31, distinct.

    >>> seeds_of(0, 2) == seeds_of(0, 3)[:2], seeds_of(0, 1) == seeds_of(0, 1, "a cat")
    (True, False)
    """
    made: dict[int, None] = {}
    number = 0
    while len(made) < count:
        text = f"{seed}:{number}" if prompt is None else f"{seed}:{number}:{prompt}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
        made.setdefault(int.from_bytes(digest) >> 1)
        number += 1
    return list(made)


def calls_of(images: int, sampling: Sampling) -> int:
    """Return the passes of the network that images cost: one per step, two with guidance (above 1).

    >>> calls_of(2, Sampling(steps=50, guidance=7.5)), calls_of(2, Sampling(steps=50, guidance=1))
    (200, 100)
    """
    return images * sampling.steps * (2 if sampling.guidance > 1 else 1)


def images_of(
    store: ImageStore,
    model: DiffusionModel,
    jobs: Sequence[Job],
    sampling: Sampling,
    *,
    maker: Maker | None = None,
    progress: Progress = silent,
) -> list[Stored]:
    """Return the images of jobs, and make those that are not there yet.

    Batches are cut from the whole list, whatever is there already, and always have
    ``sampling.batch`` rows, the last one filled up: so an image is the same, to the last bit,
    whether the run was killed in between or not.

    Args:
        store: where they are kept. Known is what has the same model, precision, steps, guidance,
            maker, prompt and seed; the size of a batch and the device, which change rounding
            only, do not count.
        model: makes them.
        jobs: one per image; the same job twice is made once.
        sampling: steps, guidance, images per batch.
        maker: what makes them of the model; the model as it is by default.
        progress: told how many are there.

    Raises:
        UsageError: the sampling cannot be.
        VisleakError: the model returned something that is no image, or the disk refuses.
    """
    refuse_sampling(sampling)
    made_by = maker or Plain()
    distinct = list(dict.fromkeys(jobs))
    keys = {job: key_of_job(model, job, sampling, made_by.key) for job in distinct}
    known = store.known(list(keys.values()))
    progress(STEP, len(known), len(distinct))
    for start in range(0, len(distinct), sampling.batch):
        batch = distinct[start : start + sampling.batch]
        missing = [job for job in batch if keys[job] not in known]
        if not missing:
            continue
        began = time.perf_counter()
        filled = [*batch, *[batch[-1]] * (sampling.batch - len(batch))]
        pixels = checked(made_by(model, filled, sampling), filled, model)[: len(batch)]
        rows = [batch.index(job) for job in missing]
        store.add(
            [keys[job] for job in missing],
            [job.prompt for job in missing],
            [job.seed for job in missing],
            pixels[rows],
            # what only filled the batch up, or was there already, took its share too
            (time.perf_counter() - began) * len(missing) / len(filled),
        )
        known.update(store.known([keys[job] for job in missing]))
        progress(STEP, len(known), len(distinct))
    return [known[keys[job]] for job in jobs]


def key_of_job(model: DiffusionModel, job: Job, sampling: Sampling, way: str = "") -> str:
    """Return the key of an image: all that it depends on."""
    how = (sampling.steps, float(sampling.guidance), way)
    return key_of([model.digest, model.precision], *how, job.prompt, job.seed)


def refuse_sampling(sampling: Sampling) -> None:
    """Refuse a sampling that cannot be.

    Raises:
        UsageError: it is so.
    """
    for name in ("steps", "batch"):
        if getattr(sampling, name) < 1:
            raise UsageError(f"{name} is at least 1; got {getattr(sampling, name)}")
    if not 0.0 <= sampling.guidance <= 1000.0:
        raise UsageError(f"guidance is 0 to 1,000 (MemBench: 7.5); got {sampling.guidance}")


def checked(
    pixels: npt.NDArray[np.uint8], jobs: Sequence[Job], model: DiffusionModel
) -> npt.NDArray[np.uint8]:
    """Return what a model made, if it is one image per job.

    Raises:
        VisleakError: it is something else.
    """
    good = pixels.ndim == 4 and pixels.shape[3] == 3 and pixels.dtype == np.uint8
    if not good or len(pixels) != len(jobs) or not pixels.size:
        raise VisleakError(
            f"model {model.name} returned an array {pixels.shape} of {pixels.dtype} for"
            f" {len(jobs)} prompts; it must be uint8 (prompts, height, width, 3)"
        )
    return pixels
