"""Prompts of Parquet tables and of whole JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.cells import shown, sources_of
from visleak.memorization.prompt_files.rows import Row, prompt_column, row_of
from visleak.memorization.prompt_files.texts import json_row

#: Rows held at a time.
BATCH: Final = 4096

#: A larger JSON file is refused, for it is held whole; COCO's captions have 91 MB.
MOST_JSON_BYTES: Final = 1 << 29


def parquet_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the rows of a Parquet table: our own, or any with a column of prompts.

    Raises:
        VisleakError: no column of prompts.
    """
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        prompt = prompt_column(list(schema.names), column, str(path))
        number = 0
        for batch in file.iter_batches(batch_size=BATCH):
            for values in batch.to_pylist():
                number += 1
                yield row_of(f"row {number:,}", str(path), values, prompt)


def json_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a JSON file.

    It is a list of texts or objects, an object that gives each prompt its images, or captions as
    COCO has them, of which the first of each image is taken (Hong et al. 2024, their general
    prompts).

    Raises:
        VisleakError: it is none of these.
    """
    size = path.stat().st_size
    if size > MOST_JSON_BYTES:
        raise VisleakError(
            f"{path} has {size:,} bytes; at most {MOST_JSON_BYTES:,} are read: make it .jsonl"
        )
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    if isinstance(content, list):
        for number, value in enumerate(content, 1):
            yield json_row(value, f"entry {number:,}", path, column)
    elif isinstance(content, dict) and isinstance(content.get("annotations"), list):
        yield from _coco_rows(content["annotations"], path, column)
    elif isinstance(content, dict):
        yield from named_rows(content, path, column)
    else:
        raise VisleakError(f"{path} is no list of prompts: its JSON is {shown(content)}")


def named_rows(content: dict[Any, Any], path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a table from prompt to the images it is a trigger of.

    Raises:
        UsageError: a column was asked for.
        VisleakError: a prompt is no text, or images are no texts.
    """
    if column is not None:
        raise UsageError(f"--column {column!r}: {path} goes from prompt to images, without columns")
    for number, (prompt, images) in enumerate(content.items(), 1):
        place = f"entry {number:,}"
        if not isinstance(prompt, str):
            raise VisleakError(f"{path}, {place}: a prompt is a text; got {shown(prompt)}")
        yield Row(place, prompt, None, tuple(sources_of(images, f"{path}, {place}")))


def _coco_rows(annotations: list[Any], path: Path, column: str | None) -> Iterator[Row]:
    wanted, seen = column or "caption", set[int | str]()
    for number, each in enumerate(annotations, 1):
        image = each.get("image_id") if isinstance(each, dict) else None
        text = each.get(wanted) if isinstance(each, dict) else None
        if not isinstance(image, int | str) or not isinstance(text, str):
            raise VisleakError(
                f"{path}, annotation {number:,}: captions of COCO have image_id and {wanted}; this"
                " one lacks them"
            )
        if image not in seen:
            seen.add(image)
            yield Row(f"annotation {number:,}", text, columns={"image_id": str(image)})
