"""One comparison: two sides with their candidates, evidence and grades."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.documents import read_document
from visleak.errors import UsageError, VisleakError
from visleak.grading import Grader, grade
from visleak.grading.verdict import CHUNK
from visleak.pipeline.encoded_set import EncodedSet, Side
from visleak.pipeline.evidence import VerifiedPairs
from visleak.pipeline.selection import Clusters, find
from visleak.records import (
    DEGREES,
    GRADES,
    Bool,
    Encoder,
    Float32,
    Grades,
    ImageSet,
    Int8,
    Int64,
    Pairs,
)
from visleak.settings import Settings
from visleak.storage.audit_folder import (
    ChanceSummary,
    DistanceCount,
    RecordingCounts,
    RecordingSummary,
    Thresholds,
)
from visleak.vectors import parts_of

#: Sets are compared by label where they share this much of the smaller vocabulary.
SHARED: Final = 0.5
LISTED: Final = 20  # recordings in ``audit.json``; ``recordings.csv`` has all


@dataclass(frozen=True, slots=True)
class Relations:
    """The geometric relations that were fitted to pairs, which few candidates have."""

    pair: Int64  # int64 (k,), ascending: numbers of the pairs
    matrix: Float32  # float32 (k, 9)

    @classmethod
    def joined(cls, parts: Sequence[Relations]) -> Relations:
        """Return all parts, one after the other."""
        pair, matrix = ([getattr(each, name) for each in parts] for name in ("pair", "matrix"))
        return cls(np.concatenate(pair), np.concatenate(matrix))

    def of(self, pairs: Int64) -> tuple[Float32, Bool]:
        """Return the matrices (n, 9) of some pairs, and which have one; others are zero."""
        matrix = np.zeros((len(pairs), 9), np.float32)
        at, known = find(self.pair, pairs)
        matrix[known] = self.matrix[at[known]]
        return matrix, known


@dataclass(frozen=True, slots=True)
class Segment:
    """An interval of a recording that is also in another, or in a set of images."""

    query_set: str
    reference_set: str
    query: str  # the recordings; empty for images without times
    query_start: int | None  # milliseconds
    query_end: int | None
    reference: str
    reference_start: int | None
    reference_end: int | None
    images: int  # query images in it
    # seconds of the reference recording in one of the query recording, of three digits
    rate: float | None = None


@dataclass(frozen=True)
class RecordingLeak:
    """Distances in time between the frames of two sets of one dataset."""

    unit: str  # of distances: frames or ms
    within: int  # the largest distance that counts as a leak
    recordings: tuple[RecordingCounts, ...]  # on both sides, by name
    close: Bool  # bool (n,): which readable query images are within that of a reference image
    # the histogram: last distance of a bar (None for the last) and query images
    distances: tuple[DistanceCount, ...]

    @property
    def leaking(self) -> tuple[RecordingCounts, ...]:
        """The recordings with test frames within the bound, those with the most first."""
        found = (each for each in self.recordings if each.close)
        return tuple(sorted(found, key=lambda each: (-each.close, each.recording)))

    def summary(self) -> RecordingSummary:
        """Return the entry of ``audit.json``."""
        graded = [each.near_or_exact for each in self.recordings if each.near_or_exact is not None]
        return RecordingSummary(
            unit=self.unit,
            within=self.within,
            shared=len(self.recordings),
            leaking=len(self.leaking),
            queries=sum(each.queries for each in self.recordings),
            close=int(self.close.sum()),
            nearest=min((each.least for each in self.recordings), default=None),
            near_or_exact=sum(graded) if graded or not self.recordings else None,
            distances=self.distances,
            listed=self.leaking[:LISTED],
        )


@dataclass(frozen=True)
class Comparison:
    """Two sides of an audit; each step adds what it finds."""

    query: Side  # one object twice within a set
    reference: Side
    pairs: Pairs  # candidates, sorted by the query's id
    thresholds: Thresholds  # of degrees
    coverage: str  # within, intra or inter
    modality: str  # full or image-only
    clusters: Clusters | None = None  # groups of similar images that were verified before the rest
    measured: Pairs | None = None  # by the built-in fingerprint, until they are graded
    evidence: VerifiedPairs | None = None  # until they are graded
    grades: Grades | None = None  # None where the pairs were not verified
    relations: Relations | None = None  # once the pairs are graded
    skipped: Int8 | None = None  # int8 (n,), as in Evidence
    chance: ChanceSummary | None = None  # pairs that reach the thresholds by chance, where known
    # float32 (n, 9): how images that overlap lie, query to reference in unit coordinates, NaN for
    # those that do not; None where that was not measured
    overlap: Float32 | None = None
    # distances in time of frames on both sides, and what recordings share, where times are known
    recordings: RecordingLeak | None = None
    segments: tuple[Segment, ...] = ()

    @classmethod
    def of(
        cls, query: Side, reference: Side, pairs: Pairs, thresholds: Thresholds, annotations: str
    ) -> Comparison:
        """Return a comparison with its candidates."""
        covers = coverage(query.images, reference.images)
        exposed = modality(reference.images, annotations)
        return cls(query, reference, pairs, thresholds, covers, exposed)

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two sets."""
        return self.query.name, self.reference.name

    @property
    def has_pixels(self) -> bool:
        """Whether both sets have images that can be verified."""
        return self.query.images.has_pixels and self.reference.images.has_pixels

    @cached_property
    def degree(self) -> Int8:
        """Index into ``DEGREES`` of each pair, -1 below the soft threshold."""
        return degree_of(self.pairs.similarity, self.thresholds.hard, self.thresholds.soft)

    @cached_property
    def near(self) -> Bool | None:
        """Which pairs are near or exact, blank images among them; ``None`` without grades."""
        if self.grades is None:
            return None
        grades = self.grades.grade
        return np.asarray((grades >= 0) & (grades <= GRADES.index("near")))

    def graded(self, grader: Grader | None) -> Comparison:
        """Return the comparison with grades in place of the evidence, if there is any."""
        if self.evidence is None or self.measured is None or grader is None:
            return self
        equal_bytes = same_bytes(self.pairs, self.query, self.reference)
        flat = self.query.fingerprints.flat[self.pairs.query]
        relations, graded = [], []
        for part in parts_of(max(1, len(self.pairs)), CHUNK):
            # the evidence on all pairs would take several times the memory of everything else
            evidence = self.evidence.evidence(part)
            fitted = np.flatnonzero(~np.isnan(evidence.matrix).any(axis=1))
            relations.append(Relations(part.start + fitted, evidence.matrix[fitted]))
            similarity, background = self.measured.similarity[part], self.measured.background[part]
            facts = {"equal_bytes": equal_bytes[part], "flat": flat[part]}
            graded.append(grade(similarity, background, evidence, **facts, grader=grader))
        return replace(
            self,
            grades=Grades.joined(graded),
            relations=Relations.joined(relations),
            skipped=self.evidence.skipped_pairs,
            measured=None,
            evidence=None,
        )


def same_bytes(pairs: Pairs, query: EncodedSet, reference: EncodedSet) -> Bool:
    """Return which pairs are two copies of the same bytes."""
    same = np.empty(len(pairs), np.bool_)
    for part in parts_of(len(pairs), CHUNK):
        left = query.fingerprints.digests[pairs.query[part]]
        right = reference.fingerprints.digests[pairs.reference[part]]
        same[part] = (left == right).all(axis=1)
    return same


def degree_of(similarity: Float32, hard: float | None, soft: float | None) -> Int8:
    """Return the degree of similarities: 0 hard, 1 soft, -1 neither."""
    result = np.full(len(similarity), -1, np.int8)
    if soft is not None:
        result[similarity >= np.float32(soft)] = DEGREES.index("soft")
    if hard is not None:
        result[similarity >= np.float32(hard)] = DEGREES.index("hard")
    return result


def coverage(query: ImageSet, reference: ImageSet) -> str:
    """Return ``within`` (one set), ``intra`` (one dataset) or ``inter``."""
    if query.name == reference.name:
        return "within"
    return "intra" if query.dataset == reference.dataset else "inter"


def modality(reference: ImageSet, annotations: str) -> str:
    """Return ``full`` where the annotation was exposed in training too, else ``image-only``."""
    if annotations != "auto":
        return "full" if annotations == "used" else "image-only"
    annotated = reference.annotated or reference.labels is not None
    return "full" if annotated and "training" in reference.roles else "image-only"


def comparable(query: ImageSet, reference: ImageSet) -> bool:
    """Whether the labels of two sets name the same classes."""
    if query.labels is None or reference.labels is None:
        return False
    return share_classes(query.labels, reference.labels)


def share_classes(left: pa.Array, right: pa.Array) -> bool:
    """Whether two columns of labels share :data:`SHARED` of the smaller vocabulary."""
    mine, theirs = _vocabulary(left), _vocabulary(right)
    smaller = min(len(mine), len(theirs))
    return smaller > 0 and len(mine & theirs) >= SHARED * smaller


def _vocabulary(labels: pa.StringArray) -> set[str]:
    return set(normalised(pc.unique(labels)).drop_null().to_pylist())


def normalised(labels: pa.Array) -> pa.Array:
    """Return labels for comparison: in lower case, ``_`` and ``-`` as spaces.

    >>> normalised(pa.array(["Great_White-Shark "])).to_pylist()
    ['great white shark']
    """
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(pc.utf8_lower(labels), "[_-]", " "))


def normalised_name(name: str) -> str:
    """Return one label for comparison, as :func:`normalised`."""
    return str(normalised(pa.array([name]))[0].as_py())


def relation(query: pa.Array, reference: pa.Array, compare: bool) -> pa.Array:
    """Return ``same``, ``different`` or ``unknown`` for each pair of labels."""
    if not compare:
        return pa.array(np.full(len(query), "unknown"), pa.string())
    equal = pc.equal(normalised(query), normalised(reference))
    known = pc.if_else(equal, "same", "different")
    return pc.fill_null(known, "unknown").cast(pa.string())


#: Kind of a file of thresholds, and the version of its layout.
KIND: Final = "visleak thresholds"
SCHEMA: Final = 1


def thresholds_of(
    encoder: Encoder, settings: Settings, calibrated: Mapping[str, Any] | None = None
) -> Thresholds:
    """Return the thresholds of a run; never those of another encoder."""
    own = calibrated or encoder.thresholds or {}
    hard = settings.hard if settings.hard is not None else own.get("hard")
    soft = settings.soft if settings.soft is not None else own.get("soft")
    if hard is not None and soft is not None and hard < soft:
        # one of the two was given and crosses the other, which is only a default
        hard, soft = (soft, soft) if settings.soft is not None else (hard, hard)
    if soft is None and hard is not None:
        # the one threshold there is: whatever reaches it is hard, and nothing is soft alone
        soft = hard
    given = [n for n in ("hard", "soft") if getattr(settings, n) is not None]
    provenance = str(own.get("provenance", "none: this encoder ships no thresholds"))
    if given:
        rest = "" if len(given) == 2 else f"; otherwise {provenance}"
        provenance = f"{' and '.join(given)} given by the caller{rest}"
    provisional = bool(own.get("provisional", False)) and len(given) < 2
    return Thresholds(hard, soft, provenance, provisional)


def read_thresholds(path: str | os.PathLike[str], encoder: Encoder) -> Mapping[str, Any]:
    """Return an encoder's entry of a file that ``visleak calibrate`` wrote."""
    if not Path(path).is_file():
        raise UsageError(f"thresholds {path} is not a file; `visleak calibrate` writes one")
    hint = "`visleak calibrate` writes files of thresholds"
    encoders = read_document(Path(path), KIND, SCHEMA, hint).get("encoders")
    if not isinstance(encoders, dict):
        raise VisleakError(f"{path} is damaged: it has no encoders; run `visleak calibrate` again")
    found = encoders.get(encoder.digest)
    if found is None:
        names = {
            digest: entry.get("name", "an encoder") if isinstance(entry, dict) else "an encoder"
            for digest, entry in encoders.items()
        }
        held = ", ".join(f"{name} ({str(digest)[:12]})" for digest, name in names.items())
        raise UsageError(
            f"{path} holds thresholds of {held or 'no encoder'}, not of {encoder.name}"
            f" ({encoder.digest[:12]}); thresholds of one encoder never serve another: run"
            f" `visleak calibrate S --encoder {encoder.name}`"
        )
    values = [found.get(name) for name in ("hard", "soft")] if isinstance(found, dict) else []
    known = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(known) < 2 or not -1.0 <= known[1] <= known[0] <= 1.0:
        raise VisleakError(
            f"{path} is damaged: hard and soft must be similarities with -1 <= soft <= hard <= 1;"
            " run `visleak calibrate` again"
        )
    return dict(found)
