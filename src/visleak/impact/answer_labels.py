"""The labels that predictions are compared with, and whether both are in the same words."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from visleak.impact.answer_columns import Answers, quoted, text_of
from visleak.impact.benchmark import Benchmark
from visleak.impact.matching import Match
from visleak.impact.plausibility import Labels
from visleak.impact.scoring import Truth, codes
from visleak.pipeline.labels import normalised, share_classes


def truth_of(
    file: Answers, found: Match, benchmark: Benchmark
) -> tuple[Truth | None, tuple[str, ...]]:
    """Return the labels of the matched rows: those of the file, else those of the set.

    Returns:
        ``None`` where there are none, and what is to be said of them.
    """
    images = pa.array(found.images)
    theirs = None if benchmark.labels is None else benchmark.labels.take(images)
    if "label" in file.columns:
        labels = text_of(file.columns["label"], f"{file.path}: column `label`")
        if labels.null_count < len(labels):
            mine = labels.take(pa.array(found.rows))
            truth = Truth(mine, _vocabulary(labels), "its column `label`", in_file=True)
            return truth, tuple(_other_labels(mine, theirs))
    if theirs is None or benchmark.labels is None or not theirs.is_valid().true_count:
        return None, ()
    return Truth(theirs, _vocabulary(benchmark.labels), f"set {quoted(benchmark.name)}"), ()


def own_labels(file: Answers, found: Match, benchmark: Benchmark) -> Labels | None:
    """Return the labels of a file beside the audited ones, where both have some."""
    if "label" not in file.columns or benchmark.labels is None:
        return None
    mine = text_of(file.columns["label"], f"{file.path}: column `label`").take(pa.array(found.rows))
    theirs = benchmark.labels.take(pa.array(found.images))
    shared = share_classes(mine, theirs)
    words = _vocabulary(theirs)
    return Labels(codes(mine, words if shared else _vocabulary(mine)), codes(theirs, words), shared)


def _vocabulary(labels: pa.StringArray) -> pa.Array:
    return pc.unique(normalised(pc.unique(labels).drop_null()))


def _other_labels(mine: pa.StringArray, theirs: pa.StringArray | None) -> Iterator[str]:
    """Yield that labels differ from those of the set, where both speak of the same classes."""
    if theirs is None or not share_classes(mine, theirs):
        return
    differs = pc.fill_null(pc.not_equal(normalised(mine), normalised(theirs)), False)
    count = pc.sum(differs).as_py() or 0
    if count:
        yield (
            f"its column `label` differs from the audited labels for {count:,} of {len(mine):,}"
            " images; the column is what predictions are compared with"
        )


def remedy(truth: Truth) -> str:
    """Return what to do where predictions and labels are in different words."""
    if truth.in_file:
        return (
            "write both in the same words, or leave `label` out to compare with the audited labels"
        )
    return "name classes as the set does, or add a column `label` in the words of the predictions"


def are_numbers(texts: pa.StringArray) -> bool:
    """Whether all texts are whole numbers."""
    whole = pc.match_substring_regex(texts.drop_null(), r"^-?[0-9]+(\.0+)?$")
    return bool(pc.all(whole, min_count=0).as_py())


def example(texts: pa.StringArray) -> str:
    """Return the first text that is there, quoted."""
    known = texts.drop_null()
    return quoted(known[0]) if len(known) else "none"
