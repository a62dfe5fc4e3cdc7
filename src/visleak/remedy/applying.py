"""From a plan to parts that an audit found no leak between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.formats import open_image_set
from visleak.formats.writing import OutputSource
from visleak.records import ImageSet
from visleak.remedy.graph import Graph, Ties, or_stronger
from visleak.remedy.plan import DATA, NOTHING_DONE, PROOF, Plan, Split, known_digests
from visleak.remedy.proving import Examiner, leaks_between
from visleak.remedy.writing import write
from visleak.storage import AUDIT, IMAGES, read_summary, read_table
from visleak.verdicts import judged_pairs

#: Most rounds of assigning and auditing.
ROUNDS: Final = 8


@dataclass(frozen=True)
class Order:
    """What is to be done with a plan.

    Attributes:
        out: the output folder.
        audited: the audit that the plan is made from.
        examiner: audits parts.
        apply: write the parts.
        how: ``manifest``, ``link`` or ``copy``.
    """

    out: Path
    audited: Path
    examiner: Examiner
    apply: bool
    how: str


def conclude(
    order: Order,
    graph: Graph,
    solve: Callable[[Ties], Plan],
    ties: Ties,
    accept: Callable[[Plan], None] = lambda plan: None,
) -> Split:
    """Plan, and if that is asked for: audit, write and prove.

    Args:
        order: what is to be done.
        graph: the images.
        solve: makes a plan of ties.
        ties: that are known.
        accept: raises where a plan must not be carried out.

    Raises:
        UsageError, VisleakError: as :func:`consensus` and :func:`apply`.
    """
    plan = solve(ties)
    outcome = dict(NOTHING_DONE)
    if order.apply:
        accept(plan)
        plan, rounds, more = consensus(solve, ties, graph, order.examiner)
        accept(plan)
        outcome |= {"rounds": rounds, "pairs_added": more} | apply(plan, order)
    return Split(order.out, plan.write(order.out, outcome))


def consensus(
    solve: Callable[[Ties], Plan], ties: Ties, graph: Graph, examiner: Examiner
) -> tuple[Plan, int, int]:
    """Return a plan between whose parts an audit finds nothing, rounds, and ties found on the way.

    An audit of all images with themselves looks at the best candidates of each, so parts alone may
    show pairs that it did not list. They become ties, and parts are assigned anew.

    Args:
        solve: makes a plan of ties.
        ties: that are known.
        graph: the images.
        examiner: audits the parts.

    Raises:
        VisleakError: even the last round still finds pairs.
    """
    known = ties
    for number in range(1, ROUNDS + 1):
        plan = solve(known)
        found = leaks_between(examiner, graph, plan.part)
        if not len(found):
            return plan, number, len(known) - len(ties)
        known += found
    raise VisleakError(
        f"after {ROUNDS} rounds there are still {len(found):,} pairs between the parts that no"
        " audit had listed before; nothing was written: try another seed"
    )


def apply(plan: Plan, order: Order) -> dict[str, Any]:
    """Write the parts of a plan, audit what was written, and keep it if nothing leaks.

    Args:
        plan: what is written.
        order: where to and how; parts come into ``data`` of its folder, the audit into ``proof``.

    Returns:
        What ``split.json`` says of it: ``written`` and ``proof``.

    Raises:
        UsageError, VisleakError: as :func:`visleak.remedy.writing.write`, or something leaks.
    """
    out, examiner = order.out, order.examiner
    proof: dict[str, Any] = {"folder": None, "headline": None, "leaks": 0}

    def check(folder: Path, opened: Mapping[str, OutputSource]) -> None:
        parts = [_reopened(name, way, folder, out / DATA) for name, way in opened.items()]
        if len(parts) > 1:
            proof.update(_proven(parts, out / PROOF, examiner))

    images = read_table(order.audited, IMAGES, ["set", "id", "digest"])
    written = write(
        plan.parts(),
        out / DATA,
        order.how,
        # where the audit lies changes no image
        about={name: value for name, value in plan.about.items() if name != "audit"},
        removed=plan.left_out(order.audited),
        known=known_digests(images),
        check=check,
        progress=examiner.progress,
    )
    if written.reused and (out / PROOF / AUDIT).is_file():
        proof |= {"folder": str(out / PROOF), "headline": read_summary(out / PROOF).headline}
    return {
        "proof": proof,
        "written": {
            "folder": str(written.folder),
            "as": written.how,
            "sources": dict(written.sources),
            "images": dict(written.counts),
        },
    }


def _reopened(name: str, opened: OutputSource, folder: Path, final: Path) -> ImageSet:
    """Open a part that was just written, under the name that its folder will have."""
    images = open_image_set(opened.source(folder), name=name, **opened.options)
    return replace(
        images,
        source=opened.source(final),
        locators=pc.replace_substring(images.locators, str(folder), str(final)),
    )


def _proven(parts: list[ImageSet], out: Path, examiner: Examiner) -> dict[str, Any]:
    """Audit the parts against each other, the largest last, and refuse them if anything leaks.

    Raises:
        VisleakError: a pair between them is of the grade or stronger.
    """
    parts = sorted(parts, key=len)
    found = examiner.audited(parts[:-1], parts[1:], out, force=True)
    leaks = _leaks(found.folder, examiner)
    if leaks:
        raise VisleakError(
            f"the audit of the parts still finds {len(leaks):,} pairs of grade {examiner.grade} or"
            f" stronger, such as {leaks[0]}; nothing was written, {out} shows them"
        )
    return {"folder": str(out), "headline": found.headline, "leaks": 0}


def _leaks(folder: Path, examiner: Examiner) -> list[str]:
    """Return the leaks of an audit by the names of their images; blank pictures are none."""
    blank = read_table(folder, IMAGES, ["set", "id"], pc.field("flat"))
    flat = set(zip(*(blank[name].to_pylist() for name in ("set", "id")), strict=True))
    columns = ["query_set", "query", "reference_set", "reference", "grade"]
    pairs = judged_pairs(folder, columns, examiner.verdicts)
    pairs = pairs.filter(pc.is_in(pairs["grade"], or_stronger(examiner.grade)))
    result = []
    for row in pairs.to_pylist():
        one, other = (row["query_set"], row["query"]), (row["reference_set"], row["reference"])
        if not {one, other} & flat:
            result.append(f"{'/'.join(one)} and {'/'.join(other)}")
    return result
