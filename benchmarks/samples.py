"""Candidate pairs with their ground truth, for fitting and measuring the grader.

- CIFAR-10, test against train: pairs of even test index, judged by people (``verdicts_dev.csv``).
- Photographs: those of the fitting half (positions 0 and 1 modulo 4 by name) are cropped, mirrored,
  compressed and blurred. The pair with the original is near, every other candidate is different.
  Pairs of :mod:`hard_negatives` are never near; another shot of a scene is similar.
- Sets of other domains (:mod:`domain_sets`) with planted copies, and rendered documents
  (:mod:`documents`) with one field changed.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path

import cv2
import documents
import numpy as np
import numpy.typing as npt
from changes import FITTED, LETTERED, OCCLUDING, PLANTED, generator
from domain_sets import DomainSet, planted
from hard_negatives import hard_negatives
from PIL import Image, ImageFilter

from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.grading import features
from visleak.pipeline import RunContext
from visleak.pipeline.candidates import find_pairs, side, views_for
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import EncodedSet
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.local_features import with_votes
from visleak.pipeline.run import thresholds_of
from visleak.pipeline.verification import verify
from visleak.pipeline.windows import with_windows
from visleak.records import Evidence, ImageSet, Pairs
from visleak.robustness.conditions import CONDITIONS
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted
from visleak.settings import Settings

#: Verdicts of pairs without a human judgement (0 exact, 1 near, 2 similar, 3 different).
UNJUDGED, LEFT_OUT = -1, -2

#: Hard negatives that are another shot of the scene.
ANOTHER_SHOT = ("parallax", "stereo", "motion")

#: Side of the images of CIFAR-10, to which photographs are reduced.
TINY = 32


@dataclass(frozen=True)
class Found:
    """Candidate pairs of two sets with their measurements.

    Attributes:
        query, reference: ids.
        pairs: the candidates.
        evidence: the measurements.
    """

    query: npt.NDArray[np.str_]
    reference: npt.NDArray[np.str_]
    pairs: Pairs
    evidence: Evidence

    @property
    def columns(self) -> dict[str, npt.NDArray[np.float64]]:
        """The features of the grader."""
        return features(self.pairs.similarity, self.pairs.background, self.evidence)

    @property
    def checked(self) -> npt.NDArray[np.bool_]:
        """Pairs that had the full check."""
        return ~np.isnan(self.evidence.checks["gradient"])


@dataclass(frozen=True)
class Sample:
    """Pairs to fit on.

    Attributes:
        columns: features of the grader, one row per pair.
        verdict: see the module; ``int64`` (n,).
        query: the query of each pair: a group for cross-validation.
        reference: id of the reference.
        kind: origin of the pair: a condition or a kind of hard negative, ``wrong`` for any other
            pair of photographs, empty for CIFAR-10.
    """

    columns: dict[str, npt.NDArray[np.float64]]
    verdict: npt.NDArray[np.int64]
    query: npt.NDArray[np.int64]
    reference: npt.NDArray[np.str_]
    kind: npt.NDArray[np.str_]

    def only(self, keep: npt.NDArray[np.bool_]) -> Sample:
        """Return some of the rows."""
        columns = {name: column[keep] for name, column in self.columns.items()}
        return Sample(
            columns, self.verdict[keep], self.query[keep], self.reference[keep], self.kind[keep]
        )

    def __len__(self) -> int:
        return len(self.verdict)


def candidates(
    query: ImageSet,
    reference: ImageSet,
    place: RunContext,
    keep: Callable[[Pairs], npt.NDArray[np.bool_]] | None = None,
) -> Found:
    """Return the candidates of two sets with their evidence, as an audit finds them.

    Args:
        query, reference: the sets; the same set twice for the pairs within it.
        place: execution context.
        keep: selects the candidates that are verified; all by default.
    """
    encoder = load_encoder()
    views, engine = views_for(encoder, "all"), ExactSearch()
    sides = {}
    for images in {images.name: images for images in (query, reference)}.values():
        prints = fingerprint(images, encoder, place)
        encoded = EncodedSet(images, prints)
        sides[images.name] = side(encoded, encoder, views, engine, place.workers)
    soft = thresholds_of(encoder, Settings()).soft
    pairs = find_pairs(
        sides[query.name], sides[reference.name],
        encoder=encoder, views=views, wanted=Wanted(soft), engine=engine, workers=place.workers,
    )  # fmt: skip
    own = sides[query.name], sides[reference.name]
    found = Comparison.of(*own, pairs, thresholds_of(encoder, Settings()), "auto")
    pairs = with_windows(next(with_votes([found], encoder, place)), encoder, place.workers).pairs
    if keep is not None:
        pairs = _only(pairs, keep(pairs))
    evidence = verify([pairs], sides, place)[0]
    left = sides[query.name].fingerprints.ids.take(pairs.query).to_numpy(zero_copy_only=False)
    right = sides[reference.name].fingerprints.ids.take(pairs.reference)
    return Found(
        left.astype(str), right.to_numpy(zero_copy_only=False).astype(str), pairs, evidence
    )


def _only(pairs: Pairs, keep: npt.NDArray[np.bool_]) -> Pairs:
    names = ("query", "reference", "similarity", "background", "view", "votes")
    columns = {name: getattr(pairs, name) for name in names}
    return replace(pairs, **{n: None if c is None else c[keep] for n, c in columns.items()})


# -- other domains -------------------------------------------------------------------------------

#: Changes of every source, and the number of further ones. Sources of photographs undergo all
#: changes that cover or distort a part.
ALWAYS, FURTHER = tuple(PLANTED), 4
PHOTOGRAPHS = ("photos", "coco", "clothing")

#: Changes after which an image that is distinguished by its colour is a different one.
COLOURS = ("hue", "inverted", "grey, gamma", "combined")

#: Wrong pairs within a set that are verified: those of the highest rank.
WITHIN = 300


def stored(images: Iterable[npt.NDArray[np.uint8]], folder: Path, name: str) -> ImageSet:
    """Store images as files and return them as a set, so that workers hold no copies in memory.

    Args:
        images: RGB ``uint8``.
        folder: receives a folder of this name.
        name: of the set.
    """
    root = folder / name
    root.mkdir()
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(root / f"{number:06}.png", compress_level=1)
    return open_images(root, name=name)


def number_of(names: npt.NDArray[np.str_]) -> npt.NDArray[np.int64]:
    """Return the numbers of images that :func:`stored` wrote, by their ids."""
    return np.array([int(name.removesuffix(".png")) for name in names.tolist()], np.int64)


def domain_sample(
    images: DomainSet, half: int, most: int, place: RunContext, *, skip: int = 0, wrong: int = 1
) -> Sample:
    """Return pairs of a domain: copies, their best-ranked wrong pairs, and the best within the set.

    Args:
        images: the set.
        half: its images are sources, and references of the wrong pairs.
        most: most images that are copied.
        place: execution context.
        skip: sources to leave out.
        wrong: wrong pairs of each copy; if 0, only the copies with their sources are returned.
    """
    sources = images.sources(half, most, skip)
    copies: list[tuple[npt.NDArray[np.uint8], int, str]] = []
    for source in sources:
        rng = generator("further", images.name, images.names[source])
        always = (*ALWAYS, *OCCLUDING, *LETTERED) if images.name in PHOTOGRAPHS else ALWAYS
        names = [
            name
            for name in (*OCCLUDING, *FITTED)
            if name not in always and not (images.distinguished_by_colour and name in COLOURS)
        ]
        further = rng.choice(names, FURTHER, replace=False).tolist()
        copies += planted(images, [source], (*always, *further))
    with tempfile.TemporaryDirectory() as folder:
        return _of_domain(images, half, copies, Path(folder), place, wrong)


def _of_domain(
    images: DomainSet,
    half: int,
    copies: Sequence[tuple[npt.NDArray[np.uint8], int, str]],
    folder: Path,
    place: RunContext,
    most: int,
) -> Sample:
    owner = np.array([source for _, source, _ in copies])
    kinds = np.array([kind for _, _, kind in copies])
    groups, halves = np.array(images.groups), images.halves
    everything = (images.image(number) for number in range(len(images.names)))
    references = stored(everything, folder, "references")

    def best_wrong(pairs: Pairs) -> npt.NDArray[np.bool_]:
        own = owner[pairs.query] == pairs.reference
        wrong = ~own & (groups[owner[pairs.query]] != groups[pairs.reference])
        rank = np.where(wrong, pairs.similarity - pairs.background, -np.inf)
        order = np.lexsort((-rank, pairs.query))
        queries = pairs.query[order]
        first = order[np.arange(len(order)) - np.searchsorted(queries, queries) < most]
        return own | (np.isin(np.arange(len(own)), first) & wrong)

    def best_within(pairs: Pairs) -> npt.NDArray[np.bool_]:
        mine = halves[pairs.query] == half
        score = np.where(mine, pairs.similarity - pairs.background, -np.inf)
        keep = np.zeros(len(pairs), np.bool_)
        keep[np.argsort(-score, kind="stable")[:WITHIN]] = True
        return keep & mine

    queries = stored((pixels for pixels, _, _ in copies), folder, "queries")
    found = candidates(queries, references, place, best_wrong)
    row, reference = number_of(found.query), number_of(found.reference)
    own = owner[row] == reference
    doubtful = ~own & images.doubtful(owner[row], reference, found.columns)
    first = Sample(
        found.columns, np.where(own, 1, 3), owner[row], found.reference,
        np.where(own, kinds[row], "wrong"),
    ).only(found.checked & ~doubtful)  # fmt: skip
    if not most:
        return first
    found = candidates(references, references, place, best_within)
    left, right = number_of(found.query), number_of(found.reference)
    copy = groups[left] == groups[right]
    doubtful = images.doubtful(left, right, found.columns)
    second = Sample(
        found.columns, np.where(copy, 1, 3), left, found.reference,
        np.where(copy, "copy", "within"),
    ).only(found.checked & (copy | ~doubtful))  # fmt: skip
    return joined(first, second)


def document_sample(
    kinds: Sequence[str],
    numbers: Sequence[int],
    place: RunContext,
    wanted: Callable[[Drawn], bool] = lambda truth: True,
) -> Sample:
    """Return pairs of rendered documents: copies, and copies with one or all fields changed.

    Args:
        kinds: of :mod:`documents`.
        numbers: of the documents of each kind.
        place: execution context.
        wanted: whether a pair is part of the sample; all are by default.
    """
    jobs = [(kind, number, True) for kind in kinds for number in numbers]
    with tempfile.TemporaryDirectory() as folder:
        truths, queries, originals = documents_in(Path(folder), jobs, place)
        found = candidates(queries, originals, place, of_one_document(truths, wanted))
    row = number_of(found.query)
    own = [truths[number] for number in row.tolist()]
    verdict = np.array([1 if truth.near else 2 for truth in own])
    kind = np.array([truth.copy if truth.near else f"{truth.change} changed" for truth in own])
    sample = Sample(found.columns, verdict, row, found.reference, kind)
    return sample.only(found.checked)


#: Distance of the numbers of two documents' first pairs; a document has fewer pairs.
_PAIRS = 100


@dataclass(frozen=True)
class Drawn:
    """Ground truth of a pair of renderings.

    Attributes:
        kind: of document.
        number: of the document among its kind.
        pair: of the document.
        near: the query is a copy of the original.
        change: of the field; empty for a copy.
        copy: processing of the query; empty if there was none.
    """

    kind: str
    number: int
    pair: int
    near: bool
    change: str
    copy: str


def documents_in(
    folder: Path, jobs: Sequence[tuple[str, int, bool]], place: RunContext
) -> tuple[dict[int, Drawn], ImageSet, ImageSet]:
    """Render documents into a folder; return the truth by number, queries and originals.

    There is one original per document, in the order of the jobs. Queries are named by their
    numbers; see :func:`number_of`.

    Args:
        folder: an empty folder.
        jobs: kind and number of each document, and whether copies are made as well.
        place: execution context.
    """
    sets = ("queries", "originals")
    for name in sets:
        (folder / name).mkdir()
    with Pool(place.workers) as pool:
        parts = pool.starmap(_drawn, [(folder, *job) for job in enumerate(jobs)], chunksize=1)
    truths = {number: truth for part in parts for number, truth in part.items()}
    return truths, *(open_images(folder / name, name=name) for name in sets)


def of_one_document(
    truths: Mapping[int, Drawn], wanted: Callable[[Drawn], bool] = lambda truth: True
) -> Callable[[Pairs], npt.NDArray[np.bool_]]:
    """Return a selection of the wanted pairs of a query with the original of its document."""
    numbers = sorted(truths)
    document = np.array(numbers) // _PAIRS
    chosen = np.array([wanted(truths[number]) for number in numbers])
    return lambda pairs: (document[pairs.query] == pairs.reference) & chosen[pairs.query]


def _drawn(folder: Path, place: int, job: tuple[str, int, bool]) -> dict[int, Drawn]:
    """Store a document and its pairs; return the truth of each pair by number."""
    kind, own, copied = job
    made = documents.document(kind, own)
    Image.fromarray(made.original).save(folder / "originals" / f"{place:06}.png", compress_level=1)
    pairs = documents.pairs(made, processed=1)
    truths = {}
    for count, pair in enumerate(pairs):
        if pair.grade == "near" and not copied:
            continue
        number = _PAIRS * place + count
        Image.fromarray(pair.query).save(folder / "queries" / f"{number:06}.png", compress_level=1)
        truths[number] = Drawn(kind, own, count, pair.grade == "near", pair.change, pair.copy)
    return truths


# -- CIFAR-10 ------------------------------------------------------------------------------------


def cifar(data: Path, place: RunContext) -> Found:
    """Return the candidates of CIFAR-10's test images; ids are indices."""
    test, train = (
        open_images(data / "cifar10" / f"{name}.parquet", name=name) for name in ("test", "train")
    )
    return candidates(test, train, place)


def judgements(data: Path) -> dict[tuple[str, str], int]:
    """Return human verdicts by pair of ids, ``LEFT_OUT`` where two judgements differ."""
    with (data / "cifar10" / "verdicts_dev.csv").open() as lines:
        return {
            (row["TestID"], row["TrainID"]): (
                int(row["Judgment"]) if row["Agreed"] == "1" else LEFT_OUT
            )
            for row in csv.DictReader(lines)
        }


def cifar_sample(found: Found, judged: dict[tuple[str, str], int]) -> Sample:
    """Return the checked pairs of even test index with their verdicts.

    Several detectors proposed the pairs to judge, so unjudged pairs of queries without a leak count
    as different when fitting. Unjudged pairs of leaking queries are left out: they may be near as
    well.
    """
    leaking = {query for (query, _), verdict in judged.items() if 0 <= verdict <= 2}
    verdict = np.array(
        [
            judged.get(pair, LEFT_OUT if pair[0] in leaking else UNJUDGED)
            for pair in zip(found.query.tolist(), found.reference.tolist(), strict=True)
        ]
    )
    index = found.query.astype(np.int64)
    kind = np.full(len(index), "")
    sample = Sample(found.columns, verdict, index, found.reference, kind)
    return sample.only(found.checked & (index % 2 == 0))


# -- photographs ---------------------------------------------------------------------------------


def photographs(data: Path, half: str) -> list[Image.Image]:
    """Return the photographs of the fitting half or of the reported half."""
    paths = sorted((data / "photos").glob("*.jpg"))
    names = [path.name for path in paths]
    assert names == sorted(names)
    assert len(names) == 500
    wanted = {"fitting": (0, 1), "reported": (2, 3)}[half]
    return [
        Image.open(path).convert("RGB") for place, path in enumerate(paths) if place % 4 in wanted
    ]


def compress(picture: Image.Image, quality: int) -> Image.Image:
    """Return an image after JPEG compression."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def tiny(picture: Image.Image) -> Image.Image:
    """Return an image at 32 x 32, as CIFAR-10's were made."""
    square = cv2.resize(np.asarray(picture), (TINY, TINY), interpolation=cv2.INTER_AREA)
    return Image.fromarray(square)


#: Conditions that the grader is fitted on: crop, flip, blur and JPEG.
SEEN = (
    *("original", "crop-20", "crop-50", "crop-100", "flip-h", "flip-v"),
    *("gauss", "jpeg-5", "jpeg-10", "jpeg-30"),
)

#: The same for images of 32 pixels: crops and mirrors before the reduction, the others after it.
TINY_SEEN = ("crop-20", "crop-50", "flip-h")
TINY_AFTER: dict[str, Callable[[Image.Image], Image.Image]] = {
    "jpeg": lambda picture: compress(picture, 50),
    "blur": lambda picture: picture.filter(ImageFilter.GaussianBlur(0.7)),
}


def changed(
    originals: Sequence[Image.Image], *, small: bool
) -> Iterator[tuple[Image.Image, int, str]]:
    """Yield changed photographs, the number of the original, and the condition."""
    for name in TINY_SEEN if small else SEEN:
        for number, picture in enumerate(originals):
            pixels = CONDITIONS[name].of(np.asarray(picture), str(number))
            if pixels is not None:
                made = Image.fromarray(pixels)
                yield tiny(made) if small else made, number, name
    for name, change in TINY_AFTER.items() if small else ():
        for number, picture in enumerate(originals):
            yield change(tiny(picture)), number, name


def changed_sample(
    originals: Sequence[Image.Image],
    place: RunContext,
    *,
    small: bool = False,
    others: Sequence[Image.Image] = (),
) -> Sample:
    """Return the checked pairs of changed photographs with all originals, and with others."""
    queries, truth, names = zip(*changed(originals, small=small), strict=True)
    references = [tiny(p) if small else p for p in (*originals, *others)]
    found = candidates(
        open_images(list(queries), name="changed"), open_images(references, name="all"), place
    )
    row = found.query.astype(np.int64)
    owner = np.array(truth)[row]
    same = owner == found.reference.astype(np.int64)
    kind = np.where(same, np.array(names)[row], "wrong")
    sample = Sample(found.columns, np.where(same, 1, 3), owner, found.reference, kind)
    # exact pairs are not graded
    return sample.only(found.checked & (found.evidence.checks["exact"] != 1))


def hard_sample(originals: Sequence[Image.Image], place: RunContext) -> Sample:
    """Return the checked pairs among the hard negatives."""
    hard = hard_negatives([np.asarray(picture) for picture in originals])
    queries = [Image.fromarray(pair.query) for pair in hard]
    references = [Image.fromarray(pair.reference) for pair in hard]
    found = candidates(
        open_images(queries, name="queries"), open_images(references, name="references"), place
    )
    pairs = [hard[int(query)] for query in found.query]
    kind = np.array([pair.kind for pair in pairs])
    verdict = np.where(np.isin(kind, ANOTHER_SHOT), 2, 3)
    owner = np.array([pair.source for pair in pairs])
    sample = Sample(found.columns, verdict, owner, found.reference, kind)
    return sample.only((found.query == found.reference) & found.checked)


def joined(first: Sample, second: Sample) -> Sample:
    """Return the pairs of two samples."""
    columns = {n: np.concatenate([first.columns[n], second.columns[n]]) for n in first.columns}
    names = ("verdict", "query", "reference", "kind")
    return Sample(
        columns, *(np.concatenate([getattr(s, n) for s in (first, second)]) for n in names)
    )
