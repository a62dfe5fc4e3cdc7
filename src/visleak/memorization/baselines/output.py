"""Writing a comparison: JSON, CSV, Markdown, LaTeX and the figure."""

from __future__ import annotations

from visleak.memorization.baselines.figures import discoveries
from visleak.memorization.baselines.records import Comparison
from visleak.memorization.baselines.stored import RESULT, as_dict
from visleak.memorization.baselines.tables import (
    CANDIDATES,
    METHODS,
    candidate_rows,
    latex,
    markdown,
    method_rows,
)
from visleak.store import write_bytes, write_json, write_text, write_values


def write(result: Comparison) -> None:
    """Write everything about a comparison into its folder; ``compare.json`` comes last."""
    folder = result.folder
    # a result that is half replaced is none
    (folder / RESULT).unlink(missing_ok=True)
    for kind, data in discoveries(result).items():
        write_bytes(folder / f"compare.{kind}", data)
    write_values(folder / "compare.csv", METHODS, method_rows(result))
    write_values(folder / "candidates.csv", CANDIDATES, candidate_rows(result))
    write_text(folder / "compare.md", markdown(result))
    write_text(folder / "compare.tex", latex(result))
    write_json(folder / RESULT, as_dict(result))
