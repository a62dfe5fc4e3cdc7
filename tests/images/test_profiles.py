"""Colour profiles: what is displayed alike is compared alike."""

import io
import struct
from itertools import product

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_images import pixels
from PIL import Image, ImageCms

import visleak
from visleak.formats import open_images
from visleak.images import decode, grey

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
    tags = {b"desc": text(b"desc"), b"cprt": text(b"text"), b"wtpt": xyz(WHITE), **tags}
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


def text(kind):
    if kind == b"text":
        return b"text\0\0\0\0none\0"
    return b"desc\0\0\0\0" + struct.pack(">I", 5) + b"made\0" + bytes(78)


def xyz(values):
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(65536 * each) for each in values))


def curve(gamma):
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(256 * gamma))


def adobe():
    names = (b"rXYZ", b"gXYZ", b"bXYZ")
    tags = {name: xyz(column) for name, column in zip(names, ADOBE.T, strict=True)}
    return icc(b"RGB ", b"XYZ ", tags | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve(GAMMA)))


def greys(gamma):
    return icc(b"GRAY", b"XYZ ", {b"kTRC": curve(gamma)})


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
    found = pixels(encode(image, kind, icc_profile=adobe(), **options))
    assert np.abs(found - of_adobe(np.asarray(image))).max() <= 3
    assert np.abs(found - np.asarray(image).astype(float)).max() > 5


def test_greys_by_their_curve(picture, encode):
    image = picture().convert("L")
    found = pixels(encode(image, icc_profile=greys(1.0)))
    assert np.abs(found[..., 0] - displayed(np.asarray(image) / 255.0)).max() <= 2
    light = grey(encode(image, icc_profile=greys(1.0)))
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
    plain, found = encode(image), encode(image, icc_profile=adobe())
    assert np.abs(pixels(found).astype(int) - pixels(plain)).max() > 5
    if mode == "RGBA":
        rows = np.asarray(image.getchannel("A"))
        assert np.array_equal(pixels(found)[rows == 0], pixels(plain)[rows == 0])


@pytest.mark.parametrize("profile", [b"words", b"", adobe()[:200], greys(1.0), inks()])
def test_a_profile_that_does_not_fit_is_ignored(profile, picture, encode):
    image = picture()
    assert np.array_equal(pixels(encode(image, icc_profile=profile)), np.asarray(image))


def test_srgb_changes_no_value(picture, encode):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert np.array_equal(pixels(encode(picture(), icc_profile=profile)), np.asarray(picture()))


def test_an_image_of_a_program_is_converted_as_its_file(picture, encode):
    data = encode(muted(picture), icc_profile=adobe())
    (found,) = open_images([Image.open(io.BytesIO(data))]).opener.read([0])
    assert np.array_equal(found, pixels(data))


def test_deep_colours_have_a_profile_too(picture, encode):
    import imagecodecs

    values = np.asarray(muted(picture))
    deep = imagecodecs.png_encode(values.astype(np.uint16) * 257)
    at = deep.index(b"IDAT") - 4
    chunk = encode(muted(picture), icc_profile=adobe())
    start = chunk.index(b"iCCP") - 4
    end = start + 12 + int.from_bytes(chunk[start : start + 4], "big")
    found = decode(deep[:at] + chunk[start:end] + deep[at:]).pixels
    assert np.abs(found.astype(float) - of_adobe(values)).max() <= 3


def test_a_photograph_in_two_spaces_is_exact(tmp_path, natural):
    image = Image.fromarray(natural["astronaut"]).resize((256, 256))
    for side in ("test", "train"):
        (tmp_path / side).mkdir()
    image.save(tmp_path / "train" / "a.png")
    profile = io.BytesIO(adobe())
    wide = ImageCms.profileToProfile(image, ImageCms.createProfile("sRGB"), profile)
    wide.save(tmp_path / "test" / "a.png", icc_profile=adobe())
    audit = visleak.audit(str(tmp_path / "test"), str(tmp_path / "train"), workers=1)
    assert pq.read_table(audit.folder / "pairs.parquet")["grade"].to_pylist() == ["exact"]
