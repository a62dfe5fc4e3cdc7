"""Gates: what ``--fail-on`` asks, and whether a finished audit passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.errors import UsageError, not_one_of
from visleak.gating.baseline import Baseline, NewLeaks, named, new_leaks
from visleak.groups import both_have
from visleak.options import AUTO, share_of
from visleak.pipeline.recordings import doubt
from visleak.rates import Rate, percent
from visleak.records import AnySet
from visleak.storage import AuditSummary
from visleak.storage.audit_folder import Thresholds
from visleak.verdicts import judged_summary
from visleak.verdicts.level import RATES, Level

UNREADABLE: Final = "unreadable"
GROUP: Final = "group"
RECORDING: Final = "recording"
OVERLAP: Final = "overlap"
#: Gates that count no pairs, so that no baseline knows any of it.
WITHOUT_PAIRS: Final = (GROUP, RECORDING, OVERLAP, UNREADABLE)
NAMES: Final = (*RATES, *WITHOUT_PAIRS)
#: Rates of gates by groups and by overlap, and what an image then has.
OF_GROUPS: Final = {
    GROUP: (GROUP, "a group that is on both sides"),
    RECORDING: (RECORDING, "a training frame of their recording next to them in time"),
    OVERLAP: (OVERLAP, "as large a part that is seen in images that overlap them"),
}
#: Gates that need verified pairs.
GRADED: Final = ("exact", "near", "similar")
#: New pairs that a gate names.
NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Gate:
    """A bound on a rate."""

    name: str  # one of `NAMES`
    allowed: float = 0.0  # largest share that passes

    def trips(self, rate: Rate) -> bool:
        """Whether a rate is above the bound, or of no image at all."""
        return not rate.total or rate.share > self.allowed


#: Share of a set that may be unreadable where a gate does not bound it: an image that cannot be
#: read is compared with nothing, so it trips no other gate.
UNREADABLE_SHARE: Final = 0.05
#: Where other gates are given and none of them bounds unreadable images.
_DEFAULT: Final = Gate(UNREADABLE, UNREADABLE_SHARE)


def parse(text: str) -> Gate:
    """Return the gate of ``G`` or ``G=RATE``; RATE is a share or a percentage.

    >>> parse("near=1%")
    Gate(name='near', allowed=0.01)
    >>> parse("exact")
    Gate(name='exact', allowed=0.0)
    """
    name, equals, rate = text.partition("=")
    if name not in NAMES:
        raise not_one_of("--fail-on", name, NAMES)
    if not equals:
        return Gate(name)
    share = share_of(rate)
    if share is None:
        raise UsageError(
            f"--fail-on {text}: the rate is a share from 0 to 1 or a percentage, as in"
            f" {name}=0.01 or {name}=1%; got {rate!r}"
        )
    return Gate(name, share)


def parse_all(texts: Iterable[str]) -> tuple[Gate, ...]:
    """Return the gates of some texts; unless they bound unreadable images, 5 % of a set may be.

    An image that cannot be read is compared with nothing, so it can trip no other gate.

    >>> parse_all(["near"])
    (Gate(name='near', allowed=0.0), Gate(name='unreadable', allowed=0.05))
    >>> parse_all(["near", "unreadable=20%"])[1:], parse_all([])
    ((Gate(name='unreadable', allowed=0.2),), ())
    """
    gates = tuple(parse(text) for text in texts)
    if gates and all(gate.name != UNREADABLE for gate in gates):
        gates += (_DEFAULT,)
    return gates


def check(gates: Iterable[Gate], *, verify: bool, overlap: bool = True) -> None:
    """Refuse gates that the audit cannot answer.

    Raises:
        UsageError: a gate asks for a grade, and pairs are not verified, or for overlap, and none
            is measured.
    """
    for gate in gates:
        if gate.name == OVERLAP and not overlap:
            raise UsageError(
                "--fail-on overlap needs --overlap SHARE, such as --overlap 10%: it counts the"
                " images of which at least this share is seen"
            )
        if gate.name in GRADED and not verify:
            raise UsageError(
                f"--fail-on {gate.name} asks for a grade, and --no-verify gives none;"
                " ask for hard or soft"
            )


def refuse_unmeasured(gates: Iterable[Gate], encoder: str, limits: Thresholds) -> None:
    """Refuse gates by degree without known thresholds, before anything is read."""
    known = {"hard": limits.hard, "soft": limits.soft}
    for gate in gates:
        if gate.name in known and known[gate.name] is None:
            raise UsageError(
                f"--fail-on {gate.name} needs a threshold, and none is known for encoder"
                f" {encoder}; give --{gate.name} X, or --thresholds with a file of visleak"
                " calibrate"
            )


def refuse_group(gates: Iterable[Gate]) -> None:
    """Refuse the gates by groups and recordings where groups are not compared."""
    for gate in gates:
        if gate.name in (GROUP, RECORDING):
            raise UsageError(
                f"--fail-on {gate.name} is for one audit; a study of --config compares no groups"
            )


def refuse_ungrouped(
    gates: Iterable[Gate], queries: Sequence[AnySet], references: Sequence[AnySet]
) -> None:
    """Refuse a gate by groups, or by recordings, where no two sets of a data set have any."""
    asked = {gate.name for gate in gates}
    if any(images.options.get("group") == AUTO for images in (*queries, *references)):
        return  # whether images have groups is found by the audit
    if GROUP in asked and not both_have(("groups",), queries, references):
        raise UsageError(
            "--fail-on group needs groups on both sides of one data set: give --group COLUMN,"
            " --group '/REGEX/' to find them in the ids, or --group auto"
        )
    if RECORDING in asked and not both_have(("groups", "frames"), queries, references):
        raise UsageError(
            "--fail-on recording needs groups and frames on both sides of one data set: give"
            " --group and --frame, each a COLUMN, or '/REGEX/' to find them in the ids"
        )


def refuse_doubtful(gates: Iterable[Gate], summary: AuditSummary) -> None:
    """Refuse a gate by recordings where frames lie too far apart to be those of one recording."""
    if RECORDING not in {gate.name for gate in gates}:
        return
    for each in summary.comparisons:
        found = each.recordings
        why = found and doubt(found.unit, found.within, found.nearest)
        if why:
            raise UsageError(
                f"--fail-on recording: of the recordings in {each.query_set} and"
                f" {each.reference_set} {why}; if they are frames, say how near they leak with"
                " --max-frame-gap"
            )


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether a set passes a gate."""

    gate: Gate  # the bound
    set_name: str  # name of the set
    tripped: bool  # its rate is above the bound
    line: str  # the rate, and what is allowed


def judged(gates: Iterable[Gate], summary: AuditSummary) -> Iterator[Judged]:
    """Yield whether each set passes each gate; refuse a rate that was not measured."""
    for gate in gates:
        other = " (--fail-on unreadable=RATE sets another bound)" if gate == _DEFAULT else ""
        for name, noun, what, rate in _measured(gate, summary):
            line = (
                f"gate {gate.name}: {rate.count:,} of {rate.total:,} {name} {noun}"
                f" ({percent(rate.share)} %) {what}; allowed {percent(gate.allowed)} %{other}"
            )
            yield Judged(gate, name, gate.trips(rate), line)


def tripped(gates: Iterable[Gate], summary: AuditSummary) -> list[str]:
    """Return one line for every gate and query set above what is allowed; as :func:`judged`."""
    return [each.line for each in judged(gates, summary) if each.tripped]


def _why(gate: Gate) -> str:
    """Say why a rate was not measured."""
    if gate.name in GRADED:
        return "a grade needs images, and some sets have embeddings only; use hard or soft"
    if gate.name == OVERLAP:
        return "overlaps were not measured; audit images with --overlap SHARE"
    if gate.name == GROUP:
        return "a test set, or all it was compared with, has no groups; give --group"
    if gate.name == RECORDING:
        return (
            "a test set, or all it was compared with, lacks groups or frames of one kind; give"
            " --group and --frame"
        )
    return "no thresholds are known for the encoder; give --hard and --soft"


def not_compared(summary: AuditSummary) -> Iterable[tuple[str, str, str, Rate]]:
    """Yield for each set of what, why and at what rate it was not compared."""
    for each in summary.sets:
        # of a sample, only the images that were drawn were read
        rate = Rate.of(each.unreadable, each.unreadable + each.readable)
        if rate.total:
            yield each.name, "images", "could not be read", rate
        files = each.files
        if files and files.present < files.expected:
            missing = Rate.of(files.expected - files.present, files.expected)
            yield each.name, "files", "are missing", missing


def _measured(gate: Gate, summary: AuditSummary) -> Iterable[tuple[str, str, str, Rate]]:
    """Yield whose rate, of what, what it says, and the rate."""
    if gate.name == UNREADABLE:
        yield from not_compared(summary)
        return
    key, what = (RATES | OF_GROUPS)[gate.name]
    for total in summary.totals:
        measured = total.rates.get(key)
        if measured is None:
            raise UsageError(f"--fail-on {gate.name}: this audit did not measure it ({_why(gate)})")
        yield total.query_set, "images", f"have {what}", measured


@dataclass(frozen=True, slots=True)
class Checked:
    """What a gate says of a query set where a baseline is known."""

    gate: Gate  # the bound, on new leaks
    found: NewLeaks  # what is new

    @property
    def tripped(self) -> bool:
        """Whether more is new than allowed."""
        return self.gate.trips(self.found.rate)

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

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        bound = {"gate": self.gate.name, "allowed": self.gate.allowed, "tripped": self.tripped}
        return bound | self.found.as_dict(NAMED)


def checked(
    gates: Iterable[Gate], folder: Path, summary: AuditSummary, baseline: Baseline
) -> Iterator[Checked]:
    """Yield what each gate says of each query set, new leaks only.

    Without a gate, those by grade are told and none trips; by degree where there are no grades,
    nothing where there are neither.
    """
    asked = [gate for gate in gates if gate.name not in WITHOUT_PAIRS]
    if not asked:
        known = [
            name
            for name in ("near", "soft")
            if all(total.rates.get(RATES[name][0]) for total in summary.totals)
        ]
        asked = [Gate(name, 1.0) for name in known[:1]]
    for gate in asked:
        list(_measured(gate, summary))  # refuses what was not measured
        for found in new_leaks(folder, summary, Level(gate.name), baseline):
            yield Checked(gate, found)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the gates of an audit say."""

    tripped: tuple[str, ...] = ()  # lines; one that begins with blanks continues the one before
    # lines on gates by pairs that did not trip, where a baseline is known
    passed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # on the baseline
    gates: tuple[dict[str, Any], ...] = ()  # of pairs against a baseline, as plain values


def outcome(
    gates: Sequence[Gate], folder: Path, baseline: Baseline | None = None, *, bounded: bool = False
) -> Outcome:
    """Return which gates an audit trips; ``bounded``: the user said how near frames leak."""
    summary = judged_summary(folder)
    found = [] if baseline is None else list(checked(gates, folder, summary, baseline))
    if not bounded:
        refuse_doubtful(gates, summary)
    if baseline is None:
        return Outcome(tuple(tripped(gates, summary)))
    lines = tripped([gate for gate in gates if gate.name in WITHOUT_PAIRS], summary)
    passed: list[str] = []
    notes = list(baseline.notes(summary, {each.found.level: None for each in found}))
    for each in found:
        pairs = [f"  {line}" for line in named(each.found, NAMED)]
        if each.tripped:
            lines += [each.line, *pairs]
        else:
            passed.append(each.line)
            notes += pairs
    return Outcome(
        tuple(lines),
        tuple(passed),
        tuple(notes),
        tuple(each.as_dict() for each in found),
    )
