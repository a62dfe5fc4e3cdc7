"""Crowds of similar images: what is verified of them, and which of them have local features."""

from __future__ import annotations

import itertools
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from frames import scene, write, write_frames

from image_changes import in_colour, strong_edges, surface
from visleak.auditing import audit
from visleak.pipeline.selection import DENSE, LARGE, REPRESENTATIVES, Clusters, SpanningForest
from visleak.settings import Settings
from visleak.verdicts import Verdict, judged_summary

FRAMES = DENSE + 14
TIME = "2026-01-01T00:00:00Z"


def contents(numbers):
    """Return digests, ascending with the numbers."""
    digests = np.zeros((len(numbers), 16), np.uint8)
    digests[:, 0], digests[:, 1] = np.divmod(np.array(numbers), 256)
    return digests.view("V16").ravel()


def grown(left, right, similarity, near, most=None):
    """Return the pairs of each step, where those of ``near`` are found to be near."""
    ends = np.array(left), np.array(right)
    forest, seen = SpanningForest(ends, np.array(similarity, np.float32), most), []
    while len(due := forest.due()):
        seen.append(due.tolist())
        forest.proceed(np.isin(due, near))
    return seen, forest


@pytest.mark.parametrize("seed", range(5))
def test_a_clique_of_near_images_needs_one_pair_fewer_than_images(seed):
    left, right = np.triu_indices(40, 1)
    similarity = np.random.default_rng(seed).random(len(left))
    seen, forest = grown(left, right, similarity, near=range(len(left)))
    assert forest.near.sum() == forest.tried.sum() == 39
    assert len(seen) <= 6


def test_a_group_stops_at_its_first_pair_that_is_not_near():
    """Two scenes: the pairs between them are the least similar, and one is verified."""
    left, right = np.triu_indices(20, 1)
    across = (left < 10) & (right >= 10)
    similarity = np.where(across, 0.5, 0.9) + np.linspace(0.01, 0, len(left))
    _, forest = grown(left, right, similarity, np.flatnonzero(~across))
    assert forest.near.sum() == 18
    assert (forest.tried & across).sum() == 1


def test_a_query_has_a_limit():
    _, forest = grown([0] * 60, range(1, 61), np.linspace(1, 0.5, 60), range(60), most=40)
    assert forest.near[:40].all()
    assert not forest.tried[40:].any()


def spanning(groups):
    """Return groups of near contents, each a chain."""
    pairs = [pair for group in groups for pair in itertools.pairwise(group)]
    ends = [contents([pair[end] for pair in pairs]).view(np.uint8) for end in (0, 1)]
    keys = np.concatenate([e.reshape(-1, 16) for e in ends] + [np.zeros((len(pairs), 1))], axis=1)
    keys = np.ascontiguousarray(keys.astype(np.uint8)).view("V33").ravel()
    return Clusters.of(keys, np.zeros((len(pairs), 3), np.float32), np.ones(len(pairs), bool))


def test_large_groups_have_representatives_and_small_ones_all():
    large, small = range(100, 100 + LARGE), range(300, 300 + LARGE - 1)
    own = spanning([large, small])
    asked = contents([*large, *small, 7])
    speaks = own.is_representative(asked)
    assert speaks[:LARGE].tolist() == [True] * REPRESENTATIVES + [False] * (LARGE - REPRESENTATIVES)
    assert speaks[LARGE:].all()
    mixed = np.random.default_rng(0).permutation(len(asked))
    assert (own.is_representative(asked[mixed]) == speaks[mixed]).all()


def test_contents_have_the_group_that_near_pairs_connect():
    own = spanning([[1, 2, 3], [8, 9]])
    group = own.group_of(contents([1, 3, 8, 9, 5]))
    assert group[0] == group[1] != group[2] == group[3] >= 0
    assert group[4] == -1


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """Frames of a static scene, and a crop that shares half of its fingerprint's cells at most."""
    root = tmp_path_factory.mktemp("crowd")
    write_frames(root / "frames", FRAMES, 144, 144)
    crop = scene(0, 144, 144)[12:108, 12:108] + np.random.default_rng(9).normal(0, 3, (96, 96, 3))
    write(root / "frames", "crop", crop)
    return audit(root / "frames", out=root / "out", cache=root / "cache", workers=1)


def test_a_crowd_is_one_group_and_its_counts_are_true(crowd):
    assert crowd.rate("near_or_exact").count == FRAMES + 1
    groups = crowd.summary.as_dict()["comparisons"][0]["duplicate_groups"]
    assert groups == {"groups": 1, "images": FRAMES + 1, "largest": [FRAMES + 1]}
    assert f"largest group of duplicates has {FRAMES + 1} images" in crowd.headline
    frames = crowd.images()
    frames = frames.filter(pc.starts_with(frames["id"], "f"))
    assert min(frames["pairs_total"].to_pylist()) >= FRAMES - 1


def test_frames_of_a_crowd_are_not_similar_by_chance(crowd):
    chance = crowd.summary.as_dict()["comparisons"][0]["chance"]
    assert chance["sampled"] == (FRAMES + 1) * FRAMES
    assert set(chance["pairs"].values()) == {0}


def test_a_crowd_costs_about_a_pair_per_image(crowd):
    between = crowd.pairs()
    crop = pc.or_(
        pc.starts_with(between["query"], "crop"), pc.starts_with(between["reference"], "crop")
    )
    frames = between.filter(pc.invert(crop))
    assert frames["grade"].null_count == frames.num_rows - (FRAMES - 1)
    missing = frames.filter(pc.is_null(frames["grade"]))
    assert all("connect" in reason for reason in missing["reason"].to_pylist())


def test_order_workers_and_cache_change_nothing(crowd, tmp_path):
    files = sorted((crowd.folder.parent / "frames").iterdir(), reverse=True)
    manifest = tmp_path / "frames.csv"
    manifest.write_text("path,id\n" + "".join(f"{path},{path.name}\n" for path in files))
    other = audit(manifest, out=tmp_path / "out", cache=None, workers=2)
    assert other.pairs().equals(crowd.pairs())
    again = audit(manifest, out=tmp_path / "again", cache=crowd.folder.parent / "cache", workers=1)
    assert again.pairs().equals(crowd.pairs())


def test_queries_of_a_crowd_leak_and_share_the_work(tmp_path):
    write_frames(tmp_path / "test", 12, 96, 96, seed=1)
    write_frames(tmp_path / "train", FRAMES, 96, 96, seed=2)
    sides, own = (tmp_path / "test", tmp_path / "train"), Settings(within=False)
    found = audit(*sides, settings=own, out=tmp_path / "out", cache=None, workers=1)
    assert found.rate("near_or_exact").count == 12
    assert pc.sum(pc.is_valid(found.pairs()["grade"])).as_py() == 12 + FRAMES - 1
    assert found.summary.as_dict()["comparisons"][0]["duplicate_groups"]["largest"] == [12 + FRAMES]


def test_groups_follow_verdicts(crowd):
    """One pair connects the crop with the frames; without it the group is that of the frames."""
    digest = dict(zip(*crowd.images().select(["id", "digest"]).to_pydict().values(), strict=True))
    near = [row for row in crowd.pairs().to_pylist() if row["grade"] in ("exact", "near")]
    ends = [(row["query"], row["reference"]) for row in near]
    verdicts = [
        Verdict(*sorted(digest[id_] for id_ in pair), "different", "Ada", TIME)
        for pair in ends
        if "crop.png" in pair
    ]
    judged = judged_summary(crowd.folder, verdicts).as_dict()
    assert judged["comparisons"][0]["duplicate_groups"] == {
        "groups": 1, "images": FRAMES, "largest": [FRAMES],
    }  # fmt: skip
    assert f"largest group of duplicates has {FRAMES} images" in judged["headline"]
    assert f"has {FRAMES + 1} images" not in judged["headline"]


def plate(seed):
    """Return a surface whose edges all plates share, with faint texture of its own."""
    return in_colour(surface(seed, 0.7) + strong_edges(140, 90))


def test_a_turned_copy_of_one_of_many_similar_images_is_aligned_by_local_features(tmp_path):
    """Clusters are connected before local features are compared."""
    for number in range(DENSE + 10):
        write(tmp_path / "train", f"{number:02}", plate(number))
    turn = cv2.getRotationMatrix2D((111.5, 111.5), 5, 1.0)
    for number in (0, 2):
        write(tmp_path / "test", f"{number:02}", cv2.warpAffine(plate(number), turn, (224, 224)))
    found = audit(tmp_path / "test", tmp_path / "train", out=tmp_path / "out", workers=1).pairs()
    near = found.filter(pc.is_in(found["grade"], pa.array(["near", "exact"]))).to_pylist()
    assert {"00", "02"} <= {
        Path(pair["query"]).stem
        for pair in near
        if Path(pair["query"]).stem == Path(pair["reference"]).stem
        and pair["query_set"] != pair["reference_set"]
    }
