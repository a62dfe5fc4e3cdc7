"""Decoding: what people see, or one of the fixed reasons."""

from __future__ import annotations

import io
import resource
import struct
import sys
import threading
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, PngImagePlugin

from visleak.images import content_digest, decode, decoding
from visleak.images.decoding import MAX_PIXELS
from visleak.images.formats import recognise
from visleak.images.pixels import rgb_of_image
from visleak.records import Picture, Unreadable


def pixels(data, **options):
    found = decode(data, **options)
    assert isinstance(found, Picture), found
    assert found.pixels.dtype == np.uint8
    assert found.pixels.shape[2] == 3
    return found.pixels


LOSSLESS = ["PNG", "TIFF", "BMP", "PPM", "TGA", "PCX", "SGI", "QOI", "ICO"]


@pytest.mark.parametrize("kind", LOSSLESS)
def test_lossless_formats_come_back_unchanged(kind, picture, encode):
    image = picture(48, 32)
    options = {"sizes": [(48, 32)]} if kind == "ICO" else {}
    assert np.array_equal(pixels(encode(image, kind, **options)), np.asarray(image))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "AVIF", "JPEG2000", "GIF"])
def test_lossy_formats_are_what_pillow_makes_of_them(kind, picture, encode):
    data = encode(picture(), kind)
    want = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(pixels(data), want)


# --- orientation: an oracle in numpy, after the EXIF standard ("row 0 is at the ...") ---
ORACLE = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "JPEG", "AVIF"])
def test_orientation(kind, orientation, picture, encode):
    image = picture(48, 32)
    options = {"lossless": True} if kind == "WEBP" else {}
    plain = pixels(encode(image, kind, **options))
    found = decode(encode(image, kind, exif=exif_of(orientation), **options))
    want = ORACLE[orientation](plain)
    assert np.array_equal(found.pixels, want)
    assert (found.height, found.width) == want.shape[:2]


@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"Exif\0\0",
        b"Exif\0\0MM\0*\xff\xff\xff\xff",
        b"\0" * 40,
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x03\0" * 9,
    ],
)
def test_broken_exif_is_no_turn_and_no_warning(exif, picture, encode):
    for kind in ("JPEG", "PNG", "WEBP"):
        data = encode(picture(), kind, exif=exif) if exif else encode(picture(), kind)
        assert pixels(data).shape == (32, 48, 3)


def test_orientation_out_of_range_is_no_turn(picture, encode):
    assert pixels(encode(picture(), exif=exif_of(9))).shape == (32, 48, 3)


def test_exif_in_little_and_big_endian_and_as_long(picture, encode):
    for order, mark in (("<", b"II"), (">", b"MM")):
        for kind, value in ((3, struct.pack(order + "HH", 6, 0)), (4, struct.pack(order + "I", 6))):
            head = mark + struct.pack(order + "HIH", 42, 8, 1)
            block = b"Exif\0\0" + head + struct.pack(order + "HHI", 0x0112, kind, 1) + value
            assert pixels(encode(picture(), "JPEG", exif=block)).shape == (48, 32, 3)


# --- modes ---


def over_white(rgb, alpha):
    alpha = alpha[..., None].astype(float) / 255
    return rgb * alpha + 255 * (1 - alpha)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_alpha_is_laid_over_white(kind, picture, encode):
    rgb = np.asarray(picture())
    alpha = np.tile(np.linspace(0, 255, 48).astype(np.uint8), (32, 1))
    image = Image.fromarray(np.dstack([rgb, alpha]))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    assert np.abs(pixels(encode(image, kind, **options)) - over_white(rgb, alpha)).max() <= 1


def test_grey_with_alpha(encode):
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    alpha = grey.T.copy()
    image = Image.merge("LA", [Image.fromarray(grey), Image.fromarray(alpha)])
    want = over_white(np.repeat(grey[..., None], 3, 2), alpha)
    assert np.abs(pixels(encode(image)) - want).max() <= 1


def test_palette_with_one_transparent_colour_and_with_many(encode):
    index = np.arange(64, dtype=np.uint8).reshape(8, 8) % 4
    image = Image.fromarray(index, "L")
    image = Image.frombytes("P", (8, 8), index.tobytes())
    table = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 8, 7]], dtype=np.uint8)
    image.putpalette(table.tobytes())
    plain = table[index].astype(float)
    assert np.array_equal(pixels(encode(image)), plain)
    one = plain.copy()
    one[index == 2] = 255
    assert np.array_equal(pixels(encode(image, transparency=2)), one)
    assert np.array_equal(pixels(encode(image, "GIF", transparency=2)), one)
    many = over_white(plain, np.array([0, 128, 255, 64], dtype=np.uint8)[index])
    found = pixels(encode(image, transparency=bytes([0, 128, 255, 64])))
    assert np.abs(found - many).max() <= 1


def test_colour_key_of_rgb_and_grey(encode, picture):
    image = picture()
    key = image.getpixel((3, 4))
    want = np.asarray(image).copy()
    want[(want == key).all(axis=2)] = 255
    assert np.array_equal(pixels(encode(image, transparency=key)), want)
    grey = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    want = np.arange(256, dtype=np.uint8)
    want[200] = 255
    assert np.array_equal(pixels(encode(grey, transparency=200))[..., 0].ravel(), want)


def test_one_bit_and_grey(encode):
    bits = np.arange(64).reshape(8, 8) % 3 == 0
    assert np.array_equal(pixels(encode(Image.fromarray(bits)))[..., 1], bits * 255)
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert np.array_equal(
        pixels(encode(Image.fromarray(grey), "JPEG", quality=100)).std(axis=2), np.zeros((16, 16))
    )


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_is_divided_by_257(kind, encode):
    values = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    if kind == "PPM":  # written here, as not every Pillow writes it
        data = b"P5 16 16 65535\n" + values.astype(">u2").tobytes()
        assert np.array_equal(pixels(data)[..., 0], np.rint(values / 257).astype(np.uint8))
        return
    image = Image.fromarray(values)
    want = np.rint(values / 257).astype(np.uint8)
    assert np.array_equal(pixels(encode(image, kind))[..., 2], want)
    dark = Image.fromarray((values // 300).astype(np.uint16))
    assert pixels(encode(dark, kind)).max() == 1


def png(width, height, depth, colour, raw, *extra):
    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + b"".join(chunk(*one) for one in extra)
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def test_sixteen_bit_rgb_and_colour_keys():
    values = np.linspace(0, 65535, 8 * 8 * 3).astype(">u2").reshape(8, 8, 3)
    raw = b"".join(b"\0" + row.tobytes() for row in values)
    assert np.abs(pixels(png(8, 8, 16, 2, raw)) - values / 257.0).max() <= 1
    key = values[2, 3]
    found = pixels(png(8, 8, 16, 2, raw, (b"tRNS", key.tobytes())))
    assert (found[2, 3] == 255).all()
    grey = np.linspace(0, 65535, 64).astype(">u2").reshape(8, 8)
    raw = b"".join(b"\0" + row.tobytes() for row in grey)
    found = pixels(png(8, 8, 16, 0, raw, (b"tRNS", grey[0, 0].tobytes())))
    assert found[0, 0, 0] == 255
    assert np.array_equal(found[1:, :, 0], np.rint(grey[1:] / 257))


def test_thirty_two_bit_and_float(encode):
    wide = np.array([[-10, 0], [90, 190]], dtype=np.int32)
    assert pixels(encode(Image.fromarray(wide), "TIFF"))[..., 0].tolist() == [[0, 13], [128, 255]]
    unit = np.array([[0, 0.5], [0.25, 1]], dtype=np.float32)
    assert pixels(encode(Image.fromarray(unit), "TIFF"))[..., 0].tolist() == [[0, 128], [64, 255]]
    odd = np.array([[np.nan, 100], [50, np.inf]], dtype=np.float32)
    assert pixels(encode(Image.fromarray(odd), "TIFF"))[..., 0].tolist() == [[0, 100], [50, 0]]


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind, picture, encode):
    rgb = np.asarray(picture())
    image = Image.fromarray(rgb).convert("CMYK")
    found = pixels(encode(image, kind, **({"quality": 100} if kind == "JPEG" else {})))
    assert np.abs(found.astype(int) - rgb).mean() < 3


def test_ycbcr_hsv_and_lab(encode):
    colours = np.array([[[255, 255, 255], [0, 0, 0], [200, 40, 40], [30, 90, 200]]], dtype=np.uint8)
    image = Image.fromarray(np.repeat(np.repeat(colours, 4, 0), 4, 1))
    for mode in ("YCbCr", "HSV"):
        assert np.abs(rgb_of_image(image.convert(mode)).astype(int) - image).max() <= 6
    lab = np.zeros((1, 3, 3), np.uint8)
    lab[0] = [[255, 128, 128], [0, 128, 128], [136, 128, 128]]  # white, black, L* = 53.4
    data = encode(Image.frombytes("LAB", (3, 1), lab.tobytes()), "TIFF")
    found = pixels(data)
    assert found[0, :2].tolist() == [[255] * 3, [0] * 3]
    assert np.abs(found[0, 2].astype(int) - 128).max() <= 2


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_an_animation(kind, encode):
    frames = [Image.new("RGB", (20, 10), c) for c in ("#ff0000", "#00ff00", "#0000ff")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert (pixels(data) == [255, 0, 0]).all()


def test_colour_profiles_are_ignored(picture, encode):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert np.array_equal(pixels(encode(picture(), icc_profile=profile)), np.asarray(picture()))


# --- partial JPEG decoding ---


@pytest.mark.parametrize("size", [(640, 480), (641, 333), (100, 900), (33, 33)])
@pytest.mark.parametrize("enough", [0, 1, 16, 50, 200, 10_000])
def test_a_partial_decode_keeps_the_short_side(size, enough, picture, encode):
    data = encode(picture(*size), "JPEG", exif=exif_of(6))
    found = decode(data, enough=enough)
    assert (found.width, found.height) == (size[1], size[0])
    height, width = found.pixels.shape[:2]
    assert min(width, height) >= min(*size, enough or 10_000)
    assert width <= size[1]
    if enough and min(size) >= 2 * enough:
        assert width < size[1]
    scale = size[1] / width
    assert height == pytest.approx(size[0] / scale, abs=1)


def test_a_partial_decode_shows_the_same_picture(picture, encode):
    image = picture(512, 384)
    found = pixels(encode(image, "JPEG", quality=95), enough=48).astype(int)
    small = np.asarray(image.resize((found.shape[1], found.shape[0]), Image.Resampling.BOX))
    assert np.abs(found - small).mean() < 3


# --- files that are no good ---


def reason(data):
    found = decode(data)
    assert isinstance(found, Unreadable), found
    assert "\n" not in found.detail
    return found.reason


def test_reasons(picture, encode, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as where the extra is not installed
    monkeypatch.setattr(decoding, "_READERS", {})
    assert reason(b"") == "empty"
    for text in (
        b"hello",
        b"B",
        b"BMW is a car",
        b"P",
        b"PK\3\4",
        b"<svg/>",
        b"GI",
        b"\0" * 99,
        b"I",
        b"RIFF\x24\0\0\0WAVEfmt ",
        b"%PDF-1.4",
        b"\x7fELF",
        b"Pete went home",
    ):
        assert reason(text) == "not-an-image", text
    assert reason(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 100) == "unsupported"
    assert reason(b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0" * 100) == "unsupported"
    data = bytearray(encode(picture(), "PNG"))
    at = data.index(b"IDAT") + 20
    data[at : at + 10] = b"\xff" * 10
    assert reason(bytes(data)) == "corrupt"


def test_a_huge_header_is_refused_before_decoding():
    huge = png(30_000, 30_000, 8, 2, b"")
    assert reason(huge) == "too-large"
    assert decode(huge).detail.startswith("30000 x 30000 pixels; up to 256,000,000 pixels")
    assert reason(png(2_000_001, 1, 8, 0, b"")) == "too-large"
    for width, height in ((2**31 - 1, 2**31 - 1), (0, 5)):
        assert reason(png(width, height, 8, 0, b"")) in ("too-large", "corrupt")
    assert MAX_PIXELS == 256_000_000


def test_a_huge_header_of_any_format_is_refused(picture, encode):
    def patched(kind, size, at, pack):
        data = bytearray(encode(picture(*size), kind))
        data[at : at + len(pack)] = pack
        return bytes(data)

    jpeg = encode(picture(48, 32), "JPEG")
    sof = jpeg.index(b"\xff\xc0")
    huge = [
        jpeg[: sof + 5] + struct.pack(">HH", 30_000, 30_000) + jpeg[sof + 9 :],
        patched("BMP", (48, 32), 18, struct.pack("<ii", 30_000, 30_000)),
        patched("GIF", (48, 32), 6, struct.pack("<HH", 65_535, 65_535)),
        b"qoif" + struct.pack(">II", 30_000, 30_000) + bytes(40),
        b"P6 30000 30000 255\n",
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [reason(data) for data in huge] == ["too-large"] * len(huge)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_long_thin_picture_is_read(encode):
    image = Image.new("L", (20_000, 100), 7)
    assert pixels(encode(image)).shape == (100, 20_000, 3)


def test_between_pillows_limit_and_ours_there_is_no_warning(monkeypatch, encode):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert pixels(encode(Image.new("RGB", (15, 15)))).shape == (15, 15, 3)
    assert pixels(encode(Image.new("RGB", (90, 90)), "JPEG")).shape == (90, 90, 3)


FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM", "QOI", "SGI"]


def cuts(data):
    rng = np.random.default_rng(len(data))
    inner = rng.integers(3, len(data), 60).tolist()
    return sorted(
        {*range(3, 40), *inner, *range(len(data) - 12, len(data))} & set(range(len(data)))
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"progressive": True},
        {"lossless": True},
        {"compression": "tiff_lzw"},
        {"compression": "jpeg"},
    ],
)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_cut_file_is_truncated_or_whole(kind, options, picture, encode, capfd):
    if (
        options
        and kind
        not in {"progressive": ["JPEG"], "lossless": ["WEBP"], "compression": ["TIFF"]}[
            next(iter(options))
        ]
    ):
        pytest.skip("no such variant")
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
    for image in (picture(), noise):
        data = encode(image, kind, **options)
        whole = pixels(data)
        for cut in cuts(data):
            found = decode(data[:cut])
            if isinstance(found, Picture):
                assert np.array_equal(found.pixels, whole), cut
                assert cut > len(data) * 0.9
            elif cut >= 12:
                assert found.reason == "truncated", (cut, len(data), found)
            else:
                assert found.reason in ("truncated", "not-an-image"), (cut, found)
    assert capfd.readouterr().err == ""


def test_a_cut_file_is_refused_even_where_pillow_is_told_to_take_it(monkeypatch, picture, encode):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for kind in ("JPEG", "PNG", "BMP", "GIF", "WEBP"):
        data = encode(picture(), kind)
        assert reason(data[: len(data) // 2]) == "truncated"


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(
        [
            b"",
            b"\xff\xd8\xff",
            b"\x89PNG\r\n\x1a\n",
            b"GIF89a",
            b"II*\0",
            b"RIFF\x20\0\0\0WEBP",
            b"BM",
            b"P6\n",
            b"8BPS\0\x01",
            b"qoif",
            b"\0\0\x01\0",
        ]
    ),
)
def test_no_bytes_let_an_exception_out(body, magic):
    found = decode(magic + body)
    assert isinstance(found, Picture | Unreadable)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMATS), st.integers(0, 10**6), st.integers(0, 255))
def test_no_flipped_byte_lets_an_exception_or_a_warning_out(kind, place, value):
    assume(kind in Image.SAVE)
    out = io.BytesIO()
    exif = {} if kind in ("GIF", "BMP", "PPM", "QOI", "SGI", "JPEG2000") else {"exif": exif_of(3)}
    Image.linear_gradient("L").resize((20, 15)).convert("RGB").save(out, kind, **exif)
    data = bytearray(out.getvalue())
    data[place % len(data)] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(decode(bytes(data)), Picture | Unreadable)


def test_a_broken_animation_header_does_not_warn(picture, encode):
    data = encode(picture())
    at = data.index(b"IDAT") - 4
    body = b"acTL" + struct.pack(">II", 0, 0)
    data = data[:at] + struct.pack(">I", 8) + body + struct.pack(">I", zlib.crc32(body)) + data[at:]
    assert np.array_equal(pixels(data), np.asarray(picture()))


def test_a_text_bomb_in_a_png_is_refused(picture, encode):
    info = PngImagePlugin.PngInfo()
    info.add_text("a", "x" * (2 << 20), zip=True)
    assert reason(encode(picture(), pnginfo=info)) in ("corrupt", "too-large")


def test_threads_share_nothing(picture, encode):
    files = [encode(picture(seed=i), kind) for i in range(6) for kind in ("TIFF", "PNG", "GIF")]
    want = [pixels(data) for data in files]
    wrong = []
    before = list(warnings.filters)

    def work():
        for _ in range(15):
            for data, right in zip(files, want, strict=True):
                if not np.array_equal(pixels(data), right):
                    wrong.append(data)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert warnings.filters == before


def test_an_array_is_passed_on():
    array = np.zeros((4, 6, 3), np.uint8)
    found = decode(array)
    assert found.pixels is array
    assert (found.width, found.height) == (6, 4)


def test_content_digest():
    import hashlib

    assert content_digest(b"abc") == hashlib.blake2b(b"abc", digest_size=16).digest()
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert content_digest(array) == content_digest(np.asfortranarray(array))
    assert content_digest(array) != content_digest(array.reshape(4, 2, 3))
    assert content_digest(array) != content_digest(array.astype(np.int8))
    assert len(content_digest(array)) == 16


def test_formats_are_told_by_content(picture, encode):
    assert recognise(encode(picture(), "TGA")).name == "TGA"
    assert recognise(b"GIF89") is not None
