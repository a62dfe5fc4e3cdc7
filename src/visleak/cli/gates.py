"""Gates: what ``--fail-on`` asks, and whether a finished audit passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from visleak.errors import UsageError
from visleak.stats import Rate, percent

if TYPE_CHECKING:
    from visleak.pipeline.thresholds import Thresholds

#: Gate to the rate of that grade or degree *or stronger*, and how a line calls such images.
RATES: Final = {
    "exact": ("exact", "an exact copy"),
    "near": ("near_or_exact", "a near-duplicate or exact copy"),
    "similar": ("similar_or_closer", "a similar or closer picture"),
    "hard": ("hard", "a hard leak"),
    "soft": ("hard_or_soft", "a hard or soft leak"),
}
UNREADABLE: Final = "unreadable"
NAMES: Final = (*RATES, UNREADABLE)
#: Gates that need verified pairs.
GRADED: Final = ("exact", "near", "similar")


@dataclass(frozen=True, slots=True)
class Gate:
    """A bound on a rate.

    Attributes:
        name: one of :data:`NAMES`.
        allowed: largest share that passes.
    """

    name: str
    allowed: float = 0.0


def parse(text: str) -> Gate:
    """Return the gate of ``G`` or ``G=RATE``; RATE is a share or a percentage.

    Raises:
        UsageError: there is no such gate, or RATE is no share.

    >>> parse("near=1%")
    Gate(name='near', allowed=0.01)
    >>> parse("exact")
    Gate(name='exact', allowed=0.0)
    """
    name, equals, rate = text.partition("=")
    if name not in NAMES:
        raise UsageError(f"--fail-on must be one of {', '.join(NAMES)}; got {name!r}")
    if not equals:
        return Gate(name)
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(?:[eE](-?\d+))?\s*(%?)", rate.strip(), re.ASCII)
    share = float(rate.strip().rstrip("%")) / (100.0 if found and found[3] else 1.0) if found else 2
    if not 0.0 <= share <= 1.0:
        raise UsageError(
            f"--fail-on {text}: the rate is a share from 0 to 1 or a percentage, as in"
            f" {name}=0.01 or {name}=1%; got {rate!r}"
        )
    return Gate(name, share)


def check(gates: Iterable[Gate], *, verify: bool) -> None:
    """Refuse gates that the audit cannot answer.

    Raises:
        UsageError: a gate asks for a grade, and pairs are not verified.
    """
    for gate in gates:
        if gate.name in GRADED and not verify:
            raise UsageError(
                f"--fail-on {gate.name} asks for a grade, and --no-verify gives none;"
                " ask for hard or soft"
            )


def refuse_unmeasured(gates: Iterable[Gate], encoder: str, limits: Thresholds) -> None:
    """Refuse gates by degree where nobody knows a threshold, before anything is read.

    Raises:
        UsageError: a gate asks for a degree that cannot be measured.
    """
    known = {"hard": limits.hard, "soft": limits.soft}
    for gate in gates:
        if gate.name in known and known[gate.name] is None:
            raise UsageError(
                f"--fail-on {gate.name} needs a threshold, and none is known for encoder"
                f" {encoder}; give --{gate.name} X, or --thresholds with a file of visleak"
                " calibrate"
            )


def tripped(gates: Iterable[Gate], summary: Mapping[str, Any]) -> list[str]:
    """Return one line for every gate and query set above what is allowed.

    Args:
        gates: the bounds.
        summary: content of ``audit.json``.

    Raises:
        UsageError: a rate was not measured.
    """
    lines = []
    for gate in gates:
        for where, what, rate in _measured(gate, summary):
            if rate.total and rate.share > gate.allowed:
                lines.append(
                    f"gate {gate.name}: {rate.count:,} of {rate.total:,} {where}"
                    f" ({percent(rate.share)} %) {what}; allowed {percent(gate.allowed)} %"
                )
    return lines


def _why(gate: Gate) -> str:
    """Say why a rate was not measured."""
    if gate.name in GRADED:
        return "a grade needs pictures, and some sets are of embeddings; ask for hard or soft"
    return "no thresholds are known for the encoder; give --hard and --soft"


def _measured(gate: Gate, summary: Mapping[str, Any]) -> Iterable[tuple[str, str, Rate]]:
    """Yield whose rate, what it says, and the rate."""
    if gate.name == UNREADABLE:
        count = sum(each["unreadable"] for each in summary["sets"])
        total = sum(each["images"] for each in summary["sets"])
        yield "images of all sets", "could not be read", Rate.of(count, total)
        return
    key, what = RATES[gate.name]
    for each in summary["totals"]:
        stored = each["rates"].get(key)
        if stored is None:
            raise UsageError(f"--fail-on {gate.name}: this audit did not measure it ({_why(gate)})")
        yield f"{each['query_set']} images", f"have {what}", Rate.from_dict(stored)
