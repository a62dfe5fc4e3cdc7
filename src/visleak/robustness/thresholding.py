"""``calibrate(S)``: thresholds of an encoder at a false-positive rate, and how sure they are."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import visleak
from visleak import pipeline
from visleak.auditing import open_cache, workers_for
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.images import open_pictures
from visleak.pipeline import Workplace
from visleak.pipeline.candidates import views_for
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.material import Material, refuse_lost
from visleak.pipeline.thresholds import KIND, SCHEMA
from visleak.pipeline.workplace import Progress
from visleak.records import Encoder
from visleak.reporting import Document
from visleak.robustness.conditions import CONSTANTS, Condition, named
from visleak.robustness.direct import search
from visleak.robustness.experiment import Source
from visleak.robustness.levels import Level, level_at
from visleak.robustness.queries import changed_set, drawn
from visleak.robustness.twins import find_twins
from visleak.stats.binomial import CONFIDENCE

#: Where one rate is named, it is that of the hard threshold; the soft one's is this many times it,
#: up to the limit.
SOFT_FACTOR: Final = 100.0
SOFT_LIMIT: Final = 0.01

#: Wrong pairs that may be kept in memory, 20 bytes each.
MOST_KEPT: Final = 20_000_000


@dataclass(frozen=True)
class Calibration:
    """Thresholds of one encoder and where they come from.

    Attributes:
        encoder, digest: whose they are.
        hard, soft: the two thresholds.
        collection, source: the set they were measured on.
        images: its readable pictures.
        unreadable: its images that could not be read.
        queries: how many of them were changed.
        seed: of the draw of the queries.
        twins: pairs of it that are one picture twice; left out.
        graded: whether twins were looked for by looking at the pictures.
        conditions: under which pictures were compared.
        version: of visleak.
        date: of the run, ISO.
    """

    encoder: str
    digest: str
    hard: Level
    soft: Level
    collection: str
    source: str
    images: int
    unreadable: int
    queries: int
    seed: int
    twins: int
    graded: bool
    conditions: tuple[Condition, ...]
    version: str
    date: str

    @property
    def provenance(self) -> str:
        """Where the thresholds come from, in a line."""
        some = f"{self.queries:,} of " if self.queries < self.images else ""
        return (
            f"hard {_rate(self.hard)}, soft {_rate(self.soft)}, over {self.hard.pictures:,} pairs"
            f" of different pictures ({some}{self.images:,} pictures: {self.collection};"
            f" {len(self.conditions)} conditions); one-sided 95 % bounds of the two rates"
            f" {self.hard.upper_pictures:.2g} and {self.soft.upper_pictures:.2g} if pairs of"
            f" pictures are independent, {self.hard.upper_images:.2g} and"
            f" {self.soft.upper_images:.2g} however those of one picture depend; visleak calibrate"
            f" {self.version}, {self.date}"
        )

    @property
    def notes(self) -> list[str]:
        """What a reader must know: one line each, often none."""
        result = []
        if self.unreadable:
            result.append(f"{self.unreadable:,} images of {self.collection} are unreadable")
        for level in (self.hard, self.soft):
            if not level.supported:
                result.append(
                    f"{self.collection} cannot support a rate of {level.asked:g}: with"
                    f" {level.pictures:,} pairs of pictures the smallest is"
                    f" {1 / level.pictures:.2g}; the {level.name} threshold {level.threshold:g}"
                    " lies above every wrong pair seen, which bounds the rate by"
                    f" {level.upper_pictures:.2g} (95 %, pairs of pictures taken as independent)"
                )
        return result

    def entry(self) -> dict[str, Any]:
        """Return what the file holds for the encoder."""
        return {
            "name": self.encoder,
            "hard": self.hard.threshold,
            "soft": self.soft.threshold,
            "provenance": self.provenance,
            "calibration": {
                "set": self.collection,
                "source": self.source,
                "images": self.images,
                "unreadable": self.unreadable,
                "queries": self.queries,
                "seed": self.seed,
                "twins_left_out": self.twins,
                "twins_by_pictures": self.graded,
                "conditions": [condition.name for condition in self.conditions],
                "constants": dict(CONSTANTS),
                "confidence": CONFIDENCE,
                "hard": self.hard.as_dict(),
                "soft": self.soft.as_dict(),
                "version": self.version,
                "date": self.date,
            },
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the file: entries keyed by the encoder's digest."""
        return {"kind": KIND, "schema": SCHEMA, "encoders": {self.digest: self.entry()}}


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

    A false positive is a pair of *different* pictures, the one changed under one of the
    conditions, at or above the threshold. A threshold is the lowest multiple of 0.0001 at which
    no more than the share asked for of all such pairs remains.

    Args:
        source: a set of pictures that are alike to those to be audited.
        encoder: name or object.
        fpr: rate of the hard threshold, and of the soft one; if that is not given, it is a
            hundred times the hard one's, up to 0.01.
        conditions: under which pictures are compared.
        queries: how many pictures are changed, drawn at random; 0 takes all.
        seed: of that draw.
        verify: look at pictures to leave out those that are in the set twice.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: rates that cannot be.
        VisleakError: fewer than two readable pictures, or two different ones that the encoder
            cannot tell apart at all.
    """
    asked = rates(fpr)
    chosen, maker = named(conditions), load_encoder(encoder)
    images = open_pictures(source)
    source_text = images.source
    crew = workers_for(len(images) * (1 + len(chosen)), workers)
    with open_cache(cache) as store, Workplace.at(None, crew, store, progress) as place:
        prints = fingerprint(images, maker, place)
        if len(prints) < 2:
            raise VisleakError(
                f"set {images.name!r} has {len(prints)} readable pictures; at least 2 are needed"
                " for a pair"
            )
        unreadable = len(prints.problems) + len(images.problems)
        own = Material(images, prints).readable()
        images, prints = own.images, own.prints
        twins = find_twins(images, prints, place, verify=verify)
        changed = changed_set(images, prints.rows, drawn(prints.rows, queries, seed), chosen)
        made = fingerprint(changed.images, maker, place)
        refuse_lost(images.name, made.problems)
        found = search(
            maker, changed, made, prints, twins,
            views=views_for(maker, "all"),
            keep=_kept(asked, len(made) * (len(prints) - 1)),
            progress=lambda done, total: place.progress(f"comparing by {maker.name}", done, total),
        )  # fmt: skip
    if not found.others.sum():
        raise VisleakError(f"set {images.name!r} holds one picture only, many times over: no pairs")
    hard, soft = (
        level_at(name, rate, found, changed, prints.rows)
        for name, rate in zip(("hard", "soft"), asked, strict=True)
    )
    return Calibration(
        encoder=maker.name,
        digest=maker.digest,
        hard=hard,
        soft=soft,
        collection=images.name,
        source=source_text,
        images=len(prints),
        unreadable=unreadable,
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
            f"fpr must name the hard threshold's rate first: {hard:g} is above {soft:g}, and a"
            " higher threshold lets fewer through"
        )
    return hard, round(soft, 15)


def _kept(asked: tuple[float, float], pairs: int) -> int:
    """Return how many wrong pairs decide the thresholds."""
    kept = math.floor(max(asked) * pairs) + 1
    if kept > MOST_KEPT:
        raise UsageError(
            f"a rate of {max(asked):g} over {pairs:,} pairs needs {kept:,} of them in memory;"
            f" name a rate below {MOST_KEPT / pairs:.1g}, or fewer --queries"
        )
    return kept


def document(result: Calibration) -> Document:
    """Return a calibration for people."""
    lines = []
    for level in (result.hard, result.soft):
        lines += [
            f"{level.name} {level.threshold:g}: {level.false:,} of {level.pairs:,} wrong pairs"
            f" ({level.rate:.2g}; target {level.asked:g})",
            f"  95 % upper bound: {level.upper_pairs:.2g} if all are independent,"
            f" {level.upper_pictures:.2g} if pairs of images are,"
            f" {level.upper_images:.2g} however pairs of one image depend",
            f"  recall: {level.original} unchanged, {level.changed} changed",
        ]
    if result.twins:
        lines.append(f"{result.twins:,} pairs of duplicates within the set are excluded")
    headline = (
        f"{result.encoder}: hard {result.hard.threshold:g}, soft {result.soft.threshold:g}, from"
        f" {result.hard.pictures:,} pairs of images of {result.collection} under"
        f" {len(result.conditions)} conditions"
    )
    return Document("Calibration", headline, tuple(lines))
