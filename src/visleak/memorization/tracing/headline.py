"""A trace in sentences that a person can repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from visleak.memorization.recall import recall_line
from visleak.memorization.tracing.records import LAYOUT, Match, Trace
from visleak.stats import percent


def headlines(result: Trace) -> list[str]:
    """Return the sentences, the most important first."""
    return [headline(result), *_layouts(result), *_shares(result)]


def headline(result: Trace) -> str:
    """Return what was found as one line that can be repeated."""
    total, things = len(result.matches), what(result)
    if not total:
        return f"there are no {things} to trace"
    if not result.asked:
        return (
            f"{total:,} {_several(things, total)} {'are' if total != 1 else 'is'} candidates,"
            " unverified: no training set was asked, and a result without one is never called"
            " memorized"
        )
    copies = [match for match in result.verified if match.grade != LAYOUT]
    images = len({match.memorized for match in copies})
    found = f"{len(copies):,} of {total:,} {_several(things, total)}"
    verb = "is a near-duplicate" if len(copies) == 1 else "are near-duplicates"
    if not copies:
        return f"{found} {verb} of images in {names(result)}"
    of = f"{images:,} training image{'s' * (images != 1)}"
    return f"{found} {verb} of {of} in {_where(copies)}"


def what(result: Trace) -> str:
    """Return what was traced, as a plural."""
    return {"medoids": "clusters", "all images": "generated images"}.get(
        str(result.about.get("images")), "generated images"
    )


def names(result: Trace) -> str:
    """Return the names of the sets that were asked."""
    sets: Any = result.about.get("sets") or []
    return _listed([str(each["name"]) for each in sets])


def _where(matches: Sequence[Match]) -> str:
    return _listed(list(dict.fromkeys(match.source for match in matches)))


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _several(things: str, count: int) -> str:
    return things if count != 1 else things.removesuffix("s")


def _layouts(result: Trace) -> list[str]:
    same = [match for match in result.verified if match.grade == LAYOUT]
    if not same:
        return []
    count, images = len(same), len({match.memorized for match in same})
    verb = "repeat" if count != 1 else "repeats"
    return [
        f"{count:,} {'more ' if len(result.verified) > count else ''}{verb} the layout of"
        f" {images:,} training image{'s' * (images != 1)} in other colours"
    ]


def cautions(result: Trace) -> list[str]:
    """Return what must be known of images without a source, a line each."""
    if not compares_pictures(result):
        return []
    return [recall_line(str(result.about.get("similarity")), "trace")]


def compares_pictures(result: Trace) -> bool:
    """Whether any training set has pictures: published fingerprints verify nothing."""
    sets: Any = result.about.get("sets") or []
    return any(each["pictures"] for each in sets)


def _shares(result: Trace) -> list[str]:
    share, low, high = result.share
    lines = []
    if not math.isnan(share):
        interval = f"95 % CI {percent(low)}-{percent(high)}" if not math.isnan(low) else "one group"
        lines.append(
            f"{percent(share)} % ({interval}) have M_tau = 1: similarity above tau ="
            f" {result.tau:g} by {result.about['similarity']}"
        )
    if result.prompts:
        triggers = sum(each.trigger for each in result.prompts)
        bound = float(str(result.about["kappa_share"]))
        lines.append(
            f"{triggers:,} of {len(result.prompts):,} prompts are in D_mem: more than"
            f" {percent(bound)} % of their images have M_tau = 1"
        )
    return lines
