"""Plant leaks of every kind in real photographs, audit them, and count the leaks found.

Run by ``make demo``. The photographs are regions of the images that ship inside the
scikit-image package: no download. The planted leaks are written to ``truth.csv``, which the audit
does not read; file names are random.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from skimage import data

Pixels = npt.NDArray[np.uint8]

#: Image -> width and height of its regions. All of them ship with scikit-image. Its textures are
#: not used, because they repeat their content.
PICTURES: Final[Mapping[str, tuple[int, int]]] = {
    "astronaut": (168, 126),
    "camera": (168, 126),
    "chelsea": (148, 111),
    "coffee": (148, 111),
    "coins": (128, 100),
    "hubble_deep_field": (192, 144),
    "immunohistochemistry": (168, 126),
    "moon": (168, 126),
    "retina": (256, 192),
    "rocket": (160, 106),
    "stereo_motorcycle": (148, 111),
}

#: Least detail of a region (mean gradient in grey levels).
DETAIL: Final = 2.0

#: Photographs on the training side, and unique ones on the test side.
TRAINING: Final = 120
CLEAN: Final = 20

#: Planted leaks per kind.
EACH: Final = 3

#: Colour of the blank images.
BLANK: Final = (40, 44, 52)

TRUTH: Final = "truth.csv"
SEED: Final = 2025


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted leak: the change, the test image, and its source.

    Attributes:
        kind: change of the source.
        query: id of the test image.
        source_set: ``train``, or ``test`` for a duplicate within the test set.
        source: id of the source.
    """

    kind: str
    query: str
    source_set: str
    source: str


@dataclass(frozen=True, slots=True)
class Count:
    """Numbers of leaks of a kind: planted, listed as pairs, and graded near or exact."""

    kind: str
    planted: int
    listed: int
    found: int


# -- photographs ---------------------------------------------------------------------------------


def photographs(count: int) -> list[tuple[str, Image.Image]]:
    """Return non-overlapping regions of the shipped images with the names of the images."""
    rng = np.random.default_rng(SEED)
    waiting = {name: list(_regions(name, *size)) for name, size in PICTURES.items()}
    for regions in waiting.values():
        rng.shuffle(regions)
    chosen: list[tuple[str, Image.Image]] = []
    while len(chosen) < count:
        if not any(waiting.values()):
            raise SystemExit(f"the shipped images give only {len(chosen)} of {count} regions")
        # alternately, so that both sides have every class
        chosen += [(name, Image.fromarray(left.pop())) for name, left in waiting.items() if left]
    return chosen[:count]


def _regions(name: str, width: int, height: int) -> Iterator[Pixels]:
    """Yield the regions of an image that have detail."""
    picture = getattr(data, name)()
    pixels = np.asarray(picture[0] if isinstance(picture, tuple) else picture, np.uint8)
    for top in range(0, pixels.shape[0] - height + 1, height):
        for left in range(0, pixels.shape[1] - width + 1, width):
            region = pixels[top : top + height, left : left + width]
            grey = region.reshape(height, width, -1).mean(axis=2)
            if np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey)).mean() >= DETAIL:
                yield np.ascontiguousarray(region)


# -- changes of images --------------------------------------------------------------------------


def _jpeg(image: Image.Image, quality: int = 92) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()


def _png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _resized(image: Image.Image) -> Image.Image:
    size = (round(image.width * 0.6), round(image.height * 0.6))
    return image.resize(size, Image.Resampling.LANCZOS)


def _tinted(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image.convert("RGB"), np.float32) * np.array([1.2, 0.95, 0.65], np.float32)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _cropped(image: Image.Image, share: float) -> Image.Image:
    width, height = round(image.width * share), round(image.height * share)
    left, top = (image.width - width) // 3, (image.height - height) // 3
    return image.crop((left, top, left + width, top + height))


def _captioned(image: Image.Image) -> Image.Image:
    result = image.convert("RGB")
    draw = ImageDraw.Draw(result)
    draw.rectangle((0, image.height - 16, image.width, image.height), fill="black")
    draw.text((4, image.height - 14), "holiday 2019", fill="white")
    return result


#: Kind of leak -> change of the bytes of the source, and the extension of the new file.
KINDS: Final[Mapping[str, tuple[Callable[[bytes], bytes], str]]] = {
    "byte copy": (lambda raw: raw, ".jpg"),
    "re-encoded as PNG": (lambda raw: _png(_open(raw)), ".png"),
    "re-saved, JPEG quality 40": (lambda raw: _jpeg(_open(raw), 40), ".jpg"),
    "resized to 60 %": (lambda raw: _jpeg(_resized(_open(raw))), ".jpg"),
    "mirrored": (lambda raw: _jpeg(ImageOps.mirror(_open(raw))), ".jpg"),
    "quarter turn": (lambda raw: _jpeg(_open(raw).transpose(Image.Transpose.ROTATE_90)), ".jpg"),
    "brighter": (lambda raw: _jpeg(ImageEnhance.Brightness(_open(raw)).enhance(1.4)), ".jpg"),
    "tinted": (lambda raw: _jpeg(_tinted(_open(raw))), ".jpg"),
    "made grey": (lambda raw: _jpeg(_open(raw).convert("L")), ".jpg"),
    "caption laid over": (lambda raw: _jpeg(_captioned(_open(raw))), ".jpg"),
    "cropped to 85 % of each side": (lambda raw: _jpeg(_cropped(_open(raw), 0.85)), ".jpg"),
    "cropped to 50 % of each side": (lambda raw: _jpeg(_cropped(_open(raw), 0.5)), ".jpg"),
}

OTHER_LABEL: Final = "byte copy under another label"
REPEAT: Final = "repeat within the test set"


def _open(raw: bytes) -> Image.Image:
    return Image.open(io.BytesIO(raw))


# -- the set -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _New:
    """A test image without a name: label, extension, bytes; kind and source of a leak."""

    label: str
    ending: str
    raw: bytes
    kind: str = ""
    source: str = ""


def build(folder: Path) -> tuple[Planted, ...]:
    """Write ``train/``, ``test/`` and ``truth.csv``; return the planted leaks.

    The result is deterministic. ``truth.csv`` is written last.
    """
    for name in ("train", "test"):
        shutil.rmtree(folder / name, ignore_errors=True)
    rng = np.random.default_rng(SEED)
    taken = photographs(TRAINING + CLEAN)
    train = {
        f"{label}/{number:04d}.jpg": _jpeg(image)
        for number, (label, image) in enumerate(taken[:TRAINING])
    }
    images = [_New(label, ".jpg", _jpeg(image)) for label, image in taken[TRAINING:]]
    images += _leaks(train, rng)
    # names in random order, so that they contain no information
    order = rng.permutation(len(images))
    names = [f"{image.label}/{n:04d}{image.ending}" for image, n in zip(images, order, strict=True)]
    test = {name: image.raw for name, image in zip(names, images, strict=True)}
    planted = [
        Planted(image.kind, name, "train", image.source)
        for name, image in zip(names, images, strict=True)
        if image.kind
    ]
    repeat = f"{images[0].label}/{len(images):04d}.jpg"
    test[repeat] = _jpeg(_open(images[0].raw), 60)
    planted.append(Planted(REPEAT, repeat, "test", names[0]))
    test["coffee/broken.jpg"] = images[1].raw[:1500]
    train["coffee/notes.jpg"] = b"This is a text that somebody called a picture.\n"
    # two blank images of one colour: similar, but not a leak
    test["moon/blank.png"] = _png(Image.new("RGB", (96, 96), BLANK))
    train["moon/blank.png"] = _png(Image.new("RGB", (128, 96), BLANK))
    _write(folder / "train", train)
    _write(folder / "test", test)
    _write(folder, {TRUTH: _truth(planted)})
    return tuple(planted)


def _leaks(train: Mapping[str, bytes], rng: np.random.Generator) -> Iterator[_New]:
    """Yield changed copies of training images; no source is used twice."""
    sources = rng.permutation(sorted(train)).tolist()
    for kind, (change, ending) in KINDS.items():
        for _ in range(EACH):
            source = sources.pop()
            yield _New(_label(source), ending, change(train[source]), kind, source)
    source = next(name for name in sources if _label(name) != "coins")
    yield _New("coins", ".jpg", train[source], OTHER_LABEL, source)


def _label(name: str) -> str:
    return name.partition("/")[0]


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, raw in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


def _truth(planted: Iterable[Planted]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("kind", "query", "source_set", "source"))
    writer.writerows(astuple(leak) for leak in planted)
    return text.getvalue().encode()


def read_truth(folder: Path) -> tuple[Planted, ...]:
    """Return the leaks planted in a folder; none if no set was finished."""
    path = folder / TRUTH
    if not path.is_file():
        return ()
    with path.open(encoding="utf-8", newline="") as lines:
        return tuple(Planted(**row) for row in csv.DictReader(lines))


# -- comparison with the truth --------------------------------------------------------------------


def compare(audit: Path, planted: Sequence[Planted]) -> tuple[list[Count], list[str]]:
    """Return the counts by kind, and the false alarms.

    Args:
        audit: the audit folder.
        planted: the truth.

    Returns: Counts in the order of planting; a description of each pair that is near or exact and
        was not planted.
    """
    rows = pq.read_table(audit / "pairs.parquet").to_pylist()
    listed = {_key(r["query"], r["reference_set"], r["reference"]): r["grade"] for r in rows}
    truth = {_key(leak.query, leak.source_set, leak.source): leak.kind for leak in planted}
    found = {key for key, grade in listed.items() if grade in ("exact", "near")}
    counts = []
    for kind in dict.fromkeys(truth.values()):
        keys = {key for key, value in truth.items() if value == kind}
        counts.append(Count(kind, len(keys), len(keys & listed.keys()), len(keys & found)))
    # two copies of one training image are true duplicates too
    alarms = [" = ".join(f"{s}/{name}" for s, name in sorted(key)) for key in found - truth.keys()]
    return counts, sorted(alarms)


def _key(query: str, set_name: str, reference: str) -> frozenset[tuple[str, str]]:
    return frozenset({("test", query), (set_name, reference)})


def table(counts: Sequence[Count], alarms: Sequence[str]) -> str:
    """Return the counts as a text table."""
    lines = [f"{'planted leak':<34}{'planted':>8}{'listed':>8}{'found':>8}"]
    for count in counts:
        missed = "" if count.found == count.planted else f"   {count.planted - count.found} missed"
        lines.append(f"{count.kind:<34}{count.planted:>8}{count.listed:>8}{count.found:>8}{missed}")
    total = Count(
        "all",
        sum(c.planted for c in counts),
        sum(c.listed for c in counts),
        sum(c.found for c in counts),
    )
    lines.append(f"{total.kind:<34}{total.planted:>8}{total.listed:>8}{total.found:>8}")
    lines.append("listed: the pair is in pairs.parquet; found: it is graded near or exact")
    lines.append(f"false alarms (graded near or exact, but not planted): {len(alarms)}")
    lines += [f"  {alarm}" for alarm in alarms[:10]]
    return "\n".join(lines)


def main(folder: Path) -> int:
    """Build the set if it does not exist, audit it by the command line, compare; exit code."""
    start = time.monotonic()
    planted = read_truth(folder)
    if not planted:
        print(f"making a set of photographs with planted leaks in {folder}/ ...", flush=True)
        planted = build(folder)
    audit = folder / "audit"
    # --force: the folder may have an audit of an older visleak
    command = ["visleak", "audit", f"{folder}/", "-o", str(audit), "--force"]
    print("$", *command, flush=True)
    environment = {**os.environ, "VISLEAK_CACHE": str(folder / "cache")}
    program = Path(sys.executable).with_name("visleak")
    done = subprocess.run([program, *command[1:]], env=environment, check=False)
    if done.returncode:
        return done.returncode
    summary = json.loads((audit / "audit.json").read_text(encoding="utf-8"))
    print(f"\n{table(*compare(audit, planted))}")
    blank = [f"{s['flat']} in {s['name']}" for s in summary["sets"]]
    print(f"blank images, counted apart: {', '.join(blank)} (1 planted in each)")
    print(f"unreadable: {sum(s['unreadable'] for s in summary['sets'])} (2 planted)")
    print(f"label conflicts: {summary['label_conflicts']} (1 planted)")
    print(f"{time.monotonic() - start:.0f} s. Open the report: {(audit / 'report.html').resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo")))
