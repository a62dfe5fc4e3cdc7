"""Embeddings on the training side: one pass for all test sets, and records of what is in a pair."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visleak import pipeline
from visleak.errors import VisleakError
from visleak.pipeline.embeddings import BY_NAME, StoredEncoder, encoder_for
from visleak.pipeline.folder import image_tables, pair_tables
from visleak.pipeline.summary import summarise
from visleak.records import EmbeddingSet, Int64
from visleak.settings import Settings
from visleak.vectors import unit_rows

WIDTH = 8


@dataclass(frozen=True)
class Held:
    """A partition in memory, with ids of its own and whatever else is known."""

    vectors: Any
    ids: tuple[str, ...]
    more: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    locator: str = "part.npy"
    stamp: str = "1"
    stated: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> int:
        return len(self.ids)

    def matrix(self) -> Any:
        return self.vectors

    def columns(self, rows: Int64 | None = None) -> Mapping[str, pa.Array]:
        picked = pa.array(np.arange(self.rows) if rows is None else rows)
        columns = {"id": pa.array(self.ids, pa.string())}
        columns["locator"] = pa.array([f"at {id_}" for id_ in self.ids], pa.string())
        columns |= {name: pa.array(values) for name, values in self.more}
        return {name: column.take(picked) for name, column in columns.items()}


def embeddings(name: str, vectors: Any, sizes: list[int] | None = None, **changes: Any):
    """Return a set of vectors; ids fall while rows rise, so that neither can replace the other."""
    edges = np.cumsum([0, *(sizes or [len(vectors)])])
    more = changes.pop("more", {})
    partitions = tuple(
        Held(
            vectors[a:b],
            tuple(f"{name}{len(vectors) - row:03d}" for row in range(a, b)),
            tuple((key, tuple(values[a:b])) for key, values in more.items()),
        )
        for a, b in itertools.pairwise(edges)
    )
    known = {"encoder": "d", "encoder_name": "net", "source": f"emb:{name}"} | changes
    return EmbeddingSet(name=name, partitions=partitions, width=vectors.shape[1], **known)


def ran(queries, references, settings=None, device="cpu", **changes):
    """Return the outcome of an audit, the rows of its two tables, and its summary."""
    encoder = encoder_for([*queries, *references], "")
    settings = settings or Settings(**{"encoder": "net", "hard": 0.9, "soft": 0.7} | changes)
    with pipeline.RunContext.at(None, 1, None, device=device) as place:
        outcome = pipeline.run(queries, references, encoder, settings, place)
        pairs = pair_tables(outcome.comparisons)
        images = image_tables(outcome.sides.values(), outcome.comparisons)
        rows = ([row for table in own for row in table.to_pylist()] for own in (pairs, images))
        return outcome, *rows, summarise(outcome, encoder, settings, "0").as_dict()


def test_a_query_set_without_hits_has_no_pairs():
    train = np.eye(8, dtype=np.float32)
    sets = [embeddings("near", train[:2]), embeddings("far", (train[:2] - train[2:4]) / 2)]
    outcome, *_ = ran(sets, [embeddings("r", train[:2])], within=False, soft=0.9)
    counts = {each.names: len(each.pairs) for each in outcome.comparisons}
    assert counts == {("near", "r"): 2, ("far", "r"): 0}


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
    """Whatever the partitions, ties among equal vectors included; two test sets in one pass."""
    reference = embeddings("r", clouds(seed, sum(sizes)), sizes)
    queries = [embeddings("b", clouds(seed + 1, 5)), embeddings("a", clouds(seed + 2, 4))]
    _, rows, _, _ = ran(queries, [reference], within=False, candidates=rule)
    assert found(rows, "r") == oracle(queries, reference, RULES[rule])


def test_only_images_in_a_pair_are_listed_and_all_are_counted():
    vectors = np.eye(WIDTH, dtype=np.float32)
    more = {"label": [f"l{row}" for row in range(6)], "caption": [f"c{row}" for row in range(6)]}
    more |= {"width": range(100, 106), "digest": [f"{row:032x}" for row in range(6)]}
    train = embeddings("r", vectors[:6], [4, 2], more=more, roles=("training",))
    test = embeddings("t", vectors[[5, 1]] + np.float32(0.01))
    outcome, rows, images, summary = ran([test], [train], within=False)
    labelled = [(row["query"], row["reference"], row["reference_label"]) for row in rows]
    assert labelled == [("t001", "r005", "l1"), ("t002", "r001", "l5")]
    assert {row["modality"] for row in rows} == {"full"}
    listed = [row for row in images if row["set"] == "r"]
    assert [(r["id"], r["label"], r["caption"], r["width"], r["height"]) for r in listed] == [
        ("r001", "l5", "c5", 105, None),
        ("r005", "l1", "c1", 101, None),
    ]
    assert [row["digest"] for row in listed] == [f"{5:032x}", f"{1:032x}"]
    assert [row["locator"] for row in listed] == ["at r001", "at r005"]
    # a digest of a vector is no digest of an image
    assert [row["digest"] for row in images if row["set"] == "t"] == [None, None]
    about = {each["name"]: each for each in summary["sets"]}
    assert about["r"] | {"options": 0} == {
        "name": "r", "dataset": "", "roles": ["training"], "side": "reference", "source": "emb:r",
        "options": 0, "pictures": False, "images": 6, "readable": 6, "flat": None,
        "unreadable": 0, "distinct": None, "listed": 2, "norms_off": 0,
    }  # fmt: skip
    assert about["t"]["distinct"] == 2
    assert outcome.grader is None


def test_degrees_without_grades():
    vectors = np.eye(WIDTH, dtype=np.float32)
    train, test = embeddings("r", vectors[:4]), embeddings("t", vectors[2:6])
    _, rows, _, summary = ran([test], [train])
    for name in ("grade", "probability", "reason", "transform", "matrix"):
        assert {row[name] for row in rows} == {None}
    rates = summary["totals"][0]["rates"]
    assert rates["hard"]["count"] == 2
    for name in ("exact", "near", "similar", "near_or_exact", "similar_or_closer"):
        assert rates[name] is None
    assert summary["headline"] == (
        "2 of 4 t images (50.00 %, 95 % CI 15.00-85.00) have an image at or above the soft"
        " threshold in r, 2 of them (50.00 %) at or above the hard threshold"
    )
    assert summary["verifier"] is None
    assert summary["skipped"] == [
        "views: net compares images as they are; mirrored, turned and inverted copies were not"
        " searched",
        "verification of t, r: there are embeddings only, so there are degrees but no grades",
    ]


def test_vectors_without_a_direction_are_unreadable_on_both_sides():
    test, train = clouds(1, 5).astype(np.float32), clouds(2, 9).astype(np.float32)
    test[3, 0], train[[0, 7], [1, 2]] = np.nan, (np.inf, np.nan)
    test[4], train[6] = 0, 0
    sets = embeddings("t", test), embeddings("r", train, [4, 5])
    outcome, rows, _, summary = ran([sets[0]], [sets[1]], within=False)
    problems = {
        name: [(p.set, p.id, p.locator, p.reason, p.detail) for p in side.fingerprints.problems]
        for name, side in outcome.sides.items()
    }
    for name, words in {
        "t": [("row 3 of part.npy", "NaN"), ("row 4 of part.npy", "zeros")],
        "r": [("row 0 of", "NaN"), ("row 2 of", "zeros"), ("row 3 of", "NaN")],
    }.items():
        for problem, own in zip(problems[name], words, strict=True):
            assert problem[:4] == (name, problem[1], f"at {problem[1]}", "corrupt")
            assert all(word in problem[4] for word in own)
    assert not {p[1] for p in problems["r"]} & {row["reference"] for row in rows}
    about = {each["name"]: each for each in summary["sets"]}
    for name, images, unreadable in (("t", 5, 2), ("r", 9, 3)):
        counts = tuple(about[name][key] for key in ("images", "readable", "unreadable"))
        assert counts == (images, images - unreadable, unreadable)
    assert found(rows, "r") == oracle([sets[0]], sets[1], RULES["auto"])
    assert summary["totals"][0]["rates"]["hard_or_soft"]["total"] == 3


def test_lengths_are_corrected_and_counted():
    """More than a hundredth off counts; what half precision does to a unit vector does not."""
    vectors = unit_rows(clouds(3, 6)).matrix
    lengths = np.array([1, 1.02, 0.97, 1.009, 0, 50], np.float32)
    train = embeddings("r", (vectors * lengths[:, None]).astype(np.float16))
    test = embeddings("t", vectors * np.float32(3))
    _, rows, _, summary = ran([test], [train], within=False)
    about = {each["name"]: each["norms_off"] for each in summary["sets"]}
    assert about == {"t": 6, "r": 3}
    assert "lengths: 9 vectors not of unit length, rescaled" in summary["skipped"]
    matched = {(row["query"], row["reference"]) for row in rows if row["degree"] == "hard"}
    assert {(f"t{n:03d}", f"r{n:03d}") for n in (1, 3, 4, 5, 6)} <= matched


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


def test_without_thresholds_the_best_twenty_are_found():
    test, train = embeddings("t", clouds(1, 3)), embeddings("r", clouds(2, 40), [20, 20])
    _, rows, _, summary = ran([test], [train], Settings(encoder="net", within=False))
    assert [row["degree"] for row in rows] == [None] * 60
    expected = oracle([test], train, lambda near: near[:20])
    assert [row[:4] for row in found(rows, "r")] == [row[:4] for row in expected]
    assert summary["headline"] == "t was compared with r; no thresholds, so no rate"


def test_nothing_in_a_pair_leaves_a_reference_without_images():
    vectors = np.eye(WIDTH, dtype=np.float32)
    labels = {"label": ["x", "y"]}
    train = embeddings("r", vectors[:2], more=labels, roles=("training",))
    _, rows, images, summary = ran([embeddings("t", vectors[4:6])], [train], within=False)
    assert rows == []
    assert {row["set"] for row in images} == {"t"}
    assert summary["comparisons"][0]["modality"] == "full"
    assert summary["totals"][0]["rates"]["hard_or_soft"]["count"] == 0


def test_a_sample_of_queries_is_drawn():
    test, train = embeddings("t", clouds(1, 30), [11, 19]), embeddings("r", clouds(2, 20))
    _, rows, images, summary = ran([test], [train], sample=7)
    drawn = {row["id"] for row in images if row["set"] == "t"}
    assert len(drawn) == 7
    everything = oracle([test], train, RULES["auto"])
    assert found(rows, "r") == [row for row in everything if row[1] in drawn]
    assert summary["totals"][0]["rates"]["hard"]["total"] == 7


# -- whose vectors they are ----------------------------------------------------------------------


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
        (None, "builtin", r"'t' .* encoder net \(digest 0123456789ab\), the audit uses builtin;"),
        ({"encoder": "", "encoder_name": "clip"}, "", "'r' .* made with encoder clip, the audit"),
        ({"encoder": KNOWN.encoder, "width": 9}, "", "holds vectors of 9 numbers, net makes 8;"),
    ],
)
def test_vectors_of_two_encoders_or_widths_are_never_compared(changes, asked, said):
    sets = [KNOWN]
    if changes is not None:
        named = {name: value for name, value in changes.items() if name != "width"}
        vectors = np.ones((2, changes.get("width", WIDTH)), np.float32)
        sets.append(embeddings("r", vectors, **named))
    with pytest.raises(VisleakError, match=said) as caught:
        encoder_for(sets, asked)
    assert caught.value.exit_code == 1


def test_vectors_of_another_width_than_the_encoders_are_refused():
    builtin = embeddings("r", clouds(1, 2), encoder="", encoder_name="builtin")
    with pytest.raises(VisleakError, match="holds vectors of 8 numbers, builtin makes 560"):
        encoder_for([builtin], "")


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
    from visleak.encoders import load_encoder

    digest = load_encoder("builtin").digest
    stored = embeddings("t", np.ones((2, 560)), encoder=digest, encoder_name="builtin")
    encoder = encoder_for([stored], "")
    assert (encoder.views, encoder.digest) == (9, digest)
    older = embeddings("t", np.ones((2, 560)), encoder="of before", encoder_name="builtin")
    assert encoder_for([older], "").views == 1


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


def test_the_device_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the code for GPUs, run on the processor: the same rows, and it was that code."""
    pytest.importorskip("torch")
    from visleak.search.streaming_screen import DeviceScreen

    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(60, WIDTH))
    sets = [embeddings("q", vectors[:20])], [embeddings("r", vectors[10:], [25, 25])]
    expected = ran(*sets)[1]
    looks, look = list[int](), DeviceScreen.select

    def counted(self: DeviceScreen, stored: Any, floor: Any) -> Any:
        looks.append(len(stored))
        return look(self, stored, floor)

    monkeypatch.setattr(DeviceScreen, "select", counted)
    assert ran(*sets, device="torch-cpu")[1] == expected
    assert sum(looks) == 50
    assert len(expected) >= 10
