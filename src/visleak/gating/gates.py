"""Gates: what ``--fail-on`` asks, and whether a finished audit passes."""

from __future__ import annotations

import json
import os
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

import visleak
from visleak.auditing import Audit, audit
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.gating.baseline import (
    Baseline,
    NewLeaks,
    named,
    new_leaks,
    pair_line,
    read_baseline,
    worst,
)
from visleak.groups import both_have
from visleak.options import AUTO, share_of
from visleak.pipeline.recordings import doubt
from visleak.rates import Rate, percent
from visleak.records import AnySet, Encoder, Encodes, PairRow, Source
from visleak.settings import Settings
from visleak.storage import AuditSummary
from visleak.storage.audit_folder import Thresholds
from visleak.templates import plain
from visleak.verdicts import judged_summary
from visleak.verdicts.overlay import RATES, Level

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
            " --group and --frame, each a COLUMN, or '/REGEX/' to find them in the ids, or"
            " --group auto"
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


# -- formats ---------------------------------------------------------------------------------------


#: Formats in addition to the summary and the JSON of an audit.
FORMATS: Final = ("junit", "sarif", "github")

#: Images that a failed gate names; GitHub shows ten annotations per step.
MOST: Final = {"junit": 100, "sarif": 1000, "github": 10}


@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether a query set passes a gate."""

    gate: str  # its name
    query_set: str  # name of the set
    tripped: bool  # more leaks than allowed
    line: str  # what was found, and what is allowed
    # rows of ``pairs.parquet``: the worst pair of each leaking image, worst first
    pairs: Sequence[PairRow] = ()


def render(
    format: str, gates: Sequence[Gate], folder: Path, baseline: Baseline | None = None
) -> str:
    """Return the results of gates on a finished audit; with a baseline only new leaks trip them."""
    summary = judged_summary(folder)
    found = list(results(gates, folder, summary, baseline, MOST[format]))
    writers = {"junit": _junit, "sarif": _sarif, "github": _github}
    return writers[format](found, summary)


def results(
    gates: Sequence[Gate], folder: Path, summary: AuditSummary, baseline: Baseline | None, most: int
) -> Iterator[GateResult]:
    """Yield the result of each gate for each set."""
    pairs: Sequence[PairRow]
    by_pairs = [gate for gate in gates if gate.name not in WITHOUT_PAIRS]
    if baseline is not None:
        for each in checked(by_pairs, folder, summary, baseline) if by_pairs else ():
            pairs = worst(each.found, most) if each.tripped else ()
            yield GateResult(each.gate.name, each.found.query_set, each.tripped, each.line, pairs)
        gates = [gate for gate in gates if gate.name in WITHOUT_PAIRS]
    for one in judged(gates, summary):
        pairs = ()
        if one.tripped and one.gate.name not in WITHOUT_PAIRS:
            found = new_leaks(folder, summary, Level(one.gate.name))
            pairs = next(worst(own, most) for own in found if own.query_set == one.set_name)
        yield GateResult(one.gate.name, one.set_name, one.tripped, one.line, pairs)


def _file(summary: AuditSummary, row: PairRow) -> str:
    """Return the file of a query relative to the working folder, or that of its set."""
    about = summary.set_of(row["query_set"])
    place = about and about.place(summary.opened_in)
    if not place:
        return ""
    image = place / row["query"]
    return Path(os.path.relpath(image if image.is_file() else place)).as_posix()


def _junit(found: Iterable[GateResult], summary: AuditSummary) -> str:
    found = list(found)
    failures = str(sum(each.tripped for each in found))
    suites = ElementTree.Element("testsuites")
    about = {"name": "visleak", "tests": str(len(found)), "failures": failures}
    suite = ElementTree.SubElement(suites, "testsuite", about | {"errors": "0", "skipped": "0"})
    for each in found:
        name = {"classname": f"visleak.{each.gate}", "name": plain(each.query_set)}
        case = ElementTree.SubElement(suite, "testcase", name)
        if each.tripped:
            failed = ElementTree.SubElement(case, "failure", message=plain(each.line))
            failed.text = "\n".join(map(pair_line, each.pairs))
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _sarif(found: Iterable[GateResult], summary: AuditSummary) -> str:
    found = list(found)
    rules = dict.fromkeys(each.gate for each in found)
    noted = [_sarif_result(each, each.line, None) for each in found if each.tripped]
    noted += [
        _sarif_result(each, pair_line(row), _file(summary, row))
        for each in found
        for row in each.pairs
    ]
    driver = {
        "name": "visleak",
        "version": visleak.__version__,
        "rules": [
            {"id": f"leak/{name}", "shortDescription": {"text": f"gate {name}"}} for name in rules
        ],
    }
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": noted}],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _sarif_result(each: GateResult, text: str, file: str | None) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": f"leak/{each.gate}",
        "level": "error",
        "message": {"text": text},
    }
    if file:
        place = {"artifactLocation": {"uri": quote(file, errors="surrogateescape")}}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _github(found: Iterable[GateResult], summary: AuditSummary) -> str:
    lines = []
    for each in found:
        if not each.tripped:
            lines.append(f"::notice title=visleak::{_data(each.line)}")
            continue
        lines.append(f"::error title=visleak::{_data(each.line)}")
        for row in each.pairs:
            file = _property(_file(summary, row))
            title = _property(f"visleak {each.gate}")
            lines.append(f"::error file={file},title={title}::{_data(pair_line(row))}")
    return "".join(f"{line}\n" for line in lines)


def _data(text: str) -> str:
    """Escape the message of a command of GitHub's runners."""
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a command of GitHub's runners.

    >>> _property("a,b:c%")
    'a%2Cb%3Ac%25'
    """
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# -- one line for a test suite ---------------------------------------------------------------------


#: Pairs that a failure names.
SHOWN: Final = 5

#: What may be done about images that cannot be read, and the share of a set that passes.
ALLOWED: Final = {"warn": UNREADABLE_SHARE, "ignore": 1.0, "fail": 0.0}

Baselines = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class LeakFound(VisleakError, AssertionError):
    """More test images leak than are allowed. An ``AssertionError``, so a test fails by it.

    Attributes:
        audit: the audit that found them.
        leaks: what is new, a query set each.
    """

    def __init__(
        self, message: str, audit: Audit | None = None, leaks: Sequence[NewLeaks] = ()
    ) -> None:
        super().__init__(message)
        self.audit = audit
        self.leaks = tuple(leaks)


def assert_no_leak(
    test: Source | Sequence[AnySet],
    train: Source | Sequence[AnySet] | None = None,
    grade: str = "near",
    *,
    allowed: float = 0.0,
    baseline: Baselines | None = None,
    unreadable: str = "warn",
    settings: Settings | None = None,
    encoder: str | Encoder | Encodes | None = None,
    encoder_options: Mapping[str, object] | None = None,
    thresholds: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = "default",
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    force: bool = False,
) -> Audit:
    """Fail if images of the test side also occur in the training side; for pytest and the like.

    Args:
        test, train: the two sides, as in :func:`visleak.audit`: SOURCE text, a path, sets, or any
            sequence of images. Without ``train`` the test side must not repeat itself.
        grade: the weakest that counts: ``exact``, ``near`` or ``similar``, or by similarity
            alone ``hard`` or ``soft``.
        allowed: largest share of the readable images of a test set that may leak, 0 to 1.
        baseline: audit folders or files of accepted pairs; known pairs do not count as leaks.
        unreadable: images that cannot be read are compared with nothing: ``warn`` of them,
            and fail above 5 % of a set, ``ignore`` them, or ``fail``.
        settings, encoder, encoder_options, thresholds, cache, workers: as in
            :func:`visleak.audit`.
        out: folder to keep the audit in; by default one that lives as long as the audit returned.
        force: replace another audit in ``out``, such as that of the data before a change.

    Returns:
        The audit, if no more leaks than allowed.

    Raises:
        LeakFound: more do, or images cannot be read that had to be. Its message has the headline
            and the worst pairs.
        UsageError, VisleakError: the audit cannot be made, such as of a set without a readable
            image; see their messages.

    >>> import visleak
    >>> visleak.assert_no_leak("data/test", "data/train")  # doctest: +SKIP
    """
    __tracebackhide__ = True  # a failure is about the caller's line
    level = Level(grade)
    _check(allowed, unreadable, level, settings)
    known = None if baseline is None else read_baseline(_listed(baseline), out)
    result = audit(
        test,
        train,
        settings=settings,
        encoder=encoder,
        encoder_options=encoder_options,
        thresholds=thresholds,
        out=out,
        workers=workers,
        cache=cache,
        force=force,
    )
    problems = _problems(result)
    if result.unfinished:
        raise VisleakError(f"the audit is unfinished, run it again: {' '.join(problems)}")
    leaks = _leaks(result, level, known)
    failed = [each for each in leaks if not each.rate.total or each.rate.share > allowed]
    if failed or _unread(result) > ALLOWED[unreadable]:
        lines = [line for each in failed for line in _told(each, result, allowed, known)]
        lines += [] if unreadable == "ignore" else problems
        raise LeakFound("\n".join([*lines, _way_on(result, kept=out is not None)]), result, leaks)
    if unreadable == "warn" and problems:
        warnings.warn(" ".join(problems), stacklevel=2)
    return result


def _check(allowed: float, unreadable: str, level: Level, settings: Settings | None) -> None:
    """Refuse arguments that cannot be answered."""
    if not 0.0 <= allowed <= 1.0:
        raise UsageError(f"allowed must be a share between 0 and 1; got {allowed}")
    if unreadable not in ALLOWED:
        raise UsageError(f"unreadable must be one of {', '.join(ALLOWED)}; got {unreadable!r}")
    if level.scale == "grade" and settings is not None and not settings.verify:
        raise UsageError(
            f"grade {level.name!r} needs verified pairs, and settings.verify is False; ask for"
            " hard or soft"
        )


def _listed(baseline: Baselines) -> Sequence[str | os.PathLike[str]]:
    return (baseline,) if isinstance(baseline, str | os.PathLike) else baseline


def _leaks(result: Audit, level: Level, known: Baseline | None) -> tuple[NewLeaks, ...]:
    """Return the leaks of an audit that are not known."""
    summary = judged_summary(result.folder)
    for total in summary.totals:
        if total.rates.get(level.rate) is None:
            why = (
                "a grade needs images, and some sets are of embeddings; ask for hard or soft"
                if level.scale == "grade"
                else "no thresholds are known for the encoder; give them in settings or thresholds"
            )
            raise UsageError(f"grade {level.name!r} was not measured: {why}")
    return new_leaks(result.folder, summary, level, known)


def _told(found: NewLeaks, result: Audit, allowed: float, known: Baseline | None) -> Iterator[str]:
    """Yield what leaks, the worst pairs first."""
    references = [
        each.reference_set
        for each in result.summary.comparisons
        if each.query_set == found.query_set and each.coverage != "within"
    ]
    where = f"in {' or '.join(references)}" if references else "elsewhere in the same set"
    rate = found.rate
    has = "has" if rate.count == 1 else "have"
    told = (
        f"{rate.count:,} of {rate.total:,} {found.query_set} images ({percent(rate.share)} %,"
        f" {rate.interval}) {has} {found.level.words} {where}; allowed {percent(allowed)} %"
    )
    yield told if known is None else f"{told} ({found.known:,} more known from the baseline)"
    if known is not None:
        yield from known.notes(result.summary, [found.level])
    for line in named(found, SHOWN):
        yield f"  {line}"


def _problems(result: Audit) -> list[str]:
    """Return lines on what could not be read, none if all could."""
    problems = result.unreadable()
    missing = [
        f"{rate.count:,} of {rate.total:,} {noun} of {name} {what}, and were compared with nothing"
        for name, noun, what, rate in not_compared(result.summary)
        if noun == "files"
    ]
    if not problems:
        return missing
    total = sum(each.images for each in result.summary.sets)
    first = [plain(f"{each.set} {each.id} ({each.reason})") for each in problems[:SHOWN]]
    more = [f"{len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else []
    return [
        f"{len(problems):,} of {total:,} images could not be read, and were compared with nothing:"
        f" {', '.join([*first, *more])}",
        *missing,
    ]


def _unread(result: Audit) -> float:
    """Return the largest share of a set that could not be read."""
    return max((rate.share for *_, rate in not_compared(result.summary)), default=0.0)


def _way_on(result: Audit, *, kept: bool) -> str:
    """Return how to review the images."""
    if kept:
        return f"to review the images: visleak review {shlex.quote(str(result.folder))}"
    return "to review the images, keep the audit with out=FOLDER, then visleak review FOLDER"
