"""A study carried out: its sets located and opened, its audits made or reused, answers read."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, audit
from visleak.errors import HeldError, UsageError, VisleakError
from visleak.formats import open_images
from visleak.formats.sources import split_prefix
from visleak.pipeline.context import Engine, Processes
from visleak.pipeline.embeddings import DEFAULT
from visleak.pipeline.rates import NOTHING, rates
from visleak.progress import Progress, silent
from visleak.quantities import counted
from visleak.rates import Rate
from visleak.records import DEGREES, GRADES, AnySet, EmbeddingSet
from visleak.storage import AUDIT, IMAGES, PAIRS, UNREADABLE, claimed, read_table, refuse_inputs
from visleak.study.config import Comparison, LeftOut, Plan, Study, StudySet, plan


@dataclass(frozen=True)
class Run:
    """What became of a study's comparisons."""

    # what was asked
    study: Study
    plan: Plan
    missing: Mapping[str, str]  # sets that are not there: name to reason
    opened: Mapping[str, AnySet]  # the sets that are
    audits: Mapping[Comparison, Audit]  # comparison to the audit that answers it
    leaks: Mapping[Comparison, Leaks]  # comparison to what leaks
    failed: tuple[LeftOut, ...]  # comparisons that came to nothing, and why
    within: tuple[Audit, ...]  # audits that looked for repeats within the query sets
    reused: int  # how many audits were finished before


def missing_sets(located: Mapping[str, Located]) -> dict[str, str]:
    """Return the sets that are not there, and why."""
    return {name: each.missing for name, each in located.items() if each.missing}


def run(study: Study, folder: Path, options: Options) -> Run:
    """Carry a study out, as far as its sets are there.

    Args:
        study: what is asked.
        folder: where the audits go.
        options: how.

    Raises:
        UsageError: the folder holds audits of other settings or files, or a setting is wrong.
        VisleakError: none of the comparisons has both of its sets.
    """
    located = locate(study)
    missing = missing_sets(located)
    planned = plan(study, missing)
    if not planned.comparisons:
        raise VisleakError(_why_nothing(study, missing))
    there = [(name, each.source) for name, each in located.items() if not each.missing]
    refuse_inputs(folder, there, Path())
    with claimed(folder, result="study.json", reads=False):
        with options.watch("sets") as progress:
            progress("listing images", 0, 0)
            opened, faults = _open(study, located, planned)
            progress("listing images", 1, 1)
        work = Work(study, folder, options, opened, faults)
        work.answer(jobs_of(planned, folder, study))
    leaks: dict[Comparison, Leaks] = {}
    for audits, own in work.answers:
        leaks |= leaks_of(audits, own)
    return Run(
        study=study,
        plan=planned,
        missing=missing,
        opened=opened,
        audits={each: found for found, own in work.answers for each in own},
        leaks={each: leaks[each] for each in planned.comparisons if each in leaks},
        failed=tuple(LeftOut(each, why) for each, why in work.failed.items()),
        within=tuple(work.within),
        reused=work.reused,
    )


def _why_nothing(study: Study, missing: Mapping[str, str]) -> str:
    reason = "no benchmark meets a training set of another name; check roles, dataset and contains"
    if missing:
        name, why = next(iter(missing.items()))
        reason = (
            f"{len(missing)} of {len(study.sets)} sets are not there (set {name!r}: {why}); fill in"
            " source of at least one benchmark and one training set"
        )
    return f"{study.path}: nothing to compare: {reason}"


def _open(
    study: Study, located: Mapping[str, Located], planned: Plan
) -> tuple[dict[str, AnySet], dict[str, str]]:
    """Open the sets that the plan needs; return them, and what is wrong with the others."""
    needed = {name for each in planned.comparisons for name in (each.query, each.reference)}
    opened: dict[str, AnySet] = {}
    faults = {}
    for each in study.sets:
        if each.name not in needed:
            continue
        try:
            opened[each.name] = open_images(
                _with_encoder(located[each.name].source, each),
                name=each.name,
                dataset=each.dataset,
                roles=each.roles,
                **dict(each.columns),
            )
        except VisleakError as error:
            faults[each.name] = f"set {each.name!r}: {error}"
    return opened, faults


def _with_encoder(source: str, each: StudySet) -> str:
    """Return a source of embeddings that says who made them, if the file's set does.

    >>> _with_encoder("emb:laion", StudySet("l", "l", "", (), encoder="clip?prep=laion"))
    'emb:laion?encoder=clip%3Fprep%3Dlaion'
    """
    if not each.encoder or not source.startswith("emb:") or "encoder=" in source:
        return source
    return f"{source}{'&' if '?' in source else '?'}encoder={urllib.parse.quote(each.encoder, '')}"


AUDITS: Final = "audits"
WITHIN: Final = "within"

#: Longer names of sets are cut in names of folders.
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class Options:
    """How a study is run; nothing of it changes an answer."""

    # as of `visleak.audit`
    workers: int | None = None
    cache: str | os.PathLike[str] | None = "default"
    engine: Engine = Processes
    force: bool = False
    command: str | None = None
    # is told of every audit that begins; gives what is told how far its steps are
    watch: Callable[[str], AbstractContextManager[Progress]] = lambda name: nullcontext(silent)
    # is given every audit, also those that were there before (``reused``)
    finished: Callable[[Audit], None] = lambda audit: None


@dataclass(frozen=True, slots=True)
class Job:
    """An audit to make: of queries against a reference, or of repeats within the queries."""

    base: Path  # its folder; what is added later goes beside it, to ``base+2`` and so on
    queries: tuple[str, ...]  # names of the sets
    reference: str  # name of the set; empty to look for repeats
    comparisons: tuple[Comparison, ...] = ()  # that it answers


def jobs_of(planned: Plan, folder: Path, study: Study) -> list[Job]:
    """Return the audits that a plan needs, repeats within the sets last."""
    jobs = []
    for reference, comparisons in planned.by_reference().items():
        base = folder / AUDITS / folder_name(reference)
        jobs.append(Job(base, tuple(e.query for e in comparisons), reference, comparisons))
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
    """The audits of a study while they are made."""

    study: Study
    folder: Path
    options: Options
    opened: Mapping[str, AnySet]
    faults: Mapping[str, str]
    # audits with the comparisons they answer
    answers: list[tuple[Audit, tuple[Comparison, ...]]] = field(default_factory=list)
    within: list[Audit] = field(default_factory=list)  # audits of repeats
    failed: dict[Comparison, str] = field(default_factory=dict)  # and why
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
                unread = next((self.faults[name] for name in held if name in self.faults), None)
                if unread is not None:
                    self._fail(job, held, unread)
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
        held = [each.name for each in Audit(place).summary.sets if each.side == "query"]
        for name in held:
            if name not in job.queries:
                raise HeldError(
                    f"{place} holds an audit of {name!r} too, which is not compared with"
                    f" {job.reference!r} any more; choose another folder with -o DIR, or do all"
                    " again with --force"
                )
        return held

    def _make(self, job: Job, queries: Sequence[str]) -> None:
        """Make the audit of the queries that are not answered for."""
        for name in queries:
            if name in self.faults:
                self._fail(job, [name], self.faults[name])
        if job.reference in self.faults:
            self._fail(job, queries, self.faults[job.reference])
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
        encoder = self._encoder(reference)
        settings = replace(self.study.settings, encoder=encoder, within=not reference)
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
                f"{place} is unfinished: {counted(found.unfinished, 'image')} could not be read"
                f" again ({place / UNREADABLE}); run the study again"
            )
        return found

    def _encoder(self, reference: str) -> str:
        """Return the encoder of an audit: it must not depend on which queries are there."""
        asked = self.study.named(reference).encoder if reference else ""
        own = self.opened.get(reference)
        made = own.encoder_name if isinstance(own, EmbeddingSet) else ""
        return asked or self.study.settings.encoder or made or DEFAULT

    def _note(self, found: Audit, job: Job) -> None:
        self.reused += found.reused
        self.options.finished(found)
        if not job.reference:
            self.within.append(found)
            return
        held = {each.query_set for each in found.summary.comparisons}
        self.answers.append((found, tuple(e for e in job.comparisons if e.query in held)))

    def _fail(self, job: Job, queries: Sequence[str], why: str) -> None:
        for each in job.comparisons:
            if each.query in queries:
                self.failed.setdefault(each, why)


def _named(message: str, queries: Sequence[str]) -> list[str]:
    """Return the query set that a message blames; all of them where it blames none alone.

    >>> _named("set 'b' holds no images", ["a", "b"]), _named("the disk is full", ["a", "b"])
    (['b'], ['a', 'b'])
    """
    blamed = [name for name in queries if f"set {name!r}" in message]
    return blamed if len(blamed) == 1 else list(queries)


def _places(base: Path) -> list[Path]:
    """Return the folders of a job that are there, and the next; no set's name gives a plus."""
    found = [base]
    while found[-1].exists():
        found.append(base.with_name(f"{base.name}+{len(found) + 1}"))
    return found


_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

#: Prefixes whose rest need not be a path of this machine.
_ELSEWHERE: Final = ("hf",)


@dataclass(frozen=True, slots=True)
class Located:
    """A set's source as ``open_images`` takes it, or why there is none."""

    source: str  # SOURCE with variables and ``~`` replaced, relative paths from the file's folder
    missing: str = ""  # in words; empty if the source is there


def locate(study: Study, environment: Mapping[str, str] | None = None) -> dict[str, Located]:
    """Return where each set of a study lies, by name; nothing is opened."""
    known = os.environ if environment is None else environment
    # absolute: a source is the same wherever the command runs
    folder = study.path.parent.absolute()
    return {each.name: _located(each, folder, known) for each in study.sets}


def _located(each: StudySet, folder: Path, environment: Mapping[str, str]) -> Located:
    if not each.source.strip():
        return Located("", "source is not filled in")
    for name in _VARIABLE.findall(each.source):
        if not environment.get(name):
            return Located("", f"environment variable {name} is not set")
    text = _VARIABLE.sub(lambda found: environment[found[1]], each.source)
    prefix, rest = ("", text) if (folder / text).exists() else split_prefix(text)
    if rest.startswith("//") or prefix in _ELSEWHERE:
        return Located(text)
    # joined as text: a Path would tidy up what stands after ? or #
    rest = os.path.join(folder, os.path.expanduser(rest))
    found = f"{prefix}:{rest}" if prefix else rest
    return Located(found, "" if _is_there(rest) else f"source {each.source} does not exist")


def _is_there(text: str) -> bool:
    """Whether ``path``, ``path#split`` or ``path?options`` exists, or a pattern that may match."""
    marks = (at for at in range(len(text) - 1, 0, -1) if text[at] in "#?")
    if any(Path(text[:end]).exists() for end in (len(text), *marks)):
        return True
    # braces are ranges of shards, which are resolved when they are opened
    return "{" in text or (glob.has_magic(text) and next(glob.iglob(text), None) is not None)


# -- which images leak, comparison by comparison and together --------------------------------------


#: Grades that are a finding.
_FOUND: Final = GRADES[:3]


@dataclass(frozen=True, slots=True)
class Leaks:
    """The leaking images of a query set, by id, with the strongest code of each."""

    total: int  # readable images of the query set
    degree: Mapping[str, int]  # image to index into ``DEGREES``
    grade: Mapping[str, int]  # image to index into ``GRADES``
    measured: bool  # there were thresholds, so that no degree means no leak
    graded: bool  # pairs were verified, so no grade means no leak
    own: int = 0  # pairs left out because they are known to be one image in two sets

    def rates(self) -> dict[str, Rate | None]:
        """Return the rates that an audit has, ``None`` if nothing was measured."""
        best = {scale: np.full(self.total, NOTHING, np.int64) for scale in ("degree", "grade")}
        for scale, codes in best.items():
            known = getattr(self, scale)
            # images that do not leak follow those that do
            codes[: len(known)] = np.fromiter(known.values(), np.int64, len(known))
        return rates(best, self.graded, self.measured)


def together(parts: Sequence[Leaks]) -> Leaks:
    """Return the leaks of one query set into any of several references.

    An image has its strongest code over all of them. If one reference was not verified,
    the whole is unknown: the union is then not graded (or measured) either.
    """
    return Leaks(
        total=parts[0].total,
        degree=_strongest([part.degree for part in parts]),
        grade=_strongest([part.grade for part in parts]),
        measured=all(part.measured for part in parts),
        graded=all(part.graded for part in parts),
        own=sum(part.own for part in parts),
    )


def _strongest(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for image, code in part.items():
            result[image] = min(code, result.get(image, code))
    return result


def leaks_of(audit: Audit, comparisons: Sequence[Comparison]) -> dict[Comparison, Leaks]:
    """Return what leaks in an audit's comparisons: neither repeats in a set nor blank images."""
    stored = {(c.query_set, c.reference_set): c for c in audit.summary.comparisons}
    result = {}
    for each in comparisons:
        about = stored[each.query, each.reference]
        blank = (pc.field("set") == each.query) & pc.field("flat")
        flat = read_table(audit.folder, IMAGES, ["id"], blank)["id"].combine_chunks()
        pairs = read_table(
            audit.folder,
            PAIRS,
            ["query", "reference", "degree", "grade"],
            (pc.field("query_set") == each.query)
            & (pc.field("reference_set") == each.reference)
            & (pc.field("coverage") != "within")
            & (pc.is_valid(pc.field("degree")) | pc.field("grade").isin(list(_FOUND))),
        )
        own = _own(pairs, each.match)
        kept = pairs.filter(pc.and_not(pc.invert(own), pc.is_in(pairs["query"], flat)))
        result[each] = Leaks(
            total=about.queries,
            degree=_best(kept, "degree", DEGREES),
            grade=_best(kept, "grade", _FOUND),
            measured=about.rates["hard_or_soft"] is not None,
            graded=about.rates["near_or_exact"] is not None,
            own=int(pc.sum(own).as_py() or 0),
        )
    return result


def _own(pairs: pa.Table, match: str) -> pa.Array:
    """Return which pairs are one image in two sets, as the known inclusion tells it."""
    if not match:
        return pa.array(np.zeros(len(pairs), bool))
    # what is compared of each id: all of it, or the pattern's first group
    pattern = None if match == "id" else re.compile(match[1:-1])

    def compared(ids: pa.ChunkedArray) -> list[str | None]:
        texts = ids.to_pylist()
        if pattern is None:
            return list(texts)
        return [hit[1] if (hit := pattern.search(text)) else None for text in texts]

    sides = zip(compared(pairs["query"]), compared(pairs["reference"]), strict=True)
    return pa.array([a is not None and a == b for a, b in sides], pa.bool_())


def _best(pairs: pa.Table, column: str, words: tuple[str, ...]) -> dict[str, int]:
    """Return the strongest code of each query that has one."""
    codes = pc.index_in(pairs[column], pa.array(words))
    table = pa.table({"query": pairs["query"], "code": codes})
    best = table.filter(pc.is_valid(table["code"])).group_by("query").aggregate([("code", "min")])
    return dict(zip(best["query"].to_pylist(), best["code_min"].to_pylist(), strict=True))
