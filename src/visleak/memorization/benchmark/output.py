"""Writing a benchmark: tables, figures, the sheet of the worst images, ``benchmark.json`` last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from visleak.errors import VisleakError
from visleak.memorization.benchmark.figures import tradeoff
from visleak.memorization.benchmark.latex import latex
from visleak.memorization.benchmark.lines import COSTS, LINES, cost_lines, lines_of
from visleak.memorization.benchmark.markup import markdown
from visleak.memorization.benchmark.numbers import Entry
from visleak.memorization.benchmark.records import Benchmark
from visleak.memorization.benchmark.stored import MEASUREMENTS, RESULT, as_dict
from visleak.store import write_bytes, write_json, write_tables, write_text, write_values

#: A row an image; what was not measured is null.
SCHEMA: Final = pa.schema(
    [
        ("method", pa.string()),
        ("setting", pa.string()),
        ("scenario", pa.string()),
        ("prompt", pa.string()),
        ("seed", pa.int64()),
        ("similarity", pa.float64()),
        ("clip", pa.float64()),
        ("aesthetic", pa.float64()),
        ("seconds", pa.float64()),
        ("image", pa.string()),
    ]
)

SHEET: Final = "worst.png"


def write(
    result: Benchmark,
    entries: Sequence[Entry],
    prompts: dict[str, Sequence[str]],
    seeds: dict[str, Sequence[int]],
    sheet: bytes,
) -> None:
    """Write everything about a benchmark into its folder.

    Args:
        result: what was found.
        entries: the measurements it was made of.
        prompts, seeds: of the images, by scenario.
        sheet: picture of the worst images; empty where there is none.

    Raises:
        VisleakError: the disk refuses.
    """
    folder = result.folder
    try:
        # a result that is half replaced is none
        (folder / RESULT).unlink(missing_ok=True)
        tables = _measurements(entries, prompts, seeds)
        write_tables(folder / MEASUREMENTS, SCHEMA, tables)
        write_values(folder / "benchmark.csv", LINES, lines_of(result))
        write_values(folder / "costs.csv", COSTS, cost_lines(result))
        write_text(folder / "benchmark.tex", latex(result))
        drawn = tradeoff(result)
        for kind in ("svg", "png"):
            _write_or_remove(folder / f"tradeoff.{kind}", drawn.get(kind, b""))
        _write_or_remove(folder / SHEET, sheet)
        write_text(folder / "benchmark.md", _with_pictures(result, bool(drawn), bool(sheet)))
        write_json(folder / RESULT, as_dict(result))
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written ({error.strerror})") from error


def _with_pictures(result: Benchmark, drawn: bool, sheet: bool) -> str:
    text = markdown(result)
    pictures = [("The trade-off", "tradeoff.svg")] if drawn else []
    pictures += [("The worst images by aesthetic score", SHEET)] if sheet else []
    shown = "\n".join(f"## {name}\n\n![{name}]({file})\n" for name, file in pictures)
    mark = "## What was measured"
    return text.replace(mark, f"{shown}\n{mark}", 1) if shown else text


def _measurements(
    entries: Sequence[Entry], prompts: dict[str, Sequence[str]], seeds: dict[str, Sequence[int]]
) -> Iterator[pa.Table]:
    """Yield the images of each method in each scenario, by prompt and seed."""
    for entry in entries:
        for scenario, found in entry.measured.items():
            own, count = seeds[scenario], found.similarity.size
            numbers = {
                name: pa.array(getattr(found, name).ravel(), pa.float64(), from_pandas=True)
                for name in ("similarity", "clip", "aesthetic", "seconds")
            }
            columns = {
                "method": pa.array([entry.method] * count),
                "setting": pa.array([entry.setting] * count),
                "scenario": pa.array([scenario] * count),
                "prompt": pa.array([text for text in prompts[scenario] for _ in own]),
                "seed": pa.array(list(own) * len(prompts[scenario]), pa.int64()),
                **numbers,
                "image": pa.array([digest for row in found.digests for digest in row]),
            }
            yield pa.table(columns)


def _write_or_remove(path: Path, data: bytes) -> None:
    if data:
        write_bytes(path, data)
    else:
        path.unlink(missing_ok=True)
