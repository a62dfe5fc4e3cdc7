"""``calibrate(S)``: thresholds of an encoder at a false-positive rate, with bounds of the rate."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

import visleak
from visleak import pipeline
from visleak.auditing import open_cache, workers_for
from visleak.documents import as_plain
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_image_set
from visleak.pipeline import RunContext
from visleak.pipeline.candidates import views_for
from visleak.pipeline.comparison import KIND, SCHEMA
from visleak.pipeline.encoded_set import refuse_lost
from visleak.pipeline.fingerprints import fingerprint
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.rates import Rate
from visleak.records import Bool, Encoder, Float32, Int64
from visleak.reporting import Document
from visleak.robustness.conditions import CONSTANTS, Condition, named
from visleak.robustness.experiment import Source
from visleak.robustness.queries import ChangedSet, Collection, DirectHits, changed_set, draw, search
from visleak.stats.bootstrap import cluster_draws, percentiles
from visleak.stats.intervals import (
    CONFIDENCE,
    chernoff_upper,
    clopper_pearson_upper,
    clustered_upper,
)

#: Default rate of the soft threshold: this multiple of the hard one's, up to the limit.
SOFT_FACTOR: Final = 100.0
SOFT_LIMIT: Final = 0.01
MOST_KEPT: Final = 20_000_000  # wrong pairs that may be kept in memory, 20 bytes each


@dataclass(frozen=True)
class Calibration:
    """Thresholds of one encoder and their provenance."""

    encoder: str
    digest: str
    hard: Level
    soft: Level
    collection: str  # name of the set that they were measured on
    source: str
    images: int  # its readable images
    unreadable: int  # its images that could not be read
    queries: int  # how many of them were changed
    seed: int  # of the draw of the queries
    twins: int  # pairs within it that show the same image; excluded
    graded: bool  # whether twins were verified by pixels
    conditions: tuple[Condition, ...]
    version: str  # of visleak
    date: str  # of the run, ISO

    @property
    def provenance(self) -> str:
        """Provenance of the thresholds in one line."""
        hard, soft = self.hard, self.soft
        some = f"{self.queries:,} of " if self.queries < self.images else ""
        return (
            f"hard {_rate(hard)}, soft {_rate(soft)}, over {hard.image_pairs:,} pairs of different"
            f" images ({some}{self.images:,} images: {self.collection};"
            f" {len(self.conditions)} conditions); one-sided 95 % bounds of the two rates"
            f" {hard.upper_independent:.2g} and {soft.upper_independent:.2g} if pairs of images are"
            f" independent, {hard.upper_images:.2g} and {soft.upper_images:.2g} for any dependence"
            f" between pairs of one image; visleak calibrate {self.version}, {self.date}"
        )

    @property
    def notes(self) -> list[str]:
        """Warnings, one line each."""
        unreadable = f"unreadable: {counted(self.unreadable, 'image')} of {self.collection}"
        return [unreadable] * bool(self.unreadable) + [
            f"{self.collection} cannot support a rate of {level.asked:g}: with"
            f" {level.image_pairs:,} pairs of images the smallest is {1 / level.image_pairs:.2g};"
            f" the {level.name} threshold {level.threshold:g} lies above every wrong pair seen,"
            f" which bounds the rate by {level.upper_independent:.2g} (95 %, pairs of images taken"
            " as independent)"
            for level in (self.hard, self.soft)
            if not level.supported
        ]

    def as_dict(self) -> dict[str, object]:
        """Return the file: entries keyed by the encoder's digest."""
        same = ("source", "images", "unreadable", "queries", "seed", "version", "date")
        about = {
            **{name: getattr(self, name) for name in same},
            "set": self.collection,
            "duplicates_excluded": self.twins,
            "duplicates_verified": self.graded,
            "conditions": [condition.name for condition in self.conditions],
            "constants": dict(CONSTANTS),
            "confidence": CONFIDENCE,
            "hard": self.hard.as_dict(),
            "soft": self.soft.as_dict(),
        }
        entry = {
            "name": self.encoder,
            "hard": self.hard.threshold,
            "soft": self.soft.threshold,
            "provenance": self.provenance,
            "calibration": about,
        }
        return {"kind": KIND, "schema": SCHEMA, "encoders": {self.digest: entry}}


def _rate(level: Level) -> str:
    if level.supported:
        return f"at a false-positive rate of {level.asked:g}"
    return f"above every wrong pair seen (a rate of {level.asked:g} was asked for)"


def calibrate(
    source: Source,
    encoder: str | Encoder = "builtin",
    *,
    fpr: Sequence[float],
    conditions: Sequence[str] = ("paper",),
    queries: int = 0,
    seed: int = 0,
    verify: bool = True,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = pipeline.silent,
) -> Calibration:
    """Return the thresholds of an encoder at false-positive rates.

    A false positive is a pair of *different* images, one of them changed, at or above the
    threshold. A threshold is the lowest multiple of 0.0001 with at most the given rate of false
    positives.

    Args:
        source: a set of images similar to those to be audited.
        encoder: name or object.
        fpr: rate of the hard threshold, and of the soft one, by default a hundred times the hard
            one's, up to 0.01.
        conditions: how images are changed.
        queries: how many images are changed, drawn at random; 0 takes all.
        seed: of that draw.
        verify: verify pairs, to exclude images that are in the set twice.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: invalid rates.
        VisleakError: fewer than two readable images, or different images that the encoder cannot
            separate at all.
    """
    targets = rates(fpr)
    chosen, maker = named(conditions), load_encoder(encoder)
    images = open_image_set(source)
    source_text = images.source
    processes = workers_for(len(images) * (1 + len(chosen)), workers)
    with (
        open_cache(cache, [images]) as store,
        RunContext.at(None, processes, store, progress) as place,
    ):
        own = Collection.read(images, maker, place, verify=verify)
        images, prints, twins = own.images, own.prints, own.twins
        changed = changed_set(images, prints.rows, draw(prints.rows, queries, seed), chosen)
        made = fingerprint(changed.images, maker, place)
        refuse_lost(images.name, made.problems)
        pairs = len(made) * (len(prints) - 1)
        kept = math.floor(max(targets) * pairs) + 1
        if kept > MOST_KEPT:
            raise UsageError(
                f"a rate of {max(targets):g} over {pairs:,} pairs needs {kept:,} of them in memory;"
                f" name a rate below {MOST_KEPT / pairs:.1g}, or fewer --queries"
            )
        found = search(
            maker, changed, made, prints, twins,
            views=views_for(maker, "all"),
            keep=kept,
            progress=lambda done, total: place.progress(f"comparing by {maker.name}", done, total),
        )  # fmt: skip
    if not found.others.sum():
        raise VisleakError(
            f"set {images.name!r} has copies of one image only, so there are no pairs"
        )
    hard, soft = (
        level_at(name, rate, found, changed, prints.rows)
        for name, rate in zip(("hard", "soft"), targets, strict=True)
    )
    return Calibration(
        encoder=maker.name,
        digest=maker.digest,
        hard=hard,
        soft=soft,
        collection=images.name,
        source=source_text,
        images=len(prints),
        unreadable=own.unreadable,
        queries=len(changed.queries),
        seed=seed,
        twins=len(twins),
        graded=twins.graded,
        conditions=chosen,
        version=visleak.__version__,
        date=datetime.date.today().isoformat(),
    )


def rates(fpr: Sequence[float]) -> tuple[float, float]:
    """Return the rates of the hard and of the soft threshold.

    >>> rates([1e-6]), rates([0.001, 0.002]), rates([0.005])
    ((1e-06, 0.0001), (0.001, 0.002), (0.005, 0.01))
    """
    if not 1 <= len(fpr) <= 2:
        raise UsageError(f"fpr must be one rate or two, hard and soft; got {len(fpr)}")
    hard = float(fpr[0])
    soft = float(fpr[1]) if len(fpr) > 1 else max(hard, min(SOFT_FACTOR * hard, SOFT_LIMIT))
    for rate in (hard, soft):
        if not 0.0 < rate < 1.0:
            raise UsageError(f"fpr must be a rate between 0 and 1, such as 1e-6; got {rate:g}")
    if hard > soft:
        raise UsageError(
            "fpr must have the lower rate, that of the hard threshold, first; got"
            f" {hard:g} and {soft:g}"
        )
    return hard, round(soft, 15)


def document(result: Calibration) -> Document:
    """Return a calibration as a document."""
    lines = []
    for level in (result.hard, result.soft):
        lines += [
            f"{level.name} {level.threshold:g}: {level.false:,} of {level.pairs:,} wrong pairs"
            f" ({level.rate:.2g}; target {level.asked:g})",
            f"  95 % upper bound: {level.upper_pairs:.2g} if all are independent,"
            f" {level.upper_independent:.2g} if pairs of images are,"
            f" {level.upper_images:.2g} however pairs of one image depend",
            f"  recall: {level.original} unchanged, {level.changed} changed",
        ]
    if result.twins:
        lines.append(f"excluded: {counted(result.twins, 'pair')} of duplicates within the set")
    headline = (
        f"{result.encoder}: hard {result.hard.threshold:g}, soft {result.soft.threshold:g}, from"
        f" {result.hard.image_pairs:,} pairs of images of {result.collection} under"
        f" {len(result.conditions)} conditions"
    )
    return Document("Calibration", headline, tuple(lines))


STEP: Final = 1e-4  # thresholds are rounded up to whole multiples of this
RESAMPLES: Final = 1000  # resamples behind the bootstrap interval


@dataclass(frozen=True)
class Level:
    """One threshold with its rates."""

    name: str  # `hard` or `soft`
    asked: float  # target false-positive rate
    threshold: float  # similarity
    # there are at least `1 / asked` pairs of different images; otherwise the threshold is just
    # above the largest similarity observed
    supported: bool
    false: int  # wrong pairs at or above it
    pairs: int  # wrong pairs: each pair of images once per condition and direction
    image_pairs: int  # pairs of different images
    # one-sided 95 % upper bound of the rate as if all `pairs` were independent (Clopper & Pearson).
    # They are not, so it is too low
    upper_pairs: float
    upper_independent: float  # the same, as if the `image_pairs` were independent
    upper_images: float  # the same, for any dependence between pairs of one image (Hoeffding)
    # 95 % bootstrap interval of the rate over images; `None` without false positives
    interval: tuple[float, float] | None
    original: Rate  # share of the untransformed images at or above it
    changed: Rate  # share of the transformed ones
    conditions: dict[str, Rate]  # the share by condition

    @property
    def rate(self) -> float:
        """Observed false-positive rate."""
        return self.false / self.pairs

    def as_dict(self) -> dict[str, object]:
        """Return what is stored."""
        return {
            "asked": self.asked,
            "threshold": self.threshold,
            "supported": self.supported,
            "false_positives": self.false,
            "pairs": self.pairs,
            "rate": self.rate,
            "image_pairs": self.image_pairs,
            "upper_95_pairs": self.upper_pairs,
            "upper_95_image_pairs": self.upper_independent,
            "upper_95_images": self.upper_images,
            "bootstrap_95_images": as_plain(self.interval),
            "tpr_original": self.original.as_dict(),
            "tpr_changed": self.changed.as_dict(),
            "tpr": {name: as_plain(rate.share) for name, rate in self.conditions.items()},
        }


def level_at(name: str, rate: float, found: DirectHits, changed: ChangedSet, rows: Int64) -> Level:
    """Return the threshold at a rate, and its rates and bounds; ``rows``: readable images."""
    pairs, images = int(found.others.sum()), len(changed.queries)
    counts = np.bincount(found.query, minlength=images)
    sums = np.bincount(found.query, found.others, minlength=images)
    # pairs (query, other image), each once for all conditions
    ordered = float((sums[counts > 0] / counts[counts > 0]).sum())
    # a pair of two queries occurs in both directions
    image_pairs = round(ordered * (1 - (images - 1) / (2 * max(1, len(rows) - 1))))
    supported = rate * image_pairs >= 1.0
    threshold = threshold_at(found.largest.similarity, math.floor(rate * pairs) * supported)
    above = found.largest.similarity >= np.float32(threshold)
    query = found.query[found.largest.query[above]]
    owner, other = changed.queries[query], found.largest.reference[above]
    false = int(above.sum())
    # each pair of images counts once, by the share of its conditions that are wrong
    share = min(1.0, float((1.0 / counts[query]).sum()) / ordered)

    def recall(wanted: Bool) -> Rate:
        own = found.own[wanted]
        return Rate.of(int((own >= np.float32(threshold)).sum()), len(own))

    moved = np.array([c.name != "original" for c in changed.conditions])[found.condition]
    return Level(
        name=name,
        asked=rate,
        threshold=threshold,
        supported=supported,
        false=false,
        pairs=pairs,
        image_pairs=image_pairs,
        upper_pairs=clopper_pearson_upper(false, pairs),
        upper_independent=chernoff_upper(share, image_pairs),
        upper_images=clustered_upper(share, images),
        interval=_bootstrap(owner, other, rows, pairs) if false else None,
        original=recall(~moved),
        changed=recall(moved),
        conditions={
            condition.name: recall(found.condition == number)
            for number, condition in enumerate(changed.conditions)
        },
    )


def threshold_at(largest: Float32, allowed: int) -> float:
    """Return the lowest multiple of 0.0001 that at most ``allowed`` wrong pairs reach.

    ``largest`` (n,), falling: largest similarities of wrong pairs, more than ``allowed`` or all.

    >>> threshold_at(np.array([0.9, 0.7, 0.5], np.float32), 1)
    0.7001
    """
    if allowed >= len(largest):
        return -1.0
    excluded = float(largest[allowed])
    threshold = round(math.floor(excluded / STEP + 1) * STEP, 4)
    if np.float32(threshold) <= largest[allowed]:  # by rounding
        threshold = round(threshold + STEP, 4)
    if threshold > 1.0:
        raise VisleakError(
            f"no threshold has a rate this low: {allowed + 1:,} pairs of different images have a"
            f" similarity of {excluded:.5f} or more; the encoder cannot separate them, or the set"
            " has duplicates"
        )
    return threshold


def _bootstrap(owner: Int64, other: Int64, rows: Int64, pairs: int) -> tuple[float, float]:
    """Return the interval of the rate by a bootstrap over images, which are on both sides."""
    left, right = np.searchsorted(rows, owner), np.searchsorted(rows, other)
    count = len(rows)
    values = []
    for counts in cluster_draws(count, RESAMPLES):
        weight = (counts[left] * counts[right]).sum()
        # copies of an image in a resample do not form a pair
        scale = (count * count - (counts**2).sum()) / (count * (count - 1))
        if scale > 0:
            values.append(weight / (pairs * scale))
    return percentiles(values)
