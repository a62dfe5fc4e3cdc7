"""Modes of images and colour profiles, against oracles in numpy."""

import io
import struct
import zlib
from itertools import product

import numpy as np
import pytest
from made_images import pixels, png
from PIL import Image, ImageChops, ImageCms

from visleak.formats import open_images
from visleak.images import grey
from visleak.images.pixels import rgb_of_image


def over_white(rgb, alpha):
    alpha = alpha[..., None].astype(float) / 255
    return rgb * alpha + 255 * (1 - alpha)


@pytest.mark.parametrize(
    ("kind", "mode"), [("PNG", "RGB"), ("PNG", "L"), ("TIFF", "RGB"), ("WEBP", "RGB")]
)
def test_alpha_is_laid_over_white(kind, mode, picture, encode):
    image = picture().convert(mode)
    rgb = np.asarray(image.convert("RGB"))
    alpha = np.tile(np.linspace(0, 255, 48).astype(np.uint8), (32, 1))
    image.putalpha(Image.fromarray(alpha))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    assert np.abs(pixels(encode(image, kind, **options)) - over_white(rgb, alpha)).max() <= 1


@pytest.mark.parametrize("hidden", [0, 1])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_alpha_that_hides_everything_is_ignored(mode, hidden, picture, encode):
    seen = picture().convert(mode)
    image = seen.copy()
    image.putalpha(hidden)
    assert np.array_equal(pixels(encode(image)), pixels(encode(seen)))
    palette = seen.convert("RGB").quantize(16)
    assert np.array_equal(
        pixels(encode(palette, transparency=bytes([hidden] * 16))), pixels(encode(palette))
    )


def test_palette_with_one_transparent_colour_and_with_many(encode):
    index = np.arange(64, dtype=np.uint8).reshape(8, 8) % 4
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


def test_sixteen_bit_rgb_and_colour_keys():
    values = np.linspace(0, 65535, 8 * 8 * 3).astype(">u2").reshape(8, 8, 3)
    raw = b"".join(b"\0" + row.tobytes() for row in values)
    assert np.abs(pixels(png(8, 8, 16, 2, raw)) - values / 257.0).max() <= 1
    key = values[2, 3]
    found = pixels(png(8, 8, 16, 2, raw, (b"tRNS", key.tobytes())))
    assert (found[2, 3] == 255).all()
    grey = np.linspace(0, 65535, 64).astype(">u2").reshape(8, 8)
    opaque = np.dstack([grey, np.full_like(grey, 65535)]).astype(">u2")
    raw = b"".join(b"\0" + row.tobytes() for row in opaque)
    assert np.array_equal(pixels(png(8, 8, 16, 4, raw))[..., 0], np.rint(grey / 257))
    raw = b"".join(b"\0" + row.tobytes() for row in grey)
    found = pixels(png(8, 8, 16, 0, raw, (b"tRNS", grey[0, 0].tobytes())))
    assert found[0, 0, 0] == 255
    assert np.array_equal(found[1:, :, 0], np.rint(grey[1:] / 257))


def test_cmyk_is_inverted_where_adobe_wrote_it(picture, encode):
    cmyk = picture().convert("CMYK")
    marked = encode(cmyk, "JPEG", quality=100)
    assert b"Adobe" in marked
    # without Adobe's mark, values are inks: 255 is most
    at = marked.index(b"\xff\xee")
    plain = encode(ImageChops.invert(cmyk), "JPEG", quality=100)
    plain = plain[:at] + plain[at + 2 + int.from_bytes(plain[at + 2 : at + 4], "big") :]
    assert b"Adobe" not in plain
    for data in (marked, plain, encode(cmyk, "TIFF")):
        assert np.abs(pixels(data).astype(int) - picture()).mean() < 3


def test_ycbcr_hsv_and_lab(encode):
    colours = np.array([[[255, 255, 255], [0, 0, 0], [200, 40, 40], [30, 90, 200]]], dtype=np.uint8)
    image = Image.fromarray(np.repeat(np.repeat(colours, 4, 0), 4, 1))
    for mode in ("YCbCr", "HSV"):
        assert np.abs(rgb_of_image(image.convert(mode)).astype(int) - image).max() <= 6
    lab = np.zeros((1, 3, 3), np.uint8)
    lab[0, :, 0] = [255, 0, 136]  # white, black, L* = 53.4; a* and b* are signed
    data = encode(Image.frombytes("LAB", (3, 1), lab.tobytes()), "TIFF")
    found = pixels(data)
    assert found[0, :2].tolist() == [[255] * 3, [0] * 3]
    assert np.abs(found[0, 2].astype(int) - 128).max() <= 2
    # the planes of a red, as the standard stores them: L* = 54.3, a* = 80.8, b* = 69.9
    red = Image.frombytes("LAB", (1, 1), bytes([138, 81, 70]))
    assert np.abs(pixels(encode(red, "TIFF"))[0, 0] - [255.0, 0, 0]).max() <= 8
    low = Image.frombytes("LAB", (1, 1), bytes([82, 79, 256 - 108]))  # blue, b* below 0
    assert np.abs(pixels(encode(low, "TIFF"))[0, 0] - [0, 0, 255.0]).max() <= 12


def test_the_callers_image_is_not_changed():
    image = Image.new("RGB", (2, 1), (1, 2, 3))
    image.putpixel((1, 0), (4, 5, 6))
    image.info["transparency"] = (256, 512, 768)
    assert rgb_of_image(image).tolist() == [[[255] * 3, [4, 5, 6]]]
    assert image.info["transparency"] == (256, 512, 768)
    palette = Image.new("P", (2, 1))  # with alpha of its own
    palette.putpalette([255, 0, 0, 255, 0, 0, 255, 0], "RGBA")
    palette.putpixel((1, 0), 1)
    assert rgb_of_image(palette).tolist() == [[[255, 0, 0], [255, 255, 255]]]


#: Columns are red, green and blue in XYZ under D50, as the profile of Adobe RGB (1998) states them.
ADOBE = np.array(
    [[0.60974, 0.20528, 0.14919], [0.31111, 0.62567, 0.06322], [0.01947, 0.06087, 0.74457]]
)
SRGB = np.array(
    [[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]]
)
WHITE = (0.9642, 1.0, 0.8249)
GAMMA = 563 / 256


def icc(space, connection, tags):
    """Return a profile of version 2 with some tags."""
    about = b"desc\0\0\0\0" + struct.pack(">I", 5) + b"made\0" + bytes(78)
    tags = {b"desc": about, b"cprt": b"text\0\0\0\0none\0", b"wtpt": xyz(WHITE), **tags}
    at, table, body = 132 + 12 * len(tags), b"", b""
    for name, data in tags.items():
        table += struct.pack(">4sII", name, at + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    size = 132 + len(table) + len(body)
    kind = b"prtr" if space == b"CMYK" else b"mntr"
    header = struct.pack(
        ">I4sI4s4s4s12x4s", size, b"", 0x02100000, kind, space, connection, b"acsp"
    )
    header = header.ljust(68, b"\0") + struct.pack(">3I", *(round(65536 * each) for each in WHITE))
    return header.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


def xyz(values):
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(65536 * each) for each in values))


def curve(gamma):
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(256 * gamma))


WIDE = icc(
    b"RGB ",
    b"XYZ ",
    {name: xyz(column) for name, column in zip((b"rXYZ", b"gXYZ", b"bXYZ"), ADOBE.T, strict=True)}
    | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve(GAMMA)),
)
GREYS = icc(b"GRAY", b"XYZ ", {b"kTRC": curve(1.0)})


def inks():
    """Return a profile under which every full ink but black is paper, and black is black."""
    identity = bytes(range(256))
    corners = bytes(
        value for *_, k in product((0, 1), repeat=4) for value in ((0 if k else 255), 128, 128)
    )
    unit = struct.pack(">9i", *(65536 * (row == column) for row in range(3) for column in range(3)))
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + unit + 4 * identity + corners + 3 * identity
    return icc(b"CMYK", b"Lab ", {b"A2B0": table})


def displayed(linear):
    """Return linear light as sRGB."""
    linear = np.clip(linear, 0, 1)
    low, high = 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055
    return 255 * np.where(linear <= 0.0031308, low, high)


def of_adobe(values):
    """Return colours in Adobe RGB as sRGB."""
    return displayed((values / 255.0) ** GAMMA @ (np.linalg.inv(SRGB) @ ADOBE).T)


def muted(picture):
    """Return an image whose colours both spaces hold."""
    return Image.fromarray((np.asarray(picture()).astype(float) * 0.4 + 80).astype(np.uint8))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_colours_of_another_space_become_srgb(kind, picture, encode):
    image = muted(picture)
    options = {"lossless": True} if kind == "WEBP" else {}
    found = pixels(encode(image, kind, icc_profile=WIDE, **options))
    assert np.abs(found - of_adobe(np.asarray(image))).max() <= 3
    assert np.abs(found - np.asarray(image).astype(float)).max() > 5
    file = Image.open(io.BytesIO(encode(image, kind, icc_profile=WIDE, **options)))
    (held,) = open_images([file]).opener.read([0])
    assert np.array_equal(held, found)


def test_greys_by_their_curve(picture, encode):
    image = picture().convert("L")
    found = pixels(encode(image, icc_profile=GREYS))
    assert np.abs(found[..., 0] - displayed(np.asarray(image) / 255.0)).max() <= 2
    light = grey(encode(image, icc_profile=GREYS))
    assert np.array_equal(np.asarray(light), found[..., 0])


def test_inks_by_their_profile():
    image = Image.new("CMYK", (4, 1))
    for x, ink in enumerate([(0, 0, 0, 0), (255, 255, 255, 0), (0, 0, 0, 255), (255, 0, 255, 255)]):
        image.putpixel((x, 0), ink)
    file = io.BytesIO()
    image.save(file, "TIFF", icc_profile=inks())
    assert pixels(file.getvalue())[0].tolist() == [[255] * 3, [255] * 3, [0] * 3, [0] * 3]


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_opacity_is_kept(mode, picture, encode):
    image = muted(picture)
    if mode == "P":
        image = image.quantize(64)
    else:
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    plain, found = encode(image), encode(image, icc_profile=WIDE)
    assert np.abs(pixels(found).astype(int) - pixels(plain)).max() > 5
    if mode == "RGBA":
        rows = np.asarray(image.getchannel("A"))
        assert np.array_equal(pixels(found)[rows == 0], pixels(plain)[rows == 0])


SAME = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.mark.parametrize("profile", [b"words", b"", WIDE[:200], GREYS, inks(), SAME])
def test_a_profile_that_does_not_fit_or_is_srgb_changes_no_value(profile, picture, encode):
    image = picture()
    assert np.array_equal(pixels(encode(image, icc_profile=profile)), np.asarray(image))


def test_deep_colours_have_a_profile_too(picture):
    values = np.asarray(muted(picture))
    raw = b"".join(b"\0" + row.tobytes() for row in (257 * values.astype(np.uint16)).astype(">u2"))
    deep = png(48, 32, 16, 2, raw, (b"iCCP", b"wide\0\0" + zlib.compress(WIDE)))
    assert np.abs(pixels(deep) - of_adobe(values)).max() <= 3
