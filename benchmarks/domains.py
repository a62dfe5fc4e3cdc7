"""Precision and recall of the grades in twelve domains: the tables of docs/detection.md.

usage: VISLEAK_DATA=FOLDER python benchmarks/domains.py [SET ...]

For each set, all pairs within it and copies of the images of the reported half are graded by the
whole pipeline with its defaults. Each image is copied once; the changes take turns. Photographs
also undergo every change that covers or distorts a part. Rendered documents, of kinds that were not
fitted on, have one field changed or are copied. ``leaf`` and ``screens`` had no part in any
fitting.

Writes ``domains.json`` set by set. If sets are named, the others keep their figures.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import documents
import numpy as np
import numpy.typing as npt
from changes import OCCLUDING, PLANTED, generator
from domain_sets import FOLDERS, REPORTED, DomainSet, planted
from measures import expected_calibration_error
from record import Bar, data_folder, known_figures, write
from samples import candidates, documents_in, number_of, of_one_document, stored

from visleak import pipeline
from visleak.encoders import load_encoder
from visleak.grading import grade, load_grader
from visleak.pipeline import RunContext
from visleak.pipeline.comparison import Comparison
from visleak.records import GRADES, Grade, ImageSet
from visleak.settings import Settings

EXACT, NEAR = GRADES.index(Grade.EXACT), GRADES.index(Grade.NEAR)

#: Most images of a set that are copied; documents of each kind, and how many of them have copies.
SOURCES, DOCUMENTS, COPIED = 140, 20, 5

#: Most wrong pairs that are listed, within a set and of its copies.
LISTED = 6

#: Sets that also undergo the occluding changes.
PHOTOGRAPHS = ("photos",)

PRECISION, FOUND, FOUND_TINY, CALIBRATION, VERIFIED = 0.98, 0.95, 0.90, 0.05, 60
CHANGED_NEAR = 0.005
OCCLUDED = {**dict.fromkeys(OCCLUDING, 0.95), "mosaic 12": 0.80}

#: The name of the rendered documents among the sets.
DRAWN = "documents"

#: Names of the two sides of a comparison.
QUERIES, REFERENCES = "queries", "references"


def graded(queries: ImageSet, references: ImageSet | None, place: RunContext) -> Comparison:
    """Return the pairs of two sets, or within one, with their grades, as an audit has them."""
    sides = ([queries], []) if references is None else ([queries], [references])
    settings = Settings(within=references is None)
    return pipeline.run(*sides, load_encoder(), settings, place).comparisons[0]


class Tally:
    """Counts of the verified pairs of a set: their grades against the truth."""

    def __init__(self) -> None:
        self.probability: list[float] = []
        self.true: list[bool] = []
        self.right = self.wrong = self.wrong_exact = self.doubtful = 0
        self.verified = self.queries = 0

    def count(
        self, compared: Comparison, true: npt.NDArray[np.bool_], doubtful: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """Count the pairs of a comparison; return the wrong rows, the most probable first."""
        assert compared.grades is not None
        assert compared.relations is not None
        grades, probability = compared.grades.grade, compared.grades.probability
        near = (grades == NEAR) | (grades == EXACT)
        self.right += int((near & true).sum())
        self.doubtful += int((near & ~true & doubtful).sum())
        self.wrong += int((near & ~true & ~doubtful).sum())
        self.wrong_exact += int(((grades == EXACT) & ~true & ~doubtful).sum())
        checked = compared.relations.of(np.arange(len(grades)))[1] & (grades >= 0)
        self.verified += int(checked.sum())
        self.queries += len(compared.query.images)
        kept = checked & (true | ~doubtful)
        self.probability += probability[kept].tolist()
        self.true += true[kept].tolist()
        wrong = np.flatnonzero(near & ~true & ~doubtful)
        return wrong[np.argsort(-probability[wrong], kind="stable")]

    def figures(self) -> dict[str, Any]:
        """Return the figures of the set."""
        return {
            "near_or_exact": self.right + self.wrong,
            "wrong": self.wrong,
            "wrong_exact": self.wrong_exact,
            "doubtful": self.doubtful,
            "precision": self.right / max(1, self.right + self.wrong),
            "calibration_error": expected_calibration_error(
                np.array(self.probability), np.array(self.true)
            ),
            "verified_per_query": self.verified / max(1, self.queries),
        }


def on_set(images: DomainSet, folder: Path, place: RunContext) -> dict[str, Any]:
    """Return the figures of one set."""
    start = time.perf_counter()
    everything = (images.image(number) for number in range(len(images.names)))
    groups, tally = np.array(images.groups), Tally()
    references = stored(everything, folder, REFERENCES)
    within = graded(references, None, place)
    left, right = within.pairs.query, within.pairs.reference
    wrong = tally.count(within, groups[left] == groups[right], _doubtful(images, left, right))
    errors = _errors(images, within, wrong, left, np.full(len(left), ""))
    sources = images.sources(REPORTED, SOURCES)
    copies = list(in_turn(images, sources, list(PLANTED)))
    if images.name in PHOTOGRAPHS:
        copies += planted(images, sources, list(OCCLUDING))
    owner = np.array([source for _, source, _ in copies])
    kinds = np.array([kind for _, _, kind in copies])
    queries = stored((pixels for pixels, _, _ in copies), folder, QUERIES)
    compared = graded(queries, references, place)
    source, reference = owner[compared.pairs.query], compared.pairs.reference
    true = groups[source] == groups[reference]
    wrong = tally.count(compared, true, _doubtful(images, source, reference))
    errors += _errors(images, compared, wrong, source, kinds[compared.pairs.query])
    return {
        "images": len(images.names),
        **tally.figures(),
        "found": _found(compared, true, kinds),
        "errors": errors,
        "seconds": time.perf_counter() - start,
    }


def _errors(
    images: DomainSet, compared: Comparison, rows: npt.NDArray[np.int64],
    source: npt.NDArray[np.int64], kinds: npt.NDArray[np.str_],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the first of some wrong pairs with the names of their images."""
    assert compared.grades is not None
    return [
        {
            "query": images.names[source[row]],
            "change": str(kinds[row]),
            "reference": images.names[compared.pairs.reference[row]],
            "probability": round(float(compared.grades.probability[row]), 3),
        }
        for row in rows[:LISTED].tolist()
    ]


def in_turn(
    images: DomainSet, sources: Sequence[int], names: Sequence[str]
) -> Iterator[tuple[npt.NDArray[np.uint8], int, str]]:
    """Yield one copy of each image: pixels, position of the source, name of the change."""
    for number, source in enumerate(sources):
        yield from planted(images, [source], [names[number % len(names)]])


def _doubtful(
    images: DomainSet, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return the pairs whose truth is unknown."""
    return images.of_one_scene(one, other)


def _found(
    compared: Comparison, true: npt.NDArray[np.bool_], kinds: npt.NDArray[np.str_]
) -> dict[str, float]:
    """Return the share of the copies of each kind that are graded near or exact.

    The pair with the original or with a copy of it counts: two images that near pairs connect
    already are not verified.
    """
    assert compared.grades is not None
    grades = compared.grades.grade
    found = np.zeros(len(kinds), np.bool_)
    found[compared.pairs.query[true & ((grades == NEAR) | (grades == EXACT))]] = True
    return {kind: float(found[kinds == kind].mean()) for kind in dict.fromkeys(kinds.tolist())}


def on_documents(folder: Path, place: RunContext) -> dict[str, Any]:
    """Return the figures of rendered documents of the reported kinds."""
    start = time.perf_counter()
    jobs = [
        (kind, 1000 + number, number < COPIED)
        for kind in documents.REPORTED
        for number in range(DOCUMENTS)
    ]
    truths, queries, references = documents_in(folder, jobs, place)
    # other documents of a kind are what all fields changed are: only the own pair is verified
    found = candidates(queries, references, place, of_one_document(truths))
    grades = grade(
        found.pairs.similarity, found.pairs.background, found.evidence,
        equal_bytes=np.zeros(len(found.pairs), np.bool_),
        flat=np.zeros(len(found.pairs), np.bool_),
        grader=load_grader(),
    ).grade  # fmt: skip
    numbers = np.array(sorted(truths))
    row = np.searchsorted(numbers, number_of(found.query))
    near, exact = np.zeros(len(numbers), np.bool_), np.zeros(len(numbers), np.bool_)
    near[row] = (grades == NEAR) | (grades == EXACT)
    exact[row] = grades == EXACT
    known = [truths[number] for number in numbers.tolist()]
    changed = np.array([not truth.near for truth in known])
    plain = np.array([not truth.copy for truth in known])
    kinds = np.array([truth.copy for truth in known])
    changes = np.array([truth.change for truth in known])
    missed = numbers[near & changed]
    return {
        "errors": [
            {name: of for name, of in asdict(truths[number]).items() if name != "near"}
            for number in generator("errors").permutation(missed)[: 2 * LISTED].tolist()
        ],
        "changed_pairs": int(changed.sum()),
        "changed_near": float(near[changed].mean()),
        "changed_exact": int(exact[changed].sum()),
        "changed_near_unprocessed": float(near[changed & plain].mean()),
        "changed_near_by_field": {
            name: float(near[changed & (changes == name)].mean())
            for name in sorted(set(changes[changed].tolist()))
        },
        "copies_found": {
            name: float(near[~changed & (kinds == name)].mean()) for name in documents.COPIES
        },
        "seconds": time.perf_counter() - start,
    }


def bars_of(name: str, figures: Mapping[str, Any]) -> list[Bar]:
    """Return the bars of a set."""
    least = FOUND_TINY if name == "fashion" else FOUND
    found = [figures["found"][kind] for kind in PLANTED]
    bars = [
        Bar(f"{name}: precision of near and exact", figures["precision"], PRECISION, False),
        Bar(f"{name}: wrong exact", figures["wrong_exact"], 0),
        Bar(f"{name}: planted copies found", float(np.mean(found)), least, False),
        Bar(f"{name}: calibration error", figures["calibration_error"], CALIBRATION),
        Bar(f"{name}: pairs verified per query", figures["verified_per_query"], VERIFIED),
    ]
    return bars + [
        Bar(f"{name}: found under {kind}", figures["found"][kind], OCCLUDED[kind], False)
        for kind in OCCLUDING
        if kind in figures["found"]
    ]


def document_bars(figures: Mapping[str, Any]) -> list[Bar]:
    """Return the bars of rendered documents."""
    return [
        Bar("documents, one field changed: near", figures["changed_near"], CHANGED_NEAR),
        Bar(
            "documents, one field changed and nothing else: near",
            figures["changed_near_unprocessed"],
            CHANGED_NEAR,
        ),
        Bar("documents, one field changed: exact", figures["changed_exact"], 0),
        *(
            Bar(f"documents: copies found, {name}", share, FOUND, False)
            for name, share in figures["copies_found"].items()
        ),
    ]


def bars(figures: Mapping[str, Any]) -> list[Bar]:
    """Return the bars of the sets that have figures, and the time of all of them."""
    result = [bar for name in FOLDERS if name in figures for bar in bars_of(name, figures[name])]
    if DRAWN in figures:
        result += document_bars(figures[DRAWN])
    seconds = sum(own["seconds"] for own in figures.values())
    return [*result, Bar(f"minutes for {len(figures)} sets", seconds / 60, 20)]


def main(chosen: Sequence[str]) -> None:
    """Measure every set, or those named."""
    data: Path = data_folder("domains", "photos", "coco128")
    figures = known_figures(__file__) if chosen else {}
    for name in chosen or (*FOLDERS, DRAWN):
        with RunContext.at(None, 2, None) as place, tempfile.TemporaryDirectory() as folder:
            if name == DRAWN:
                figures[name] = on_documents(Path(folder), place)
            else:
                figures[name] = on_set(DomainSet.of(data, name), Path(folder), place)
        print(name, figures[name], flush=True)
        write(__file__, bars(figures), figures)


if __name__ == "__main__":
    main(sys.argv[1:])
