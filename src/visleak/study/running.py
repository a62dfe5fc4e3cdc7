"""A study carried out: its sets opened, its audits made or used again, their answers read."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from visleak.auditing import Audit
from visleak.errors import VisleakError
from visleak.images import open_images
from visleak.records import AnySet
from visleak.storage import claimed, refuse_inputs
from visleak.study.answers import Leaks, leaks_of
from visleak.study.audits import Options, Work, jobs_of
from visleak.study.config import Study, StudySet
from visleak.study.places import Located, locate
from visleak.study.plan import Comparison, LeftOut, Plan, plan


@dataclass(frozen=True)
class Run:
    """What became of a study's comparisons.

    Attributes:
        study, plan: what was asked.
        missing: sets that are not there: name to reason.
        opened: the sets that are.
        audits: comparison to the audit that answers it.
        leaks: comparison to what leaks.
        failed: comparisons that came to nothing, and why.
        within: audits that looked for repeats within the query sets.
        reused: how many audits were finished before.
    """

    study: Study
    plan: Plan
    missing: Mapping[str, str]
    opened: Mapping[str, AnySet]
    audits: Mapping[Comparison, Audit]
    leaks: Mapping[Comparison, Leaks]
    failed: tuple[LeftOut, ...]
    within: tuple[Audit, ...]
    reused: int


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
        raise VisleakError(_nothing(study, missing))
    there = [(name, each.source) for name, each in located.items() if not each.missing]
    refuse_inputs(folder, there, Path())
    with claimed(folder):
        with options.watch("sets") as progress:
            progress("listing images", 0, 0)
            opened, faults = _open(study, located, planned)
            progress("listing images", 1, 1)
        work = Work(study, folder, options, opened, faults)
        work.answer(jobs_of(planned, folder, study))
    leaks = {}
    for audits, own in work.answers:
        leaks.update(leaks_of(audits, own))
    return Run(
        study=study,
        plan=planned,
        missing=missing,
        opened=opened,
        audits={each: found for found, own in work.answers for each in own},
        leaks={each: leaks[each] for each in planned.comparisons if each in leaks},
        failed=tuple(work.failed),
        within=tuple(work.within),
        reused=work.reused,
    )


def _nothing(study: Study, missing: Mapping[str, str]) -> str:
    """Return why there is nothing to compare."""
    if missing:
        name, why = next(iter(missing.items()))
        return (
            f"{study.path}: nothing to compare: {len(missing)} of {len(study.sets)} sets are not"
            f" there (set {name!r}: {why}); fill in source of at least one benchmark and one"
            " training set"
        )
    return (
        f"{study.path}: nothing to compare: no benchmark meets a training set of another name;"
        " look at roles, dataset and contains"
    )


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
