"""Searches that write a folder: a finished result is reused, an unfinished search resumes."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.diffusion.model import TokenModel
from visleak.documents import as_plain, digest_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompts import Prompts
from visleak.memorization.search.driver import (
    BankEntry,
    Candidate,
    Search,
    SearchResult,
    SearchTask,
    calls_so_far,
    generator,
    key_of,
)
from visleak.memorization.search.gibbs import AugmentResult, about_augment, augment
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.settings import AugmentSettings, DiversifySettings
from visleak.quantities import counted
from visleak.reporting import Column, Document, Table
from visleak.reporting.document import Show
from visleak.storage import RunFolder, free_folder, write_tables

#: Tables of prompts.
PROMPTS: Final = "prompts.parquet"
PROMPTS_CSV: Final = "prompts.csv"
BANK: Final = "bank.parquet"
#: Column of the prompt that a prompt was made from.
TRIGGER: Final = "trigger"
#: Rows of a row group.
_ROWS: Final = 65_536
#: Names of the two scales of D.
_NORMS: Final = {"l2": "D (L2)", "squared": "D (squared)"}
_TEXT: Final = pa.string()
_WHOLE: Final = pa.int32()
_REAL: Final = pa.float64()
Note = Callable[[str], None]


def folder_of(path: str | os.PathLike[str], command: str) -> RunFolder:
    """Return the folder of ``search``, ``augment`` or ``diversify``."""
    return RunFolder(path, f"visleak memorization {command}")


def document(command: str, content: Mapping[str, Any]) -> Document:
    """Return the result of ``search``, ``augment`` or ``diversify`` as a document."""
    lines: list[str] = []
    tables = []
    if command == "search":
        names = ("prompt", "D", "chain", "step")
        show: Show = {"D": "{:.4g}".format, "chain": str, "step": str}
        best = sorted(content["best"], key=lambda each: -each["d"])
        rows = [(each["prompt"], each["d"], each["chain"], each["step"]) for each in best]
        tables.append(Table.of("Best prompts", names, rows, show=show, file=PROMPTS_CSV))
    elif command == "augment":
        names = ("trigger", "scored", "above_kappa", "kept")
        rows = [tuple(each[name] for name in names) for each in content["triggers"]]
        tables.append(Table.of("Triggers", [name.replace("_", " ") for name in names], rows))
        if unknown := sum(each["unknown"] > 0 for each in content["triggers"]):
            lines.append(
                f"{counted(unknown, 'trigger', 'has', 'have')} pieces that the language model does"
                " not know; chains were started without them"
            )
    elif content["short"]:
        lines.append(
            f"{content['short']:,} of {max(1, len(content['sources'])):,} banks had fewer than"
            f" {content['count']:,} prompts, all of which were picked"
        )
    return Document("Prompts", content["headline"], tuple(lines), tuple(tables))


def search_headline(found: SearchResult, norm: str, kappa: float | None) -> str:
    """Return what a search found.

    >>> best = (Candidate("red bag", 2.5), Candidate("old bag", 1.0, 1))
    >>> search_headline(SearchResult("gibbs", {}, best, best, 6400, 12.3), "l2", 2.0)
    'highest D (L2) of 2 chains 2.5, median 1.75, 1 of them at 2 or above: 6,400 passes'
    """
    scores = [each.score for each in found.best]
    chains = f"{len(scores)} chains" if len(scores) > 1 else "1 chain"
    text = f"highest {_NORMS[norm]} of {chains} {max(scores):.4g}"
    text += f", median {median(scores):.4g}" if len(scores) > 1 else ""
    if kappa is not None:
        reached = sum(score >= kappa for score in scores)
        text += f", {reached} of them at {kappa:g} or above"
    return text + _spent(found.calls, complete=found.complete)


def augment_headline(made: AugmentResult, norm: str) -> str:
    """Return what an augmentation found."""
    scored, above = (sum(getattr(t, name) for t in made.triggers) for name in ("scored", "above"))
    kept = sum(len(each.prompts) for each in made.triggers)
    text = (
        f"{scored:,} prompts of {counted(len(made.triggers), 'trigger')} scored, {above:,} with a"
        f" {_NORMS[norm]} of at least {made.about['kappa']:g}, {kept:,} kept"
        f"{_spent(made.calls, complete=made.complete)}"
    )
    # the paper's kappa is of Stable Diffusion 1; another model may never reach it
    low = "; chains stop where moves stay below kappa: give a --kappa of this model's scale"
    return text if above else text + low


def _spent(calls: int, *, complete: bool) -> str:
    # no seconds: the line is the same whenever the search is repeated
    return f": {calls:,} passes{'' if complete else '; the budget ended it'}"


def _known_result(
    run: RunFolder, key: Mapping[str, object], budget: object, *, force: bool, note: Note | None
) -> dict[str, object] | None:
    """Return a finished result, or make room; one that its budget ended resumes with a larger."""
    tell = note or (lambda line: None)
    held = run.content() if run.finished else {}
    same = held.get("key") == digest_of(key)
    if same and (held.get("complete", True) or held.get("budget") == budget):
        tell(f"{run.path} holds this very result already; nothing was done again")
        return held
    if not same:
        free_folder(run.path, run.result.name, force=force)
    calls = calls_so_far(run.path, key, force=force)
    if calls is not None:
        far = "as far as its budget went" if same else "unfinished"
        tell(f"{run.path} holds this search, {far}: it resumes at {calls:,} passes")
    return None


def _content(
    run: RunFolder,
    headline: str,
    key: Mapping[str, object],
    task: SearchTask,
    about: Mapping[str, object] | None,
    found: SearchResult | AugmentResult,
    **more: object,
) -> dict[str, object]:
    return run.document(
        headline,
        key=digest_of(key),
        model=task.score.model.about(),
        score={**task.score.settings.about(), "asked_at": task.score.timestep},
        chains=task.chains,
        seed=task.seed,
        budget=task.budget,
        about=dict(about or {}),
        settings=found.about,
        complete=found.complete,
        calls=found.calls,
        seconds=found.seconds,
        **more,
    )


def search_into(
    searcher: Search,
    task: SearchTask,
    out: str | os.PathLike[str],
    *,
    kappa: float | None = None,
    about: Mapping[str, object] | None = None,
    force: bool = False,
    note: Note | None = None,
) -> dict[str, object]:
    """Search, and write ``search.json``, ``prompts.parquet``, ``prompts.csv``, ``bank.parquet``.

    An interrupted search resumes, as does one that its budget ended, with a larger one; the task's
    ``folder`` is not used. Chains with D >= ``kappa`` are counted; ``about`` is a part of the
    result. Returns the content of ``search.json``.

    Raises:
        UsageError, VisleakError: as the searcher; or the folder holds another search.
    """
    run = folder_of(out, "search")
    key = key_of(task, searcher.name, searcher.about())
    known = _known_result(run, key, as_plain(task.budget), force=force, note=note)
    if known is not None:
        return known
    found = searcher.search(replace(task, folder=run.path))
    norm = task.score.settings.norm
    best = [
        {
            "chain": each.chain,
            "prompt": each.prompt,
            "d": each.score,
            "step": each.step,
            "reached": None if kappa is None else each.score >= kappa,
        }
        for each in found.best
    ]
    content = _content(
        *(run, search_headline(found, norm, kappa), key, task, about, found),
        method=found.method,
        best=best,
        bank=len(found.bank),
    )
    table = _found_table(norm, found.best)
    run.finish(content, {PROMPTS: table, PROMPTS_CSV: table, BANK: _found_table(norm, found.bank)})
    return content


def _found_table(norm: str, candidates: Iterable[Candidate]) -> pa.Table:
    names = ("prompt", f"d_{norm}", "chain", "step")
    columns = tuple(map(Column, names, (_TEXT, _REAL, _WHOLE, _WHOLE)))
    rows = [(c.prompt, c.score, c.chain, c.step) for c in candidates if c.prompt]
    return Table("Prompts", columns, rows).arrow()


def augment_into(
    task: SearchTask,
    proposer: Proposer,
    triggers: Prompts,
    settings: AugmentSettings,
    out: str | os.PathLike[str],
    *,
    about: Mapping[str, object] | None = None,
    force: bool = False,
    note: Note | None = None,
) -> dict[str, object]:
    """Augment triggers, and write ``augment.json``, ``prompts.parquet`` and ``bank.parquet``.

    The task's ``folder`` and ``chains`` are not used. Returns the content of ``augment.json``.

    Raises:
        UsageError, VisleakError: as :func:`~visleak.memorization.search.gibbs.augment`; or the
            folder holds another result.
    """
    run = folder_of(out, "augment")
    task = replace(task, chains=1)
    settled = {**about_augment(proposer, settings), "triggers": list(triggers.texts)}
    key = key_of(task, "augment", settled)
    known = _known_result(run, key, as_plain(task.budget), force=force, note=note)
    if known is not None:
        return known
    norm, banked = settings.norm, 0

    def write_bank(bank: Iterator[BankEntry]) -> None:
        nonlocal banked
        nothing = _banked_table(norm, ())
        parts = iter(lambda: _banked_table(norm, islice(bank, _ROWS)), nothing)
        banked = write_tables(run.path / BANK, nothing.schema, parts)

    made = augment(
        replace(task, folder=run.path), proposer, triggers.texts, settings, bank=write_bank
    )
    counts = []
    for each in made.triggers:
        # how many prompts differ from their trigger in how many word pieces
        changed = sorted(Counter(prompt.changed for prompt in each.prompts).items())
        counts.append(
            {
                "trigger": each.trigger,
                "start": each.start,
                "unknown": each.unknown,
                "scored": each.scored,
                "above_kappa": each.above,
                "kept": len(each.prompts),
                "changed": {str(number): count for number, count in changed},
            }
        )
    headline = augment_headline(made, norm)
    content = _content(run, headline, key, task, about, made, bank=banked, triggers=counts)
    table = _banked_table(norm, (prompt for each in made.triggers for prompt in each.prompts))
    run.finish(content, {PROMPTS: table, PROMPTS_CSV: table})
    return content


def _banked_table(norm: str, banked: Iterable[BankEntry]) -> pa.Table:
    names = ("prompt", TRIGGER, f"d_{norm}", "times", "changed")
    columns = tuple(map(Column, names, (_TEXT, _TEXT, _REAL, _WHOLE, _WHOLE)))
    rows = [(b.prompt, b.source, b.mean, b.times, b.changed) for b in banked]
    return Table("Prompts", columns, rows).arrow()


def diversify_into(
    model: TokenModel,
    prompts: Prompts,
    out: str | os.PathLike[str],
    settings: DiversifySettings | None = None,
    *,
    triggers: Sequence[tuple[str, str]] = (),
    force: bool = False,
    note: Note | None = None,
) -> dict[str, object]:
    """Pick diverse prompts, and write ``diversify.json``, ``prompts.parquet``, ``prompts.csv``.

    ``triggers``: with ``per_source``, pairs of a prompt and what it was made from, as
    ``read_values`` of ``prompt_files`` reads them; empty takes the column, which has one trigger of
    each prompt. Returns the content of ``diversify.json``.

    Raises:
        UsageError: the list has no column ``trigger``, a number does not fit, or the folder holds
            another result.
    """
    run, settings = folder_of(out, "diversify"), settings or DiversifySettings()
    bank = [(text, "") for text in prompts.texts]
    if settings.per_source:
        bank = _with_triggers(prompts, triggers)
    texts = [text for text, _ in bank]
    sources = [source for _, source in bank] if settings.per_source else []
    key: dict[str, object] = {
        "method": "diversify",
        "model": model.digest,
        "precision": model.precision,
        "prompts": digest_of({"texts": texts, "sources": sources}),
        **asdict(settings),
    }
    known = _known_result(run, key, None, force=force, note=note)
    if known is not None:
        return known
    picks = diversify(model, texts, settings.count, sources=sources, seed=settings.seed)
    places = {text: row for row, text in enumerate(prompts.texts)}
    rows = [
        (texts[pick.row], places[texts[pick.row]], pick.closeness, pick.source) for pick in picks
    ]
    kinds = (_TEXT, pa.int64(), _REAL, _TEXT)
    columns = tuple(map(Column, ("prompt", "row", "closeness", TRIGGER), kinds))
    counts = Counter(pick.source for pick in picks)
    closest = max((each.closeness for each in picks if each.closeness is not None), default=None)
    headline = f"{len(picks):,} of {len(bank):,} prompts picked"
    if closest is not None:
        headline += f"; the closest two have a cosine of {closest:.2g}"
    content = run.document(
        headline,
        key=digest_of(key),
        model=model.about(),
        prompts=len(bank),
        origin=prompts.origin,
        **asdict(settings),
        picks=len(picks),
        sources=dict(counts) if settings.per_source else {},
        short=sum(number < settings.count for number in counts.values()),
    )
    table = Table("Picks", columns, rows).arrow()
    with run.claimed():
        run.finish(content, {PROMPTS: table, PROMPTS_CSV: table})
    return content


def _with_triggers(prompts: Prompts, triggers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the prompts of a bank with the trigger of each, once for each of its triggers."""
    if TRIGGER not in prompts.columns:
        raise UsageError(
            f"--per-source needs the column {TRIGGER} in {prompts.origin or 'the prompts'}, as"
            " `visleak memorization augment` writes it"
        )
    known = frozenset(prompts.texts)
    own = zip(prompts.texts, prompts.columns[TRIGGER], strict=True)
    return [pair for pair in triggers if pair[0] in known] or list(own)


# -- algorithm 3: picks of a bank with different meanings, by farthest points ---------------------

# begin with a random prompt of B; repeatedly add the prompt of B whose highest cosine with those
# already picked is lowest
#
# (Hong et al. 2024, section 3.4 and Algorithm 3). The cosine is of text embeddings phi; the paper
# does not specify which, here they are the pooled ones of the model's own text encoder. The first
# pick leaves B like all others, which is not printed.


#: Prompts that are embedded together.
BATCH: Final = 64


@dataclass(frozen=True, slots=True)
class Pick:
    """A prompt that was picked."""

    row: int  #: of the list it was picked from
    closeness: float | None  #: its highest cosine with the picks before it; ``None`` for the first
    source: str = ""  #: the group it was picked for


def farthest_points(
    vectors: npt.NDArray[np.floating], count: int, first: int
) -> Iterator[tuple[int, float | None]]:
    """Yield (row, highest cosine with earlier picks), each row the farthest from those before."""
    unit = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or not norms.all():
        raise VisleakError(
            "the text encoder gives a vector that is zero or not finite; such prompts have no"
            " direction to compare"
        )
    unit = unit / norms
    closest = np.full(len(unit), -np.inf)
    row, cosine = first, None
    for _ in range(min(count, len(unit))):
        yield row, cosine
        # einsum adds up each row alone: equal rows have equal cosines, as a product of matrices
        # with its blocks does not promise
        closest = np.maximum(closest, np.einsum("ij,j->i", unit, unit[row]))
        closest[row] = np.inf
        row = int(closest.argmin())
        cosine = float(closest[row])


def diversify(
    model: TokenModel,
    prompts: Sequence[str],
    count: int = 20,
    *,
    sources: Sequence[str] = (),
    seed: int = 0,
) -> list[Pick]:
    """Pick ``count`` prompts with different meanings by a model's text encoder (Algorithm 3).

    With ``sources``, the prompt that each was made from, ``count`` prompts of each source are
    picked (the paper: 20), whatever the other sources are; a bank of fewer is picked whole. Picks
    are in the order of picking, sources in the order of the list.

    Raises:
        UsageError: nothing to pick from, or numbers that do not fit.
    """
    if not prompts:
        raise UsageError("no prompt to pick from: give at least one")
    if count < 1:
        raise UsageError(f"count is at least 1; got {count}")
    if sources and len(sources) != len(prompts):
        raise UsageError(f"sources are one per prompt, {len(prompts)}; got {len(sources)}")
    parts = (list(prompts[at : at + BATCH]) for at in range(0, len(prompts), BATCH))
    vectors = np.concatenate([np.asarray(model.pooled_text(part)) for part in parts])
    rows_of = defaultdict[str, list[int]](list)
    for row, source in enumerate(sources or [""] * len(prompts)):
        rows_of[source].append(row)
    return [
        Pick(rows[index], cosine, source)
        for source, rows in rows_of.items()
        for index, cosine in farthest_points(
            vectors[rows], count, int(generator(seed, source, 0).integers(len(rows)))
        )
    ]
