"""Image-to-text retrieval (Ramos et al. 2025, section 7.3 and table 4).

Each image is compared with the whole collection of captions. Its rank does not depend on other
images, so the paper's draws of 200 queries are draws of rows of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.encoders.vision_language import load_vision_language
from visleak.errors import VisleakError
from visleak.impact.evaluators.predictions import (
    Evaluation,
    about_set,
    check_target,
    content_of,
    context,
    document_of,
    image_vectors,
    rate_text,
    refuse_embeddings,
    versions,
    write_predictions,
    write_unreadable,
)
from visleak.impact.evaluators.retrieval_inputs import (
    FIRST,
    Captions,
    about_vectors,
    captions_of,
    read_caption_vectors,
    read_captions,
    read_image_vectors,
)
from visleak.progress import Progress, silent
from visleak.rates import Rate
from visleak.records import Bool, Float32, ImageSet, Int8, Int64, Problem
from visleak.reporting import Document
from visleak.stats.draws import part_draws


@dataclass(frozen=True, kw_only=True)
class Retrieved(Evaluation):
    """The result of image-to-text retrieval."""

    name: str  # of the set; empty for stored vectors
    model: str
    queries: int  # images with a caption of their own, which were ranked
    collection: int  # captions that they were compared with
    recalls: Sequence[Recall]  # at 1, 5 and 10


def retrieve(
    images: ImageSet,
    model: str,
    out: str | os.PathLike[str],
    *,
    options: Mapping[str, object] = MappingProxyType({}),
    captions: str | os.PathLike[str] | None = None,
    caption: str = FIRST,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = silent,
    seed: int = 0,
    force: bool = False,
) -> Retrieved:
    """Rank all captions for each image of a set and write the rank of its own.

    The file has ``id``, ``rank`` (from 1), ``r@1``, ``r@5``, ``r@10``. Captions are those of a
    file, see :mod:`visleak.impact.evaluators.retrieval_inputs`, or the set's own. All of them are
    the collection, also those of images that the set does not have.
    """
    target = check_target(out, force=force)
    refuse_embeddings(images)
    given = captions_of(images) if captions is None else read_captions(Path(captions))
    kept = given.chosen(caption)
    # before a model is loaded
    if set(kept.ids).isdisjoint(images.ids.to_pylist()):
        raise _strangers(kept.ids[0], images.ids)
    towers = load_vision_language(model, **options)
    read = towers.texts.encode(
        kept.texts, lambda done, total: progress("reading captions", done, total)
    )
    cut = int(np.count_nonzero(read.cut))
    made = {"source": kept.source, "which": caption, "cut": cut, "digest": kept.digest}
    with context(images, workers, cache, progress) as place:
        prints = image_vectors(images, towers.images, place)
        problems = (*images.problems, *prints.problems)
        described = about_set(images, len(prints), len(problems))
        return _found(
            *(target, progress, seed, force),
            name=images.name,
            model=towers.images.name,
            ids=prints.ids,
            images=prints.matrix,
            owners=pa.array(kept.ids, pa.string()),
            captions=read.matrix,
            about={"model": towers.about(), "set": described, "captions": made},
            problems=problems,
            notes=tuple(_caption_notes(kept, cut, towers.texts.context)),
        )


def retrieve_stored(
    images: str,
    texts: str,
    out: str | os.PathLike[str],
    *,
    progress: Progress = silent,
    seed: int = 0,
    force: bool = False,
) -> Retrieved:
    """Do the same with existing vectors, each with the id of its image; no network is run.

    Images and texts are ``emb:FOLDER``, or a ``.npy``, ``.npz`` or ``.parquet`` file.
    """
    target = check_target(out, force=force)
    vectors, captions = read_image_vectors(images), read_caption_vectors(texts)
    widths = vectors.matrix.shape[1], captions.matrix.shape[1]
    if widths[0] != widths[1]:
        raise VisleakError(
            f"--images {images} holds vectors of {widths[0]} numbers, --texts {texts} of"
            f" {widths[1]}; both must come from one model"
        )
    without = vectors.ids.filter(pa.array(~vectors.usable)).to_pylist()
    why = (vectors.source, "unsupported", "a vector without a direction")
    lost = int(np.count_nonzero(~captions.usable))
    note = f"captions whose vector has no direction, which are ignored: {lost:,}"
    return _found(
        *(target, progress, seed, force),
        ids=vectors.ids.filter(pa.array(vectors.usable)),
        images=vectors.matrix[vectors.usable],
        owners=captions.ids.filter(pa.array(captions.usable)),
        captions=captions.matrix[captions.usable],
        about={"images": about_vectors(vectors), "texts": about_vectors(captions)},
        problems=tuple(Problem("images", id_, *why) for id_ in without),
        notes=(note,) * bool(lost),
    )


def _strangers(owner: str, ids: pa.StringArray) -> VisleakError:
    return VisleakError(
        f"no caption is of an image of the set: captions have ids such as {owner!r}, images such as"
        f" {ids[0].as_py()!r}; ids must be equal"
    )


def _found(
    target: Path,
    progress: Progress,
    seed: int,
    force: bool,
    *,
    ids: pa.StringArray,
    images: Float32,
    owners: pa.StringArray,
    captions: Float32,
    about: Mapping[str, object],
    problems: tuple[Problem, ...],
    notes: tuple[str, ...],
    name: str = "",
    model: str = "",
) -> Retrieved:
    """Rank images (n, d) with ``ids`` among captions (m, d) of ``owners``, and write the files."""
    asking = pc.is_in(ids, value_set=owners).to_numpy(zero_copy_only=False)
    if not asking.any():
        raise _strangers(owners[0].as_py(), ids)
    ranked = ids.filter(pa.array(asking))
    owner = pc.index_in(owners, value_set=ranked).fill_null(-1).to_numpy(zero_copy_only=False)
    sides = Sides(np.asarray(images[asking]), captions, owner.astype(np.int64))
    found = ranks(sides, progress=lambda done, all_: progress("ranking captions", done, all_))
    recall = recalls(found, seed)
    unreadable = write_unreadable(target, problems)
    foreign = int(np.count_nonzero(sides.owner < 0))
    if without := len(ids) - len(ranked):
        notes += (f"images without a caption, which are not ranked: {without:,}",)
    if foreign:
        notes += (
            "captions of images that were not ranked (unreadable, or not in the set), but are in"
            f" the collection: {foreign:,}",
        )
    whole = {
        "evaluator": "retrieve",
        **about,
        "versions": versions(),
        "queries": len(ranked),
        "collection": {"captions": len(captions), "of no query": foreign},
        "ties": "count against the query",
        "recall": [each.plain() for each in recall],
        "seed": seed,
    }
    columns = {"rank": found.astype(np.int32), **hit_columns(found)}
    return Retrieved(
        file=write_predictions(target, ranked, columns, whole, force=force),
        name=name,
        model=model,
        queries=len(ranked),
        collection=len(captions),
        recalls=recall,
        unreadable=len(problems),
        unreadable_file=unreadable,
        notes=notes,
    )


def _caption_notes(captions: Captions, cut: int, context: int) -> Iterator[str]:
    if captions.empty:
        yield f"captions without any text, which are ignored: {captions.empty:,}"
    if cut:
        yield (
            f"captions longer than the {context} tokens of the model, which are truncated:"
            f" {cut:,} of {len(captions):,}"
        )
    if captions.repeated:
        yield (
            f"captions that are equal to one of another image: {captions.repeated:,}; the other one"
            " counts as foreign, and a tie against the query"
        )


def document(result: Retrieved) -> Document:
    """Return a result as a document."""
    model = f" of {result.name} by {result.model}" if result.name else ""
    facts = [(f"R@{each.k}", rate_text(each.share)) for each in result.recalls]
    drawn = [(each.k, each.drawn) for each in result.recalls if each.drawn is not None]
    if drawn:
        values = (f"R@{k} {100 * own.mean:.2f} ± {100 * own.deviation:.2f}" for k, own in drawn)
        draws = f"{drawn[0][1].draws} draws of {drawn[0][1].queries} images"
        facts.append(("drawn", f"{', '.join(values)} % ({draws})"))
    headline = f"{result.queries:,} images{model}, each among {result.collection:,} captions"
    return document_of(result, headline, facts)


def content(result: Retrieved) -> dict[str, object]:
    """Return a result as plain values."""
    return content_of(
        result,
        set=result.name,
        model=result.model,
        queries=result.queries,
        collection=result.collection,
        recall=[each.plain() for each in result.recalls],
    )


CELLS: Final = 4_000_000  # similarities in memory: 16 MB, and 100 bytes each where all are ties
PAIRS: Final = 65_536  # pairs that are computed exactly at a time


@dataclass(frozen=True)
class Sides:
    """Images and the captions that they are compared with."""

    images: Float32  # (n, d), unit rows
    captions: Float32  # (m, d), unit rows: the whole collection
    owner: Int64  # (m,): row of the image that a caption is of; -1 where it is not among them

    def __post_init__(self) -> None:
        if self.owner.shape != (len(self.captions),):
            raise ValueError(f"{len(self.captions)} captions must have {len(self.captions)} owners")
        if len(self.owner) and not -1 <= self.owner.min() <= self.owner.max() < len(self.images):
            raise ValueError(f"an owner must be -1 or a row of the {len(self.images)} images")


def ranks(
    sides: Sides, block: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Int64:
    """Return the rank of the best own caption of every image, (n,); 0 where it has none.

    The rank is 1 plus the number of foreign captions at least as similar as the best own one: a tie
    counts against the image. Similarities are compared as the package stores them, so that blocks
    and libraries of linear algebra never change a rank.
    """
    own = best_own(sides)
    step = block or max(int(CELLS**0.5), 1)
    ahead = np.zeros(len(own), np.int64)
    for start in range(0, len(own), step):
        rows = np.arange(start, min(start + step, len(own)))
        for first in range(0, len(sides.captions), step):
            columns = np.arange(first, min(first + step, len(sides.captions)))
            ahead[rows] += _ahead(sides, own, rows, columns)
        if progress is not None:
            progress(int(rows[-1]) + 1, len(own))
    return np.where(np.isneginf(own), 0, ahead + 1)


def best_own(sides: Sides) -> Float32:
    """Return each image's similarity to its most similar own caption, (n,); -inf without any."""
    best = np.full(len(sides.images), -np.inf, np.float32)
    captions = np.flatnonzero(sides.owner >= 0)
    similarity = exact(sides, sides.owner[captions], captions)
    np.maximum.at(best, sides.owner[captions], similarity)
    return best


def exact(sides: Sides, image: Int64, caption: Int64) -> Float32:
    """Return the similarities of pairs, (p,): float64 dot products rounded to float32."""
    similarity = np.empty(len(image), np.float32)
    for start in range(0, len(image), PAIRS):
        part = slice(start, start + PAIRS)
        # einsum sums each row by itself, so a pair's value does not depend on its neighbours
        similarity[part] = np.einsum(
            "ij,ij->i",
            sides.images[image[part]].astype(np.float64),
            sides.captions[caption[part]].astype(np.float64),
        )
    return similarity


def _ahead(sides: Sides, own: Float32, rows: Int64, columns: Int64) -> Int64:
    """Return how many foreign captions of a block are ahead of each image's best own, (rows,)."""
    rough = sides.images[rows[0] : rows[-1] + 1] @ sides.captions[columns[0] : columns[-1] + 1].T
    # Bound on the rounding error of a float32 dot product of unit rows, Higham (2002), "Accuracy
    # and Stability of Numerical Algorithms", section 3.1: n u / (1 - n u) times the sum of the
    # products' sizes, at most 1; four units more for the rows' lengths and the comparison.
    error = sides.images.shape[1] * 2.0**-24
    margin = np.float32(error / (1 - error) + 4 * 2.0**-24)
    floor = own[rows, None]
    sure = rough > floor + margin
    counts: Int64 = np.count_nonzero(sure, axis=1).astype(np.int64)
    row, column = np.nonzero((rough >= floor - margin) & ~sure)
    foreign: Bool = sides.owner[columns[column]] != rows[row]
    row, column = row[foreign], column[foreign]
    level = exact(sides, rows[row], columns[column]) >= own[rows[row]]
    counts += np.bincount(row[level], minlength=len(rows))
    return counts


AT: Final = (1, 5, 10)  # the ranks up to which a caption counts as found
DRAWN: Final = 200  # the paper's protocol: queries of a draw
DRAWS: Final = 10  # the paper's protocol: draws


@dataclass(frozen=True, slots=True)
class Drawn:
    """Recall of repeated draws of queries."""

    mean: float  # over the draws
    deviation: float  # over the draws: that of a sample (n - 1)
    queries: int = DRAWN  # of a draw
    draws: int = DRAWS  # number of draws


@dataclass(frozen=True, slots=True)
class Recall:
    """How often an image finds its caption among the first."""

    k: int  # how many of the first count
    share: Rate  # of all queries, once
    drawn: Drawn | None  # of draws of them; `None` where there are no more queries than in a draw

    def plain(self) -> dict[str, object]:
        """Return the numbers, for JSON."""
        share = self.share
        ends = {"value": share.share, "low": share.low, "high": share.high}
        counts = {"found": share.count, "queries": share.total}
        return {"k": self.k, **ends, **counts, "drawn": self.drawn and asdict(self.drawn)}


def hit_columns(ranks: Int64) -> Mapping[str, Int8]:
    """Return whether each query found a caption of its own by each rank: ``r@1``, ``r@5``, ...

    >>> {name: list(map(int, hits)) for name, hits in hit_columns(np.array([1, 6])).items()}
    {'r@1': [1, 0], 'r@5': [1, 0], 'r@10': [1, 1]}
    """
    return {f"r@{k}": (ranks <= k).astype(np.int8) for k in AT}


def recalls(ranks: Int64, seed: int = 0) -> Sequence[Recall]:
    """Return the recall of ranks (n,), which begin at 1, at each of :data:`AT`."""
    hits = np.stack(list(hit_columns(ranks).values()), axis=1).astype(np.float64)
    drawn: list[Drawn | None] = [None] * len(AT)
    if len(ranks) > DRAWN:
        scores = part_draws(hits, np.ones(len(ranks), np.bool_), DRAWN, DRAWS, seed).scores
        deviation = scores.std(axis=0, ddof=1)
        drawn = [Drawn(*pair) for pair in zip(scores.mean(axis=0), deviation, strict=True)]
    return [
        Recall(k, Rate.of(int(hits[:, place].sum()), len(ranks)), drawn[place])
        for place, k in enumerate(AT)
    ]
