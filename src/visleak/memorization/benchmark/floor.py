"""The floor of a judge: how similar images are to memorized ones that they do not reproduce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.memorization.benchmark.columns import SCORES
from visleak.memorization.benchmark.measuring import Measuring
from visleak.memorization.benchmark.numbers import Measured
from visleak.memorization.benchmark.paired import bounded
from visleak.memorization.benchmark.records import GENERAL, TRIGGER, Floor
from visleak.memorization.benchmark.scenes import Scene
from visleak.memorization.intervals import group_interval
from visleak.memorization.metrics.copying import copying

Int64 = npt.NDArray[np.int64]

#: Prompts whose images are compared, at most: more tell little more.
MOST: Final = 200


def shuffled(groups: Int64, known: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of prompts of different groups: one with images, one with memorized ones.

    Args:
        groups: of the trigger prompts.
        known: prompts whose memorized images are at hand.

    Returns:
        At most :data:`MOST` pairs, each first prompt once; empty where all are of one group.

    >>> sorted(shuffled(np.array([0, 1]), [0, 1]))
    [(0, 1), (1, 0)]
    """
    draw = np.random.default_rng([len(groups), 1])
    rows = np.asarray(known, np.int64)
    found = []
    for row in draw.permutation(rows)[:MOST].tolist():
        # a group is drawn first, so that no large one stands for all
        others = np.unique(groups[rows][groups[rows] != groups[row]])
        if len(others):
            inside = rows[groups[rows] == draw.choice(others)]
            found.append((row, int(draw.choice(inside))))
    return found


def floor_of(
    scenes: Sequence[Scene], base: Mapping[str, Measured], measuring: Measuring
) -> Floor | None:
    """Return the similarities of unmitigated images to memorized images of other prompts.

    Of the trigger prompts, each compared with the memorized images of a prompt of another group;
    where all are of one group, of the general prompts.

    Args:
        scenes: that of the trigger prompts first.
        base: what was measured without mitigation, by scenario.
        measuring: measures similarities.

    Returns:
        ``None`` where there is one group only and no general prompt.
    """
    trigger = scenes[0]
    shelf = trigger.shelf
    if shelf is None:
        return None
    known = [row for row, own in enumerate(shelf.digests) if own]
    pairs, scene = shuffled(trigger.groups, known), trigger
    if not pairs and known and len(scenes) > 1:
        scene = scenes[1]
        draw = np.random.default_rng([len(scene.prompts), 2])
        rows = draw.permutation(len(scene.prompts))[:MOST].tolist()
        pairs = [(row, int(draw.choice(known))) for row in rows]
    if not pairs:
        return None
    made = base[scene.name].digests
    digests = [digest for row, _ in pairs for digest in made[row]]
    alike = measuring.similarity(digests, len(scene.seeds), shelf, [at for _, at in pairs])
    found = copying(alike.reshape(len(pairs), -1))
    groups = scene.groups[[row for row, _ in pairs]]
    least, most = measuring.judges.least, SCORES["top1"].most
    return Floor(
        source=GENERAL if scene.name == GENERAL else TRIGGER,
        images=len(digests),
        top1=bounded(group_interval(found.top1, groups), least, most),
        top3=bounded(group_interval(found.top3, groups), least, most),
        share=bounded(group_interval(found.share, groups), 0.0, 1.0),
    )
