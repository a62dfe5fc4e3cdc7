"""The same pictures from whatever source make the same audit."""

from __future__ import annotations

import functools
import http.server
import tarfile
import threading
from pathlib import Path

import pytest
from calling import refused, run

from visleak.auditing import Audit, audit
from visleak.formats import open_images
from visleak.settings import Settings

#: What must not depend on where pictures lie.
COLUMNS = ["query", "reference", "similarity", "background", "view", "grade", "probability"]
SECRET = "hunter2"


@pytest.fixture(scope="module")
def shards(dataset, tmp_path_factory) -> Path:
    """The data set as WebDataset shards, three pictures each."""
    root = tmp_path_factory.mktemp("shards")
    for side in ("train", "test"):
        files = sorted((dataset / side / "thing").iterdir())
        for start in range(0, len(files), 3):
            with tarfile.open(root / f"{side}-{start // 3:03d}.tar", "w") as archive:
                for file in files[start : start + 3]:
                    archive.add(file, f"thing/{file.name}")
    return root


def pairs(folder, rename=str):
    rows = Audit(folder).pairs().select(COLUMNS).to_pylist()
    for row in rows:
        row["query"], row["reference"] = rename(row["query"]), rename(row["reference"])
    return sorted(rows, key=lambda row: (row["query"], row["reference"]))


def key(name):
    return name.partition(".")[0]


@pytest.fixture(scope="module")
def wanted(audited):
    return pairs(audited, key)


@pytest.fixture
def address(shards):
    """The shards on a web server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(shards))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_shards(shards, tmp_path, wanted, monkeypatch):
    monkeypatch.chdir(shards)
    sides = ("--test", "test-{000..002}.tar", "--train", "train-*.tar")
    ran = run("audit", *sides, "-o", tmp_path / "a")
    assert ran.code == 0, ran.err
    assert pairs(tmp_path / "a") == wanted
    unreadable = {problem.id for problem in Audit(tmp_path / "a").unreadable()}
    assert unreadable == {"thing/text"}
    assert "reused: " in run("audit", *sides, "-o", tmp_path / "a").err
    monkeypatch.chdir(tmp_path)
    assert run("show", "a", wanted[0]["query"], "-o", "card.png").code == 0


def test_shards_in_two_processes(shards, tmp_path, wanted):
    """Each worker has a stream of its own, and skips what others do."""
    ran = run(
        *("audit", "--test", f"{shards}/test-*.tar", "--train", f"{shards}/train-*.tar"),
        *("-o", tmp_path / "a", "--workers", 2, "--cache", "off"),
    )
    assert ran.code == 0, ran.err
    assert pairs(tmp_path / "a") == wanted


def test_a_web_server(address, tmp_path, wanted):
    """Also: password and signature are in nothing that is written or printed."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    base = f"http://me:{SECRET}@{address}"
    sides = (
        *("--test", f"{base}/test-{{000..002}}.tar?sig={SECRET}"),
        *("--train", f"{base}/train-{{000..001}}.tar?sig={SECRET}"),
    )
    ran = run("audit", *sides, "-o", tmp_path / "a")
    assert ran.code == 0, ran.err
    assert pairs(tmp_path / "a") == wanted
    written = b"".join(p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert SECRET.encode() not in written
    assert SECRET not in ran.out + ran.err
    assert "reused: " in run("audit", *sides, "-o", tmp_path / "a").err
    code, said = refused("audit", "--test", f"{base}/a.tar?sig={SECRET}", "--train", f"{base}/b")
    assert code == 1
    assert said.startswith(f"archive http://{address}/a.tar cannot be read: the server says 404")


class Files:
    """As torchvision.datasets.ImageFolder."""

    classes = ("thing",)

    def __init__(self, root):
        self.root = root
        self.samples = [(str(file), 0) for file in sorted((root / "thing").iterdir())]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, row):
        raise AssertionError("the files are read, not the items")


def test_objects_of_a_program(dataset, tmp_path, wanted):
    """A stream on one side, a torchvision-style data set on the other."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    files = sorted((dataset / "train" / "thing").iterdir())

    def rows():
        for file in files:
            yield {"image": {"bytes": file.read_bytes(), "path": None}}

    features = datasets.Features({"image": datasets.Image()})
    stream = datasets.IterableDataset.from_generator(rows, features=features)
    settings = Settings(within=False)
    result = audit(
        Files(dataset / "test"), stream, settings=settings, out=tmp_path / "a", cache=None
    )
    found = result.pairs().select(COLUMNS).to_pylist()
    for row in found:
        row["query"] = key(row["query"])
        row["reference"] = key(f"thing/{files[int(row['reference'])].name}")
    names = {key(f"thing/{file.name}") for file in files}
    across = [row for row in wanted if row["reference"] in names]
    assert sorted(found, key=lambda row: (row["query"], row["reference"])) == across
    assert len(result.decoded_images("train", ["2"])) == 1


def test_a_hub_data_set_on_disk(dataset, tmp_path, wanted):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    names = {}
    for side in ("test", "train"):
        files = sorted((dataset / side / "thing").iterdir())
        names[side] = [key(f"thing/{file.name}") for file in files]
        rows = {"image": [{"bytes": file.read_bytes(), "path": None} for file in files]}
        features = datasets.Features({"image": datasets.Image()})
        datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / side)
    sides = ("--test", f"hf:{tmp_path}/test", "--train", f"hf:{tmp_path}/train")
    ran = run("audit", *sides, "-o", tmp_path / "a", "--skip-within")
    assert ran.code == 0, ran.err
    found = Audit(tmp_path / "a").pairs().select(COLUMNS).to_pylist()
    for row in found:
        row["query"] = names["test"][int(row["query"])]
        row["reference"] = names["train"][int(row["reference"])]
    across = [row for row in wanted if row["reference"] in names["train"]]
    assert sorted(found, key=lambda row: (row["query"], row["reference"])) == across
    assert "reused: " in run("audit", *sides, "-o", tmp_path / "a", "--skip-within").err
    assert len(open_images(f"hf:{tmp_path}/test")) == len(names["test"])
