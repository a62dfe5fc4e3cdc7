"""How similar two generated images are, and their clusters: DBSCAN, and a medoid each.

The built-in number of two images is the cosine of their built-in fingerprints where that reaches a
gate and verification confirms the pair, and 0 elsewhere. Verification is that of an audit: both
images are aligned and compared, and the probability that a careful person calls the pair near or
exact must reach one half.

Hundreds of images of a prompt have thousands of pairs, and where an image is reproduced nearly all
of them would have to be verified. So the images of one list are put into parts: pairs are
verified from the most similar down, between images that are not linked yet, and an image that was
refused ten times is left with the links it has. Confirmed pairs alone would make chains, whose ends
have nothing in common: among 100 images one wrongly confirmed pair in a hundred is enough to tie
most of them. So the middle image of each part is compared with all others of it, and what is not
confirmed there is put into another part. Two images of a part are similar by way of its middle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from visleak.encoders import ENCODERS, load_encoder
from visleak.encoders.features import EncoderFeatures
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.grading import grade, load_grader
from visleak.lazy import library
from visleak.pipeline.candidates import SAME_COLOUR, side
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.verification import equal_bytes, verify
from visleak.rates import percent
from visleak.records import GRADES, Bool, Bytes8, Encoder, Float64, Grade, Int64, Pairs
from visleak.reporting.gallery import shrink
from visleak.search.exact import ExactSearch
from visleak.verification import check
from visleak.verification.in_place import COLOURS, TINY, colour_correlation, is_tiny
from visleak.verification.in_place import VERSION as TINY_VERSION


@dataclass(frozen=True, slots=True)
class Group:
    """Images of one prompt that are nearly the same."""

    members: tuple[int, ...]  #: places in the list, by falling similarity to the medoid, the first
    medoid: int  #: place of the image with the largest sum of similarities to the others
    cohesion: float  #: median similarity of the medoid to the others; 1 where it is alone


def clusters_of(
    similarity: npt.ArrayLike,
    seeds: Sequence[int],
    *,
    eps: float,
    min_samples: int,
    min_cluster: int,
) -> list[Group]:
    """Return the clusters of the images of one prompt, largest first.

    ``similarity``: (n, n), higher is more similar; of its two halves the mean counts; ``seeds``:
    (n,), one per image, all different.

    DBSCAN (Ester et al. 1996) on the distance 1 - similarity, below 0 counted as 0, as the
    authors of MemBench do; then only clusters of ``min_cluster`` images and more are kept (the
    paper's at least 20). The order of the images changes nothing: they are taken by their seeds,
    which also decide between clusters in reach of a border image, and between equal medoids.
    """
    matrix = np.asarray(similarity, np.float64)
    count = len(seeds)
    if matrix.shape != (count, count):
        raise UsageError(
            f"similarity must be {count} x {count}, one row per seed; got {matrix.shape}"
        )
    if len(set(seeds)) != count:
        raise UsageError("seeds of the images of one prompt must all differ; one is given twice")
    if not np.isfinite(matrix).all():
        raise UsageError("similarity holds a value that is not a number")
    if not count:
        return []
    order = np.argsort(np.asarray(seeds), kind="stable")
    ordered = matrix[np.ix_(order, order)]
    ordered = (ordered + ordered.T) / 2
    distance = np.maximum(1.0 - ordered, 0.0)
    np.fill_diagonal(distance, 0.0)
    cluster = library("sklearn.cluster", "diffusion", "the clusters of generated images")
    scan = cluster.DBSCAN(metric="precomputed", eps=eps, min_samples=min_samples)
    labels = np.asarray(scan.fit(distance).labels_, np.int64)
    parts = (np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1))
    ranked = [_ranked(places, ordered) for places in parts if len(places) >= min_cluster]
    # places are by seed here, so equal sizes go by the medoid's seed
    ranked.sort(key=lambda each: (-len(each[0]), each[0][0]))
    return [Group(tuple(order[at].tolist()), int(order[at[0]]), mean) for at, mean in ranked]


def middle_of(similarity: Float64) -> int:
    """Return the place of the image with the largest sum of similarities; the first of equals."""
    # rounded, so that sums of the same numbers in another order are equal
    return int(np.round(similarity.sum(1), 9).argmax())


def _ranked(places: Int64, similarity: Float64) -> tuple[Int64, float]:
    """Return the places of a cluster, its medoid first, and its cohesion; ties by place."""
    inside = similarity[np.ix_(places, places)].copy()
    np.fill_diagonal(inside, 0.0)
    medoid = middle_of(inside)
    others = np.delete(np.arange(len(places)), medoid)
    others = others[np.lexsort((others, -inside[medoid, others]))]
    cohesion = float(np.median(inside[medoid, others])) if len(others) else 1.0
    return places[[medoid, *others]], cohesion


#: Largest distance (1 - similarity) of neighbours, in the authors' code, for SSCD.
EPS: Final = 0.5
#: Side of the squares that ``pixels`` compares, and its eps. On a tiny model (16 x 16, trained to
#: know twelve images) reproduces of one image correlate by 0.93 to 0.97 in the median. Images of
#: ordinary captions lie below 0.7, but some of their pairs reach 0.85: an eps of 0.15
#: already makes clusters of them.
SIDE: Final = 32
PIXEL_EPS: Final = 0.1


class CopySimilarity(Protocol):
    """A measure of copying between images."""

    name: str  #: as the command line calls it
    number: str  #: what its numbers are, in words
    digest: str  #: changes whenever any of its numbers could
    #: distance (1 - similarity) up to which two images are neighbours, by default; ``None`` if it
    #: is not known
    eps: float | None
    least: float  #: its lowest value; the highest is 1

    def matrix(self, images: Sequence[Bytes8]) -> Float64:
        """Return similarities of images of any sizes (n, n): symmetric, ones on the diagonal."""

    def between(self, one: Sequence[Bytes8], other: Sequence[Bytes8]) -> Float64:
        """Return the similarities (n, m) of some images to others."""


class _VectorSimilarity:
    least: float = -1.0

    def vectors(self, images: Sequence[Bytes8]) -> Float64:
        raise NotImplementedError

    def matrix(self, images: Sequence[Bytes8]) -> Float64:
        return among(self.vectors(images))

    def between(self, one: Sequence[Bytes8], other: Sequence[Bytes8]) -> Float64:
        return np.asarray(np.clip(self.vectors(one) @ self.vectors(other).T, -1.0, 1.0))


class EncoderSimilarity(_VectorSimilarity):
    """Cosine of an encoder's vectors: with SSCD, what MemBench does (section 4)."""

    number = "cosine of the encoder's vectors"

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.name = encoder.name
        self.digest = encoder.digest
        limits = encoder.thresholds
        own = None if limits is None else 1.0 - float(limits["soft"])
        self.eps: float | None = EPS if self.name.partition(":")[0] == "sscd" else own

    def vectors(self, images: Sequence[Bytes8]) -> Float64:
        """Return unit vectors (n, width)."""
        return EncoderFeatures(self.encoder).images(images)


class PixelSimilarity(_VectorSimilarity):
    """Normalised cross-correlation of pixels at 32 x 32, each image less its mean colour.

    Blind to brightness and contrast, and to nothing else: a shift by a few pixels is another
    image. Images without any variation are similar where they are equal, and else not at all.
    """

    name = "pixels"
    number = f"correlation of pixels at {SIDE} x {SIDE}, less its mean colour"
    digest = hashlib.blake2b(f"pixels 1 {SIDE} ".encode(), digest_size=16).hexdigest()
    eps: float | None = PIXEL_EPS

    def vectors(self, images: Sequence[Bytes8]) -> Float64:
        """Return the pixels less their mean colour, at unit length (n, 3072)."""
        rows = np.empty((len(images), SIDE * SIDE * 3))
        for row, pixels in zip(rows, images, strict=True):
            square = squeezed(pixels)
            colour = square.mean((0, 1))
            row[:] = (square - colour).ravel()
            if np.linalg.norm(row) <= 1e-3:
                # a blank one becomes a random direction of its colour
                drawn = np.random.default_rng([*np.rint(colour).astype(np.uint8).tolist(), 1])
                row[:] = drawn.standard_normal(len(row))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def squeezed(pixels: Bytes8) -> Float64:
    """Return an image as a square of 32 pixels, averaged or enlarged, (32, 32, 3)."""
    method = cv2.INTER_AREA if min(pixels.shape[:2]) >= SIDE else cv2.INTER_LINEAR
    square = cv2.resize(pixels.astype(np.float32), (SIDE, SIDE), interpolation=method)
    return np.asarray(square, np.float64)


def among(vectors: Float64) -> Float64:
    """Return the cosines of unit rows among themselves: symmetric, ones on the diagonal."""
    cosines = np.clip(vectors @ vectors.T, -1.0, 1.0)
    cosines = (cosines + cosines.T) / 2
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines)


#: Cosine of fingerprints from which a pair is verified; below it the number is 0.
GATE: Final = 0.5
#: Long side to which images are bounded before they are verified: images of one prompt are
#: aligned anyway, and verification at 256 pixels takes three times as long.
BOUND: Final = 128
#: Refusals after which an image is not verified again.
REFUSALS: Final = 10
#: Middle images that a part is compared with in turn; those left are parts of their own.
MIDDLES: Final = 10
#: Version of how pairs are chosen: part of the digest.
VERSION: Final = 2


class VerifiedSimilarity:
    """The built-in fingerprint, confirmed by verification; see the module."""

    name = "builtin"
    least: float = 0.0
    number = (
        f"cosine of built-in fingerprints from {GATE} on where verification finds the two images"
        f" near or exact, or both so to a third, else 0 (verified within {BOUND} pixels)"
    )
    eps: float | None = EPS

    def __init__(self) -> None:
        self.encoder = load_encoder("builtin")
        self.grader = load_grader()
        self._prints = EncoderSimilarity(self.encoder)
        numbers = (
            VERSION,
            GATE,
            BOUND,
            REFUSALS,
            MIDDLES,
            SAME_COLOUR,
            TINY_VERSION,
            TINY,
            COLOURS,
        )
        recipe = f"{' '.join(map(str, numbers))} {self.encoder.digest}"
        hasher = hashlib.blake2b(recipe.encode(), digest_size=16)
        hasher.update(check.digest() + self.grader.digest.encode())
        self.digest = hasher.hexdigest()

    def matrix(self, images: Sequence[Bytes8]) -> Float64:
        """Return the similarities among images, see :class:`CopySimilarity`."""
        cosine = among(self._prints.vectors(images))
        if not (cosine[np.triu_indices(len(cosine), 1)] >= GATE).any():
            return np.eye(len(cosine))  # no pair is verified
        with RunContext.at(None, 1, None) as place:
            verifier = _Verifier(self, list(images), place)
            parts = _stars(_linked(cosine, verifier), cosine, verifier)
        same = (parts[:, None] == parts[None, :]) & (cosine >= GATE)
        found = np.where(same, cosine, 0.0)
        np.fill_diagonal(found, 1.0)
        return found

    def between(self, one: Sequence[Bytes8], other: Sequence[Bytes8]) -> Float64:
        """Return the similarities to other images; of each row the ten highest are verified."""
        cosine = self._prints.between(one, other)
        found = np.zeros_like(cosine)
        best = np.argsort(-cosine, axis=1, kind="stable")[:, :REFUSALS]
        row, column = np.repeat(np.arange(len(cosine)), best.shape[1]), best.ravel()
        worth = cosine[row, column] >= GATE
        row, column = row[worth], column[worth]
        if len(row):
            with RunContext.at(None, 1, None) as place:
                # one list, so that one verifier serves both
                confirmed = _Verifier(self, [*one, *other], place).confirmed(row, len(one) + column)
            found[row[confirmed], column[confirmed]] = cosine[row, column][confirmed]
        return found


def _linked(cosine: Float64, verifier: _Verifier) -> Int64:
    """Return a part for each image: those that confirmed pairs tie together have the same."""
    parts = np.arange(len(cosine))
    pairs = np.array(np.triu_indices(len(cosine), 1))
    pairs = pairs[:, cosine[*pairs] >= GATE]
    pairs = pairs[:, np.argsort(-cosine[*pairs], kind="stable")]
    refused = np.zeros(len(cosine), np.int64)
    open_pairs = np.ones(pairs.shape[1], np.bool_)
    while True:
        left, right = parts[pairs]
        open_pairs &= (left != right) & (refused[pairs] < REFUSALS).all(0)
        chosen = _forest(parts, pairs, np.flatnonzero(open_pairs))
        if not len(chosen):
            return parts
        open_pairs[chosen] = False
        confirmed = verifier.confirmed(*pairs[:, chosen])
        for one, other in pairs[:, chosen[confirmed]].T.tolist():
            parts = _joined(parts, one, other)
        np.add.at(refused, pairs[:, chosen[~confirmed]], 1)


def _stars(parts: Int64, cosine: Float64, verifier: _Verifier) -> Int64:
    """Return parts again, each made of an image and of others that were confirmed with it."""
    found = np.arange(len(parts))
    for part in np.unique(parts):
        rest = np.flatnonzero(parts == part)
        for _ in range(MIDDLES):
            if len(rest) < 2:
                break
            middle = rest[middle_of(cosine[np.ix_(rest, rest)])]
            others = rest[(rest != middle) & (cosine[middle, rest] >= GATE)]
            same = others[verifier.confirmed(np.full(len(others), middle), others)]
            found[same] = middle
            rest = np.setdiff1d(rest, [middle, *same])
    return found


def _joined(parts: Int64, one: int, other: int) -> Int64:
    """Return the parts after two images were linked; the lower number stays."""
    low, high = sorted((int(parts[one]), int(parts[other])))
    return np.where(parts == high, low, parts)


def _forest(parts: Int64, pairs: Int64, those: Int64) -> Int64:
    """Return the first pairs that would link all that pairs can link, if all were confirmed."""
    chosen = []
    for pair in those.tolist():
        one, other = pairs[:, pair].tolist()
        if parts[one] != parts[other]:
            parts = _joined(parts, one, other)
            chosen.append(pair)
    return np.asarray(chosen, np.int64)


class _Verifier:
    def __init__(self, by: VerifiedSimilarity, pixels: list[Bytes8], place: RunContext) -> None:
        self._grader, self._place = by.grader, place
        self._pixels = [shrink(each, BOUND) for each in pixels]
        self._tiny = np.array([is_tiny(each) for each in self._pixels], np.bool_)
        images = open_image_set(self._pixels, name="generated")
        prints = fingerprint(images, by.encoder, place)
        self._side = side(EncodedSet(images, prints), by.encoder, (0,), ExactSearch(), 1)
        self._material = {"generated": self._side}

    def confirmed(self, left: Int64, right: Int64) -> Bool:
        """Return which pairs are near or exact (tiny ones also in place), or blank and similar."""
        if not len(left):
            return np.empty(0, np.bool_)
        prints, background = self._side.fingerprints, self._side.background
        rows = (np.asarray(prints.matrix[each]).astype(np.float64) for each in (left, right))
        similarity = np.einsum("ij,ij->i", *rows)
        pairs = Pairs(
            query_set="generated",
            reference_set="generated",
            query=left,
            reference=right,
            similarity=similarity.astype(np.float32),
            background=((background[left] + background[right]) / 2).astype(np.float32),
            view=np.zeros(len(left), np.int8),
            total=np.zeros(len(prints), np.int64),
        )
        (evidence,) = verify([pairs], self._material, self._place)
        flat = prints.flat[left] & prints.flat[right]
        grades = grade(
            pairs.similarity,
            pairs.background,
            evidence,
            equal_bytes=equal_bytes(pairs, self._material),
            flat=flat,
            grader=self._grader,
        )
        near = grades.probability >= self._grader.near_at
        exact = grades.grade == GRADES.index(Grade.EXACT)
        for at in np.flatnonzero(near & ~exact & self._tiny[left] & self._tiny[right]):
            agreement = colour_correlation(self._pixels[left[at]], self._pixels[right[at]])
            near[at] = agreement >= COLOURS
        # an audit calls blank images of one colour similar at most; here they are one image
        blank = flat & (similarity >= SAME_COLOUR)
        return np.asarray(near | blank)


def load_similarity(text: str = "builtin") -> CopySimilarity:
    """Return the similarity of a name.

    It is ``builtin`` (fingerprint and verification), ``pixels``, or any encoder of
    :func:`visleak.encoders.load_encoder`, such as ``sscd:FILE``, which MemBench uses.

    Raises:
        UsageError: there is no similarity of that name.
        VisleakError: the encoder's weights could not be loaded.
    """
    if text == "pixels":
        return PixelSimilarity()
    if text == "builtin":
        return VerifiedSimilarity()
    name = text.partition(":")[0].partition("?")[0]
    if name not in ENCODERS or name == "builtin":
        others = ", ".join(each for each in ENCODERS if each != "builtin")
        raise UsageError(
            f"similarity is builtin, pixels, sscd:FILE or another encoder ({others}); got {text!r}"
        )
    return EncoderSimilarity(load_encoder(text))


# -- what the built-in similarity finds of reproductions that are not verbatim ---------------------


#: Where the figures were measured, and when.
SOURCE: Final = "benchmarks/reproductions.json, 2026-11-24"
#: What was measured: ``extract``: pairs of reproductions of one photograph that are neighbours;
#: ``trace``: reproductions that are verified as copies of their photograph among 437.
Step = Literal["extract", "trace"]
#: Reproductions of each kind.
EACH: Final = 60
_KINDS: Final = (
    *("noise 15", "blur 2", "crop to 80 %", "crop to 60 %", "other colours", "warp 1 %"),
    *("warp 3 %", "10 % painted in", "25 % painted in", "redrawn", "mirrored", "several at once"),
)
_FOUND: Final[Mapping[Step, Mapping[str, int]]] = {
    "extract": dict(zip(_KINDS, (60, 60, 32, 10, 59, 7, 0, 51, 10, 60, 40, 0), strict=True)),
    "trace": dict(zip(_KINDS, (60, 60, 60, 60, 60, 5, 2, 59, 43, 47, 59, 32), strict=True)),
}
_WORDS: Final[Mapping[Step, str]] = {
    "extract": "links {share} % of pairs of non-verbatim reproductions of one photograph at its"
    " own eps",
    "trace": "verifies {share} % of non-verbatim reproductions of photographs",
}


def recall_of(similarity: str, step: Step) -> dict[str, object] | None:
    """Return the measured recall of a similarity as plain data; ``None`` if it was not measured."""
    if similarity != "builtin":
        return None
    return {
        "share": _share(step),
        "by_kind": {kind: {"found": n, "of": EACH} for kind, n in _FOUND[step].items()},
        "source": SOURCE,
    }


def _share(step: Step) -> float:
    return sum(_FOUND[step].values()) / (EACH * len(_FOUND[step]))


def recall_line(similarity: str, step: Step) -> str:
    """Return what is known of the recall of a similarity, as a line.

    >>> recall_line("pixels", "extract")
    'recall: not measured for the similarity pixels on non-verbatim reproductions'
    """
    if similarity != "builtin":
        return f"recall: not measured for the similarity {similarity} on non-verbatim reproductions"
    words = _WORDS[step].format(share=percent(_share(step)))
    kinds = ", ".join(f"{kind}: {round(100 * n / EACH)}" for kind, n in _FOUND[step].items())
    return (
        f"recall: the default similarity {words}, kinds in equal parts (in % of {EACH} each:"
        f" {kinds}; {SOURCE}); an image that is not found is not shown to be new"
    )
