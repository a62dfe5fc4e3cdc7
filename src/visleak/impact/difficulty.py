"""How difficult each image of a test set is, from a file or from a probe without training images.

The probe is two small classifiers on built-in fingerprints of other test images: they have seen no
training copy, no image that they predict, and none connected to it by a pair. Ridge classifiers
learn what a class has in common; nearest neighbours whether an image resembles many others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from visleak.auditing import Audit
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.groups import components
from visleak.impact.benchmark import Benchmark, Scores
from visleak.impact.evaluators.predictions import context
from visleak.impact.predictions.files import (
    PredictionFile,
    listed,
    numbers_of,
    quoted,
    read_predictions,
)
from visleak.impact.predictions.matching import match
from visleak.impact.predictions.scores import OTHERS
from visleak.pipeline.fingerprints import fingerprint
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.records import EmbeddingSet, Fingerprints, Float32, Float64, Int64
from visleak.stats.separation import auc
from visleak.storage import IMAGES, PAIRS, read_table

PROBE: Final = "probe"  # names the built-in probe, instead of a file
COLUMN: Final = "difficulty"  # the column of a file where none is named
LEAST: Final = 0.5  # share of the images whose difficulty must be known

#: AUC from which a difficulty is taken for the own loss of a model, and images of each kind, right
#: and wrong, that it needs.
OWN: Final = 0.98
FEWEST: Final = 10
FOLDS: Final = 5  # of the test set; each is predicted by a ridge classifier fitted on the others
REPEATS: Final = 3  # random divisions into folds; scores are averaged, as they depend on the folds
RIDGE: Final = 1.0  # weight of the ridge, on unit vectors; not tuned

#: Neighbours that vote, of the nearest, with weight ``exp(SHARPNESS * similarity)``; not tuned.
NEIGHBOURS: Final = 30
NEAREST: Final = 90
SHARPNESS: Final = 10.0
_SIMILARITIES: Final = 1 << 24  # similarities at a time
_FOLDS: Final = 5  # number of the stream of random numbers
_BLOCK: Final = 8192  # rows of vectors in double precision at a time


@dataclass(frozen=True)
class Difficulty:
    """How difficult each image is."""

    values: Float64  # (n,), by image: larger is harder; NaN if it is not known
    source: str  # where it comes from, in words


def difficulty_of(
    folder: Path, benchmark: Benchmark, source: str, seed: int, progress: Progress
) -> Difficulty:
    """Return the difficulty from a source; refuse one that is the same for all images."""
    if source == PROBE:
        own = probed(folder, benchmark, seed, progress)
        found = Difficulty(own.difficulty, own.about)
    else:
        found = read_difficulty(source, benchmark)
    if len(np.unique(found.values[~np.isnan(found.values)])) < 2:
        raise VisleakError(
            f"all images have the same difficulty by {found.source}, so that none can be matched"
            " by it: give another one, or leave --difficulty out"
        )
    return found


def doubts_about(difficulty: Float64, models: Sequence[Scores]) -> Iterator[str]:
    """Yield models whose own loss the difficulty seems to be, which hides what they memorized."""
    for scores in models:
        right = scores.values.get("accuracy", np.empty(0))
        known = ~np.isnan(right) & ~np.isnan(difficulty) if len(right) else right > 0
        wrong = right[known] == 0
        if min(wrong.sum(), (~wrong).sum()) < FEWEST:
            continue
        ahead = auc(difficulty[known], wrong)
        if ahead > OWN:
            yield (
                f"{scores.model}: the difficulty separates its wrong predictions from its right"
                f" ones (AUC {ahead:.3f}), as its own loss does: then the comparison with images of"
                " the same difficulty removes what it memorized, too; use that of another model"
            )


def read_difficulty(text: str, benchmark: Benchmark) -> Difficulty:
    """Return the difficulty that a column of a file gives, ``FILE[#COLUMN]``."""
    # a file whose name has the sign comes first
    path, sign, column = text.rpartition("#")
    if not (sign and path) or Path(text).exists():
        path, column = text, ""
    file = read_predictions(path)
    found = match(file.ids, benchmark, file.path)
    name = column or _only_column(file)
    there = [each for each in file.columns if each != "id"]
    if name not in there:
        has = listed(there) or "none"
        raise VisleakError(f"{file.path} has no column {quoted(name)}; it has {has}")
    where = f"{file.path}: column {quoted(name)}"
    numbers = numbers_of(file.columns[name])
    if isinstance(numbers, int):
        cell = quoted(file.columns[name][numbers].as_py())
        raise VisleakError(
            f"{where} must hold numbers, larger for harder images; row {numbers} holds {cell}"
        )
    values = np.full(len(benchmark), np.nan)
    values[found.images] = numbers[found.rows]
    known, total = int((~np.isnan(values)).sum()), len(benchmark)
    if known < LEAST * total:
        raise VisleakError(
            f"{where} gives the difficulty of {known:,} of the {total:,} images;"
            f" {100 * LEAST:.0f} % are needed"
        )
    part = "" if known == total else f", known for {known:,} of {total:,} images"
    return Difficulty(values, f"column {quoted(name)} of {Path(file.path).name}{part}")


def _only_column(file: PredictionFile) -> str:
    """Return the column that holds the difficulty where none is named."""
    names = [
        name
        for name, column in file.columns.items()
        if name not in OTHERS and not isinstance(numbers_of(column), int)
    ]
    if COLUMN in names or len(names) == 1:
        return COLUMN if COLUMN in names else names[0]
    there = f"several columns of numbers: {listed(names)}" if names else "no column of numbers"
    raise VisleakError(f"{file.path} has no column `{COLUMN}`, and {there}; name one, FILE#COLUMN")


@dataclass(frozen=True)
class Probed:
    """The result of the probe."""

    difficulty: Float64  # (n,), by image: larger is harder; NaN for images without a label
    ridge: float  # share of the labelled images that the ridge classifiers predict correctly
    nearest: float  # the same of nearest neighbours
    largest: float  # share of the largest class: the accuracy of always predicting it

    @property
    def about(self) -> str:
        """Its description."""
        text = (
            "a probe on built-in fingerprints of other test images: ridge classifiers"
            f" ({100 * self.ridge:.1f} % correct) and nearest neighbours ({100 * self.nearest:.1f}"
            f" %); the largest class has {100 * self.largest:.1f} %"
        )
        weak = max(self.ridge, self.nearest) < 1.5 * self.largest
        return f"{text}; a probe as weak as this hardly measures difficulty" if weak else text


def probed(folder: Path, benchmark: Benchmark, seed: int, progress: Progress) -> Probed:
    """Return the difficulty of the images of an audit's test set, which are read again."""
    if benchmark.labels is None:
        raise VisleakError(
            f"set {benchmark.name!r} has no labels, which the probe of difficulty needs: give a"
            " column of difficulty, --difficulty FILE"
        )
    images = Audit(folder).images_of(benchmark.name)
    if isinstance(images, EmbeddingSet) or not images.has_pixels:
        raise UsageError(
            f"set {benchmark.name!r} has embeddings and no images, which the probe of difficulty"
            " needs: give a column of difficulty, --difficulty FILE"
        )
    known = pc.fill_null(benchmark.labels.dictionary_encode().indices, -1).to_numpy()
    groups = _groups(folder, benchmark)
    with context(images, None, "default", progress) as place:
        prints = fingerprint(images, load_encoder("builtin"), place)
        rows = _rows(folder, benchmark, prints)
        return probe(
            prints.matrix,
            rows,
            known.astype(np.int64),
            groups,
            seed,
            lambda done, total: progress("measuring difficulty", done, total),
        )


def probe(
    vectors: Float32,
    rows: Int64,
    classes: Int64,
    groups: Int64,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Probed:
    """Return how difficult images are for classifiers that were fitted without their group.

    Difficulty is the mean rank by how far the score of the own class is behind the best other one.
    ``vectors`` (v, d): unit vectors. ``rows`` (n,): the vector of each image. ``classes`` (n,):
    number of each image's class, -1 for none. ``groups`` (n,): no image is predicted from its
    group.
    """
    labelled = np.flatnonzero(classes >= 0)
    own, theirs, tied = rows[labelled], classes[labelled], groups[labelled]
    ridge = _by_ridge(vectors, own, theirs, tied, seed)
    nearest = _by_neighbours(vectors, own, theirs, tied, progress)
    difficulty = np.full(len(rows), np.nan)
    difficulty[labelled] = (rankdata(ridge) + rankdata(nearest)) / (2 * max(1, len(own)))
    shares = np.bincount(theirs) / max(1, len(own))
    right = [float((behind < 0).mean()) for behind in (ridge, nearest)]
    return Probed(difficulty, right[0], right[1], float(shares.max()))


def _by_ridge(vectors: Float32, rows: Int64, classes: Int64, groups: Int64, seed: int) -> Float64:
    """Return by how much ridge classifiers of other folds prefer another class, (n,)."""
    behind = np.zeros(len(rows))
    count = int(classes.max()) + 1
    for repeat in range(REPEATS):
        order = np.random.default_rng([seed, _FOLDS, repeat]).permutation(int(groups.max()) + 1)
        folds = (order % FOLDS)[groups]
        members = [np.flatnonzero(folds == fold) for fold in range(FOLDS)]
        sums = [_sums(vectors, rows[part], classes[part], count) for part in members]
        for fold, judged in enumerate(members):
            if len(judged) in (0, len(rows)):
                continue
            kept = (own for at, own in enumerate(sums) if at != fold)
            others = (np.sum(parts, axis=0) for parts in zip(*kept, strict=True))
            weights, offset = _classifier(*others)
            for start in range(0, len(judged), _BLOCK):
                part = judged[start : start + _BLOCK]
                scores = vectors[rows[part]].astype(np.float64) @ weights + offset
                behind[part] += _behind(scores, classes[part]) / REPEATS
    return behind


def _by_neighbours(
    vectors: Float32,
    rows: Int64,
    classes: Int64,
    groups: Int64,
    progress: Callable[[int, int], None],
) -> Float64:
    """Return by how much the nearest images of other groups prefer another class, (n,)."""
    behind = np.zeros(len(rows))
    every = np.ascontiguousarray(vectors[rows])
    count, nearest = int(classes.max()) + 1, min(NEAREST, len(rows))
    step = max(1, _SIMILARITIES // max(1, len(rows)))
    for start in range(0, len(rows), step):
        part = np.arange(start, min(start + step, len(rows)))
        similar = every[part] @ every.T
        best = np.argpartition(-similar, nearest - 1, axis=1)[:, :nearest]
        close = np.take_along_axis(similar, best, axis=1).astype(np.float64)
        order = np.argsort(-close, axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        close = np.take_along_axis(close, order, axis=1)
        others = groups[best] != groups[part][:, None]
        voting = others & (np.cumsum(others, axis=1) <= NEIGHBOURS)
        votes = np.where(voting, np.exp(SHARPNESS * close), 0.0)
        scores = np.zeros((len(part), count))
        np.add.at(scores, (np.arange(len(part))[:, None], classes[best]), votes)
        scores /= np.maximum(votes.sum(axis=1, keepdims=True), 1e-300)
        behind[part] = _behind(scores, classes[part])
        progress(int(part[-1]) + 1, len(rows))
    return behind


def _behind(scores: Float64, classes: Int64) -> Float64:
    """Return by how much the own class is behind the best of the others, (n,)."""
    if scores.shape[1] < 2:
        return np.zeros(len(scores))
    own = np.take_along_axis(scores, classes[:, None], axis=1)[:, 0]
    others = scores.copy()
    np.put_along_axis(others, classes[:, None], -np.inf, axis=1)
    return np.asarray(others.max(axis=1) - own, np.float64)


def _sums(vectors: Float32, rows: Int64, classes: Int64, count: int) -> tuple[Float64, ...]:
    """Return what a ridge classifier needs of some images, which adds up over folds."""
    width = vectors.shape[1]
    by_class, products = np.zeros((count, width)), np.zeros((width, width))
    for start in range(0, len(rows), _BLOCK):
        block = vectors[rows[start : start + _BLOCK]].astype(np.float64)
        products += block.T @ block
        np.add.at(by_class, classes[start : start + _BLOCK], block)
    counts = np.bincount(classes, minlength=count).astype(np.float64)
    return by_class.sum(axis=0), products, counts, by_class


def _classifier(
    vector: Float64, products: Float64, counts: Float64, by_class: Float64
) -> tuple[Float64, Float64]:
    """Return weights (d, classes) and offsets of a ridge regression on one-hot classes."""
    images = counts.sum()
    mean, share = vector / images, counts / images
    inner = products - images * np.outer(mean, mean)
    across = by_class.T - np.outer(vector, share)
    weights = np.asarray(np.linalg.solve(inner + RIDGE * np.eye(len(mean)), across), np.float64)
    return weights, np.asarray(share - mean @ weights)


def _rows(folder: Path, benchmark: Benchmark, prints: Fingerprints) -> Int64:
    """Return the vector of each image; refuse images that are not those of the audit."""
    where = pc.equal(pc.field("set"), benchmark.name)
    audited = read_table(folder, IMAGES, ["set", "id", "digest"], where)
    rows = _places(audited["id"], prints.ids)
    digests = np.array([each.tobytes().hex() for each in prints.digests] or [""])
    changed = (rows < 0) | (digests[rows] != np.array(audited["digest"].to_pylist()))
    if changed.any():
        raise VisleakError(
            f"{counted(int(changed.sum()), 'image')} of {benchmark.name!r} missing or changed since"
            " the audit, and the probe of difficulty needs them: audit again, or give a"
            " column of difficulty, --difficulty FILE"
        )
    return np.asarray(rows[_places(benchmark.ids, audited["id"].combine_chunks())], np.int64)


def _groups(folder: Path, benchmark: Benchmark) -> Int64:
    """Return the group of each image: connected by pairs, also through a training image.

    Every listed pair connects, whatever its grade: large groups cost the probe nothing.
    """
    where = pc.equal(pc.field("query_set"), benchmark.name)
    columns = ["query_set", "query", "reference_set", "reference", "degree", "grade"]
    pairs = read_table(folder, PAIRS, columns, where)
    strong = pc.or_kleene(
        pc.is_in(pairs["grade"], pa.array(["exact", "near", "similar"])),
        pc.equal(pairs["degree"], "hard"),
    )
    pairs = pairs.filter(pc.fill_null(strong, False))
    names = pc.binary_join_element_wise(pairs["reference_set"], pairs["reference"], "\0")
    own = pc.binary_join_element_wise(benchmark.name, benchmark.ids, "\0")
    others = pc.unique(names.filter(pc.not_equal(pairs["reference_set"], benchmark.name)))
    known = pa.concat_arrays([own, others])
    first, second = _places(pairs["query"], benchmark.ids), _places(names, known)
    there = (first >= 0) & (second >= 0)
    tied = components(len(known), [(first[there], second[there])])
    return np.unique(tied[: len(benchmark)], return_inverse=True)[1].astype(np.int64)


def _places(values: pa.Array | pa.ChunkedArray, known: pa.Array) -> Int64:
    return np.asarray(pc.fill_null(pc.index_in(values, value_set=known), -1), np.int64)
