"""WebDataset shards, against the webdataset library as an independent reader."""

import gc
import pickle
import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset_making import write_shard

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
    samples = []
    for row, blob in enumerate(blobs):
        key, ending = f"{row // 4:05d}{row % 4:04d}", "jpg" if row % 2 else "png"
        about = {"caption": f"c{row}", "url": "http://x/", "key": key, "label": row % 3}
        samples.append((key, {ending: blob, "txt": f"caption {row}\n", "json": about}))
    for shard in range(3):
        write_shard(tmp_path / f"{shard:05d}.tar", samples[4 * shard : 4 * shard + 4])
    return tmp_path


#: webdataset leaves its shards to the garbage collector.
leaves_files_open = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def raw_samples(urls):
    samples = list(webdataset.WebDataset(urls, shardshuffle=False))
    gc.collect()
    return samples


@leaves_files_open
@pytest.mark.parametrize(
    "pattern", ["{00000..00002}.tar", "*.tar", "0000{0,1}.tar::{root}/00002.tar"]
)
def test_the_library_reads_the_same(shards, pattern, blobs):
    images = open_images(f"{shards}/{pattern.replace('{root}', str(shards))}")
    theirs = raw_samples([str(shards / f"0000{i}.tar") for i in range(3)])
    assert images.ids.to_pylist() == [sample["__key__"] for sample in theirs]
    pictures = [sample.get("jpg") or sample["png"] for sample in theirs]
    assert list(images.opener.read(range(12))) == pictures == blobs
    captions = [sample["txt"].decode().strip() for sample in theirs]
    assert images.captions.to_pylist() == captions
    assert images.labels.to_pylist() == [str(row % 3) for row in range(12)]
    assert images.locators[4].as_py() == f"{shards}/00001.tar!000010000"
    assert not images.problems
    # only one shard stays open
    held = [each.resolve().name for each in Path("/proc/self/fd").iterdir()]
    assert [name for name in held if name.endswith(".tar")] == ["00002.tar"]


@leaves_files_open
def test_odd_names_are_parted_as_the_library_parts_them(tmp_path, blobs):
    samples = [
        ("v1.0/cat", {"JPG": blobs[1], "cls": b"3", "mask.png": blobs[0]}),
        ("v1.0/", {"hidden.jpg": blobs[5]}),
        ("dog", {"b.c.png": blobs[2], "cls": b"7"}),
        ("üñ <i>", {"webp": blobs[4]}),
        ("__meta__", {"txt": b"x"}),
    ]
    path = write_shard(tmp_path / "a-0.tar", samples)
    images = open_images(f"{tmp_path}/a-{{0..0}}.tar")
    assert images.ids.to_pylist() == ["v1.0/cat", "dog", "üñ <i>"]
    assert images.labels.to_pylist() == ["3", "7", None]
    raw = {sample["__key__"]: sample for sample in raw_samples(str(path))}
    theirs = [raw["v1.0/cat"]["jpg"], raw["dog"]["b.c.png"], raw["üñ <i>"]["webp"]]
    assert list(images.opener.read(range(3))) == theirs


@pytest.mark.parametrize(("mode", "ending"), [("w:gz", "tar.gz"), ("w:xz", "tar.xz")])
def test_packed_shards_stream_forward_and_start_over(tmp_path, blobs, mode, ending):
    for shard in range(2):
        samples = [(f"{at}", {"png": blobs[4 * shard + at]}) for at in range(4)]
        write_shard(tmp_path / f"s-{shard}.{ending}", samples, mode)
    images = open_images(f"{tmp_path}/s-{{0..1}}.{ending}")
    # equal keys of two shards are told apart
    assert images.ids.to_pylist() == [f"s-{n // 4}/{n % 4}" for n in range(8)]
    copy = pickle.loads(pickle.dumps(images.opener))
    for positions in ([0, 3, 4, 7], [0, 3, 4, 7], [5], [1, 6]):
        assert list(copy.read(positions)) == [blobs[i] for i in positions]


def test_side_files_that_say_nothing(tmp_path, blobs):
    sides = {
        "a": {"json": b"{", "txt": b"\xff\xfe", "cls": b""},
        "b": {"json": b"[1]", "caption": "said"},
        "c": {"json": {"caption": "in json", "label_name": "cat"}},
        "d": {"txt": b"x" * (MAX_SIDE_BYTES + 1)},
    }
    samples = [(key, {"png": blobs[0], **side}) for key, side in sides.items()]
    images = open_images(f"wds:{write_shard(tmp_path / 's.tar', samples)}")
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
    samples = [("k", {"right.png": blobs[0], "left.png": blobs[2], "json": {}}), ("b", {"txt": ""})]
    path = write_shard(tmp_path / "s.tar", samples)
    images = open_images(f"wds:{path}", name="s")
    assert list(images.opener.read([0])) == [blobs[0]]
    [problem] = images.problems
    assert (problem.id, problem.locator) == ("b", f"{path}!b")
    assert problem.detail == "the sample holds no image; its members: txt"
    chosen = open_images(f"wds:{path}?image=left.png")
    assert list(chosen.opener.read([0])) == [blobs[2]]
    refused(VisleakError, r"the sample holds no up\.png; its", f"wds:{path}?image=up.png")
    refused(UsageError, r"\?pic= is not an option of it; known are", f"wds:{path}?pic=x")
    write_shard(path, [*samples, ("k", {"jpg": b""})])
    refused(VisleakError, rf"^shard {path} holds the key 'k' twice; the members", f"wds:{path}")


def test_a_damaged_shard_keeps_what_stands_before_the_damage(shards, blobs):
    path = shards / "00001.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        third = archive.getmembers()[6].offset
    path.write_bytes(whole[: third + 100])
    (shards / "00000.tar").unlink()
    images = open_images(f"{shards}/{{00000..00002}}.tar", name="train")
    missing, problem = images.problems
    assert (missing.set, missing.reason, problem.reason) == ("train", "missing", "corrupt")
    assert missing.locator == f"{shards}/00000.tar"
    assert missing.detail == "the shard cannot be read: no such file"
    assert re.match(r"the shard is damaged: .*; the 2 samples before are kept$", problem.detail)
    assert list(images.opener.read(range(6))) == [*blobs[4:6], *blobs[8:]]


def test_a_list_of_shards(shards, blobs):
    paths = [shards / f"0000{i}.tar" for i in range(3)]
    assert len(open_images(paths)) == 12
    (shards / "list.txt").write_text("00000.tar\n00002.tar\n")
    images = open_images(shards / "list.txt")
    assert list(images.opener.read(range(8))) == blobs[:4] + blobs[8:]
    refused(UsageError, "one of image files", [paths[0], "a.png"])
    # one alone is an archive unless said otherwise
    assert open_images(paths[0]).ids[0].as_py() == "000000000.png"
    assert open_images(f"wds:{paths[0]}").ids[0].as_py() == "000000000"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a-{0..3.tar", r"a \{ has no \}"),
        ("a-0..3}.tar", r"a \} has no \{"),
        ("a-{x}.tar", r"\{x\} is neither a list \{a,b\} nor a range \{000\.\.146\}"),
        ("a-{0..9999999}.tar", r"\{0\.\.9999999\} stands for more than 1,000,000 shards"),
        ("{0..9999}-{0..999}.tar", r"stands for more than 1,000,000 shards"),
        ("AT/x-*.tar", r"source '.*/x-\*\.tar': no shard matches$"),
        ("AT/00000.tar::AT/*.tar", r"names the shard .*/00000\.tar"),
    ],
)
def test_patterns_that_are_refused(pattern, said, shards):
    refused(UsageError, said, pattern.replace("AT", str(shards)))
    refused(VisleakError, r"holds no images \(the shard cannot be read", f"{shards}/x-{{0..1}}.tar")


numbers = st.builds(
    "{{{0}{1}..{0}{2}}}".format, st.sampled_from(["", "0"]), st.integers(0, 30), st.integers(0, 30)
)


@given(st.lists(numbers | st.sampled_from(["{a,bc}", "{d-,a,a}", "x/", "{a,{b,c}}"]), max_size=3))
def test_braces_expand_as_the_library_that_webdataset_uses(pieces):
    pattern = "".join(pieces) + "t.tar"
    assert expanded(pattern) == list(braceexpand.braceexpand(pattern))
