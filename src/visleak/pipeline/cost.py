"""The cost of an audit before it starts: images, bytes, time by step, disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.cache import Cache
from visleak.encoders.builtin import flat
from visleak.encoders.local import MOST
from visleak.formats.files import chosen
from visleak.images import content_digest, decode
from visleak.pipeline.batches import forwarded
from visleak.pipeline.chunks import maker
from visleak.pipeline.local_features import MOST_REFERENCES
from visleak.pipeline.pair_cost import Sampled, pair_cost
from visleak.pipeline.run import couples
from visleak.pipeline.thresholds import Thresholds, thresholds_of
from visleak.quantities import counted, duration, size
from visleak.records import AnySet, Bytes8, DecodedImage, Encoder, ImageSet, Unreadable
from visleak.settings import Settings

#: Images of a set that are read and encoded for timing, and seconds after which no more are.
TIMED: Final = 256
PATIENCE: Final = 2.0
#: Files of a set whose size is read; of more files, a sample is extrapolated.
MEASURED: Final = 2_000
#: Bytes of one local feature: descriptor and keypoint.
FEATURE_BYTES: Final = 128 + 16
#: Steps after the fingerprints, in their order.
STEPS: Final = ("search", "local", "screening", "verification")
#: Bytes of a cache entry in addition to its value: keys, facts, pages that are not full.
ENTRY_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an audit. All times and numbers of pairs are estimates from a sample."""

    images: int  # to read
    embeddings: int  # vectors made elsewhere, to read
    bytes: int | None  # of the images' files; None where they are not known, as in a stream
    seconds: float | None  # of all steps together. None if no tried image could be read
    # seconds by step: fingerprint (to read, decode and encode the images, less what the cache
    # holds), search, local, screening, verification
    steps: Mapping[str, float]
    candidates: int  # pairs to screen
    verified: int  # pairs that pass the screen, to verify in full
    timed: int  # images that were timed
    timed_pairs: int  # pairs that were timed
    processes: int  # of the run
    scratch: int  # bytes in the output folder during the run, at least
    cache: int  # bytes added to the cache, at most

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def cost_of(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
    encoder: Encoder,
    settings: Settings,
    processes: int,
    cache: Cache | None,
    thresholds: Thresholds | None = None,
) -> Cost:
    """Return the cost of an audit, estimated from a sample of its images and of their pairs."""
    sets = {images.name: images for images in (*references, *queries)}
    tested = {images.name for images in queries}
    counts = {
        images.name: min(settings.sample or len(images), len(images))
        if images in queries
        else len(images)
        for images in sets.values()
    }
    read = [images for images in sets.values() if isinstance(images, ImageSet)]
    count = sum(counts[images.name] for images in read)
    stored = [bytes_of(images) for images in read]
    seconds, timed = 0.0, 0
    samples = {name: Sampled(None, n, streamed=name not in tested) for name, n in counts.items()}
    for images in read:
        sample = _timed(images, encoder, cache)
        timed += sample.images
        seconds += counts[images.name] * sample.each(processes)
        samples[images.name] = Sampled(sample.as_set(images), counts[images.name])
    limits = thresholds or thresholds_of(encoder, settings)
    names = couples(queries, references, settings)
    pairs = pair_cost(samples, names, encoder, replace(settings, sample=0), limits)
    steps = {
        "fingerprint": seconds,
        **{name: getattr(pairs, name) / processes for name in STEPS},
    }
    features = 0
    if settings.local and settings.candidates != "nearest":
        features = sum(n for n in counts.values() if n <= MOST_REFERENCES) * MOST * FEATURE_BYTES
    vectors = count * encoder.width * 4
    return Cost(
        images=count,
        embeddings=sum(counts.values()) - count,
        bytes=None
        if None in stored
        else sum(
            round((size or 0) * counts[images.name] / max(1, len(images)))
            for size, images in zip(stored, read, strict=True)
        ),
        seconds=sum(steps.values()) if timed else None,
        steps=steps,
        candidates=round(pairs.candidates),
        verified=round(pairs.verified),
        timed=timed,
        timed_pairs=pairs.timed,
        processes=processes,
        scratch=vectors + features,
        cache=0 if cache is None else vectors + features + 2 * count * ENTRY_BYTES,
    )


@dataclass(frozen=True, slots=True)
class _ReadOpener:
    """The opener of images that were read already."""

    stored: Mapping[int, bytes | Bytes8]

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        yield from (self.stored[int(position)] for position in positions)


@dataclass(slots=True)
class _Timing:
    """Some images and their seconds: to read, to prepare, to encode in one process."""

    images: int = 0
    stored: dict[int, bytes | Bytes8] = field(default_factory=dict)
    read: float = 0.0
    prepare: float = 0.0
    network: float = 0.0

    def as_set(self, images: ImageSet) -> ImageSet:
        """Return images from all over the set, as many as can be encoded in a few seconds."""
        most = max(8, int(PATIENCE / max(self.each(1), 1e-6)))
        positions = np.array(sorted(self.stored), np.int64)
        if len(positions) > most:
            positions = positions[np.linspace(0, len(positions) - 1, most).astype(np.int64)]
        return chosen(replace(images, opener=_ReadOpener(self.stored)), positions, images.name)

    def each(self, processes: int) -> float:
        """Return the seconds per image with a number of processes."""
        spread, alone = (self.read + self.prepare) / processes, self.network
        # a network computes one batch while the next ones are prepared
        whole = max(spread, alone) if processes > 1 else spread + alone
        return whole / max(1, self.images)


def _timed(images: ImageSet, encoder: Encoder, cache: Cache | None) -> _Timing:
    """Time some images; those in the cache are only read."""
    found = _Timing()
    fresh: list[DecodedImage] = []
    began = last = time.perf_counter()
    positions = _chosen(images)
    for position, data in zip(positions, images.opener.read(positions), strict=False):
        if not isinstance(data, Unreadable):
            digest = content_digest(data)
            known = cache is not None and digest in cache.get(maker(encoder), [digest])
            now = time.perf_counter()
            found.images += 1
            found.stored[position] = data
            found.read += now - last
            image = None if known else decode(data, enough=encoder.enough)
            found.prepare += time.perf_counter() - now
            if isinstance(image, DecodedImage):
                fresh.append(image)
        last = time.perf_counter()
        if last - began > PATIENCE:
            break
    if fresh:
        _encode(encoder, fresh, found)
    return found


def _encode(encoder: Any, images: Sequence[DecodedImage], found: _Timing) -> None:
    start = time.perf_counter()
    if not hasattr(encoder, "forward"):
        encoder.encode(images)
        found.prepare += time.perf_counter() - start
        return
    prepared = [encoder.preparation(image) for image in images]
    flat(images)
    found.prepare += time.perf_counter() - start
    # the first call of a network is slower than all others
    forwarded(encoder, prepared[:1])
    start = time.perf_counter()
    edges = [*range(0, len(prepared), encoder.batch), len(prepared)]
    for begin, end in pairwise(edges):
        forwarded(encoder, prepared[begin:end])
        if time.perf_counter() - start > PATIENCE:
            found.network += (time.perf_counter() - start) * len(prepared) / end
            return
    found.network += time.perf_counter() - start


def _chosen(images: ImageSet) -> list[int]:
    """Return the positions to time: spread over a set of files, otherwise the first ones.

    Reading an image in a stream includes reading all images before it.
    """
    count = min(TIMED, len(images))
    if len(_files(images)) < len(images):
        return list(range(count))
    return sorted({int(at) for at in np.linspace(0, len(images) - 1, count)})


def _files(images: ImageSet) -> pa.Array:
    """Return the files of a set; a locator inside one is FILE!MEMBER."""
    return pc.unique(pc.list_element(pc.split_pattern(images.locators, "!", max_splits=1), 0))


def bytes_of(images: ImageSet) -> int | None:
    """Return the bytes of the files of a set, ``None`` if they are not local files.

    Of many files a sample is measured.
    """
    files = _files(images)
    step = max(1, len(files) // MEASURED)
    sizes = []
    for file in files[::step].to_pylist():
        try:
            sizes.append(os.stat(file).st_size)
        except (OSError, ValueError):
            continue
    return round(sum(sizes) * len(files) / len(sizes)) if sizes else None


#: Steps of an audit in words.
STEP_NAMES: Final = {
    "fingerprint": "reading and encoding",
    "search": "search",
    "local": "local features",
    "screening": "screening of {candidates:,} pairs",
    "verification": "verification of {verified:,} pairs",
}


def describe(cost: Cost) -> str:
    """Return a cost as one line."""
    parts = [f"{cost.images:,} images"]
    if cost.bytes is not None:
        parts[0] += f" ({size(cost.bytes)})"
    if cost.embeddings:
        parts.append(f"{cost.embeddings:,} embeddings")
    if cost.seconds is not None and cost.images:
        processes = counted(cost.processes, "process")
        steps = ", ".join(
            f"{duration(seconds)} {STEP_NAMES[name].format(**cost.as_dict())}"
            for name, seconds in cost.steps.items()
        )
        parts.append(
            f"about {duration(max(1.0, cost.seconds))} with {processes}: {steps} (estimated from"
            f" {cost.timed:,} images and {cost.timed_pairs:,} pairs)"
        )
    disk = f"at least {size(cost.scratch)} of scratch"
    if cost.cache:
        disk += f", up to {size(cost.cache)} of cache"
    return "; ".join([*parts, disk])
