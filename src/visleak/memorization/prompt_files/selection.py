"""Which prompts of a list are taken: by D, by a threshold, or as verified triggers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.reading import (
    TRACE,
    VERIFIED,
    VERIFIED_BY,
    Row,
    gathered,
    is_human,
    label_of,
)
from visleak.memorization.prompts import Prompts, PromptScores
from visleak.memorization.settings import COMMANDS
from visleak.memorization.tracing.document import Trace

#: ``kind`` of results of visleak, and bytes of one at most.
OURS: Final = "visleak memorization "
MOST_BYTES: Final = 1 << 28
#: Columns of D, the norm itself first; a table of ``search`` or ``augment`` has one of them.
SCORES: Final = ("d_l2", "d_squared")
#: Column of a table of ``detect``: whether a prompt reached the threshold.
REACHED: Final = "reached"
#: Of a trace of all images: share of a prompt's images that replicate one, and at which tau.
SHARE: Final = "replicated_share"
TAU: Final = "tau"
#: Columns that describe a prompt's place in the list it came from.
OF_THE_LIST: Final = ("group", "rank", "reached", "row", "closeness")
NOISE: Final = "squared_noise_"


def kept(prompts: Prompts, rows: Sequence[int]) -> Prompts:
    """Return some prompts of a list, in the order of their numbers."""
    return replace(
        prompts,
        texts=tuple(prompts.texts[row] for row in rows),
        labels=tuple(prompts.labels[row] for row in rows) if prompts.labels else (),
        sources=tuple(prompts.sources[row] for row in rows) if prompts.sources else (),
        columns={
            name: tuple(column[row] for row in rows) if column else ()
            for name, column in prompts.columns.items()
        },
    )


# -- provenance -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Provenance:
    """One file of prompts, and what made it."""

    file: str  #: its name, without folders
    digest: str  #: SHA-256 of its bytes
    verb: str = ""  #: command that wrote it, such as ``detect``; empty if unknown
    model: Mapping[str, object] = field(default_factory=dict)  #: of the command, as plain data
    settings: Mapping[str, object] = field(default_factory=dict)  #: of the command, as plain data

    @property
    def kappa(self) -> float | None:
        """Kappa of a list that ``search`` or ``augment`` wrote; ``None`` of any other."""
        kappa = self.settings.get("kappa") if self.verb in ("search", "augment") else None
        number = isinstance(kappa, int | float) and not isinstance(kappa, bool)
        return float(str(kappa)) if number else None

    def column(self, prompts: Prompts) -> str | None:
        """Return the column of D, by the norm of the result where a table has both."""
        there = [name for name in SCORES if any(prompts.columns.get(name, ()))]
        own = f"d_{self.settings.get('norm')}"
        return own if own in there else next(iter(there), None)


def model_of(origins: Sequence[Provenance]) -> Mapping[str, object]:
    """Return the one model that lists are about; nothing where none names one."""
    models = {str(each.model.get("digest", each.model)): each for each in origins if each.model}
    if len(models) > 1:
        named = ", ".join(
            f"{each.file} ({str(each.model.get('name', '?'))[:60]})" for each in models.values()
        )
        raise UsageError(
            f"prompts are about different models: {named}; make a data set of each model"
        )
    return next(iter(models.values())).model if models else {}


def provenance_of(file: Path) -> Provenance:
    """Return the provenance of a file of prompts; of a foreign file, its digest."""
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise VisleakError(f"{file} cannot be read ({error.strerror})") from error
    for beside in (file.parent / f"{verb}.json" for verb in COMMANDS):
        found = _result(beside) if beside.is_file() else {}
        verb = str(found.get("kind", "")).removeprefix(OURS)
        # a folder holds one result, whose file is named like the command that wrote it
        if found and beside.stem == verb:
            about = _table(found.get("about"))
            origin = _table(about.get("origin"))
            model = found.get("model", about.get("model", origin.get("model")))
            settings = found.get("settings", about.get("settings", about))
            return Provenance(file.name, digest, verb, _table(model), _table(settings))
    return Provenance(file.name, digest)


def _result(path: Path) -> Mapping[str, object]:
    """Return the content of a result of visleak; of any other file nothing."""
    try:
        text = path.read_text("utf-8") if path.stat().st_size <= MOST_BYTES else "null"
        content = _table(json.loads(text))
    except OSError as error:
        raise VisleakError(
            f"{path} cannot be read ({error.strerror}); it describes what {path.parent} holds"
        ) from error
    except (ValueError, RecursionError):
        return {}
    return content if str(content.get("kind", "")).startswith(OURS) else {}


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


# -- by D -----------------------------------------------------------------------------------------


def chosen(
    prompts: Prompts, file: Path, top: int | None = None, *, reached: bool = False
) -> Prompts:
    """Return the ``top`` prompts by D; a note counts them.

    ``reached``: those that reached kappa (of ``search`` and ``augment``) or the threshold (of
    ``detect``) alone.
    """
    if top is None and not reached:
        return prompts
    made_by = provenance_of(file)
    taken, reasons = prompts, []
    if reached:
        rows, what = _reaching(taken, made_by)
        if rows is None:
            raise UsageError(
                "--above-threshold-only needs a list that visleak memorization search or augment"
                f" wrote with a kappa, or detect with a threshold; {file} is not one: take the best"
                " with --top N, or all"
            )
        if not rows:
            raise VisleakError(
                f"none of {len(prompts):,} prompts of {file} reached {what}; take the best with"
                " --top N"
            )
        taken = kept(taken, rows)
        reasons.append(f"reached {what}")
    if top is not None:
        name = made_by.column(taken)
        if name is None:
            raise UsageError(
                f"--top needs a D of each prompt, and {file} has no column {' or '.join(SCORES)};"
                " score it with visleak memorization detect and give its scores.parquet"
            )
        # a prompt without a D is taken last
        d, texts = _numbers(taken, name), taken.texts
        taken = kept(taken, sorted(range(len(d)), key=lambda at: (-d[at], texts[at]))[:top])
        reasons.append(f"have the highest {name}")
    note = f"{len(taken):,} of {len(prompts):,} prompts are taken, which {' and '.join(reasons)}"
    return replace(taken, notes=(*prompts.notes, note))


def scores_of(prompts: Prompts, file: Path) -> PromptScores | None:
    """Return D of the prompts of a list, with the threshold that the list or its result names."""
    made_by = provenance_of(file)
    name = made_by.column(prompts)
    if name is None:
        return None
    scores = zip(prompts.texts, _numbers(prompts, name), strict=True)
    values = {text: d for text, d in scores if math.isfinite(d)}
    taken, what = _reaching(prompts, made_by)
    if taken is None:
        return PromptScores(name, values)
    return PromptScores(name, values, frozenset(prompts.texts[row] for row in taken), what)


def _numbers(prompts: Prompts, name: str) -> list[float]:
    """Return a column of D; -inf where a prompt has none."""
    found = []
    for row, cell in enumerate(prompts.columns[name], 1):
        try:
            found.append(float(cell) if cell else -math.inf)
        except ValueError:
            found.append(math.nan)
        if math.isnan(found[-1]):
            where = f"{prompts.origin}, prompt {row:,}, {name}"
            raise VisleakError(f"{where}: a D is a number; got {cell[:40]!r}")
    return found


def _reaching(prompts: Prompts, made_by: Provenance) -> tuple[list[int] | None, str]:
    """Return the rows that reached kappa or the threshold of ``detect``, and which of them."""
    kappa, name = made_by.kappa, made_by.column(prompts)
    if kappa is not None and name is not None:
        rows = [row for row, d in enumerate(_numbers(prompts, name)) if d >= kappa]
        return rows, f"kappa {kappa:g} ({name})"
    cells = prompts.columns.get(REACHED, ())
    if not any(cells):
        return None, ""
    where = f"{prompts.origin}, column {REACHED}"
    return [r for r, cell in enumerate(cells) if label_of(cell, where)], "the threshold of detect"


# -- by verification ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Prompts of a data set, and those that are left out of it."""

    prompts: Prompts  #: with the columns ``verified`` and ``verified_by``
    candidates: int  #: how many there were
    left_out: dict[str, int]  #: how many were left out, by reason


def joined(lists: Sequence[Prompts]) -> Prompts:
    """Return several lists as one: equal prompts join their images and fill each other's columns.

    A prompt that any list has as verified is verified, by the person whom that list names.

    >>> one = Prompts(("a",), sources=(("u",),))
    >>> other = Prompts(("a", "b"), columns={"d_l2": ("1.5", "2.5")})
    >>> both = joined([one, other])
    >>> both.texts, both.sources, dict(both.columns)
    (('a', 'b'), (('u',), ()), {'d_l2': ('1.5', '2.5')})
    """
    if not lists:
        raise UsageError("prompts: give at least one list")
    origin = ", ".join(each.origin or "a list" for each in lists)
    merged = gathered(chain.from_iterable(map(_rows, lists)), origin, origin)
    # prompts of several lists are expected here, and not counted
    notes = tuple(f"{each.origin}: {note}" for each in lists for note in each.notes)
    return replace(merged, notes=notes)


def of_the_prompt(name: str) -> bool:
    """Return whether a column describes the prompt, not its place in a list."""
    return name not in OF_THE_LIST and not name.startswith(NOISE)


def _rows(prompts: Prompts) -> Iterable[Row]:
    count = len(prompts)
    labels, sources = prompts.labels or (None,) * count, prompts.sources or ((),) * count
    columns = {name: cells for name, cells in prompts.columns.items() if of_the_prompt(name)}
    for at, text in enumerate(prompts.texts):
        cells = {name: column[at] for name, column in columns.items()}
        place = f"prompt {at + 1:,} of {prompts.origin or 'a list'}"
        yield Row(place, text, labels[at], sources[at], cells)


def traced(prompts: Prompts, *traces: Trace) -> Prompts:
    """Return prompts with what tracing found: verified where an image of theirs is a copy.

    Every prompt of a memorized image is given all references that are this image, as in MemBench
    one image has several addresses. Where all images were traced, ``replicated_share`` and
    ``tau`` state how often a prompt replicates one, and a prompt whose share is not above the
    trace's ``kappa_share`` is not a trigger (D_mem): it is not verified, whatever another trace or
    an earlier one found of single images of it, judged by people or not. A person who verified the
    prompt itself is believed. Where one image per cluster was traced, that the cluster is a copy is
    the rule.
    """
    # of several traces of a prompt that of a trigger counts, then the largest share
    pairs = [(each, trace.tau) for trace in traces for each in trace.prompts][::-1]
    pairs.sort(key=lambda pair: (pair[0].trigger, pair[0].share, pair[1]))
    measured = {each.prompt: (each, tau) for each, tau in pairs}
    rare = {text for text, (share, _) in measured.items() if not share.trigger}
    found = _found(traces, rare)
    count = len(prompts)
    sources = list(prompts.sources or ((),) * count)
    labels = list(prompts.labels or (None,) * count)
    record = _record(prompts, rare)
    if not measured.keys().isdisjoint(prompts.texts):
        # what was measured of other prompts before stays
        record |= {name: list(prompts.columns.get(name) or ("",) * count) for name in (SHARE, TAU)}
    for number, text in enumerate(prompts.texts):
        if text in measured:
            share, tau = measured[text]
            record[SHARE][number], record[TAU][number] = json.dumps(share.share), json.dumps(tau)
        if text not in found:
            continue
        by, names = found[text]
        if labels[number] is False:
            raise VisleakError(
                f"prompt {text!r:.80} is labelled not memorized, and verified by {by!r}; correct"
                " the label or the verdict"
            )
        sources[number] = tuple(dict.fromkeys((*sources[number], *names)))
        labels[number] = True
        record[VERIFIED][number], record[VERIFIED_BY][number] = "true", by
    return replace(
        _with_columns(prompts, record),
        sources=tuple(sources) if any(sources) else (),
        labels=tuple(labels) if any(label is not None for label in labels) else (),
    )


def _with_columns(prompts: Prompts, columns: Mapping[str, Sequence[str]]) -> Prompts:
    more = {name: tuple(cells) for name, cells in columns.items()}
    return replace(prompts, columns={**prompts.columns, **more})


def _found(traces: Sequence[Trace], rare: Collection[str]) -> dict[str, tuple[str, list[str]]]:
    """Return who verified each prompt that is not rare, and the references of its images."""
    found: dict[str, tuple[str, list[str]]] = {}
    for trace in traces:
        references: dict[int | None, tuple[str, ...]] = {
            each.number: each.references for each in trace.originals
        }
        for match in trace.verified:
            if match.prompt not in rare:
                by = f"{TRACE}{match.source}: {match.grade or 'verified'}"
                by += ", judged by people" * (match.judged == "human")
                names = found.setdefault(match.prompt, (by, []))[1]
                names += references.get(match.memorized, ())
    return found


def prompts_of(trace: Trace) -> Prompts:
    """Return the prompts whose images were traced, those of verified ones first."""
    every = (match.prompt for match in (*trace.verified, *trace.matches))
    texts = tuple(dict.fromkeys(text for text in every if text.strip()))
    if not texts:
        raise VisleakError(f"the trace in {trace.folder} holds no prompts")
    return Prompts(texts, origin=f"{trace.folder.name} (trace)")


def vouched(prompts: Prompts, by: str) -> Prompts:
    """Return prompts that name an image as verified by a person."""
    by = " ".join(by.split())
    if not by:
        raise UsageError("verified-by is empty; say who verified the prompts, and how")
    record = _record(prompts)
    for number, images in enumerate(prompts.sources):
        if images and record[VERIFIED][number] != "true":
            record[VERIFIED][number], record[VERIFIED_BY][number] = "true", by
    return _with_columns(prompts, record)


def selected(prompts: Prompts, *, unverified: bool = False) -> Selection:
    """Return the prompts of a data set: the verified ones, or all candidates.

    High D alone is not memorization: searches find prompts of the D of true triggers that reproduce
    nothing (Hong et al. 2024, section 5), and where the training data is unknown (Stable Diffusion
    3) nothing can be verified. Prompts that are labelled not memorized never enter.
    """
    record, count = _record(prompts), len(prompts)
    labels = prompts.labels or (None,) * count
    rest = [number for number, label in enumerate(labels) if label is not False]
    rows = [number for number in rest if unverified or record[VERIFIED][number] == "true"]
    if not rows:
        raise VisleakError(
            f"none of {count:,} prompts is verified; trace their images (visleak"
            " memorization extract, then trace) and give --trace DIR, say who verified them with"
            " --verified-by, or write candidates with --unverified"
        )
    counts = {"labelled not memorized": count - len(rest), "not verified": len(rest) - len(rows)}
    left_out = {reason: number for reason, number in counts.items() if number}
    return Selection(kept(_with_columns(prompts, record), rows), count, left_out)


def _record(prompts: Prompts, rare: Collection[str] = ()) -> dict[str, list[str]]:
    """Return the record of verification; only a named person verifies a ``rare`` prompt."""
    nothing = ("",) * len(prompts)
    cells = zip(
        *(prompts.columns.get(name, nothing) for name in (VERIFIED, VERIFIED_BY)), strict=True
    )
    record: dict[str, list[str]] = {VERIFIED: [], VERIFIED_BY: []}
    for number, (text, (said, by)) in enumerate(zip(prompts.texts, cells, strict=True), 1):
        where = f"{prompts.origin or 'prompts'}, prompt {number:,}, column {VERIFIED}"
        true = label_of(said, where) and (text not in rare or is_human(by))
        record[VERIFIED].append("true" if true else "false")
        record[VERIFIED_BY].append((by or prompts.origin or "the list itself") if true else "")
    return record
