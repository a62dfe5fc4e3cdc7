"""Algorithm 3 that leaves a folder behind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from visleak.documents import as_plain, digest_of
from visleak.errors import UsageError
from visleak.memorization.model import TokenModel
from visleak.memorization.prompts import Prompts
from visleak.memorization.search import output
from visleak.memorization.search.diversity import Pick, diversify
from visleak.memorization.search.headlines import diversify_headline
from visleak.memorization.search.reusing import Say, known_result
from visleak.store import write_json

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
    output.write_picks(folder, rows, TRIGGER)
    document = {
        **output.head("diversify", diversify_headline(picks, len(bank)), digest_of(key)),
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
    write_json(folder / output.result_name("diversify"), document)
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
