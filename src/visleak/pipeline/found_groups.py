"""Groups that no option names: found in the names of images, confirmed by the vectors of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from visleak.grouping import Found, GroupableSet, Sets, infer, summarised
from visleak.grouping.inference import unit_names
from visleak.groups import joined
from visleak.options import AUTO
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import Side
from visleak.records import Encoder
from visleak.settings import Settings
from visleak.storage.audit_folder import GroupingSummary


def groups_of(
    sides: Mapping[str, Side], couples: Sequence[tuple[str, str]], encoder: Encoder
) -> list[tuple[Sets, list[Found]]]:
    """Return what may put images together, for each dataset that is tested.

    Names of groups are not comparable across datasets. Of streamed embeddings too few are known.
    """
    across = [couple for couple in couples if couple[0] != couple[1]]
    tested = {query for query, _ in couples}
    datasets: dict[str, list[Side]] = {}
    for side in sides.values():
        if not side.streamed:
            datasets.setdefault(side.images.dataset, []).append(side)
    found = []
    for own in datasets.values():
        if any(side.name in tested for side in own):
            sets = Sets(tuple(_groupable(side, tested) for side in own), encoder)
            made = [
                replace(each, hypothesis=summarised(each, sets, across))
                if each.hypothesis.believed
                else each
                for each in infer(sets)
            ]
            found.append((sets, made))
    return found


def _groupable(side: Side, tested: set[str]) -> GroupableSet:
    """Return what is known of the readable images of a side."""
    images, fingerprints = side.images, side.fingerprints
    rows = pa.array(fingerprints.rows)

    def taken(column: pa.Array | None) -> pa.Array | None:
        return None if column is None else column.take(rows)

    return GroupableSet(
        side.name,
        side.name in tested,
        fingerprints.ids,
        taken(images.labels),
        taken(images.groups),
        taken(images.frames),
        images.timed,
        fingerprints.matrix,
        fingerprints.digests,
        taken(images.locators) if images.has_pixels else None,
        {name: column.take(rows) for name, column in images.columns.items()},
    )


def wanted(sides: Mapping[str, Side]) -> bool:
    """Whether a set was opened with groups that are to be found."""
    return any(side.images.options.get("group") == AUTO for side in sides.values())


def summary_of(found: Sequence[tuple[Sets, list[Found]]], *, used: bool) -> GroupingSummary | None:
    """Return the entry of ``audit.json``; ``None`` where names have nothing to say."""
    hypotheses = tuple(each.hypothesis for _, own in found for each in own)
    return GroupingSummary(used, hypotheses) if hypotheses else None


def bounded(settings: Settings, grouping: GroupingSummary | None) -> Settings:
    """Return settings with the distance of frames that was found, unless one was chosen."""
    if grouping is None or not grouping.used:
        return settings
    usual = Settings()
    for each in grouping.believed:
        if each.kind != "recordings" or each.gap is None:
            continue
        if each.unit == "ms" and settings.within_seconds == usual.within_seconds:
            return replace(settings, within_seconds=each.gap / 1000)
        if each.unit == "frames" and settings.within_frames == usual.within_frames:
            return replace(settings, within_frames=each.gap)
    return settings


def with_groups(
    sides: Mapping[str, Side], found: Sequence[tuple[Sets, list[Found]]]
) -> dict[str, Side]:
    """Return sides whose images have the groups that were found, and frames of recordings."""
    result = dict(sides)
    for sets, own in found:
        believed = [each for each in own if each.hypothesis.believed]
        if not believed:
            continue
        groups = joined(len(sets), [(each.rows, unit_names(each)) for each in believed])
        alone = believed[0] if len(believed) == 1 else None
        framed = alone is not None and alone.hypothesis.kind == "recordings"
        frames = np.zeros(len(sets), np.int64)
        known = np.zeros(len(sets), np.bool_)
        if alone is not None and framed:
            frames[alone.rows], known[alone.rows] = alone.members.frame, True
        for index, each in enumerate(sets.sets):
            side = sides[each.name]
            rows = np.arange(sets.starts[index], sets.starts[index + 1])
            result[each.name] = _grouped(
                side,
                [groups[row] for row in rows.tolist()],
                pa.array(frames[rows], mask=~known[rows]) if framed else None,
                timed=alone is not None and alone.hypothesis.unit == "ms",
            )
    return result


def _grouped(
    side: Side, groups: Sequence[str | None], frames: pa.Array | None, *, timed: bool
) -> Side:
    """Return a side whose readable images have groups and frames."""
    images, rows = side.images, side.fingerprints.rows
    named = np.full(len(images), None, object)
    named[rows] = list(groups)
    changes: dict[str, pa.Array | None] = {"groups": pa.array(named, pa.string())}
    if frames is not None:
        values, known = np.zeros(len(images), np.int64), np.zeros(len(images), np.bool_)
        known[rows] = frames.is_valid().to_numpy(zero_copy_only=False)
        values[rows] = frames.fill_null(0).to_numpy()
        changes["frames"] = pa.array(values, mask=~known)
    made = replace(images, **changes)  # type: ignore[arg-type]
    return replace(side, images=replace(made, timed=timed) if frames is not None else made)


def regrouped(comparison: Comparison, sides: Mapping[str, Side]) -> Comparison:
    """Return a comparison of the sides with groups."""
    return replace(
        comparison, query=sides[comparison.query.name], reference=sides[comparison.reference.name]
    )
