"""What an audit will cost, before it starts: images, bytes, time by step, disk."""

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
from visleak.encoders.flatness import flat
from visleak.encoders.local import MOST
from visleak.images import content_digest, decode
from visleak.images.choosing import chosen
from visleak.pipeline.batches import forwarded
from visleak.pipeline.chunks import maker
from visleak.pipeline.local_features import MOST_REFERENCES
from visleak.pipeline.pair_cost import Sampled, pair_cost
from visleak.pipeline.thresholds import Thresholds, thresholds_of
from visleak.quantities import counted, duration, size
from visleak.records import AnySet, Bytes8, DecodedImage, Encoder, ImageSet, Unreadable
from visleak.settings import Settings

#: Images of a set that are read and encoded to be timed, and seconds after which no more are.
TIMED: Final = 256
PATIENCE: Final = 2.0

#: Files of a set that are asked for their size; where there are more, the rest is taken for alike.
ASKED: Final = 2_000

#: Bytes of one local feature: descriptor and keypoint.
FEATURE_BYTES: Final = 128 + 16

#: Steps after the fingerprints, in their order.
STEPS: Final = ("search", "local", "screening", "verification")

#: Bytes a cache entry takes beside its value: keys, facts, pages that are not full.
ENTRY_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """What an audit will cost. All times and numbers of pairs are estimates from a sample.

    Attributes:
        images: to read.
        embeddings: vectors made elsewhere, to read.
        bytes: of the images' files; ``None`` where they cannot be asked, as in a stream.
        seconds: of all steps together. ``None`` where no image that was tried could be read.
        steps: seconds by step: ``fingerprint`` (to read, decode and encode the images, less what
            the cache holds), ``search``, ``local``, ``screening``, ``verification``.
        candidates: pairs to screen.
        verified: pairs to verify in full, because the screening keeps them.
        timed: images that were timed.
        timed_pairs: pairs that were timed.
        processes: that work on it.
        scratch: bytes in the output folder while it runs, at least.
        cache: bytes added to the cache, at most.
    """

    images: int
    embeddings: int
    bytes: int | None
    seconds: float | None
    steps: Mapping[str, float]
    candidates: int
    verified: int
    timed: int
    timed_pairs: int
    processes: int
    scratch: int
    cache: int

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
    """Return what an audit will cost, from a sample of its images and of their pairs.

    Args:
        queries, references, encoder, settings: of the audit.
        processes: that will work on it.
        cache: that it will use; only fingerprints are looked up in it.
        thresholds: of the degrees; by default as settings and encoder say.
    """
    sets = {images.name: images for images in (*references, *queries)}
    tested = {images.name for images in queries}
    asked = {
        images.name: min(settings.sample or len(images), len(images))
        if images in queries
        else len(images)
        for images in sets.values()
    }
    read = [images for images in sets.values() if isinstance(images, ImageSet)]
    count = sum(asked[images.name] for images in read)
    stored = [bytes_of(images) for images in read]
    seconds, timed = 0.0, 0
    samples = {name: Sampled(None, n, passes=name not in tested) for name, n in asked.items()}
    for images in read:
        handful = _timed(images, encoder, cache)
        timed += handful.pictures
        seconds += asked[images.name] * handful.each(processes)
        samples[images.name] = Sampled(handful.sample(images), asked[images.name])
    couples = [(q.name, r.name) for q in queries for r in references if q.name != r.name]
    if settings.within and not settings.sample:
        couples += [(q.name, q.name) for q in queries]
    limits = thresholds or thresholds_of(encoder, settings)
    pairs = pair_cost(samples, couples, encoder, replace(settings, sample=0), limits)
    steps = {
        "fingerprint": seconds,
        **{name: getattr(pairs, name) / processes for name in STEPS},
    }
    features = 0
    if settings.local and settings.candidates != "nearest":
        features = sum(n for n in asked.values() if n <= MOST_REFERENCES) * MOST * FEATURE_BYTES
    vectors = count * encoder.width * 4
    return Cost(
        images=count,
        embeddings=sum(asked.values()) - count,
        bytes=None
        if None in stored
        else sum(
            round((size or 0) * asked[images.name] / max(1, len(images)))
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
class _Held:
    """The opener of images that were read already."""

    stored: Mapping[int, bytes | Bytes8]

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield what is stored, see :class:`visleak.records.Opener`."""
        yield from (self.stored[int(position)] for position in positions)


@dataclass(slots=True)
class _Handful:
    """Seconds that some pictures took: to read, to make ready, to encode in one place."""

    pictures: int = 0
    stored: dict[int, bytes | Bytes8] = field(default_factory=dict)
    read: float = 0.0
    ready: float = 0.0
    network: float = 0.0

    def sample(self, images: ImageSet) -> ImageSet:
        """Return the images as a set of its own: as many, all over the set, as are soon encoded."""
        most = max(8, int(PATIENCE / max(self.each(1), 1e-6)))
        positions = np.array(sorted(self.stored), np.int64)
        if len(positions) > most:
            positions = positions[np.linspace(0, len(positions) - 1, most).astype(np.int64)]
        return chosen(replace(images, opener=_Held(self.stored)), positions, images.name)

    def each(self, processes: int) -> float:
        """Return the seconds a picture takes where so many processes work on it."""
        spread, alone = (self.read + self.ready) / processes, self.network
        # a network works on one batch while the next ones are made ready
        whole = max(spread, alone) if processes > 1 else spread + alone
        return whole / max(1, self.pictures)


def _timed(images: ImageSet, encoder: Encoder, cache: Cache | None) -> _Handful:
    """Time a handful of pictures; those that the cache knows take reading only."""
    found = _Handful()
    fresh: list[DecodedImage] = []
    began = last = time.perf_counter()
    positions = _chosen(images)
    for position, data in zip(positions, images.opener.read(positions), strict=False):
        if not isinstance(data, Unreadable):
            digest = content_digest(data)
            known = cache is not None and digest in cache.get(maker(encoder), [digest])
            now = time.perf_counter()
            found.pictures += 1
            found.stored[position] = data
            found.read += now - last
            picture = None if known else decode(data, enough=encoder.enough)
            found.ready += time.perf_counter() - now
            if isinstance(picture, DecodedImage):
                fresh.append(picture)
        last = time.perf_counter()
        if last - began > PATIENCE:
            break
    if fresh:
        _encode(encoder, fresh, found)
    return found


def _encode(encoder: Any, pictures: Sequence[DecodedImage], found: _Handful) -> None:
    """Add the seconds that encoding takes."""
    start = time.perf_counter()
    if not hasattr(encoder, "forward"):
        encoder.encode(pictures)
        found.ready += time.perf_counter() - start
        return
    prepared = [encoder.preparation(picture) for picture in pictures]
    flat(pictures)
    found.ready += time.perf_counter() - start
    # the first call of a network takes longer than all others
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
    """Return the positions to time: all over the set if each is a file of its own, else in front.

    What lies in a stream costs all that lies before it.
    """
    count = min(TIMED, len(images))
    if len(_files(images)) < len(images):
        return list(range(count))
    return sorted({int(at) for at in np.linspace(0, len(images) - 1, count)})


def _files(images: ImageSet) -> pa.Array:
    """Return the files that a set lies in; a locator inside one is FILE!MEMBER."""
    return pc.unique(pc.list_element(pc.split_pattern(images.locators, "!", max_splits=1), 0))


def bytes_of(images: ImageSet) -> int | None:
    """Return the bytes of the files that a set lies in, ``None`` where they are no local files.

    Of many files a share is asked.
    """
    files = _files(images)
    step = max(1, len(files) // ASKED)
    sizes = []
    for file in files[::step].to_pylist():
        try:
            sizes.append(os.stat(file).st_size)
        except (OSError, ValueError):
            continue
    return round(sum(sizes) * len(files) / len(sizes)) if sizes else None


#: Steps of an audit and what is done in them.
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
