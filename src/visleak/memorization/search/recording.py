"""Searches that write a folder: a finished result is reused, an unfinished search resumes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from visleak.documents import as_plain, digest_of
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
from visleak.reporting import Column, Document, Table
from visleak.storage import RunFolder, free_folder, write_tables

#: Tables of prompts, beside the result.
PROMPTS: Final = "prompts.parquet"
PROMPTS_CSV: Final = "prompts.csv"
BANK: Final = "bank.parquet"

#: Column of the prompt that a prompt was made from.
TRIGGER: Final = "trigger"

#: Rows of a row group.
_ROWS: Final = 65_536

#: Names of the two scales of D.
_NORMS: Final = {"l2": "D (L2)", "squared": "D (squared)"}

Say = Callable[[str], None]


def folder_of(path: str | os.PathLike[str], command: str) -> RunFolder:
    """Return the folder of ``search``, ``augment`` or ``diversify``."""
    return RunFolder(path, f"visleak memorization {command}")


def _asked(task: SearchTask) -> dict[str, Any]:
    """Return model, D, chains, seed and budget of a task."""
    return {
        "model": task.score.model.about(),
        "score": {**task.score.settings.about(), "asked_at": task.score.timestep},
        "chains": task.chains,
        "seed": task.seed,
        "budget": task.budget,
    }


def _found_table(norm: str, candidates: Iterable[Candidate]) -> pa.Table:
    """Return candidates as a table; empty prompts are left out."""
    columns = (
        Column("prompt"),
        Column(f"d_{norm}", pa.float64()),
        Column("chain", pa.int32()),
        Column("step", pa.int32()),
    )
    rows = [(c.prompt, c.score, c.chain, c.step) for c in candidates if c.prompt]
    return Table("Prompts", columns, rows).arrow()


def _banked_table(norm: str, banked: Iterable[Banked]) -> pa.Table:
    """Return augmented prompts as a table; ``trigger`` is the prompt they were made from."""
    columns = (
        *(Column("prompt"), Column(TRIGGER), Column(f"d_{norm}", pa.float64())),
        *(Column("times", pa.int32()), Column("changed", pa.int32())),
    )
    rows = [(b.prompt, b.source, b.mean, b.times, b.changed) for b in banked]
    return Table("Prompts", columns, rows).arrow()


def _write_bank(path: Path, norm: str, banked: Iterator[Banked]) -> int:
    """Write augmented prompts as they come, in parts of bounded size; return how many."""
    first = _banked_table(norm, islice(banked, _ROWS))

    def parts() -> Iterator[pa.Table]:
        part = first
        while part.num_rows or part is first:
            yield part
            part = _banked_table(norm, islice(banked, _ROWS))

    return write_tables(path, first.schema, parts())


def document(command: str, content: Mapping[str, Any]) -> Document:
    """Return the result of ``search``, ``augment`` or ``diversify`` as a document.

    Args:
        command: of the three.
        content: of its JSON.
    """
    lines, table = [], Table("", (), ())
    if command == "search":
        columns = (
            Column(heading="prompt"),
            Column(heading="D", show="{:.4g}".format, number=True),
            *(Column(heading=name, show=str, number=True) for name in ("chain", "step")),
        )
        best = sorted(content["best"], key=lambda each: -each["d"])
        rows = [(each["prompt"], each["d"], each["chain"], each["step"]) for each in best]
        table = Table("Best prompts", columns, rows, file=PROMPTS_CSV)
    elif command == "augment":
        headings = ("scored", "above kappa", "kept")
        columns = (
            Column(heading="trigger"),
            *(Column(heading=name, number=True) for name in headings),
        )
        rows = [
            (each["trigger"], each["scored"], each["above_kappa"], each["kept"])
            for each in content["triggers"]
        ]
        table = Table("Triggers", columns, rows)
        unknown = sum(each["unknown"] > 0 for each in content["triggers"])
        if unknown:
            lines.append(
                f"{unknown:,} triggers have pieces that the language model does not know, and were"
                " started without them"
            )
    elif content["short"]:
        lines.append(
            f"{content['short']:,} of {max(1, len(content['sources'])):,} banks had fewer than"
            f" {content['count']:,} prompts, and were picked whole"
        )
    return Document("Prompts", content["headline"], tuple(lines), (table,))


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


def known_result(
    run: RunFolder,
    key: Mapping[str, object],
    budget: Any,
    *,
    force: bool,
    say: Say | None,
) -> dict[str, Any] | None:
    """Return the result that a folder holds already; make room for another where that is allowed.

    A search that its budget ended resumes with a larger one.

    Raises:
        UsageError: it holds another result, or the state of another search.
        VisleakError: a run is at it, or a file is damaged.
    """
    tell = say or (lambda line: None)
    digest = digest_of(key)
    held = run.content() if run.finished else {}
    same = held.get("key") == digest
    if same and (held.get("complete", True) or held.get("budget") == budget):
        tell(f"{run.path} holds this very result already; nothing was done again")
        return held
    if not same:
        free_folder(run.path, run.result.name, force=force)
    if force:
        forget_other(run.path, key)
    calls = calls_so_far(run.path, key)
    if calls is not None:
        far = "as far as its budget went" if same else "unfinished"
        tell(f"{run.path} holds this search, {far}: it resumes at {calls:,} passes")
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
    run = folder_of(out, "search")
    key = key_of(task, searcher.name, searcher.about())
    known = known_result(run, key, as_plain(task.budget), force=force, say=say)
    if known is not None:
        return known
    found = searcher.search(replace(task, folder=run.path))
    norm = task.score.settings.norm
    content = run.document(
        search_headline(found, norm, kappa),
        key=digest_of(key),
        **_asked(task),
        about=dict(about or {}),
        method=found.method,
        settings=found.about,
        complete=found.complete,
        calls=found.calls,
        seconds=found.seconds,
        best=_best_of_chains(found, kappa),
        bank=len(found.bank),
    )
    best = _found_table(norm, found.best)
    run.finish(content, {PROMPTS: best, PROMPTS_CSV: best, BANK: _found_table(norm, found.bank)})
    return content


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
    run = folder_of(out, "augment")
    task = replace(task, chains=1)
    settled = {**about_augment(proposer, settings), "triggers": list(triggers.texts)}
    key = key_of(task, "augment", settled)
    known = known_result(run, key, as_plain(task.budget), force=force, say=say)
    if known is not None:
        return known
    norm = settings.norm
    banked = 0

    def write_bank(bank: Iterator[Banked]) -> None:
        nonlocal banked
        banked = _write_bank(run.path / BANK, norm, bank)

    made = augment(
        replace(task, folder=run.path), proposer, triggers.texts, settings, bank=write_bank
    )
    kept = [prompt for each in made.triggers for prompt in each.prompts]
    content = run.document(
        augment_headline(made, norm),
        key=digest_of(key),
        **_asked(task),
        about=dict(about or {}),
        settings=made.about,
        complete=made.complete,
        calls=made.calls,
        seconds=made.seconds,
        bank=banked,
        triggers=[
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
    )
    table = _banked_table(norm, kept)
    run.finish(content, {PROMPTS: table, PROMPTS_CSV: table})
    return content


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
    run = folder_of(out, "diversify")
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
    known = known_result(run, key, None, force=force, say=say)
    if known is not None:
        return known
    picks = diversify(model, texts, count, sources=sources, seed=seed)
    places = {text: row for row, text in enumerate(prompts.texts)}
    rows = [
        (texts[pick.row], places[texts[pick.row]], pick.closeness, pick.source) for pick in picks
    ]
    columns = (
        *(Column("prompt"), Column("row", pa.int64()), Column("closeness", pa.float64())),
        Column(TRIGGER),
    )
    counts = _source_counts(picks)
    content = run.document(
        diversify_headline(picks, len(bank)),
        key=digest_of(key),
        model=model.about(),
        prompts=len(bank),
        origin=prompts.origin,
        count=count,
        per_source=per_source,
        seed=seed,
        picks=len(picks),
        sources=counts if per_source else {},
        short=sum(number < count for number in counts.values()),
    )
    table = Table("Picks", columns, rows).arrow()
    run.finish(content, {PROMPTS: table, PROMPTS_CSV: table})
    return content


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
