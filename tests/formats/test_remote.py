"""Remote sources: a local web server, a server of s3://, and fsspec's store in memory."""

import contextlib
import pickle
import socket
import sys
import zipfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from serving import Handler, served
from webdataset_making import write_shard

from refusals import refusal, refused
from visleak.cli import main
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.formats import files, open_images, remote
from visleak.pipeline.folder import stamp_of
from visleak.records import Unreadable

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
pytest.importorskip("aiohttp", reason="aiohttp is not installed")

SECRET = "hunter2"
SIGNED = f"X-Amz-Signature={SECRET}&Expires=9"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(remote, "WAITS", (0.0, 0.0))


@pytest.fixture
def blobs(picture, encode):
    return [encode(picture(seed=i)) for i in range(8)]


@pytest.fixture
def everything(tmp_path, blobs):
    """One folder with every kind of source in it."""
    names = [f"pics/{'cat' if i % 2 else 'dog & co'}/{i} #.png" for i in range(8)]
    for name, blob in zip(names, blobs, strict=True):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
    names.sort()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for i, blob in enumerate(blobs):
            archive.writestr(f"{i}.png", blob)
    samples = [(f"k{i}", {"png": blob, "cls": i % 2}) for i, blob in enumerate(blobs)]
    write_shard(tmp_path / "all.tar", samples)
    write_shard(tmp_path / "all.tar.gz", samples, "w:gz")
    write_shard(tmp_path / "wds/s-0.tar", samples[:3])
    write_shard(tmp_path / "wds/s-1.tar", samples[3:])
    pq.write_table(pa.table({"image": blobs}), tmp_path / "all.parquet")
    table = "path,id\n" + "".join(f"{name},{i}\n" for i, name in enumerate(names))
    (tmp_path / "all.csv").write_text(table)
    (tmp_path / "all.txt").write_text("\n".join(names))
    return tmp_path


KINDS = ["all.zip", "all.tar", "all.tar.gz", "all.parquet", "all.csv", "all.txt", "pics"]


@contextlib.contextmanager
def elsewhere(folder, switches):
    """Yield the address of a folder on a web server, or in the store in memory."""
    if switches is not None:
        with served(folder, **switches) as (url, _):
            yield url
        return
    store = fsspec.filesystem("memory")
    store.put(f"{folder}/", "/box/", recursive=True)
    yield "memory://box"
    store.rm("/box", recursive=True)


@pytest.mark.parametrize(
    "switches", [{}, {"ranges": False}, {"ranges": False, "lengths": False}, None]
)
@pytest.mark.parametrize("kind", [*KINDS, "wds/s-{0..1}.tar", "wds/*.tar"])
def test_remote_is_as_local(everything, kind, switches):
    packed_blind = kind == "all.tar.gz" and "lengths" in (switches or ())
    here = open_images(f"{everything}/{kind}")
    with elsewhere(everything, switches) as url:
        there = open_images(f"{url}/{kind}")
        assert there.ids.equals(here.ids)
        assert there.labels == here.labels
        wanted = list(here.opener.read(range(8)))
        assert list(there.opener.read(range(8))) == wanted
        copy = pickle.loads(pickle.dumps(there.opener))
        assert list(copy.read([1, 4, 7])) == [wanted[i] for i in (1, 4, 7)]
        assert there.locators[0].as_py().startswith(url)
    assert packed_blind or not there.problems


def test_a_tar_is_one_request_a_pass(everything, monkeypatch):
    """What only streams is never jumped about in."""
    monkeypatch.setattr(remote, "BLOCK", 1024)
    with served(everything, ranges=False) as (url, server):
        images = open_images(f"{url}/all.tar")
        server.asked.clear()
        list(images.opener.read(range(0, 4)))
        list(images.opener.read(range(4, 8)))
        assert server.asked == {"/all.tar": 1}
        list(images.opener.read([2, 5]))
        assert server.asked == {"/all.tar": 2}


def test_what_goes_wrong_with_single_pictures_and_shards(everything):
    (everything / "list.csv").write_text("path\npics/cat/1 #.png\na.png\nb.png\nc.png\nd.png\n")
    status = {"b.png": 403, "c.png": 500, "d.png": 429, "s-1.tar": 403}
    with served(everything, status=status) as (url, server):
        images = open_images(f"{url}/list.csv")
        found = list(images.opener.read(range(5)))
        assert isinstance(found[0], bytes)
        assert [f.reason for f in found[1:]] == ["missing", "no-permission", "io-error", "io-error"]
        assert found[1].detail == "the server says 404: it has no such object"
        assert found[3].detail == "the server says 500"
        assert server.asked["/c.png"] == 3, "two further attempts"
        assert server.asked["/b.png"] == 1, "a refusal is final"
        (everything / "c.png").write_bytes(b"there")
        server.switches["times"] = 4
        assert list(images.opener.read([3])) == [b"there"], "the second attempt succeeds"
        images = open_images(f"{url}/wds/s-{{0..2}}.tar")
        assert len(images) == 3
        assert [(p.reason, p.locator) for p in images.problems] == [
            ("no-permission", f"{url}/wds/s-1.tar"),
            ("missing", f"{url}/wds/s-2.tar"),
        ]
    [gone] = open_images("http://127.0.0.1:9/a.png").opener.read([0])
    assert gone.reason == "io-error"
    assert "\n" not in gone.detail
    said = r"^archive http://127\.0\.0\.1:9/a\.tar cannot be read: \w+Error"
    refused(VisleakError, said, "http://127.0.0.1:9/a.tar")


def test_a_broken_connection_is_taken_up_where_it_broke(everything, blobs):
    with served(everything, breaks={"/all.tar": (9000, 2), "/all.zip": (100, 1)}) as (url, server):
        images = open_images(f"{url}/all.tar")
        assert list(images.opener.read(range(8))) == blobs
        assert list(open_images(f"{url}/all.zip").opener.read(range(8))) == blobs
        server.switches["breaks"] = {"/all.tar": (0, 1 << 30)}
        images = pickle.loads(pickle.dumps(images))
        [broken] = images.opener.read([0])
        assert broken.reason == "io-error"
        server.switches["breaks"] = {}
        assert list(images.opener.read([0])) == blobs[:1]


@pytest.mark.parametrize("ranges", [True, False])
def test_reading_beyond_the_end(everything, monkeypatch, ranges):
    monkeypatch.setattr(remote, "JUMP", 100)
    with served(everything, ranges=ranges) as (url, _), remote.RemoteFile(f"{url}/all.csv") as file:
        end = file.seek(0, 2)
        assert end == (everything / "all.csv").stat().st_size
        file.seek(end + 5000)
        assert file.read(1) == b""
        file.seek(0)
        assert file.read(4) == b"path"


def test_sources_that_cannot_be_had(everything):
    with served(everything) as (url, _):
        for kind, said in (
            ("no.tar", r"/no\.tar cannot be read.*: the server says 404"),
            ("no/", r"/no/ cannot be listed: the store has no such object$"),
            ("wds/", r"/wds/ holds no images \(no object below it that the server's page links"),
        ):
            refused(VisleakError, said, f"{url}/{kind}")
    refused(UsageError, r"'ftp://h/a\.tar': ftp:// is not read; known are https", "ftp://h/a.tar")
    refused(UsageError, r"#test chooses a split", "http://h/a.zip#test")


def test_secrets_are_shown_nowhere(everything, caplog):
    with served(everything, status={"s-1.tar": 403}) as (url, server):
        base = url.replace("//", f"//me:{SECRET}@")
        for kind in (*KINDS[:-1], "wds/s-{0..1}.tar"):
            images = open_images(f"{base}/{kind}?{SIGNED}")
            list(images.opener.read(range(len(images))))
            assert SECRET not in repr(images.ids.to_pylist() + images.locators.to_pylist())
            assert SECRET not in images.source + images.name + repr(images.problems)
        for kind in ("no.tar", "no.csv", "no.parquet", "no/", "no.txt", "no.zip"):
            assert SECRET not in refusal(VisleakError, open_images, f"{base}/{kind}?{SIGNED}")
        assert any(SECRET in path for path, _ in server.seen)
        assert {header[:6] for _, header in server.seen if header} == {"Basic "}
        for names, ids in (
            ("012", [f"{url}/{i}.png" for i in range(3)]),
            ("aaa", ["0", "1", "2"]),  # equal without the query: row numbers
        ):
            lines = "".join(f"{url}/{name}.png?{SIGNED}&n={i}\n" for i, name in enumerate(names))
            (everything / "signed.csv").write_text(f"path\n{lines}")
            images = open_images(f"{everything}/signed.csv?remote=yes")
            assert images.ids.to_pylist() == ids
            assert SECRET not in repr(images.locators.to_pylist())
            assert SECRET not in repr(list(images.opener.read(range(3))))
    for text in ("coco:https://me:{}@h/x", "nope:https://me:{}@h/x", "ftp://{}@h/"):
        assert SECRET not in refusal(UsageError, open_images, text.format(SECRET))
    assert SECRET not in caplog.text
    assert remote.redacted(f"x 's3://a:{SECRET}@b/c?{SIGNED}' y") == "x 's3://b/c' y"


def test_a_whole_audit_shows_no_secret(everything, capsys):
    """Neither its files, nor its log, nor what is printed; and it is used again."""

    def printed(code, *arguments):
        with pytest.raises(SystemExit) as ended:
            main(["audit", *map(str, arguments), "--train", f"{base}/all.tar?{SIGNED}"])
        assert ended.value.code == code
        return "".join(capsys.readouterr())

    out, log = everything / "out", everything / "audit.log"
    with served(everything) as (url, _):
        base = url.replace("//", f"//me:{SECRET}@")
        given = ("-o", out, "--log-file", log, "-v", "--cache", "off", "--workers", "1", "--test")
        first = printed(0, *given, f"{base}/wds/s-{{0..1}}.tar?{SIGNED}")
        again = printed(0, *given, f"{base}/wds/s-{{0..1}}.tar?{SIGNED}")
        failed = printed(1, "--test", f"{base}/no.tar?{SIGNED}")
    assert first.startswith("8 of 8 test images")
    assert "reused: " in again
    assert f"archive {url}/no.tar cannot be read: the server says 404" in failed
    written = [log, *(path for path in out.rglob("*") if path.is_file())]
    assert b"/all.tar" in log.read_bytes()
    assert not [path.name for path in written if SECRET.encode() in path.read_bytes()]
    assert SECRET not in first + again + failed


def test_a_table_here_names_addresses_only_where_that_is_allowed(everything, blobs):
    with served(everything) as (url, server):
        table = everything / "mixed.csv"
        table.write_text(
            f"path\npics/cat/1 #.png\n{url}/pics/cat/3%20%23.png\nfile:///etc/passwd\n"
        )
        said = (
            rf"^{table} names 2 files by address, the first at {url}; nothing is fetched unless"
            rf" you allow it: {table}\?remote=yes$"
        )
        refused(UsageError, said, table)
        shards = everything / "shards.txt"
        shards.write_text(f"wds/s-0.tar\n{url}/wds/s-1.tar\n")
        refused(UsageError, r"names 1 files by address, .*\?remote=yes$", shards)
        assert not server.asked
        images = open_images(f"{table}?remote=yes")
        found = list(images.opener.read(range(3)))
        assert found[:2] == [blobs[1], blobs[3]]
        assert (found[2].reason, found[2].detail) == ("unsupported", "file:// is not fetched")
        assert images.locators[0].as_py() == f"{everything}/pics/cat/1 #.png"
        images = open_images(f"{shards}?remote=yes")
        assert list(images.opener.read(range(8))) == blobs
        assert stamp_of(images) is not None
        refused(UsageError, r"\?remote= is not an option of a", f"{everything}/all.zip?remote=yes")


@pytest.mark.parametrize("place", ["file:///etc/passwd", "http://169.254.169.254/latest"])
def test_a_remote_table_names_its_own_host_only(everything, place):
    (everything / "evil.csv").write_text(f"path\npics/cat/1 #.png\n{place}\n")
    with served(everything) as (url, _):
        refused(UsageError, r"names an image on another host, .*; only those on", f"{url}/evil.csv")
        (everything / "evil.csv").write_text("path\n/etc/passwd\n../../../etc/passwd\n")
        found = list(open_images(f"{url}/evil.csv").opener.read([0, 1]))
        assert [f.reason for f in found] == ["missing", "missing"]


def test_what_is_not_installed(monkeypatch, tmp_path):
    (tmp_path / "a.csv").write_text("path\nhttp://h/a.png\n")
    remote.filesystem.cache_clear()
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    said = r"^a http:// source needs an extra: pip install 'visleak\[remote\]'$"
    for source in ("http://h/a.zip", "http://h/{0..1}.tar", "http://h/x/"):
        refused(MissingExtra, said, source)
    with pytest.raises(MissingExtra, match=said):
        list(open_images(f"{tmp_path}/a.csv?remote=yes").opener.read([0]))
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    refused(VisleakError, r"^a gs:// source needs gcsfs: pip install gcsfs$", "gs://bucket/pics")


def test_a_server_that_never_answers(monkeypatch):
    monkeypatch.setattr(remote, "READ_SECONDS", 0.1)
    remote.filesystem.cache_clear()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.png"
        [found] = open_images(url).opener.read([0])
    fsspec.filesystem("http").clear_instance_cache()
    remote.filesystem.cache_clear()
    assert found == Unreadable("io-error", "the store did not answer in time")


def test_an_object_without_end_is_not_read_to_the_end(everything, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 1000)
    for switches in ({}, {"lengths": False}):
        with served(everything, **switches) as (url, _):
            [found] = open_images(f"{url}/pics/cat/1%20%23.png").opener.read([0])
            assert found.reason == "too-large"


def test_whether_a_finished_audit_may_be_used_again(everything):
    with served(everything) as (url, server):
        for kind in ("all.tar", "all.zip", "all.parquet", "wds/s-{0..1}.tar"):
            first = stamp_of(open_images(f"{url}/{kind}"))
            assert first is not None
            assert first == stamp_of(open_images(f"{url}/{kind}"))
        write_shard(everything / "wds/s-1.tar", [(f"k{i}", {"png": b"x"}) for i in range(3, 8)])
        assert stamp_of(open_images(f"{url}/wds/s-{{0..1}}.tar")) != first
        assert stamp_of(open_images(f"{url}/pics")) is None
        server.switches["tags"] = False
        assert stamp_of(open_images(f"{url}/all.tar")) is None
    local = open_images(f"{everything}/wds/s-{{0..1}}.tar")
    before = stamp_of(local)
    write_shard(everything / "wds/s-0.tar", [("k0", {"png": b"y"})])
    assert stamp_of(local) != before


def test_an_object_that_changes_while_it_is_read(everything, blobs, monkeypatch):
    monkeypatch.setattr(remote, "JUMP", 100)
    with served(everything) as (url, _), remote.RemoteFile(f"{url}/all.tar") as file:
        file.read(10)
        write_shard(everything / "all.tar", [("other", {"png": blobs[0] * 9})])
        file.seek(5000)
        refused(remote.StoreError, r"^the object changed while it was read$", 10, file.read)


# botocore's deprecated calls and the sessions that s3fs leaves to the garbage collector
of_botocore = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:botocore", "ignore:unclosed:ResourceWarning"
)


class Buckets(Handler):
    """Serves the folders of a folder as buckets."""

    def content(self, path):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" not in query:
            return super().content(path)
        bucket = Path(self.translate_path(path))
        prefix = query.get("prefix", [""])[0]
        keys = {path.relative_to(bucket).as_posix(): path for path in sorted(bucket.rglob("*.*"))}
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>"
            f"<ETag>{hash(path.read_bytes())}</ETag>"
            "<LastModified>2022-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, path in keys.items()
            if key.startswith(prefix)
        ]
        text = (
            f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{len(rows)}</KeyCount>{''.join(rows)}</ListBucketResult>"
        )
        return text.encode()


@pytest.fixture
def bucket(monkeypatch, tmp_path, put):
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    names = [f"box/pics/{'cat' if i % 2 else 'dog'}/{i} #.png" for i in range(4)]
    blobs = [put(name, seed=i).read_bytes() for i, name in enumerate(names)]
    for shard in range(2):
        samples = [(f"k{i}", {"png": blobs[i]}) for i in (2 * shard, 2 * shard + 1)]
        write_shard(tmp_path / f"box/wds/s-{shard}.tar", samples)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    remote.filesystem.cache_clear()
    status = {"/private": 403, "private/a.tar": 403}
    with served(tmp_path, Buckets, status=status) as (endpoint, server):
        region = {"region_name": "us-east-1"}
        about = {"endpoint_url": endpoint, "key": "me", "secret": SECRET, "client_kwargs": region}
        monkeypatch.setitem(fsspec.config.conf, "s3", about)
        yield blobs, server
    remote.filesystem.cache_clear()


@of_botocore
def test_folders_and_shards_of_s3(bucket, tmp_path):
    blobs, server = bucket
    images = open_images("s3://box/pics")
    assert images.ids.to_pylist() == ["cat/1 #.png", "cat/3 #.png", "dog/0 #.png", "dog/2 #.png"]
    assert images.labels.to_pylist() == ["cat", "cat", "dog", "dog"]
    assert images.locators[0].as_py() == "s3://box/pics/cat/1 #.png"
    assert list(images.opener.read(range(4))) == [blobs[i] for i in (1, 3, 0, 2)]
    assert all("Credential=me/" in header for _, header in server.seen), "signed requests"
    first = stamp_of(images)
    assert first == stamp_of(open_images("s3://box/pics"))
    (tmp_path / "box/pics/cat/1 #.png").write_bytes(blobs[1] + b"x")
    assert stamp_of(open_images("s3://box/pics")) != first
    for pattern in ("s-{0..1}.tar", "*.tar", "s-{0..2}.tar"):
        images = open_images(f"s3://box/wds/{pattern}")
        assert list(images.opener.read(range(4))) == blobs
    [problem] = images.problems
    assert (problem.reason, problem.locator) == ("missing", "s3://box/wds/s-2.tar")


@of_botocore
def test_what_may_not_be_read_of_s3(bucket):
    said = "archive s3://private/a.tar cannot be read: access was refused; the store's own tools"
    message = refusal(VisleakError, open_images, "s3://private/a.tar")
    assert message.startswith(said)
    assert SECRET not in message
    refused(VisleakError, r"^s3://private/pics cannot be listed: access was", "s3://private/pics")
    [gone] = open_images("s3://box/pics/9.png").opener.read([0])
    assert (gone.reason, gone.detail) == ("missing", "the store has no such object")
