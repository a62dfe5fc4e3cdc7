"""The engine on a Ray cluster of two nodes here: the same bytes, whatever dies; nothing is left."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import partial

import numpy as np
import pytest
import working

from visleak.auditing import audit
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.pipeline.context import RunContext
from visleak.pipeline.ray_engine import RayEngine, RayExecutor
from visleak.settings import Settings
from visleak.storage import IMAGES, PAIRS, UNREADABLE
from visleak.storage.cache import file_in

PATIENCE = 60  # seconds after which what should have happened has not

pytestmark = [
    pytest.mark.slow,
    # Ray leaves the ends of its subprocesses and their logs to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one processor each."""
    pytest.importorskip("ray")
    with (
        pytest.MonkeyPatch.context() as patch,
        # of a short name: sockets lie in it
        tempfile.TemporaryDirectory(prefix="vl-", dir="/tmp", ignore_cleanup_errors=True) as folder,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_TMPDIR", folder)
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args=_node())
        nodes.add_node(**_node())
        yield nodes
        nodes.shutdown()


def _node():
    return {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000}


@pytest.fixture(scope="module")
def engine(cluster):
    return RayEngine(cluster.address)


@pytest.fixture(scope="module")
def place(engine, tmp_path_factory):
    with RunContext.at(tmp_path_factory.mktemp("scratch"), 2, None, engine=engine) as place:
        yield place


def files(folder):
    return {name: (folder / name).read_bytes() for name in (PAIRS, IMAGES, UNREADABLE)}


def until_two(tried):
    """Do tasks until two nodes or processes, the last in a result, had some: one may start late."""
    found, end = list(tried()), time.monotonic() + PATIENCE
    while len({result[-1] for result in found}) < 2 and time.monotonic() < end:
        found += tried()
    return found


def test_tasks_results_and_errors(place):
    working.check_tasks(place)


def test_an_array_is_shared_once_per_node_and_never_copied(place):
    """It is in memory that all workers of a node map read-only; workers use one thread."""
    handle = place.share({"matrix": np.ones((1000, 512), np.float32)})
    found = until_two(lambda: place.each(working.where_it_lies, [handle] * 30))
    assert len({node for *_, node in found}) == 2
    for mapping, writeable, threads, folder, _ in found:
        assert "/plasma" in mapping
        assert not writeable
        assert set(threads) == {1}
        assert folder == os.getcwd()


def test_the_task_of_a_killed_worker_is_repeated(place, tmp_path):
    tasks = working.deadly(tmp_path, 20, deaths=2)
    assert list(place.each(working.die_sometimes, tasks)) == [*range(0, 40, 2)]


def test_tasks_of_a_removed_node_are_done_on_the_others(cluster, place):
    """With the array that was shared, as soon as it works."""
    node = cluster.add_node(**_node())
    handle = place.share({"matrix": np.ones((1000, 512), np.float32)})
    given, found, end = [], [], time.monotonic() + PATIENCE

    def tasks():
        while node.node_id not in found and time.monotonic() < end:
            given.append(handle)
            yield handle
        yield from [handle] * 20

    for *_, worker in place.each(working.where_it_lies, tasks()):
        if worker == node.node_id and worker not in found:
            cluster.remove_node(node, allow_graceful=False)
        found.append(worker)
    assert node.node_id in found
    assert len(found) == len(given) + 20


def test_a_task_that_always_kills_its_worker_ends_in_one_line(place, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.pipeline.ray_engine.RETRIES", 1)
    said = r"^a task was tried 2 times and its workers died \(WorkerCrashedError: .*\(num_cpus\)$"
    with pytest.raises(VisleakError, match=said):
        list(place.each(working.die_sometimes, working.deadly(tmp_path, 4, deaths=2)))
    said = r"^Stubborn cannot be sent to the workers of a cluster \(.* local with workers=1$"
    with pytest.raises(VisleakError, match=said):
        place.share(working.Stubborn([]))


def test_networks_go_where_gpus_are_and_stay_loaded(cluster, place):
    """Ray counts GPUs without looking: the node says that it has one, which processors share."""
    each, asked = place.executor.each, working.gpu_and_process
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


def test_an_audit_of_images_is_the_same(engine, place, natural, tmp_path, monkeypatch):
    """Every fifth test image is a mirrored training image."""
    monkeypatch.setattr("visleak.pipeline.remote.PART", 40)
    found = working.crops(natural, 110, 96)
    train, test = found[:90], found[90:]
    test[::5] = [np.ascontiguousarray(picture[:, ::-1]) for picture in train[:20:5]]
    here = audit(test, train, out=tmp_path / "here", cache=None, workers=1)
    assert set(here.pairs()["grade"].to_pylist()) >= {"near", "different"}
    audit(test, train, out=tmp_path / "there", cache=tmp_path / "cache", engine=engine)
    assert files(tmp_path / "there") == files(tmp_path / "here")
    # and from the cache, which the workers ask for through an actor
    before = file_in(tmp_path / "cache").read_bytes()
    audit(test, train, out=tmp_path / "again", cache=tmp_path / "cache", engine=engine)
    assert files(tmp_path / "again") == files(tmp_path / "here")
    assert file_in(tmp_path / "cache").read_bytes() == before


def kept(cache):
    """Return how many partitions' findings a cache holds."""
    count = "SELECT count(*) FROM entries WHERE CAST(maker AS TEXT) LIKE 'partition hits%'"
    try:
        with sqlite3.connect(f"file:{file_in(cache)}?mode=ro", uri=True, timeout=10) as db:
            return int(db.execute(count).fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_an_audit_of_a_killed_driver_is_resumed(cluster, place, engine, tmp_path, monkeypatch):
    """The cluster outlives it; partitions that were done are not searched again."""
    rng = np.random.default_rng(1)
    (tmp_path / "train").mkdir()
    queries = rng.standard_normal((400, 64)).astype(np.float16)
    np.save(tmp_path / "test.npy", queries)
    for number in range(24):
        part = rng.standard_normal((20_000, 64)).astype(np.float16)
        part[::97] = queries[rng.integers(0, 400, len(part[::97]))]
        part[5] = np.nan
        np.save(tmp_path / "train" / f"img_emb_{number}.npy", part)
    sources = [f"emb:{tmp_path / name}?encoder=other:x" for name in ("test.npy", "train")]
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
    tasks, plain = [], RayExecutor.each

    def each(self, function, given, **options):
        # as many as are handed to the cluster
        return plain(self, function, (tasks.append(task) or task for task in given), **options)

    monkeypatch.setattr(RayExecutor, "each", each)
    sets = [open_images(source, name=name) for source, name in zip(sources, "qr", strict=True)]
    again = partial(audit, *sets, settings=Settings(encoder="other:x", hard=0.98, soft=0.9))
    again(out=out, cache=cache, engine=engine)
    assert len(tasks) == 24 - done
    again(out=tmp_path / "here", cache=None, workers=1)
    assert files(out) == files(tmp_path / "here")
    # the engine is not part of the key of an audit, and the hits serve the other engine as well
    assert again(out=out, cache=None, workers=1).reused
    monkeypatch.setattr("visleak.search.streaming.PartitionSearch.find", None)
    again(out=tmp_path / "third", cache=cache, workers=1)
    assert files(tmp_path / "third") == files(tmp_path / "here")
