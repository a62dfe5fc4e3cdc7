"""Decoding: what people see, turned as the camera was held, or one of the fixed reasons."""

import hashlib
import io
import re
import resource
import struct
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pillow_heif
import pillow_jxl  # noqa: F401 - registers its format
import pytest
import tifffile
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_images import FORMATS, exif_of, pixels, png, reason
from PIL import Image, ImageFile, ImageOps, PngImagePlugin

from visleak.images import content_digest, decode, decoding
from visleak.images.pixels import rgb_of_array
from visleak.records import DecodedImage, Unreadable

LOSSLESS = ["PNG", "TIFF", "BMP", "PPM", "TGA", "PCX", "SGI", "QOI", "ICO"]


@pytest.mark.parametrize("kind", [*LOSSLESS, "JPEG", "WEBP", "AVIF", "JPEG2000", "GIF"])
def test_formats_are_what_pillow_makes_of_them(kind, picture, encode):
    image = picture(48, 32)
    data = encode(image, kind, **({"sizes": [(48, 32)]} if kind == "ICO" else {}))
    want = image if kind in LOSSLESS else Image.open(io.BytesIO(data)).convert("RGB")
    assert np.array_equal(pixels(data), np.asarray(want))


@pytest.mark.parametrize("size", [(640, 480), (641, 333), (100, 900), (33, 33)])
@pytest.mark.parametrize("enough", [1, 16, 50, 200, 10_000])
def test_a_partial_decode_keeps_the_short_side(size, enough, picture, encode):
    image = picture(*size)
    found = decode(encode(image, "JPEG", exif=exif_of(6), quality=95), enough=enough)
    assert (found.width, found.height) == (size[1], size[0])
    height, width = found.pixels.shape[:2]
    assert min(width, height) >= min(*size, enough)
    assert (width < size[1]) == (min(size) >= 2 * enough)
    assert height == pytest.approx(size[0] * width / size[1], abs=1)
    if size == (640, 480):
        shown = image.transpose(Image.Transpose.ROTATE_270)
        small = np.asarray(shown.resize((width, height), Image.Resampling.BOX))
        assert np.abs(found.pixels.astype(int) - small).mean() < 3


def test_reasons(picture, encode):
    assert reason(b"") == "empty"
    for text in (b"hello", b"BMW is a car", b"P", b"GI", b"\0" * 99, b"RIFF\x24\0\0\0WAVEfmt "):
        assert reason(text) == "not-an-image", text
    data = bytearray(encode(picture(), "PNG"))
    at = data.index(b"IDAT") + 20
    data[at : at + 10] = b"\xff" * 10
    for damaged in (bytes(data), b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0" * 100):
        assert reason(damaged) == "corrupt"
    deep_psd = b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 4, 5, 16, 3) + bytes(200)
    for unread in (deep_psd, b"PF\n5 4\n-1.0\n" + bytes(240)):
        assert reason(unread) == "unsupported"


def test_a_huge_header_of_any_format_is_refused(picture, encode):
    def patched(kind, at, pack):
        data = bytearray(encode(picture(), kind))
        data[at : at + len(pack)] = pack
        return bytes(data)

    sof = encode(picture(), "JPEG").index(b"\xff\xc0")
    huge = [
        png(30_000, 30_000, 8, 2, b""),
        png(2_000_001, 1, 8, 0, b""),
        png(2**31 - 1, 2**31 - 1, 8, 0, b""),
        patched("JPEG", sof + 5, struct.pack(">HH", 30_000, 30_000)),
        patched("BMP", 18, struct.pack("<ii", 30_000, 30_000)),
        patched("GIF", 6, struct.pack("<HH", 65_535, 65_535)),
        b"qoif" + struct.pack(">II", 30_000, 30_000) + bytes(40),
        b"P6 30000 30000 255\n",
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [reason(data) for data in huge] == ["too-large"] * len(huge)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
    assert decode(huge[0]).detail.startswith("30000 x 30000 pixels; up to 256,000,000 pixels")


def test_between_the_limit_of_pillow_and_ours_images_are_read(monkeypatch, encode):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for kind in ("PNG", "JPEG", "BMP", "PPM"):
        assert pixels(encode(Image.new("RGB", (90, 90)), kind)).shape == (90, 90, 3)


MAGIC = (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\0", b"RIFF\x20\0\0\0WEBP")
MAGIC += (b"BM", b"P6\n", b"8BPS\0\x01", b"qoif", b"\0\0\x01\0")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(MAGIC))
def test_no_bytes_let_an_exception_out(body, magic):
    found = decode(magic + body)
    assert isinstance(found, DecodedImage | Unreadable)


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
        assert isinstance(decode(bytes(data)), DecodedImage | Unreadable)


def test_a_text_bomb_in_a_png_is_refused(picture, encode):
    info = PngImagePlugin.PngInfo()
    info.add_text("a", "x" * (2 << 20), zip=True)
    assert reason(encode(picture(), pnginfo=info)) in ("corrupt", "too-large")


def broken_tiff(encode):
    """Return a TIFF file with a damaged strip, of which libtiff has something to say."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    data = bytearray(encode(image, "TIFF", compression="tiff_adobe_deflate"))
    data[1000:1100] = b"\xff" * 100
    return bytes(data)


def test_what_libtiff_says_is_part_of_the_reason(encode, capfd):
    found = decode(broken_tiff(encode))
    assert found.reason == "corrupt"
    assert "ZIPDecode" in found.detail
    image = Image.fromarray(np.random.default_rng(0).integers(0, 2, (64, 64)) > 0)
    fax = bytearray(encode(image, "TIFF", compression="group4"))
    assert np.array_equal(pixels(bytes(fax))[..., 0] > 0, np.asarray(image))
    fax[208:228] = bytes(20)  # of which a part is decoded
    assert re.search("Fax4Decode", decode(bytes(fax)).detail)
    assert capfd.readouterr().err == ""
    # what others read still goes where it went
    with pytest.raises(OSError, match="-2"):
        Image.open(io.BytesIO(broken_tiff(encode))).load()
    assert "ZIPDecode" in capfd.readouterr().err


def bands(count, planes="contig", **options):
    """Return a file of many bands, and their values, bands last."""
    shape = (20, 30, count) if planes == "contig" else (count, 20, 30)
    out = io.BytesIO()
    values = np.random.default_rng(0).integers(0, 4096, shape, dtype=np.uint16)
    tifffile.imwrite(out, values, photometric="minisblack", planarconfig=planes, **options)
    return out.getvalue(), values if planes == "contig" else values.transpose(1, 2, 0)


@pytest.mark.parametrize("count", [2, 5, 6, 7, 12])
@pytest.mark.parametrize("planes", ["contig", "separate"])
def test_of_many_bands_the_first_three_are_compared(count, planes, capfd):
    data, values = bands(count, planes)
    assert np.array_equal(pixels(data), rgb_of_array(values[:, :, : 3 if count > 2 else 1]))
    turned = bands(count, planes, extratags=[(274, "H", 1, 6, True)])[0]
    assert np.array_equal(pixels(turned), np.rot90(pixels(data), -1))
    assert reason(data[:-500]) == "truncated"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["DESCRIPTION", "COLORINTERP"])
@pytest.mark.parametrize(
    ("colours", "shown"),
    [("Blue nir green red swir", [3, 2, 0]), ("nir red green x x blue", [0, 1, 2])],
)
def test_bands_that_the_file_names_are_its_colours(name, colours, shown):
    items = "".join(
        f'<Item name="{name}" sample="{at}" role="x">{text}</Item>'
        for at, text in enumerate(colours.split())
    )
    about = f"<GDALMetadata>{items}</GDALMetadata>"
    data, values = bands(5, extratags=[(42112, "s", 0, about, True)])
    assert np.array_equal(pixels(data), rgb_of_array(values[:, :, shown]))


@pytest.mark.parametrize("type_", [np.float16, np.float64, np.complex64])
def test_types_of_numbers_that_pillow_does_not_read(type_):
    values = np.random.default_rng(0).random((9, 9)).astype(type_)
    for options in ({}, {"bigtiff": True, "byteorder": ">"}):
        out = io.BytesIO()
        tifffile.imwrite(out, values, **options)
        assert np.array_equal(pixels(out.getvalue()), rgb_of_array(np.abs(values)))


def boxed(brand):
    return b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0" + brand + b"mif1" + b"\0" * 100


@pytest.mark.parametrize(
    ("module", "data", "words"),
    [
        ("pillow_heif", boxed(b"heic"), "HEIF .*pip install 'visleak.heif"),
        ("PIL.AvifImagePlugin", boxed(b"avif"), "AVIF .*pip install 'visleak.heif"),
        ("pillow_jxl.JpegXLImagePlugin", b"\xff\x0a" + bytes(100), "pip install 'visleak.heif"),
        ("tifffile", bands(5)[0], "pip install 'visleak.tiff"),
        ("pydicom", bytes(128) + b"DICM" + bytes(100), "pip install 'visleak.medical"),
    ],
)
def test_a_missing_decoder_names_the_extra(module, data, words, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # as where it is not installed
    monkeypatch.setattr(decoding, "_READERS", {})
    found = decode(data)
    assert found.reason == "unsupported"
    assert re.search(words, found.detail)
    if "avif" in str(data):  # in a Pillow that was built without it
        monkeypatch.undo()
        monkeypatch.setattr("PIL.AvifImagePlugin.SUPPORTED", False)
        assert re.search(words, decode(data).detail)


def test_threads_share_nothing(picture, encode, capfd):
    files = [encode(picture(seed=i), kind) for i in range(6) for kind in ("TIFF", "PNG", "GIF")]
    want = [pixels(data) for data in files]
    before = list(warnings.filters)

    def read(number):
        if number == 4:
            return {decode(broken_tiff(encode)).detail.count("ZIPDecode") for _ in range(90)} == {1}
        return all(map(np.array_equal, map(pixels, 15 * files), 15 * want))

    with ThreadPoolExecutor(5) as threads:
        assert all(threads.map(read, range(5)))
    assert warnings.filters == before
    assert capfd.readouterr().err == ""


def test_content_digest():
    assert content_digest(b"abc") == hashlib.blake2b(b"abc", digest_size=16).digest()
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert content_digest(array) == content_digest(np.asfortranarray(array))
    for other in (array.reshape(4, 2, 3), array.astype(np.int8)):
        assert content_digest(array) != content_digest(other)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "JPEG", "AVIF"])
def test_orientation(kind, orientation, picture, encode):
    image = picture(48, 32)
    options = {"lossless": True} if kind == "WEBP" else {}
    shown = Image.fromarray(pixels(encode(image, kind, **options)))
    shown.getexif()[0x0112] = orientation
    want = np.asarray(ImageOps.exif_transpose(shown))
    found = decode(encode(image, kind, exif=exif_of(orientation), **options))
    assert np.array_equal(found.pixels, want)
    assert (found.height, found.width) == want.shape[:2]


def block(mark, kind, value):
    """Return an EXIF block with an orientation of some type."""
    order = "<" if mark == b"II" else ">"
    head = mark + struct.pack(order + "HIH", 42, 8, 1)
    return b"Exif\0\0" + head + struct.pack(order + "HHI", 0x0112, kind, 1) + value


@pytest.mark.parametrize(
    ("exif", "turned"),
    [
        (b"Exif\0\0MM\0*\xff\xff\xff\xff", False),
        (block(b"II", 3, struct.pack("<HH", 9, 0)), False),
        (block(b"II", 3, struct.pack("<HH", 6, 0)), True),
        (block(b"MM", 4, struct.pack(">I", 6)), True),
    ],
)
def test_broken_exif_is_no_turn_and_no_warning(exif, turned, picture, encode):
    for kind in ("JPEG", "PNG", "WEBP"):
        found = pixels(encode(picture(), kind, exif=exif))
        assert found.shape == ((48, 32, 3) if turned else (32, 48, 3))


VARIANTS = [
    *((kind, {}) for kind in FORMATS),
    ("JPEG", {"progressive": True}),
    ("WEBP", {"lossless": True}),
    *(("TIFF", {"compression": name}) for name in ("tiff_lzw", "jpeg", "tiff_adobe_deflate")),
]


@pytest.mark.parametrize(("kind", "options"), VARIANTS)
def test_a_cut_file_is_truncated_or_whole(kind, options, picture, encode, capfd):
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
    for image in (picture(), noise):
        data = encode(image, kind, **options)
        whole, whole_small = pixels(data), pixels(data, enough=8)
        size = len(data)
        for cut in {*range(3, 40), *range(40, size, size // 60), *range(size - 12, size)}:
            if kind == "JPEG":
                small = decode(data[:cut], enough=8)
                assert isinstance(small, Unreadable) or np.array_equal(small.pixels, whole_small)
            found = decode(data[:cut])
            if isinstance(found, DecodedImage):
                assert np.array_equal(found.pixels, whole), cut
                assert cut > size * 0.9
            elif cut >= 12:
                assert found.reason == "truncated", (cut, size, found)
            else:
                assert found.reason in ("truncated", "not-an-image"), (cut, found)
    assert capfd.readouterr().err == ""


def test_a_cut_file_is_refused_even_where_pillow_is_told_to_take_it(monkeypatch, picture, encode):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for kind in ("JPEG", "PNG", "BMP", "GIF", "WEBP"):
        data = encode(picture(), kind)
        assert reason(data[: len(data) // 2]) == "truncated"


pillow_heif.register_heif_opener()


@pytest.mark.parametrize("kind", ["JXL", "HEIF"])
def test_formats_of_other_libraries(kind, natural):
    image = Image.fromarray(natural["astronaut"][:120, :160])
    expected = {1: image, 6: image.transpose(Image.Transpose.ROTATE_270)}
    for orientation, shown in expected.items():
        file = io.BytesIO()
        image.save(file, kind, quality=95, exif=exif_of(orientation).tobytes())
        found = pixels(file.getvalue())
        assert found.shape == (shown.height, shown.width, 3)
        assert np.abs(found.astype(int) - np.asarray(shown)).mean() < 4
    assert reason(file.getvalue()[:800]) in ("truncated", "corrupt")
