"""One index a partition: kept on disk, loaded later, never trusted where it does not fit."""

import numpy as np
import pytest
from engines import part

from toy_vectors import units
from visleak.search import faiss_search, load_partition_search
from visleak.search.faiss_partitions import FaissPartitions
from visleak.search.hits import Wanted
from visleak.search.streaming import stream

WANTED = Wanted(0.9, best=2)


@pytest.fixture
def sets():
    """Return queries, and three partitions that hold a near copy of each."""
    rng = np.random.default_rng(0)
    reference = units(rng, 1500, 24)
    query = reference[::25] + rng.normal(0, 0.02, (60, 24)) / np.sqrt(24)
    query = (query / np.linalg.norm(query, axis=1, keepdims=True)).astype(np.float32)
    stored = reference.astype(np.float16)
    stored[7], stored[600] = np.nan, 0
    cuts = np.split(np.arange(1500), 3)
    return query, [part(stored[cut], cut, f"p{number}") for number, cut in enumerate(cuts)]


def answer(found):
    columns = found.query.tolist(), found.id.to_pylist(), found.similarity.tolist()
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf", "ivfpq"])
def test_indexes_are_built_once(sets, tmp_path, monkeypatch, kind):
    query, parts = sets
    exact = stream(query, parts, WANTED)
    first = stream(query, parts, WANTED, run=FaissPartitions(tmp_path, kind=kind))
    assert len(list(tmp_path.glob("*.faiss"))) == 3
    assert not list(tmp_path.glob(".*.part"))
    monkeypatch.setattr(faiss_search, "build", None)
    engine = FaissPartitions(tmp_path, kind=kind)
    second = stream(query, parts, WANTED, run=engine)
    assert answer(second) == answer(first)
    assert (first.broken.tolist(), first.off) == (exact.broken.tolist(), exact.off)
    planted, met = ({q for q, _, s in answer(f) if s >= 0.9} for f in (exact, first))
    assert len(planted) >= 58
    assert len(met & planted) >= 0.97 * len(planted)
    if kind == "flat":
        assert answer(first) == answer(exact)
    assert engine.account.exact == (kind == "flat")
    assert engine.account.recall.pairs.share >= 0.95


@pytest.mark.parametrize(
    "damage",
    [
        lambda index, about: index.write_bytes(index.read_bytes()[:-100]),
        lambda index, about: index.write_bytes(bytes(index.stat().st_size)),
        lambda index, about: about.write_text("{"),
        lambda index, about: index.unlink(),
    ],
)
def test_a_damaged_index_is_built_again(sets, tmp_path, damage):
    query, parts = sets
    first = stream(query, parts, WANTED, run=FaissPartitions(tmp_path, kind="ivf"))
    damage(min(tmp_path.glob("*.faiss")), min(tmp_path.glob("*.json")))
    again = stream(query, parts, WANTED, run=FaissPartitions(tmp_path, kind="ivf"))
    assert answer(again) == answer(first)


def test_a_changed_file_has_an_index_of_its_own(sets, tmp_path):
    query, parts = sets
    stream(query, parts[:1], WANTED, run=FaissPartitions(tmp_path))
    changed = part(parts[1].stored, np.arange(500), "p0-changed")
    found = stream(query, [changed], WANTED, run=FaissPartitions(tmp_path))
    assert answer(found) == answer(stream(query, [changed], WANTED))
    assert len(list(tmp_path.glob("*.faiss"))) == 2


def test_recall_is_measured_on_some_partitions(sets):
    query, parts = sets
    assert isinstance(load_partition_search("faiss", None, 1), FaissPartitions)
    engine = FaissPartitions(kind="ivf", measured=2)
    stream(query, parts, WANTED, run=engine)
    account = engine.account
    assert account.recall.best.total == 2 * 2 * 30
    assert (account.parameters["partitions"], account.parameters["measured"]) == (3, 2)
    assert account.recall.queries == 30  # half of the queries were tuned on
    assert "in 2 of 3 partitions" in str(account)
