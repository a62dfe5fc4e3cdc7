"""What the name of a metric says: whether it is a share, and which direction is better."""

from __future__ import annotations

import re
from typing import Final

#: Ends of names of metrics for which lower is better.
_LOWER: Final = ("loss", "error", "mae", "mse", "rmse", "nll", "perplexity")

#: Names of metrics that are shares, from 0 to 1, without case and punctuation.
_SHARES: Final = re.compile(
    r"precision|recall|f1(score)?|m?ap[0-9]*|m?ar[0-9]*|(balanced)?acc(uracy)?(top[0-9]+)?|top[15]"
    r"|m?iou|dice|auc|auroc"
)

_PRECISIONS: Final = re.compile(r"m?a[pr][0-9]*")


def is_share_name(metric: str) -> bool:
    """Whether a metric is by its name a share from 0 to 1 for which higher is better.

    >>> [is_share_name(name) for name in ("mAP@0.5", "metrics/recall(B)", "F1-score", "val_acc")]
    [True, True, True, True]
    >>> [is_share_name(name) for name in ("loss", "MAPE", "psnr", "mAP loss")]
    [False, False, False, False]
    """
    return _SHARES.fullmatch(bare_name(metric)) is not None


def is_precision_name(metric: str) -> bool:
    """Whether a metric is by its name an average precision or recall of a detector."""
    return _PRECISIONS.fullmatch(bare_name(metric)) is not None


def bare_name(metric: str) -> str:
    """Return a metric's plain name without the set that it was measured on.

    >>> bare_name("val/mAP50"), bare_name("test_acc"), bare_name("validity")
    ('map50', 'acc', 'validity')
    """
    return plain_name(re.sub(r"^(valid|validation|val|test|eval)[^0-9a-z]+", "", metric.lower()))


def plain_name(metric: str) -> str:
    """Return a metric's name without case, punctuation and the affixes of Ultralytics.

    >>> plain_name("metrics/mAP50-95(B)")
    'map5095'
    """
    return re.sub(r"^metrics/|\(b\)$|[^0-9a-z]", "", metric.strip().lower())


def is_loss_name(metric: str) -> bool:
    """Whether lower is better by the name of a metric.

    >>> is_loss_name("val/box_loss"), is_loss_name("accuracy")
    (True, False)
    """
    return metric.lower().endswith(_LOWER)
