"""Images of every unusual kind are audited, broken ones are listed, blank ones add no leaks."""

import io
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping

import cv2
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from PIL import Image, PngImagePlugin

import visleak
from visleak.images import decode
from visleak.records import DecodedImage

#: Lossless formats with the options that make them so.
LOSSLESS: Mapping[str, Mapping[str, object]] = {
    "PNG": {},
    "BMP": {},
    "TIFF": {"compression": "tiff_lzw"},
    "WEBP": {"lossless": True},
}


def saved(picture: Image.Image, format_: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


def with_bytes(pixels: np.ndarray) -> bytes:
    """Return a PNG with as many bits as the values have."""
    _, data = cv2.imencode(".png", pixels)
    return data.tobytes()


class Maker:
    """Makes one image of each odd kind; no two have a part in common."""

    def __init__(self, natural: Mapping[str, np.ndarray]) -> None:
        self._natural = natural
        self._next = iter(range(10_000))

    def crop(self, width: int = 120, height: int = 100) -> Image.Image:
        number = next(self._next)
        name = list(self._natural)[number % len(self._natural)]
        source = self._natural[name]
        rng = np.random.default_rng(number)
        top = int(rng.integers(0, source.shape[0] - height + 1))
        left = int(rng.integers(0, source.shape[1] - width + 1))
        return Image.fromarray(source[top : top + height, left : left + width])

    def alpha(self, mode: str) -> Image.Image:
        picture = self.crop().convert(mode)
        picture.putalpha(Image.linear_gradient("L").resize(picture.size))
        return picture

    def long(self, width: int, height: int) -> Image.Image:
        canvas = Image.new("RGB", (width, height))
        for at in range(0, max(width, height), 100):
            canvas.paste(self.crop(100, 100), (at, 0) if width > height else (0, at))
        return canvas

    def animated(self, format_: str, **options: object) -> bytes:
        first, *others = (self.crop() for _ in range(3))
        return saved(first, format_, save_all=True, append_images=others, duration=100, **options)

    def turned(self) -> bytes:
        exif = Image.Exif()
        exif[0x0112] = 6
        return saved(self.crop(), "JPEG", quality=95, exif=exif.tobytes())


KINDS: Mapping[str, Callable[[Maker], bytes]] = {
    "one-pixel.png": lambda m: saved(Image.new("RGB", (1, 1), (200, 30, 90)), "PNG"),
    "thin.png": lambda m: saved(m.crop(100, 2), "PNG"),
    "grey-16-bit.png": lambda m: with_bytes(
        np.asarray(m.crop().convert("L")).astype(np.uint16) * 257
    ),
    "colour-16-bit.png": lambda m: with_bytes(np.asarray(m.crop()).astype(np.uint16) * 257),
    "cmyk.jpg": lambda m: saved(m.crop().convert("CMYK"), "JPEG", quality=95),
    "palette.png": lambda m: saved(m.crop().quantize(64), "PNG"),
    "palette.gif": lambda m: saved(m.crop().quantize(64), "GIF"),
    "animated.gif": lambda m: m.animated("GIF"),
    "animated.webp": lambda m: m.animated("WEBP", lossless=True),
    "wide.png": lambda m: saved(m.long(20_000, 100), "PNG"),
    "tall.jpg": lambda m: saved(m.long(100, 20_000), "JPEG", quality=95),
    "grey.jpg": lambda m: saved(m.crop().convert("L"), "JPEG", quality=95),
    "alpha.png": lambda m: saved(m.alpha("RGB"), "PNG"),
    "grey-alpha.png": lambda m: saved(m.alpha("L"), "PNG"),
    "one-bit.png": lambda m: saved(m.crop().convert("1"), "PNG"),
    "turned.jpg": lambda m: m.turned(),
    "grey-12-bit.png": lambda m: with_bytes(
        np.asarray(m.crop().convert("L")).astype(np.uint16) << 4
    ),
    "colour-12-bit.png": lambda m: with_bytes(np.asarray(m.crop()).astype(np.uint16) << 4),
}


def resaved(data: bytes, number: int) -> tuple[str, bytes]:
    """Return a format and a file of another format with the very pixels people see."""
    picture = decode(data)
    assert isinstance(picture, DecodedImage)
    image = Image.fromarray(np.asarray(picture.pixels))
    formats = [name for name in LOSSLESS if name != "WEBP" or max(image.size) < 16_000]
    own = Image.open(io.BytesIO(data)).format
    format_ = [name for name in formats if name != own][number % 2]
    return format_, saved(image, format_, **LOSSLESS[format_])


Rows = dict[tuple[str, str], dict[str, object]]


def rows_of(found: visleak.Audit) -> Rows:
    rows = found.pairs().to_pylist()
    return {(row["query"], row["reference"]): row for row in rows if row["coverage"] != "within"}


def near_in(found: visleak.Audit) -> set[tuple[str, str]]:
    return {pair for pair, row in rows_of(found).items() if row["grade"] in ("exact", "near")}


def audited(test: object, train: object) -> visleak.Audit:
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
    names: dict[str, dict[str, str]] = {"copies": {}, "resaves": {}}
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


@pytest.mark.parametrize("bits", [12, 10])
def test_bits_that_are_not_used_cost_no_contrast(natural, tmp_path, bits):
    for folder in ("test", "train"):
        (tmp_path / folder).mkdir()
    sources = [natural[name][:240, :320] for name in sorted(natural)[:3]]
    for number, source in enumerate(sources):
        grey = cv2.cvtColor(source, cv2.COLOR_RGB2GRAY)
        wide = grey.astype(np.uint16) << (bits - 8)
        (tmp_path / "test" / f"{number}.png").write_bytes(with_bytes(wide))
        copy = Image.fromarray(grey).resize((grey.shape[1] * 7 // 10, grey.shape[0] * 7 // 10))
        copy.save(tmp_path / "train" / f"{number}.jpg", quality=50)
    near = near_in(audited(tmp_path / "test", tmp_path / "train"))
    assert near == {(f"{number}.png", f"{number}.jpg") for number in range(len(sources))}


def huge_png(side: int) -> bytes:
    """Return a whole black PNG of one bit a pixel, never held unpacked."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    packer, row = zlib.compressobj(1), bytes(1 + side // 8)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="module")
def broken(pictures, tmp_path_factory):
    """Two lists of the same broken files beside some good ones, and what is wrong in a third."""
    root = tmp_path_factory.mktemp("broken")
    bad = {
        "truncated.png": pictures["palette.png"][:-2000],
        "truncated.jpg": pictures["grey.jpg"][: len(pictures["grey.jpg"]) // 2],
        "truncated.gif": pictures["palette.gif"][:1500],
        "truncated.webp": pictures["animated.webp"][:2000],
        "empty.jpg": b"",
        "text.jpg": b"no picture at all",
        "large.png": huge_png(30_000),
    }
    for folder in ("test", "train"):
        (root / folder).mkdir()
        for name, data in bad.items():
            (root / folder / name).write_bytes(data)
        for name in ("palette.png", "cmyk.jpg", "alpha.png"):
            (root / folder / name).write_bytes(pictures[name])
        names = [*sorted(path.name for path in (root / folder).iterdir()), "absent.png"]
        lines = "".join(f"{folder}/{name}\n" for name in names)
        (root / f"{folder}.txt").write_text(lines)
    return root


REASONS = {
    **{f"truncated.{kind}": "truncated" for kind in ("png", "jpg", "gif", "webp")},
    "empty.jpg": "empty",
    "text.jpg": "not-an-image",
    "large.png": "too-large",
    "absent.png": "missing",
}


def test_what_cannot_be_read_is_listed_with_its_reason(broken):
    audit = audited(broken / "test.txt", broken / "train.txt")
    listed = {(p.set, p.id): p.reason for p in audit.unreadable()}
    assert listed == {
        (side, f"{side}/{name}"): reason
        for side in ("test", "train")
        for name, reason in REASONS.items()
    }
    # and becomes no result
    assert audit.rate("exact").count == audit.rate("exact").total == 3
    assert {
        row["grade"] for row in rows_of(audit).values() if row["reason"] == "identical bytes"
    } == {"exact"}
    assert not {name for pair in rows_of(audit) for name in pair} & {id_ for _, id_ in listed}
    assert len(audit.images()) == 6


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_listed(broken, pictures, tmp_path):
    for name in ("palette.png", "cmyk.jpg"):
        (tmp_path / name).write_bytes(pictures[name])
    (tmp_path / "cmyk.jpg").chmod(0)
    audit = audited(tmp_path, broken / "train.txt")
    listed = {p.id: p.reason for p in audit.unreadable() if p.set == "test"}
    assert listed == {"cmyk.jpg": "no-permission"}
    assert audit.rate("exact").count == 1


def gradient(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Return a linear gradient, steep enough not to pass for blank."""
    low, high = rng.integers(0, 60, 3), rng.integers(150, 256, 3)
    steps = np.linspace(0, 1, width)[None, :, None] * (high - low) + low
    return np.broadcast_to(np.rint(steps), (height, width, 3)).astype(np.uint8)


def noise(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


@st.composite
def picture_specs(draw: st.DrawFn) -> tuple[str, int, int, int, str, str]:
    formats = draw(st.permutations(list(LOSSLESS)))
    return (
        draw(st.sampled_from(["noise", "gradient", "natural"])),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(3, 120)),
        draw(st.integers(3, 120)),
        *formats[:2],
    )


@hypothesis.settings(max_examples=5)
@hypothesis.given(specs=st.lists(picture_specs(), min_size=12, max_size=12))
def test_equal_pixels_are_always_exact(natural, tmp_path_factory, specs):
    root = tmp_path_factory.mktemp("equal")
    for folder in ("test", "train"):
        (root / folder).mkdir()
    for number, (kind, seed, width, height, *formats) in enumerate(specs):
        rng = np.random.default_rng([seed, number])
        if kind == "natural":
            source = natural[sorted(natural)[seed % len(natural)]]
            top, left = (
                int(rng.integers(0, whole - part))
                for whole, part in zip(source.shape, (height, width), strict=False)
            )
            pixels = source[top : top + height, left : left + width]
        else:
            pixels = {"noise": noise, "gradient": gradient}[kind](rng, width, height)
        for folder, format_ in zip(("test", "train"), formats, strict=True):
            data = saved(Image.fromarray(pixels), format_, **LOSSLESS[format_])
            (root / folder / f"{number}.{format_.lower()}").write_bytes(data)
    audit = audited(root / "test", root / "train")
    rows = rows_of(audit)
    for number, (*_, left, right) in enumerate(specs):
        pair = (f"{number}.{left.lower()}", f"{number}.{right.lower()}")
        assert pair in rows, specs[number]
        assert rows[pair]["grade"] == "exact", (specs[number], rows[pair])


def blanks(count: int, seed: int) -> Iterator[bytes]:
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
    audit = audited(tmp_path / "test", tmp_path / "train")
    near = [row["query"] for row in audit.pairs().to_pylist() if row["grade"] in ("exact", "near")]
    assert near == ["copy.jpg"]
