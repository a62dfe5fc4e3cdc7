"""Hugging Face data sets, made here with the library itself; nothing is downloaded."""

import io
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.images import content_digest
from visleak.pipeline.folder import stamp_of
from visleak.records import Unreadable

datasets = pytest.importorskip("datasets", reason="datasets is not installed")


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def blobs(picture, encode):
    return [encode(picture(seed=i), "JPEG" if i % 2 else "PNG") for i in range(10)]


@pytest.fixture
def plain(blobs):
    labels, text = datasets.ClassLabel(names=["cat", "dog"]), datasets.Value("string")
    columns = {
        "image": [{"bytes": blob, "path": f"{i}.png"} for i, blob in enumerate(blobs)],
        "label": [i % 2 for i in range(9)] + [-1],
        "caption": [f"c{i}" for i in range(10)],
        "id": [100 - i for i in range(10)],
    }
    kinds = (datasets.Image(), labels, text, datasets.Value("int64"))
    features = datasets.Features(dict(zip(columns, kinds, strict=True)))
    return datasets.Dataset.from_dict(columns, features=features)


def test_stored_bytes_not_decoded_ones(plain, blobs):
    images = open_images(plain)
    assert list(images.opener.read(range(10))) == blobs
    assert images.ids.to_pylist() == [str(i) for i in range(10)]  # whatever columns say
    assert images.labels.to_pylist() == ["cat", "dog"] * 4 + ["cat", "-1"]
    assert images.captions[3].as_py() == "c3"
    assert open_images(plain, id="id").ids[3].as_py() == "97"
    assert list(pickle.loads(pickle.dumps(images.opener)).read([2, 5])) == [blobs[2], blobs[5]]
    undecoded = plain.cast_column("image", datasets.Image(decode=False))
    chosen = plain.select([7, 2, 5]).with_format("torch")
    for some in (undecoded, chosen, plain.shuffle(seed=1)):
        images = open_images(some)
        found = list(images.opener.read(range(len(images))))
        assert found == [blobs[int(caption[1:])] for caption in images.captions.to_pylist()]


def test_a_stream_is_read_forward_and_a_second_pass_starts_over(plain, blobs):
    passes, end = [], [10]

    def rows():
        passes.append(0)
        for row in plain.cast_column("image", datasets.Image(decode=False)):
            if row["id"] == 100 - end[0]:
                raise OSError("gone\nfor good https://me:secret@host/x")
            passes[-1] += 1
            yield row

    stream = datasets.IterableDataset.from_generator(rows, features=plain.features)
    images = open_images(stream)
    assert len(images) == 10
    assert images.labels.to_pylist() == ["cat", "dog"] * 4 + ["cat", "-1"]
    passes.clear()
    assert list(images.opener.read([0, 1, 4])) == [blobs[i] for i in (0, 1, 4)]
    assert list(images.opener.read([5, 9])) == [blobs[5], blobs[9]]
    assert passes == [10], "one pass, in however many calls"
    assert list(images.opener.read([3])) == [blobs[3]]
    assert len(passes) == 2
    assert stamp_of(images) is None
    end[0] = 4  # where it breaks
    before, *found = images.opener.read([3, 4, 5])
    assert before == blobs[3]
    assert [f.reason for f in found] == ["io-error", "io-error"]
    assert "secret" not in found[0].detail
    empty = datasets.IterableDataset.from_generator(iter, gen_kwargs={}, features=plain.features)
    refused(VisleakError, r"cannot be listed|holds no images", empty)


def test_a_stream_that_does_not_say_what_its_columns_are(blobs):
    def told():
        yield from ({"img": {"bytes": blob, "path": None}, "label": 1} for blob in blobs)

    def untold():
        yield from ({"img": Image.open(io.BytesIO(blob))} for blob in blobs)

    images = open_images(datasets.IterableDataset.from_generator(told))
    assert list(images.opener.read([0, 9])) == [blobs[0], blobs[9]]
    said = r"^the data set does not declare its columns, and its first rows do not tell \(.*\);"
    refused(VisleakError, said, datasets.IterableDataset.from_generator(untold))


def test_pictures_that_are_files_arrays_or_nothing(tmp_path, blobs):
    (tmp_path / "a.png").write_bytes(blobs[0])
    paths = ("a.png", "b.png", "https://host/c.png", f"zip://x.png::{tmp_path}/a.zip")
    rows = [{"bytes": None, "path": os.path.join(tmp_path, path)} for path in paths[:2]]
    rows += [{"bytes": None, "path": path} for path in paths[2:]]
    features = datasets.Features({"image": datasets.Image()})
    images = open_images(datasets.Dataset.from_dict({"image": [*rows, None]}, features=features))
    found = list(images.opener.read(range(5)))
    assert found[0] == blobs[0]
    assert found[1] == Unreadable("missing", "no such file")
    fetched = Unreadable("missing", "the row holds an address, and nothing is fetched")
    assert found[2:] == [fetched, fetched, Unreadable("missing", "the row holds no image")]
    pictures = [Image.open(io.BytesIO(blobs[0])), np.zeros((4, 4, 3), np.uint8)]
    made = datasets.Dataset.from_dict({"image": pictures}, features=features)
    sizes = [Image.open(io.BytesIO(data)).size for data in open_images(made).opener.read([0, 1])]
    assert sizes == [(48, 32), (4, 4)]


def test_which_columns(plain, blobs):
    renamed = plain.rename_columns({"image": "photo", "label": "animal"}).remove_columns("id")
    images = open_images(renamed)
    assert list(images.opener.read([1])) == [blobs[1]]
    assert images.labels[1].as_py() == "dog", "the one column with class names"
    assert open_images(renamed, label="caption").labels[1].as_py() == "c1"
    refused(UsageError, r"label 'x': .* has no such column; it has animal", renamed, label="x")
    refused(VisleakError, r"the data set has no column with images", plain.remove_columns("image"))
    refused(VisleakError, r"holds no images \(it has no rows\)", plain.select([]))
    assert len(open_images(datasets.DatasetDict({"train": plain}))) == len(plain)
    refused(UsageError, r"source holds the", datasets.DatasetDict({"train": plain, "test": plain}))


def test_folders_of_save_to_disk(tmp_path, plain, blobs):
    plain.save_to_disk(tmp_path / "one")
    parts = {"train": plain.select(range(6)), "test": plain.select([6])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "two")
    images = open_images(f"hf:{tmp_path}/one")
    assert (images.name, len(images)) == ("one", 10)
    assert images.locators[4].as_py() == f"hf:{tmp_path}/one!4"
    # the key of an audit follows the files
    first = stamp_of(images)
    assert first == stamp_of(open_images(f"hf:{tmp_path}/one"))
    [file] = (tmp_path / "one").glob("*.arrow")
    os.utime(file, ns=(1, 1))
    assert first != stamp_of(open_images(f"hf:{tmp_path}/one"))
    assert stamp_of(open_images(plain)) is None, "in memory only"
    images = open_images(f"hf:{tmp_path}/two#training")
    assert list(images.opener.read(range(6))) == blobs[:6]
    assert images.locators[4].as_py() == f"hf:{tmp_path}/two#training!4"
    refused(UsageError, r"two': add #SPLIT, one of train, test$", f"hf:{tmp_path}/two")
    refused(UsageError, r"no split 'val'; there are train, test$", f"hf:{tmp_path}/two#val")
    refused(UsageError, r"\?trust= is not an option of it", f"hf:{tmp_path}/two?trust=yes#train")


@pytest.mark.parametrize("streaming", ["", "?streaming=yes"])
def test_a_folder_that_the_library_understands(put, tmp_path, blobs, streaming):
    names = ("test/cat/1.jpg", "test/dog/0.png", "test/dog/2.png", "train/cat/3.jpg")
    stored = [put(f"set/{name}", blobs[int(name[-5])]).read_bytes() for name in names]
    images = open_images(f"hf:{tmp_path}/set{streaming}#test")
    found = map(content_digest, images.opener.read(range(3)))
    assert sorted(found) == sorted(map(content_digest, stored[:3]))
    assert sorted(images.labels.to_pylist()) == ["cat", "dog", "dog"]


def test_code_of_a_data_set_is_never_run(tmp_path):
    """Also where the environment would allow it."""
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('x')")
    refused(VisleakError, r"evil cannot be read as a data set: ", f"hf:{folder}")
    assert not (tmp_path / "ran").exists()


def test_what_may_be_asked_of_a_name(monkeypatch, plain):
    said = r"someone/nothing is not a folder here and could not .* at https://huggingface\.co \("
    refused(VisleakError, said, "hf:someone/nothing#test")
    asked = []

    def load(*args, **kwargs):
        asked.append((args, kwargs))
        return datasets.DatasetDict({"train": plain})

    monkeypatch.setattr(datasets, "load_dataset", load)
    images = open_images("hf:user/set?config=full&revision=v1#train")
    assert asked == [(("user/set", "full"), {"revision": "v1", "streaming": False})]
    assert images.locators[2].as_py() == "hf:user/set#train!2"
    assert images.name == "train"
