"""The built-in similarity: the fingerprint's word, confirmed by looking at the pictures.

The number of two pictures is the cosine of their built-in fingerprints where that reaches a gate
and verification confirms the pair, and 0 elsewhere. Verification is that of an audit: both
pictures are aligned and compared, and the probability that a careful person calls the pair near
or exact must reach one half.

Hundreds of images of a prompt have thousands of pairs, and where a picture is replayed nearly all
of them would have to be looked at. So the pictures of one list are put into parts: pairs are looked
at from the most alike down, between pictures that are not linked yet, and a picture that was
refused ten times is left with the links it has. Confirmed pairs alone would make chains, whose ends
have nothing in common: among 100 pictures one wrongly confirmed pair in a hundred is enough to tie
most of them. So the middle picture of each part is held against all others of it, and who is not
confirmed there is put into another part. Two pictures of a part are alike by way of its middle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from visleak.encoders import ENCODERS, load_encoder
from visleak.errors import UsageError
from visleak.gallery import shrink
from visleak.grading import grade, load_grader
from visleak.images import open_pictures
from visleak.memorization import inplace
from visleak.memorization.extraction.clustering import middle_of
from visleak.memorization.extraction.similarity import (
    EPS,
    CopySimilarity,
    EncoderSimilarity,
    Float64,
    PixelSimilarity,
    among,
)
from visleak.memorization.inplace import COLOURS, TINY, in_place, is_tiny
from visleak.pipeline.candidates import SAME_COLOUR, side
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.material import Material
from visleak.pipeline.verification import equal_bytes, verify
from visleak.pipeline.workplace import Workplace
from visleak.records import GRADES, Bool, Bytes8, Float32, Grade, Int64, Pairs
from visleak.search.exact import ExactSearch
from visleak.verify import check

#: Cosine of fingerprints from which a pair is worth a look; below it the number is 0.
GATE: Final = 0.5

#: Long side to which pictures are bounded before they are looked at: images of one prompt are
#: aligned anyway, and a look at 256 pixels takes three times as long.
BOUND: Final = 128

#: Refusals after which a picture is not looked at again.
REFUSALS: Final = 10

#: Middle pictures that a part is held against in turn; what is left then stands alone.
MIDDLES: Final = 10

#: Version of how pairs are chosen: part of the digest.
VERSION: Final = 2


class VerifiedSimilarity:
    """The built-in fingerprint, confirmed by verification; see the module."""

    name = "builtin"
    least: float = 0.0
    number = (
        f"cosine of built-in fingerprints from {GATE} on where verification finds the two pictures"
        f" near or exact, or both so to a third, else 0 (looked at within {BOUND} pixels)"
    )
    eps: float | None = EPS

    def __init__(self) -> None:
        self._encoder = load_encoder("builtin")
        self._grader = load_grader()
        self._prints = EncoderSimilarity(self._encoder)
        numbers = (VERSION, GATE, BOUND, REFUSALS, MIDDLES, SAME_COLOUR)
        tiny = (inplace.VERSION, TINY, COLOURS)
        recipe = f"{' '.join(map(str, numbers + tiny))} {self._encoder.digest}"
        hasher = hashlib.blake2b(recipe.encode(), digest_size=16)
        hasher.update(check.digest() + self._grader.digest.encode())
        self.digest = hasher.hexdigest()

    def matrix(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return the similarities among pictures, see :class:`CopySimilarity`."""
        cosine = among(self._prints.vectors(pictures))
        if not (cosine[np.triu_indices(len(cosine), 1)] >= GATE).any():
            return np.eye(len(cosine))  # nothing is worth a look
        with Workplace.at(None, 1, None) as place:
            verifier = _Verifier(self, list(pictures), place)
            parts = _stars(_linked(cosine, verifier), cosine, verifier)
        found = np.where(parts[:, None] == parts[None, :], cosine, 0.0)
        found[found < GATE] = 0.0
        np.fill_diagonal(found, 1.0)
        return np.asarray(found)

    def between(self, one: Sequence[Bytes8], other: Sequence[Bytes8]) -> Float64:
        """Return the similarities to other pictures; of each row the ten highest are looked at."""
        cosine = self._prints.between(one, other)
        found = np.zeros_like(cosine)
        best = np.argsort(-cosine, axis=1, kind="stable")[:, :REFUSALS]
        row = np.repeat(np.arange(len(cosine)), best.shape[1])
        column = best.ravel()
        worth = cosine[row, column] >= GATE
        row, column = row[worth], column[worth]
        if len(row):
            with Workplace.at(None, 1, None) as place:
                # one list, so that one way of looking serves both
                verifier = _Verifier(self, [*one, *other], place)
                confirmed = verifier.confirmed(row, len(one) + column)
            found[row[confirmed], column[confirmed]] = cosine[row, column][confirmed]
        return found


def _linked(cosine: Float64, verifier: _Verifier) -> Int64:
    """Return a part for each picture: those that confirmed pairs tie together have the same."""
    count = len(cosine)
    parts = np.arange(count)
    left, right = np.triu_indices(count, 1)
    worth = np.flatnonzero(cosine[left, right] >= GATE)
    worth = worth[np.argsort(-cosine[left[worth], right[worth]], kind="stable")]
    left, right = left[worth], right[worth]
    refused = np.zeros(count, np.int64)
    open_pairs = np.ones(len(left), np.bool_)
    while True:
        tired = refused >= REFUSALS
        open_pairs &= (parts[left] != parts[right]) & ~tired[left] & ~tired[right]
        asked = _forest(parts, left, right, np.flatnonzero(open_pairs))
        if not len(asked):
            return parts
        open_pairs[asked] = False
        confirmed = verifier.confirmed(left[asked], right[asked])
        for pair in asked[confirmed]:
            parts = _joined(parts, int(left[pair]), int(right[pair]))
        for side_of in (left, right):
            np.add.at(refused, side_of[asked[~confirmed]], 1)


def _stars(parts: Int64, cosine: Float64, verifier: _Verifier) -> Int64:
    """Return parts again, each made of a picture and of others that were confirmed with it."""
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
    """Return the parts after two pictures were linked; the lower number stays."""
    low, high = sorted((int(parts[one]), int(parts[other])))
    return np.where(parts == high, low, parts)


def _forest(parts: Int64, left: Int64, right: Int64, pairs: Int64) -> Int64:
    """Return the first pairs that would link all that pairs can link, if all were confirmed."""
    chosen = []
    for pair in pairs.tolist():
        if parts[left[pair]] != parts[right[pair]]:
            parts = _joined(parts, int(left[pair]), int(right[pair]))
            chosen.append(pair)
    return np.asarray(chosen, np.int64)


class _Verifier:
    """Where pictures of one list are looked at in pairs."""

    def __init__(self, by: VerifiedSimilarity, pictures: list[Bytes8], place: Workplace) -> None:
        self._grader = by._grader
        self._place = place
        self._pictures = [shrink(each, BOUND) for each in pictures]
        self._tiny = np.array([is_tiny(each) for each in self._pictures], np.bool_)
        images = open_pictures(self._pictures, name="generated")
        prints = fingerprint(images, by._encoder, place)
        self._side = side(prints, by._encoder, (0,), ExactSearch(), 1)
        self._material = {"generated": Material(images, prints)}

    def confirmed(self, left: Int64, right: Int64) -> Bool:
        """Return which pairs are near or exact (tiny ones also in place), or blank and alike."""
        if not len(left):
            return np.empty(0, np.bool_)
        prints = self._side.prints
        rows = (np.asarray(prints.matrix[left]), np.asarray(prints.matrix[right]))
        similarity = np.einsum("ij,ij->i", *(each.astype(np.float64) for each in rows))
        pairs = self._pairs(left, right, similarity.astype(np.float32))
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
            agreement = in_place(self._pictures[left[at]], self._pictures[right[at]])
            near[at] = agreement >= COLOURS
        # an audit calls blank pictures of one colour similar at most; here they are one picture
        blank = flat & (similarity >= SAME_COLOUR)
        return np.asarray(near | blank)

    def _pairs(self, left: Int64, right: Int64, similarity: Float32) -> Pairs:
        background = self._side.background
        return Pairs(
            query_set="generated",
            reference_set="generated",
            query=left,
            reference=right,
            similarity=similarity,
            background=((background[left] + background[right]) / 2).astype(np.float32),
            view=np.zeros(len(left), np.int8),
            total=np.zeros(len(self._side.prints), np.int64),
        )


def load_similarity(text: str = "builtin") -> CopySimilarity:
    """Return the similarity of a text.

    Args:
        text: ``builtin`` (fingerprint and verification), ``pixels``, or any encoder of
            :func:`visleak.encoders.load_encoder`, such as ``sscd:FILE``, which MemBench uses.

    Raises:
        UsageError: there is no similarity of that name.
        VisleakError: the encoder's weights cannot be had.
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
