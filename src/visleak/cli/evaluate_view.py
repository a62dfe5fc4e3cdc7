"""What the verbs of ``visleak evaluate`` print of their results."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from visleak.cli import edges

if TYPE_CHECKING:
    from visleak.stats import Rate


class Result(Protocol):
    """The parts that all results have."""

    @property
    def file(self) -> Path:
        """The file of the predictions."""
        ...

    @property
    def unreadable(self) -> int:
        """How many images have none."""
        ...

    @property
    def unreadable_file(self) -> Path | None:
        """Where these are listed."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know, one line each."""
        ...


def show(
    result: Result, lines: Iterable[str], content: Mapping[str, Any], *, as_json: bool
) -> None:
    """Print a result, as lines or as JSON.

    Args:
        result: whose file, unreadable images and notes are told after the lines.
        lines: the summary, fit for a terminal.
        content: the same as plain values.
        as_json: print these, and nothing else.
    """
    if as_json:
        whole = {"file": str(result.file), **content, "unreadable": _unreadable(result)}
        whole["notes"] = list(result.notes)
        edges.say(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
        return
    for line in (*lines, *_ending(result)):
        edges.say(f"{line}\n")
    for note in result.notes:
        edges.note(f"note: {note}")


def _ending(result: Result) -> Iterator[str]:
    if result.unreadable_file is not None:
        where = edges.plain(str(result.unreadable_file))
        yield f"{'unreadable':<11}{result.unreadable:,}, in no count: {where}"
    yield edges.plain(str(result.file))
    yield edges.plain(f"next: visleak impact A --predictions {shlex.quote(str(result.file))}")


def _unreadable(result: Result) -> dict[str, Any]:
    file = str(result.unreadable_file) if result.unreadable_file else None
    return {"images": result.unreadable, "file": file}


def percent(rate: Rate) -> str:
    """Return a rate in percent with its counts and interval."""
    ends = f"{100 * rate.low:.2f} to {100 * rate.high:.2f}"
    return f"{100 * rate.share:.2f} % ({rate.count:,} of {rate.total:,}; 95 %: {ends})"


def numbers(rate: Rate | None) -> dict[str, Any] | None:
    """Return a rate as plain values; ``None`` of no images."""
    if rate is None or not rate.total:
        return None
    ends = {"low": rate.low, "high": rate.high}
    return {"value": rate.share, **ends, "right": rate.count, "images": rate.total}
