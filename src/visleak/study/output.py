"""Writing a study: figures, tables, page and JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from visleak.storage import write_bytes, write_csv, write_json, write_text
from visleak.study.figures import DEGREES, GRADES, bars, matrix
from visleak.study.page import page
from visleak.study.results import Result
from visleak.study.stored import as_dict
from visleak.study.tables import CELLS, UNIONS, cell_rows, latex, markdown, union_rows

RESULT: Final = "study.json"
PAGE: Final = "study.html"

Files = dict[str, bytes]

#: Figures by name: what each shows, and how it is drawn.
FIGURES: Final[dict[str, tuple[str, Callable[[Result], Files]]]] = {
    "matrix": (
        "Hard and soft leaks of benchmarks (columns) into training sets (rows)",
        lambda result: matrix(result, DEGREES, "matrix") if result.has_degrees else {},
    ),
    "grades": (
        "Exact and near copies of benchmarks (columns) in training sets (rows)",
        lambda result: matrix(result, GRADES, "grades") if result.has_grades else {},
    ),
    "intra": (
        "Leaks of each benchmark into the other sets of its dataset",
        lambda result: bars(
            [union for union in result.unions if union.coverage == "intra"],
            "Leaks within a dataset",
            "intra",
        ),
    ),
    "union": (
        "Leaks of each benchmark into any of its references",
        lambda result: bars(result.totals, "Leaks into any training set", "union"),
    ),
}


def write(result: Result, folder: Path) -> Path:
    """Write everything about a study beside its audits; ``study.json`` comes last.

    Returns:
        The folder.
    """
    svg = {}
    for name, (_, draw) in FIGURES.items():
        files = draw(result)
        for kind in ("svg", "png"):
            path = folder / f"{name}.{kind}"
            if kind in files:
                write_bytes(path, files[kind])
            else:
                # of a study that stood here before
                path.unlink(missing_ok=True)
        if files:
            svg[name] = files["svg"]
    write_csv(folder / "comparisons.csv", CELLS, cell_rows(result))
    write_csv(folder / "benchmarks.csv", UNIONS, union_rows(result))
    write_text(folder / "study.md", markdown(result))
    write_text(folder / "study.tex", latex(result))
    write_text(
        folder / PAGE, page(result, svg, {name: told for name, (told, _) in FIGURES.items()})
    )
    write_json(folder / RESULT, as_dict(result))
    return folder
