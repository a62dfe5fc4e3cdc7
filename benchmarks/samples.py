"""Candidate pairs with what is known about them, for fitting and for measuring the grader.

- CIFAR-10, test against train: pairs of even test index, judged by people (``verdicts_dev.csv``).
- Photographs: the fitting half of the collection (positions 0 and 1 modulo 4 by name) is cropped,
  mirrored, compressed and blurred; the own original is near, every other candidate is different.
  Pairs of :mod:`hard_negatives` are never near; another shot of a scene is similar.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from hard_negatives import hard_negatives
from PIL import Image, ImageFilter

from visleak.encoders import load_encoder
from visleak.grading import features
from visleak.images import open_images
from visleak.pipeline import Workplace
from visleak.pipeline.candidates import find_pairs, side, views_for
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.local import with_votes
from visleak.pipeline.run import thresholds_of
from visleak.pipeline.verification import Material, verify
from visleak.records import Evidence, ImageSet, Pairs
from visleak.robustness.conditions import CONDITIONS
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted
from visleak.settings import Settings

#: Verdicts beside those of people (0 exact, 1 near, 2 similar, 3 different).
UNJUDGED, LEFT_OUT = -1, -2

#: Hard negatives that are another shot of the scene.
ANOTHER_SHOT = ("parallax", "stereo", "motion")

#: Side of photographs that are made as small as CIFAR-10's.
TINY = 32


@dataclass(frozen=True)
class Found:
    """Candidate pairs of two sets and what was measured.

    Attributes:
        query, reference: ids.
        pairs: the candidates.
        evidence: what was measured.
    """

    query: npt.NDArray[np.str_]
    reference: npt.NDArray[np.str_]
    pairs: Pairs
    evidence: Evidence

    @property
    def columns(self) -> dict[str, npt.NDArray[np.float64]]:
        """What the grader looks at."""
        return features(self.pairs.similarity, self.pairs.background, self.evidence)

    @property
    def checked(self) -> npt.NDArray[np.bool_]:
        """Pairs that were checked in full."""
        return ~np.isnan(self.evidence.checks["gradient"])


@dataclass(frozen=True)
class Sample:
    """Pairs to fit on.

    Attributes:
        columns: what the grader looks at, one row a pair.
        verdict: see the module; ``int64`` (n,).
        query: which query each pair belongs to: a group for cross-validation.
        reference: id of the reference.
        kind: how the pair came about: a condition or a kind of hard negative, ``wrong`` for any
            other pair of photographs, empty for CIFAR-10.
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


def candidates(query: ImageSet, reference: ImageSet, place: Workplace) -> Found:
    """Return the candidates of two sets with the evidence on them, as an audit has them."""
    encoder = load_encoder()
    views, engine = views_for(encoder, "all"), ExactSearch()
    material, sides = {}, {}
    for images in (query, reference):
        prints = fingerprint(images, encoder, place)
        sides[images.name] = side(prints, encoder, views, engine, place.workers)
        material[images.name] = Material(images, prints)
    soft = thresholds_of(encoder, Settings()).soft
    pairs = find_pairs(
        sides[query.name], sides[reference.name],
        encoder=encoder, views=views, wanted=Wanted(soft), engine=engine, workers=place.workers,
    )  # fmt: skip
    sets = {images.name: images for images in (query, reference)}
    pairs = next(with_votes([pairs], sides, sets, encoder, place))
    evidence = verify([pairs], material, place)[0]
    left = material[query.name].prints.ids.take(pairs.query).to_numpy(zero_copy_only=False)
    right = material[reference.name].prints.ids.take(pairs.reference)
    return Found(
        left.astype(str), right.to_numpy(zero_copy_only=False).astype(str), pairs, evidence
    )


# -- CIFAR-10 ------------------------------------------------------------------------------------


def cifar(data: Path, place: Workplace) -> Found:
    """Return the candidates of CIFAR-10's test images, ids are indices."""
    test, train = (
        open_images(data / "cifar10" / f"{name}.parquet", name=name) for name in ("test", "train")
    )
    return candidates(test, train, place)


def judgements(data: Path) -> dict[tuple[str, str], int]:
    """Return people's verdicts by pair of ids, ``LEFT_OUT`` where they differ."""
    with (data / "cifar10" / "verdicts_dev.csv").open() as lines:
        return {
            (row["TestID"], row["TrainID"]): (
                int(row["Judgment"]) if row["Agreed"] == "1" else LEFT_OUT
            )
            for row in csv.DictReader(lines)
        }


def cifar_sample(found: Found, judged: dict[tuple[str, str], int]) -> Sample:
    """Return the checked pairs of even test index with their verdicts.

    Several detectors proposed the pairs to judge, so the unjudged ones of queries without any
    leak count as different when fitting. A query that leaks once may leak again, unjudged: its
    unjudged pairs are left out.
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
    """Return a picture after JPEG compression."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def tiny(picture: Image.Image) -> Image.Image:
    """Return a picture at 32 x 32, as CIFAR-10's were made."""
    square = cv2.resize(np.asarray(picture), (TINY, TINY), interpolation=cv2.INTER_AREA)
    return Image.fromarray(square)


#: Conditions that the grader may be fitted on: crop, flip, blur and JPEG.
SEEN = (
    *("original", "crop-20", "crop-50", "crop-100", "flip-h", "flip-v"),
    *("gauss", "jpeg-5", "jpeg-10", "jpeg-30"),
)

#: The same for pictures of 32 pixels: cropped and mirrored while they are large, the rest after.
TINY_SEEN = ("crop-20", "crop-50", "flip-h")
TINY_AFTER: dict[str, Callable[[Image.Image], Image.Image]] = {
    "jpeg": lambda picture: compress(picture, 50),
    "blur": lambda picture: picture.filter(ImageFilter.GaussianBlur(0.7)),
}


def changed(
    originals: Sequence[Image.Image], *, small: bool
) -> Iterator[tuple[Image.Image, int, str]]:
    """Yield changed photographs, whose each is, and the condition."""
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
    place: Workplace,
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
    # nobody asks the grader about pairs that are exact
    return sample.only(found.checked & (found.evidence.checks["exact"] != 1))


def hard_sample(originals: Sequence[Image.Image], place: Workplace) -> Sample:
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
