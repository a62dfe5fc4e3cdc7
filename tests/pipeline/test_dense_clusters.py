"""Crowds of similar images: what is verified of them, and which of them have local features."""

import itertools

import cv2
import numpy as np
import pyarrow.compute as pc
import pytest
from frames import scene, write, write_frames

from image_changes import in_colour, strong_edges, surface
from visleak.auditing import audit
from visleak.pipeline.selection import DENSE, LARGE, REPRESENTATIVES, Clusters, SpanningForest
from visleak.verdicts import Verdict, judged_summary

FRAMES = DENSE + 14
TIME = "2026-01-01T00:00:00Z"


def contents(numbers):
    """Return digests, ascending with the numbers."""
    digests = np.zeros((len(numbers), 16), np.uint8)
    digests[:, 0], digests[:, 1] = np.divmod(np.array(numbers), 256)
    return digests.view("V16").ravel()


def test_a_group_stops_at_its_first_pair_that_is_not_near():
    """Two scenes: the pairs between them are the least similar, and one is verified."""
    left, right = np.triu_indices(20, 1)
    across = (left < 10) & (right >= 10)
    similarity = np.where(across, 0.5, 0.9) + np.linspace(0.01, 0, len(left))
    forest = SpanningForest((left, right), similarity.astype(np.float32), None)
    steps = 0
    while len(due := forest.due()):
        forest.proceed(~across[due])
        steps += 1
    assert forest.near.sum() == 18
    assert (forest.tried & across).sum() == 1
    assert steps <= 6


def test_large_groups_have_representatives_and_small_ones_all():
    large, small = range(100, 100 + LARGE), range(300, 300 + LARGE - 1)
    pairs = [pair for group in (large, small) for pair in itertools.pairwise(group)]
    ends = [contents([pair[end] for pair in pairs]).view(np.uint8) for end in (0, 1)]
    keys = np.concatenate([*(e.reshape(-1, 16) for e in ends), np.zeros((len(pairs), 1))], axis=1)
    keys = np.ascontiguousarray(keys.astype(np.uint8)).view("V33").ravel()
    near = np.ones(len(pairs), bool)
    own = Clusters.of(keys, np.zeros((len(pairs), 3), np.float32), near)
    asked = contents([*large, *small, 7])
    speaks = own.is_representative(asked)
    assert speaks[:LARGE].tolist() == [True] * REPRESENTATIVES + [False] * (LARGE - REPRESENTATIVES)
    assert speaks[LARGE:].all()
    mixed = np.random.default_rng(0).permutation(len(asked))
    assert (own.is_representative(asked[mixed]) == speaks[mixed]).all()


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
    assert crowd.summary.comparisons[0].duplicate_groups.largest == (FRAMES + 1,)
    assert f"largest group of duplicates has {FRAMES + 1} images" in crowd.headline
    frames = crowd.images()
    frames = frames.filter(pc.starts_with(frames["id"], "f"))
    assert min(frames["pairs_total"].to_pylist()) >= FRAMES - 1
    # and frames of a crowd are not similar by chance
    chance = crowd.summary.as_dict()["comparisons"][0]["chance"]
    assert chance["sampled"] == (FRAMES + 1) * FRAMES
    assert set(chance["pairs"].values()) == {0}


def test_a_crowd_costs_about_a_pair_per_image(crowd):
    rows = crowd.pairs().to_pylist()
    frames = [row for row in rows if "crop.png" not in (row["query"], row["reference"])]
    assert sum(row["grade"] is not None for row in frames) == FRAMES - 1


def test_order_workers_and_cache_change_nothing(crowd, tmp_path):
    files = sorted((crowd.folder.parent / "frames").iterdir(), reverse=True)
    manifest = tmp_path / "frames.csv"
    manifest.write_text("path,id\n" + "".join(f"{path},{path.name}\n" for path in files))
    other = audit(manifest, out=tmp_path / "out", cache=None, workers=2)
    assert other.pairs().equals(crowd.pairs())
    again = audit(manifest, out=tmp_path / "again", cache=crowd.folder.parent / "cache", workers=1)
    assert again.pairs().equals(crowd.pairs())


def test_groups_follow_verdicts(crowd):
    """One pair connects the crop with the frames; without it the group is that of the frames."""
    digest = dict(zip(*crowd.images().select(["id", "digest"]).to_pydict().values(), strict=True))
    near = crowd.pairs(grade="near").select(["query", "reference"]).to_pylist()
    verdicts = [
        Verdict(*sorted(digest[id_] for id_ in pair.values()), "different", "Ada", TIME)
        for pair in near
        if "crop.png" in pair.values()
    ]
    judged = judged_summary(crowd.folder, verdicts)
    assert judged.comparisons[0].duplicate_groups.largest == (FRAMES,)
    assert f"largest group of duplicates has {FRAMES} images" in judged.headline


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
    found = audit(tmp_path / "test", tmp_path / "train", out=tmp_path / "out", workers=1)
    near = found.pairs(grade="near").select(["query", "reference", "coverage"]).to_pylist()
    for name in ("00.png", "02.png"):
        assert {"query": name, "reference": name, "coverage": "intra"} in near
