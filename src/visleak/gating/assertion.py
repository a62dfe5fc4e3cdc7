"""One line for a test suite: no image of the test set is in the training set."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from visleak.auditing import Audit, audit
from visleak.errors import UsageError, VisleakError
from visleak.gating.baseline import Baseline, NewLeaks, named, new_leaks, read_baseline
from visleak.gating.gates import UNREADABLE_SHARE, not_compared
from visleak.rates import percent
from visleak.records import AnySet, Encoder, Encodes, Source
from visleak.settings import Settings
from visleak.templates import plain
from visleak.verdicts import judged_summary
from visleak.verdicts.level import Level

#: Pairs that a failure names.
NAMED: Final = 5

#: What may be done about images that cannot be read, and the share of a set that passes.
UNREADABLE: Final = {"warn": UNREADABLE_SHARE, "ignore": 1.0, "fail": 0.0}

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
    if failed or _unread(result) > UNREADABLE[unreadable]:
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
    if unreadable not in UNREADABLE:
        raise UsageError(f"unreadable must be one of {', '.join(UNREADABLE)}; got {unreadable!r}")
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
    for line in named(found, NAMED):
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
    first = [plain(f"{each.set} {each.id} ({each.reason})") for each in problems[:NAMED]]
    more = [f"{len(problems) - NAMED:,} more"] if len(problems) > NAMED else []
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
