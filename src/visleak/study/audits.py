"""The audits of a study: one a reference set, all its queries in one pass."""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from visleak import pipeline
from visleak.auditing import Audit, audit
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.processes import Processes
from visleak.pipeline.stored_encoder import DEFAULT
from visleak.pipeline.workplace import Engine, Progress
from visleak.records import AnySet, EmbeddingSet
from visleak.storage import AUDIT, UNREADABLE
from visleak.study.config import Study
from visleak.study.plan import Comparison, LeftOut, Plan

AUDITS: Final = "audits"
WITHIN: Final = "within"

#: Longer names of sets are cut in names of folders.
_LONGEST: Final = 120

#: Is told of every audit that begins; gives what is told how far its steps are.
Watch = Callable[[str], AbstractContextManager[Progress]]

#: Is given every audit, also those that were there before (``reused``).
Finished = Callable[[Audit], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How a study is run; nothing of it changes an answer.

    Attributes:
        workers, cache, engine, force, command: as of :func:`visleak.audit`.
        watch: is told what is being done.
        finished: is given every audit.
    """

    workers: int | None = None
    cache: str | os.PathLike[str] | None = "default"
    engine: Engine = Processes
    force: bool = False
    command: str | None = None
    watch: Watch = lambda name: nullcontext(pipeline.silent)
    finished: Finished = lambda audit: None


@dataclass(frozen=True, slots=True)
class Job:
    """An audit to make: of queries against a reference, or of repeats within the queries.

    Attributes:
        base: its folder; what is added later goes beside it, to ``base+2`` and so on.
        queries: names of the sets.
        reference: name of the set; empty to look for repeats.
        comparisons: that it answers.
    """

    base: Path
    queries: tuple[str, ...]
    reference: str
    comparisons: tuple[Comparison, ...] = ()


def jobs_of(planned: Plan, folder: Path, study: Study) -> list[Job]:
    """Return the audits that a plan needs, repeats within the sets last."""
    jobs = [
        Job(
            folder / AUDITS / folder_name(reference),
            tuple(each.query for each in comparisons),
            reference,
            comparisons,
        )
        for reference, comparisons in planned.by_reference().items()
    ]
    # a sample is drawn to compare it with something else
    if study.settings.within and not study.settings.sample:
        queries = tuple(dict.fromkeys(each.query for each in planned.comparisons))
        repeats = tuple(Comparison(name, name, "within") for name in queries)
        jobs.append(Job(folder / WITHIN, queries, "", repeats))
    return jobs


def folder_name(name: str) -> str:
    """Return a name for a folder, different for different sets, harmless on any disk.

    >>> folder_name("coco-val2014"), folder_name("../a b"), folder_name(".")
    ('coco-val2014', '%2E.%2Fa%20b', '%2E')
    """
    quoted = urllib.parse.quote(name, safe="").replace("~", "%7E")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _LONGEST:
        return quoted
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{quoted[:_LONGEST].rstrip('%')}-{digest}"


@dataclass
class Work:
    """The audits of a study while they are made.

    Attributes:
        answers: audits with the comparisons they answer.
        within: audits of repeats.
    """

    study: Study
    folder: Path
    options: Options
    opened: Mapping[str, AnySet]
    faults: Mapping[str, str]
    answers: list[tuple[Audit, tuple[Comparison, ...]]] = field(default_factory=list)
    within: list[Audit] = field(default_factory=list)
    failed: list[LeftOut] = field(default_factory=list)
    reused: int = 0

    def answer(self, jobs: Sequence[Job]) -> None:
        """Use what is finished, then make what is not."""
        # first all that is there: audits of other settings must be known before hours of work
        left = [(job, self._reuse(job)) for job in jobs]
        for job, done in left:
            self._make(job, [name for name in job.queries if name not in done])

    def _reuse(self, job: Job) -> set[str]:
        """Take the finished audits of a job; return the query sets they answer for."""
        done: set[str] = set()
        if self.options.force or job.reference in self.faults:
            return done
        for place in _places(job.base):
            if not (place / AUDIT).is_file():
                continue
            held: Sequence[str] = job.queries
            try:
                held = self._held(place, job)
                unread = [name for name in held if name in self.faults]
                if unread:
                    self._fail(job, held, self.faults[unread[0]])
                else:
                    self._note(self._audited(place, held, job.reference), job)
            except UsageError:
                raise
            except VisleakError as error:
                # a damaged audit stays as it is: somebody may have judged its pairs
                self._fail(job, held, str(error))
            done |= set(held)
        return done

    def _held(self, place: Path, job: Job) -> list[str]:
        """Return the query sets of a finished audit, if all of them are still asked for."""
        sets = Audit(place).summary.sets
        held = [each.name for each in sets if each.side == "query"]
        gone = [name for name in held if name not in job.queries]
        if gone:
            raise UsageError(
                f"{place} holds an audit of {gone[0]!r} too, which is not compared with"
                f" {job.reference!r} any more; choose another folder with -o DIR, or do all"
                " again with --force"
            )
        return held

    def _make(self, job: Job, queries: Sequence[str]) -> None:
        """Make the audit of the queries that are not answered for."""
        for name in (*queries, job.reference):
            if name in self.faults:
                self._fail(job, [name] if name != job.reference else queries, self.faults[name])
        if job.reference in self.faults:
            return
        left = [name for name in queries if name in self.opened]
        while left:
            try:
                found = self._audited(self._free(job), left, job.reference)
            except UsageError:
                raise
            except VisleakError as error:
                fault = _named(str(error), left)
                self._fail(job, fault, str(error))
                left = [name for name in left if name not in fault]
            else:
                self._note(found, job)
                return

    def _free(self, job: Job) -> Path:
        """Return the folder for the audit that a job still needs."""
        places = _places(job.base)
        if not self.options.force:
            return next(place for place in places if not (place / AUDIT).is_file())
        # what was added to an audit that is done again is part of it now
        for added in places[1:]:
            (added / AUDIT).unlink(missing_ok=True)
        return job.base

    def _audited(self, place: Path, queries: Sequence[str], reference: str) -> Audit:
        settings = replace(
            self.study.settings, encoder=self._encoder(reference), within=not reference
        )
        with self.options.watch(reference or "repeats within the sets") as progress:
            found = audit(
                [self.opened[name] for name in queries],
                [self.opened[reference]] if reference else None,
                settings=settings,
                thresholds=self.study.thresholds,
                out=place,
                workers=self.options.workers,
                cache=self.options.cache,
                engine=self.options.engine,
                progress=progress,
                force=self.options.force,
                command=self.options.command,
            )
        if found.unfinished:
            raise VisleakError(
                f"{place} is unfinished: {found.unfinished:,} images could not be read again"
                f" ({place / UNREADABLE}); run the study again"
            )
        return found

    def _encoder(self, reference: str) -> str:
        """Return the encoder of an audit: it must not depend on which queries are there."""
        asked = self.study.named(reference).encoder if reference else ""
        own = self.opened.get(reference)
        made = own.encoder_name if isinstance(own, EmbeddingSet) else ""
        return asked or self.study.settings.encoder or made or DEFAULT

    def _note(self, found: Audit, job: Job) -> None:
        """Take an audit as the answer to its comparisons."""
        self.reused += found.reused
        self.options.finished(found)
        if not job.reference:
            self.within.append(found)
            return
        held = {each.query_set for each in found.summary.comparisons}
        self.answers.append((found, tuple(e for e in job.comparisons if e.query in held)))

    def _fail(self, job: Job, queries: Sequence[str], why: str) -> None:
        for each in job.comparisons:
            if each.query in queries and each not in [left.comparison for left in self.failed]:
                self.failed.append(LeftOut(each, why))


def _named(message: str, queries: Sequence[str]) -> list[str]:
    """Return the query set that a message blames; all of them where it blames none alone.

    >>> _named("set 'b' holds no images", ["a", "b"]), _named("the disk is full", ["a", "b"])
    (['b'], ['a', 'b'])
    """
    blamed = [name for name in queries if f"set {name!r}" in message]
    return blamed if len(blamed) == 1 else list(queries)


def _places(base: Path) -> list[Path]:
    """Return the folders of a job that are there, and the next that is not.

    No name of a set gives a folder with a plus in it.
    """
    found = [base]
    while found[-1].exists():
        found.append(base.with_name(f"{base.name}+{len(found) + 1}"))
    return found
