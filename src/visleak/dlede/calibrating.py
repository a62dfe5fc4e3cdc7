"""A threshold for these very images: the same protocol on splits of them that cannot leak.

The 5 % of the paper were read off one data set. Images of one group (a recording, a patient)
leak into each other; as far as the groups tell, those of different groups do not. So a split by
whole groups shows what a clean split of these images rises by, and several show by how much clean
splits differ.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import stdtrit

from visleak.dlede.joined import joined
from visleak.dlede.lesson import Split
from visleak.dlede.recipes import groups_of, whole_groups
from visleak.dlede.results import Calibration, Judgement
from visleak.errors import UsageError
from visleak.images.boxes import both
from visleak.images.choosing import chosen
from visleak.records import Float64, Int64

#: Fewest clean splits: of fewer nobody knows how much they differ.
LEAST: Final = 3

#: So many draws are tried for each clean split, for some may be the same.
TRIES: Final = 20


def clean_split(split: Split, number: int, seed: int) -> tuple[Split, dict[str, int]]:
    """Return a split of the same images by whole groups, about as large as the split itself.

    Args:
        split: the split that is judged; both sets need groups.
        number: of the clean split, from 1.
        seed: of the draws.

    Returns:
        The split, and how many images and groups it tests on and trains on. It trains on no more
        images than the split that is judged: of more, some are left out at random.

    Raises:
        UsageError: a group is not known, or there is only one.
    """
    train, test = split.train, split.test
    pool = joined(train, np.arange(len(train)), test, np.arange(len(test)))
    groups = groups_of(pool)
    if not groups.max():
        raise UsageError(
            "--calibrate parts the images by whole groups, and all are of one group; give --group"
            " so that there are two or more"
        )
    # apart from the draws of the chains, which begin with the seed and a repetition's number
    rng = np.random.default_rng([seed, number, 0, 0, 1])
    tested = whole_groups(groups, len(test), rng)
    rows = np.flatnonzero(~tested)
    if len(rows) > len(train):
        rows = np.sort(rng.permutation(rows)[: len(train)])
    asked = np.flatnonzero(tested)
    boxes = None
    if split.train_boxes is not None and split.test_boxes is not None:
        boxes = both(split.train_boxes, split.test_boxes)
    made = Split(
        chosen(pool, rows, train.name),
        chosen(pool, asked, test.name),
        None if boxes is None else boxes.taken(rows),
        None if boxes is None else boxes.taken(asked),
    )
    about = {
        "test_images": len(asked),
        "test_groups": _distinct(groups[asked]),
        "training_images": len(rows),
        "training_groups": _distinct(groups[rows]),
    }
    return made, about


def _distinct(values: Int64) -> int:
    return len(np.unique(values))


def clean_splits(split: Split, count: int, seed: int) -> list[tuple[Split, dict[str, int]]]:
    """Return several clean splits, all different, with the sizes of each.

    Args:
        split: the split that is judged; both sets need groups.
        count: how many, :data:`LEAST` or more.
        seed: of the draws.

    Raises:
        UsageError: as :func:`clean_split`; or there are too few, or asked for.
    """
    if count < LEAST:
        raise UsageError(
            f"--calibrate needs {LEAST} clean splits or more, for fewer do not tell how much they"
            f" differ; got {count}"
        )
    found: dict[bytes, tuple[Split, dict[str, int]]] = {}
    for number in range(1, TRIES * count + 1):
        made, about = clean_split(split, number, seed)
        tested = json.dumps(made.test.ids.to_pylist()).encode()
        found.setdefault(hashlib.blake2b(tested).digest(), (made, about))
        if len(found) == count:
            return list(found.values())
    raise UsageError(
        f"--calibrate {count}: only {len(found)} different clean splits of this size were found;"
        " there are too few groups"
    )


def calibration_of(
    judgements: Sequence[Judgement],
    splits: Sequence[dict[str, int]],
    *,
    groups: int,
    alpha: float,
) -> Calibration:
    """Return the threshold below which the next clean split's statistic lies in alpha of cases.

    It is the lower prediction limit of the statistics of the clean splits (Student's t with one
    degree of freedom less than there are splits): they differ by their draws and by their
    recordings, and so will the next one. A split leaks where the statistics of all metrics are at
    or below the threshold, so the largest of them counts.

    Args:
        judgements: of each clean split, of as many repetitions.
        splits: sizes of each.
        groups: how many there are in all.
        alpha: between 0 and 1: chance that such a clean split lies below.

    Source: Hahn & Meeker 1991, "Statistical intervals", section 4.7.
    """
    names = [metric.metric for metric in judgements[0].metrics]
    found = np.array([[each.statistic.value for each in one.metrics] for one in judgements])
    return Calibration(
        groups,
        tuple(splits),
        tuple(judgements),
        alpha,
        prediction_limit(found.max(axis=1), alpha),
        {
            name: prediction_limit(column, alpha)
            for name, column in zip(names, found.T, strict=True)
        },
    )


def prediction_limit(values: Float64, alpha: float) -> float:
    """Return what one value more lies below with a chance of alpha; NaN of fewer than two.

    >>> round(prediction_limit(np.array([0.1, 0.12, 0.14]), 0.05), 4)
    0.0526
    """
    count = len(values)
    if count < 2:
        return math.nan
    reach = float(stdtrit(count - 1, 1.0 - alpha)) * math.sqrt(1.0 + 1.0 / count)
    return float(values.mean() - reach * values.std(ddof=1))
