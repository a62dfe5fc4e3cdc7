"""Feeding the images of a set to a network: workers decode and prepare, this process computes."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from visleak.auditing import open_cache, workers_for
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.batches import batched
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import entries, maker
from visleak.pipeline.fingerprints import fingerprint
from visleak.progress import Progress
from visleak.records import BatchEncoder, Encoder, Fingerprints, Float32, ImageSet, Int64, Problem

if TYPE_CHECKING:
    from visleak.impact.evaluators.classifiers import Classifier

PathText = str | os.PathLike[str]

#: Outputs of wider networks are not cached: 50,000 images of 4,096 numbers are 0.8 GB.
WIDEST_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """The outputs of some images of a set."""

    rows: Int64  # positions in the set, ascending, of those that have outputs
    outputs: Float32  # (rows, width)
    unreadable: tuple[Problem, ...]  # those that have none, and why


@contextmanager
def context(
    images: ImageSet, workers: int | None, cache: PathText | None, progress: Progress
) -> Iterator[RunContext]:
    """Give a place to read and prepare the images of a set, with a cache for outputs if wanted."""
    with (
        open_cache(cache, [images]) as store,
        RunContext.at(None, workers_for(len(images), workers), store, progress) as place,
    ):
        yield place


def feed(images: ImageSet, network: Classifier, place: RunContext) -> Iterator[Part]:
    """Yield the outputs of a network for the images of a set, in the set's order.

    Memory is a few tasks per worker and one batch, whatever the size of the set. Neither the number
    of workers nor other images of the set change an output.
    """
    refuse_embeddings(images)
    done = 0
    encoder = _as_encoder(network)
    cache = place.cache if network.width <= WIDEST_KEPT else None
    reach = place.cache_handle() if cache is not None else None
    for chunk in batched(images.opener, range(len(images)), encoder, place, reach):
        if cache is not None and chunk.fresh.any():
            cache.put(maker(encoder), entries(chunk))
        unreadable = tuple(
            Problem(
                images.name,
                images.ids[position].as_py(),
                images.locators[position].as_py(),
                why.reason,
                why.detail,
            )
            for position, why in chunk.unreadable
        )
        done += len(chunk.rows) + len(unreadable)
        place.progress(f"reading {images.name}", done, len(images))
        if len(chunk.rows) or unreadable:
            yield Part(chunk.rows, chunk.matrix, unreadable)


def _as_encoder(network: Classifier) -> BatchEncoder:
    """Return a network with the digest of its outputs in the cache.

    The digest of its weights is not enough: an encoder of the same file stores unit vectors under
    it, and the preprocessing may not be part of the weights.
    """
    made = copy.copy(network)
    prepared = json.dumps(dict(network.prepared), sort_keys=True, default=str)
    about = hashlib.blake2b(prepared.encode(), digest_size=8).hexdigest()
    made.digest = f"outputs {network.digest} {about}"
    # batches use none of the attributes of an encoder that a classifier lacks
    return cast(BatchEncoder, made)


def image_vectors(images: ImageSet, encoder: Encoder, place: RunContext) -> Fingerprints:
    """Return the unit vectors of the readable images of a set; from the cache where known."""
    prints = fingerprint(images, encoder, place)
    if len(prints):
        return prints
    raise nothing_read(images, (*images.problems, *prints.problems))


def refuse_embeddings(images: ImageSet) -> None:
    """Refuse a set of embeddings."""
    if not images.has_pixels:
        raise UsageError(
            f"set {images.name!r} has embeddings and no images; give the images themselves"
        )


def nothing_read(images: ImageSet, problems: Sequence[Problem]) -> VisleakError:
    """Return the error for a set of which no image could be read."""
    if not problems:
        return VisleakError(f"set {images.name!r} has no images")
    first = problems[0]
    return VisleakError(
        f"none of the {len(problems):,} images of set {images.name!r} could be read, such as"
        f" {first.id!r} ({first.reason}{': ' if first.detail else ''}{first.detail})"
    )
