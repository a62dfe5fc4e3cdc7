"""Searches that leave a folder behind: reused where they are finished, gone on with where not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from visleak.documents import as_plain, digest_of
from visleak.memorization.prompts import Prompts
from visleak.memorization.search import output
from visleak.memorization.search.augment_chains import AugmentSettings
from visleak.memorization.search.augmenting import about_augment, augment
from visleak.memorization.search.headlines import (
    augment_headline,
    search_headline,
)
from visleak.memorization.search.ledger import Banked
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.resuming import key_of
from visleak.memorization.search.reusing import Say, known_result
from visleak.memorization.search.task import Found, Searcher, SearchTask
from visleak.store import write_json


def search_into(
    searcher: Searcher,
    task: SearchTask,
    out: str | os.PathLike[str],
    *,
    kappa: float | None = None,
    about: Mapping[str, object] | None = None,
    force: bool = False,
    say: Say | None = None,
) -> dict[str, Any]:
    """Search, and write ``search.json``, ``prompts.parquet``, ``prompts.csv``, ``bank.parquet``.

    The state of the chains is kept in the folder: a search that was stopped goes on, and one that
    its budget ended goes on with a larger one.

    Args:
        searcher: Algorithm 1, or another method.
        task: its ``folder`` is not used.
        out: the folder.
        kappa: D at which a chain is content, for the counts; ``None`` counts none.
        about: what else the result should name, such as where the settings are from.
        force: another search may be replaced.
        say: told in a line what was reused or is gone on with.

    Returns:
        The content of ``search.json``.

    Raises:
        UsageError, VisleakError: as the searcher; or the folder holds another search.
    """
    folder = Path(out)
    key = key_of(task, searcher.name, searcher.about())
    known = known_result(folder, "search", key, as_plain(task.budget), force=force, say=say)
    if known is not None:
        return known
    found = searcher.search(replace(task, folder=folder))
    norm = task.score.settings.norm
    output.write_found(folder, norm, found.best, found.bank)
    document = {
        **output.head("search", search_headline(found, norm, kappa), digest_of(key)),
        **output.asked(task),
        "about": dict(about or {}),
        "method": found.method,
        "settings": as_plain(found.about),
        "complete": found.complete,
        "calls": found.calls,
        "seconds": found.seconds,
        "best": _best(found, kappa),
        "bank": len(found.bank),
    }
    write_json(folder / output.result_name("search"), document)
    return document


def augment_into(
    task: SearchTask,
    proposer: Proposer,
    triggers: Prompts,
    settings: AugmentSettings,
    out: str | os.PathLike[str],
    *,
    about: Mapping[str, object] | None = None,
    force: bool = False,
    say: Say | None = None,
) -> dict[str, Any]:
    """Multiply triggers, and write ``augment.json``, ``prompts.parquet`` and ``bank.parquet``.

    Args:
        task: its ``folder`` and ``chains`` are not used.
        proposer: the language model.
        triggers: the prompts to begin with.
        settings: of Algorithm 2.
        out: the folder.
        about, force, say: as :func:`search_into`.

    Returns:
        The content of ``augment.json``.

    Raises:
        UsageError, VisleakError: as :func:`~visleak.memorization.search.augmenting.augment`; or
            the folder holds another result.
    """
    folder = Path(out)
    task = replace(task, chains=1)
    settled = {**about_augment(proposer, settings), "triggers": list(triggers.texts)}
    key = key_of(task, "augment", settled)
    known = known_result(folder, "augment", key, as_plain(task.budget), force=force, say=say)
    if known is not None:
        return known
    norm = settings.norm
    banked = 0

    def write_bank(bank: Iterator[Banked]) -> None:
        nonlocal banked
        banked = output.write_banked(folder / output.BANK, norm, bank)

    made = augment(
        replace(task, folder=folder), proposer, triggers.texts, settings, bank=write_bank
    )
    kept = [prompt for each in made.triggers for prompt in each.prompts]
    output.write_augmented(folder, norm, kept)
    document = {
        **output.head("augment", augment_headline(made, norm), digest_of(key)),
        **output.asked(task),
        "about": dict(about or {}),
        "settings": as_plain(made.about),
        "complete": made.complete,
        "calls": made.calls,
        "seconds": made.seconds,
        "bank": banked,
        "triggers": [
            {
                "trigger": each.trigger,
                "start": each.start,
                "unknown": each.unknown,
                "scored": each.scored,
                "above_kappa": each.above,
                "kept": len(each.prompts),
                "changed": _changed(each.prompts),
            }
            for each in made.triggers
        ],
    }
    write_json(folder / output.result_name("augment"), document)
    return document


def _best(found: Found, kappa: float | None) -> list[dict[str, Any]]:
    """Return the best of each chain as plain data."""
    return [
        {
            "chain": each.chain,
            "prompt": each.prompt,
            "d": each.score,
            "step": each.step,
            "reached": None if kappa is None else each.score >= kappa,
        }
        for each in found.best
    ]


def _changed(prompts: Sequence[Banked]) -> dict[str, int]:
    """Return how many prompts differ from their trigger in how many word pieces."""
    counts: dict[int, int] = {}
    for prompt in prompts:
        counts[prompt.changed] = counts.get(prompt.changed, 0) + 1
    return {str(number): counts[number] for number in sorted(counts)}
