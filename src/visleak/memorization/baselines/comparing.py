"""Methods of search at equal cost, counted by what is verified (after table 2 of Hong et al.)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from visleak.documents import as_plain, digest_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.baselines.attempting import Contest, Entry, Say
from visleak.memorization.baselines.output import write
from visleak.memorization.baselines.records import Comparison
from visleak.memorization.baselines.stored import RESULT, read_comparison
from visleak.memorization.baselines.verifying import Verifier
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.task import Searcher
from visleak.pipeline.folder import claimed
from visleak.pipeline.workplace import Progress, silent


def _unsaid(line: str) -> None:
    """Say nothing."""


def compare(
    contest: Contest,
    methods: Mapping[str, Searcher],
    verifier: Verifier,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress = silent,
    say: Say = _unsaid,
) -> Comparison:
    """Let methods search at one budget, and count the memorized images they find.

    Every method and seed is an attempt with a folder of its own. A finished attempt is kept: a
    comparison that was stopped goes on, and more seeds or methods run only what is new.

    Args:
        contest: model, D, budget, chains, seeds.
        methods: searchers by name.
        verifier: says which candidates give memorized images.
        out: the folder; a finished comparison of the same request is returned as it is.
        force: another comparison, and attempts with other settings, may be replaced.
        progress: told of searches, images and verification.
        say: told in a line what is reused.

    Raises:
        UsageError: the folder holds another comparison, or a method refuses its settings.
        VisleakError: a step fails; attempts that were finished are kept.
    """
    if not methods:
        raise UsageError("there is no method to compare; give at least one")
    folder = Path(out)
    settings = {name: {"about": each.about()} for name, each in methods.items()}
    asked = {**contest.about(), "methods": settings, "seeds": list(contest.seeds)}
    key = digest_of(as_plain({**asked, "verifier": verifier.about()}))
    with claimed(folder):
        known = _known(folder, key, force=force)
        if known is not None:
            say(f"{folder} holds this comparison, finished")
            return known
        attempts = []
        for seed in contest.seeds:
            for name, searcher in methods.items():
                one = Entry(contest, name, searcher, verifier, seed, folder)
                attempts.append(one.attempted(force=force, progress=progress, say=say))
        result = Comparison(
            model=dict(contest.model.about()),
            score={**contest.score.about(), "timestep": _timestep(contest)},
            norm=contest.score.norm,
            budget=as_plain(contest.budget),
            chains=contest.chains,
            seeds=contest.seeds,
            verification=verifier.about(),
            attempts=tuple(attempts),
            folder=folder,
            key=key,
        )
        write(result)
    return result


def _timestep(contest: Contest) -> float:
    return TriggerScore(contest.model, contest.score).timestep


def _known(folder: Path, key: str, *, force: bool) -> Comparison | None:
    """Return the comparison that was asked for, if the folder holds it.

    Raises:
        UsageError: it holds another, and ``force`` is not set.
    """
    if not (folder / RESULT).is_file():
        return None
    try:
        found = read_comparison(folder)
    except VisleakError:
        if force:
            return None
        raise
    if found.key == key:
        return found
    if not force:
        raise UsageError(
            f"{folder} holds another comparison ({RESULT}: other model, methods, budget, seeds or"
            " images); choose another folder with -o DIR, or --force replaces it and keeps attempts"
            " that are the same"
        )
    return None
