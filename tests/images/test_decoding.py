"""Decoding: what people see, turned as the camera was held, or one of the fixed reasons."""

import io
import re
import resource
import struct
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pillow_heif
import pillow_jxl  # noqa: F401 - registers its format
import pytest
import tifffile
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_images import FORMATS, exif_of, pixels, png, reason
from PIL import Image, ImageFile, PngImagePlugin

from visleak.images import content_digest, decode, decoding
from visleak.images.decoding import MAX_PIXELS
from visleak.images.pixels import rgb_of_array
from visleak.records import DecodedImage, Unreadable

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


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_an_animation(kind, encode):
    frames = [Image.new("RGB", (20, 10), c) for c in ("#ff0000", "#00ff00", "#0000ff")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert (pixels(data) == [255, 0, 0]).all()


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


def test_reasons(picture, encode):
    assert reason(b"") == "empty"
    for text in (
        *(b"hello", b"B", b"BMW is a car", b"P", b"PK\3\4", b"<svg/>", b"GI", b"\0" * 99, b"I"),
        *(b"RIFF\x24\0\0\0WAVEfmt ", b"%PDF-1.4", b"\x7fELF", b"Pete went home"),
    ):
        assert reason(text) == "not-an-image", text
    assert reason(b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0" * 100) == "corrupt"
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


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(
        [
            *(b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\0"),
            *(b"RIFF\x20\0\0\0WEBP", b"BM", b"P6\n", b"8BPS\0\x01", b"qoif", b"\0\0\x01\0"),
        ]
    ),
)
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
    packed = bytearray(encode(Image.new("1", (64, 64)), "TIFF", compression="group4"))
    packed[8:12] = b"\x81\x42\x24\x18"
    decode(bytes(packed))
    assert capfd.readouterr().err == ""
    # what others read still goes where it went
    with pytest.raises(OSError, match="-2"):
        Image.open(io.BytesIO(broken_tiff(encode))).load()
    assert "ZIPDecode" in capfd.readouterr().err


def test_threads_keep_what_libtiff_says_apart(encode, picture, capfd):
    good, bad = encode(picture(), "TIFF", compression="tiff_lzw"), broken_tiff(encode)
    with ThreadPoolExecutor(2) as threads:
        damaged, whole = threads.map(lambda data: [decode(data) for _ in range(20)], (bad, good))
    assert {each.detail.count("ZIPDecode") for each in damaged} == {1}
    assert all(isinstance(each, DecodedImage) for each in whole)
    assert capfd.readouterr().err == ""


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
    assert reason(data[:-500]) == "truncated"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["DESCRIPTION", "COLORINTERP"])
def test_bands_that_the_file_names_are_its_colours(name):
    named = enumerate(["Blue", "nir", "green", "red", "swir"])
    items = "".join(
        f'<Item name="{name}" sample="{at}" role="x">{text}</Item>' for at, text in named
    )
    about = f"<GDALMetadata>{items}</GDALMetadata>"
    data, values = bands(5, extratags=[(42112, "s", 0, about, True)])
    assert np.array_equal(pixels(data), rgb_of_array(values[:, :, [3, 2, 0]]))


@pytest.mark.parametrize("type_", [np.float16, np.float64, np.complex64])
def test_types_of_numbers_that_pillow_does_not_read(type_):
    out = io.BytesIO()
    values = np.random.default_rng(0).random((9, 9)).astype(type_)
    tifffile.imwrite(out, values)
    assert np.array_equal(pixels(out.getvalue()), rgb_of_array(np.abs(values)))


def test_variants_that_no_decoder_reads_are_unsupported():
    deep_psd = b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 4, 5, 16, 3) + bytes(200)
    assert reason(deep_psd) == "unsupported"
    assert reason(b"PF\n5 4\n-1.0\n" + bytes(240)) == "unsupported"


def test_big_endian_bigtiff():
    out, values = io.BytesIO(), np.arange(81, dtype=np.uint8).reshape(9, 9)
    tifffile.imwrite(out, values, bigtiff=True, byteorder=">")
    assert np.array_equal(pixels(out.getvalue()), rgb_of_array(values))


def test_a_scan_of_which_a_part_was_decoded_is_corrupt(encode, capfd):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 2, (64, 64)) > 0)
    data = bytearray(encode(image, "TIFF", compression="group4"))
    assert np.array_equal(pixels(bytes(data))[..., 0] > 0, np.asarray(image))
    middle = data.index(b"II*") + 8 + 200
    data[middle : middle + 20] = b"\0" * 20
    found = decode(bytes(data))
    assert found.reason == "corrupt"
    assert "Fax4Decode" in found.detail
    assert capfd.readouterr().err == ""


def boxed(brand):
    return b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0" + brand + b"mif1" + b"\0" * 100


@pytest.mark.parametrize(
    ("module", "data", "words"),
    [
        ("pillow_heif", boxed(b"heic"), "HEIF .*pip install 'visleak.heif"),
        ("pillow_heif", boxed(b"mif1"), "HEIF .*pip install 'visleak.heif"),
        ("PIL.AvifImagePlugin", boxed(b"avif"), "AVIF .*pip install 'visleak.heif"),
        ("pillow_jxl.JpegXLImagePlugin", b"\xff\x0a" + bytes(100), "pip install 'visleak.heif"),
        ("tifffile", bands(5)[0], "pip install 'visleak.tiff"),
    ],
)
def test_a_missing_decoder_names_the_extra(module, data, words, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # as where it is not installed
    monkeypatch.setattr(decoding, "_READERS", {})
    found = decode(data)
    assert found.reason == "unsupported"
    assert re.search(words, found.detail)


def test_avif_in_a_pillow_without_it_names_the_extra(monkeypatch, picture, encode):
    data = encode(picture(), "AVIF")
    monkeypatch.setattr("PIL.AvifImagePlugin.SUPPORTED", False)
    found = decode(data)
    assert found.reason == "unsupported"
    assert "visleak[heif]" in found.detail


def test_threads_share_nothing(picture, encode):
    files = [encode(picture(seed=i), kind) for i in range(6) for kind in ("TIFF", "PNG", "GIF")]
    want = [pixels(data) for data in files]
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: [pixels(data) for data in 15 * files], range(4)):
            assert all(map(np.array_equal, found, 15 * want))
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


# -- files that are cut at any place ---------------------------------------------------------------


def cuts(data):
    rng = np.random.default_rng(len(data))
    inner = rng.integers(3, len(data), 60).tolist()
    return sorted(
        {*range(3, 40), *inner, *range(len(data) - 12, len(data))} & set(range(len(data)))
    )


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
        for cut in cuts(data):
            if kind == "JPEG":
                small = decode(data[:cut], enough=8)
                assert isinstance(small, Unreadable) or np.array_equal(small.pixels, whole_small)
            found = decode(data[:cut])
            if isinstance(found, DecodedImage):
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


pillow_heif.register_heif_opener()


@pytest.mark.parametrize("kind", ["JXL", "HEIF", "AVIF"])
def test_pixels_orientation_and_damage(kind, natural):
    image = Image.fromarray(natural["astronaut"][:120, :160])
    turned = Image.Exif()
    turned[0x0112] = 6
    expected = {0: image, 6: image.transpose(Image.Transpose.ROTATE_270)}
    for orientation, shown in expected.items():
        file = io.BytesIO()
        options = {"exif": turned.tobytes()} if orientation else {}
        image.save(file, kind, quality=95, **options)
        found = decode(file.getvalue())
        assert found.pixels.shape == (shown.height, shown.width, 3)
        assert np.abs(found.pixels.astype(int) - np.asarray(shown)).mean() < 4
    cut = decode(file.getvalue()[:800])
    assert isinstance(cut, Unreadable)
    assert cut.reason in ("truncated", "corrupt")
