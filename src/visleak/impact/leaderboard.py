"""A file of models by their error on a fair test set (Barz & Denzler 2020, section 6).

An entry names the code and the weights, so that others can verify it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from visleak.documents import read_entries
from visleak.errors import UsageError
from visleak.impact.numbers import score, signed
from visleak.impact.results import Gap, Impact
from visleak.markup import Grid, markdown_cell, markdown_table
from visleak.storage import write_json

SCHEMA: Final = 1
KIND: Final = "visleak leaderboard"

_TEXTS: Final = ("model", "test_set", "framework", "code", "weights", "date")
_NUMBERS: Final = ("error_original", "error_fair", "gap")

Entry = dict[str, Any]


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
    """Put a model of a result on a leaderboard, and return its entries by their fair error.

    An entry of the same model and test set is replaced.

    Args:
        path: the file; made if need be.
        result: with errors on the original and the fair test set.
        model: whose; may be left out where there is one.
        framework: it was trained with.
        code, weights: where they can be had, http or https.
        date: of the entry, by default today in UTC.

    Raises:
        UsageError: a link is missing or none, or the result has no such errors in accuracy.
        VisleakError: the file is damaged or no leaderboard.
    """
    check(framework, code, weights)
    gap = _gap(result, model)
    entry = {
        "model": gap.model,
        "test_set": result.test_set,
        "error_original": gap.original.value,
        "error_fair": gap.fair.value,
        "gap": gap.gap.value,
        "relative_gap": None if gap.relative != gap.relative else gap.relative,
        "images": gap.images,
        "framework": framework,
        "code": code,
        "weights": weights,
        "date": date or datetime.now(UTC).date().isoformat(),
    }
    file = Path(path)
    same = (entry["model"], entry["test_set"])
    others = read_leaderboard(file) if file.exists() else []
    kept = [each for each in others if (each["model"], each["test_set"]) != same]
    entries = sorted([*kept, entry], key=_place)
    write_json(file, {"schema": SCHEMA, "kind": KIND, "entries": entries})
    return entries


def check(framework: str, code: str, weights: str) -> None:
    """Refuse an entry that nobody could verify.

    Raises:
        UsageError: something is missing or no link.
    """
    if not weights:
        raise UsageError(
            "an entry without weights cannot be verified: give --weights URL, where they can be had"
        )
    if not code:
        raise UsageError("an entry needs its code: give --code URL, where it can be had")
    if not framework.strip():
        raise UsageError("an entry needs a framework: give --framework NAME, such as PyTorch")
    for option, link in (("--code", code), ("--weights", weights)):
        if not _is_link(link):
            raise UsageError(f"{option} must be a link, http://.. or https://..; got {link!r}")


def _is_link(text: str) -> bool:
    """Whether a text is a link as it is.

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
            "a leaderboard is about errors on a fair test set: give --fair FILE, what the model"
            " answered there"
        )
    names = list(dict.fromkeys(gap.model for gap in result.gaps))
    if not model and len(names) > 1:
        raise UsageError(f"one entry at a time: name one of the models {', '.join(names)}")
    own = [gap for gap in result.gaps if gap.model == (model or names[0])]
    if not own:
        raise UsageError(f"no errors of a model {model!r}; there are {', '.join(names)}")
    accuracy = [gap for gap in own if gap.metric == "accuracy"]
    if not accuracy:
        metrics = ", ".join(gap.metric for gap in own)
        raise UsageError(
            f"a leaderboard is about errors in accuracy; those of {own[0].model!r} are in"
            f" {metrics}: give predictions, or a column `correct`"
        )
    return accuracy[0]


def read_leaderboard(path: str | os.PathLike[str]) -> list[Entry]:
    """Return the entries of a leaderboard, the smallest fair error first.

    Raises:
        VisleakError: it is none, is damaged, or a newer visleak wrote it.
    """
    return sorted(read_entries(Path(path), KIND, SCHEMA, _is_entry), key=_place)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    texts = all(isinstance(entry.get(key), str) for key in _TEXTS)
    numbers = all(type(entry.get(key)) in (int, float) for key in _NUMBERS)
    relative = type(entry.get("relative_gap")) in (int, float, type(None))
    links = texts and _is_link(entry["code"]) and _is_link(entry["weights"])
    return links and numbers and relative and type(entry.get("images")) is int


def _place(entry: Mapping[str, Any]) -> tuple[float, str, str]:
    return entry["error_fair"], entry["test_set"], entry["model"]


def leaderboard_markdown(entries: list[Entry]) -> str:
    """Return a leaderboard as a table of Markdown, errors in percent."""
    header = ["model", "test set", "fair %", "original %", "gap", "relative %", "images"]
    rows = []
    for entry in entries:
        relative = entry["relative_gap"]
        rows.append(
            [
                *(entry["model"], entry["test_set"]),
                score(entry["error_fair"], percent=True),
                score(entry["error_original"], percent=True),
                signed(entry["gap"], percent=True),
                "-" if relative is None else score(relative, percent=True),
                f"{entry['images']:,}",
            ]
        )
    lines = markdown_table(Grid("", header, rows, texts=2))
    lines[0] += " framework | code | weights | date |"
    lines[1] += "---|---|---|---|"
    for number, entry in enumerate(entries, 2):
        links = f"[code]({_target(entry['code'])}) | [weights]({_target(entry['weights'])})"
        framework, date = (markdown_cell(entry[key]) for key in ("framework", "date"))
        lines[number] += f" {framework} | {links} | {date} |"
    return "\n".join(lines) + "\n"


def _target(link: str) -> str:
    """Return a link as the target of one of Markdown's."""
    escaped = {"(": "%28", ")": "%29", "|": "%7C", "[": "%5B", "]": "%5D"}
    return "".join(escaped.get(c, c) for c in link)
