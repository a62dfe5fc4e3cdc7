"""The plan and the result of a study for people."""

from __future__ import annotations

from dataclasses import replace

from visleak.reporting import Document
from visleak.study.config import Study
from visleak.study.places import locate
from visleak.study.plan import Plan, plan
from visleak.study.results import Result
from visleak.study.running import missing_sets
from visleak.study.stored import plan_dict
from visleak.study.tables import absent, extent, planned, short
from visleak.study.texts import counted


def plan_of(study: Study) -> tuple[Document, dict[str, object]]:
    """Return what a study would compare, for people and as plain values; nothing is opened."""
    missing = missing_sets(locate(study))
    made: Plan = plan(study, missing)
    notes = [f"not there: {line}" for line in absent(made, missing)]
    notes += [f"in no comparison: {name}" for name in made.idle]
    document = Document("Plan", extent(made), lines=tuple(notes), tables=(planned(made),))
    return document, plan_dict(study, made)


def document(result: Result) -> Document:
    """Return what a study found."""
    first, *others = result.headlines
    grid = replace(short(result), texts=2)
    notes = list(result.notes)
    notes += [
        f"duplicates within {each.query}: {each.images:,} images, near or exact; no leaks"
        for each in result.repeats
        if each.images
    ]
    notes += [f"not there: {line}" for line in absent(result.run.plan, result.run.missing)]
    notes.append(extent(result.run.plan))
    if result.run.reused:
        notes.append(f"{counted(result.run.reused, 'audit')} reused; --force runs all again")
    return Document("Study", first, lines=tuple(others), tables=(grid,), notes=tuple(notes))


def failures(result: Result) -> list[str]:
    """Return a line for each thing that went wrong: the first comparison it cost, and how many."""
    lines = []
    for why in dict.fromkeys(left.why for left in result.failed):
        first, *others = [left.comparison for left in result.failed if left.why == why]
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{first.query} against {first.reference}{more}: {why}")
    return lines


def not_compared(result: Result) -> list[str]:
    """Return a line for each set whose source is given and does not exist: a gate fails by it."""
    return [
        f"gates: set {name!r} was compared with nothing ({why}); correct its source, or empty it"
        for name, why in result.run.missing.items()
        if result.run.study.named(name).source.strip()
    ]
