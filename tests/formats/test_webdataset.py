"""WebDataset shards, against the webdataset library as an independent reader."""

import gc
import pickle
import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset_making import add, write_shard

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.formats.webdataset import MAX_SIDE_BYTES, expanded

webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed")
braceexpand = pytest.importorskip("braceexpand", reason="braceexpand is not installed")


@pytest.fixture
def blobs(picture, encode):
    return [encode(picture(seed=i), "JPEG" if i % 2 else "PNG") for i in range(12)]


@pytest.fixture
def shards(tmp_path, blobs):
    """Three shards as img2dataset writes them: image, caption and a json side file."""
    for shard in range(3):
        samples = []
        for at in range(4):
            row = 4 * shard + at
            key = f"{shard:05d}{at:04d}"
            about = {"caption": f"c{row}", "url": "http://x/", "key": key, "label": row % 3}
            ending = "jpg" if row % 2 else "png"
            samples.append((key, {ending: blobs[row], "txt": f"caption {row}\n", "json": about}))
        write_shard(tmp_path / f"{shard:05d}.tar", samples)
    return tmp_path


#: webdataset leaves its shards to the garbage collector.
leaves_files_open = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def raw_samples(urls):
    samples = list(webdataset.WebDataset(urls, shardshuffle=False))
    gc.collect()
    return samples


def seen_by_the_library(urls):
    """Key, image bytes, caption and label of every sample, as webdataset itself reads them."""
    found = {}
    for sample in raw_samples(urls):
        picture = next(sample[e] for e in ("jpg", "jpeg", "png", "webp") if e in sample)
        caption = sample["txt"].decode().strip() if "txt" in sample else None
        found[sample["__key__"]] = (picture, caption, sample.get("cls", b"").decode() or None)
    return found


def ours(images):
    captions = images.captions.to_pylist() if images.captions else [None] * len(images)
    pictures = images.opener.read(range(len(images)))
    return dict(zip(images.ids.to_pylist(), zip(pictures, captions, strict=True), strict=True))


@leaves_files_open
@pytest.mark.parametrize(
    "pattern", ["{00000..00002}.tar", "*.tar", "0000{0,1}.tar::{root}/00002.tar"]
)
def test_the_library_reads_the_same(shards, pattern, blobs):
    text = f"{shards}/{pattern.replace('{root}', str(shards))}"
    images = open_images(text)
    theirs = seen_by_the_library([str(shards / f"0000{i}.tar") for i in range(3)])
    assert ours(images) == {key: value[:2] for key, value in theirs.items()}
    assert images.ids.to_pylist() == list(theirs)
    assert images.labels.to_pylist() == [str(row % 3) for row in range(12)]
    assert images.locators[4].as_py() == f"{shards}/00001.tar!000010000"
    assert not images.problems


@leaves_files_open
def test_odd_names_are_parted_as_the_library_parts_them(tmp_path, blobs):
    path = tmp_path / "a-0.tar"
    write_shard(
        path,
        [
            ("v1.0/cat", {"JPG": blobs[1], "cls": b"3", "mask.png": blobs[0]}),
            ("v1.0/", {"hidden.jpg": blobs[5]}),
            ("dog", {"b.c.png": blobs[2], "cls": b"7"}),
            ("üñ <i>", {"webp": blobs[4]}),
        ],
    )
    with tarfile.open(path, "a") as archive:
        add(archive, "__meta__", b"x")
    images = open_images(f"{tmp_path}/a-{{0..0}}.tar")
    assert images.ids.to_pylist() == ["v1.0/cat", "dog", "üñ <i>"]
    assert images.labels.to_pylist() == ["3", "7", None]
    found = list(images.opener.read(range(3)))
    assert found == [blobs[1], blobs[2], blobs[4]]
    raw = {sample["__key__"]: sample for sample in raw_samples(str(path))}
    assert set(images.ids.to_pylist()) <= set(raw)
    assert raw["v1.0/cat"]["jpg"] == found[0]
    assert raw["dog"]["b.c.png"] == found[1]


def test_packed_shards_stream_forward_and_start_over(shards, tmp_path, blobs):
    for mode, ending in (("w:gz", "tar.gz"), ("w:xz", "tar.xz")):
        for shard in range(2):
            samples = [(f"{shard}-{at}", {"png": blobs[4 * shard + at]}) for at in range(4)]
            write_shard(tmp_path / ending / f"{shard}.{ending}", samples, mode)
        images = open_images(f"{tmp_path}/{ending}/{{0..1}}.{ending}")
        for _ in range(2):
            assert list(images.opener.read([0, 3, 4, 7])) == [blobs[i] for i in (0, 3, 4, 7)]
        copy = pickle.loads(pickle.dumps(images.opener))
        assert list(copy.read([5])) == [blobs[5]]
        assert list(copy.read([1, 6])) == [blobs[1], blobs[6]]


def test_only_one_shard_stays_open(shards):
    images = open_images(f"{shards}/*.tar")
    list(images.opener.read(range(12)))
    held = [each.resolve().name for each in Path("/proc/self/fd").iterdir()]
    assert [name for name in held if name.endswith(".tar")] == ["00002.tar"]


def test_keys_in_two_shards_are_told_apart(tmp_path, blobs):
    for shard in range(2):
        write_shard(tmp_path / f"s-{shard}.tar", [("k", {"png": blobs[shard]})])
    images = open_images(f"{tmp_path}/s-{{0..1}}.tar")
    assert images.ids.to_pylist() == ["s-0/k", "s-1/k"]
    assert list(images.opener.read([0, 1])) == blobs[:2]


def test_a_key_twice_in_a_shard_is_refused(tmp_path, blobs):
    samples = [("k", {"png": blobs[0]}), ("l", {"png": blobs[1]}), ("k", {"jpg": b""})]
    path = write_shard(tmp_path / "s.tar", samples)
    refused(VisleakError, rf"^shard {path} holds the key 'k' twice; the members", f"wds:{path}")


def test_side_files_that_say_nothing(tmp_path, blobs):
    write_shard(
        tmp_path / "s.tar",
        [
            ("a", {"png": blobs[0], "json": b"{", "txt": b"\xff\xfe", "cls": b""}),
            ("b", {"png": blobs[1], "json": b"[1]", "caption": "said"}),
            ("c", {"png": blobs[2], "json": {"caption": "in json", "label_name": "cat"}}),
            ("d", {"png": blobs[3], "txt": b"x" * (MAX_SIDE_BYTES + 1)}),
        ],
    )
    images = open_images(f"wds:{tmp_path}/s.tar")
    assert images.captions.to_pylist() == [None, "said", "in json", None]
    assert images.labels.to_pylist() == [None, None, "cat", None]


def test_columns_come_from_the_json(shards):
    images = open_images(f"{shards}/*.tar", id="key", label="caption", group="label")
    assert images.ids[5].as_py() == "000010001"
    assert images.labels[5].as_py() == "c5"
    assert images.groups[5].as_py() == "2"
    said = r"id 'nope': no sample has this in the .json beside the image of .*\*\.tar$"
    refused(UsageError, said, f"{shards}/*.tar", id="nope")
    assert open_images(f"{shards}/*.tar", group=r"/^(\d{5})/").groups[4].as_py() == "00001"


def test_which_picture_of_several(tmp_path, blobs):
    members = {"right.png": blobs[0], "left.png": blobs[2], "json": {}}
    write_shard(tmp_path / "s.tar", [("k", members)])
    assert list(open_images(f"wds:{tmp_path}/s.tar").opener.read([0])) == [blobs[0]]
    chosen = open_images(f"wds:{tmp_path}/s.tar?image=left.png")
    assert list(chosen.opener.read([0])) == [blobs[2]]
    refused(VisleakError, r"the sample holds no up\.png; its", f"wds:{tmp_path}/s.tar?image=up.png")
    refused(UsageError, r"\?pic= is not an option of it; known are", f"wds:{tmp_path}/s.tar?pic=x")


def test_a_missing_shard_is_told_and_the_others_are_read(shards, blobs):
    (shards / "00001.tar").unlink()
    images = open_images(f"{shards}/{{00000..00002}}.tar", name="train")
    assert len(images) == 8
    [problem] = images.problems
    assert (problem.set, problem.reason) == ("train", "missing")
    assert problem.locator == f"{shards}/00001.tar"
    assert problem.detail == "the shard cannot be read: no such file"


def test_a_damaged_shard_keeps_what_stands_before_the_damage(shards, blobs):
    path = shards / "00001.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        third = archive.getmembers()[6].offset
    path.write_bytes(whole[: third + 100])
    images = open_images(f"{shards}/*.tar")
    assert len(images) == 10
    [problem] = images.problems
    assert problem.reason == "corrupt"
    assert re.match(r"the shard is damaged: .*; the 2 samples before are kept$", problem.detail)
    assert list(images.opener.read(range(4, 6))) == blobs[4:6]


def test_a_sample_without_a_picture_is_a_problem(tmp_path, blobs):
    write_shard(tmp_path / "s.tar", [("a", {"png": blobs[0]}), ("b", {"txt": "x", "json": {}})])
    images = open_images(f"wds:{tmp_path}/s.tar", name="s")
    [problem] = images.problems
    assert (problem.id, problem.locator) == ("b", f"{tmp_path}/s.tar!b")
    assert problem.detail == "the sample holds no image; its members: txt, json"


def test_a_list_of_shards(shards, blobs):
    paths = [shards / f"0000{i}.tar" for i in range(3)]
    assert len(open_images(paths)) == 12
    (shards / "list.txt").write_text("00000.tar\n00002.tar\n")
    images = open_images(shards / "list.txt")
    assert list(images.opener.read(range(8))) == blobs[:4] + blobs[8:]
    refused(UsageError, "one of image files", [paths[0], "a.png"])


def test_one_tar_is_an_archive_unless_said_otherwise(shards):
    assert open_images(shards / "00000.tar").ids[0].as_py() == "000000000.png"
    assert open_images(f"wds:{shards}/00000.tar").ids[0].as_py() == "000000000"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a-{0..3.tar", r"a \{ has no \}"),
        ("a-0..3}.tar", r"a \} has no \{"),
        ("a-{x}.tar", r"\{x\} is neither a list \{a,b\} nor a range \{000\.\.146\}"),
        ("a-{1..z}.tar", r"\{1\.\.z\} is neither a list"),
        ("a-{0..9999999}.tar", r"\{0\.\.9999999\} stands for more than 1,000,000 shards"),
        ("{0..9999}-{0..999}.tar", r"stands for more than 1,000,000 shards"),
    ],
)
def test_braces_that_are_no_pattern(pattern, said):
    refused(UsageError, said, pattern)


def test_patterns_that_name_nothing_or_twice(shards):
    refused(UsageError, r"source '.*/x-\*\.tar': no shard matches$", f"{shards}/x-*.tar")
    refused(UsageError, r"names the shard .*/00000\.tar", f"{shards}/00000.tar::{shards}/*.tar")
    refused(VisleakError, r"holds no images \(the shard cannot be read", f"{shards}/x-{{0..1}}.tar")


numbers = st.tuples(st.integers(0, 30), st.integers(0, 30), st.sampled_from(["", "0"])).map(
    lambda t: f"{{{t[2]}{t[0]}..{t[2]}{t[1]}}}"
)
words = st.lists(st.sampled_from(["a", "bc", "d-"]), min_size=2, max_size=3).map(
    lambda parts: "{" + ",".join(parts) + "}"
)


@given(st.lists(st.one_of(numbers, words, st.just("x/"), st.just("{a,{b,c}}")), max_size=3))
def test_braces_expand_as_the_library_that_webdataset_uses(pieces):
    pattern = "".join(pieces) + "t.tar"
    assert expanded(pattern) == list(braceexpand.braceexpand(pattern))
