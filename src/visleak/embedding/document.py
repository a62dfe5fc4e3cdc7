"""The results of a search for images, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from visleak.embedding.finding import Found
from visleak.reporting import Column, Document, Table
from visleak.stats import chance

_COLUMNS: Final = (
    *(Column(heading=name, show=str) for name in ("grade", "set", "image", "reason")),
    *(Column(heading=name, show=str, number=True) for name in ("sim.", "prob.")),
)


def documents(found: Sequence[Found]) -> list[Document]:
    """Return what was found, one document per image."""
    made = [Document("Search", f"{each.image}: {_verdict(each)}", tables=_table(each))
            for each in found]  # fmt: skip
    if found and found[0].unseen:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in found[0].unseen.items())
        made.append(Document("Unreadable", f"unreadable, and not compared: {reasons}"))
    return made


def _verdict(each: Found) -> str:
    """Return in a line whether an image is there."""
    if each.unreadable is not None:
        return f"cannot be read ({each.unreadable})"
    if not each.matches:
        return f"{_absent(each)}; no similar image"
    same = next((match for match in each.matches if match.same), None)
    nearest = f"the nearest has similarity {each.matches[0].similarity:.3f}"
    if same is None and not each.told:
        return f"{nearest}; no thresholds are known for this encoder, so it is not decided"
    if same is None:
        return f"{_absent(each)}; {nearest}"
    # without pixel verification a degree is all there is
    sure = "found" if same.grade is not None else "likely match (similarity only)"
    return f"{sure}: {same.id} of {same.set} ({same.grade or same.degree})"


def _absent(each: Found) -> str:
    return "not found among the images that could be read" if each.unseen else "not found"


def _table(each: Found) -> tuple[Table, ...]:
    rows = [
        [
            match.grade or match.degree or "-",
            match.set,
            match.id,
            match.reason or "",
            f"{match.similarity:.3f}",
            "-" if match.probability is None else chance(match.probability),
        ]
        for match in each.matches
    ]
    return (Table("matches", _COLUMNS, rows),)
