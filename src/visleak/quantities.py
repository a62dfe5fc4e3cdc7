"""Counts, sizes and durations as people read them, and the names of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def counted(count: int, noun: str, *verb: str) -> str:
    """Return a count with its noun, and with a verb if its two forms are given.

    >>> counted(1, "pair"), counted(2_000, "pair"), counted(2, "match")
    ('1 pair', '2,000 pairs', '2 matches')
    >>> counted(1, "image", "is", "are"), counted(2, "image", "is", "are")
    ('1 image is', '2 images are')
    """
    plural = f"{noun}es" if noun.endswith(("s", "x", "tch", "sh")) else f"{noun}s"
    one, many = (f" {form}" for form in verb) if verb else ("", "")
    return f"{count:,} {noun}{one}" if count == 1 else f"{count:,} {plural}{many}"


def listed(texts: Iterable[str], word: str = "and") -> str:
    """Return texts as one enumeration.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b"], "or")
    ('a', 'a, b and c', 'a or b')
    """
    *rest, last = texts
    return f"{', '.join(rest)} {word} {last}" if rest else last


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and how many more there are.

    >>> some(["a", "b", "c"]), some(["a", "b", "c", "d", "e"])
    ('a, b, c', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(count: int) -> str:
    """Return a number of bytes.

    >>> size(999), size(1_500), size(23_400_000)
    ('999 bytes', '1.5 kB', '23 MB')
    """
    value, unit = float(count), 0
    while value >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:,.1f} {_UNITS[unit]}" if unit and value < 10 else f"{value:,.0f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Return a duration.

    >>> duration(7.6), duration(75), duration(3_700)
    ('8 s', '1:15', '1:01:40')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


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
