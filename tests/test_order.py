"""No order of storage, worker count or block size changes a byte of the tables."""

import io
from functools import partial, partialmethod

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


def encoded(picture, format_="PNG", **options):
    file = io.BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


def blank(level):
    return encoded(Image.new("RGB", (40, 40), "white"), compress_level=level)


def made_sides(natural):
    """Return two small sets in which everything happens that ties, repeats or has no order."""
    rng = np.random.default_rng(4)

    def crop(name, side):
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
    train |= {f"white{n}": blank(n) for n in range(3)}
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
        **{f"white{n}": blank(5 + n) for n in range(3)},
    }
    # repeats within the test set, found from either side
    test |= {f"z-{name}": test[name] for name in ("copy", "fresh0")}
    test["z-mirrored"] = encoded(large[0])
    test["z-symmetric"] = encoded(symmetric(large[5]))
    test["z-symmetric-again"] = encoded(symmetric(large[5]), "BMP")
    return {"test": test, "train": train}


def symmetric(picture):
    """Return an image which is its own mirror image, so that two views tie."""
    pixels = np.asarray(picture)
    half = pixels[:, : pixels.shape[1] // 2]
    return Image.fromarray(np.concatenate([half, half[:, ::-1]], axis=1))


def assert_same(got, expected):
    for name, data in got.items():
        if data != expected[name]:
            one, other = (pq.read_table(io.BytesIO(each)) for each in (data, expected[name]))
            assert one.to_pylist() == other.to_pylist(), name
            pytest.fail(f"{name}: the same rows in other bytes")


def write_parquet(path, stored, order):
    image = pa.array([{"bytes": stored[name], "path": f"{name}.bin"} for name in order])
    labels = [name.rstrip("0123456789") for name in order]
    pq.write_table(pa.table({"id": order, "image": image, "label": labels}), path, row_group_size=7)


def audited(test, train, **options):
    found = visleak.audit(test, train, **({"workers": 1, "cache": None} | options))
    return {name: (found.folder / name).read_bytes() for name in (PAIRS, IMAGES)}


@pytest.fixture(scope="module")
def sides(natural):
    return made_sides(natural)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sides):
    """The two sets as Parquet files, and as folders with lists of their files."""
    root = tmp_path_factory.mktemp("order")
    for name, stored in sides.items():
        write_parquet(root / f"{name}.parquet", stored, list(stored))
        (root / name).mkdir()
        for key, data in stored.items():
            (root / name / f"{key}.png").write_bytes(data)
        write_list(root, name, list(stored))
    return root


def write_list(folder, name, order):
    lines = "".join(f"{name}/{each}.png\n" for each in order)
    (folder / f"{name}.txt").write_text(lines)


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
def test_rows_and_files_in_another_order(sides, folder, expected, tmp_path_factory, seed):
    root = tmp_path_factory.mktemp("shuffled")
    straight = audited(folder / "test.txt", folder / "train.txt")
    for name, stored in sides.items():
        names = list(stored)
        order = [names[place] for place in np.random.default_rng(seed).permutation(len(names))]
        write_parquet(root / f"{name}.parquet", stored, order)
        write_list(folder, name, order)
    assert_same(audited(folder / "test.txt", folder / "train.txt"), straight)
    got = audited(root / "test.parquet", root / "train.parquet")
    # locators have the number of the row
    assert_same(*({**each, IMAGES: without_locators(each[IMAGES])} for each in (got, expected)))


def without_locators(images):
    file = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(images)).drop_columns("locator"), file)
    return file.getvalue()


@pytest.mark.slow
def test_workers_and_the_cache(folder, expected, tmp_path):
    """Without a cache, with a cold one and with a warm one."""
    paths = folder / "test.parquet", folder / "train.parquet"
    for workers, cache in ((3, None), (2, tmp_path), (1, tmp_path)):
        assert_same(audited(*paths, workers=workers, cache=cache), expected)


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
