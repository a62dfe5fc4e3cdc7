"""Which prompts of a list are verified triggers, and by whom."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.choosing import kept as rows_kept
from visleak.memorization.prompt_files.reading import (
    TRACE,
    VERIFIED,
    VERIFIED_BY,
    Row,
    gathered,
    label_of,
    of_a_person,
)
from visleak.memorization.prompts import Prompts
from visleak.memorization.tracing.records import Match, Replication, Trace

#: Of a trace of all images: share of a prompt's images that replicate one, and at which tau.
SHARE: Final = "replicated_share"
TAU: Final = "tau"

#: What only says how a prompt stood in the list it came from.
OF_THE_LIST: Final = ("group", "rank", "reached", "row", "closeness")
NOISE: Final = "squared_noise_"


@dataclass(frozen=True)
class Selected:
    """Prompts of a data set, and those that are left out of it.

    Attributes:
        prompts: with the columns ``verified`` and ``verified_by``.
        candidates: how many there were.
        left_out: how many were left out, by reason.
    """

    prompts: Prompts
    candidates: int
    left_out: dict[str, int]


def joined(lists: Sequence[Prompts]) -> Prompts:
    """Return several lists as one: equal prompts join their images and fill each other's columns.

    One that any list calls verified is verified, by whom that list says.

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
    notes = [f"{each.origin}: {note}" for each in lists for note in each.notes]
    # a prompt that comes again in another list is what joining is for
    return replace(merged, notes=tuple(notes))


def _rows(prompts: Prompts) -> Iterable[Row]:
    count = len(prompts)
    labels = prompts.labels or (None,) * count
    sources = prompts.sources or ((),) * count
    columns = {
        name: column
        for name, column in prompts.columns.items()
        if name not in OF_THE_LIST and not name.startswith(NOISE)
    }
    for number, text in enumerate(prompts.texts):
        cells = {name: column[number] for name, column in columns.items()}
        place = f"prompt {number + 1:,} of {prompts.origin or 'a list'}"
        yield Row(place, text, labels[number], sources[number], cells)


def traced(prompts: Prompts, *traces: Trace) -> Prompts:
    """Return prompts with what tracing found: verified where an image of theirs is a copy.

    Every prompt of a memorized image is given all references that are this image, as in MemBench
    one image has several addresses. Where all images were traced, ``replicated_share`` and
    ``tau`` say how often a prompt replicates one, and a prompt whose share is not above the trace's
    ``kappa_share`` is no trigger (D_mem): it is not verified, whatever another trace or an earlier
    one says of single images of it, judged by people or not. Who vouches for the prompt itself is
    believed. Where one image per cluster was traced, that the cluster is a copy is the rule.

    Args:
        prompts: a list.
        traces: all that there are, for their order does not matter to what is verified. A prompt
            of which several measured the share is a trigger if it is one in any.

    Raises:
        VisleakError: a prompt that is labelled not memorized is verified.
    """
    measured = _measured(traces)
    rare = {text for text, (share, _) in measured.items() if not share.trigger}
    found = _found(traces, rare)
    sources = list(prompts.sources or ((),) * len(prompts))
    labels = list(prompts.labels or (None,) * len(prompts))
    record = {name: list(column) for name, column in _record(prompts, rare).items()}
    for number, text in enumerate(prompts.texts):
        if text not in found:
            continue
        by, names = found[text]
        if labels[number] is False:
            raise VisleakError(
                f"prompt {text!r:.80} is labelled not memorized, and a {by} says otherwise; correct"
                " the label or the verdict"
            )
        sources[number] = tuple(dict.fromkeys((*sources[number], *names)))
        labels[number] = True
        record[VERIFIED][number] = "true"
        record[VERIFIED_BY][number] = by
    return replace(
        prompts,
        sources=tuple(sources) if any(sources) else (),
        labels=tuple(labels) if any(label is not None for label in labels) else (),
        columns={
            **prompts.columns,
            **{name: tuple(cells) for name, cells in record.items()},
            **_shares(prompts, measured),
        },
    )


def _measured(traces: Sequence[Trace]) -> dict[str, tuple[Replication, float]]:
    """Return the share of each prompt that was measured, and at which tau.

    Of several, that of a trigger, then the largest: traces may have asked different training sets,
    and what a prompt replicates of one set it replicates of all together.
    """
    found: dict[str, tuple[Replication, float]] = {}
    for trace in traces:
        for each in trace.prompts:
            other = found.get(each.prompt)
            if other is None or _place(each, trace.tau) > _place(*other):
                found[each.prompt] = each, trace.tau
    return found


def _place(each: Replication, tau: float) -> tuple[bool, float, float]:
    return each.trigger, each.share, tau


def _found(
    traces: Sequence[Trace], rare: Collection[str]
) -> dict[str, tuple[str, dict[str, None]]]:
    """Return who verified each prompt that is not rare, and the references of its images."""
    found: dict[str, tuple[str, dict[str, None]]] = {}
    for trace in traces:
        references: dict[int | None, tuple[str, ...]] = {
            each.number: each.references for each in trace.originals
        }
        for match in trace.verified:
            if match.prompt not in rare:
                _, names = found.setdefault(match.prompt, (_verdict(match), {}))
                names.update(dict.fromkeys(references.get(match.memorized, ())))
    return found


def _shares(
    prompts: Prompts, measured: Mapping[str, tuple[Replication, float]]
) -> dict[str, tuple[str, ...]]:
    """Return the columns of shares; what was measured of other prompts before stays."""
    if not any(text in measured for text in prompts.texts):
        return {}
    columns = {}
    for name in (SHARE, TAU):
        cells = list(prompts.columns.get(name) or ("",) * len(prompts))
        for number, text in enumerate(prompts.texts):
            if text in measured:
                share, tau = measured[text]
                cells[number] = json.dumps(share.share if name == SHARE else tau)
        columns[name] = tuple(cells)
    return columns


def prompts_of(trace: Trace) -> Prompts:
    """Return the prompts whose images were traced, those of verified ones first.

    Raises:
        VisleakError: there is none.
    """
    every = (match.prompt for match in (*trace.verified, *trace.matches))
    texts = tuple(dict.fromkeys(text for text in every if text.strip()))
    if not texts:
        raise VisleakError(f"the trace in {trace.folder} holds no prompts")
    return Prompts(texts, origin=f"{trace.folder.name} (trace)")


def _verdict(match: Match) -> str:
    """Return the record of a match.

    >>> _verdict(Match("a.png", "a", 40, "train", "r", 0.9, "near", 0.9, True, 0, judged="human"))
    'trace in train: near, judged by people'
    """
    said = f"{TRACE}{match.source}: {match.grade or 'verified'}"
    return f"{said}, judged by people" if match.judged == "human" else said


def vouched(prompts: Prompts, by: str) -> Prompts:
    """Return prompts that name an image as verified by somebody, who is named.

    Raises:
        UsageError: nobody is named.
    """
    by = " ".join(by.split())
    if not by:
        raise UsageError("verified-by is empty; say who verified the prompts, and how")
    record = {name: list(column) for name, column in _record(prompts).items()}
    for number, images in enumerate(prompts.sources):
        if images and record[VERIFIED][number] != "true":
            record[VERIFIED][number] = "true"
            record[VERIFIED_BY][number] = by
    columns = {**prompts.columns, **{name: tuple(cells) for name, cells in record.items()}}
    return replace(prompts, columns=columns)


def selected(prompts: Prompts, *, unverified: bool = False) -> Selected:
    """Return the prompts of a data set: the verified ones, or all candidates if so asked.

    High D alone is no memorization: searches find prompts of the D of true triggers that replay
    nothing (Hong et al. 2024, section 5), and where nobody knows the training data (Stable
    Diffusion 3) nothing can be verified. Prompts that are labelled not memorized never enter.

    Raises:
        VisleakError: no prompt is left.
    """
    record = _record(prompts)
    labels = prompts.labels or (None,) * len(prompts)
    ordinary = [number for number, label in enumerate(labels) if label is False]
    rest = [number for number, label in enumerate(labels) if label is not False]
    kept = [number for number in rest if unverified or record[VERIFIED][number] == "true"]
    left_out = {}
    if ordinary:
        left_out["labelled not memorized"] = len(ordinary)
    if len(rest) > len(kept):
        left_out["not verified"] = len(rest) - len(kept)
    if not kept:
        raise VisleakError(
            f"none of {len(prompts):,} prompts is verified; trace their images (visleak"
            " memorization extract, then trace) and give --trace DIR, say who verified them with"
            " --verified-by, or write candidates with --unverified"
        )
    whole = replace(prompts, columns={**prompts.columns, **record})
    chosen = rows_kept(whole, kept)
    return Selected(chosen, len(prompts), left_out)


def _record(prompts: Prompts, rare: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the record of verification, ``true`` or ``false`` and by whom.

    Args:
        prompts: a list.
        rare: prompts whose measured share is too small: only a person who is named verifies them.

    Raises:
        VisleakError: a cell of ``verified`` says neither.
    """
    said = prompts.columns.get(VERIFIED, ("",) * len(prompts))
    by = prompts.columns.get(VERIFIED_BY, ("",) * len(prompts))
    true = [
        label_of(cell, f"{prompts.origin or 'prompts'}, prompt {number:,}, column {VERIFIED}")
        and (text not in rare or of_a_person(name))
        for number, (text, cell, name) in enumerate(zip(prompts.texts, said, by, strict=True), 1)
    ]
    origin = prompts.origin or "the list itself"
    return {
        VERIFIED: tuple("true" if each else "false" for each in true),
        VERIFIED_BY: tuple(
            (name or origin) if each else "" for each, name in zip(true, by, strict=True)
        ),
    }
