"""Writing a result: JSON, CSV, Markdown, LaTeX and figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from visleak.dlede import figures, rows
from visleak.dlede.hash_figure import hash_distances
from visleak.dlede.markup import latex, markdown
from visleak.dlede.results import DLeDe
from visleak.dlede.stored import RESULT, as_dict
from visleak.storage import write_bytes, write_json, write_text, write_values

#: Sheet of the most alike pairs by perceptual hash.
PAIRS: Final = "phash-pairs.png"


def write(result: DLeDe, folder: str | os.PathLike[str], *, pictures: bytes | None = None) -> Path:
    """Write everything about a result into a folder; ``dlede.json`` comes last.

    What an earlier result left there and this one has not goes; trainings stay.

    Args:
        result: what was found.
        folder: need not be there.
        pictures: PNG of the most alike pairs.

    Returns:
        The folder.
    """
    path = Path(folder)
    # a result that is half replaced is none
    (path / RESULT).unlink(missing_ok=True)
    for name, data in (*_figures(result), (PAIRS, pictures)):
        if data:
            write_bytes(path / name, data)
        else:
            (path / name).unlink(missing_ok=True)
    for name, header, lines in (
        ("curve.csv", rows.curve_header(result), rows.curve_rows(result)),
        ("increases.csv", rows.INCREASES, rows.increase_rows(result)),
        ("phash.csv", rows.HASHES, rows.hash_rows(result)),
        ("makeup.csv", rows.MAKEUP, rows.makeup_rows(result)),
    ):
        write_values(path / name, header, lines)
    write_text(path / "dlede.md", markdown(result))
    write_text(path / "dlede.tex", latex(result))
    write_json(path / RESULT, as_dict(result))
    return path


def _figures(result: DLeDe) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the figures; those of a figure that does not apply are empty."""
    for name, make in (
        ("curve", figures.curve),
        ("increases", figures.increases),
        ("phash", hash_distances),
    ):
        files = make(result)
        for kind in ("svg", "png"):
            yield f"{name}.{kind}", files.get(kind, b"")
