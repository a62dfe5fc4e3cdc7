"""Writing an impact: JSON, CSV, Markdown, LaTeX and figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from visleak.impact import figures, scatter
from visleak.impact.markup import latex, markdown
from visleak.impact.results import Impact
from visleak.impact.rows import (
    COMPARISONS,
    EFFECTS,
    FLIPS,
    GAPS,
    comparison_rows,
    effect_rows,
    flip_rows,
    gap_rows,
)
from visleak.impact.stored import RESULT, as_dict
from visleak.storage import write_bytes, write_json, write_text, write_values


def write(result: Impact, folder: str | os.PathLike[str]) -> Path:
    """Write everything about an impact into a folder; ``impact.json`` comes last.

    What an earlier result left there and this one has not goes.

    Returns:
        The folder.
    """
    path = Path(folder)
    # a result that is half replaced is none
    (path / RESULT).unlink(missing_ok=True)
    for name, data in _figures(result):
        if data:
            write_bytes(path / name, data)
        else:
            (path / name).unlink(missing_ok=True)
    tables = (
        ("impact.csv", EFFECTS, effect_rows(result)),
        ("comparisons.csv", COMPARISONS, comparison_rows(result)),
        ("flips.csv", FLIPS, flip_rows(result)),
        ("gaps.csv", GAPS, gap_rows(result)),
    )
    for name, header, rows in tables:
        write_values(path / name, header, rows)
    write_text(path / "impact.md", markdown(result))
    write_text(path / "impact.tex", latex(result))
    write_json(path / RESULT, as_dict(result))
    return path


def _figures(result: Impact) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the figures; those of a figure that does not apply are empty."""
    for name, files in (("gains", figures.gains(result)), ("fair", scatter.fair(result))):
        for kind in ("svg", "png"):
            yield f"{name}.{kind}", files.get(kind, b"")
