"""Embeddings on the training side: one pass for all test sets, and records of what is in a pair."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_vectors import Shard
from visleak import pipeline
from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.pipeline.embeddings import BY_NAME, StoredEncoder, encoder_for
from visleak.pipeline.folder import image_tables, pair_tables
from visleak.pipeline.summary import summarise
from visleak.records import EmbeddingSet
from visleak.settings import Settings
from visleak.vectors import unit_rows

WIDTH = 8


@dataclass
class Held(Shard):
    """A partition in memory that has more columns."""

    more: Mapping[str, Any] = field(default_factory=dict)

    def columns(self, rows=None):
        picked = np.arange(self.rows) if rows is None else rows
        columns = {"locator": [f"at {id_}" for id_ in self.ids], **self.more}
        taken = {name: pa.array(values).take(picked) for name, values in columns.items()}
        return super().columns(rows) | taken


def embeddings(name, vectors, sizes=None, **changes):
    """Return a set of vectors; ids fall while rows rise, so that neither can replace the other."""
    edges = np.cumsum([0, *(sizes or [len(vectors)])])
    ids = np.array([f"{name}{n:03d}" for n in range(len(vectors), 0, -1)])
    more = changes.pop("more", {})
    partitions = tuple(
        Held(vectors[a:b], ids[a:b], "part.npy", more={key: more[key][a:b] for key in more})
        for a, b in itertools.pairwise(edges)
    )
    known = {"encoder": "d", "encoder_name": "net", "source": f"emb:{name}"} | changes
    return EmbeddingSet(name=name, partitions=partitions, width=vectors.shape[1], **known)


def ran(queries, references, **changes):
    """Return the outcome of an audit, the rows of its two tables, and its summary."""
    encoder = encoder_for([*queries, *references], "")
    settings = Settings(**{"encoder": "net", "hard": 0.9, "soft": 0.7} | changes)
    with pipeline.RunContext.at(None, 1, None) as place:
        outcome = pipeline.run(queries, references, encoder, settings, place)
        pairs = pair_tables(outcome.comparisons)
        images = image_tables(outcome.sides.values(), outcome.comparisons)
        rows = ([row for table in own for row in table.to_pylist()] for own in (pairs, images))
        return outcome, *rows, summarise(outcome, encoder, settings, "0").as_dict()


def found(rows, reference_set):
    return [
        (row["query_set"], row["query"], row["reference"], row["similarity"], row["degree"])
        for row in rows
        if row["reference_set"] == reference_set and row["coverage"] != "within"
    ]


def oracle(queries, reference, rule):
    """Every pair, by brute force in float64; the order of the table."""

    def known(images):
        for part in images.partitions:
            rows = zip(part.ids, part.matrix(), unit_rows(part.matrix()).matrix, strict=True)
            yield from (
                (id_, row.astype(float)) for id_, own, row in rows if np.isfinite(own).all()
            )

    def degree(similarity):
        if similarity >= np.float32(0.9):
            return "hard"
        return "soft" if similarity >= np.float32(0.7) else None

    expected = []
    for query in sorted(queries, key=lambda each: each.name):
        for id_, vector in sorted(known(query), key=lambda each: each[0]):
            near = sorted((-np.float32(vector @ row), name) for name, row in known(reference))
            expected += [(query.name, id_, name, -s, degree(-s)) for s, name in rule(near)]
    return expected


RULES = {
    "auto": lambda near: [each for each in near if -each[0] >= np.float32(0.7)],
    "best": lambda near: [
        each for place, each in enumerate(near) if place < 20 or -each[0] >= np.float32(0.7)
    ],
    "nearest": lambda near: near[:1],
}


def clouds(seed, rows, centres=3):
    """Vectors around few centres, some of them equal, in half precision and of any length."""
    rng = np.random.default_rng(seed)
    middle = np.random.default_rng(0).normal(size=(centres, WIDTH))
    chosen = middle[rng.integers(0, centres, rows)]
    vectors = chosen + rng.choice([0.0, 0.3, 0.8], (rows, 1)) * rng.normal(size=(rows, WIDTH))
    return (vectors * rng.uniform(0.5, 2, (rows, 1))).astype(np.float16)


@settings(max_examples=20)
@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 30), min_size=1, max_size=4).filter(any),
    st.sampled_from(sorted(RULES)),
)
def test_a_pass_finds_what_brute_force_finds(seed, sizes, rule):
    """Whatever the partitions, with ties, two test sets in one pass, and samples of queries."""
    reference = embeddings("r", clouds(seed, sum(sizes)), sizes)
    queries = [embeddings("b", clouds(seed + 1, 5)), embeddings("a", clouds(seed + 2, 4))]
    _, rows, images, summary = ran(queries, [reference], within=False, candidates=rule, sample=4)
    drawn = {row["id"] for row in images if row["set"] != "r"}
    assert len(drawn) == 8
    everything = oracle(queries, reference, RULES[rule])
    assert found(rows, "r") == [row for row in everything if row[1] in drawn]
    assert [total["rates"]["hard"]["total"] for total in summary["totals"]] == [4, 4]


def test_only_images_in_a_pair_are_listed_and_all_are_counted():
    vectors = np.eye(WIDTH, dtype=np.float32)
    more = {name: [f"{name}{row}" for row in range(6)] for name in ("label", "caption")}
    more |= {"width": range(100, 106), "digest": [f"{row:032x}" for row in range(6)]}
    train = embeddings("r", vectors[:6], [4, 2], more=more, roles=("training",))
    test = embeddings("t", vectors[[5, 1]] + np.float32(0.01))
    _, rows, images, summary = ran([test], [train], within=False)
    labelled = [(row["query"], row["reference"], row["reference_label"]) for row in rows]
    assert labelled == [("t001", "r005", "label1"), ("t002", "r001", "label5")]
    assert {row["modality"] for row in rows} == {"full"}
    names = ("id", "label", "caption", "width", "height", "digest", "locator")
    assert [[row[name] for name in names] for row in images if row["set"] == "r"] == [
        ["r001", "label5", "caption5", 105, None, f"{5:032x}", "at r001"],
        ["r005", "label1", "caption1", 101, None, f"{1:032x}", "at r005"],
    ]
    # a digest of a vector is no digest of an image
    assert [row["digest"] for row in images if row["set"] == "t"] == [None, None]
    about = {each["name"]: each for each in summary["sets"]}
    counts = {"images": 6, "readable": 6, "flat": None, "distinct": None, "listed": 2}
    assert counts.items() <= about["r"].items()
    assert about["t"]["distinct"] == 2
    # there are degrees, but no grades
    for name in ("grade", "probability", "reason", "transform", "matrix"):
        assert {row[name] for row in rows} == {None}
    assert summary["totals"][0]["rates"]["near_or_exact"] is None
    assert any(line.startswith("verification of t, r: there are e") for line in summary["skipped"])


def test_vectors_without_a_direction_are_unreadable_on_both_sides():
    test, train = clouds(1, 5).astype(np.float32), clouds(2, 9).astype(np.float32)
    test[3, 0], train[[0, 7], [1, 2]] = np.nan, (np.inf, np.nan)
    test[4], train[6] = 0, 0
    sets = embeddings("t", test), embeddings("r", train, [4, 5])
    outcome, rows, _, summary = ran([sets[0]], [sets[1]], within=False)
    problems = {name: side.fingerprints.problems for name, side in outcome.sides.items()}
    assert [(p.id, p.locator, p.reason) for p in problems["r"]] == [
        (id_, f"at {id_}", "corrupt") for id_ in ("r009", "r003", "r002")
    ]
    details = [each.detail for name in "tr" for each in problems[name]]
    places = [("3", "NaN"), ("4", "zeros"), ("0", "NaN"), ("2", "zeros"), ("3", "NaN")]
    for detail, (row, word) in zip(details, places, strict=True):
        assert f"row {row} of part.npy" in detail
        assert word in detail
    names = ("images", "readable", "norms_off")
    counts = [[each[name] for name in names] for each in summary["sets"]]
    assert counts == [[5, 3, 3], [9, 6, 6]]
    assert "lengths: 9 vectors not of unit length, rescaled" in summary["skipped"]
    assert found(rows, "r") == oracle([sets[0]], sets[1], RULES["auto"])
    assert summary["totals"][0]["rates"]["hard_or_soft"]["total"] == 3


def test_what_half_precision_does_to_a_length_is_not_off():
    lengths = np.array([1, 1.02, 0.97, 1.009], np.float32)
    stored = (unit_rows(clouds(3, 4)).matrix * lengths[:, None]).astype(np.float16)
    summary = ran([embeddings("t", stored)], [embeddings("r", stored)])[3]
    assert [each["norms_off"] for each in summary["sets"]] == [2, 2]


def test_blank_images_match_blank_images_once():
    vectors = np.repeat(np.eye(WIDTH, dtype=np.float32)[:1], 4, axis=0)
    train = embeddings("r", vectors, more={"flat": [False, True, True, False]})
    test = embeddings("t", vectors[:2], more={"flat": [True, False]})
    _, rows, _, summary = ran([test], [train], within=False)
    assert [(row["query"], row["reference"]) for row in rows] == [
        ("t001", "r001"), ("t001", "r004"), ("t002", "r002"),
    ]  # fmt: skip
    assert summary["totals"][0]["rates"]["hard"]["count"] == 1


def test_floods_are_capped_and_counted():
    vectors = np.repeat(np.eye(WIDTH, dtype=np.float32)[:1], 30, axis=0)
    train, test = embeddings("r", vectors, [7, 23]), embeddings("t", vectors[:1])
    _, rows, images, summary = ran([test], [train], within=False, per_query=3)
    assert [row["reference"] for row in rows] == ["r001", "r002", "r003"]
    assert [row["pairs_total"] for row in images if row["set"] == "t"] == [30]
    assert any(words.startswith("pairs: 1 image has more than 3") for words in summary["skipped"])


KNOWN = embeddings("t", clouds(1, 2), encoder="0123456789abcdef")


@pytest.mark.parametrize(
    ("changes", "asked", "said"),
    [
        (
            {"encoder": "fedcba9876543210"},
            "",
            r"'r' \(emb:r\) was made with encoder net \(digest fedcba987654\), the audit uses net"
            r" \(digest 0123456789ab\); vectors of two encoders cannot be compared",
        ),
        ({}, "builtin", r"'t' .* encoder net \(digest 0123456789ab\), the audit uses builtin;"),
        ({"encoder": "", "encoder_name": "clip"}, "", "'r' .* made with encoder clip, the audit"),
        ({"width": 9}, "", "holds vectors of 9 numbers, net makes 8;"),
    ],
)
def test_vectors_of_two_encoders_or_widths_are_never_compared(changes, asked, said):
    named = {"encoder": KNOWN.encoder, "width": WIDTH} | changes
    other = embeddings("r", np.ones((2, named.pop("width")), np.float32), **named)
    with pytest.raises(VisleakError, match=said) as caught:
        encoder_for([KNOWN, other], asked)
    assert caught.value.exit_code == 1


def test_of_an_encoder_known_by_name_the_published_thresholds_are_used():
    """No model is loaded; and a manifest precedes what is published."""
    claimed = embeddings("t", clouds(1, 2), encoder="", encoder_name="clip")
    encoder = encoder_for([claimed], "")
    assert isinstance(encoder, StoredEncoder)
    assert encoder.digest == BY_NAME + "clip"
    assert encoder.thresholds is not None
    assert (encoder.thresholds["hard"], encoder.thresholds["soft"]) == (0.98, 0.95)
    own = embeddings("t", clouds(1, 2), encoder_name="clip", thresholds={"hard": 0.5, "soft": 0.4})
    assert encoder_for([claimed, own], "clip?prep=laion").thresholds == own.thresholds
    with pytest.raises(VisleakError, match="known by its stored vectors only and cannot encode"):
        encoder.encode([])


def test_vectors_of_the_builtin_encoder_have_its_views_and_background():
    digest = load_encoder("builtin").digest
    stored = embeddings("t", np.ones((2, 560)), encoder=digest, encoder_name="builtin")
    encoder = encoder_for([stored], "")
    assert (encoder.views, encoder.digest) == (9, digest)
    older = embeddings("t", np.ones((2, 560)), encoder="of before", encoder_name="builtin")
    assert encoder_for([older], "").views == 1
    short = embeddings("t", clouds(1, 2), encoder="", encoder_name="builtin")
    with pytest.raises(VisleakError, match="holds vectors of 8 numbers, builtin makes 560"):
        encoder_for([short], "")


def test_another_folder_with_the_same_weights_is_the_same_encoder(monkeypatch):
    mine = StoredEncoder("clip:/mine", "d", WIDTH, None)
    monkeypatch.setattr("visleak.pipeline.embeddings.load_encoder", lambda asked: mine)
    theirs = embeddings("t", clouds(1, 2), encoder="d", encoder_name="clip:theirs")
    assert encoder_for([theirs], "clip:/mine") is mine
    other = embeddings("t", clouds(1, 2), encoder="e", encoder_name="clip:theirs")
    with pytest.raises(VisleakError, match=r"clip:theirs \(digest e\), the audit uses clip:/mine"):
        encoder_for([other], "clip:/mine")


def test_sides_without_a_finite_vector_are_refused():
    broken = np.full((3, WIDTH), np.nan, np.float32)
    good = embeddings("g", clouds(1, 4))
    for sides in (([embeddings("b", broken)], [good]), ([good], [embeddings("b", broken)])):
        with pytest.raises(VisleakError, match=r"set 'b' .*none of its 3 images could"):
            ran(*sides, within=False)
