"""Small sets with planted leaks, predictions and a diffusion model for :mod:`golden`.

Everything is made of the images that ship with scikit-image and fixed seeds, without a download.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageEnhance, ImageOps

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]

import demo  # noqa: E402  (a script of another folder)

#: Photographs: in the training set, only in the test set, and leaks of each kind.
TRAINING, CLEAN, EACH = 66, 12, 1

#: Side of tiny images, and numbers of photographs for the three tiny sets.
SIDE, TINY_TRAIN, TINY_TEST, POOL = 32, 70, 22, 58

#: Tiny images that leak; each change below applies to every fifth of them.
TINY_LEAKS = 20

#: The file of the named sets of a study.
STUDY: Final = """title = "Golden"

[audit]
local = false

[sets.photos-train]
dataset = "photos"
roles = ["T"]
source = "photos/train"

[sets.photos-test]
dataset = "photos"
roles = ["B"]
source = "photos/test"

[sets.tiny-train]
dataset = "tiny"
roles = ["T"]
source = "tiny/train"

[sets.pool]
roles = ["P"]
source = "tiny/pool"
"""


def build(folder: Path) -> None:
    """Write all inputs except the diffusion model into a folder."""
    demo.TRAINING, demo.CLEAN, demo.EACH = TRAINING, CLEAN, EACH
    planted = demo.build(folder / "photos")
    _tiny_sets(folder / "tiny")
    (folder / "sets.toml").write_text(STUDY, encoding="utf-8")
    images = sorted(
        path.relative_to(folder / "photos" / "test").as_posix()
        for path in (folder / "photos" / "test").rglob("*.*")
    )
    _table(folder / "model.csv", ("id", "prediction", "correct", "loss"), _predictions(images))
    _table(folder / "curve.csv", ("step", "repetition", "accuracy", "mAP"), _curve())
    judged = [
        (leak.query, leak.source, 0.1, row % 4)
        for row, leak in enumerate(leak for leak in planted if leak.source_set == "train")
    ]
    _table(folder / "judged.csv", ("TestID", "TrainID", "Distance", "Judgment"), judged)


def build_pipeline(folder: Path) -> None:
    """Write a diffusion model with random weights and its prompts; needs torch and diffusers."""
    import tiny_pipelines

    tiny_pipelines.saved(tiny_pipelines.stable_diffusion, folder / "pipeline")
    prompts = {"a photo of cat": 1, "a photo of dog": 1, "red house on hill": 0, "the sun": 0}
    _table(folder / "prompts.csv", ("prompt", "label"), prompts.items())
    words = (("cat", "dog", "red house"), ("sun", "photo"), ("hill", "house"))
    general = [(f"{a} {b} on the {c}",) for a in words[0] for b in words[1] for c in words[2]]
    _table(folder / "general.csv", ("caption",), general)


def digests(folder: Path) -> dict[str, str]:
    """Return the BLAKE2b digest of every file of a folder by its name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path.read_bytes()) for path in files}


def digest(content: bytes) -> str:
    """Return the BLAKE2b-128 digest of some bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _tiny_sets(folder: Path) -> None:
    """Write ``train``, ``test`` with changed copies of training images, and ``pool``."""
    size = (SIDE, SIDE)
    images = [
        (label, demo._png(image.convert("RGB").resize(size, Image.Resampling.LANCZOS)))
        for label, image in demo.photographs(TINY_TRAIN + TINY_TEST + POOL)
    ]
    train = _named(images[:TINY_TRAIN], "")
    test = _named(images[TINY_TRAIN : TINY_TRAIN + TINY_TEST], "u")
    repeated = min(test)
    for number, name in enumerate(sorted(train)[: 3 * TINY_LEAKS : 3]):
        change = CHANGES[number % len(CHANGES)]
        test[f"{name.partition('/')[0]}/t{number:03d}.png"] = change(train[name])
    test[f"{repeated.partition('/')[0]}/w000.png"] = _darker(test[repeated])
    pool = _named(images[TINY_TRAIN + TINY_TEST :], "")
    for name, files in {"train": train, "test": test, "pool": pool}.items():
        demo._write(folder / name, files)


def _named(images: Sequence[tuple[str, bytes]], prefix: str) -> dict[str, bytes]:
    return {f"{label}/{prefix}{n:03d}.png": raw for n, (label, raw) in enumerate(images)}


def _darker(raw: bytes) -> bytes:
    return demo._png(ImageEnhance.Brightness(demo._open(raw)).enhance(0.8))


#: Changes of the tiny images that leak.
CHANGES: Final[tuple[Callable[[bytes], bytes], ...]] = (
    lambda raw: raw,
    lambda raw: demo._png(demo._open(demo._jpeg(demo._open(raw), 70))),
    lambda raw: demo._png(ImageOps.mirror(demo._open(raw))),
    _darker,
    lambda raw: demo._png(demo._open(raw).crop((2, 2, SIDE - 2, SIDE - 2)).resize((SIDE, SIDE))),
)


def _share(text: str) -> float:
    """Return a number from 0 to 1, a hash of a text."""
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0] / 256


def _predictions(images: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    """Yield the prediction of a model for each image, of which seven of ten are right."""
    classes = sorted({name.partition("/")[0] for name in images})
    following: Mapping[str, str] = dict(zip(classes, classes[1:] + classes[:1], strict=True))
    for name in images:
        own, right = name.partition("/")[0], _share(name) < 0.7
        answer = own if right else following[own]
        yield name, answer, int(right), round(2 - 2 * _share(f"loss {name}"), 3)


def _curve() -> Iterable[tuple[Any, ...]]:
    """Yield the scores of a curve that rises with each leaked tenth."""
    for step in (0, 10, 20):
        for repetition in (1, 2, 3, 4, 5):
            accuracy = 0.4 + 0.006 * step + 0.01 * _share(f"{step} {repetition}")
            precision = 0.3 + 0.004 * step + 0.02 * _share(f"mAP {step} {repetition}")
            yield step, repetition, round(accuracy, 4), round(precision, 4)


def _table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
