"""Predictions matched to images by id, and which are correct: classes, ranked classes, scores.

A class is among the k best if fewer than k classes come before it: those with a higher score, and
earlier ones of the same score. Names are compared like all labels
(:func:`visleak.pipeline.comparison.normalised`); classes of one name are one, with the best place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.impact.benchmark import Benchmark
from visleak.impact.predictions.files import PredictionFile, quoted
from visleak.pipeline.comparison import normalised
from visleak.records import Bool, Float64, Int64

COVERAGE: Final = 0.95  # share of the images that must have a prediction, unless less is allowed
_SAMPLE: Final = 10_000  # ids of a file that are compared in other spellings to explain a mismatch


@dataclass(frozen=True)
class Match:
    """Rows of a file and their images."""

    rows: Int64  # (m,): rows whose id is one of the benchmark's, ascending
    images: Int64  # (m,): position of the image of each
    unknown: int  # rows whose id the benchmark lacks


def match(ids: pa.StringArray, benchmark: Benchmark, path: str) -> Match:
    """Match the ids of a file to the images of a benchmark; the order of rows is ignored."""
    place = pc.index_in(ids, value_set=benchmark.ids)
    known = place.is_valid().to_numpy(zero_copy_only=False)
    if not known.any():
        of = f"set {quoted(benchmark.name)}"
        theirs = f"{of} has {quoted(benchmark.ids[0])}" if len(benchmark) else f"{of} has none"
        advice = "ids must be those of the audit (column `id` of its images.parquet)"
        raise VisleakError(
            f"{path}: none of its ids is one of {of} ({len(ids):,} and {len(benchmark):,} ids): it"
            f" has {quoted(ids[0])}, {theirs}; {_hint(ids, benchmark) or advice}"
        )
    rows = np.flatnonzero(known)
    images = place.filter(place.is_valid()).to_numpy().astype(np.int64)
    return Match(rows, images, len(ids) - len(rows))


def unknown_note(found: Match, ids: pa.StringArray, benchmark: Benchmark) -> Iterator[str]:
    """Yield a note about predictions whose ids the benchmark lacks."""
    if not found.unknown:
        return
    lost = np.ones(len(ids), dtype=np.bool_)
    lost[found.rows] = False
    example = quoted(ids[int(lost.argmax())])
    share = found.unknown / len(ids)
    most = "most of the file is about other images: " if share > 0.5 else ""
    yield (
        f"{most}{found.unknown:,} of its {len(ids):,} predictions ({100 * share:.1f} %) are not for"
        f" a readable image of set {quoted(benchmark.name)} and are ignored, such as {example}"
    )


def coverage_note(
    answered: Bool, found: Match, ids: pa.StringArray, benchmark: Benchmark, path: str, allow: bool
) -> Iterator[str]:
    """Yield how many images have no prediction; ``answered`` (n,) is by image of the benchmark."""
    total, count = len(benchmark), int(answered.sum())
    if count == total:
        return
    absent = total - len(found.rows)
    # rounded down, so that too few never looks enough
    percent = np.floor(1000 * count / total) / 10
    text = (
        f"{count:,} of the {total:,} readable images of set {quoted(benchmark.name)} have a"
        f" prediction ({percent:.1f} %); not in the file: {absent:,}, without a value:"
        f" {total - count - absent:,}, such as {quoted(benchmark.ids[int(answered.argmin())])}"
    )
    if count >= COVERAGE * total:
        yield f"{text}; the others are ignored"
    elif allow and count:
        yield f"only {text}; scores, gains and leaks are those of the images with a prediction"
    else:
        hint = _hint(ids, benchmark, len(found.rows))
        raise VisleakError(
            f"{path}: only {text}; {100 * COVERAGE:.0f} % are needed: {hint + '; or ' * bool(hint)}"
            "complete the file, or accept it with --allow-partial"
        )


def _replaced(*patterns: tuple[str, str]) -> Callable[[pa.Array], pa.Array]:
    """Return a function that replaces one regular expression after the other."""

    def reading(ids: pa.Array) -> pa.Array:
        for pattern, by in patterns:
            ids = pc.replace_substring_regex(ids, pattern, by)
        return ids

    return reading


_SLASHES: Final = ((r"\\", "/"), (r"^(\./|/)+", ""))
_FOLDERS: Final = (*_SLASHES, (r"^.*/", ""))
_SUFFIX: Final = (r"\.[A-Za-z0-9]{1,5}$", "")
_ZEROS: Final = ((r"^([0-9]+)\.0+$", r"\1"), (r"^0+([0-9]+)$", r"\1"))

#: Spellings of the ids of both sides in which they may agree; what changes least comes first.
_READINGS: Final = (
    ("without spaces around them", pc.utf8_trim_whitespace),
    ("with `/` between folders and without `./` before them", _replaced(*_SLASHES)),
    ("without regard to case", pc.utf8_lower),
    ("without leading zeros and `.0`", _replaced(*_ZEROS)),
    ("without their folders", _replaced(*_FOLDERS)),
    ("without their suffixes", _replaced(_SUFFIX)),
    ("without folders and suffixes", _replaced(*_FOLDERS, _SUFFIX)),
)


def _hint(ids: pa.StringArray, benchmark: Benchmark, matched: int = 0) -> str:
    """Return the likely reason why ids do not match, or an empty text."""
    if not len(benchmark):
        return ""
    sample = ids[:_SAMPLE]
    known = int(pc.sum(pc.is_in(sample, value_set=benchmark.ids)).as_py()) if matched else 0
    for name, reading in _READINGS:
        agree = pc.sum(pc.is_in(reading(sample), value_set=reading(benchmark.ids))).as_py()
        if agree > known and 2 * agree >= len(sample):
            return f"ids agree {name}: write them as the audit has them"
    mine, theirs = _are_rows(ids), _are_rows(benchmark.ids)
    if matched or mine == theirs:
        return ""
    if mine:
        return "its ids look like row numbers; write the ids that the audit has instead"
    return "the audit uses row numbers as ids of these images; write those instead"


def _are_rows(ids: pa.StringArray) -> bool:
    """Whether ids are whole numbers from 0 or 1 on, one per row, in any order."""
    if not pc.all(pc.match_substring_regex(ids, r"^(0|[1-9][0-9]{0,9})$")).as_py():
        return False
    low, high = pc.min_max(ids.cast(pa.int64())).as_py().values()
    return low in (0, 1) and high - low + 1 == len(ids)


Block = TypeVar("Block", pa.ListArray, tuple[Float64, Bool])
TOP: Final = 5  # a label is searched among this many predictions
FOREIGN: Final = -1  # class of a prediction that is not in the vocabulary
MISSING: Final = -2  # class of a row without a prediction


@dataclass(frozen=True)
class Truth:
    """The labels of the matched rows of a file."""

    labels: pa.StringArray  # (m,); null where there is none
    vocabulary: pa.StringArray  # normalised labels of the set, each once
    source: str  # where they are from, for messages
    in_file: bool = False  # they are a column of the file, not of the audited set

    def codes(self, texts: pa.Array) -> Int64:
        """Return the place of each text in the vocabulary, -1 where it is not one of its labels."""
        return codes(texts, self.vocabulary)

    def guesses(self, predicted: pa.StringArray) -> Int64:
        """Return the same of predictions, :data:`MISSING` where there is none."""
        known = predicted.is_valid().to_numpy(zero_copy_only=False)
        return np.asarray(np.where(known, self.codes(predicted), MISSING))


@dataclass(frozen=True)
class Correct:
    """Which of the matched rows are correct, ``float64`` (m,): 0, 1, NaN for unknown."""

    first: Float64  # the best prediction is the label
    # the label is among the five best; `None` where there are no more than five classes
    top: Float64 | None
    guesses: Int64  # (m,): best class in the labels' vocabulary, see guesses


def codes(texts: pa.Array, vocabulary: pa.Array) -> Int64:
    """Return the place of each text among normalised names, -1 where it is not one of them.

    >>> codes(pa.array(["Sea_Lion", None, "dog"]), pa.array(["cat", "sea lion"])).tolist()
    [1, -1, -1]
    """
    encoded = texts.dictionary_encode()
    found = pc.index_in(normalised(encoded.dictionary), value_set=vocabulary)
    found = pc.fill_null(found.take(encoded.indices), FOREIGN)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def correct_predictions(predicted: pa.StringArray, truth: Truth) -> Correct:
    """Compare one predicted class per image with its label."""
    guesses, label = truth.guesses(predicted), truth.codes(truth.labels)
    known = (guesses != MISSING) & (label >= 0)
    return Correct(np.where(known, guesses == label, np.nan), None, guesses)


def correct_ranked(
    file: PredictionFile, rows: Int64, truth: Truth
) -> tuple[Correct, pa.StringArray, int]:
    """Compare lists of classes, best first, with labels, in ascending ``rows`` (m,).

    Returns also the best class of each row, null where there is none, and the length of the longest
    list where lists are too short for the top five of the classes that occur; else 0.
    """
    label = truth.codes(truth.labels)
    first, top = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    firsts: list[pa.Array] = []
    longest, classes = 0, set[str]()
    for inside, here, block in _selected(file.ranked(), rows):
        lists = block.take(pa.array(inside))
        flat, lengths = lists.flatten(), pc.list_value_length(lists).to_numpy()
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(lists)), lengths)
        place = np.arange(len(flat)) - np.repeat(ends - lengths, lengths)
        hit = (truth.codes(flat) == label[here][owner]) & (place < TOP)
        known = (lengths > 0) & (label[here] >= 0)
        for values, counted in ((first, hit & (place == 0)), (top, hit)):
            found = np.bincount(owner[counted], minlength=len(lists)) > 0
            values[here] = np.where(known, found, np.nan)
        firsts.append(flat.take(pa.array(ends - lengths, mask=lengths == 0)))
        longest = max(longest, int(lengths.max(initial=0)))
        if len(classes) <= TOP:
            classes.update(pc.unique(normalised(pc.unique(flat))).drop_null().to_pylist())
    names = pa.chunked_array(firsts, pa.string()).combine_chunks()
    many, short = len(classes) > TOP, longest < TOP
    correct = Correct(first, top if many and not short else None, truth.guesses(names))
    return correct, names, longest if many and short else 0


def correct_scores(
    file: PredictionFile, rows: Int64, truth: Truth
) -> tuple[Correct, Bool, pa.StringArray]:
    """Compare class scores with labels in ascending rows; a label without a class is wrong.

    Returns also which labels (m,) have no class, and the names of the classes.
    """
    first, top = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    labelled = truth.labels.is_valid().to_numpy(zero_copy_only=False)
    members = names = label = None
    guesses = np.full(len(rows), MISSING, np.int64)
    for inside, here, block in _selected(file.scores(), rows):
        values, known = block[0][inside], block[1][inside]
        if not known.any():
            continue
        if members is None or names is None or label is None:
            names = _class_names(file, values.shape[1])
            members, distinct = _members(names)
            label = codes(truth.labels, distinct)
        wrong = np.isnan(values).any(axis=1) & known
        if wrong.any():
            raise VisleakError(
                f"{file.path}: row {rows[here][int(wrong.argmax())]} has a class score that is"
                " missing or NaN; leave out the row, or give all of its scores"
            )
        guesses[here] = np.where(known, truth.codes(names)[values.argmax(axis=1)], MISSING)
        found = known & (label[here] >= 0)
        place = np.full(len(inside), TOP)
        place[found] = places(values[found], members[label[here][found]])
        answered = known & labelled[here]
        first[here] = np.where(answered, place < 1, np.nan)
        top[here] = np.where(answered, place < TOP, np.nan)
    if names is None or label is None:
        raise VisleakError(f"{file.path} has class scores for none of the images")
    correct = Correct(first, top if len(names) > TOP else None, guesses)
    return correct, labelled & (label < 0), names


def places(values: Float64, members: Int64) -> Int64:
    """Return how many classes come before a class, ties in the order of classes.

    ``values`` (n, c) scores without NaN. ``members`` (n, m): columns of the class; the best place
    counts.

    >>> places(np.array([[0.2, 0.4, 0.4]]), np.array([[2]])).tolist()
    [1]
    """
    best = np.full(len(values), values.shape[1], dtype=np.int64)
    order = np.arange(values.shape[1])
    for column in members.T:
        own = np.take_along_axis(values, column[:, None], axis=1)
        before = (values > own) | ((values == own) & (order < column[:, None]))
        np.minimum(best, before.sum(axis=1), out=best)
    return best


def _members(names: pa.Array) -> tuple[Int64, pa.Array]:
    """Return the columns of each distinct class, (classes, most of one name), and the classes."""
    distinct = pc.unique(normalised(names))
    code = codes(names, distinct)
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code, minlength=len(distinct))
    starts = np.cumsum(counts) - counts
    inside = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
    return order[starts[:, None] + inside], distinct


def _class_names(file: PredictionFile, width: int) -> pa.Array:
    """Return the names of the classes; their numbers where a file has none."""
    if not width:
        raise VisleakError(f"{file.path}: its class scores have no class")
    if (names := file.classes) is None:
        return pa.array([str(number) for number in range(width)], pa.string())
    if len(names) != width or names.null_count:
        raise VisleakError(
            f"{file.path}: {len(names) - names.null_count:,} class names for {width:,} class scores"
            " per image; each class needs a name"
        )
    return names


def _selected(blocks: Iterator[Block], rows: Int64) -> Iterator[tuple[Int64, slice, Block]]:
    """Yield blocks of rows that hold any of the wanted ones.

    Yields places in the block, the same as a slice of ``rows``, and the block.
    """
    start = 0
    for block in blocks:
        end = start + len(block[0] if isinstance(block, tuple) else block)
        low, high = np.searchsorted(rows, (start, end))
        if high > low:
            yield rows[low:high] - start, slice(int(low), int(high)), block
        start = end
