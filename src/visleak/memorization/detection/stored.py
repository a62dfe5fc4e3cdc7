"""``detect.json``: what was found, for machines, and back; and scores that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import visleak
from visleak.documents import as_plain, read_record
from visleak.memorization.detection.blocks import Known
from visleak.memorization.detection.headline import headlines
from visleak.memorization.detection.results import Detection

SCHEMA: Final = 1
KIND: Final = "visleak memorization detect"

#: The file, and the tables of the two lists.
RESULT: Final = "detect.json"
SCORES: Final = "scores"
GENERAL_SCORES: Final = "general"

#: Column of the squared score by one noise, counted from 1.
NOISE: Final = "squared_noise_"


def as_dict(result: Detection) -> dict[str, Any]:
    """Return the content of ``detect.json``; what is not known is ``null``."""
    cost = result.throughput
    about = {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": "; ".join(headlines(result)),
    }
    content: dict[str, Any] = as_plain(result)
    content["throughput"] |= {
        "prompts_per_second": cost.prompts_per_second,
        "passes_per_second": cost.passes_per_second,
    }
    return about | content


def read_detection(folder: str | Path) -> Detection:
    """Return the detection that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    return read_record(Detection, Path(folder) / RESULT, KIND, SCHEMA)


def known_scores(folder: Path, noises: int) -> Known:
    """Return the scores in the tables of a folder; none where a table is damaged."""
    names = [f"{NOISE}{number + 1}" for number in range(noises)]
    found: dict[str, npt.NDArray[np.float64]] = {}
    for table in (SCORES, GENERAL_SCORES):
        path = folder / f"{table}.parquet"
        if not path.is_file():
            continue
        try:
            columns = pq.read_table(path, columns=["prompt", *names])
        except (OSError, pa.ArrowException):
            return Known()
        values = np.column_stack([columns[name].to_numpy() for name in names])
        found.update(zip(columns["prompt"].to_pylist(), values, strict=True))
    return Known(found)
