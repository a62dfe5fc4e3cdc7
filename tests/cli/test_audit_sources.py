"""The same images from whatever source make the same audit."""

import functools
import http.server
import tarfile
import threading

import pytest
from calling import refused, run

from visleak.auditing import Audit

#: What must not depend on where images lie.
COLUMNS = ["query", "reference", "similarity", "background", "view", "grade", "probability"]
SECRET = "hunter2"


@pytest.fixture(scope="module")
def shards(dataset, tmp_path_factory):
    """The data set as WebDataset shards, three images each."""
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


def test_a_web_server(address, tmp_path, wanted):
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


def test_the_same_files_on_both_sides_are_named(dataset, tmp_path):
    whole, part = dataset / "train", dataset / "train" / "thing"
    ran = run("audit", "--test", part, "--train", whole, "-o", tmp_path / "out", "--workers", 1)
    assert ran.code == 0
    assert "visleak: 6 of 6 images of test are the very files of images of train" in ran.err
    ran = run("audit", "--set", part, "-o", tmp_path / "own", "--workers", 1)
    assert "the very files" not in ran.err
