"""Fit the grader that ships: src/visleak/grading/grader.json.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_grader.py

Fitted on two kinds of pairs, of equal total weight:
- CIFAR-10 candidates of even test index: the judged pairs, and as different the unjudged ones of
  queries without any judged leak (several detectors proposed the pairs to judge; a query that
  leaks once may leak again, unjudged);
- photographs of the fitting half (positions 0 and 1 mod 4 by name), each cropped, mirrored,
  compressed and blurred, against all photographs of that half: the own original is near, every
  other candidate is different.
"""

from __future__ import annotations

import csv
import datetime
import io
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps
from scipy.optimize import minimize

from visleak.cache import Cache, default_folder
from visleak.encoders import load_encoder
from visleak.grading.model import as_text, features
from visleak.images import open_images
from visleak.pipeline.candidates import find_pairs, side, views_for
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.local import with_votes
from visleak.pipeline.run import thresholds_of
from visleak.pipeline.verification import Material, verify
from visleak.pipeline.workplace import Workplace
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted
from visleak.settings import Settings

TARGET = Path(__file__).parents[1] / "src" / "visleak" / "grading" / "grader.json"
NEAR = ("corrected_tiny", "gradient_tiny", "large", "core_large")
SIMILAR = ("corrected", "gradient", "grey")
STRENGTH = 1e-6

#: Share of true pairs among the checked pairs of photographs, as among those of CIFAR-10.
PHOTO_SHARE = 0.02


def crop(picture: Image.Image, border: int) -> Image.Image | None:
    """Return a picture without a border, or nothing where less than 32 pixels would be left."""
    width, height = picture.size
    if min(width, height) - 2 * border < 32:
        return None
    return picture.crop((border, border, width - border, height - border))


def compress(picture: Image.Image, quality: int) -> Image.Image:
    """Return a picture after JPEG compression."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


CHANGES = {
    "crop-20": lambda p: crop(p, 20),
    "crop-50": lambda p: crop(p, 50),
    "crop-100": lambda p: crop(p, 100),
    "flip": ImageOps.mirror,
    "jpeg-30": lambda p: compress(p, 30),
    "blur": lambda p: p.filter(ImageFilter.GaussianBlur(2)),
}


def candidates(query, reference, place):
    """Return pairs, features and whether each was checked, of two sets."""
    encoder = load_encoder()
    views, engine = views_for(encoder, "all"), ExactSearch()
    material, sides = {}, {}
    for images in (query, reference):
        prints = fingerprint(images, encoder, place)
        sides[images.name] = side(prints, encoder, views, engine, place.workers)
        material[images.name] = Material(images, prints)
    soft = thresholds_of(encoder, Settings()).soft
    pairs = find_pairs(
        sides[query.name], sides[reference.name],
        encoder=encoder, views=views, wanted=Wanted(soft), engine=engine, workers=place.workers,
    )  # fmt: skip
    sets = {images.name: images for images in (query, reference)}
    pairs = next(with_votes([pairs], sides, sets, encoder, place))
    evidence = verify([pairs], material, place)[0]
    columns = features(pairs.similarity, pairs.background, evidence)
    left = material[query.name].prints.ids.take(pairs.query).to_pylist()
    right = material[reference.name].prints.ids.take(pairs.reference).to_pylist()
    return left, right, columns


def cifar(data: Path, place):
    """Return features, judgements (-1 unjudged, -2 left out) of pairs of even test index."""
    judged: dict[tuple[str, str], int] = {}
    with (data / "cifar10" / "verdicts_dev.csv").open() as lines:
        for row in csv.DictReader(lines):
            verdict = int(row["Judgment"]) if row["Agreed"] == "1" else -2
            judged[row["TestID"], row["TrainID"]] = verdict
    test, train = (
        open_images(data / "cifar10" / f"{name}.parquet", name=name) for name in ("test", "train")
    )
    left, right, columns = candidates(test, train, place)
    even = np.array([int(id_) % 2 == 0 for id_ in left])
    leaking = {query for (query, _), verdict in judged.items() if verdict <= 2}
    verdict = np.array(
        [
            judged.get(pair, -2 if pair[0] in leaking else -1)
            for pair in zip(left, right, strict=True)
        ]
    )
    return {name: column[even] for name, column in columns.items()}, verdict[even]


def photos(data: Path, place):
    """Return features and judgements (1 own original, 3 another) of changed photographs."""
    images = open_images(data / "photos", name="photos")
    names = images.ids.to_pylist()
    assert names == sorted(names)
    own = [place for place in range(len(names)) if place % 4 < 2]
    originals = [Image.open(data / "photos" / names[i]).convert("RGB") for i in own]
    queries, truth = [], []
    for change in CHANGES.values():
        for number, picture in enumerate(originals):
            changed = change(picture)
            if changed is not None:
                queries.append(changed)
                truth.append(number)
    left, right, columns = candidates(
        open_images(queries, name="changed"), open_images(originals, name="originals"), place
    )
    same = [truth[int(q)] == int(r) for q, r in zip(left, right, strict=True)]
    return columns, np.where(same, 1, 3)


def fit(names, parts):
    """Return intercept and weights of a logistic model on parts (columns, truth, weight)."""
    table = np.concatenate([np.column_stack([c[n] for n in names]) for c, _, _ in parts])
    truth = np.concatenate([t for _, t, _ in parts]).astype(float)
    weight = np.concatenate([w for _, _, w in parts])
    centre, spread = table.mean(axis=0), table.std(axis=0)
    scaled = (table - centre) / spread

    def loss(beta):
        odds = beta[0] + scaled @ beta[1:]
        value = (weight * (np.logaddexp(0, odds) - truth * odds)).sum()
        error = weight * (1 / (1 + np.exp(-odds)) - truth)
        gradient = np.concatenate([[error.sum()], scaled.T @ error + STRENGTH * beta[1:]])
        return value + STRENGTH / 2 * (beta[1:] ** 2).sum(), gradient

    beta = minimize(loss, np.zeros(len(names) + 1), jac=True, method="L-BFGS-B").x
    weights = beta[1:] / spread
    return float(beta[0] - weights @ centre), names, weights


def weights_of(truth: np.ndarray, share: float | None = None) -> np.ndarray:
    """Return weights of total 1; ``share`` is that of the true ones.

    Next to all candidates of a changed photograph are its original: left alone they would teach
    that a candidate is near unless proven otherwise.
    """
    if share is None:
        return np.full(len(truth), 1.0 / len(truth))
    return np.where(truth, share / truth.sum(), (1 - share) / (~truth).sum())


def main() -> None:
    """Fit and write the grader."""
    if "VISLEAK_DATA" not in os.environ:
        sys.exit("VISLEAK_DATA is not set: nothing to fit on")
    data = Path(os.environ["VISLEAK_DATA"])
    with Workplace.at(None, 2, Cache(default_folder())) as place:
        sets = [cifar(data, place), photos(data, place)]
    near, similar = [], []
    for number, (columns, verdict) in enumerate(sets):
        checked = ~np.isnan(columns["gradient"]) & (verdict != -2)
        rows = {name: column[checked] for name, column in columns.items()}
        closer = verdict[checked]
        true = (closer == 0) | (closer == 1)
        near.append((rows, true, weights_of(true, PHOTO_SHARE if number else None)))
        if number == 0:
            alike = (closer >= 0) & (closer <= 2)
            similar.append((rows, alike, weights_of(alike)))
    let_go = np.isnan(sets[0][0]["gradient"])
    lost = int((let_go & (sets[0][1] >= 0) & (sets[0][1] <= 1)).sum())
    screened = float(np.log((lost + 0.5) / let_go.sum()))
    text = as_text(
        {"near": fit(NEAR, near), "similar": fit(SIMILAR, similar), "screened": (screened, (), ())},
        near_at=0.5,
        provenance=(
            f"benchmarks/fit_grader.py, {datetime.date.today().isoformat()}:"
            f" {sum(len(n[1]) for n in near):,} checked pairs of CIFAR-10 (even test index) and of"
            f" photographs changed by {', '.join(CHANGES)}"
        ),
    )
    TARGET.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
