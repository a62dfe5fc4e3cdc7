"""Detection and calibration: the figures of docs/detection.md on CIFAR-10 and photographs.

usage: VISLEAK_DATA=FOLDER python benchmarks/detection.py [cifar] [photos] [speed]

- CIFAR-10: ranking of test images, candidates, calibration, all by 5-fold cross-validation over
  the judged half of the test set.
- Photographs: 19 conditions, the reported half as queries, all as references, whole pipeline.
- Speed of the screen and the full check; re-saves that are exact; rates at the thresholds.

Writes ``detection.json`` and the images in ``docs/detection``, part by part. If parts are named,
the others keep their figures. About 25 minutes on two cores.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import detection_cifar
import detection_figures
import detection_photos
import detection_speed
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from fit_grader import tiny_samples
from PIL import Image
from record import Bar, data_folder, known_figures, write
from samples import (
    Sample,
    candidates,
    cifar,
    cifar_sample,
    compress,
    judgements,
    photographs,
)

from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.images import decode
from visleak.pipeline import RunContext
from visleak.records import GRADES, ImageSet
from visleak.storage.cache import Cache
from visleak.verification import check
from visleak.verification.exact import is_exact

DOCS = Path(__file__).parents[1] / "docs" / "detection"
UNJUDGED_SHOWN = 50

#: Lower limits of R@1 by condition; crop-100 has two.
R1 = {
    **dict.fromkeys(("original", "flip-v", "flip-h", "rs-128", "rs-256", "gray"), 1.0),
    **dict.fromkeys(("red", "green", "blue", "invert", "gauss", "noise"), 0.99),
    **dict.fromkeys(("rot-45", "rot-135", "rot-225", "rot-315", "crop-20", "crop-50"), 0.99),
    "crop-100": 0.96,
}
R1_LARGE = 0.99

#: Lower limits of the share of true pairs that are near or exact.
FOUND, FOUND_HARD = 0.9, 0.7
HARD = ("invert", "noise", "rot-45", "rot-135", "rot-225", "rot-315")

Pixels = npt.NDArray[np.uint8]


def cifar_pixels(data: Path, name: str) -> Pixels:
    """Return CIFAR-10's images by index, (n, 32, 32, 3)."""
    table = pq.read_table(data / "cifar10" / f"{name}.parquet")
    pixels = np.empty((len(table), 32, 32, 3), np.uint8)
    for index, image in zip(table["index"].to_pylist(), table["image"].to_pylist(), strict=True):
        pixels[index] = np.asarray(Image.open(io.BytesIO(image["bytes"])).convert("RGB"))
    return pixels


def on_cifar(data: Path, place: RunContext) -> dict[str, Any]:
    """Measure on CIFAR-10 and draw the pairs without a verdict."""
    found, judged = cifar(data, place), judgements(data)
    sample = cifar_sample(found, judged)
    others = tiny_samples(data)
    figures, probability = detection_cifar.measure(found, judged, sample, others)
    _draw_unjudged(data, sample, probability, judged)
    looked = sample.verdict >= 0
    kept = sample.verdict != -2
    near = (sample.verdict == 0) | (sample.verdict == 1)
    detection_figures.reliability(
        [
            ("judged pairs", probability[looked], near[looked]),
            ("all candidates", probability[kept], near[kept]),
        ],
        DOCS / "reliability.svg",
    )
    return figures


def cifar_bars(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of CIFAR-10."""
    sure = figures["calibration_judged"]
    bars = [
        Bar(f"CIFAR-10 {figure}, {among}", figures[ranking][key]["value"], least, False)
        for ranking, among in (("ranking", "all"), ("ranking_judged_only", "judged images only"))
        for figure, key, least in (
            ("average precision", "average_precision", 0.99),
            ("recall at 95 % precision", "recall_at_95", 0.97),
        )
    ]
    return [
        *bars,
        Bar("near pairs as candidates", figures["near_pairs_among_candidates"], 0.995, False),
        Bar("calibration error, judged pairs", sure["error"], 0.05),
        Bar("recalibration slope, at least", sure["slope"], 0.8, False),
        Bar("recalibration slope, at most", sure["slope"], 1.25),
        Bar(
            "Brier score against the calibrated cosine's",
            sure["brier"], figures["calibration_cosine"]["brier"],
        ),
    ]  # fmt: skip


def _draw_unjudged(
    data: Path,
    sample: Sample,
    probability: npt.NDArray[np.float64],
    judged: dict[tuple[str, str], int],
) -> None:
    """Draw the unjudged test images with the highest scores, with their best pair."""
    queries = detection_cifar.Queries.of(judged)
    test, train = cifar_pixels(data, "test"), cifar_pixels(data, "train")
    rows = detection_cifar.highest_unjudged(probability, sample, queries, UNJUDGED_SHOWN)
    shown = [
        (
            test[sample.query[row]],
            train[int(sample.reference[row])],
            f"test {sample.query[row]}  train {sample.reference[row]}\np = {probability[row]:.2f}",
        )
        for row in rows
    ]
    title = "Unjudged pairs of CIFAR-10, most probable first: test image left, training image right"
    detection_figures.pair_sheet(title, shown, DOCS / "unjudged.jpg", 5, crisp=True)


def on_photos(data: Path, place: RunContext) -> dict[str, Any]:
    """Measure on photographs and draw the wrong pairs that are graded near."""
    figures, ranked, changed, images = detection_photos.measure(str(data / "photos"), place)
    _draw_wrong(ranked, changed, images)
    return figures


def photo_bars(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of photographs."""
    bars = []
    for name, least in R1.items():
        own = figures["pipeline"][name]
        bars.append(Bar(f"R@1 {name}", own["r1"], least, False))
        if name == "crop-100":
            bars.append(Bar("R@1 crop-100, 96 px and more left", own["r1_large"], R1_LARGE, False))
        found = FOUND_HARD if name in HARD else FOUND
        bars.append(Bar(f"near or exact {name}", own["near_or_exact"], found, False))
    wrong, originals = figures["wrong"], figures["originals"]
    return [
        *bars,
        Bar("hardest wrong pairs: exact", wrong["exact"], 0),
        Bar("hardest wrong pairs: near", wrong["near"], 5),
        Bar("different originals: near or exact", originals["near"] + originals["exact"], 0),
    ]


def _draw_wrong(
    ranked: detection_photos.Ranked, changed: detection_photos.Changed, images: ImageSet
) -> None:
    """Draw every wrong pair of photographs that is graded near or exact."""
    shown = []
    for query, reference, grade in ranked.wrong.tolist():
        if GRADES[grade] not in ("near", "exact"):
            continue
        pair = [_pixels(changed.images, ranked.rows[query]), _pixels(images, reference)]
        text = f"{ranked.names[ranked.condition[query]]}\n{GRADES[grade]}"
        shown.append((pair[0], pair[1], text))
    if shown:
        title = "Different photographs that are graded near or exact"
        detection_figures.pair_sheet(title, shown, DOCS / "wrong.jpg", 4)
    else:
        (DOCS / "wrong.jpg").unlink(missing_ok=True)


def _pixels(images: ImageSet, position: int) -> Pixels:
    data = next(iter(images.opener.read([position])))
    return decode(data).pixels  # type: ignore[union-attr]


def speeds(data: Path, place: RunContext) -> dict[str, Any]:
    """Time the screen and the full check; count the re-saves that are exact."""
    found = cifar(data, place)
    test, train = cifar_pixels(data, "test"), cifar_pixels(data, "train")
    originals = photographs(data, "fitting")
    halves = [picture.crop((0, 0, picture.width * 3 // 4, picture.height)) for picture in originals]
    large = candidates(
        open_images(halves, name="queries"), open_images(originals, name="references"), place
    )
    bounded = [[check.bounded(np.asarray(p)) for p in side] for side in (halves, originals)]
    return {
        "screen_pairs_per_second": detection_speed.screen_rate(found, test, train),
        "check_tiny_pairs_per_second": detection_speed.check_rate(found, test, train),
        "check_photo_pairs_per_second": detection_speed.photo_rate(
            large, lambda query, reference: (bounded[0][query], bounded[1][reference])
        ),
        "exact_after_jpeg_90": resaves(data),
        "thresholds": dict(load_encoder().thresholds or {}),
    }


def speed_bars(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of speed."""
    return [
        Bar("screened pairs/s, 32 px", figures["screen_pairs_per_second"], 3000, False),
        Bar("checked pairs/s, 32 px", figures["check_tiny_pairs_per_second"], 400, False),
        Bar("checked pairs/s, photographs", figures["check_photo_pairs_per_second"], 60, False),
    ]


def resaves(data: Path) -> dict[str, float]:
    """Return the share of images that are exact to their re-save at JPEG quality 90."""
    test = cifar_pixels(data, "test")[:2000]
    pictures = {
        "photographs": [np.asarray(picture) for picture in photographs(data, "reported")],
        "cifar": list(test),
    }
    return {
        name: float(
            np.mean([is_exact(p, np.asarray(compress(Image.fromarray(p), 90))) for p in pixels])
        )
        for name, pixels in pictures.items()
    }


PARTS = {
    "cifar": (on_cifar, cifar_bars),
    "photos": (on_photos, photo_bars),
    "speed": (speeds, speed_bars),
}


def main(chosen: Sequence[str]) -> None:
    """Measure everything, or the parts that are named."""
    data = data_folder("cifar10", "photos")
    DOCS.mkdir(exist_ok=True)
    figures = known_figures(__file__) if chosen else {}
    for name in chosen or PARTS:
        start = time.perf_counter()
        with (
            RunContext.at(None, 2, None) as bare,
            RunContext.at(None, 2, Cache(bare.scratch)) as place,
        ):
            figures[name] = PARTS[name][0](data, place)
        figures[name]["seconds"] = time.perf_counter() - start
        bars = [bar for part in PARTS if part in figures for bar in PARTS[part][1](figures[part])]
        seconds = sum(own["seconds"] for own in figures.values())
        write(__file__, [*bars, Bar("minutes for all of this", seconds / 60, 15)], figures)


if __name__ == "__main__":
    main(sys.argv[1:])
