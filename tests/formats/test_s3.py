"""s3:// through s3fs, against a local fake of the protocol."""

import pytest
from fake_s3 import fake_s3
from webdataset_making import write_shard

from refusals import refused
from visleak.errors import VisleakError
from visleak.formats import open_images, remote
from visleak.pipeline.folder import stamp_of

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")

SECRET = "hunter2"

# botocore's deprecated calls and the sessions that s3fs leaves to the garbage collector
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture
def bucket(monkeypatch, tmp_path, picture, encode):
    blobs = [encode(picture(seed=i)) for i in range(4)]
    objects = {f"pics/{'cat' if i % 2 else 'dog'}/{i} #.png": b for i, b in enumerate(blobs)}
    samples = [(f"k{i}", {"png": blob, "cls": i % 2}) for i, blob in enumerate(blobs)]
    for shard in range(2):
        path = write_shard(tmp_path / f"s-{shard}.tar", samples[2 * shard : 2 * shard + 2])
        objects[f"wds/s-{shard}.tar"] = path.read_bytes()
    for name, value in {
        "ACCESS_KEY_ID": "me",
        "SECRET_ACCESS_KEY": SECRET,
        "DEFAULT_REGION": "us-east-1",
        "EC2_METADATA_DISABLED": "true",
        "CONFIG_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    remote.filesystem.cache_clear()
    with fake_s3(objects) as (endpoint, server):
        monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": endpoint})
        yield blobs, server
    remote.filesystem.cache_clear()


def test_a_folder_of_objects(bucket):
    blobs, server = bucket
    images = open_images("s3://box/pics")
    assert images.ids.to_pylist() == ["cat/1 #.png", "cat/3 #.png", "dog/0 #.png", "dog/2 #.png"]
    assert images.labels.to_pylist() == ["cat", "cat", "dog", "dog"]
    assert images.locators[0].as_py() == "s3://box/pics/cat/1 #.png"
    assert list(images.opener.read(range(4))) == [blobs[i] for i in (1, 3, 0, 2)]
    assert all("Credential=me/" in header for *_, header in server.asked), "signed requests"
    first = stamp_of(images)
    assert first == stamp_of(open_images("s3://box/pics"))
    server.objects["pics/cat/1 #.png"] += b"x"
    assert stamp_of(open_images("s3://box/pics")) != first


def test_shards(bucket):
    blobs, _ = bucket
    for pattern in ("s-{0..1}.tar", "*.tar"):
        images = open_images(f"s3://box/wds/{pattern}")
        assert images.ids.to_pylist() == ["k0", "k1", "k2", "k3"]
        assert list(images.opener.read(range(4))) == blobs
        assert stamp_of(images) is not None
    images = open_images("s3://box/wds/s-{1..2}.tar")
    assert [(p.reason, p.locator) for p in images.problems] == [("missing", "s3://box/wds/s-2.tar")]


def test_what_may_not_be_read(bucket):
    said = r"^archive s3://private/a\.tar cannot be read: access was refused; the store's own tools"
    with pytest.raises(VisleakError, match=said) as caught:
        open_images("s3://private/a.tar")
    assert SECRET not in str(caught.value)
    refused(VisleakError, r"^s3://private/pics cannot be listed: access was", "s3://private/pics")
    [gone] = open_images("s3://box/pics/9.png").opener.read([0])
    assert (gone.reason, gone.detail) == ("missing", "the store has no such object")
