"""Commands that continue from an audit, as they may be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from visleak.storage import AuditSummary, TotalSummary


def next_steps(folder: Path, content: AuditSummary) -> Iterator[str]:
    """Yield commands for an audit with leaks or repeats: review first, then what removes them."""
    found = [total for total in content.totals if _level(total)]
    by_name = {each.name: each for each in content.sets}
    # sets given in memory, and embeddings, have no images to show or to write
    if not found or not all(each.source and each.has_pixels for each in content.sets):
        return
    place = shlex.quote(str(folder))
    yield f"visleak review {place}"
    leaking = [total.query_set for total in found if _leaks(content, total.query_set)]
    if not leaking:
        return
    level = next(filter(None, map(_level, found)))
    chosen = f" --set {shlex.quote(leaking[0])}" if len(content.totals) > 1 else ""
    degree = "" if level == "near" else f" --degree {level}"
    yield f"visleak purge {place} --remove-from test{chosen}{degree}"
    references = {each.reference_set for each in content.comparisons if each.coverage != "within"}
    if level == "near" and len(content.totals) == 1 and len(references) == 1:
        same = {by_name[name].dataset for name in (leaking[0], *references)}
        if len(same) == 1:
            yield f"visleak split --repair {place}"


def _level(total: TotalSummary) -> str:
    """Return the grade, or without grades the degree, that images of a set are counted by."""
    for level, key in (("near", "near_or_exact"), ("soft", "hard_or_soft")):
        rate = total.rates.get(key)
        if rate is not None:
            return level if rate.count else ""
    return ""


def _leaks(content: AuditSummary, name: str) -> bool:
    """Whether a set was compared with another one."""
    return any(each.query_set == name and each.coverage != "within" for each in content.comparisons)
