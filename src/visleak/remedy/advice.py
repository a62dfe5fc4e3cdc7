"""Which side of a leak to mend, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from visleak.errors import UsageError
from visleak.storage import AuditSummary, SetSummary

#: The sides of an audit.
SIDES: Final = ("test", "train")

#: Of the training images; where more would go, training loses more than the test is worth.
MUCH: Final = 0.1


@dataclass(frozen=True)
class Advice:
    """A side and the reason for it.

    Attributes:
        side: ``test`` or ``train``.
        why: one or two sentences.
    """

    side: str
    why: str


def advise(summary: AuditSummary, lost: int) -> Advice:
    """Return the side to purge: training if possible, else test (Ramos et al. 2025, section 8).

    Args:
        summary: content of ``audit.json``.
        lost: training images that a purge of that side would remove.
    """
    trains = trained_on(summary)
    if not trains:
        return Advice("test", "the set was compared with itself alone: there is no other side")
    shown = ", ".join(each.name for each in trains)
    if not all(each.has_pixels for each in trains):
        return Advice(
            "test",
            f"{shown} has embeddings only, whose pictures are not here to be written; the list of"
            " the ids that should go can be (--remove-from train)",
        )
    pretrained = [each.name for each in trains if "pretraining" in each.roles]
    if pretrained:
        return Advice(
            "test",
            f"{', '.join(pretrained)} is pretraining data: a model that has seen it stays as it is"
            " unless it is pretrained again",
        )
    total = sum(each.images for each in trains)
    share = lost / max(1, total)
    gone = f"{lost:,} of {total:,} images of {shown} ({100 * share:.2f} %)"
    if share > MUCH:
        return Advice("test", f"{gone} would go, more than training should lose")
    return Advice(
        "train",
        f"{gone} would go, and the test set stays the one that others report on (Ramos et al. 2025,"
        " section 8: from train if possible, else from test). The model must be trained again;"
        " where it cannot be, replace in test as Barz & Denzler (2020) do: `visleak replace`",
    )


def trained_on(summary: AuditSummary) -> list[SetSummary]:
    """Return the sets of an audit that test images were compared with, but for themselves."""
    names = {c.reference_set for c in summary.comparisons if c.coverage != "within"}
    return [each for each in summary.sets if each.name in names]


def chosen_sets(summary: AuditSummary, side: str, name: str | None) -> list[SetSummary]:
    """Return the sets of a side, or the one that was asked for.

    Raises:
        UsageError: there is no such side or set, or a set is on both sides and none was chosen.
    """
    if side not in SIDES:
        raise UsageError(f"from must be one of {', '.join(SIDES)}; got {side!r}")
    tests = {total.query_set for total in summary.totals}
    trains = {each.name for each in trained_on(summary)}
    if side == "train" and not trains:
        raise UsageError(
            "this audit compared a set with itself alone, so there is no training side; use"
            " --remove-from test --test-duplicates drop"
        )
    own = tests if side == "test" else trains
    if name is not None and name not in own:
        raise UsageError(f"set must be one of {', '.join(sorted(own))}; got {name!r}")
    both = sorted(tests & trains)
    if name is None and both:
        raise UsageError(
            f"the sets {', '.join(both)} were compared with each other, and to purge both would"
            " lose both images of a pair; choose one with --set NAME"
        )
    return [s for s in summary.sets if s.name in own and name in (None, s.name)]
