"""Images of every unusual kind are audited, and blank ones add no leaks."""

import io
import time

import cv2
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from PIL import Image, PngImagePlugin

import visleak
from visleak.images import decode

#: Lossless formats with the options that make them so.
LOSSLESS = {"PNG": {}, "BMP": {}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {"lossless": True}}


def saved(picture, format_, **options):
    file = io.BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


def with_bytes(pixels):
    """Return a PNG with as many bits as the values have."""
    _, data = cv2.imencode(".png", pixels)
    return data.tobytes()


class Maker:
    """Makes one image of each odd kind; no two have a part in common."""

    def __init__(self, natural):
        self._natural = natural
        self._next = iter(range(10_000))

    def crop(self, width=120, height=100):
        number = next(self._next)
        source = self._natural[list(self._natural)[number % len(self._natural)]]
        rng = np.random.default_rng(number)
        top = int(rng.integers(0, source.shape[0] - height + 1))
        left = int(rng.integers(0, source.shape[1] - width + 1))
        return Image.fromarray(source[top : top + height, left : left + width])

    def plain(self, kind, mode="RGB", **options):
        return saved(self.crop().convert(mode), kind, **options)

    def wide(self, bits, mode="RGB"):
        """Return an image of 9 to 16 bits."""
        return with_bytes(np.asarray(self.crop().convert(mode)).astype(np.uint16) << (bits - 8))

    def alpha(self):
        picture = self.crop()
        picture.putalpha(Image.linear_gradient("L").resize(picture.size))
        return saved(picture, "PNG")

    def animated(self, format_, **options):
        first, *others = (self.crop() for _ in range(3))
        return saved(first, format_, save_all=True, append_images=others, duration=100, **options)

    def turned(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        return self.plain("JPEG", quality=95, exif=exif.tobytes())


KINDS = {
    "one-pixel.png": lambda m: saved(Image.new("RGB", (1, 1), (200, 30, 90)), "PNG"),
    "thin.png": lambda m: saved(m.crop(100, 2), "PNG"),
    "grey-16-bit.png": lambda m: m.wide(16, "L"),
    "colour-12-bit.png": lambda m: m.wide(12),
    "cmyk.jpg": lambda m: m.plain("JPEG", "CMYK", quality=95),
    "palette.png": lambda m: saved(m.crop().quantize(64), "PNG"),
    "animated.gif": lambda m: m.animated("GIF"),
    "animated.webp": lambda m: m.animated("WEBP", lossless=True),
    "grey.jpg": lambda m: m.plain("JPEG", "L", quality=95),
    "alpha.png": Maker.alpha,
    "one-bit.png": lambda m: m.plain("PNG", "1"),
    "turned.jpg": Maker.turned,
}


def resaved(data, number):
    """Return a format and a file of another format with the very pixels people see."""
    image = Image.fromarray(np.asarray(decode(data).pixels))
    own = Image.open(io.BytesIO(data)).format
    format_ = [name for name in LOSSLESS if name != own][number % 3]
    return format_, saved(image, format_, **LOSSLESS[format_])


def rows_of(found):
    rows = found.pairs().to_pylist()
    return {(row["query"], row["reference"]): row for row in rows if row["coverage"] != "within"}


def near_in(found):
    return {pair for pair, row in rows_of(found).items() if row["grade"] in ("exact", "near")}


def audited(test, train):
    return visleak.audit(test, train, workers=1, cache=None)


@pytest.fixture(scope="module")
def pictures(natural):
    maker = Maker(natural)
    return {name: make(maker) for name, make in KINDS.items()}


@pytest.fixture(scope="module")
def found(pictures, natural, tmp_path_factory):
    """Audits against byte copies and against re-saves, with the name of each one's copy."""
    root = tmp_path_factory.mktemp("hard")
    for folder in ("test", "copies", "resaves"):
        (root / folder).mkdir()
    names = {"copies": {}, "resaves": {}}
    for number, (name, data) in enumerate(pictures.items()):
        (root / "test" / name).write_bytes(data)
        (root / "copies" / f"copy-{name}").write_bytes(data)
        format_, again = resaved(data, number)
        names["copies"][name] = f"copy-{name}"
        names["resaves"][name] = f"{name.replace('.', '-')}.{format_.lower()}"
        (root / "resaves" / names["resaves"][name]).write_bytes(again)
    return {train: (audited(root / "test", root / train), names[train]) for train in names}


@pytest.mark.parametrize("name", KINDS)
def test_a_byte_copy_and_a_resave_with_equal_pixels_are_exact(found, name):
    audit, names = found["copies"]
    row = rows_of(audit)[name, names[name]]
    assert (row["grade"], row["probability"], row["reason"]) == ("exact", 1.0, "identical bytes")
    audit, names = found["resaves"]
    row = rows_of(audit)[name, names[name]]
    if name != "one-pixel.png":
        assert (row["grade"], row["degree"]) == ("exact", "hard")


def test_all_can_be_read_and_none_is_taken_for_another(found):
    for audit, names in found.values():
        assert audit.unreadable() == ()
        assert near_in(audit) <= set(names.items())


SPECS = st.tuples(
    st.sampled_from(["noise", "gradient", "natural"]),
    st.integers(0, 2**32),
    st.integers(3, 120),
    st.integers(3, 120),
    st.permutations(list(LOSSLESS)),
)


def pixels_of(natural, kind, seed, width, height):
    rng = np.random.default_rng(seed)
    if kind == "noise":
        return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == "gradient":  # steep enough not to pass for blank
        low, high = rng.integers(0, 60, 3), rng.integers(150, 256, 3)
        steps = np.linspace(0, 1, width)[None, :, None] * (high - low) + low
        return np.broadcast_to(np.rint(steps), (height, width, 3)).astype(np.uint8)
    source = natural[sorted(natural)[seed % len(natural)]]
    return source[seed % 200 :, seed % 300 :][:height, :width]


@hypothesis.settings(max_examples=5)
@hypothesis.given(specs=st.lists(SPECS, min_size=12, max_size=12))
@hypothesis.example([("gradient", 0, n, 9, list(LOSSLESS)) for n in (3, 4, 5, 6, 7, 104) * 2])
def test_equal_pixels_are_always_exact(natural, tmp_path_factory, specs):
    root = tmp_path_factory.mktemp("equal")
    for folder in ("test", "train"):
        (root / folder).mkdir()
    for number, (kind, seed, width, height, formats) in enumerate(specs):
        image = Image.fromarray(pixels_of(natural, kind, seed + number, width, height))
        for folder, format_ in zip(("test", "train"), formats, strict=False):
            data = saved(image, format_, **LOSSLESS[format_])
            (root / folder / f"{number}.{format_.lower()}").write_bytes(data)
    rows = rows_of(audited(root / "test", root / "train"))
    for number, (*_, (left, right, *_)) in enumerate(specs):
        pair = (f"{number}.{left.lower()}", f"{number}.{right.lower()}")
        assert pair in rows, specs[number]
        assert rows[pair]["grade"] == "exact", (specs[number], rows[pair])


def blanks(count, seed):
    """Yield blank images, no two of the same bytes, most of one colour."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        note = PngImagePlugin.PngInfo()
        note.add_text("Comment", f"{seed} {number}")
        grey = int(rng.choice([255, 255, 255, 0, 128, number % 256]))
        side = int(rng.integers(8, 64))
        yield saved(Image.new("RGB", (side, 32), (grey, grey, grey)), "PNG", pnginfo=note)


def test_blank_pictures_neither_flood_nor_slow_the_result(pictures, tmp_path):
    for seed, folder in enumerate(("test", "train")):
        (tmp_path / folder).mkdir()
        for number, data in enumerate(blanks(500, seed)):
            (tmp_path / folder / f"{number:04}.png").write_bytes(data)
        for name in ("palette.png", "alpha.png")[: 2 - seed]:
            (tmp_path / folder / name).write_bytes(pictures[name])
    begun = time.process_time()
    audit = audited(tmp_path / "test", tmp_path / "train")
    assert time.process_time() - begun < 20
    assert [each["flat"] for each in audit.summary.as_dict()["sets"]] == [500, 500]
    pairs = audit.pairs()
    blank = [row for row in pairs.to_pylist() if row["query"][0].isdigit()]
    assert len(blank) <= 2 * 500
    assert all(row["grade"] in ("exact", "similar") for row in blank)
    assert audit.headline.startswith("1 of 502 test images")
    assert audit.rate("near_or_exact").count == 1


def test_mosaics_of_random_blocks_are_not_near(tmp_path):
    """They share a grid of edges and nothing else; copies of them are found."""
    for folder, seed in (("test", 1), ("train", 2)):
        (tmp_path / folder).mkdir()
        rng = np.random.default_rng(seed)
        for number in range(8):
            blocks = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
            mosaic = blocks.resize((128, 128), Image.Resampling.NEAREST)
            (tmp_path / folder / f"{number}.png").write_bytes(saved(mosaic, "PNG"))
    (tmp_path / "test" / "copy.jpg").write_bytes(saved(mosaic, "JPEG", quality=60))
    near = near_in(audited(tmp_path / "test", tmp_path / "train"))
    assert [query for query, _ in near] == ["copy.jpg"]
