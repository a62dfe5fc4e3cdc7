"""Gates: the rates that ``--fail-on`` and :func:`assert_no_leak` bound, and their reports."""

from __future__ import annotations

import json
import os
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
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
from visleak.verdicts.overlay import RATES, Level, alone

UNREADABLE: Final = "unreadable"
GROUP: Final = "group"
RECORDING: Final = "recording"
OVERLAP: Final = "overlap"
#: Gates that count no pairs, which a baseline therefore cannot know.
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
#: Why a rate was not measured.
_NOT_MEASURED: Final = {
    **dict.fromkeys(
        GRADED, "a grade needs images, and some sets have embeddings only; use hard or soft"
    ),
    **dict.fromkeys(
        ("hard", "soft"), "no thresholds are known for the encoder; give --hard and --soft"
    ),
    OVERLAP: "overlaps were not measured; audit images with --overlap SHARE",
    GROUP: "a test set, or all it was compared with, has no groups; give --group",
    RECORDING: (
        "a test set, or all it was compared with, lacks groups or frames of one kind; give"
        " --group and --frame"
    ),
}
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


#: Share of a set that may be unreadable where no gate bounds it: an image that cannot be read is
#: compared with nothing, so it trips no other gate.
UNREADABLE_SHARE: Final = 0.05
_DEFAULT: Final = Gate(UNREADABLE, UNREADABLE_SHARE)


def parse(text: str, names: Sequence[str] = NAMES) -> Gate:
    """Return the gate of ``G`` or ``G=RATE``; RATE is a share or a percentage, G one of ``names``.

    >>> parse("near=1%"), parse("exact")
    (Gate(name='near', allowed=0.01), Gate(name='exact', allowed=0.0))
    """
    name, equals, rate = text.partition("=")
    if name not in names:
        raise not_one_of("--fail-on", name, names)
    share = share_of(rate) if equals else 0.0
    if share is None:
        raise UsageError(
            f"--fail-on {text}: the rate is a share from 0 to 1 or a percentage, as in"
            f" {name}=0.01 or {name}=1%; got {rate!r}"
        )
    return Gate(name, share)


def parse_all(texts: Iterable[str], names: Sequence[str] = NAMES) -> tuple[Gate, ...]:
    """Return the gates of some texts; unless they bound unreadable images, 5 % of a set may be.

    >>> parse_all(["near"])
    (Gate(name='near', allowed=0.0), Gate(name='unreadable', allowed=0.05))
    >>> parse_all(["near", "unreadable=20%"])[1:], parse_all([])
    ((Gate(name='unreadable', allowed=0.2),), ())
    """
    gates = tuple(parse(text, names) for text in texts)
    bounded = not gates or any(gate.name == UNREADABLE for gate in gates)
    return gates if bounded else (*gates, _DEFAULT)


def check(
    gates: Iterable[Gate], *, verify: bool, overlap: bool = True, groups: bool = True
) -> None:
    """Refuse gates that cannot be answered, as pairs are verified, overlaps and groups compared."""
    for gate in gates:
        if gate.name in (GROUP, RECORDING) and not groups:
            raise UsageError(
                f"--fail-on {gate.name} is for one audit; a study of --config compares no groups"
            )
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
    for gate in gates:
        if getattr(limits, gate.name, None) is None and gate.name in ("hard", "soft"):
            raise UsageError(
                f"--fail-on {gate.name} needs a threshold, and none is known for encoder {encoder};"
                f" give --{gate.name} X, or --thresholds with a file of visleak calibrate"
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


def _refuse_doubtful(gates: Iterable[Gate], summary: AuditSummary) -> None:
    """Refuse a gate by recordings where frames lie too far apart to be those of one recording."""
    if all(gate.name != RECORDING for gate in gates):
        return
    for each in summary.comparisons:
        found = each.recordings
        if found and (why := doubt(found.unit, found.within, found.nearest)):
            raise UsageError(
                f"--fail-on recording: of the recordings in {each.query_set} and"
                f" {each.reference_set} {why}; if they are frames, say how near they leak with"
                " --max-frame-gap"
            )


@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether a set passes a gate."""

    gate: Gate
    set_name: str
    tripped: bool  # more leaks than allowed
    line: str  # what was found, and what is allowed
    leaks: NewLeaks | None = None  # what is new, of a gate by pairs where a baseline is known


def _results(gates: Iterable[Gate], summary: AuditSummary) -> Iterator[GateResult]:
    """Yield whether each set passes each gate; refuse a rate that was not measured."""
    for gate in gates:
        empty = dict(_without_content(summary)) if gate.name == UNREADABLE else {}
        for name, why in empty.items():
            yield GateResult(gate, name, True, f"gate {gate.name}: {why}")
        other = " (--fail-on unreadable=RATE sets another bound)" if gate == _DEFAULT else ""
        for name, noun, what, rate in _measured(gate, summary):
            line = (
                f"gate {gate.name}: {rate.count:,} of {rate.total:,} {name} {noun}"
                f" ({percent(rate.share)} %) {what}; allowed {percent(gate.allowed)} %{other}"
            )
            if name not in empty:
                yield GateResult(gate, name, gate.trips(rate), line)


def tripped(gates: Iterable[Gate], summary: AuditSummary) -> list[str]:
    """Return one line for every gate and set above what is allowed."""
    return [each.line for each in _results(gates, summary) if each.tripped]


def _without_content(summary: AuditSummary) -> Iterator[tuple[str, str]]:
    """Yield each set of which no image was compared with another, and why."""
    queries = {each.query_set for each in summary.comparisons}
    for each in summary.sets:
        left, why = each.readable - (each.flat or 0), ""
        if each.flat and not left:
            why = f"every readable image of {each.name} is blank"
        elif left == 1 and each.name in queries and alone(summary, each.name):
            why = f"{each.name} has no second image to be compared with"
        if why:
            yield each.name, f"{why}, so nothing was compared; correct the source"


def _not_compared(summary: AuditSummary) -> Iterator[tuple[str, str, str, Rate]]:
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


def _measured(gate: Gate, summary: AuditSummary) -> Iterator[tuple[str, str, str, Rate]]:
    """Yield whose rate, of what, what it says, and the rate."""
    if gate.name == UNREADABLE:
        yield from _not_compared(summary)
        return
    key, what = (RATES | OF_GROUPS)[gate.name]
    for total in summary.totals:
        measured = total.rates.get(key)
        if measured is None:
            why = _NOT_MEASURED[gate.name]
            raise UsageError(f"--fail-on {gate.name}: this audit did not measure it ({why})")
        yield total.query_set, "images", f"have {what}", measured


def _new_results(
    gates: Iterable[Gate], folder: Path, summary: AuditSummary, baseline: Baseline
) -> Iterator[GateResult]:
    """Yield whether each query set passes each gate by pairs, where only new leaks count."""
    for gate in gates:
        list(_measured(gate, summary))  # refuses what was not measured
        # a gate that cannot trip only informs
        bound = f"; allowed {percent(gate.allowed)} %" if gate.allowed < 1.0 else ""
        for found in new_leaks(folder, summary, Level(gate.name), baseline):
            rate = found.rate
            line = (
                f"gate {gate.name}: {rate.count:,} new of {rate.total:,} {found.query_set}"
                f" images ({percent(rate.share)} %) {'has' if rate.count == 1 else 'have'}"
                f" {found.level.words} ({found.known:,} known from baseline){bound}"
            )
            yield GateResult(gate, found.query_set, gate.trips(rate), line, found)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of the gates of an audit."""

    tripped: tuple[str, ...] = ()  # lines; one that begins with blanks continues the one before
    # lines on gates by pairs that did not trip, where a baseline is known
    passed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # on the baseline
    gates: tuple[dict[str, object], ...] = ()  # of pairs against a baseline, as plain values


def outcome(
    gates: Sequence[Gate], folder: Path, baseline: Baseline | None = None, *, bounded: bool = False
) -> Outcome:
    """Return which gates an audit trips; ``bounded``: the user stated how near frames leak.

    With a baseline but no gate by pairs, new leaks are reported by grade, otherwise by degree.
    """
    summary = judged_summary(folder)
    found: list[GateResult] = []
    if baseline is not None:
        by_pairs = [gate for gate in gates if gate.name not in WITHOUT_PAIRS] or [
            Gate(name, 1.0)
            for name in ("near", "soft")
            if all(total.rates.get(RATES[name][0]) for total in summary.totals)
        ][:1]
        found = list(_new_results(by_pairs, folder, summary, baseline))
    if not bounded:
        _refuse_doubtful(gates, summary)
    if baseline is None:
        return Outcome(tuple(tripped(gates, summary)))
    lines = tripped([gate for gate in gates if gate.name in WITHOUT_PAIRS], summary)
    leaks = [each.leaks for each in found if each.leaks is not None]
    notes = list(baseline.notes(summary, {own.level: None for own in leaks}))
    for each, own in zip(found, leaks, strict=True):
        pairs = [f"  {line}" for line in named(own, NAMED)]
        if each.tripped:
            lines += [each.line, *pairs]
        else:
            notes += pairs
    return Outcome(
        tuple(lines),
        tuple(each.line for each in found if not each.tripped),
        tuple(notes),
        tuple(
            {"gate": each.gate.name, "allowed": each.gate.allowed, "tripped": each.tripped}
            | own.as_dict(NAMED)
            for each, own in zip(found, leaks, strict=True)
        ),
    )


# -- formats ---------------------------------------------------------------------------------------

#: Formats in addition to the summary and the JSON of an audit, and the images that a failed gate
#: names in each; GitHub shows ten annotations per step.
MOST: Final = {"junit": 100, "sarif": 1000, "github": 10}
FORMATS: Final = tuple(MOST)
#: The result of a gate, and the worst pair of each leaking image, worst first.
_Reported = tuple[GateResult, Sequence[PairRow]]


def render(
    format: str, gates: Sequence[Gate], folder: Path, baseline: Baseline | None = None
) -> str:
    """Return the results of gates on a finished audit; with a baseline only new leaks trip them."""
    summary = judged_summary(folder)
    found = list(_reported(gates, folder, summary, baseline, MOST[format]))
    writers = {"junit": _junit, "sarif": _sarif, "github": _github}
    return writers[format](found, summary)


def _reported(
    gates: Sequence[Gate], folder: Path, summary: AuditSummary, baseline: Baseline | None, most: int
) -> Iterator[_Reported]:
    if baseline is not None:
        by_pairs = [gate for gate in gates if gate.name not in WITHOUT_PAIRS]
        gates = [gate for gate in gates if gate.name in WITHOUT_PAIRS]
        for each in _new_results(by_pairs, folder, summary, baseline):
            yield each, worst(each.leaks, most) if each.tripped and each.leaks else ()
    for each in _results(gates, summary):
        pairs: Sequence[PairRow] = ()
        if each.tripped and each.gate.name not in WITHOUT_PAIRS:
            found = new_leaks(folder, summary, Level(each.gate.name))
            pairs = next(worst(f, most) for f in found if f.query_set == each.set_name)
        yield each, pairs


def _file(summary: AuditSummary, row: PairRow) -> str:
    """Return the file of a query relative to the working folder, or that of its set."""
    about = summary.set_of(row["query_set"])
    place = about and about.place(summary.opened_in)
    if not place:
        return ""
    image = place / row["query"]
    return Path(os.path.relpath(image if image.is_file() else place)).as_posix()


def _junit(found: Sequence[_Reported], summary: AuditSummary) -> str:
    failures = str(sum(each.tripped for each, _ in found))
    suites = ElementTree.Element("testsuites")
    about = {"name": "visleak", "tests": str(len(found)), "failures": failures}
    suite = ElementTree.SubElement(suites, "testsuite", about | {"errors": "0", "skipped": "0"})
    for each, pairs in found:
        name = {"classname": f"visleak.{each.gate.name}", "name": plain(each.set_name)}
        case = ElementTree.SubElement(suite, "testcase", name)
        if each.tripped:
            failed = ElementTree.SubElement(case, "failure", message=plain(each.line))
            failed.text = "\n".join(map(pair_line, pairs))
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _sarif(found: Sequence[_Reported], summary: AuditSummary) -> str:
    def result(each: GateResult, text: str, file: str = "") -> dict[str, object]:
        place = {"artifactLocation": {"uri": quote(file, errors="surrogateescape")}}
        return {
            "ruleId": f"leak/{each.gate.name}",
            "level": "error",
            "message": {"text": text},
        } | ({"locations": [{"physicalLocation": place}]} if file else {})

    noted = [result(each, each.line) for each, _ in found if each.tripped]
    noted += [
        result(each, pair_line(row), _file(summary, row)) for each, pairs in found for row in pairs
    ]
    rules = [
        {"id": f"leak/{name}", "shortDescription": {"text": f"gate {name}"}}
        for name in dict.fromkeys(each.gate.name for each, _ in found)
    ]
    driver = {"name": "visleak", "version": visleak.__version__, "rules": rules}
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": noted}],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _github(found: Sequence[_Reported], summary: AuditSummary) -> str:
    lines = []
    for each, pairs in found:
        level = "error" if each.tripped else "notice"
        lines.append(f"::{level} title=visleak::{_data(each.line)}\n")
        for row in pairs:
            file = _property(_file(summary, row))
            title = _property(f"visleak {each.gate.name}")
            lines.append(f"::error file={file},title={title}::{_data(pair_line(row))}\n")
    return "".join(lines)


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
    if not 0.0 <= allowed <= 1.0:
        raise UsageError(f"allowed must be a share between 0 and 1; got {allowed}")
    if unreadable not in ALLOWED:
        raise UsageError(f"unreadable must be one of {', '.join(ALLOWED)}; got {unreadable!r}")
    if level.scale == "grade" and settings is not None and not settings.verify:
        raise UsageError(
            f"grade {level.name!r} needs verified pairs, and settings.verify is False; ask for"
            " hard or soft"
        )
    known = None
    if baseline is not None:
        sources = (baseline,) if isinstance(baseline, str | os.PathLike) else baseline
        known = read_baseline(sources, out)
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
    empty = [why for _, why in _without_content(result.summary)]
    unread = max((rate.share for *_, rate in _not_compared(result.summary)), default=0.0)
    if failed or empty or unread > ALLOWED[unreadable]:
        lines = [line for each in failed for line in _described(each, result, allowed, known)]
        lines += empty
        lines += [] if unreadable == "ignore" else problems
        lines.append(
            f"to review the images: visleak review {shlex.quote(str(result.folder))}"
            if out is not None
            else "to review the images, keep the audit with out=FOLDER, then visleak review FOLDER"
        )
        raise LeakFound("\n".join(lines), result, leaks)
    if unreadable == "warn" and problems:
        warnings.warn(" ".join(problems), stacklevel=2)
    return result


def _leaks(result: Audit, level: Level, known: Baseline | None) -> tuple[NewLeaks, ...]:
    summary = judged_summary(result.folder)
    if any(total.rates.get(level.rate) is None for total in summary.totals):
        why = (
            "a grade needs images, and some sets are of embeddings; ask for hard or soft"
            if level.scale == "grade"
            else "no thresholds are known for the encoder; give them in settings or thresholds"
        )
        raise UsageError(f"grade {level.name!r} was not measured: {why}")
    return new_leaks(result.folder, summary, level, known)


def _described(
    found: NewLeaks, result: Audit, allowed: float, known: Baseline | None
) -> Iterator[str]:
    references = [
        each.reference_set
        for each in result.summary.comparisons
        if each.query_set == found.query_set and each.coverage != "within"
    ]
    where = f"in {' or '.join(references)}" if references else "elsewhere in the same set"
    rate = found.rate
    line = (
        f"{rate.count:,} of {rate.total:,} {found.query_set} images ({percent(rate.share)} %,"
        f" {rate.interval}) {'has' if rate.count == 1 else 'have'} {found.level.words} {where};"
        f" allowed {percent(allowed)} %"
    )
    yield line if known is None else f"{line} ({found.known:,} more known from the baseline)"
    if known is not None:
        yield from known.notes(result.summary, [found.level])
    yield from (f"  {line}" for line in named(found, SHOWN))


def _problems(result: Audit) -> list[str]:
    lines = [
        f"{rate.count:,} of {rate.total:,} {noun} of {name} {what}, and were compared with nothing"
        for name, noun, what, rate in _not_compared(result.summary)
        if noun == "files"
    ]
    if problems := result.unreadable():
        total = sum(each.images for each in result.summary.sets)
        first = [plain(f"{each.set} {each.id} ({each.reason})") for each in problems[:SHOWN]]
        more = [f"{len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else []
        lines.insert(
            0,
            f"{len(problems):,} of {total:,} images could not be read, and were compared with"
            f" nothing: {', '.join([*first, *more])}",
        )
    return lines
