"""Writing a result: JSON, tables, plots, contact sheet and page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from visleak.robustness.figures import radar, roc_plot
from visleak.robustness.page import page
from visleak.robustness.results import PICTURES, Robustness
from visleak.robustness.sheet import contact_sheet, encoded
from visleak.robustness.tables import HEADER, markdown, rows
from visleak.storage import write_bytes, write_csv, write_json, write_tables, write_text

RESULT: Final = "robustness.json"
TABLE: Final = "conditions.csv"
QUERIES: Final = "queries.parquet"
MARKDOWN: Final = "conditions.md"
SHEET: Final = "sheet.png"
PAGE: Final = "report.html"


def write(result: Robustness, folder: str | os.PathLike[str]) -> Path:
    """Write everything about a result into a folder; ``robustness.json`` comes last.

    Returns:
        The folder.
    """
    path = Path(folder)
    plots = {"r1": radar(result), "roc": roc_plot(result)}
    sheet = contact_sheet(result.sheet) if result.sheet else None
    for name, files in plots.items():
        for kind, data in files.items():
            write_bytes(path / f"{name}.{kind}", data)
    if sheet is not None:
        write_bytes(path / SHEET, encoded(sheet, "png"))
    write_csv(path / TABLE, HEADER, rows(result))
    write_tables(path / QUERIES, PICTURES, (tested.pictures for tested in result.encoders))
    write_text(path / MARKDOWN, markdown(result))
    shown = encoded(sheet, "webp") if sheet is not None else None
    svg = {name: files["svg"] for name, files in plots.items() if files}
    write_text(path / PAGE, page(result, svg, shown))
    write_json(path / RESULT, result.as_dict())
    return path
