"""``visleak show``: all pairs of one image, and a picture of the best one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    from visleak.auditing import Audit


def show(
    folder: options.AuditFolder,
    image: Annotated[
        str, typer.Argument(metavar="ID", show_default=False, help="The id of an image.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Draw the best pair to this .png or .jpg."
        ),
    ] = None,
    set_name: Annotated[
        str | None,
        typer.Option("--set", metavar="NAME", help="The image's set, where several have the id."),
    ] = None,
    force: options.ForceFile = False,
) -> None:
    """List every pair of an image, closest first, with what people judged."""
    from visleak.auditing import Audit, apply_verdicts
    from visleak.cli.terminal import rendered
    from visleak.gallery import drawable
    from visleak.images.folder import as_text
    from visleak.storage import free_file, refuse_sets

    # ids of files whose names are not UTF-8 hold escapes, and such a name may be typed as it is
    image = as_text(image)
    audit = apply_verdicts(Audit(folder))
    if out is not None:
        drawable(out)
        free_file(out, force=force, audit=folder)
        refuse_sets(audit.summary, out)
    row = _image(audit, image, set_name)
    pairs = _pairs(audit, row["set"], image)
    edges.say(rendered(_table(row, pairs)))
    if out is not None:
        _draw(audit, row, pairs, out)
        edges.say(f"{edges.plain(str(out))}\n")


def _image(audit: Audit, image: str, set_name: str | None) -> dict[str, Any]:
    """Return the row of ``images.parquet``, from a test set if both sides have the id.

    Raises:
        UsageError: there is no such image, or several.
        VisleakError: it could not be read.
    """
    import pyarrow.compute as pc

    from visleak.errors import UsageError

    names = [each.name for each in audit.summary.sets]
    if set_name is not None and set_name not in names:
        raise UsageError(f"set must be one of {', '.join(names)}; got {set_name!r}")
    table = audit.images()
    rows = table.filter(pc.equal(table["id"], image)).to_pylist()
    rows = [row for row in rows if set_name in (None, row["set"])]
    queries = {total.query_set for total in audit.summary.totals}
    tested = [row for row in rows if row["set"] in queries]
    if len(tested) > 1:
        raise UsageError(
            f"{image!r} is in {' and '.join(row['set'] for row in tested)}; choose with --set"
        )
    if not rows:
        _refuse(audit, table, image, set_name)
    chosen: dict[str, Any] = (tested or rows)[0]
    return chosen


def _refuse(audit: Audit, table: pa.Table, image: str, set_name: str | None) -> None:
    """Say why there is no such image."""
    import pyarrow.compute as pc

    from visleak.errors import UsageError, VisleakError

    for problem in audit.unreadable():
        if problem.id == image and set_name in (None, problem.set):
            raise VisleakError(f"{image!r} of {problem.set} could not be read: {problem.reason}")
    where = f"set {set_name}" if set_name else "this audit"
    alike = table.filter(pc.match_substring(table["id"], image))["id"].slice(0, 3).to_pylist()
    hint = f"; did you mean {' or '.join(repr(each) for each in alike)}?" if alike else ""
    raise UsageError(f"no image of {where} has the id {image!r}{hint}")


def _pairs(audit: Audit, name: str, image: str) -> list[dict[str, Any]]:
    """Return the pairs of an image, most likely duplicates first, closest first among equals."""
    import pyarrow.compute as pc

    from visleak.records import GRADES

    table = audit.pairs()
    is_query = pc.and_(pc.equal(table["query_set"], name), pc.equal(table["query"], image))
    is_other = pc.and_(pc.equal(table["reference_set"], name), pc.equal(table["reference"], image))
    rank = {grade: place for place, grade in enumerate(GRADES)}
    rows: list[dict[str, Any]] = table.filter(pc.or_(is_query, is_other)).to_pylist()
    return sorted(
        rows,
        key=lambda row: (
            rank.get(row["grade"], len(GRADES)),
            -round(row["probability"] or 0.0, 3),
            # those that only people found may have none
            2.0 if row["similarity"] is None else -row["similarity"],
        ),
    )


def _table(image: dict[str, Any], pairs: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    size = f"{image['width']} x {image['height']}" if image["width"] else "size unknown"
    label = f", label {edges.plain(image['label'])}" if image["label"] else ""
    head = f"{edges.plain(image['id'])} of {edges.plain(image['set'])} ({size}{label})"
    yield Text(head, "bold")
    if not pairs:
        yield Text(_alone(image))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("grade", no_wrap=True)
    for name in ("sim.", "prob."):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("set", "image", "transform", "reason"):
        table.add_column(name, overflow="fold")
    for row in pairs:
        table.add_row(*_cells(row, image), style="dim" if row["grade"] == "different" else "")
    yield table


def _cells(row: dict[str, Any], image: dict[str, Any]) -> Iterator[str]:
    from visleak.stats import chance

    mine = (row["query_set"], row["query"]) == (image["set"], image["id"])
    other = "reference" if mine else "query"
    yield _graded(row)
    yield _similarity(row)
    yield "-" if row["probability"] is None else chance(row["probability"])
    yield edges.plain(row[f"{other}_set"])
    yield edges.plain(row[other])
    yield edges.plain(row["transform"] or "")
    yield edges.plain(row["reason"] or "")


def _graded(row: dict[str, Any]) -> str:
    """Return the grade of a pair, or its degree, and whether people gave it."""
    grade, machine = row["grade"] or row["degree"] or "-", row["machine_grade"]
    if row["judged"] == "disputed":
        return f"{grade} (disputed)"
    if row["judged"] is None:
        return grade
    return (
        f"{grade} (judged)" if machine == grade else f"{grade} (judged; machine {machine or '-'})"
    )


def _similarity(row: dict[str, Any]) -> str:
    """Return the similarity of a pair, "-" where nobody measured it."""
    return "-" if row["similarity"] is None else f"{row['similarity']:.3f}"


def _alone(image: dict[str, Any]) -> str:
    """Return what is known of an image without any pair."""
    if image["nearest"] is None:
        return "no pair"
    return (
        f"no pair; nearest is {edges.plain(image['nearest'])} of"
        f" {edges.plain(image['nearest_set'])} at {image['nearest_similarity']:.3f}"
    )


def _draw(audit: Audit, image: dict[str, Any], pairs: Sequence[dict[str, Any]], out: Path) -> None:
    """Draw the first pair.

    Raises:
        VisleakError: there is none, or a picture cannot be read any more.
    """
    from visleak.errors import VisleakError
    from visleak.gallery import relation, write_card
    from visleak.stats import chance

    if not pairs:
        raise VisleakError(f"{image['id']!r} has no pair to draw")
    best = pairs[0]
    pictures = []
    for side in ("query", "reference"):
        name, id_ = best[f"{side}_set"], best[side]
        found = audit.pictures(name, [id_])
        if id_ not in found:
            raise VisleakError(
                f"{id_!r} of {name} cannot be read or has changed since the audit; nothing is drawn"
            )
        pictures.append(found[id_])
    title = f"{best['query_set']}: {best['query']}   {best['reference_set']}: {best['reference']}"
    said = [_graded(best), f"similarity {_similarity(best)}"]
    if best["probability"] is not None:
        said.append(f"probability {chance(best['probability'])}")
    lines = [", ".join(said), best["reason"] or ""]
    write_card(out, pictures[0], pictures[1], relation(best), title=title, lines=lines)
