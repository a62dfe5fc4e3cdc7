"""A file of mitigations by what they reach, to which others add rows of their own.

Rows are compared only where they are of one board: same model, prompts, images (generated and
memorized), sampling and judges. Each row names its result, so that others can verify it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from visleak.documents import as_plain, digest_of
from visleak.errors import UsageError
from visleak.memorization.benchmark.results import (
    GENERAL,
    TRIGGER,
    Benchmark,
    MethodRow,
    number,
    short,
)
from visleak.reporting.markup import Entry, Grid, Leaderboard, markdown_cell, markdown_table, today

#: First line of a leaderboard as Markdown.
TITLE: Final = "# Mitigation leaderboard"
#: Fields of a row that describe its board, and all fields that are texts.
_BOARD: Final = ("model", "model_digest", "triggers", "judged_by", "clip_model", "aesthetic_head")
_TEXTS: Final = ("board", "method", "setting", "date", "result", *_BOARD)

#: Numbers of a row; ``null`` where one was not measured.
_NUMBERS: Final = {
    "top1": (TRIGGER, "top1"),
    "top3": (TRIGGER, "top3"),
    "share": (TRIGGER, "share"),
    "clip": (TRIGGER, "clip"),
    "aesthetic": (TRIGGER, "aesthetic"),
    "general_clip": (GENERAL, "clip"),
    "general_aesthetic": (GENERAL, "aesthetic"),
}
_MORE: Final = ("hypervolume", "seconds_per_image")


def add_to(path: str | os.PathLike[str], result: Benchmark, *, date: str = "") -> list[Entry]:
    """Put every row of a result on a leaderboard, and return all of its entries, best first.

    An entry of the same board, method and setting is replaced; a result added again changes
    nothing but its date, which is today in UTC by default.

    Raises:
        VisleakError: the file is damaged or no leaderboard.
    """
    board = board_of(result)
    return BOARD.add(path, [_entry(result, row, board, date) for row in result.rows])


def table_path(path: Path) -> Path:
    """Return the path of a leaderboard as Markdown; refuse it where another file is there."""
    table = path.with_suffix(".md")
    if table == path:
        raise UsageError(
            f"a leaderboard is a JSON file, and {path} is where its table would be written; name it"
            f" {path.with_suffix('.json')}"
        )
    if path.exists():
        BOARD.read(path)
    if table.exists() and not table.read_text("utf-8", "replace").startswith(TITLE):
        raise UsageError(
            f"{table} is not a table of a leaderboard and would be replaced; give the leaderboard"
            f" another name than {path.name}"
        )
    return table


def board_of(result: Benchmark) -> str:
    """Return the digest of all that two rows must share to be compared."""
    about, model = result.about, result.about["model"]
    judges = [about[name] and about[name]["digest"] for name in ("similarity", "alignment")]
    lists = (result.triggers, result.general)
    return digest_of(
        [
            *(model["digest"], model["precision"], about["sampling"], about["seed"], *judges),
            about["aesthetic"] and about["aesthetic"]["digest"],
            about.get("references"),
            [each and [each.digest, each.images, each.referenced] for each in lists],
        ]
    )[:12]


def _entry(result: Benchmark, row: MethodRow, board: str, date: str) -> Entry:
    about = result.about
    volumes = {(curve.line, curve.name): curve.volume.value for curve in result.curves}
    numbers = {name: row.value(*at) for name, at in _NUMBERS.items()}
    numbers["hypervolume"] = volumes.get((row.line, "clip"), float("nan"))
    numbers["seconds_per_image"] = row.seconds[TRIGGER]
    return {
        "board": board,
        "method": row.method,
        "setting": row.setting,
        **as_plain(numbers),
        "prompts": result.triggers.prompts,
        "groups": result.triggers.groups,
        "images": result.triggers.images,
        "model": short(str(about["model"]["name"])),
        "model_digest": str(about["model"]["digest"]),
        "triggers": result.triggers.origin,
        "judged_by": short(str(about["similarity"]["name"])),
        "clip_model": short(str(about["alignment"]["name"])) if about["alignment"] else "",
        "aesthetic_head": short(str(about["aesthetic"]["name"])) if about["aesthetic"] else "",
        "result": result.key,
        "date": date or today(),
    }


def _order(entry: Mapping[str, object]) -> tuple[object, ...]:
    """Return the sort key of an entry: boards apart, then the lowest top-1 similarity first."""
    top = entry["top1"]
    return (entry["board"], top is None, top or 0.0, entry["method"], entry["setting"])


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    texts = all(isinstance(entry.get(key), str) for key in _TEXTS)
    numbers = (entry.get(key, "") for key in (*_NUMBERS, *_MORE))
    counts = all(type(entry.get(key)) is int for key in ("prompts", "groups", "images"))
    return texts and counts and all(type(each) in (int, float, type(None)) for each in numbers)


BOARD: Final = Leaderboard(
    "visleak mitigation leaderboard", ("board", "method", "setting"), _order, _is_entry
)
read_leaderboard = BOARD.read


def leaderboard_markdown(entries: list[Entry]) -> str:
    """Return a leaderboard as Markdown, one table per board."""
    lines = [TITLE, ""]
    for board in dict.fromkeys(entry["board"] for entry in entries):
        own = [entry for entry in entries if entry["board"] == board]
        first = own[0]
        lines += [f"## {markdown_cell(first['model'])}", ""]
        summary = f"Board {board}: {first['triggers']}, {first['prompts']:,} prompts, similarity"
        summary += f" {first['judged_by']}, CLIP {first['clip_model'] or 'not measured'}."
        lines += [markdown_cell(summary), "", *markdown_table(_grid(own)), ""]
    return "\n".join(lines)


def _grid(entries: list[Entry]) -> Grid:
    header = ["method", "setting", "top-1 ↓", "> 0.5 ↓", "CLIP ↑", "aes. ↑", "general CLIP ↑"]
    header += ["hypervolume ↑", "seconds per image", "date"]
    rows = []
    for entry in entries:
        cells = [_cell(entry[name]) for name in ("top1", "share", "clip")]
        cells += [_cell(entry["aesthetic"], 2), _cell(entry["general_clip"])]
        seconds = entry["seconds_per_image"]
        cells += [_cell(entry["hypervolume"]), "-" if seconds is None else f"{seconds:.3g}"]
        cells.append(entry["date"])
        rows.append([entry["method"], entry["setting"], *cells])
    return Grid("", header, rows, texts=2)


def _cell(value: float | None, places: int = 3) -> str:
    return "-" if value is None else number(float(value), places)
