"""Leaking samples of a FiftyOne data set, tagged and kept as a view."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from visleak.auditing import Audit
from visleak.errors import UsageError
from visleak.lazy import foreign
from visleak.records import GradeName

if TYPE_CHECKING:
    import fiftyone as fo


def tag_leaks(
    dataset: fo.Dataset, result: Audit, *, grade: GradeName = "near", name: str = "leaks"
) -> fo.DatasetView:
    """Tag the test images of an audit that leak, and save them as a view of the data set.

    A sample gets the tag ``leak`` and the field ``leak``: a ``Classification`` of the grade, with
    its probability as confidence and the file of the reference in ``reference``. What an earlier
    audit left there is removed.

    Args:
        dataset: of images, found by the paths of their files.
        result: an audit of files in folders.
        grade: the weakest grade that counts as a leak.
        name: of the view; one of that name is replaced.

    Raises:
        UsageError: the data set has none of the test images.
        VisleakError: FiftyOne is not installed.

    >>> view = tag_leaks(dataset, visleak.audit("data/test", "data/train"))  # doctest: +SKIP
    """
    fiftyone = foreign("fiftyone", "FiftyOne", "fiftyone")
    paths = _paths(result)
    leaks = {
        paths[row["query_set"], row["query"]]: row
        for row in result.leaks(grade).sort_by([("probability", "ascending")]).to_pylist()
    }
    tests = {total.query_set for total in result.summary.totals}
    known = {path for (side, _), path in paths.items() if side in tests}
    if known.isdisjoint(os.path.realpath(path) for path in dataset.values("filepath")):
        raise UsageError(
            f"data set {dataset.name!r} has none of the {len(known):,} test images of the audit;"
            " samples are found by the paths of their files"
        )
    for sample in dataset.iter_samples(autosave=True):
        row = leaks.get(os.path.realpath(sample.filepath))
        sample.tags = [tag for tag in sample.tags if tag != "leak"] + ["leak"] * (row is not None)
        sample["leak"] = row and fiftyone.Classification(
            label=row["grade"],
            confidence=row["probability"],
            reference=paths[row["reference_set"], row["reference"]],
        )
    view = dataset.match_tags("leak")
    dataset.save_view(name, view, overwrite=True)
    return view


def _paths(result: Audit) -> dict[tuple[str, str], str]:
    """Return the file of each image of an audit."""
    base = Path(result.summary.opened_in)
    table: pa.Table = result.images().select(["set", "id", "locator"])
    return {
        (row["set"], row["id"]): os.path.realpath(base / (row["locator"] or ""))
        for row in table.to_pylist()
    }
