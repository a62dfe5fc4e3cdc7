"""What a study found: cells, unions over references, repeats; and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import visleak
from visleak.documents import as_plain
from visleak.errors import VisleakError
from visleak.pipeline.rates import CUMULATIVE, EXCLUSIVE
from visleak.quantities import counted
from visleak.rates import Rate, percent
from visleak.storage import AuditSummary, SetSummary
from visleak.storage.audit_folder import Topic
from visleak.study.config import (
    NOTHING,
    Comparison,
    LeftOut,
    Paper,
    Plan,
    Study,
    StudySet,
    Values,
    fits,
)
from visleak.study.running import Run, together

#: Rates by name, in the order of every table.
RATES: Final = (*EXCLUSIVE, *CUMULATIVE)

#: Omissions of audits that a study has in words of its own.
_OWN_WORDS: Final = (Topic.SAMPLE, Topic.REPEATS, Topic.NO_VERIFICATION)

Rates = Mapping[str, Rate | None]


@dataclass(frozen=True, slots=True)
class Cell:
    """A comparison and what came out."""

    comparison: Comparison  # which
    modality: str  # ``full`` or ``image-only``
    audit: str  # the audit's folder, relative to the study's
    rates: Rates  # of the query set's readable images
    own: int  # pairs left out as one image that is known to be in both sets
    paper: Values  # published values, in per cent


@dataclass(frozen=True, slots=True)
class Union:
    """A benchmark against several references at once: an image that leaks into any of them."""

    query: str = field(metadata={"key": "query_set"})  # the benchmark
    coverage: str  # of the comparisons: ``intra``, ``inter``, or ``any`` for all
    references: tuple[str, ...] = field(metadata={"key": "reference_sets"})
    rates: Rates  # over the benchmark's readable images
    paper: Values = field(metadata={"key": "published"})  # in per cent


@dataclass(frozen=True, slots=True)
class Repeats:
    """Images of one set that repeat each other: never a leak."""

    query: str = field(metadata={"key": "query_set"})
    # of grade exact or near; each unordered pair once
    pairs: int
    images: int


@dataclass(frozen=True)
class Result:
    """What a study found."""

    run: Run  # what was done
    paper: Paper  # published values
    cells: tuple[Cell, ...]  # one a comparison, in the order of the plan
    unions: tuple[Union, ...]  # by benchmark: ``intra``, ``inter``, ``any``
    repeats: tuple[Repeats, ...]  # of the query sets, if they were looked for
    # references and queries of the matrix, in its order
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    notes: tuple[str, ...]  # what a reader must know, one line each

    @property
    def failed(self) -> tuple[LeftOut, ...]:
        """Comparisons that came to nothing."""
        return self.run.failed

    @property
    def totals(self) -> tuple[Union, ...]:
        """One a benchmark: over all its references."""
        return tuple(union for union in self.unions if union.coverage == "any")

    def cell(self, query: str, reference: str) -> Cell | None:
        """Return the cell of two sets, if they were compared."""
        sets = query, reference
        found = (e for e in self.cells if (e.comparison.query, e.comparison.reference) == sets)
        return next(found, None)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The lines a person can repeat: one a benchmark."""
        return tuple(_headline(union) for union in self.totals)


def result_of(run: Run, folder: Path, paper: Paper = NOTHING) -> Result:
    """Put together what a study found, beside the values that a paper published."""
    study, cells = run.study, tuple(_cell(run, each, folder, paper) for each in run.leaks)
    # a side of the matrix that is left open takes every set
    rows = study.references or tuple(each.name for each in study.sets)
    columns = study.queries or tuple(each.name for each in study.sets)
    shown = [e for e in run.leaks if e.reference in rows and e.query in columns]
    return Result(
        run=run,
        paper=paper,
        cells=cells,
        unions=tuple(_unions(run, paper)),
        repeats=tuple(_repeats(run)),
        rows=tuple(name for name in rows if name in {each.reference for each in shown}),
        columns=tuple(name for name in columns if name in {each.query for each in shown}),
        notes=tuple(dict.fromkeys(_notes(run, cells))),
    )


def _cell(run: Run, each: Comparison, folder: Path, paper: Paper) -> Cell:
    audit, leaks = run.audits[each], run.leaks[each]
    sets = each.query, each.reference
    stored = {(e.query_set, e.reference_set): e for e in audit.summary.comparisons}
    return Cell(
        comparison=each,
        modality=stored[sets].modality,
        audit=audit.folder.relative_to(folder).as_posix(),
        rates=leaks.rates(),
        own=leaks.own,
        paper=paper.of(*sets),
    )


def _unions(run: Run, paper: Paper) -> Iterator[Union]:
    """Yield the unions of each benchmark, in the order of the file."""
    for name in (each.name for each in run.study.sets):
        own = [each for each in run.leaks if each.query == name]
        totals = {run.leaks[each].total for each in own}
        if len(totals) > 1:
            raise VisleakError(
                f"audits of {name!r} disagree on how many of its images can be read"
                f" ({', '.join(f'{n:,}' for n in sorted(totals))}): its files changed between"
                " them; do all again with --force"
            )
        for coverage in ("intra", "inter", "any"):
            part = [each for each in own if coverage in ("any", each.coverage)]
            if part:
                published = paper.intra.get(name, {}) if coverage == "intra" else {}
                leaks = together([run.leaks[each] for each in part])
                references = tuple(each.reference for each in part)
                yield Union(name, coverage, references, leaks.rates(), published)


def _repeats(run: Run) -> Iterator[Repeats]:
    for each in (each for audit in run.within for each in audit.summary.comparisons):
        if each.within:
            pairs, images = each.within["duplicate_pairs"], each.within["distinct_images"]
            near = (count["exact"] + count["near"] for count in (pairs, images))
            yield Repeats(each.query_set, *near)


def _headline(union: Union) -> str:
    degree, grade = union.rates["hard_or_soft"], union.rates["near_or_exact"]
    counted, many = degree or grade, len(union.references)
    into = union.references[0] if many == 1 else f"at least one of {many} sets"
    if counted is None:
        return f"{union.query}: compared with {into}; no thresholds and no grades, so no rate"
    if not counted.total:
        return f"{union.query}: none of its images could be read"
    text = f"{union.query}: {counted} leak into {into}"
    if degree is None:
        return f"{text} (near or exact)"
    rates = [(name, union.rates[name]) for name in ("hard", "soft")]
    text += f": {', '.join(f'{name} {percent(rate.share)} %' for name, rate in rates if rate)}"
    return f"{text}; near or exact {percent(grade.share)} %" if grade else text


def _notes(run: Run, cells: Sequence[Cell]) -> Iterator[str]:
    summaries = [audit.summary for audit in {id(a): a for a in run.audits.values()}.values()]
    yield from map(_measure, summaries)
    if count := run.study.settings.sample:
        yield f"a sample of {count:,} images of each benchmark, drawn with a fixed seed"
        if run.study.settings.within:
            yield "repeats within the benchmarks: not looked for in a sample"
    # what every audit says of itself; two of these a study says better
    for summary in summaries:
        yield from (each.text for each in summary.skipped if each.topic not in _OWN_WORDS)
    for name, images in run.opened.items():
        published = run.study.named(name).images
        if not fits(published, len(images)):
            yield f"{name} holds {len(images):,} images; published are {published}"
    unreadable = {each.name: each.unreadable for summary in summaries for each in summary.sets}
    for name, count in unreadable.items():
        if count:
            yield f"{name}: {counted(count, 'image')} could not be read"
    for cell in cells:
        made = cell.comparison
        if made.match:
            yield (
                f"{made.query} and {made.reference} have images in common: {cell.own:,} pairs with"
                f" one id (match {made.match}) are left out here; the audit's own report has them"
            )


def _measure(summary: AuditSummary) -> str:
    found = summary.thresholds
    both = (("hard", found.hard), ("soft", found.soft))
    known = [f"{name} >= {value:g}" for name, value in both if value is not None]
    limits = ", ".join(known) or "no thresholds are known, so there are no degrees"
    provisional = " (provisional)" if found.provisional else ""
    return f"encoder {summary.encoder.name}: {limits}{provisional}"


SCHEMA: Final = 1
KIND: Final = "visleak study"


def as_dict(result: Result) -> dict[str, object]:
    """Return the content of ``study.json``; the same sets and settings give the same bytes."""
    run = result.run
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "title": run.study.title,
        "headline": "; ".join(result.headlines),
        "settings": run.study.settings.as_dict(),
        "published": result.paper.source or None,
        "sets": [_set(run, each) for each in run.study.sets],
        "matrix": {"references": list(result.rows), "queries": list(result.columns)},
        "comparisons": [
            {
                **_comparison_dict(cell.comparison),
                "modality": cell.modality,
                "audit": cell.audit,
                "rates": as_plain(cell.rates),
                "own_pairs_left_out": cell.own,
                "published": as_plain(cell.paper),
            }
            for cell in result.cells
        ],
        "unions": as_plain(result.unions),
        "totals": [
            {"query_set": union.query, "headline": line, "rates": as_plain(union.rates)}
            for union, line in zip(result.totals, result.headlines, strict=True)
        ],
        "repeats": as_plain(result.repeats),
        "included": [_left_dict(left) for left in run.plan.included],
        "skipped": [_left_dict(left) for left in run.plan.skipped],
        "failed": [_left_dict(left) for left in run.failed],
        "notes": list(result.notes),
    }


def plan_dict(study: Study, plan: Plan) -> dict[str, object]:
    """Return a plan as plain values."""
    return {
        "schema": SCHEMA,
        "kind": "visleak study plan",
        "title": study.title,
        "comparisons": [_comparison_dict(each) for each in plan.comparisons],
        "included": [_left_dict(left) for left in plan.included],
        "skipped": [_left_dict(left) for left in plan.skipped],
        "idle": list(plan.idle),
    }


def _set(run: Run, each: StudySet) -> dict[str, object]:
    images = run.opened.get(each.name)
    about: SetSummary | None = None
    for audit in run.audits.values():
        about = audit.summary.set_of(each.name) or about
    return {
        "name": each.name,
        "dataset": each.dataset,
        "split": each.split,
        "roles": list(each.roles),
        "source": each.source,
        "published": each.images or None,
        "images": about.images if about else len(images) if images is not None else 0,
        "readable": about.readable if about else None,
        "unreadable": about.unreadable if about else None,
        "missing": run.missing.get(each.name),
        "contains": [inclusion.set for inclusion in each.contains],
    }


def _left_dict(left: LeftOut) -> dict[str, str]:
    return {**_comparison_dict(left.comparison), "why": left.why}


def _comparison_dict(each: Comparison) -> dict[str, str]:
    sets = {"query_set": each.query, "reference_set": each.reference}
    return sets | {"coverage": each.coverage}
