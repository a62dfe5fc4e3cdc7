"""Screens may let too much through but never lose a pair; blocks report invalid rows."""

import sys

import numpy as np
import pytest

from toy_vectors import Shard, units
from visleak.devices import torch_device
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.search.hits import Wanted
from visleak.search.streaming import PartitionSearch
from visleak.search.streaming_screen import (
    DeviceScreen,
    Part,
    ProductScreen,
    choose,
    half_error,
    read_block,
    whole,
    widen,
)
from visleak.vectors import forget, unit_rows

WIDTH = 64


def test_every_half_float_is_widened_as_numpy_does():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    out = np.empty(every.shape, np.float32)
    widen(every, out)
    finite = np.isfinite(every)
    assert out[finite].tobytes() == every[finite].astype(np.float32).tobytes()
    assert (np.abs(out[~finite]) >= 65536).all()


@pytest.mark.parametrize("kind", [">f2", ">f4", "<f8", "f2", "i1"])
def test_any_stored_type_and_layout_is_widened(kind):
    rows = np.random.default_rng(0).normal(size=(5, 7)) * 10
    for stored in (rows.astype(kind), np.asfortranarray(rows.astype(kind)), rows.astype(kind)[::2]):
        out = np.empty(stored.shape, np.float32)
        widen(stored, out)
        np.testing.assert_array_equal(out, stored.astype(np.float32))


def test_half_floats_are_widened_where_subnormals_are_switched_off():
    """Some libraries make a thread treat tiny numbers as zero, and would spoil whole vectors."""
    torch = pytest.importorskip("torch")
    every = np.arange(2**10, dtype=np.uint16).view(np.float16).reshape(1, -1)
    out = np.empty(every.shape, np.float32)
    expected = every.astype(np.float32)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot switch subnormals off")
    try:
        widen(every, out)
    finally:
        torch.set_flush_denormal(False)
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_a_block_agrees_with_unit_rows(kind):
    rng = np.random.default_rng(1)
    lengths = np.array([1, 0, 1e-4, 0.5, 0.98999, 0.99, 0.99001, 1.00999, 1.01, 1.01001, 2, 900.0])
    if kind != "float16":
        lengths = np.concatenate([lengths, [1e-30, 1e5, 1e18, 1e30]])
    if kind == "float64":
        lengths = np.concatenate([lengths, [1e-200, 1e100, 1e160]])
    stored = (units(rng, len(lengths), WIDTH).astype(np.float64) * lengths[:, None]).astype(kind)
    stored = np.concatenate([stored, stored[:3]])
    stored[-3, 5], stored[-2, 6], stored[-1, 7] = np.nan, np.inf, -np.inf
    expected = unit_rows(stored)
    out = np.empty(stored.shape, np.float32)
    judged = read_block(stored, out)
    np.testing.assert_allclose(out * judged.scale[:, None], expected.matrix, atol=2e-7)
    np.testing.assert_array_equal(judged.broken, np.flatnonzero(expected.broken))
    assert judged.off == expected.off.sum()


def test_memory_without_a_file_is_kept(tmp_path):
    """A mapping that takes changes in memory would lose them."""
    np.save(tmp_path / "rows.npy", np.ones((2000, WIDTH), np.float32))
    stored = np.load(tmp_path / "rows.npy", mmap_mode="c")
    stored[:] = 2
    forget(stored[5:])
    forget(np.full(3, 2.0))
    assert (stored == 2).all()


def hard_case(seed, width=WIDTH):
    """Return queries, stored half floats and floors that pairs reach by a hair or miss by one."""
    rng = np.random.default_rng(seed)
    query = units(rng, 40, width)
    stored = units(rng, 300, width)
    stored[:40] = query
    stored[40:80] = query + 0.02 * units(rng, 40, width)
    stored *= rng.choice([0.3, 1.0, 3.0], len(stored))[:, None].astype(np.float32)
    stored = stored.astype(np.float16)
    stored[7], stored[8, 3] = 0, np.nan
    exact = query.astype(np.float64) @ unit_rows(stored).matrix.astype(np.float64).T
    # each query's floor is the similarity of one of its pairs, to the last bit
    floor = np.sort(exact.astype(np.float32), axis=1)[np.arange(40), rng.integers(0, 300, 40)]
    return query, stored, floor, exact.astype(np.float32)


def axes_of(width, kept, skew):
    """Return axes that are orthonormal but for ``skew``."""
    rng = np.random.default_rng(9)
    axes = np.linalg.qr(rng.normal(size=(width, kept)))[0]
    return (axes + skew * rng.normal(size=axes.shape) / width).astype(np.float32)


PARTS = [
    whole(WIDTH),
    Part(0, 1),
    Part(13, 29),
    Part(0, WIDTH - 1),
    Part(0, 16, axes_of(WIDTH, 16, 0)),
    Part(0, WIDTH, axes_of(WIDTH, WIDTH, 0)),
    Part(0, 16, axes_of(WIDTH, 16, 1e-2)),
]


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_no_screen_loses_a_pair_that_reaches_its_floor(part, seed):
    query, stored, floor, exact = hard_case(seed)
    seen = ProductScreen(query, part).select(stored, floor)
    assert_nothing_lost(seen, floor, exact)
    # and nothing far below comes through the comparison in full
    assert (exact[seen.query, seen.row] >= floor[seen.query] - 1e-4).all()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("seed", range(3))
def test_half_precision_loses_nothing_either(precision, seed):
    pytest.importorskip("torch")
    query, stored, floor, exact = hard_case(seed)
    seen = DeviceScreen(query, "cpu", precision).select(stored, floor)
    assert_nothing_lost(seen, floor, exact)
    slack = 2 * half_error(WIDTH, precision) + 1e-4
    assert (exact[seen.query, seen.row] >= floor[seen.query] - slack).all()


def assert_nothing_lost(seen, floor, exact):
    found = np.zeros(exact.shape, bool)
    np.add.at(found, (seen.query, seen.row), 1)
    assert len(seen.query) == found.sum(), "a pair twice"
    wanted = exact >= floor[:, None]
    wanted[:, [7, 8]] = False
    assert wanted.sum() > 100
    assert not (wanted & ~found).any()
    assert seen.broken.tolist() == [7, 8]
    assert not found[:, [7, 8]].any()


def test_half_error_covers_the_worst_rounding_seen():
    """Vectors made so that every coordinate is rounded the same way, by nearly all it can be."""
    torch = pytest.importorskip("torch")
    for precision, kind, digits in (("fp16", torch.float16, 11), ("bf16", torch.bfloat16, 8)):
        for width in (64, 512):
            value = np.float32(2.0 ** -np.floor(np.log2(width) / 2) * 2**-1)
            row = np.full(width, value * (1 + 2.0**-digits * 0.999), np.float32)
            row /= np.linalg.norm(row).astype(np.float32)
            rounded = torch.tensor(row).to(kind)
            error = abs(float((rounded[None] @ rounded[:, None]).item()) - 1.0)
            assert error <= half_error(width, precision)


def test_no_part_is_tried_where_it_cannot_pay():
    query = units(np.random.default_rng(7), 40, 32)
    nothing = np.full((2000, 32), np.nan, np.float16)
    for stored, rows in ((nothing, 10**6), (np.tile(query, (9, 1)), 10)):
        assert choose(query, stored, Wanted(-1.0, best=0), rows) == whole(32)


def test_unknown_devices_are_refused_in_one_line(monkeypatch):
    """A typing error must not end in a search on another device."""
    assert torch_device("cpu") is None
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert torch_device("auto") is None
    with pytest.raises(UsageError, match=r"device cuda:1 is not there: torch .* sees 0 GPUs; take"):
        torch_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_device("auto") == "cuda:0"
    assert torch_device("cuda:1") == "cuda:1"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_device("auto") is None
    with pytest.raises(MissingExtra, match=r"a search on cuda needs an extra: pip install"):
        torch_device("cuda")


def test_a_full_gpu_is_refused_in_one_line(monkeypatch):
    torch = pytest.importorskip("torch")

    def full(self, rows, floor):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    query, stored, floor, _ = hard_case(1)
    monkeypatch.setattr(DeviceScreen, "reaching", full)
    with pytest.raises(VisleakError, match=r"^cpu has too little free memory to search on; use"):
        DeviceScreen(query, "cpu").select(stored, floor)


def test_a_search_that_fails_stops_its_other_threads(monkeypatch):
    """An interrupted search must not read on for minutes."""
    query = units(np.random.default_rng(0), 3, WIDTH)
    done = []

    class Failing:
        block = 10

        def select(self, stored, floor):
            done.append(len(stored))
            raise RuntimeError("broken disk")

    shard = Shard(np.zeros((10_000, WIDTH), np.float16), np.empty(0, str))
    monkeypatch.setattr(PartitionSearch, "_screen", lambda self, stored: Failing())
    with pytest.raises(RuntimeError, match="broken disk"):
        PartitionSearch(query, Wanted(0.9, best=0)).find(shard, workers=2)
    assert len(done) <= 2
