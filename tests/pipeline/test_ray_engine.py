"""The engine on a Ray cluster: the same bytes, whatever dies; nothing of it is left behind.

The cluster is two nodes on this machine: two stores of objects, two sets of workers, one disk.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cluster_working
import numpy as np
import pytest
import working

from visleak.auditing import audit
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.pipeline.context import RunContext
from visleak.pipeline.ray_engine import RayEngine
from visleak.pipeline.streaming import streamed
from visleak.search.hits import Wanted
from visleak.settings import Settings
from visleak.storage import IMAGES, PAIRS, UNREADABLE
from visleak.storage.cache import file_in
from visleak.vectors import unit_rows

HERE = str(Path(__file__).parent)

PATIENCE = 60  # seconds after which what should have happened has not

pytestmark = [
    pytest.mark.slow,
    # Ray leaves the ends of its subprocesses and their logs to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one processor each."""
    pytest.importorskip("ray")
    with (
        pytest.MonkeyPatch.context() as patch,
        # of a short name: sockets lie in it
        tempfile.TemporaryDirectory(prefix="vl-", dir="/tmp", ignore_cleanup_errors=True) as folder,
    ):
        patch.setenv("PYTHONPATH", HERE)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_TMPDIR", folder)
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args=_node())
        nodes.add_node(**_node())
        yield nodes
        nodes.shutdown()


def _node() -> dict[str, Any]:
    return {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000}


@pytest.fixture(scope="module")
def engine(cluster) -> RayEngine:
    return RayEngine(cluster.address)


@pytest.fixture(scope="module")
def place(engine, tmp_path_factory) -> Iterator[RunContext]:
    with RunContext.at(tmp_path_factory.mktemp("scratch"), 2, None, engine=engine) as place:
        yield place


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (PAIRS, IMAGES, UNREADABLE)}


def until_two(tried: Callable[[], Iterable[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Do tasks until two nodes or processes, the last in a result, had some: one may start late."""
    found, end = list(tried()), time.monotonic() + PATIENCE
    while len({result[-1] for result in found}) < 2 and time.monotonic() < end:
        found += tried()
    return found


# -- tasks ---------------------------------------------------------------------------------------


def test_results_come_in_order_and_tasks_as_they_are_needed(place):
    taken = []

    def tasks():
        for number in range(500):
            taken.append(number)
            yield number

    assert list(place.each(working.slow_first, range(30))) == list(range(30))
    assert list(place.each(working.double, [])) == []
    results = place.each(working.double, tasks())
    assert next(results) == 0
    assert len(taken) < 10
    results.close()


def test_an_array_is_shared_once_per_node_and_never_copied(place):
    """It is in memory that all workers of a node map read-only."""
    handle = place.share({"matrix": np.ones((1000, 512), np.float32)})
    found = until_two(lambda: place.each(cluster_working.where_it_lies, [handle] * 30))
    assert len({node for _, _, node in found}) == 2
    assert all("/plasma" in mapping and not writeable for mapping, writeable, _ in found)


def test_workers_use_one_thread_in_the_folder_of_the_run(place):
    for threads, folder in place.each(cluster_working.threads_and_folder, range(4)):
        assert set(threads) == {1}
        assert folder == os.getcwd()


@pytest.mark.parametrize(*working.FAILURES)
def test_an_error_of_a_task_is_raised_unchanged(place, function, kind, said):
    with pytest.raises(kind) as caught:
        list(place.each(function, range(5)))
    assert str(caught.value) == said
    assert type(caught.value) is kind
    assert list(place.each(working.double, [4])) == [8]


def test_the_task_of_a_killed_worker_is_repeated(place, tmp_path):
    tasks = [(number, str(tmp_path)) for number in range(20)]
    assert list(place.each(cluster_working.die_once, tasks)) == list(range(20))
    assert (tmp_path / "killed").read_text().isdecimal()


def test_a_task_that_always_kills_its_worker_ends_in_one_line(place, monkeypatch):
    monkeypatch.setattr("visleak.pipeline.ray_engine.RETRIES", 1)
    said = r"^a task was tried 2 times and its workers died \(WorkerCrashedError: .*\(num_cpus\)$"
    with pytest.raises(VisleakError, match=said):
        list(place.each(cluster_working.die_always, [1]))


def test_networks_go_where_gpus_are_and_stay_loaded(cluster, place):
    """Processors of a node share its GPUs; a worker keeps its network from task to task.

    Ray counts GPUs without looking: the node says that it has one.
    """
    each, asked = place.executor.each, cluster_working.gpu_and_process
    assert list(each(working.double, [1], network=True)) == [2], "no GPU, no network?"
    node = cluster.add_node(**{**_node(), "num_cpus": 2}, num_gpus=1)
    try:
        found = until_two(lambda: each(asked, range(40), network=True))
        plain = list(each(asked, range(4)))
    finally:
        cluster.remove_node(node)
    assert {devices for devices, _ in found} == {"0"}
    assert len({process for _, process in found}) == 2
    assert {devices for devices, _ in plain} == {""}


def test_a_value_that_cannot_be_sent_is_refused_in_one_line(place):
    said = r"^Stubborn cannot be sent to the workers of a cluster \(.* local with workers=1$"
    with pytest.raises(VisleakError, match=said):
        place.share(working.Stubborn([]))


# -- images ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures(natural) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Training and test images; every fifth test image is a mirrored training image."""
    found = working.crops(natural, 110, 96)
    train, test = found[:90], found[90:]
    test[::5] = [np.ascontiguousarray(picture[:, ::-1]) for picture in train[:20:5]]
    return train, test


def test_an_audit_of_images_is_the_same(engine, place, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.pipeline.remote.PART", 40)
    train, test = pictures
    here = audit(test, train, out=tmp_path / "here", cache=None, workers=1)
    assert set(here.pairs()["grade"].to_pylist()) >= {"near", "different"}
    audit(test, train, out=tmp_path / "there", cache=tmp_path / "cache", engine=engine)
    assert files(tmp_path / "there") == files(tmp_path / "here")
    # and from the cache, which the workers ask for through an actor
    before = file_in(tmp_path / "cache").read_bytes()
    audit(test, train, out=tmp_path / "again", cache=tmp_path / "cache", engine=engine)
    assert files(tmp_path / "again") == files(tmp_path / "here")
    assert file_in(tmp_path / "cache").read_bytes() == before


# -- embeddings ----------------------------------------------------------------------------------


def write_shards(folder: Path, shards: int, rows: int) -> tuple[str, str]:
    """Write a test file, and training shards that hold some of its vectors; return SOURCEs."""
    rng = np.random.default_rng(1)

    def vectors(count: int) -> np.ndarray:
        return unit_rows(rng.standard_normal((count, 64))).matrix.astype(np.float16)

    (folder / "train").mkdir()
    queries = vectors(400)
    np.save(folder / "test.npy", queries)
    for number in range(shards):
        part = vectors(rows)
        part[::97] = queries[rng.integers(0, 400, len(part[::97]))]
        part[5] = np.nan
        np.save(folder / "train" / f"img_emb_{number}.npy", part)
    return f"emb:{folder / 'test.npy'}?encoder=other:x", f"emb:{folder / 'train'}?encoder=other:x"


SETTINGS = Settings(encoder="other:x", hard=0.98, soft=0.9)


def test_a_node_is_removed_while_partitions_pass(cluster, place, tmp_path):
    """Its tasks are done on the nodes that are left; every partition counts once."""
    parts = [cluster_working.SlowPartition(f"p{n}", 400, n, str(tmp_path)) for n in range(24)]
    rng = np.random.default_rng(9)
    query = unit_rows(rng.standard_normal((50, 16))).matrix
    wanted = Wanted(0.7, best=3)
    with RunContext.at(tmp_path, 1, None) as alone:
        expected = streamed(query, [*parts], wanted, alone)
    node = cluster.add_node(**_node())
    removed = threading.Thread(target=_remove_when_busy, args=(cluster, node, tmp_path))
    removed.start()
    found = streamed(query, [*parts], wanted, place)
    removed.join(PATIENCE)
    assert not removed.is_alive()
    assert not [name for name in cluster.worker_nodes if name is node]
    for column in ("query", "partition", "row", "similarity", "total"):
        assert np.array_equal(getattr(found, column), getattr(expected, column)), column
    assert found.id == expected.id
    assert found.rows == 24 * 400


def _remove_when_busy(cluster: Any, node: Any, notes: Path) -> None:
    """Remove a node as soon as it works on a partition."""
    end = time.monotonic() + PATIENCE
    while not list(notes.glob(f"{node.node_id} *")) and time.monotonic() < end:
        time.sleep(0.005)
    cluster.remove_node(node, allow_graceful=False)


def kept(cache: Path) -> int:
    """Return how many partitions' findings a cache holds."""
    count = "SELECT count(*) FROM entries WHERE CAST(maker AS TEXT) LIKE 'partition hits%'"
    try:
        with sqlite3.connect(f"file:{file_in(cache)}?mode=ro", uri=True, timeout=10) as db:
            return int(db.execute(count).fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_an_audit_of_a_killed_driver_is_resumed(cluster, place, engine, tmp_path, monkeypatch):
    """The cluster outlives it; partitions that were done are not searched again."""
    sources = write_shards(tmp_path, 24, 20_000)
    cache, out = tmp_path / "cache", tmp_path / "out"
    command = [
        sys.executable, "-m", "visleak", "audit", "--test", f"q={sources[0]}", "--train",
        f"r={sources[1]}", "--hard", "0.98", "--soft", "0.9", "-o", str(out), "--cache",
        str(cache), "--ray-address", cluster.address,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + PATIENCE
    while kept(cache) < 3 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = kept(cache)
    assert 3 <= done < 24
    tasks = _counted(monkeypatch)
    test, train = (open_images(source, name=n) for source, n in zip(sources, "qr", strict=True))
    audit(test, train, settings=SETTINGS, out=out, cache=cache, engine=engine)
    assert len(tasks) == 24 - done
    audit(test, train, settings=SETTINGS, out=tmp_path / "here", cache=None, workers=1)
    assert files(out) == files(tmp_path / "here")
    # the engine is not part of the key of an audit, and the hits serve the other engine as well
    assert audit(test, train, settings=SETTINGS, out=out, cache=None, workers=1).reused
    monkeypatch.setattr("visleak.search.streaming.PartitionSearch.find", None)
    audit(test, train, settings=SETTINGS, out=tmp_path / "third", cache=cache, workers=1)
    assert files(tmp_path / "third") == files(tmp_path / "here")


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows with each task that is handed to the cluster."""
    from visleak.pipeline.ray_engine import RayExecutor

    tasks: list[object] = []
    plain = RayExecutor.each

    def each(self, function, given, **options):
        def noted():
            for task in given:
                tasks.append(task)
                yield task

        return plain(self, function, noted(), **options)

    monkeypatch.setattr(RayExecutor, "each", each)
    return tasks
