"""Image-to-text retrieval: ranks, recall, files and notes."""

import json
import math
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toy_clip
from refusals import refusal
from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.formats import open_image_set
from visleak.images import decode
from visleak.impact.evaluators import retrieve as module
from visleak.impact.evaluators.retrieve import AT, DRAWN, DRAWS, Sides, hit_columns, ranks, recalls
from visleak.vectors import unit_rows

retrieve = partial(module.retrieve, options={"device": "cpu"}, cache=None, workers=1)


def rows_of(file):
    return pq.read_table(file).to_pylist()


def captions_for(ids, path):
    """Write two captions an image, and one of an image that no set has."""
    told = [(id_, f"{word} {id_.removesuffix('.png')}") for word in ("1", "of") for id_ in ids]
    told.append(("elsewhere.png", "nothing"))
    path.write_text("id,caption\n" + "".join(f"{id_},{text}\n" for id_, text in told))
    return told


def by_library(folder, labelled, ids, told):
    """Return ranks by the definition, with the texts of transformers alone."""
    pictures = [decode((labelled / id_).read_bytes()) for id_ in ids]
    images = load_encoder(f"clip:{folder}", device="cpu").encode(pictures)[0].astype(np.float64)
    similarity = images @ toy_clip.text_features(folder, [text for _, text in told]).T
    ranks = []
    for row, id_ in zip(similarity, ids, strict=True):
        own = np.array([owner == id_ for owner, _ in told])
        ranks.append(1 + int((row[~own] >= row[own].max()).sum()))
    return ranks


@pytest.mark.parametrize("which", ["first", "2", "all"])
def test_ranks_are_those_of_the_library(clip_folder, labelled, tmp_path, which, images):
    ids = images.ids.to_pylist()
    told = captions_for(ids, tmp_path / "c.csv")
    used = {"first": told[:36], "2": told[36:72], "all": told[:72]}[which]
    # of an image with one caption there is no second
    used = used if which == "2" else [*used, told[-1]]
    file, model = tmp_path / "c.csv", f"clip:{clip_folder}"
    done = retrieve(images, model, tmp_path / "p.parquet", captions=file, caption=which)
    rows = rows_of(done.file)
    expected = by_library(clip_folder, labelled, ids, used)
    assert [row["id"] for row in rows] == ids
    assert [row["rank"] for row in rows] == expected
    assert len(set(expected)) > 5
    for row in rows:
        assert [row[f"r@{k}"] for k in (1, 5, 10)] == [int(row["rank"] <= k) for k in (1, 5, 10)]
    assert (done.queries, done.collection) == (36, len(used))
    assert [each.share.count for each in done.recalls] == [
        sum(rank <= k for rank in expected) for k in (1, 5, 10)
    ]


def test_captions_of_the_set_itself(clip_folder, labelled, tmp_path, images):
    rows = [
        f"{labelled / id_},{id_},1 {id_.removesuffix('.png')}" for id_ in images.ids.to_pylist()
    ]
    file = tmp_path / "set.csv"
    file.write_text("path,id,caption\n" + "\n".join(rows))
    model = f"clip:{clip_folder}"
    own = retrieve(open_image_set(str(file)), model, tmp_path / "own.parquet")
    other = retrieve(images, model, tmp_path / "other.parquet", captions=file)
    assert rows_of(own.file) == rows_of(other.file)


def test_what_a_reader_must_know(clip_folder, tmp_path, images):
    ids = images.ids.to_pylist()
    lines = [f"{ids[0]},", f"{ids[1]},tree", f"{ids[2]},tree", f"{ids[3]},{'x' * 40}", "else,dog"]
    (tmp_path / "c.csv").write_text("id,caption\n" + "\n".join(lines))
    done = retrieve(
        images, f"clip:{clip_folder}", tmp_path / "p.parquet", captions=tmp_path / "c.csv"
    )
    assert [row["id"] for row in rows_of(done.file)] == ids[1:4]
    words = ("without any text", "longer than the 16", "equal to one", "without a caption")
    for note, said in zip(done.notes, (*words, "collection"), strict=True):
        assert said in note
    # each of the two has the other's caption in front of its own
    assert all(row["rank"] >= 2 for row in rows_of(done.file)[:2])
    about = json.loads(pq.read_schema(done.file).metadata[b"visleak"])
    assert about["evaluator"] == "retrieve"
    assert about["collection"] == {"captions": 4, "of no query": 1}
    assert about["captions"]["cut"] == 1
    file = tmp_path / "c.csv"
    file.write_text("id,caption\n1.jpg,a dog\n")
    said = refusal(
        VisleakError, retrieve, images, "clip:nowhere/at-all", file, captions=file, force=True
    )
    assert "no caption is of an image of the set: captions have ids such as" in said


def stored(folder, width=8):
    """Write vectors of 40 images and 90 captions; return both and the ranks."""
    rng = np.random.default_rng(0)
    images, owner = rng.standard_normal((40, 8)), rng.integers(0, 44, 90)
    near = np.concatenate([images, rng.standard_normal((4, 8))])[owner]
    captions = near + 1.1 * rng.standard_normal((90, 8))
    np.savez(folder / "i.npz", id=np.arange(40), vectors=images)
    np.savez(folder / "t.npz", id=owner, vectors=captions[:, :width])
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (images, captions)]
    similarity = unit[0] @ unit[1].T
    ranks = [
        1 + int((row[owner != place] >= row[owner == place].max()).sum())
        for place, row in enumerate(similarity)
        if (owner == place).any()
    ]
    return str(folder / "i.npz"), str(folder / "t.npz"), ranks


def test_vectors_alone(tmp_path):
    images, texts, expected = stored(tmp_path)
    done = module.retrieve_stored(images, texts, tmp_path / "p.parquet")
    assert [row["rank"] for row in rows_of(done.file)] == expected
    assert 10 < len(expected) == done.queries < 40
    assert done.collection == 90
    about = json.loads(pq.read_schema(done.file).metadata[b"visleak"])
    assert (about["images"]["rows"], about["texts"]["width"]) == (40, 8)


def test_vectors_that_have_no_direction(tmp_path):
    images, texts, _ = stored(tmp_path)
    for file, row in ((images, 3), (texts, 5)):
        with np.load(file) as held:
            arrays = dict(held)
        arrays["vectors"][row] = np.nan
        np.savez(file, **arrays)
    done = module.retrieve_stored(images, texts, tmp_path / "p.parquet")
    assert (done.collection, done.unreadable) == (89, 1)
    assert "images,3," in done.unreadable_file.read_text()
    assert "captions whose vector has no direction, which are ignored: 1" in done.notes


def test_vectors_that_do_not_fit_together(tmp_path):
    images, texts, _ = stored(tmp_path, width=5)
    arguments = (module.retrieve_stored, images, texts, tmp_path / "p.parquet")
    message = refusal(VisleakError, *arguments)
    assert "t.npz of 5; both must come from one model" in message
    np.savez(texts, id=np.array(["x", "y"]), vectors=np.eye(2, 8))
    message = refusal(VisleakError, *arguments)
    assert "captions have ids such as 'x', images such as '0'" in message


def counted(sides):
    """Return the ranks by the definition, with sums in exact arithmetic."""

    def similarity(one, other):
        return np.float32(math.fsum(map(float, one.astype(float) * other.astype(float))))

    found = []
    for row, image in enumerate(sides.images):
        every = [similarity(image, caption) for caption in sides.captions]
        own = [s for s, owner in zip(every, sides.owner, strict=True) if owner == row]
        foreign = [s for s, owner in zip(every, sides.owner, strict=True) if owner != row]
        found.append(1 + sum(s >= max(own) for s in foreign) if own else 0)
    return found


def made(seed, images, captions, width, kinds):
    """Return unit vectors of which ``kinds`` differ, so that ties are many."""
    rng = np.random.default_rng(seed)
    pool = unit_rows(rng.standard_normal((kinds, width))).matrix
    owner = rng.integers(-1, images, captions)
    return Sides(
        pool[rng.integers(0, kinds, images)], pool[rng.integers(0, kinds, captions)], owner
    )


@given(
    seed=st.integers(0, 10_000),
    images=st.integers(1, 9),
    captions=st.integers(1, 25),
    width=st.integers(1, 40),
    kinds=st.sampled_from([1, 2, 4, 1000]),
    block=st.sampled_from([1, 2, 3, 7, None]),
)
def test_ranks_are_those_of_the_definition(seed, images, captions, width, kinds, block):
    sides = made(seed, images, captions, width, kinds)
    assert ranks(sides, block).tolist() == counted(sides)


def test_nearly_equal_similarities_are_told_apart_exactly():
    """By less than a product in float32 could: sums of 512 numbers that differ in the last ones."""
    rng = np.random.default_rng(4)
    image = unit_rows(rng.standard_normal((1, 512))).matrix
    captions = np.repeat(unit_rows(image + 0.5 * rng.standard_normal((1, 512))).matrix, 400, axis=0)
    places = rng.integers(0, 512, 400)
    rows = np.arange(400)
    captions[rows, places] = np.nextafter(captions[rows, places], np.float32(1))
    owner = np.full(400, -1)
    owner[7] = 0
    sides = Sides(image, captions, owner)
    exact = np.array(
        [np.float32(math.fsum(image[0].astype(float) * c.astype(float))) for c in captions]
    )
    assert 1 < len(np.unique(exact)) < 100
    assert ranks(sides).tolist() == [int((exact >= exact[7]).sum())]


@pytest.mark.parametrize("owner", [[0, 0], [1]])
def test_an_owner_of_each_caption_is_needed(owner):
    row = np.float32([[1, 0]])
    with pytest.raises(ValueError, match="owner"):
        Sides(row, row, np.array(owner))


def test_recall_is_the_hit_rate_of_torchmetrics():
    torch = pytest.importorskip("torch")
    metric = pytest.importorskip("torchmetrics.functional.retrieval").retrieval_hit_rate
    rng = np.random.default_rng(0)
    images = unit_rows(rng.standard_normal((60, 16))).matrix
    owner = np.concatenate([np.arange(60), rng.integers(0, 60, 90)])
    noise = rng.standard_normal((150, 16))
    captions = unit_rows(images[owner] + 1.2 * noise).matrix
    hits = hit_columns(ranks(Sides(images, captions, owner)))
    similarities = torch.from_numpy(images @ captions.T)
    for k in AT:
        expected = [
            int(metric(similarities[row], torch.from_numpy(owner == row), top_k=k))
            for row in range(60)
        ]
        assert hits[f"r@{k}"].tolist() == expected
        assert 0 < sum(expected) < 60


def test_draws_are_the_papers_protocol():
    """Ten draws of 200: mean near that of all, deviation near the hypergeometric one."""
    rng = np.random.default_rng(1)
    found = recalls(np.where(rng.random(31_783) < 0.33, 1, 30), seed=5)
    assert (DRAWN, DRAWS) == (200, 10)
    drawn = found[0].drawn
    share = found[0].share.share
    expected = np.sqrt(share * (1 - share) / DRAWN)
    assert abs(drawn.mean - share) < 4 * expected / np.sqrt(DRAWS)
    assert 0.4 * expected < drawn.deviation < 1.9 * expected
    # one set of queries serves all k
    assert {each.drawn.mean for each in found if each.drawn} == {drawn.mean}
    assert recalls(np.ones(300, int))[0].drawn.deviation == 0
