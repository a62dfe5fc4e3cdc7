"""Values of the outputs of a run, and their comparison, for :mod:`golden`.

Parquet, CSV and JSON files are kept as values by column (JSON: by the path of the key); images and
other files as digests; figures, Markdown, LaTeX and HTML by name only.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import golden_inputs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Values = dict[str, Any]

#: Text that differs between runs -> its placeholder.
REPLACED: Final = ((r"visleak calibrate \S+, \d{4}-\d\d-\d\d", "visleak calibrate VERSION, DATE"),)

#: File, key or column -> the reason why only its presence is compared.
MASKED: Final = (
    ("*.json", "timings.*", "time"),
    ("*.json", "*seconds", "time"),
    ("*.csv", "time", "time"),
    ("*.json", "*seconds.*", "time"),
    ("*.json", "throughput.*", "time"),
    ("thresholds.json", "*.date", "time"),
    ("*.json", "versions.*", "versions of libraries"),
    ("*.json", "*.versions.*", "versions of libraries"),
    ("*.json", "visleak", "version of visleak"),
    ("*.json", "version", "version of visleak"),
    ("*.json", "command", "names the number of workers"),
    ("*.json", "key", "made of absolute paths"),
    ("*.json", "*_key", "made of absolute paths"),
    ("lookup/request.json", "split", "made of absolute paths"),
    ("*/manifest.json", "files_digest", "digest of a file with digests of absolute paths"),
    ("*/files.csv", "digest", "one is of a list with absolute paths; each image's own is compared"),
    ("*audit.json", "digest", "digest of absolute paths, times and versions, too"),
    ("study/*/audit.json", "files.images.parquet", "digest of a file with absolute paths"),
    ("study/*/audit.json", "files.unreadable.csv", "digest of a file with absolute paths"),
)

#: Files that are not results, and files of which only the name is kept.
LEFT_OUT: Final = ("*.lock", "*.sqlite*", "*/.cache/*")
NAMES_ONLY: Final = ("*.md", "*.tex", "*.html", "*.svg", "*/sections/*.json")
FIGURES: Final = ("study", "robustness", "impact", "curve", "lookup", "detect", "counts")

#: Tolerances of fractions, which depend on versions of libraries. Those of networks are larger;
#: similarities are dot products of integers and must be equal.
RELATIVE, RELATIVE_OF_NETWORKS = 1e-6, 1e-4
EXACT: Final = ("similarity", "background", "nearest_similarity", "best_wrong")

#: Number of words from which a text is a sentence.
WORDS = 5


# -- values --------------------------------------------------------------------------------------


def values_of(folder: Path, outputs: Sequence[str]) -> dict[str, Values]:
    """Return the values of all files below some outputs of a folder, by file."""
    found = {}
    for output in outputs:
        path = folder / output
        files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.exists() else []
        for file in files:
            name = file.relative_to(folder).as_posix()
            if file.is_file() and not any(fnmatch(name, pattern) for pattern in LEFT_OUT):
                found[name] = _file_values(file, name, folder)
    return found


def _file_values(path: Path, name: str, folder: Path) -> Values:
    figure = path.suffix == ".png" and name.partition("/")[0] in FIGURES
    if figure or any(fnmatch(name, pattern) for pattern in NAMES_ONLY):
        return {"name": "only"}
    columns: dict[str, Any]
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        columns = {f: _plain(table[f]) for f in table.column_names}
    elif path.suffix in {".csv", ".tsv"}:
        with path.open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines, delimiter="\t" if path.suffix == ".tsv" else ",")
        columns = {key: [row[n] for row in rows] for n, key in enumerate(header)}
    elif path.suffix == ".json":
        columns = dict(_leaves(json.loads(path.read_text(encoding="utf-8")), ""))
    elif path.suffix == ".txt":
        columns = {"line": path.read_text(encoding="utf-8").splitlines()}
    else:
        return {"digest": golden_inputs.digest(path.read_bytes())}
    kept = {key: _masked(name, key) or _cleaned(value, folder) for key, value in columns.items()}
    network = name.partition("/")[0] in {"detect", "extract"}
    entry: Values = {"tolerance": RELATIVE_OF_NETWORKS if network else RELATIVE, "columns": kept}
    exact = [key for key in kept if key in EXACT]
    return entry | ({"exact": exact} if exact else {})


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; ``float32`` by its own shortest form."""
    values = column.to_pylist()
    if pa.types.is_float32(column.type):
        return [None if value is None else float(str(np.float32(value))) for value in values]
    plain = (str, int, float, list, type(None))
    return [value if isinstance(value, plain) else str(value) for value in values]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of all leaves of a JSON document."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


def _masked(name: str, key: str) -> str:
    reasons = (why for file, keys, why in MASKED if fnmatch(name, file) and fnmatch(key, keys))
    return next((f"not compared: {why}" for why in reasons), "")


def _cleaned(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_cleaned(inner, folder) for inner in value]
    if isinstance(value, str):
        value = value.replace(str(folder), "FOLDER")
        for pattern, instead in REPLACED:
            value = re.sub(pattern, instead, value)
    return value


# -- comparison ----------------------------------------------------------------------------------


def differences(
    before: Mapping[str, Values],
    after: Mapping[str, Values],
    renames: Mapping[str, Mapping[str, str]] | None = None,
    *,
    exact: bool = False,
    sentences: bool = True,
) -> list[str]:
    """Return the differences between the values of two folders, one line each.

    Args:
        before: file -> values, as :func:`values_of` returns them.
        after: the same of the other folder.
        renames: files and keys of ``before`` that have another name in ``after``.
        exact: allow no tolerance.
        sentences: also compare texts of five words and more.
    """
    names = renames or {}
    expected = {_renamed_file(name, names.get("files", {})): name for name in before}
    found = [f"{old}: missing{_as(old, new)}" for new, old in expected.items() if new not in after]
    found += [f"{name}: new" for name in after if name not in expected]
    for new, old in expected.items():
        if new in after:
            own, other = before[old], after[new]
            if own.keys() - {"exact"} != other.keys() - {"exact"} or "columns" not in own:
                found += [] if own == other else [f"{old}: {own} -> {other}"[:200]]
                continue
            wanted = {_renamed_key(old, key, names.get("keys", {})): key for key in own["columns"]}
            columns = other["columns"]
            found += [
                f"{old}: {k}: missing{_as(k, n)}" for n, k in wanted.items() if n not in columns
            ]
            found += [f"{old}: {key}: new" for key in columns if key not in wanted]
            for new_key, key in wanted.items():
                if new_key in columns:
                    strict = exact or key in own.get("exact", ())
                    tolerance = 0.0 if strict else own["tolerance"]
                    pair = own["columns"][key], columns[new_key]
                    found += [
                        f"{old}: {key}{line}" for line in _changes(*pair, tolerance, sentences)
                    ]
    return found


def _changes(before: Any, after: Any, tolerance: float, sentences: bool) -> Iterator[str]:
    """Yield the changes of a value, or of a column by row."""
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f": {len(before)} rows -> {len(after)}"
            return
        for row, pair in enumerate(zip(before, after, strict=True)):
            for line in _changes(*pair, tolerance, sentences):
                yield f", row {row}{line}"
    elif not _equal(before, after, tolerance, sentences):
        yield f": {before!r} -> {after!r}"


def _equal(before: Any, after: Any, tolerance: float, sentences: bool) -> bool:
    if type(before) is type(after) and before == after:
        return True
    if not sentences and isinstance(before, str) and isinstance(after, str):
        return min(len(before.split()), len(after.split())) >= WORDS
    one, other = _fraction(before), _fraction(after)
    if one is None or other is None or type(before) is not type(after):
        return False
    return math.isclose(one, other, rel_tol=tolerance) or (one != one and other != other)


def _fraction(value: Any) -> float | None:
    """Return a fractional number; ``None`` for other values."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d*\.\d+(e[-+]?\d+)?", value, re.IGNORECASE):
        return float(value)
    return value if isinstance(value, float) else None


def _renamed_file(name: str, files: Mapping[str, str]) -> str:
    for old, new in files.items():
        if name == old or name.startswith(f"{old}/"):
            return new + name[len(old) :]
    return name


def _renamed_key(file: str, key: str, keys: Mapping[str, str]) -> str:
    """Return a column's name, or the path of a JSON key, with its parts renamed."""

    def renamed(part: re.Match[str]) -> str:
        return keys.get(f"{file}:{part[0]}", keys.get(part[0], part[0]))

    whole = keys.get(f"{file}:{key}", keys.get(key))
    return whole or re.sub(r"[^.\[\]]+", renamed, key)


def _as(old: str, new: str) -> str:
    return "" if old == new else f" as {new}"
