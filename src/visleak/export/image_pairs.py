"""All pairs of one image, and a drawing of the best one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.formats.listing import name_text
from visleak.quantities import counted
from visleak.rates import chance
from visleak.records import GRADES, ImageRow, PairRow, ends_of
from visleak.reporting import Document, gallery
from visleak.reporting.contact_sheet import drawable, write_card
from visleak.reporting.gallery import decoded, drawn, relation
from visleak.reporting.markup import Grid
from visleak.storage import free_file, refuse_sets


@dataclass(frozen=True, repr=False)
class ImagePairs:
    """The pairs of one image.

    Attributes:
        audit: the audit, verdicts of people applied.
        image: row of ``images.parquet``.
        pairs: rows of ``pairs.parquet``, most likely duplicates first.
        hidden: pairs of grade ``different`` that are left out.
    """

    audit: Audit
    image: ImageRow
    pairs: Sequence[PairRow]
    hidden: int = 0

    def __repr__(self) -> str:
        found = document(self)
        return "\n".join([found.headline, *found.lines, *map(pair_text, self.pairs)])

    def _repr_html_(self) -> str:
        found = document(self)
        grid = _grid(self)
        rows = self.pairs[: gallery.MOST]
        images = decoded(rows, self.audit.readable_images)
        cards = ((pair_text(row), drawn(row, images, gallery.DETAIL)) for row in rows)
        pairs = gallery.pairs((text, card) for text, card in cards if card is not None)
        return gallery.headline(found.headline) + gallery.table(grid.header, grid.rows) + pairs


def pair_text(row: PairRow) -> str:
    """Return a pair as one line."""
    query, reference = (": ".join(end) for end in ends_of(row))
    return f"{_graded(row)}: {query} = {reference}"


def image_pairs(
    folder: str | os.PathLike[str] | Audit,
    image: str,
    set_name: str | None = None,
    *,
    different: bool = True,
    out: Path | None = None,
    force: bool = False,
) -> ImagePairs:
    """Return the pairs of an image, with what people judged.

    Args:
        folder: an audit folder, or an audit.
        image: id of the image.
        set_name: its set; needed if several test sets have the id.
        different: include pairs of grade ``different`` that no person judged.
        out: draw the best pair to this ``.png`` or ``.jpg``.
        force: replace an existing file.

    Raises:
        UsageError: there is no such image, or several; or ``out`` exists or has another ending.
        VisleakError: it could not be read, or there is no pair to draw.
    """
    audit = apply_verdicts(folder if isinstance(folder, Audit) else Audit(folder))
    if out is not None:
        drawable(out)
        free_file(out, force=force, audit=audit.folder)
        refuse_sets(audit.summary, out)
    # ids of files whose names are not UTF-8 hold escapes, and such a name may be typed as it is
    row = _image(audit, name_text(image), set_name)
    pairs = _pairs(audit, row["set"], row["id"])
    shown = [p for p in pairs if different or p["grade"] != GRADES[-1] or p["judged"] is not None]
    found = ImagePairs(audit, row, shown, hidden=len(pairs) - len(shown))
    if out is not None:
        _draw(found, out)
    return found


def document(found: ImagePairs) -> Document:
    """Return the pairs of an image for people."""
    image, lines, notes = found.image, list[str](), list[str]()
    size = f"{image['width']} x {image['height']}" if image["width"] else "size unknown"
    label = f", label {image['label']}" if image["label"] else ""
    if found.hidden:
        nothing = "" if found.pairs else "no duplicate; "
        hidden = counted(found.hidden, "pair")
        notes.append(f"{nothing}{hidden} graded different; --all lists them")
    elif not found.pairs and image["nearest"] is None:
        lines.append("no pair")
    elif not found.pairs:
        lines.append(
            f"no pair; nearest is {image['nearest']} of"
            f" {image['nearest_set']} at {image['nearest_similarity']:.3f}"
        )
    return Document(
        "Pairs of an image",
        f"{image['id']} of {image['set']} ({size}{label})",
        lines=tuple(lines),
        tables=(_grid(found),),
        notes=tuple(notes),
    )


def _grid(found: ImagePairs) -> Grid:
    header = ["grade", "set", "image", "transform", "reason", "sim.", "prob."]
    return Grid("pairs", header, [_cells(row, found.image) for row in found.pairs], texts=5)


def _image(audit: Audit, image: str, set_name: str | None) -> ImageRow:
    """Return the row of ``images.parquet``, from a test set if both sides have the id."""
    names = [each.name for each in audit.summary.sets]
    if set_name is not None and set_name not in names:
        raise not_one_of("set", set_name, names)
    table = audit.images()
    if set_name is not None:
        table = table.filter(pc.equal(table["set"], set_name))
    rows: list[ImageRow] = table.filter(pc.equal(table["id"], image)).to_pylist()
    queries = {total.query_set for total in audit.summary.totals}
    tested = [row for row in rows if row["set"] in queries]
    if len(tested) > 1:
        raise UsageError(
            f"{image!r} is in {' and '.join(row['set'] for row in tested)}; choose with --set"
        )
    if rows:
        return (tested or rows)[0]
    for problem in audit.unreadable():
        if problem.id == image and set_name in (None, problem.set):
            raise VisleakError(f"{image!r} of {problem.set} could not be read: {problem.reason}")
    where = f"set {set_name}" if set_name else "this audit"
    near = table.filter(pc.match_substring(table["id"], image))["id"].slice(0, 3).to_pylist()
    hint = f"; did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
    raise UsageError(f"no image of {where} has the id {image!r}{hint}")


def _pairs(audit: Audit, name: str, image: str) -> list[PairRow]:
    """Return the pairs of an image, most likely duplicates first, closest first among equals."""
    table = audit.pairs()
    is_query = pc.and_(pc.equal(table["query_set"], name), pc.equal(table["query"], image))
    is_other = pc.and_(pc.equal(table["reference_set"], name), pc.equal(table["reference"], image))
    rank = {grade: place for place, grade in enumerate(GRADES)}
    rows: list[PairRow] = table.filter(pc.or_(is_query, is_other)).to_pylist()
    return sorted(
        rows,
        key=lambda row: (
            rank.get(row["grade"] or "", len(GRADES)),
            -round(row["probability"] or 0.0, 3),
            # pairs that only people found may have none
            2.0 if row["similarity"] is None else -row["similarity"],
        ),
    )


def _cells(row: PairRow, image: ImageRow) -> list[str]:
    query, reference = ends_of(row)
    other = reference if query == (image["set"], image["id"]) else query
    return [
        _graded(row),
        *other,
        row["transform"] or "",
        row["reason"] or "",
        _similarity(row),
        "-" if row["probability"] is None else chance(row["probability"]),
    ]


def _graded(row: PairRow) -> str:
    grade, machine = row["grade"] or row["degree"] or "-", row["machine_grade"]
    if row["judged"] == "disputed":
        return f"{grade} (disputed)"
    if row["judged"] is None:
        return grade
    return (
        f"{grade} (judged)" if machine == grade else f"{grade} (judged; machine {machine or '-'})"
    )


def _similarity(row: PairRow) -> str:
    return "-" if row["similarity"] is None else f"{row['similarity']:.3f}"


def _draw(found: ImagePairs, out: Path) -> None:
    audit, image, pairs = found.audit, found.image, found.pairs
    if not pairs:
        raise VisleakError(f"{image['id']!r} has no pair to draw")
    best = pairs[0]
    images = []
    for name, id_ in ends_of(best):
        readable = audit.decoded_images(name, [id_])
        if id_ not in readable:
            raise VisleakError(
                f"{id_!r} of {name} cannot be read or has changed since the audit; nothing is drawn"
            )
        images.append(readable[id_])
    title = f"{best['query_set']}: {best['query']}   {best['reference_set']}: {best['reference']}"
    parts = [_graded(best), f"similarity {_similarity(best)}"]
    if best["probability"] is not None:
        parts.append(f"probability {chance(best['probability'])}")
    lines = [", ".join(parts), best["reason"] or ""]
    write_card(out, images[0], images[1], relation(best), title=title, lines=lines)
