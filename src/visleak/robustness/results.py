"""What the experiment found, as records that know how to become JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import pyarrow as pa

from visleak.documents import as_plain
from visleak.rates import Rate, percent
from visleak.records import Bytes8
from visleak.robustness.conditions import CONSTANTS, Condition
from visleak.robustness.curves import Curve

SCHEMA: Final = 1

#: One row a changed image: what became of it. ``width`` and ``height`` are its own, in pixels;
#: the last three columns are null without the pipeline, the last two where the original was no
#: candidate.
IMAGES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("encoder", "condition", "query")),
        *(("width", pa.int32()), ("height", pa.int32())),
        *(("similarity", pa.float32()), ("best_wrong", pa.float32())),
        *(("first", pa.bool_()), ("pipeline_first", pa.bool_())),
        *(("grade", pa.string()), ("probability", pa.float32())),
    ]
)


@dataclass(frozen=True)
class Direct:
    """One condition under one encoder."""

    condition: str  # name
    applies: int  # changed images
    not_applicable: int  # queries to which the condition does not apply
    unreadable: int  # queries that could not be read or changed
    r1: Rate  # share whose most similar reference is the original, or a twin of it
    curve: Curve  # true pairs against all others

    def as_dict(self) -> dict[str, object]:
        """Return what is stored."""
        return without_condition(self) | self.curve.as_dict()


@dataclass(frozen=True)
class Judged:
    """One condition under the whole pipeline: candidates, verification, grade."""

    condition: str  # name
    r1: Rate  # share whose reference of highest probability is the original, or a twin of it
    near_or_exact: Rate  # share whose pair with the original is graded so
    among_candidates: Rate  # share whose original is a candidate
    wrong_near: int
    wrong_exact: int
    wrong_candidates: int  # wrong pairs that were candidates

    def as_dict(self) -> dict[str, object]:
        """Return what is stored."""
        return without_condition(self)


@dataclass(frozen=True)
class Wrong:
    """A wrong pair graded near or exact, for inspection."""

    condition: str
    query: str
    reference: str
    grade: str
    probability: float
    reason: str


@dataclass(frozen=True)
class Tested:
    """One encoder."""

    name: str
    digest: str
    thresholds: dict[str, float]  # at which curves are read, by name
    direct: tuple[Direct, ...]  # one a condition
    # original, trans: curves of the untransformed images and of the paper's 18 transformed
    # conditions pooled; `None` if none of them was asked for
    original: Curve | None
    trans: Curve | None
    pipeline: tuple[Judged, ...] = ()  # one a condition for the built-in encoder, else empty
    wrong: tuple[Wrong, ...] = ()  # wrong pairs that the pipeline grades near or exact
    left_out: int = 0  # pairs of the direct search that are neither true nor wrong
    # rows of `queries.parquet`, see IMAGES
    images: pa.Table = field(default_factory=IMAGES.empty_table, repr=False)

    def as_dict(self) -> dict[str, object]:
        """Return what is stored."""
        return {
            "name": self.name,
            "digest": self.digest,
            "thresholds": self.thresholds,
            "pairs_left_out": self.left_out,
            "original": self.original.as_dict(points=True) if self.original else None,
            "trans": self.trans.as_dict(points=True) if self.trans else None,
            "conditions": {each.condition: each.as_dict() for each in self.direct},
            "pipeline": {each.condition: each.as_dict() for each in self.pipeline} or None,
            "wrong": as_plain(self.wrong),
        }


@dataclass(frozen=True)
class Robustness:
    """The whole experiment."""

    collection: str  # name of the set
    source: str  # SOURCE text of the set, or empty
    references: int  # images of the collection that could be read
    queries: int  # how many of them were changed
    seed: int  # of the draw of the queries
    twins: int  # pairs within the collection that are one image twice; no wrong answers
    graded: bool  # whether twins were looked for by looking at the images
    unreadable: int  # images of the collection that could not be read
    conditions: tuple[Condition, ...]  # that were tried
    encoders: tuple[Tested, ...]  # what each made of it
    version: str  # of visleak
    # one query under every condition, for the contact sheet; not part of the JSON
    sheet: tuple[tuple[str, Bytes8 | None], ...] = field(default=(), repr=False)

    @property
    def headline(self) -> str:
        """The line a person can repeat."""
        parts = []
        for each in self.encoders:
            shares = {"by similarity alone": _r1(each.direct)}
            if each.pipeline:
                shares = {"with verification": _r1(each.pipeline)} | shares
            said = " and ".join(f"{percent(r.share)} % {how}" for how, r in shares.items())
            total = _r1(each.direct).total
            parts.append(f"{each.name} ranks the original first for {said} ({total:,} changed)")
        return "; ".join(parts)

    def as_dict(self) -> dict[str, object]:
        """Return what ``robustness.json`` holds."""
        same = ("version", "headline", "source", "references", "queries", "seed", "twins")
        return {
            "schema": SCHEMA,
            "kind": "robustness",
            **{name: getattr(self, name) for name in (*same, "unreadable")},
            "set": self.collection,
            "twins_by_pictures": self.graded,
            "constants": dict(CONSTANTS),
            "conditions": {
                c.name: {"group": c.group, "what": c.description} for c in self.conditions
            },
            "encoders": [each.as_dict() for each in self.encoders],
        }


def _r1(found: Sequence[Direct] | Sequence[Judged]) -> Rate:
    """Return R@1 over all conditions but the unchanged one, where there are others."""
    changed = [each for each in found if each.condition != "original"] or found
    return Rate.of(sum(each.r1.count for each in changed), sum(each.r1.total for each in changed))


def without_condition(record: Direct | Judged) -> dict[str, object]:
    """Return the numbers of a condition, by which they are stored; a curve is apart."""
    names = (each.name for each in fields(record) if each.name not in ("condition", "curve"))
    return {name: as_plain(getattr(record, name)) for name in names}
