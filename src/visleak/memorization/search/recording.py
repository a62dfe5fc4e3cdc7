"""Searches that write a folder: a finished result is reused, an unfinished search resumes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import visleak
from visleak.documents import as_plain, digest_of, read_document
from visleak.errors import UsageError
from visleak.memorization.model import TokenModel
from visleak.memorization.prompts import Prompts
from visleak.memorization.search.augmentation import (
    Augmented,
    AugmentSettings,
    about_augment,
    augment,
)
from visleak.memorization.search.diversity import Pick, diversify
from visleak.memorization.search.ledger import Banked, calls_so_far, forget_other, key_of
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.search.task import Candidate, Found, Searcher, SearchTask
from visleak.store import csv_value, free_folder, write_json, write_tables, write_values

SCHEMA: Final = 1

#: Tables of prompts, beside the result.
PROMPTS: Final = "prompts.parquet"
PROMPTS_CSV: Final = "prompts.csv"
BANK: Final = "bank.parquet"

#: Rows of a row group.
_ROWS: Final = 65_536


def kind_of(verb: str) -> str:
    """Return what the result of a verb says it is."""
    return f"visleak memorization {verb}"


def result_name(verb: str) -> str:
    """Return the file that a verb writes last."""
    return f"{verb}.json"


def read_result(folder: Path, verb: str) -> dict[str, Any]:
    """Return the result of ``search``, ``augment`` or ``diversify`` that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    hint = f"it is no result of `{kind_of(verb)}`"
    return read_document(folder / result_name(verb), kind_of(verb), SCHEMA, hint)


def head(verb: str, headline: str, key: str) -> dict[str, Any]:
    """Return how the document of a result begins."""
    return {
        "schema": SCHEMA,
        "kind": kind_of(verb),
        "visleak": visleak.__version__,
        "headline": headline,
        "key": key,
    }


def asked(task: SearchTask) -> dict[str, Any]:
    """Return model, D, chains, seed and budget of a task, as plain data."""
    plain: dict[str, Any] = as_plain(
        {
            "model": task.score.model.about(),
            "score": {**task.score.settings.about(), "asked_at": task.score.timestep},
            "chains": task.chains,
            "seed": task.seed,
            "budget": task.budget,
        }
    )
    return plain


def write_found(
    folder: Path, norm: str, best: Sequence[Candidate], bank: Sequence[Candidate]
) -> None:
    """Write the best prompt of each chain, and the bank; empty prompts are left out."""
    column = f"d_{norm}"
    schema = pa.schema(
        [
            ("prompt", pa.string()),
            (column, pa.float64()),
            ("chain", pa.int32()),
            ("step", pa.int32()),
        ]
    )
    for name, candidates in ((PROMPTS, best), (BANK, bank)):
        rows = [(c.prompt, c.score, c.chain, c.step) for c in candidates if c.prompt]
        write_tables(folder / name, schema, _tables(rows, schema))
        if name == PROMPTS:
            _write_csv(folder / PROMPTS_CSV, schema, rows)


def augment_schema(norm: str) -> pa.Schema:
    """Return the columns of augmented prompts; ``trigger`` is the prompt they were made from."""
    return pa.schema(
        [
            ("prompt", pa.string()),
            ("trigger", pa.string()),
            (f"d_{norm}", pa.float64()),
            ("times", pa.int32()),
            ("changed", pa.int32()),
        ]
    )


def write_banked(path: Path, norm: str, banked: Iterable[Banked]) -> int:
    """Write augmented prompts as they come; return how many."""
    schema = augment_schema(norm)
    return write_tables(path, schema, _tables(_banked_rows(banked), schema))


def write_augmented(folder: Path, norm: str, banked: Sequence[Banked]) -> None:
    """Write the prompts that are kept of all triggers."""
    write_banked(folder / PROMPTS, norm, banked)
    _write_csv(folder / PROMPTS_CSV, augment_schema(norm), list(_banked_rows(banked)))


def write_picks(
    folder: Path, rows: Sequence[tuple[str, int, float | None, str]], column: str
) -> None:
    """Write picks: prompt, row of the list, closeness to earlier picks, group."""
    schema = pa.schema(
        [
            ("prompt", pa.string()),
            ("row", pa.int64()),
            ("closeness", pa.float64()),
            (column, pa.string()),
        ]
    )
    write_tables(folder / PROMPTS, schema, _tables(rows, schema))
    _write_csv(folder / PROMPTS_CSV, schema, rows)


def _banked_rows(banked: Iterable[Banked]) -> Iterator[tuple[Any, ...]]:
    return ((b.prompt, b.source, b.mean, b.times, b.changed) for b in banked)


def _tables(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield rows as tables of bounded size; one of no rows where there are none."""
    left = iter(rows)
    part = list(islice(left, _ROWS))
    while True:
        columns = list(zip(*part, strict=True)) if part else [() for _ in schema]
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        yield pa.Table.from_arrays(arrays, schema=schema)
        part = list(islice(left, _ROWS))
        if not part:
            return


def _write_csv(path: Path, schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> None:
    texts = [["" if cell is None else csv_value(cell) for cell in row] for row in rows]
    write_values(path, schema.names, texts)


#: How the two scales of D are written.
_NORMS = {"l2": "D (L2)", "squared": "D (squared)"}


def search_headline(found: Found, norm: str, kappa: float | None) -> str:
    """Return what a search found.

    >>> from visleak.memorization.search.task import Candidate
    >>> best = (Candidate("red bag", 2.5), Candidate("old bag", 1.0, 1))
    >>> search_headline(Found("gibbs", {}, best, best, 6400, 12.3), "l2", 2.0)
    'highest D (L2) of 2 chains 2.5, median 1.75, 1 of them at 2 or above: 6,400 passes'
    """
    scores = sorted(each.score for each in found.best)
    middle = len(scores) // 2
    median = scores[middle] if len(scores) % 2 else (scores[middle - 1] + scores[middle]) / 2
    chains = f"{len(scores)} chains" if len(scores) > 1 else "1 chain"
    text = f"highest {_NORMS[norm]} of {chains} {scores[-1]:.4g}"
    text += f", median {median:.4g}" if len(scores) > 1 else ""
    if kappa is not None:
        reached = sum(score >= kappa for score in scores)
        text += f", {reached} of them at {kappa:g} or above"
    return text + _spent(found.calls, complete=found.complete)


def augment_headline(made: Augmented, norm: str) -> str:
    """Return what an augmentation found."""
    scored = sum(each.scored for each in made.triggers)
    above = sum(each.above for each in made.triggers)
    kept = sum(len(each.prompts) for each in made.triggers)
    count = len(made.triggers)
    triggers = f"{count:,} triggers" if count > 1 else "1 trigger"
    kappa = made.about["kappa"]
    text = (
        f"{scored:,} prompts of {triggers} scored, {above:,} with a {_NORMS[norm]} of at least"
        f" {kappa:g}, {kept:,} kept{_spent(made.calls, complete=made.complete)}"
    )
    # the paper's kappa is of Stable Diffusion 1; another model may never reach it
    low = "; chains break off where moves stay below kappa: give a --kappa of this model's scale"
    return text if above else text + low


def diversify_headline(picks: Sequence[Pick], prompts: int) -> str:
    """Return what was picked.

    >>> diversify_headline([Pick(3, None), Pick(1, 0.25)], 10)
    '2 of 10 prompts picked; the closest two have a cosine of 0.25'
    """
    closest = max((each.closeness for each in picks if each.closeness is not None), default=None)
    text = f"{len(picks):,} of {prompts:,} prompts picked"
    return text if closest is None else f"{text}; the closest two have a cosine of {closest:.2g}"


def _spent(calls: int, *, complete: bool) -> str:
    # seconds stand in the result: the line is the same whenever it is searched again
    end = "" if complete else "; the budget ended it"
    return f": {calls:,} passes{end}"


Say = Callable[[str], None]


def known_result(
    folder: Path,
    verb: str,
    key: Mapping[str, object],
    budget: Any,
    *,
    force: bool,
    say: Say | None,
) -> dict[str, Any] | None:
    """Return the result that a folder holds already; make room for another where that is allowed.

    Raises:
        UsageError: it holds another result, or the state of another search.
        VisleakError: a run is at it, or a file is damaged.
    """
    tell = say or (lambda line: None)
    name = result_name(verb)
    digest = digest_of(key)
    same = False
    if folder.is_dir() and (folder / name).is_file():
        held = read_result(folder, verb)
        same = held.get("key") == digest
        if same and (held.get("complete", True) or held.get("budget") == budget):
            tell(f"{folder} holds this very result already; nothing was done again")
            return held
    if not same:
        free_folder(folder, name, force=force)
    if force:
        forget_other(folder, key)
    calls = calls_so_far(folder, key)
    if calls is not None:
        far = "as far as its budget went" if same else "unfinished"
        tell(f"{folder} holds this search, {far}: it goes on from {calls:,} passes")
    return None


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
    write_found(folder, norm, found.best, found.bank)
    document = {
        **head("search", search_headline(found, norm, kappa), digest_of(key)),
        **asked(task),
        "about": dict(about or {}),
        "method": found.method,
        "settings": as_plain(found.about),
        "complete": found.complete,
        "calls": found.calls,
        "seconds": found.seconds,
        "best": _best_of_chains(found, kappa),
        "bank": len(found.bank),
    }
    write_json(folder / result_name("search"), document)
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
        UsageError, VisleakError: as :func:`~visleak.memorization.search.augmentation.augment`; or
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
        banked = write_banked(folder / BANK, norm, bank)

    made = augment(
        replace(task, folder=folder), proposer, triggers.texts, settings, bank=write_bank
    )
    kept = [prompt for each in made.triggers for prompt in each.prompts]
    write_augmented(folder, norm, kept)
    document = {
        **head("augment", augment_headline(made, norm), digest_of(key)),
        **asked(task),
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
    write_json(folder / result_name("augment"), document)
    return document


def _best_of_chains(found: Found, kappa: float | None) -> list[dict[str, Any]]:
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


#: Column of the prompt that a prompt was made from.
TRIGGER: Final = "trigger"


def diversify_into(
    model: TokenModel,
    prompts: Prompts,
    out: str | os.PathLike[str],
    *,
    count: int = 20,
    per_source: bool = False,
    triggers: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    force: bool = False,
    say: Say | None = None,
) -> dict[str, Any]:
    """Pick diverse prompts, and write ``diversify.json``, ``prompts.parquet``, ``prompts.csv``.

    Args:
        model: whose text encoder compares prompts.
        prompts: the bank.
        out: the folder.
        count: of picks; of each trigger with ``per_source``.
        per_source: pick for each prompt in the column ``trigger`` by itself.
        triggers: with ``per_source``, prompts of the bank and what each was made from; one that was
            made from several stands with each of them, as ``read_values`` of ``prompt_files`` reads
            them. Empty takes the column, which holds one of them.
        seed: of the first pick.
        force, say: as in :func:`visleak.memorization.search.recording.search_into`.

    Returns:
        The content of ``diversify.json``.

    Raises:
        UsageError: the list has no column ``trigger``, a number does not fit, or the folder holds
            another result.
    """
    folder = Path(out)
    bank = [(text, "") for text in prompts.texts]
    if per_source:
        bank = _with_triggers(prompts, triggers)
    texts = [text for text, _ in bank]
    sources = [source for _, source in bank] if per_source else []
    key: dict[str, object] = {
        "method": "diversify",
        "model": model.digest,
        "precision": model.precision,
        "prompts": digest_of({"texts": texts, "sources": sources}),
        "count": count,
        "per_source": per_source,
        "seed": seed,
    }
    known = known_result(folder, "diversify", key, None, force=force, say=say)
    if known is not None:
        return known
    picks = diversify(model, texts, count, sources=sources, seed=seed)
    places = {text: row for row, text in enumerate(prompts.texts)}
    rows = [
        (texts[pick.row], places[texts[pick.row]], pick.closeness, pick.source) for pick in picks
    ]
    write_picks(folder, rows, TRIGGER)
    document = {
        **head("diversify", diversify_headline(picks, len(bank)), digest_of(key)),
        "model": as_plain(model.about()),
        "prompts": len(bank),
        "origin": prompts.origin,
        "count": count,
        "per_source": per_source,
        "seed": seed,
        "picks": len(picks),
        "sources": _source_counts(picks) if per_source else {},
        "short": sum(number < count for number in _source_counts(picks).values()),
    }
    write_json(folder / result_name("diversify"), document)
    return document


def _with_triggers(prompts: Prompts, triggers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the prompts of a bank with the trigger of each, once for each of its triggers.

    Raises:
        UsageError: the list has no column ``trigger``.
    """
    if TRIGGER not in prompts.columns:
        raise UsageError(
            f"--per-source needs the column {TRIGGER} in {prompts.origin or 'the prompts'}, as"
            " `visleak memorization augment` writes it"
        )
    known = frozenset(prompts.texts)
    own = zip(prompts.texts, prompts.columns[TRIGGER], strict=True)
    return [pair for pair in triggers if pair[0] in known] or list(own)


def _source_counts(picks: Sequence[Pick]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pick in picks:
        counts[pick.source] = counts.get(pick.source, 0) + 1
    return counts
