"""Screens may let too much through but never lose a pair; blocks report invalid rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from toy_vectors import Shard, units
from visleak.devices import torch_device
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.search import streaming, streaming_screen
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


def test_only_lengths_close_to_the_tolerance_are_computed_exactly(monkeypatch):
    """The rough length of a million rows must not cost an exact one each."""
    taken = []

    def watched(stored):
        taken.append(len(stored))
        return unit_rows(stored)

    monkeypatch.setattr(streaming_screen, "unit_rows", watched)
    lengths = np.array([0.5, 0.9, 0.99, 0.999, 1.0, 1.009, 1.01, 1.02, 5.0], np.float32)
    stored = units(np.random.default_rng(2), len(lengths), WIDTH) * lengths[:, None]
    read_block(stored, np.empty(stored.shape, np.float32))
    assert sum(taken) == 2


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_memory_of_a_mapped_file_is_given_back_and_read_again(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, units(np.random.default_rng(3), 5000, WIDTH))

    def resident() -> int:
        lines = Path("/proc/self/smaps").read_text().split(str(path))[1].splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("Rss:")))

    stored = np.load(path, mmap_mode="r")
    total = stored.sum()
    before = resident()
    forget(stored)
    assert resident() < before / 4
    assert stored.sum() == total


def test_memory_without_a_file_is_kept(tmp_path):
    """A mapping that takes changes in memory would lose them."""
    np.save(tmp_path / "rows.npy", np.ones((2000, WIDTH), np.float32))
    stored = np.load(tmp_path / "rows.npy", mmap_mode="c")
    stored[:] = 2
    forget(stored[5:])
    forget(np.full(3, 2.0))
    assert (stored == 2).all()


def hard_case(seed: int, width: int = WIDTH):
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


def axes_of(width: int, kept: int, skew: float) -> np.ndarray:
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


def assert_nothing_lost(seen, floor, exact) -> None:
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


def cloud(seed: int, count: int, width: int, spectrum: np.ndarray) -> np.ndarray:
    """Return unit rows around a mean, with variances along axes that are no coordinates."""
    rng = np.random.default_rng(4)
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    mean = rng.normal(size=width)
    rows = np.random.default_rng(seed).normal(size=(count, width)) * np.sqrt(spectrum) @ turn
    rows = mean / np.linalg.norm(mean) + rows / np.sqrt(spectrum.sum())
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_axes_are_chosen_where_the_spectrum_decays_and_coordinates_where_it_is_even():
    wanted, width = Wanted(0.95, best=0), 256
    decaying = 1 / np.arange(1, width + 1)
    for spectrum, axes in ((decaying, True), (np.ones(width), False)):
        query, stored = (cloud(seed, 6000, width, spectrum) for seed in (5, 6))
        part = choose(query, stored, wanted, 10**6)
        assert (part.axes is not None) is axes
        assert 0 < part.kept < width / 2
    few = choose(query[:1], stored, wanted, 10**4)
    assert few.axes is None, "axes cost more than they save"


def test_a_hopeless_bound_is_not_tried():
    query, stored = (cloud(seed, 2000, 32, np.ones(32)) for seed in (7, 8))
    assert choose(query, stored, Wanted(-1.0, best=0), 10**6) == whole(32)
    nothing = np.full((2000, 32), np.nan, np.float16)
    assert choose(query, nothing, Wanted(0.95, best=0), 10**6) == whole(32)


def test_unknown_devices_are_refused_in_one_line(monkeypatch):
    """A typing error must not end in a search on another device."""
    assert torch_device("cpu") is None
    with pytest.raises(UsageError, match=r"^device must be auto, cpu, cuda or cuda:N; got 'gpu'$"):
        torch_device("gpu")
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert torch_device("auto") is None
    with pytest.raises(UsageError, match=r"device cuda:1 is not there: torch .* sees 0 GPUs; take"):
        torch_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_device("auto") == "cuda:0"
    assert torch_device("cuda:1") == "cuda:1"


def test_without_torch_only_a_named_gpu_is_refused(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
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


def test_the_device_never_changes_a_byte():
    pytest.importorskip("torch")

    query, stored, _, _ = hard_case(5)
    shard = Shard(stored, np.array([f"{row:04d}" for row in range(len(stored))]))
    for wanted in (Wanted(0.9, best=0, cap=2), Wanted(None, best=3), Wanted(0.2, best=2)):
        answers = [
            PartitionSearch(query, wanted, device=device).find(shard).to_bytes()
            for device in ("cpu", "torch-cpu")
        ]
        assert answers[0] == answers[1]


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


def test_a_seed_of_the_floor_never_cuts_a_wanted_pair():
    query, stored, _, exact = hard_case(6)
    stored = stored[np.isfinite(stored).all(axis=1)]
    floor = streaming._certain_floor(query, stored, 5)
    exact = query.astype(np.float64) @ unit_rows(stored).matrix.astype(np.float64).T
    fifth = np.sort(exact, axis=1)[:, -5]
    assert (floor <= fifth).all()
    assert (floor > fifth - 1e-4).all()
