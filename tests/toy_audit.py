"""Toy audits: folders written row by row, with rates counted one image at a time."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from visleak.rates import Rate
from visleak.records import Problem
from visleak.storage import (
    AUDIT,
    IMAGES,
    IMAGES_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    UNREADABLE,
    write_json,
    write_problems,
    write_tables,
)

GRADES = ("exact", "near", "similar", "different")
DEGREES = ("hard", "soft")
PROBABILITY = {"exact": 1.0, "near": 0.9, "similar": 0.3, "different": 0.02, None: None}

#: Names of cumulative rates, and the words of the pairs that count.
CUMULATIVE = {
    "exact": GRADES[:1],
    "near_or_exact": GRADES[:2],
    "similar_or_closer": GRADES[:3],
    "hard": DEGREES[:1],
    "hard_or_soft": DEGREES,
}
EXCLUSIVE = {"near": GRADES[:2], "similar": GRADES[:3], "soft": DEGREES}


def write_rows(folder, images=(), pairs=()):
    """Write the two tables; what a row leaves out is null."""
    for name, schema, rows in ((IMAGES, IMAGES_SCHEMA, images), (PAIRS, PAIRS_SCHEMA, pairs)):
        table = pa.Table.from_pylist([dict.fromkeys(schema.names) | r for r in rows], schema)
        write_tables(folder / name, schema, [table])


def pair_row(query, reference, grade="near", **more):
    """Return a pair of ``SET/ID``; coverage follows from the sets."""
    (one, first), (two, second) = (name.split("/", 1) for name in (query, reference))
    return {
        "query_set": one,
        "query": first,
        "reference_set": two,
        "reference": second,
        "similarity": 0.9,
        "degree": "hard",
        "grade": grade,
        "probability": PROBABILITY[grade],
        "reason": "made",
        "label_relation": "unknown",
        "modality": "full",
        "coverage": "within" if one == two else "intra",
    } | more


def image_row(name, id_, **more):
    return {"set": name, "id": id_, "locator": id_, "flat": False} | more


def leaking(rows, name, words, alone):
    """Return ids of a query set in such pairs; of both images if it was compared ``alone``."""
    found = set()
    for row in rows:
        counts = (row["coverage"] == "within") == alone and row["query_set"] == name
        if counts and {row["grade"], row["degree"]} & set(words):
            found |= {row["query"], row["reference"]} if alone else {row["query"]}
    return found


def rates_of(rows, name, total, *, alone, known):
    """Return the rates of a query set, ``None`` where no word of them is known."""
    every = CUMULATIVE | EXCLUSIVE
    counts = {key: len(leaking(rows, name, words, alone)) for key, words in every.items()}
    for key, words in EXCLUSIVE.items():
        counts[key] -= len(leaking(rows, name, words[:-1], alone))
    return {
        key: Rate.of(number, total).as_dict() if every[key][-1] in known else None
        for key, number in counts.items()
    }


def write_audit(
    folder,
    images,
    pairs,
    compared,
    *,
    problems=(),
    limits=(0.8, 0.6),
    graded=True,
    sets=None,
    comparisons=None,
    **changes,
):
    """Write the folder of an audit that found these pairs, and return its summary.

    ``sets``, ``comparisons``: name of a set or reference set to changes of its entry; further sets
    are added. ``changes`` are those of the summary, ``limits`` the thresholds hard and soft.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = ("query_set", "query", "similarity", "reference_set", "reference")
    rows = sorted(
        pairs, key=lambda row: tuple(-row[k] if k == "similarity" else row[k] for k in keys)
    )
    write_rows(folder, images, rows)
    write_problems(folder / UNREADABLE, problems)
    queries = list(dict.fromkeys(query for query, _ in compared))
    blank = {(image["set"], image["id"]) for image in images if image["flat"]}
    names = dict.fromkeys([*(i["set"] for i in images), *chain(*compared), *(sets or ())])
    own = {name: [image for image in images if image["set"] == name] for name in names}
    lone = {query for query in queries if {r for q, r in compared if q == query} == {query}}
    known = GRADES * graded + DEGREES * (limits[1] is not None)
    leaks = [row for row in rows if (row["query_set"], row["query"]) not in blank]

    def rates(name, rows):
        return rates_of(rows, name, len(own[name]), alone=name in lone, known=known)

    def entry(name):
        mine, lost = own[name], sum(problem.set == name for problem in problems)
        return {
            "name": name,
            "dataset": "d",
            "roles": [],
            "side": "query" if name in queries else "reference",
            "source": name,
            "images": len(mine) + lost,
            "readable": len(mine),
            "unreadable": lost,
            "flat": sum(image["flat"] for image in mine),
            "distinct": len({image.get("digest") for image in mine}),
            **(sets or {}).get(name, {}),
        }

    def comparison(query, reference):
        mine = [r for r in rows if (r["query_set"], r["reference_set"]) == (query, reference)]
        grades = Counter(str(row["grade"]) for row in mine)
        ends = {(row["grade"], row[end]) for row in mine for end in ("query", "reference")}
        within = {
            "duplicate_pairs": dict(sorted(grades.items())),
            "distinct_images": dict(sorted(Counter(str(grade) for grade, _ in ends).items())),
        }
        return {
            "query_set": query,
            "reference_set": reference,
            "coverage": "within" if query == reference else "intra",
            "modality": "full",
            "queries": len(own[query]),
            "pairs": len(mine),
            "rates": rates(query, [row for row in leaks if row["reference_set"] == reference]),
            **({"within": within} if query == reference else {}),
            **(comparisons or {}).get(reference, {}),
        }

    summary = {
        "schema": 1,
        "visleak": "0.1.0",
        "headline": "made",
        "sets": [entry(name) for name in own],
        "settings": {"encoder": "builtin", "sample": 0, "verify": graded},
        "encoder": {"name": "builtin", "digest": "b" * 12, "width": 8},
        "thresholds": {
            **dict(zip(DEGREES, limits, strict=True)),
            "provenance": "by hand",
            "provisional": False,
        },
        "verifier": {"digest": "v"} if graded else None,
        "grader": {"digest": "g", "near_at": 0.5} if graded else None,
        "comparisons": [comparison(query, reference) for query, reference in compared],
        "totals": [
            {"query_set": name, "headline": "", "rates": rates(name, leaks)} for name in queries
        ],
        "label_conflicts": sum(row["label_relation"] == "different" for row in rows),
        "skipped": [],
        "versions": {"numpy": "2"},
        "timings": {},
    } | changes
    write_json(folder / AUDIT, summary)
    return summary


@dataclass(frozen=True)
class Image:
    """An image: its id, label, and content where it equals another's."""

    id: str
    label: str | None = "thing"
    content: str = ""
    flat: bool = False


@dataclass(frozen=True)
class Pair:
    """A listed pair; ``within`` if both images are of the test set."""

    query: str
    reference: str
    grade: str | None = "near"
    similarity: float = 0.9
    within: bool = False
    degree: str | None = "hard"
    label_relation: str = "unknown"


def digest_of(set_name, image):
    content = image.content or f"{set_name}/{image.id}"
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def split_audit(folder, test, train, pairs=(), *, digests=None, within=True, verified=True):
    """Write an audit of the set ``test`` and, if it has images, ``train``.

    ``digests``: by set and id, where they are not made of the content; ``within``: of test itself.
    """
    sets = {"test": {each.id: each for each in test}, "train": {each.id: each for each in train}}
    images = []
    for name, own in sets.items():
        for id_, image in own.items():
            content = (digests or {}).get((name, id_), digest_of(name, image))
            images.append(image_row(name, id_, label=image.label, flat=image.flat, digest=content))
    rows = []
    for pair in pairs:
        other = "test" if pair.within else "train"
        more = {name: getattr(pair, name) for name in ("similarity", "degree", "label_relation")}
        more["query_label"] = sets["test"][pair.query].label
        more["reference_label"] = sets[other][pair.reference].label
        more |= {"modality": "image-only", "background": 0.1, "view": "original"}
        rows.append(pair_row(f"test/{pair.query}", f"{other}/{pair.reference}", pair.grade, **more))
    compared = [("test", "train")] * bool(train) + [("test", "test")] * within
    near = {row["query"] for row in rows if row["grade"] in GRADES[:2]}
    headline = f"{len(near)} of {len(test)} test images leak, as measured"
    write_audit(folder, images, rows, compared, graded=verified, headline=headline)
    return folder


def digest(number):
    return None if number is None else f"{number:032x}"


@dataclass
class World:
    """The sets and pairs of an audit.

    ``images``: set to id, number of the content (``None``: only a vector is left) and if blank;
    ``pairs``: query set, query, reference set, reference, similarity, grade.
    """

    images: Mapping[str, Sequence[tuple[str, int | None, bool]]]
    pairs: Sequence[tuple[str, str, str, str, float, str | None]]
    comparisons: Sequence[tuple[str, str]]
    unreadable: Iterable[tuple[str, str]] = ()
    encoder: str = "builtin"
    hard: float | None = 0.9
    soft: float | None = 0.6
    sample: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def graded(self):
        return all(pair[5] is not None for pair in self.pairs)

    def degree(self, similarity):
        if self.hard is not None and similarity >= self.hard:
            return "hard"
        return "soft" if self.soft is not None and similarity >= self.soft else None

    def write(self, folder):
        """Write the folder of an audit that found these pairs."""
        images = [
            image_row(name, id_, digest=digest(content), flat=flat)
            for name, own in self.images.items()
            for id_, content, flat in sorted(own)
        ]
        pairs = []
        for query_set, query, reference_set, reference, similarity, grade in self.pairs:
            ends = f"{query_set}/{query}", f"{reference_set}/{reference}"
            more = {"similarity": similarity, "degree": self.degree(similarity)}
            pairs.append(pair_row(*ends, grade, **more))
        about = {
            "settings": {"encoder": self.encoder, "sample": self.sample, "verify": self.graded},
            "encoder": {"name": self.encoder, "digest": self.encoder * 2, "width": 8},
            "problems": [Problem(name, id_, id_, "corrupt") for name, id_ in self.unreadable],
            "limits": (self.hard, self.soft),
            "graded": self.graded,
        }
        write_audit(folder, images, pairs, self.comparisons, **(about | dict(self.changes)))
        return folder

    def leaking(self, rows, name, words):
        """Return the images of a query set that leak with one of the words."""
        alone = all(query == reference for query, reference in self.comparisons if query == name)
        blank = {id_ for id_, _, flat in self.images[name] if flat}
        return leaking((row for row in rows if row["query"] not in blank), name, words, alone)


@st.composite
def worlds(draw, *, vectors=True):
    """Draw a small audit: copies, renames, blank and unreadable images, repeats, a second set."""
    names = ["test", "train", *draw(st.sampled_from([(), ("web",)]))]
    ids = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)
    rarely = st.integers(0, 9).map(lambda number: number == 0)
    images = {}
    for name in names:
        only_vectors = vectors and name == "train" and draw(rarely)
        images[name] = [
            (id_, None if only_vectors else draw(st.integers(0, 9)), draw(rarely))
            for id_ in draw(ids.filter(bool))
        ]
    readable = {id_ for id_, _, _ in images["test"]}
    lost = [("test", id_) for id_ in draw(ids) if id_ not in readable][:3]
    comparisons = [("test", name) for name in names[1:]]
    if draw(st.booleans()):
        comparisons.append(("test", "test"))
    pairs = []
    for sides in comparisons:
        ends = itertools.product(*([id_ for id_, _, _ in images[side]] for side in sides))
        for query, reference in ends:
            if (sides[0] == sides[1] and query >= reference) or draw(st.booleans()):
                continue
            similarity = draw(st.sampled_from([0.5, 0.55, 0.7, 0.8, 0.95]))
            grade = draw(st.sampled_from(GRADES))
            pairs.append((sides[0], query, sides[1], reference, similarity, grade))
    return World(
        images,
        pairs,
        comparisons,
        lost,
        encoder=draw(st.sampled_from(["builtin", "phash"])),
        soft=draw(st.sampled_from([0.6, 0.75])),
        sample=draw(st.sampled_from([0, 0, 0, 5])),
    )
