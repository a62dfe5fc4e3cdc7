"""What images of a prompt are judged by (Hong et al. 2024, section 5; MemBench's code).

Copying: the similarity of an image is the largest to any memorized image of its prompt; the images
of a prompt give three numbers, each then averaged over prompts.

Reference performance: of the images that a search returns for a prompt, the one with the best CLIP
score fits the prompt and was not made from it. Images are searched by the same CLIP here, so that
it is the nearest. A mitigation should come down to its similarity to the memorized image and keep
its CLIP score (appendix D; Stable Diffusion 1: .088 and .310).

Aesthetic score, from 1 to 10 or so: the published head (``sac+logos+ava1-l14-linearMSE``, Schuhmann
2022) is a stack of linear layers without activations on the unit vector of an image by OpenAI's
CLIP ViT-L/14: in use one affine map.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.auditing import open_cache, workers_for
from visleak.encoders.clip import clip_encoder
from visleak.encoders.features import (
    AESTHETIC_CLIP,
    ClipAlignment,
    EncoderFeatures,
    ImageFeatures,
    clip_request,
    unit,
)
from visleak.encoders.weights import read_tensors
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_image_set
from visleak.images import decode
from visleak.memorization.extraction.similarity import CopySimilarity
from visleak.pipeline.context import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.progress import Progress, silent
from visleak.records import Bytes8, Float64, ImageSet, Int64, Unreadable
from visleak.vectors import NORM_TOLERANCE

#: Similarity above which an image counts as a copy; strictly above.
LIMIT: Final = 0.5
#: Images that ``top3`` is the mean of.
BEST: Final = 3


@dataclass(frozen=True)
class Copying:
    """How much the images of prompts copy, one number per prompt; NaN where none was compared."""

    top1: Float64  #: ``float64`` (prompts,): similarity of the most similar image
    top3: Float64  #: mean of the three most similar images, or of all
    share: Float64  #: (prompts,): of the images, how many lie above the limit


def copying(similarities: npt.ArrayLike, limit: float = LIMIT) -> Copying:
    """Return how much the images of prompts copy, of their similarities (prompts, images)."""
    table = np.asarray(similarities, np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise UsageError(
            f"similarities are a table of prompts and their images; got an array {table.shape}"
        )
    unknown = np.isnan(table)
    if np.isinf(table).any() or (unknown.any(1) != unknown.all(1)).any():
        raise UsageError(
            "similarities of a prompt are finite for all of its images, or NaN for all of them"
        )
    falling = -np.sort(-table, axis=1)
    share = np.where(unknown[:, 0], np.nan, (table > limit).mean(1))
    return Copying(falling[:, 0].copy(), falling[:, :BEST].mean(1), share)


def against_references(
    similarity: CopySimilarity, images: Sequence[Bytes8], references: Sequence[Bytes8]
) -> Float64:
    """Return the similarity of each image to its most similar memorized image, (images,)."""
    if not len(references):
        raise UsageError(
            "there are no memorized images to compare with: leave such prompts out, or give theirs"
        )
    if not len(images):
        return np.empty(0)
    return np.asarray(similarity.between(images, references).max(axis=1), np.float64)


#: Images that texts are compared with at a time; only bounds memory.
BLOCK: Final = 8_192
#: Decimals to which cosines are compared: what is equal to them is a tie.
TIES: Final = 12


class FolderByPrompt:
    """A set of images that is searched by words: nearest by CLIP, vectors kept in the cache."""

    def __init__(
        self,
        source: str | os.PathLike[str] | ImageSet,
        alignment: ClipAlignment,
        *,
        workers: int | None = None,
        cache: str | os.PathLike[str] | None = "default",
        progress: Progress = silent,
    ) -> None:
        images = open_image_set(source)
        self._images, self._texts = images, alignment.texts
        self.name = images.source or images.name
        self.alignment = alignment.digest
        with (
            open_cache(cache, [images]) as store,
            RunContext.at(None, workers_for(len(images), workers), store, progress) as place,
        ):
            prints = fingerprint(images, alignment.encoder, place)
            # the rows lie in a scratch folder that ends with the context
            self._matrix = np.array(prints.matrix)
        self.problems = (*images.problems, *prints.problems)
        if not len(prints):
            first = f", such as {self.problems[0].id!r}" if self.problems else ""
            raise VisleakError(f"none of the images of {self.name} can be read{first}")
        # what it finds depends on its images: a folder of one name and size may have others
        hasher = blake2b(json.dumps(prints.ids.to_pylist()).encode(), digest_size=16)
        for start in range(0, len(self._matrix), BLOCK):
            hasher.update(self._matrix[start : start + BLOCK].tobytes())
        self._digest = hasher.hexdigest()
        self._positions = prints.rows

    def about(self) -> dict[str, object]:
        """Return source, sizes, model, and a digest of names and vectors."""
        return {
            "source": self.name,
            "images": len(self._matrix),
            "unreadable": len(self.problems),
            "alignment": self.alignment,
            "digest": self._digest,
        }

    def nearest(self, prompts: Sequence[str]) -> tuple[Int64, Float64]:
        """Return row and cosine of the nearest image of each prompt; ties by place in the set."""
        texts = self._texts(prompts)
        rows, cosines = np.zeros(len(texts), np.int64), np.full(len(texts), -math.inf)
        for start in range(0, len(self._matrix), BLOCK):
            # products of equal vectors differ in their last digits with the width of a block
            block = np.round(texts @ unit(self._matrix[start : start + BLOCK]).T, TIES)
            best, cosine = block.argmax(1), block.max(1)
            better = cosine > cosines
            rows[better], cosines[better] = start + best[better], cosine[better]
        return rows, np.clip(cosines, -1.0, 1.0)

    def pixels(self, row: int) -> Bytes8 | None:
        """Return the image of a row, ``None`` where it can no longer be read."""
        (data,) = self._images.opener.read([int(self._positions[row])])
        image = data if isinstance(data, Unreadable) else decode(data)
        return None if isinstance(image, Unreadable) else image.pixels


def reference_performance(
    source: FolderByPrompt,
    prompts: Sequence[str],
    references: Callable[[int], Sequence[Bytes8]],
    similarity: CopySimilarity,
    *,
    progress: Progress = silent,
) -> tuple[Float64, Float64]:
    """Return similarity and CLIP score, (prompts,) each, of the image found for each prompt.

    ``references`` returns the memorized images of a prompt by its number. The similarity is NaN
    where none is at hand, or the image that was found cannot be read.
    """
    rows, cosines = source.nearest(prompts)
    similar = np.full(len(prompts), math.nan)
    for number, row in enumerate(rows.tolist()):
        own = references(number)
        pixels = source.pixels(row) if len(own) else None
        if pixels is not None:
            similar[number] = against_references(similarity, [pixels], own)[0]
        progress("searching", number + 1, len(prompts))
    return similar, cosines


# -- aesthetic score -------------------------------------------------------------------------------


#: A layer: its matrix (outputs, inputs) and what is added (outputs,).
Layer = tuple[Float64, Float64]
#: What the file is, and what must hold of it, in words for messages.
WHAT: Final = "aesthetic head"
WANTED: Final = "a stack of linear layers (weight and bias each) that ends with one output"


def read_layers(path: Path) -> list[Layer]:
    """Return the linear layers of a file, in the order of the numbers in their names."""
    if not path.is_file():
        raise VisleakError(f"{WHAT}: there is no file {path}")
    found: dict[str, dict[str, Float64]] = {}
    for name, tensor in read_tensors(path, WHAT).items():
        stem, _, kind = name.rpartition(".")
        if kind not in ("weight", "bias"):
            raise VisleakError(f"{WHAT}: {path} has {name!r}; it must be {WANTED}")
        found.setdefault(stem, {})[kind] = tensor.double().numpy()

    def natural(name: str) -> list[tuple[int, str]]:
        """Return a key by which layer 10 comes after layer 2."""
        return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]

    stack = [_layer(path, stem, found[stem]) for stem in sorted(found, key=natural)]
    shapes = [weight.shape for weight, _ in stack]
    fits = all(one[0] == other[1] for one, other in pairwise(shapes))
    if not stack or not fits or shapes[-1][0] != 1:
        widths = ", ".join(f"{inputs} to {outputs}" for outputs, inputs in shapes) or "none"
        raise VisleakError(f"{WHAT}: {path} has layers {widths}; it must be {WANTED}")
    return stack


def _layer(path: Path, stem: str, parts: Mapping[str, Float64]) -> Layer:
    weight = parts.get("weight", np.empty(0))
    bias = parts.get("bias", np.zeros(len(weight)))
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise VisleakError(
            f"{WHAT}: {path}: {stem or 'its only layer'} is not a linear layer (weight"
            f" {weight.shape}, bias {bias.shape}); it must be {WANTED}"
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise VisleakError(f"{WHAT}: {path} has numbers in {stem} that are not finite")
    return weight, bias


class AestheticHead:
    """A stack of linear layers that gives one number for a vector of ``width`` numbers.

    A file of weights does not tell whether there are activations between the layers: it is taken
    that there are none, as in the published head. One that has any (``...-reluMSE``) gives other
    numbers than it was trained for. ``digest`` changes whenever any score could.

    >>> head = AestheticHead([(np.array([[3.0, 4.0]]), np.array([5.0]))], "small")
    >>> head([[0.6, 0.8]]).tolist()
    [10.0]
    """

    def __init__(self, layers: Sequence[Layer], name: str) -> None:
        self._layers, self.name = tuple(layers), name
        self.width = int(self._layers[0][0].shape[1])
        hasher = blake2b(b"aesthetic head 1", digest_size=16)
        for matrix, bias in self._layers:
            hasher.update(repr(matrix.shape).encode())
            hasher.update(np.ascontiguousarray(matrix, "<f8").tobytes())
            hasher.update(np.ascontiguousarray(bias, "<f8").tobytes())
        self.digest = hasher.hexdigest()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AestheticHead:
        """Return the head of a file: safetensors, or a state dict of torch (``.pth``)."""
        return cls(read_layers(Path(path).expanduser()), os.fspath(path))

    def __call__(self, features: npt.ArrayLike) -> Float64:
        """Return the score of each vector, (n,), of features (n, width) of unit length."""
        rows = np.asarray(features, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise UsageError(
                f"{WHAT} {self.name} takes vectors of {self.width} numbers"
                f"{' (CLIP ViT-L/14)' if self.width == 768 else ''}; got an array {rows.shape}"
            )
        lengths = np.linalg.norm(rows, axis=1)
        if not (np.abs(lengths - 1.0) <= NORM_TOLERANCE).all():
            raise UsageError(
                f"{WHAT} {self.name} takes vectors of unit length; got one of length"
                f" {lengths[np.argmax(np.abs(lengths - 1.0))]:.4g}"
            )
        for matrix, bias in self._layers:
            rows = rows @ matrix.T + bias
        return np.asarray(rows[:, 0])


class Aesthetic:
    """The aesthetic score of images."""

    number = "aesthetic score of a linear head on unit CLIP vectors"

    def __init__(self, head: AestheticHead, features: ImageFeatures) -> None:
        if head.width != features.width:
            raise UsageError(
                f"{WHAT} {head.name} takes vectors of {head.width} numbers"
                f"{', those of CLIP ViT-L/14' if head.width == 768 else ''}; {features.name} makes"
                f" {features.width}"
            )
        self.head, self.features = head, features
        self.name = f"{head.name} on {features.name}"
        joined = f"{head.digest} {features.digest}".encode()
        self.digest = blake2b(joined, digest_size=16).hexdigest()

    def __call__(self, pixels: Sequence[Bytes8]) -> Float64:
        """Return the score of each image, (n,)."""
        return self.head(self.features.images(pixels))


def load_aesthetic(
    head: str | os.PathLike[str],
    clip: str = AESTHETIC_CLIP,
    device: str = "auto",
    precision: str = "fp32",
) -> Aesthetic:
    """Return the aesthetic score of a head in a file, on the CLIP it was trained with."""
    read = AestheticHead.load(head)
    encoder = clip_encoder(clip_request(clip, device, precision), assumed=True)
    return Aesthetic(read, EncoderFeatures(encoder))
