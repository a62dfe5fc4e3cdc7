"""No order of storage, worker count or block size changes a byte of the tables."""

import io
import os
from collections.abc import Mapping
from functools import partial, partialmethod
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

import visleak
from visleak.encoders import builtin
from visleak.pipeline import (
    candidates,
    encoded_set,
    fingerprints,
    local_features,
    pixels,
    verification,
)
from visleak.search import exact
from visleak.storage import IMAGES, PAIRS
from visleak.verification import screen

#: Encoded images of one side by id, and the two tables byte for byte.
Stored = Mapping[str, bytes]
Tables = Mapping[str, bytes]

#: Constants that say how much is worked on at a time.
SIZES = (
    (builtin, "BATCH"),
    (candidates, "CHUNK"),
    (exact, "PENDING_LIMIT"),
    (encoded_set, "BYTES_WAITING"),
    (fingerprints, "CHUNK"),
    (fingerprints, "PIXELS_WAITING"),
    (local_features, "CHUNK"),
    (pixels, "CHUNK"),
    (exact, "CHUNK"),
    (screen, "_BATCH"),
    (verification, "CHECK_CHUNK"),
    (verification, "SCREEN_CHUNK"),
)

few = partial(
    hypothesis.settings,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


def encoded(picture: Image.Image, format_: str = "PNG", **options: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


def blank(colour: tuple[int, int, int], level: int) -> bytes:
    return encoded(Image.new("RGB", (40, 40), colour), compress_level=level)


def made_sides(natural: Mapping[str, np.ndarray]) -> dict[str, Stored]:
    """Return two small sets in which everything happens that ties, repeats or has no order."""
    rng = np.random.default_rng(4)

    def crop(name: str, side: int) -> Image.Image:
        source = natural[name]
        top, left = (int(rng.integers(0, length - side)) for length in source.shape[:2])
        return Image.fromarray(source[top : top + side, left : left + side])

    large = [crop(name, 128) for name in natural]
    small = [crop(name, 40) for name in natural for _ in range(2)]
    train = {f"large{n}": encoded(picture) for n, picture in enumerate(large)}
    train |= {f"small{n}": encoded(picture) for n, picture in enumerate(small)}
    train |= {f"again{n}": train[f"small{n}"] for n in range(3)}
    # other bytes, the same pixels: every similarity ties
    train |= {f"resaved{n}": encoded(small[n], "BMP") for n in range(3)}
    train |= {f"white{n}": blank((255, 255, 255), n) for n in range(3)}
    train |= {f"black{n}": blank((0, 0, 0), n) for n in range(2)}
    test = {
        "copy": train["small0"],
        "resaved": encoded(small[1], "TIFF"),
        "mirrored": encoded(ImageOps.mirror(large[0])),
        "turned": encoded(large[1].transpose(Image.Transpose.ROTATE_90)),
        "inverted": encoded(ImageOps.invert(large[2])),
        "cropped": encoded(large[3].crop((20, 20, 120, 120))),
        "smaller": encoded(large[4].resize((64, 64))),
        "fresh0": encoded(crop("moon", 100)),
        "fresh1": encoded(crop("coins", 40)),
        "text": b"no picture",
        **{f"white{n}": blank((255, 255, 255), 5 + n) for n in range(3)},
        **{f"grey{n}": blank((90, 90, 90), n) for n in range(2)},
    }
    # repeats within the test set, found from either side
    test |= {f"z-{name}": test[name] for name in ("copy", "fresh0")}
    test["z-mirrored"] = encoded(large[0])
    test["z-symmetric"] = encoded(symmetric(large[5]))
    test["z-symmetric-again"] = encoded(symmetric(large[5]), "BMP")
    return {"test": test, "train": train}


def symmetric(picture: Image.Image) -> Image.Image:
    """Return an image which is its own mirror image, so that two views tie."""
    pixels = np.asarray(picture)
    half = pixels[:, : pixels.shape[1] // 2]
    return Image.fromarray(np.concatenate([half, half[:, ::-1]], axis=1))


def assert_same(got: Tables, expected: Tables) -> None:
    for name, data in got.items():
        if data != expected[name]:
            one, other = (pq.read_table(io.BytesIO(each)) for each in (data, expected[name]))
            assert one.to_pylist() == other.to_pylist(), name
            pytest.fail(f"{name}: the same rows in other bytes")


def write_parquet(path: Path, stored: Stored, order: list[str]) -> None:
    image = pa.array([{"bytes": stored[name], "path": f"{name}.bin"} for name in order])
    labels = [name.rstrip("0123456789") for name in order]
    pq.write_table(pa.table({"id": order, "image": image, "label": labels}), path, row_group_size=7)


def audited(test: Path, train: Path, **options: object) -> "Tables":
    found = visleak.audit(test, train, **({"workers": 1, "cache": None} | options))
    return {name: (found.folder / name).read_bytes() for name in (PAIRS, IMAGES)}


def shuffled(stored: Stored, seed: int) -> list[str]:
    names = list(stored)
    return [names[place] for place in np.random.default_rng(seed).permutation(len(names))]


@pytest.fixture(scope="module")
def sides(natural):
    return made_sides(natural)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sides):
    """The two sets as Parquet files, as folders and as lists of files."""
    root = tmp_path_factory.mktemp("order")
    for name, stored in sides.items():
        write_parquet(root / f"{name}.parquet", stored, list(stored))
        (root / name).mkdir()
        for key, data in stored.items():
            (root / name / f"{key}.png").write_bytes(data)
        write_list(root / f"{name}.txt", list(stored), name)
    return root


def write_list(path: Path, order: list[str], folder: str) -> None:
    path.write_text("".join(f"{folder}/{name}.png\n" for name in order))


@pytest.fixture(scope="module")
def expected(folder):
    return audited(folder / "test.parquet", folder / "train.parquet")


def test_the_sets_are_worth_it(sides, folder, expected):
    pairs = pq.read_table(io.BytesIO(expected[PAIRS])).to_pylist()
    found = {(row["query"], row["reference"]): row for row in pairs}
    assert found["copy", "again0"]["grade"] == "exact"
    assert found["resaved", "resaved1"]["grade"] == "exact"
    assert found["mirrored", "large0"]["view"] == "mirror"
    assert ("cropped", "large3") in found
    assert ("white0", "white0") in found or ("white0", "white1") in found
    assert {row["coverage"] for row in pairs} == {"intra", "within"}


@few(max_examples=2)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_rows_of_a_parquet_file_in_another_order(sides, folder, expected, seed):
    try:
        for name, stored in sides.items():
            write_parquet(folder / f"{name}.parquet", stored, shuffled(stored, seed))
        got = audited(folder / "test.parquet", folder / "train.parquet")
    finally:
        for name, stored in sides.items():
            write_parquet(folder / f"{name}.parquet", stored, list(stored))
    # locators have the number of the row
    assert_same(*({**each, IMAGES: without_locators(each[IMAGES])} for each in (got, expected)))


def without_locators(images: bytes) -> bytes:
    file = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(images)).drop_columns("locator"), file)
    return file.getvalue()


@few(max_examples=2)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_files_in_another_order(sides, folder, seed):
    for name, stored in sides.items():
        write_list(folder / f"{name}.txt", list(stored), name)
    straight = audited(folder / "test.txt", folder / "train.txt")
    for name, stored in sides.items():
        write_list(folder / f"{name}.txt", shuffled(stored, seed), name)
    assert_same(audited(folder / "test.txt", folder / "train.txt"), straight)


def test_the_order_in_which_a_folder_was_filled(sides, folder, tmp_path):
    before = audited(folder / "test", folder / "train")
    for name in ("test", "train"):
        paths = sorted((folder / name).iterdir(), reverse=True)
        moved = tmp_path / name
        moved.mkdir()
        for path in paths:
            os.replace(path, moved / path.name)
        for path in sorted(moved.iterdir()):
            os.replace(path, folder / name / path.name)
    assert_same(audited(folder / "test", folder / "train"), before)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_number_of_workers(folder, expected, tmp_path, workers):
    paths = folder / "test.parquet", folder / "train.parquet"
    assert_same(audited(*paths, workers=workers, cache=tmp_path), expected)


def test_with_a_cache_and_without(folder, expected, tmp_path):
    paths = folder / "test.parquet", folder / "train.parquet"
    for _ in ("cold", "warm"):
        assert_same(audited(*paths, cache=tmp_path), expected)


@few(max_examples=3)
@hypothesis.given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 7, 50, 100_000]), min_size=14, max_size=14)
)
def test_sizes_of_chunks_and_blocks(folder, expected, monkeypatch, sizes):
    with monkeypatch.context() as patch:
        for (module, name), size in zip(SIZES, sizes, strict=False):
            assert hasattr(module, name)
            patch.setattr(module, name, size)
        make = partialmethod(exact.ExactSearch.__init__, sizes[-1], sizes[-2])
        patch.setattr(exact.ExactSearch, "__init__", make)
        got = audited(folder / "test.parquet", folder / "train.parquet")
    assert_same(got, expected)


@few(max_examples=2)
@hypothesis.given(share=st.sampled_from([1 / 560, 1 / 9, 1 / 2, 1]), views=st.booleans())
def test_coordinates_kept_for_the_bound(folder, monkeypatch, share, views):
    settings = visleak.Settings(views="all" if views else "mirror")
    paths = folder / "test.parquet", folder / "train.parquet"
    plain = audited(*paths, settings=settings)
    with monkeypatch.context() as patch:
        for name in ("KEPT_FOR_THRESHOLD", "KEPT_FOR_BEST"):
            patch.setattr(exact, name, share)
        got = audited(*paths, settings=settings)
    assert_same(got, plain)
