"""``purge``: data sets without the images that leak, planned first and written on request."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.groups import components, image_rows, is_word
from visleak.images import decode
from visleak.options import AUTO
from visleak.pipeline import rates
from visleak.progress import Progress, silent
from visleak.quantities import counted
from visleak.records import DEGREES, GRADES, ImageSet, Unreadable
from visleak.remedy.graph import leaking, refuse_sample, refuse_unconfirmed
from visleak.remedy.manifest import RemovedImage
from visleak.remedy.settings import PurgeSettings
from visleak.remedy.writing import Part, Piece, WrittenSet, refuse_changed, write
from visleak.storage import (
    IMAGES,
    PAIRS,
    UNREADABLE,
    AuditSummary,
    SetSummary,
    read_problems,
    read_summary,
    read_table,
    refuse_sets,
)
from visleak.storage.audit_folder import Topic
from visleak.verdicts import disputed, judged_pairs
from visleak.verdicts.overlay import Level

#: Share of the training images above which removal from the test set is recommended.
TRAINING_LIMIT: Final = 0.1

_DEFAULTS: Final = PurgeSettings()

_PAIR: Final = ("query_set", "query", "reference_set", "reference")

#: Set and id of an image to why it is removed, and because of which image.
Reasons: TypeAlias = Mapping[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class Advice:
    """The recommended side, ``test`` or ``train``, and the reason in one or two sentences."""

    side: str
    why: str


@dataclass(frozen=True)
class ClassChange:
    """A class of a set: its readable images before and after."""

    label: str
    before: int
    after: int


@dataclass(frozen=True)
class SetPlan:
    """The images that are removed from one set."""

    name: str
    writable: bool
    total: int
    unreadable: int
    removed: tuple[RemovedImage, ...]  # in the order of the set
    classes: tuple[ClassChange, ...]  # by name; empty if labels are unknown

    @property
    def stays(self) -> int:
        """Number of images that stay."""
        return self.total - len(self.removed)

    @property
    def shift(self) -> float:
        """Total variation distance between the class shares before and after, 0 to 1."""
        before = np.array([each.before for each in self.classes], np.float64)
        after = np.array([each.after for each in self.classes], np.float64)
        if not before.sum() or not after.sum():
            return 0.0
        return float(np.abs(before / before.sum() - after / after.sum()).sum() / 2)

    def counts(self) -> dict[str, Counter[str]]:
        """Return the number of removed images per class for each reason, strongest first."""
        found: dict[str, Counter[str]] = {}
        for each in self.removed:
            found.setdefault(each.why, Counter())[each.label] += 1
        order = [*GRADES, *DEGREES]
        ranked = sorted(found, key=lambda why: (order.index(why) if why in order else 99, why))
        return {why: found[why] for why in ranked}

    def as_dict(self) -> dict[str, object]:
        """Return the plan as plain values."""
        return {
            "name": self.name,
            "images": self.total,
            "unreadable": self.unreadable,
            "removed": len(self.removed),
            "stays": self.stays,
            "why": {why: dict(labels) for why, labels in self.counts().items()},
            "classes": [[each.label, each.before, each.after] for each in self.classes],
            "class_shares_moved": self.shift,
        }


@dataclass(frozen=True)
class Purge:
    """The plan of a purge, and its result once written."""

    settings: PurgeSettings
    sets: tuple[SetPlan, ...]
    disputed: int
    blank: int
    advice: Advice
    caveats: tuple[str, ...]  # reasons why more images may leak than the audit lists
    written: WrittenSet | None = None

    def as_dict(self) -> dict[str, object]:
        """Return plan and result as plain values."""
        return {
            "asked": self.settings.as_dict(),
            "sets": [each.as_dict() for each in self.sets],
            "disputed_pairs": self.disputed,
            "blank_images": self.blank,
            "recommended": {"from": self.advice.side, "why": self.advice.why},
            "caveats": list(self.caveats),
            "written": None if self.written is None else self.written.as_dict(),
        }


def purge(
    audit: str | os.PathLike[str] | Audit,
    settings: PurgeSettings = _DEFAULTS,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> Purge:
    """Plan a data set without leaking images, and write it if ``out`` is given.

    An image is removed if it is in a pair of the grade (or degree) or stronger. Verdicts of people
    count; blank images stay. The sets themselves are never changed.

    Args:
        audit: the audit, or its folder.
        settings: which images are removed.
        out: folder to write; see :func:`visleak.remedy.writing.write`.
        progress: reports each step.

    Raises:
        UsageError: the audit does not support the settings, or ``out`` exists.
        VisleakError: a set changed since the audit, or the result cannot be written.
    """
    opened = audit if isinstance(audit, Audit) else Audit(audit)
    planned = _plan(opened.folder, settings)
    if out is None:
        return planned
    return replace(planned, written=_apply(opened, planned, Path(out), progress))


# -- planning ------------------------------------------------------------------------------------


def _plan(folder: Path, settings: PurgeSettings) -> Purge:
    summary, level = read_summary(folder), Level(settings.level)
    sets = _chosen_sets(summary, settings)
    refuse_sample(folder, summary)
    others = {
        side: _others(folder, summary, settings, side) for side in {settings.remove_from, "train"}
    }
    pairs = judged_pairs(folder, (*_PAIR, "similarity", "grade", "degree", "coverage", "judged"))
    own, other = _ends(settings.remove_from)
    mine = pc.is_in(pairs[f"{own}_set"], pa.array([each.name for each in sets]))
    inside = pc.equal(pairs["coverage"], "within")
    ungraded = _ungraded(summary, level, pairs.filter(pc.and_not(mine, inside)))
    strong = pc.is_in(pairs[level.scale], pa.array(level.names))
    doubtful = pc.sum(pc.and_(pc.and_(strong, mine), disputed(pairs))).as_py() or 0
    if not settings.include_disputed:
        strong = pc.and_not(strong, disputed(pairs))
    leaks, repeats = pairs.filter(pc.and_not(strong, inside)), pairs.filter(pc.and_(strong, inside))
    plans, blank = [], 0
    for each in sets:
        columns = ["set", "id", "digest", "label", "flat", "locator"]
        images = read_table(folder, IMAGES, columns, pc.field("set") == each.name)
        found = _strongest(leaks.filter(is_word(leaks[f"{own}_set"], each.name)), own, other, level)
        flat = set(images.filter(images["flat"])["id"].to_pylist())
        why = {id_: reason for id_, reason in found.items() if id_ not in flat}
        blank += len(found) - len(why)
        for (owner, id_), reason in others[settings.remove_from].items():
            if owner == each.name:
                why.setdefault(id_, reason)
        _add_same_content(images, why)
        if settings.test_duplicates == "drop":
            within = repeats.filter(is_word(repeats["query_set"], each.name))
            why |= _duplicates(images, within, why.keys() | flat, level)
        plans.append(_set_plan(each, images, why))
    empty = read_table(folder, IMAGES, ["set", "id"], pc.field("flat"))
    leaks = leaks.filter(pa.array(image_rows(leaks, "reference", empty) < 0))
    trained = leaks.group_by(["reference_set", "reference"]).aggregate([]).to_pylist()
    lost = {(row["reference_set"], row["reference"]) for row in trained} | others["train"].keys()
    return Purge(
        settings,
        tuple(plans),
        doubtful,
        blank,
        _advise(summary, len(lost)),
        tuple(_caveats(summary, settings, ungraded)),
    )


def _ends(side: str) -> tuple[str, str]:
    return ("query", "reference") if side == "test" else ("reference", "query")


def _sides(summary: AuditSummary) -> tuple[set[str], set[str]]:
    """Return the names of the test sets and of the training sets."""
    trains = {each.reference_set for each in summary.comparisons if each.coverage != "within"}
    return {total.query_set for total in summary.totals}, trains


def _chosen_sets(summary: AuditSummary, settings: PurgeSettings) -> list[SetSummary]:
    name, (tests, trains) = settings.set_name, _sides(summary)
    if settings.remove_from == "train" and not trains:
        raise UsageError(
            "this audit compared a set with itself only, so it has no training side; use"
            " --remove-from test --test-duplicates drop"
        )
    own = tests if settings.remove_from == "test" else trains
    if name is not None and name not in own:
        raise not_one_of("set", name, sorted(own))
    if name is None and (both := sorted(tests & trains)):
        raise UsageError(
            f"the sets {', '.join(both)} were compared with each other, and purging both would"
            " remove both images of a pair; choose one with --set NAME"
        )
    return [each for each in summary.sets if each.name in own and name in (None, each.name)]


def _others(folder: Path, summary: AuditSummary, settings: PurgeSettings, side: str) -> Reasons:
    """Return the images of a side that leak by groups or overlaps, according to the settings."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    if settings.group is not None:
        refuse_unconfirmed(folder, summary, yes=settings.yes)
        found |= leaking(folder, *_sides(summary), side, gaps_of(summary, settings))
    if settings.overlap is not None:
        found |= _of_overlaps(folder, summary, settings.overlap, side)
    return found


def gaps_of(summary: AuditSummary, settings: PurgeSettings) -> dict[str, int]:
    """Return the distance of frames up to which images of a recording leak, by its scheme."""
    if settings.max_frame_gap is None or summary.grouping is None:
        return {}
    gaps = {
        str(number): each.gap if settings.max_frame_gap == AUTO else int(settings.max_frame_gap)
        for number, each in enumerate(summary.grouping.hypotheses, 1)
        if each.believed and each.kind == "recordings" and each.unit is not None
    }
    if not gaps:
        raise UsageError("--max-frame-gap: the audit found no recordings with frames")
    return {number: gap for number, gap in gaps.items() if gap is not None}


def _of_overlaps(folder: Path, summary: AuditSummary, least: float, side: str) -> Reasons:
    """Return the images of which at least a share is visible, or that show this share."""
    if summary.settings.overlap is None:
        raise UsageError(
            f"--overlap: {folder} has no overlaps; run `visleak audit` with --overlap {least:g}"
        )
    pairs = read_table(
        folder, PAIRS, [*_PAIR, "overlap", "coverage"], pc.field("overlap").is_valid()
    )
    pairs = pairs.filter(pc.not_equal(pairs["coverage"], "within"))
    own, other = _ends(side)
    images = read_table(folder, IMAGES, ["set", "id", "seen"], pc.field("seen") > 0)
    seen = {(row["set"], row["id"]): row["seen"] for row in images.to_pylist()}
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for row in pairs.sort_by([("overlap", "descending")]).to_pylist():
        key = row[f"{own}_set"], row[own]
        share = seen.get(key, 0.0) if side == "test" else row["overlap"]
        if share >= np.float32(least):
            found.setdefault(key, ("overlap", f"{row[f'{other}_set']}/{row[other]}"))
    return found


def _ungraded(summary: AuditSummary, level: Level, leaks: pa.Table) -> int:
    """Return the number of pairs without a grade, 0 for degrees."""
    column, graded = leaks[level.scale], level.scale == "grade"
    if len(column) == 0 or column.null_count < len(column):
        return int(column.null_count) if graded else 0
    if graded and summary.thresholds.soft is not None:
        raise UsageError(
            "this audit has no grades (its pairs were not verified); use --degree hard or"
            " --degree soft"
        )
    raise UsageError(
        f"this audit has no {level.scale}s; audit images, or set thresholds with --hard and --soft"
    )


def _advise(summary: AuditSummary, lost: int) -> Advice:
    """Return the recommended side: train if possible, else test (Ramos et al. 2025, section 8)."""
    _, trained = _sides(summary)
    trains = [each for each in summary.sets if each.name in trained]
    if not trains:
        return Advice("test", "the set was compared with itself only, so it has no other side")
    names = ", ".join(each.name for each in trains)
    if not all(each.has_pixels for each in trains):
        return Advice(
            "test",
            f"{names} has embeddings only, so its images cannot be written here; the list of ids to"
            " remove can (--remove-from train)",
        )
    pretrained = [each.name for each in trains if "pretraining" in each.roles]
    if pretrained:
        return Advice(
            "test",
            f"{', '.join(pretrained)} is pretraining data: a model that has seen it stays as it is"
            " unless it is pretrained again",
        )
    total = sum(each.images for each in trains)
    share = lost / max(1, total)
    removed = f"removing from train would drop {lost:,} of {total:,} images of {names}"
    removed += f" ({100 * share:.2f} %)"
    if share > TRAINING_LIMIT:
        return Advice("test", f"{removed}; the limit is {100 * TRAINING_LIMIT:.0f} %")
    return Advice(
        "train",
        f"{removed}, and the test set stays the one that others report on (Ramos et al. 2025,"
        " section 8: from train if possible, else from test). Retrain the model on the result; if"
        " that is not possible, replace in test as Barz & Denzler (2020) do: `visleak replace`",
    )


def _caveats(summary: AuditSummary, settings: PurgeSettings, ungraded: int) -> Iterator[str]:
    """Yield the reasons why more images may leak than the audit lists."""
    if lost := summary.unfinished:
        unread = f"{counted(lost, 'image')} could not be read again"
        yield f"the audit is unfinished: {unread}; repeat it"
    if ungraded:
        yield (
            f"pairs that were not verified ({ungraded:,}) have no grade and do not count;"
            " --degree counts them"
        )
    if summary.settings.candidates == "nearest" and settings.remove_from == "train":
        yield (
            "the audit lists the one nearest training image of each test image (--candidates"
            " nearest): further copies in training stay"
        )
    yield from (e.text for e in summary.skipped if e.topic in (Topic.PAIRS, Topic.SEARCH))
    if settings.degree is not None:
        yield from rates.chance_notes(summary.comparisons)
    if settings.test_duplicates == "drop":
        yield from (e.text for e in summary.skipped if e.topic == Topic.REPEATS)


def _strongest(pairs: pa.Table, own: str, other: str, level: Level) -> dict[str, tuple[str, str]]:
    """Return the grade of the strongest pair of each image, and the other image of it."""
    ranked = pairs.append_column("rank", pc.index_in(pairs[level.scale], pa.array(level.names)))
    ranked = ranked.sort_by([
        ("rank", "ascending"), ("similarity", "descending"),
        (f"{other}_set", "ascending"), (other, "ascending"),
    ])  # fmt: skip
    found: dict[str, tuple[str, str]] = {}
    for row in ranked.select([own, f"{other}_set", other, level.scale]).to_pylist():
        found.setdefault(row[own], (row[level.scale], f"{row[f'{other}_set']}/{row[other]}"))
    return found


def _add_same_content(images: pa.Table, why: dict[str, tuple[str, str]]) -> None:
    """Also remove the images whose bytes are equal to those of a removed one."""
    gone = images.filter(pc.is_in(images["id"], pa.array(list(why), pa.string())))
    reasons = {row["digest"]: why[row["id"]] for row in gone.select(["id", "digest"]).to_pylist()}
    reasons.pop(None, None)
    same = images.filter(pc.is_in(images["digest"], pa.array(list(reasons), pa.string())))
    for row in same.select(["id", "digest"]).to_pylist():
        why.setdefault(row["id"], reasons[row["digest"]])


def _duplicates(
    images: pa.Table, pairs: pa.Table, excluded: set[str], level: Level
) -> dict[str, tuple[str, str]]:
    """Return the images to remove so that the first of each group of duplicates stays."""
    ids = images["id"].combine_chunks()
    staying = np.array([id_ not in excluded for id_ in ids.to_pylist()], np.bool_)
    left, right = (image_rows(pairs, side, images) for side in ("query", "reference"))
    both = staying[left] & staying[right]
    rank = pc.index_in(pairs[level.scale], pa.array(level.names)).to_numpy()
    strongest = np.full(len(ids), len(level.names))
    for end in (left, right):
        np.minimum.at(strongest, end[both], rank[both])
    rows = np.flatnonzero(staying)
    group = components(len(ids), [(left[both], right[both])])[rows]
    _, first, numbers = np.unique(group, return_index=True, return_inverse=True)
    return {
        ids[at].as_py(): (
            f"repeat: {level.names[strongest[at]]}",
            f"{images['set'][at].as_py()}/{ids[stays].as_py()}",
        )
        for at, stays in zip(rows.tolist(), rows[first[numbers]].tolist(), strict=True)
        if stays != at
    }


def _set_plan(about: SetSummary, images: pa.Table, why: Mapping[str, tuple[str, str]]) -> SetPlan:
    gone = images.filter(pc.is_in(images["id"], pa.array(list(why), pa.string())))
    removed = tuple(
        RemovedImage(
            *(about.name, row["id"], row["digest"] or "", row["locator"] or ""),
            *(row["label"] or "", *why[row["id"]]),
        )
        for row in gone.to_pylist()
    )
    classes: tuple[ClassChange, ...] = ()
    if about.has_pixels:
        before, lost = (Counter(table["label"].to_pylist()) for table in (images, gone))
        classes = tuple(
            ClassChange(label, before[label], before[label] - lost[label])
            for label in sorted(before.keys() - {None})
        )
    counts = int(about.images), int(about.unreadable)
    return SetPlan(about.name, about.has_pixels, *counts, removed, classes)


# -- writing -------------------------------------------------------------------------------------


def _apply(audit: Audit, planned: Purge, out: Path, progress: Progress) -> WrittenSet:
    refuse_sets(audit.summary, out)
    how = planned.settings.format
    parts, known = [], {}
    problems = read_problems(audit.folder / UNREADABLE)
    for each in planned.sets:
        if not each.writable:
            if how != "manifest":
                raise UsageError(
                    f"set {each.name!r} has embeddings only, so there are no images to {how};"
                    " write the list of ids with --format manifest"
                )
            continue
        seen = read_table(audit.folder, IMAGES, ["id", "digest"], pc.field("set") == each.name)
        try:
            images = cast(ImageSet, audit.images_of(each.name))
        except VisleakError as error:
            raise VisleakError(
                f"set {each.name!r} cannot be opened again as audited: {error}"
            ) from error
        _refuse_other_images(images, seen, {p.id for p in problems if p.set == each.name})
        gone = pa.array([removed.id for removed in each.removed], pa.string())
        goes = pc.is_in(images.ids, gone).to_numpy(zero_copy_only=False)
        refuse_changed(images, np.flatnonzero(goes).tolist(), seen)
        known[each.name] = seen
        parts.append(Part(each.name, (Piece(images, np.flatnonzero(~goes)),)))
    about = {
        "remedy": "purge",
        "audit": str(audit.folder.resolve()),
        "audit_key": audit.summary.key,
        "headline": audit.summary.headline,
    } | planned.settings.as_dict()
    removed = [removed for each in planned.sets for removed in each.removed]
    return write(parts, out, how, about=about, removed=removed, known=known, progress=progress)


def _refuse_other_images(images: ImageSet, known: pa.Table, unread: set[str]) -> None:
    """Refuse a set with other images than the audit, or with one that it could not read."""
    seen, now = known["id"].to_pylist(), images.ids.to_pylist()
    audited, present = set(seen), set(now)
    places = [place for place, id_ in enumerate(now) if id_ in unread]
    changes = [
        *((id_, "is new") for id_ in now if id_ not in audited and id_ not in unread),
        *((id_, "is missing") for id_ in seen if id_ not in present),
        *(
            (now[place], "can be read")
            for place, stored in zip(places, images.opener.read(places), strict=True)
            if not isinstance(stored, Unreadable) and not isinstance(decode(stored), Unreadable)
        ),
    ]
    for id_, what in changes[:1]:
        raise VisleakError(
            f"set {images.name!r}: image {id_!r} {what} since the audit; run `visleak audit` again"
        )
