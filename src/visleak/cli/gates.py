"""Gates: what ``--fail-on`` asks, and whether a finished audit passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from visleak.errors import UsageError
from visleak.stats import Rate, percent
from visleak.stats.levels import RATES

if TYPE_CHECKING:
    from visleak.gating import Baseline, NewLeaks
    from visleak.pipeline.thresholds import Thresholds
    from visleak.records import AnySet

UNREADABLE: Final = "unreadable"
GROUP: Final = "group"
#: Gates that count no pairs, so that no baseline knows any of it.
WITHOUT_PAIRS: Final = (GROUP, UNREADABLE)
NAMES: Final = (*RATES, *WITHOUT_PAIRS)
#: Gates that need verified pairs.
GRADED: Final = ("exact", "near", "similar")
#: New pairs that a gate names.
NAMED: Final = 10


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


def refuse_group(gates: Iterable[Gate]) -> None:
    """Refuse the gate by groups where groups are not compared.

    Raises:
        UsageError: it is there.
    """
    if any(gate.name == GROUP for gate in gates):
        raise UsageError("--fail-on group is for one audit; a study of --config compares no groups")


def refuse_ungrouped(
    gates: Iterable[Gate], queries: Sequence[AnySet], references: Sequence[AnySet]
) -> None:
    """Refuse a gate by groups where no two sets of a data set have any, before anything is read.

    Raises:
        UsageError: it is so.
    """
    if not any(gate.name == GROUP for gate in gates):
        return
    for query in queries:
        for reference in references:
            grouped = all(getattr(s, "groups", None) is not None for s in (query, reference))
            if grouped and query is not reference and query.dataset == reference.dataset:
                return
    raise UsageError(
        "--fail-on group needs groups on both sides of one data set: give --group COLUMN, or"
        " --group '/REGEX/' to find them in the ids"
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
    if gate.name == GROUP:
        return "a test set, or all it was compared with, has no groups; give --group"
    return "no thresholds are known for the encoder; give --hard and --soft"


def _measured(gate: Gate, summary: Mapping[str, Any]) -> Iterable[tuple[str, str, Rate]]:
    """Yield whose rate, what it says, and the rate."""
    if gate.name == UNREADABLE:
        count = sum(each["unreadable"] for each in summary["sets"])
        total = sum(each["images"] for each in summary["sets"])
        yield "images of all sets", "could not be read", Rate.of(count, total)
        return
    key, what = RATES.get(gate.name, (GROUP, "a group that is on both sides"))
    for each in summary["totals"]:
        stored = each["rates"].get(key)
        if stored is None:
            raise UsageError(f"--fail-on {gate.name}: this audit did not measure it ({_why(gate)})")
        yield f"{each['query_set']} images", f"have {what}", Rate.from_dict(stored)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a gate says of a query set where a baseline is known.

    Attributes:
        gate: the bound, on new leaks.
        found: what is new.
    """

    gate: Gate
    found: NewLeaks

    @property
    def tripped(self) -> bool:
        """Whether more is new than allowed."""
        return bool(self.found.rate.total) and self.found.rate.share > self.gate.allowed

    @property
    def line(self) -> str:
        """What is new, and what is known."""
        rate, known = self.found.rate, self.found.known
        # what can never trip was not asked for
        bound = f"; allowed {percent(self.gate.allowed)} %" if self.gate.allowed < 1.0 else ""
        return (
            f"gate {self.gate.name}: {rate.count:,} new of {rate.total:,} {self.found.query_set}"
            f" images ({percent(rate.share)} %) {'has' if rate.count == 1 else 'have'}"
            f" {self.found.level.words} ({known:,} known from baseline){bound}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        bound = {"gate": self.gate.name, "allowed": self.gate.allowed, "tripped": self.tripped}
        return bound | self.found.as_dict(NAMED)


def checked(
    gates: Iterable[Gate], folder: Path, summary: Mapping[str, Any], baseline: Baseline
) -> Iterator[Checked]:
    """Yield what each gate says of each query set, new leaks only.

    Without a gate, those by grade are told and none trips; by degree where there are no grades,
    nothing where there are neither.

    Args:
        gates: the bounds; those without pairs know no baseline.
        folder: the audit.
        summary: its ``audit.json``, verdicts counted.
        baseline: what is known.

    Raises:
        UsageError: a rate was not measured.
    """
    from visleak.gating import new_leaks
    from visleak.verdicts.level import Level

    asked = [gate for gate in gates if gate.name not in WITHOUT_PAIRS]
    if not asked:
        known = [
            name
            for name in ("near", "soft")
            if all(total["rates"].get(RATES[name][0]) for total in summary["totals"])
        ]
        asked = [Gate(name, 1.0) for name in known[:1]]
    for gate in asked:
        list(_measured(gate, summary))  # refuses what was not measured
        for found in new_leaks(folder, summary, Level(gate.name), baseline):
            yield Checked(gate, found)
