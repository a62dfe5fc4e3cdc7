"""Splits: of a recipe, of two sets, and as tables of paths."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import toy_splits
from refusals import refusal
from visleak.dlede.draw import split_of, write_split_tables
from visleak.dlede.draw.recipes import EXACTLY, divided_by, split_by, whole_groups
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.formats.files import chosen


def made(ids, groups=None):
    """Return a set of images that nobody reads."""
    images = open_images([toy_splits.BLANK], name="s")
    names = pa.array(ids, pa.string())
    groups = None if groups is None else pa.array(groups, pa.string())
    return replace(images, ids=names, locators=names, groups=groups)


def numbered(count, groups=None):
    return made([f"{at:06d}.png" for at in range(count)], groups)


def test_kitti_is_the_paper_s():
    """Babu et al. 2025: 5,231 train, 2,250 test, in file order."""
    test = divided_by(numbered(7481), "kitti")
    assert ((~test).sum(), test.sum()) == (5231, 2250)
    assert not test[:5231].any()
    with pytest.raises(UsageError, match="set 's' has 100; use first:N to train"):
        divided_by(numbered(100), "kitti")


def test_cirrus_is_the_paper_s():
    """Seven recordings; the paper's sizes, 4,495 and 1,790, are the sums of five and of two."""
    sizes = (900, 899, 898, 899, 899, 895, 895)
    ids = [f"r{run}/{at:04d}.png" for run, size in enumerate(sizes) for at in range(size)]
    test = divided_by(made(ids), "cirrus")
    assert ((~test).sum(), test.sum()) == (4495, 1790)
    assert {ids[at][:2] for at in np.flatnonzero(test)} == {"r5", "r6"}
    groups = ["x"] * 3 + list("abcdef")
    assert divided_by(numbered(9, groups), "cirrus").tolist() == [False] * 7 + [True] * 2
    with pytest.raises(UsageError, match="divides 7 recordings; set 's' has 6; use"):
        divided_by(made(ids[:-895]), "cirrus")


def test_first_images_and_first_groups():
    images = numbered(6, list("bbacca"))
    assert divided_by(images, "first:2").tolist() == [False] * 2 + [True] * 4
    # b, a and c in the order in which they come
    assert np.flatnonzero(divided_by(images, "first-groups:2")).tolist() == [3, 4]


def test_random_images():
    images = numbered(200)
    test = divided_by(images, "random:.25")
    assert test.sum() == 50
    assert 10 < test[:100].sum() < 40
    assert (divided_by(images, "random:25%") == test).all()
    assert (divided_by(images, "random:.25:0") == test).all()
    assert (divided_by(images, "random:.25:1") != test).any()
    # halves up, never all, never none
    sums = [divided_by(numbered(3), f"random:{share}").sum() for share in (0.5, 0.999, 0.001)]
    assert sums == [2, 2, 1]


def test_random_groups_stay_whole():
    groups = [str(at // 7) for at in range(140)]
    images = numbered(140, groups)
    test = divided_by(images, "groups:.3")
    assert test.sum() == 42
    shown = {groups[at] for at in np.flatnonzero(test)}
    assert not shown & {groups[at] for at in np.flatnonzero(~test)}
    assert any((divided_by(images, f"groups:.3:{seed}") != test).any() for seed in range(1, 4))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("half", "--split is one of kitti, cirrus, first:N, first-groups:N,"),
        ("first", "--split first is written first:N; got 'first'"),
        ("kitti:3", "--split kitti is written kitti; got 'kitti:3'"),
        ("first:0", "--split first:N takes a whole number from 1 to 3, for there are 4 images"),
        ("first:1.5", "got '1.5'"),
        (
            "first-groups:2",
            "--split first-groups:N takes a whole number from 1 to 1, for there are",
        ),
        ("random:0", "--split random:SHARE is the share of the test images, above 0 and below 1"),
        ("groups:x", "such as groups:0.2 or groups:20%; got 'x'"),
        ("random:.1:-1", "--split random:SHARE:SEED takes a whole number as seed; got '-1'"),
    ],
)
def test_what_is_no_recipe(text, said):
    assert said in refusal(UsageError, divided_by, numbered(4, list("aabb")), text)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (["a"], "set 's' holds 1 images; a split needs two"),
        (["a", None, "b"], "1 of 3 images of set 's' are not known, such as '000001.png'"),
        (["a"] * 3, "all images of set 's' are of one group; it needs two"),
    ],
)
def test_sets_that_a_recipe_does_not_fit(groups, said):
    assert said in refusal(UsageError, divided_by, numbered(len(groups), groups), "groups:.5")


def nearest(weights, size):
    """Least distance of any sum of some weights, not none and not all: all of them tried."""
    whole = range(1, len(weights))
    sums = {sum(c) for k in whole for c in itertools.combinations(weights, k)}
    return min(abs(total - size) for total in sums)


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=9), st.integers(0, 120), st.integers(0, 99)
)
def test_chosen_groups_are_whole_and_as_near_as_can_be(weights, size, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(weights)), weights))
    chosen = whole_groups(groups, size, np.random.default_rng(seed))
    assert 0 < chosen.sum() < len(chosen)
    assert not set(groups[chosen]) & set(groups[~chosen])
    assert abs(chosen.sum() - size) == nearest(weights, size)
    again = whole_groups(groups, size, np.random.default_rng(seed))
    assert (again == chosen).all()


def test_every_nearest_choice_has_a_chance():
    """Sizes 1, 2, 3, 4 and 5 of 15: 7 is 3+4, 2+5 and 1+2+4."""
    groups = np.repeat(np.arange(1, 6), np.arange(1, 6))
    drawn = (whole_groups(groups, 7, np.random.default_rng(seed)) for seed in range(300))
    counts = Counter(tuple(np.unique(groups[chosen])) for chosen in drawn)
    assert set(counts) == {(3, 4), (2, 5), (1, 2, 4)}
    assert min(counts.values()) > 30


def test_more_groups_than_are_looked_at_exactly():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 3 * EXACTLY, 20_000).astype(str)
    for size in (6000, 1, 19_999):
        chosen = whole_groups(groups, size, rng)
        assert abs(int(chosen.sum()) - size) <= (0 if size == 6000 else 20)
        assert not set(groups[chosen]) & set(groups[~chosen])
    with pytest.raises(ValueError, match="there must be two groups or more to choose from"):
        whole_groups(np.zeros(3), 1, rng)


def put(path, text=None, colour="black"):
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        Image.new("RGB", (8, 8), colour).save(path)
    else:
        path.write_text(text)
    return path


def yolo(folder, names="[cat, dog]"):
    for split, pictures in (("train", "abc"), ("val", "de")):
        for at, name in enumerate(pictures):
            put(folder / "images" / split / f"{name}.png")
            put(folder / "labels" / split / f"{name}.txt", f"{at % 2} .5 .5 .2 .2\n" * (at + 1))
    return put(folder / "data.yaml", f"train: images/train\nval: images/val\nnames: {names}\n")


def opened(path, split, **wishes):
    return open_images(f"yolo:{path}#{split}", **wishes)


def kitti(folder, *shown):
    """Return a set in KITTI's format of an image with some objects."""
    put(folder / "training/image_2/000000.png")
    text = "".join(f"{name} 0 0 0 1 1 2 2 1 1 1 1 1 1 1\n" for name in shown)
    put(folder / "training/label_2/000000.txt", text)
    return open_images(f"kitti:{folder}", name=folder.name)


def test_classes_are_matched_by_name_and_regions_of_no_class_stay_so(tmp_path):
    train = kitti(tmp_path / "a", "Car", "Van")
    split = split_of(kitti(tmp_path / "b", "DontCare", "Bus", "Car", "Car"), train)
    assert split.train_boxes.names == split.test_boxes.names == ("Car", "Van", "Bus")
    assert split.train_boxes.counts().tolist() == [[1, 1, 0]]
    assert split.test_boxes.counts().tolist() == [[2, 0, 1]]
    assert split.test_boxes.label.tolist() == [-1, 2, 0, 0]
    assert split.test_boxes.crowd.tolist() == [True, False, False, False]


def test_sets_that_do_not_go_together(tmp_path):
    path = yolo(tmp_path / "y")
    train, test = opened(path, "train"), opened(path, "val")
    twins = opened(yolo(tmp_path / "z", "[cat, cat]"), "train")
    pixels = kitti(tmp_path / "c", "cat")
    plain = open_images(tmp_path / "y" / "images", name="plain")
    none = chosen(test, np.empty(0, np.int64), "none")
    for sets, said in (
        ((test, pixels), "boxes of set 'val' are shares of the image (YOLO), those of set 'c' pix"),
        ((pixels, train), "boxes of set 'train' are shares of the image (YOLO), those of set 'c'"),
        ((plain, train), "set 'plain' has no boxes, and set 'train' has some; open both with"),
        ((test, plain), "set 'plain' has no boxes, and set 'val' has some"),
        ((test, opened(path, "train", name="val")), "both sets are called 'val'; name them: --t"),
        ((test, twins), "two classes of set 'train' are called 'cat', and the"),
        ((none, train), "set 'none' holds no images"),
        ((test, none), "set 'none' holds no images"),
    ):
        assert said in refusal(VisleakError, split_of, *sets)
    same = split_of(replace(twins, name="test"), twins)
    assert same.test_boxes.names == ("cat", "cat")


def test_a_recipe_parts_images_and_boxes_alike(tmp_path):
    images = opened(yolo(tmp_path), "train")
    split = split_by(images, "first:1")
    assert (split.train.name, split.test.name) == ("train", "test")
    assert split.train.ids.to_pylist() == ["a.png"]
    assert split.test.ids.to_pylist() == ["b.png", "c.png"]
    assert split.train_boxes.counts().tolist() == [[1, 0]]
    assert split.test_boxes.counts().tolist() == [[0, 2], [3, 0]]
    assert split_by(open_images(tmp_path / "images"), "first:1").test_boxes is None


@pytest.fixture
def video(tmp_path):
    for drive in ("=one", "two ä"):
        for frame in range(4):
            put(tmp_path / "video" / drive / f"{frame}.png", None, (40 * frame,) * 3)
    columns = {"group": "/^([^/]+)/", "frame": r"/(\d+)\.png$/"}
    return open_images(str(tmp_path / "video"), **columns, dataset="film")


@pytest.mark.parametrize("timed", [False, True])
def test_parts_open_from_their_tables_as_they_were(tmp_path, video, timed):
    before = split_by(replace(video, timed=timed), "first-groups:1")
    after = write_split_tables(before, tmp_path / "out")
    for name in ("train", "test"):
        old, new = getattr(before, name), getattr(after, name)
        assert new.source == str(tmp_path / "out" / f"{name}.parquet")
        again = open_images(new.source, id="id")
        for column in ("ids", "labels", "groups", "frames", "locators"):
            assert getattr(new, column).equals(getattr(old, column)), column
            assert getattr(again, column).equals(getattr(old, column)), column
        assert (new.name, new.dataset, new.timed) == (name, "film", timed)
        assert list(new.opener.read(range(4))) == list(old.opener.read(range(4)))


def test_tables_of_another_split_are_not_written_over(tmp_path, video):
    write_split_tables(split_by(video, "first:6"), tmp_path / "out")
    write_split_tables(split_by(video, "first:6"), tmp_path / "out")
    with pytest.raises(UsageError, match=r"train.parquet is of another split; choose another"):
        write_split_tables(split_by(video, "first:5"), tmp_path / "out")
    forced = write_split_tables(split_by(video, "first:5"), tmp_path / "out", force=True)
    assert len(forced.train) == 5


def test_pictures_that_are_no_files_stay_where_they_are(tmp_path):
    split = toy_splits.split_of(6, 4)
    assert write_split_tables(split, tmp_path / "out") is split
    assert not (tmp_path / "out").exists()
