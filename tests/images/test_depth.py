"""Values of more than eight bits: which range of them is shown, in any file."""

import io
import struct

import cv2
import numpy as np
import pytest
import tifffile
from made_images import exif_of, pixels
from PIL import Image

from visleak.formats import open_images
from visleak.images import decode
from visleak.images.pixels import rgb_of_array, rgb_of_image


def shades(height=60, width=80, seed=0):
    """Return a smooth image without symmetry, shares of the range from 0 to 1."""
    rng = np.random.default_rng(seed)
    image = cv2.resize(rng.random((5, 6)), (width, height), interpolation=cv2.INTER_CUBIC)
    return (image - image.min()) / (image.max() - image.min())


def of_bits(image, bits):
    return np.rint(image * (2**bits - 1)).astype(np.uint16)


def tiff(values, **options):
    out = io.BytesIO()
    tifffile.imwrite(out, values, **{"photometric": "minisblack", **options})
    return out.getvalue()


def cv_png(values):
    return cv2.imencode(".png", values[..., ::-1] if values.ndim == 3 else values)[1].tobytes()


def grey(data):
    return pixels(data)[..., 0].astype(int)


@pytest.mark.parametrize("bits", range(8, 17))
def test_an_image_of_any_bits_is_its_rendering(bits):
    stored = of_bits(shades(), bits)
    assert np.abs(grey(cv_png(stored)) - (stored >> (bits - 8))).max() <= 1
    coloured = np.dstack([stored, stored // 2, stored // 3])
    assert np.abs(pixels(cv_png(coloured)).astype(int) - (coloured >> (bits - 8))).max() <= 1


@pytest.mark.parametrize("bits", [16, 12, 10])
def test_equal_values_are_equal_pixels_in_any_file(bits):
    stored = of_bits(shades(), bits)
    want = pixels(cv_png(stored))
    kinds = {
        "little": lambda: tiff(stored),
        "big": lambda: tiff(stored, byteorder=">"),
        "packed": lambda: tiff(stored, compression="zlib", byteorder=">"),
        "PGM": lambda: b"P5 80 60 65535\n" + stored.astype(">u2").tobytes(),
        "white is zero": lambda: tiff((2**bits - 1) - stored, photometric="miniswhite"),
        "32 bits": lambda: tiff(stored.astype(np.uint32)),
        "signed": lambda: tiff(stored.astype(np.int32), compression="zlib", byteorder=">"),
        "float": lambda: tiff(stored.astype(np.float32)),
        "packed float": lambda: tiff(
            (stored / 65535).astype(np.float32), compression="zlib", byteorder=">"
        ),
    }
    for name, make in kinds.items():
        assert np.array_equal(pixels(make()), want), name
    for values in (stored, stored.astype(np.int64), stored / 65535):
        assert np.array_equal(rgb_of_array(values), want), values.dtype
    assert np.array_equal(rgb_of_image(Image.fromarray(stored)), want)


@pytest.mark.parametrize("bits", [16, 12])
def test_equal_colours_are_equal_pixels_in_any_file(bits):
    colours = np.dstack([of_bits(shades(seed=seed), bits) for seed in range(3)])
    opaque = np.dstack([colours, np.full(colours.shape[:2], 2**bits - 1)]).astype(np.uint16)
    want = pixels(cv_png(colours))
    assert want.max() == 255
    assert np.array_equal(rgb_of_array(colours), want)
    planes = np.moveaxis(colours, 2, 0)
    files = {
        "little": tiff(colours, photometric="rgb"),
        "big": tiff(colours, photometric="rgb", byteorder=">"),
        "packed": tiff(colours, photometric="rgb", compression="zlib", byteorder=">"),
        "planes": tiff(planes, photometric="rgb", planarconfig="separate"),
        "big planes": tiff(planes, photometric="rgb", planarconfig="separate", byteorder=">"),
        "opaque": tiff(opaque, photometric="rgb", extrasamples=["unassalpha"]),
        "opaque PNG": cv2.imencode(".png", opaque[..., [2, 1, 0, 3]])[1].tobytes(),
        "PPM": b"P6 80 60 65535\n" + colours.astype(">u2").tobytes(),
    }
    for name, data in files.items():
        assert np.array_equal(pixels(data), want), name
    packed = tiff(planes, photometric="rgb", planarconfig="separate", compression="zlib")
    for data in (packed, tiff(opaque, photometric="rgb", extrasamples=["assocalpha"])):
        assert np.abs(pixels(data).astype(int) - want).max() <= 1


def sgi(values):
    planes = np.moveaxis(values, 2, 0)[:, ::-1].astype(">u2")
    head = struct.pack(">HBBHHHH", 474, 0, 2, 3, *values.shape[1::-1], 3)
    return head.ljust(512, b"\0") + planes.tobytes()


def cmyk(values):
    return tiff(np.dstack([65535 - values, 0 * values[..., 0]]), photometric="separated")


def jp2(values):
    return cv2.imencode(".jp2", values[..., ::-1])[1].tobytes()


@pytest.mark.parametrize("form", [sgi, cmyk, jp2])
def test_few_bits_are_refused_where_they_are_not_read_in_full(form):
    """They would be an image of a few nearly black levels."""
    stored, full = (
        np.dstack([of_bits(shades(seed=seed), bits) for seed in range(3)]) for bits in (12, 16)
    )
    found = decode(form(65535 - stored if form is cmyk else stored))
    assert found.reason == "unsupported"
    assert "16-bit" in found.detail
    assert np.abs(pixels(form(full)) - full / 257).mean() < 2


def test_pillow_images_of_sixteen_bit_colours_keep_their_low_bytes():
    colours = np.dstack([of_bits(shades(seed=seed), 12) for seed in range(3)])
    data = cv_png(colours)
    images = open_images([Image.open(io.BytesIO(data))])
    for _ in range(2):
        [found] = images.opener.read([0])
        assert np.array_equal(pixels(found), pixels(data))


@pytest.mark.parametrize("dark", [1, 3, 10])
def test_eight_bits_come_back_from_any_type(dark):
    eight = np.rint(shades() * 255 / dark).astype(np.uint8)
    wide = eight.astype(np.uint16)
    for values in (wide, wide * 257, wide << 8, eight.astype(np.float32), eight / np.float32(255)):
        assert np.array_equal(rgb_of_array(values)[..., 0], eight), values.dtype
    assert np.array_equal(rgb_of_array((eight / 255).astype(np.float16))[..., 0], eight)


def test_a_few_hot_and_dead_pixels_do_not_count():
    stored = of_bits(shades(200, 300), 12)
    want = grey(cv_png(stored))
    faulty = stored.copy()
    faulty[10, 20], faulty[90, 200] = 65535, 40000
    found = grey(cv_png(faulty))
    assert (found != want).sum() <= 2
    assert found[10, 20] == found[90, 200] == 255
    offset = stored.astype(np.int32) - 1024
    offset[5, 5] = -30000
    assert np.abs(grey(tiff(offset)) - want).mean() < 4


def test_values_without_data_do_not_count():
    stored = of_bits(shades(), 12)
    want = grey(cv_png(stored))
    floats = {-3.4e38: 0, np.nan: 0, np.inf: 255, -np.inf: 0}
    for kind, holes in ((np.uint16, {65535: 255}), (np.int16, {-9999: 0}), (np.float32, floats)):
        for missing, shown in holes.items():
            holed = stored.astype(kind)
            holed[:20] = missing
            found = grey(tiff(holed))
            assert (found[:20] == shown).all(), missing
            assert np.abs(found[20:] - want[20:]).max() <= 1, missing


def test_not_a_number_is_bright_in_highlights_and_black_where_data_is_missing():
    image = shades()
    saturated = image > 0.9
    for scale, kind in ((1, np.float32), (3000, np.float32), (900, np.float64), (12, np.float16)):
        values = (image * scale).astype(kind)
        clipped = np.minimum(values, kind(0.9 * scale))
        holed = np.where(saturated, np.nan, values).astype(kind)
        holed[20:25, :9] = np.nan  # which does not lie among bright ones
        for others in ([], [values, values]):
            found, want = (
                rgb_of_array(np.dstack([each, *others]))[..., 0].astype(int)
                for each in (holed, clipped)
            )
            assert np.abs(found - want)[saturated].max() <= 3, scale
            assert (found[20:25, :9] == 0).all(), scale
        if scale == 1:
            assert (grey(tiff(holed))[saturated] > 200).all()


def test_a_narrow_range_far_from_zero_is_shown_whole():
    thermal = (21000 + 3000 * shades()).astype(np.uint16)
    found = grey(cv_png(thermal))
    assert (found.min(), found.max()) == (0, 255)
    assert np.abs(found - 255 * shades()).max() <= 1
    # but noise is not made an image
    blank = 30000 + np.random.default_rng(0).integers(-60, 60, (60, 80)).astype(np.uint16)
    assert np.ptp(grey(cv_png(blank))) < 3


def test_other_ranges_are_shown_whole():
    image = shades()
    packed = {"compression": "zlib", "byteorder": ">"}
    for values in (
        (4095 * image - 1024).astype(np.int16),
        (255 * image - 128).astype(np.int8),
        (2 * image - 1).astype(np.float32),
        of_bits(image, 16).astype(np.uint32) << 16,
    ):
        for data in (tiff(values), tiff(values, **packed)):
            assert np.abs(grey(data) - 255 * image).max() <= 2, values.dtype
    assert np.ptp(grey(tiff((4 * image).astype(np.float32) + 1.5))) > 180
    # shares that overshoot are shares still
    assert np.abs(grey(tiff((1.04 * image - 0.02).astype(np.float32))) - 255 * image).max() <= 6


def test_an_image_of_one_value_has_its_share_of_the_type():
    for value, shown in ((0, 0), (100, 100), (30000, 117), (65535, 255)):
        assert (grey(cv_png(np.full((9, 9), value, np.uint16))) == shown).all(), value
    for share, shown in ((0.25, 64), (1.0, 255), (-3.0, 0), (np.nan, 0)):
        assert (grey(tiff(np.full((9, 9), share, np.float32))) == shown).all(), share


@pytest.mark.parametrize("orientation", [3, 6])
def test_deep_images_are_turned_as_shallow_ones_are(orientation, encode):
    exif = exif_of(orientation)
    stored = of_bits(shades(), 12)
    want = pixels(encode(Image.fromarray((stored >> 4).astype(np.uint8)), exif=exif)).astype(int)
    tag = (274, "H", 1, orientation, True)
    colours = tiff(np.dstack([stored] * 3), photometric="rgb", extratags=[tag])
    for data in (encode(Image.fromarray(stored), exif=exif), colours):
        assert np.abs(pixels(data).astype(int) - want).max() <= 1
