"""Modes of images and colour profiles, against oracles in numpy."""

import io
import struct
import zlib
from itertools import product

import numpy as np
import pytest
import tifffile
from made_images import pixels, png
from PIL import Image, ImageChops, ImageCms

from visleak.formats import open_images
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
    held = image.convert({"RGB": "RGBa", "L": "La"}[mode])  # as programs have images
    for found in (pixels(encode(image, kind, **options)), rgb_of_image(held)):
        assert np.abs(found - over_white(rgb, alpha)).max() < 2


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
    for kind, colours in ((6, values), (4, grey[..., None])):
        raw = b"".join(b"\0" + row.tobytes() for row in np.dstack([colours, grey.T]).astype(">u2"))
        want = over_white(colours / 257.0, grey.T / 257)
        assert np.abs(pixels(png(8, 8, 16, kind, raw)) - want).max() <= 1
    raw = b"".join(b"\0" + row.tobytes() for row in grey)
    found = pixels(png(8, 8, 16, 0, raw, (b"tRNS", grey[0, 0].tobytes())))
    assert found[0, 0, 0] == 255
    assert np.array_equal(found[1:, :, 0], np.rint(grey[1:] / 257))


def inks_in_files(cmyk, encode, **options):
    """Return files of inks: TIFF, JPEG of Adobe, and without its mark: then 255 is most."""
    marked, plain = (
        encode(each, "JPEG", quality=100, **options) for each in (cmyk, ImageChops.invert(cmyk))
    )
    at = plain.index(b"\xff\xee\0\x0eAdobe")
    return encode(cmyk, "TIFF", **options), marked, plain[:at] + plain[at + 16 :]


def test_cmyk_is_inverted_where_adobe_wrote_it(picture, encode):
    for data in inks_in_files(picture().convert("CMYK"), encode):
        assert np.abs(pixels(data).astype(int) - picture()).mean() < 3


def test_ycbcr_hsv_and_lab(encode):
    colours = np.array([[[255, 255, 255], [0, 0, 0], [200, 40, 40], [30, 90, 200]]], dtype=np.uint8)
    image = Image.fromarray(np.repeat(np.repeat(colours, 4, 0), 4, 1))
    for mode in ("YCbCr", "HSV"):
        assert np.abs(rgb_of_image(image.convert(mode)).astype(int) - image).max() <= 6
    # white, black, grey, red and blue; a* and b* are signed
    lab = [(255, 0, 0), (0, 0, 0), (136, 0, 0), (138, 81, 70), (82, 79, 256 - 108)]
    found = pixels(encode(Image.frombytes("LAB", (5, 1), np.uint8(lab).tobytes()), "TIFF"))[0]
    want = [[255] * 3, [0] * 3, [128] * 3, [255, 0, 0], [0, 0, 255]]
    assert (np.abs(found - np.array(want, float)).max(axis=1) <= [0, 0, 2, 8, 12]).all()


def test_the_callers_image_is_not_changed():
    image = Image.new("RGB", (2, 1), (1, 2, 3))
    image.putpixel((1, 0), (4, 5, 6))
    image.info["transparency"] = (256, 512, 768)
    assert rgb_of_image(image).tolist() == [[[255] * 3, [4, 5, 6]]]
    assert image.info["transparency"] == (256, 512, 768)
    palette = Image.new("P", (2, 1))  # with alpha of its own
    palette.putpalette([255, 0, 0, 255, 0, 0, 255, 0], "RGBA")
    palette.putpixel((1, 0), 1)
    for held in (palette, palette.convert("PA")):
        assert rgb_of_image(held).tolist() == [[[255, 0, 0], [255, 255, 255]]]


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


def curve(*values):
    return b"curv\0\0\0\0" + struct.pack(f">I{len(values)}H", len(values), *values)


def of_primaries(primaries, tones):
    columns = zip((b"rXYZ", b"gXYZ", b"bXYZ"), map(xyz, primaries.T), strict=True)
    curves = dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), tones)
    return icc(b"RGB ", b"XYZ ", dict(columns) | curves)


WIDE = of_primaries(ADOBE, curve(round(256 * GAMMA)))
#: Greys of linear light, of which the darkest is not black, and colours that are almost sRGB.
GREYS = icc(b"GRAY", b"XYZ ", {b"kTRC": curve(600, 65535)})
LINEAR = ((np.linspace(0, 1, 256) + 0.055) / 1.055) ** 2.4
ALMOST = of_primaries(SRGB, curve(*np.rint(65535 * LINEAR**1.01).astype(int)))


def inks():
    """Return a profile under which every full ink but black is paper, and black is black."""
    identity = bytes(range(256))
    corners = bytes(
        value for *_, k in product((0, 1), repeat=4) for value in ((0 if k else 255), 128, 128)
    )
    unit = struct.pack(">9i", *(65536 * (row == column) for row in range(3) for column in range(3)))
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + unit + 4 * identity + corners + 3 * identity
    # paper that is not white is displayed as white
    return icc(b"CMYK", b"Lab ", {b"A2B0": table, b"wtpt": xyz((0.8, 0.82, 0.6))})


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


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_colours_of_another_space_become_srgb(kind, picture, encode):
    image = muted(picture)
    options = {"lossless": True} if kind == "WEBP" else {}
    found = pixels(encode(image, kind, icc_profile=WIDE, **options))
    stored = pixels(encode(image, kind, **options))
    assert np.abs(found - of_adobe(stored)).max() <= 3
    assert np.abs(found - stored.astype(float)).max() > 5
    file = Image.open(io.BytesIO(encode(image, kind, icc_profile=WIDE, **options)))
    (held,) = open_images([file]).opener.read([0])
    assert np.array_equal(held, found)


def test_greys_by_their_curve(picture, encode):
    image = picture().convert("L")
    found = pixels(encode(image, icc_profile=GREYS))
    assert np.abs(found[..., 0] - displayed(np.asarray(image) / 255.0)).max() <= 2


def test_inks_by_their_profile(encode):
    image = Image.new("CMYK", (4, 1))
    for x, ink in enumerate([(0, 0, 0, 0), (255, 255, 255, 0), (0, 0, 0, 255), (255, 0, 255, 255)]):
        image.putpixel((x, 0), ink)
    for data in inks_in_files(image.resize((64, 16), 0), encode, icc_profile=inks()):
        assert pixels(data)[8, 8::16].tolist() == [[255] * 3, [255] * 3, [0] * 3, [0] * 3]


@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
def test_opacity_is_kept(mode, picture, encode):
    image = muted(picture).convert(mode)
    colours, options = np.asarray(image.convert("RGB")), {"transparency": bytes(range(256))}
    alpha = np.asarray(image)
    if mode != "P":
        alpha, options = np.tile(np.arange(48, dtype=np.uint8) * 5, (32, 1)), {}
        image.putalpha(Image.fromarray(alpha))
    profile, shown = (
        (GREYS, displayed(colours / 255.0)) if mode == "L" else (WIDE, of_adobe(colours))
    )
    found = pixels(encode(image, icc_profile=profile, **options))
    assert np.abs(found - over_white(shown, alpha)).max() <= 3


SAME = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.mark.parametrize("profile", [b"words", b"", WIDE[:200], GREYS, inks(), SAME, ALMOST])
def test_a_profile_that_does_not_fit_or_is_srgb_changes_no_value(profile, picture, encode):
    image = picture()
    assert np.array_equal(pixels(encode(image, icc_profile=profile)), np.asarray(image))


def test_deep_colours_have_a_profile_too(picture):
    values = np.asarray(muted(picture))
    raw = b"".join(b"\0" + row.tobytes() for row in (257 * values.astype(np.uint16)).astype(">u2"))
    deep = png(48, 32, 16, 2, raw, (b"iCCP", b"wide\0\0" + zlib.compress(WIDE)))
    assert np.abs(pixels(deep) - of_adobe(values)).max() <= 3
    raw = b"".join(b"\0" + row.tobytes() for row in 257 * values[..., 0].astype(">u2"))
    deep = png(48, 32, 16, 0, raw, (b"iCCP", b"greys\0\0" + zlib.compress(GREYS)))
    assert np.abs(pixels(deep) - displayed(values[..., :1] / 255.0)).max() <= 3


INDEX = {"photometric": "palette", "colormap": np.zeros((3, 256), np.uint16)}
INDEX["colormap"][:, :2] = [[65535, 0], [0, 26214], [13107, 52428]]
INKS = {"photometric": "separated"}
BANDS = {"photometric": "minisblack", "planarconfig": "contig"}
RGBX, RGBA, RGBa = (BANDS | {"photometric": "rgb", "extrasamples": [kind]} for kind in (0, 2, 1))
SEEN = [(191, 127, 159), (255, 255, 0)]
#: Values of one row of a TIFF file, how they are stored, and the colours that are displayed.
ROWS = [
    (np.uint8([0, 1]), INDEX, [(255, 0, 51), (0, 102, 204)]),
    (np.uint8([[0], [200]]), {"photometric": "miniswhite"}, [[255], [55]]),
    (np.uint8([[64, 0, 32, 128], [160, 0, 0, 128]]), RGBa, [(191, 127, 159), (255, 127, 127)]),
    (np.uint16([[1024, 0, 512, 2048], [4095, 4095, 0, 4095]]), RGBa, SEEN),
    (np.float32([[0.25, 0, 0.125, 0.5], [1, 1, 0, 1]]), RGBa, SEEN),
    (np.uint8([[100, 0, 50, 128], [9, 9, 9, 0]]), RGBA, [(177, 127, 152), (255, 255, 255)]),
    (np.uint8([[100, 0, 50, 128]]), BANDS | {"extrasamples": [0, 0, 2]}, [(177, 127, 152)]),
    (np.uint8([[10, 20, 30, 0]]), RGBX, [(10, 20, 30)]),
    (np.uint8([[10, 20, 30, 9, 0]]), RGBX | {"extrasamples": [0, 1]}, [(10, 20, 30)]),
    (np.uint8([[0, 0, 0, 0], [0, 0, 0, 255]]), INKS, [[255], [0]]),
    (np.uint8([[255, 255, 255, 0]]), INKS | {"iccprofile": inks()}, [[255]]),
    (np.uint16([[9, 9, 9, 0]]), INKS, None),  # of which pages are not read
    (np.uint8([[9, 9, 9]]), {"photometric": "cielab"}, None),
    (np.uint8([[90, 120, 150]]), {"iccprofile": WIDE}, of_adobe(np.array([[90, 120, 150]]))),
]


@pytest.mark.parametrize(("values", "options", "shown"), ROWS)
def test_a_file_and_a_page_of_tiff_by_hand(values, options, shown, tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", values[None], **{"photometric": "rgb"} | options)
    (page,) = open_images(f"tiff:{tmp_path / 'a.tif'}").opener.read([0])
    if shown is None:
        assert page.reason == "unsupported"
        return
    for found in (page, pixels((tmp_path / "a.tif").read_bytes())):
        assert np.abs(found[0].astype(int) - shown).max() <= 1
