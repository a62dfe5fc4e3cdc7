"""Which sets are compared with which: a pure function of the roles and what is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from visleak.study.config import Study, StudySet


@dataclass(frozen=True, slots=True)
class Comparison:
    """A query set against a reference set."""

    # names of the sets
    query: str
    reference: str
    coverage: str  # ``intra`` within a dataset, ``inter`` between two
    # how images are told that are known to be in both (see ``Inclusion``), or empty
    match: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A comparison that is not made, and why, in words."""

    comparison: Comparison
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All comparisons of a study."""

    comparisons: tuple[Comparison, ...]  # that are made
    # that would find what is known: one set is part of the other
    included: tuple[LeftOut, ...] = ()
    skipped: tuple[LeftOut, ...] = ()  # that would be made if their sets were there
    idle: tuple[str, ...] = ()  # sets that are in no comparison at all

    def by_reference(self) -> dict[str, tuple[Comparison, ...]]:
        """Return the comparisons by reference set: one audit each."""
        references = dict.fromkeys(each.reference for each in self.comparisons)
        return {
            name: tuple(each for each in self.comparisons if each.reference == name)
            for name in references
        }


def plan(study: Study, missing: Mapping[str, str] | None = None) -> Plan:
    """Return every comparison that makes sense.

    Within a dataset, a set is compared with the sets that come before it in use: a benchmark
    with all that is trained on, a set that serves as both with what is only trained on. Between
    datasets the same, or exactly the sets that ``[matrix]`` names.

    Args:
        study: the file.
        missing: sets that are not there: name to reason.

    Source: the comparisons of Ramos et al. 2025, section 4.
    """
    missing = missing or {}
    made, included, skipped = [], [], []
    for query, reference in _couples(study):
        coverage = "intra" if query.dataset == reference.dataset else "inter"
        whole, match = _known(study, query.name, reference.name)
        each = Comparison(query.name, reference.name, coverage, match)
        if whole:
            included.append(LeftOut(each, whole))
        elif absent := [name for name in (query.name, reference.name) if name in missing]:
            skipped.append(LeftOut(each, f"needs {' and '.join(absent)}"))
        else:
            made.append(each)
    seen = [*made, *(left.comparison for left in (*included, *skipped))]
    busy = {name for each in seen for name in (each.query, each.reference)}
    idle = tuple(each.name for each in study.sets if each.name not in busy)
    return Plan(tuple(made), tuple(included), tuple(skipped), idle)


def _couples(study: Study) -> Iterator[tuple[StudySet, StudySet]]:
    """Yield the queries and references to compare, in the order of the file."""
    for reference in study.sets:
        for query in study.sets:
            if query.dataset == reference.dataset or not (study.references or study.queries):
                belong = _precedes(reference, query)
            else:
                belong = _in_matrix(study, query, reference)
            if belong:
                yield query, reference


def _precedes(reference: StudySet, query: StudySet) -> bool:
    """Whether a set is used before another: training, then both, then benchmark only."""
    roles = query.is_benchmark and reference.is_training
    return roles and query.is_training + reference.is_benchmark < 2


def _in_matrix(study: Study, query: StudySet, reference: StudySet) -> bool:
    """Whether ``[matrix]`` asks for a comparison; a side that it leaves open goes by role."""
    asked = query.name in study.queries if study.queries else query.is_benchmark
    against = reference.name in study.references if study.references else reference.is_training
    return asked and against


def _known(study: Study, query: str, reference: str) -> tuple[str, str]:
    """Return why two sets are not compared, and how common images are told; both may be empty."""
    for whole, part in ((reference, query), (query, reference)):
        direct = [i for i in study.named(whole).contains if i.set == part]
        if direct and direct[0].match:
            return "", direct[0].match
        if direct or part in _parts(study, whole):
            return f"{part} is part of {whole}", ""
    return "", ""


def _parts(study: Study, name: str) -> set[str]:
    """Return everything a set is known to hold: a part of a part is a part."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for inclusion in study.named(waiting.pop()).contains:
            if inclusion.set not in found:
                found.add(inclusion.set)
                waiting.append(inclusion.set)
    return found
