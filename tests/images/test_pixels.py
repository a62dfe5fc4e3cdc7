"""Modes of images, against oracles in numpy."""

import numpy as np
import pytest
from made_images import pixels, png
from PIL import Image, ImageChops

from visleak.images.pixels import rgb_of_image


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


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind, picture, encode):
    rgb = np.asarray(picture())
    image = Image.fromarray(rgb).convert("CMYK")
    found = pixels(encode(image, kind, **({"quality": 100} if kind == "JPEG" else {})))
    assert np.abs(found.astype(int) - rgb).mean() < 3


def test_cmyk_is_inverted_where_adobe_wrote_it(picture, encode):
    cmyk = picture().convert("CMYK")
    marked = encode(cmyk, "JPEG", quality=100)
    assert b"Adobe" in marked
    # without Adobe's mark, values are inks: 255 is most
    at = marked.index(b"\xff\xee")
    plain = encode(ImageChops.invert(cmyk), "JPEG", quality=100)
    plain = plain[:at] + plain[at + 2 + int.from_bytes(plain[at + 2 : at + 4], "big") :]
    assert b"Adobe" not in plain
    assert np.abs(pixels(plain).astype(int) - pixels(marked)).max() <= 3


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


def test_a_palette_with_alpha_of_its_own():
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 255, 0, 0, 255, 0], "RGBA")
    image.putpixel((1, 0), 1)
    assert rgb_of_image(image).tolist() == [[[255, 0, 0], [255, 255, 255]]]


def test_the_callers_image_is_not_changed():
    image = Image.new("RGB", (2, 1), (1, 2, 3))
    image.putpixel((1, 0), (4, 5, 6))
    image.info["transparency"] = (256, 512, 768)
    assert rgb_of_image(image).tolist() == [[[255] * 3, [4, 5, 6]]]
    assert image.info["transparency"] == (256, 512, 768)
