"""A file of models by their error on a fair test set (Barz & Denzler 2020, section 6).

An entry names the code and the weights, so that others can verify it.
"""

from __future__ import annotations

import math
import os
import re
from typing import Final
from urllib.parse import urlsplit

from visleak.errors import UsageError
from visleak.impact.results import Gap, Impact
from visleak.reporting.markup import Entry, Leaderboard, today

_TEXTS: Final = ("model", "test_set", "framework", "code", "weights", "date")
_NUMBERS: Final = ("error_original", "error_fair", "gap")


def add_to(
    path: str | os.PathLike[str],
    result: Impact,
    model: str = "",
    *,
    framework: str,
    code: str,
    weights: str,
    date: str = "",
) -> list[Entry]:
    """Add a model of a result to a leaderboard, and return its entries by their fair error.

    An entry of the same model and test set is replaced.
    """
    check(framework, code, weights)
    gap = _gap(result, model)
    entry = {
        "model": gap.model,
        "test_set": result.test_set,
        "error_original": gap.original.value,
        "error_fair": gap.fair.value,
        "gap": gap.gap.value,
        "relative_gap": None if math.isnan(gap.relative) else gap.relative,
        "images": gap.images,
        **{"framework": framework, "code": code, "weights": weights, "date": date or today()},
    }
    return BOARD.add(path, [entry])


def check(framework: str, code: str, weights: str) -> None:
    """Refuse an entry that cannot be verified."""
    if not weights:
        raise UsageError("an entry without weights cannot be verified: give --weights URL")
    if not code:
        raise UsageError("an entry needs its code: give --code URL")
    if not framework.strip():
        raise UsageError("an entry needs a framework: give --framework NAME, such as PyTorch")
    for option, link in (("--code", code), ("--weights", weights)):
        if not _is_link(link):
            raise UsageError(f"{option} must be an http or https URL; got {link!r}")


def _is_link(text: str) -> bool:
    """Whether a text is a URL without further escaping.

    >>> [_is_link(t) for t in ("https://a.org/w.pth", "javascript:alert(1)", "https://a b", "http://")]
    [True, False, False, False]
    """
    if not re.fullmatch(r"https?://[^\s<>\"'`\\]+", text) or not text.isprintable():
        return False
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


def _gap(result: Impact, model: str) -> Gap:
    """Return a model's errors in accuracy: an entry names no metric, and all must have one."""
    if not result.gaps:
        raise UsageError(
            "a leaderboard is about errors on a fair test set: give --fair-predictions FILE, the"
            " model's predictions on it"
        )
    names = list(dict.fromkeys(gap.model for gap in result.gaps))
    if not model and len(names) > 1:
        raise UsageError(f"one entry at a time: name one of the models {', '.join(names)}")
    own = {gap.metric: gap for gap in result.gaps if gap.model == (model or names[0])}
    if not own:
        raise UsageError(f"no errors of a model {model!r}; there are {', '.join(names)}")
    if "accuracy" not in own:
        raise UsageError(
            f"a leaderboard is about errors in accuracy; those of {model or names[0]!r} are in"
            f" {', '.join(own)}: give predictions, or a column `correct`"
        )
    return own["accuracy"]


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(key), str) for key in _TEXTS)
        and all(type(entry.get(key)) in (int, float) for key in _NUMBERS)
        and type(entry.get("relative_gap")) in (int, float, type(None))
        and type(entry.get("images")) is int
        and _is_link(entry["code"])
        and _is_link(entry["weights"])
    )


BOARD: Final = Leaderboard(
    "visleak leaderboard",
    ("model", "test_set"),
    lambda entry: (entry["error_fair"], entry["test_set"], entry["model"]),
    _is_entry,
)

read_leaderboard = BOARD.read
