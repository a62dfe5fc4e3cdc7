"""Which answers are right: top-1 and top-5 of predictions, ranked predictions and class scores.

A class counts as among the k best if fewer than k classes come before it: those with a higher
score, and those of the same score that stand before it in the order of classes. So exactly k
classes are among the k best whatever the ties, and the best one is ``argmax``'s.

Names are compared as labels are everywhere (:func:`visleak.pipeline.labels.normalised`). Classes
of one name are one class: its place is that of the best of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.impact.answer_columns import Bool, ClassScores, Float64, Ranked
from visleak.pipeline.labels import normalised

Int64 = npt.NDArray[np.int64]

#: A label is looked for among so many predictions.
TOP: Final = 5


@dataclass(frozen=True)
class Truth:
    """What is in the pictures, as far as labels say.

    Attributes:
        labels: Arrow string array (m,), one a matched row; null where there is none.
        vocabulary: normalised labels of the set, each once.
        source: where they are from, for messages.
        in_file: they are a column of the file, not of the audited set.
    """

    labels: pa.StringArray
    vocabulary: pa.StringArray
    source: str
    in_file: bool = False

    def codes(self, texts: pa.Array) -> Int64:
        """Return the place of each text in the vocabulary, -1 where it is none of its labels."""
        return codes(texts, self.vocabulary)


@dataclass(frozen=True)
class Right:
    """Which of some images a model is right about, ``float64`` (m,): 0, 1, NaN for no answer.

    Attributes:
        first: its best guess is the label.
        top: the label is among its five best; ``None`` where it does not give as many.
    """

    first: Float64
    top: Float64 | None = None


def codes(texts: pa.Array, vocabulary: pa.Array) -> Int64:
    """Return the place of each text among normalised names, -1 where it is none of them.

    >>> codes(pa.array(["Sea_Lion", None, "dog"]), pa.array(["cat", "sea lion"])).tolist()
    [1, -1, -1]
    """
    encoded = texts.dictionary_encode()
    places = pc.index_in(normalised(encoded.dictionary), value_set=vocabulary)
    found = pc.fill_null(places.take(encoded.indices), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def right_predictions(predicted: pa.StringArray, truth: Truth) -> Right:
    """Compare one prediction an image with its label."""
    guessed, label = truth.codes(predicted), truth.codes(truth.labels)
    known = predicted.is_valid().to_numpy(zero_copy_only=False) & (label >= 0)
    return Right(np.where(known, guessed == label, np.nan))


@dataclass(frozen=True)
class RankedAnswers:
    """What came of ranked predictions.

    Attributes:
        right: see :class:`Right`; without the top five where no list has as many, or where no
            more classes than that occur.
        firsts: the best prediction of each image, null where there is none.
        longest: length of the longest list.
        many: more than :data:`TOP` classes occur.
    """

    right: Right
    firsts: pa.StringArray
    longest: int
    many: bool


def right_ranked(ranked: Ranked, rows: Int64, truth: Truth) -> RankedAnswers:
    """Compare lists of predictions, best first, with labels.

    Args:
        ranked: the lists of all rows of a file.
        rows: ``int64`` (m,), ascending: those that are asked for.
        truth: their labels.
    """
    label = truth.codes(truth.labels)
    first, top = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    firsts: list[pa.Array] = []
    longest, classes = 0, set[str]()
    for inside, here, block in _blocks_of(ranked(), rows):
        lists = block.take(pa.array(inside))
        flat, lengths = lists.flatten(), pc.list_value_length(lists).to_numpy()
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(lists)), lengths)
        place = np.arange(len(flat)) - np.repeat(ends - lengths, lengths)
        hit = (truth.codes(flat) == label[here][owner]) & (place < TOP)
        known = (lengths > 0) & (label[here] >= 0)
        best = np.bincount(owner[hit & (place == 0)], minlength=len(lists)) > 0
        among = np.bincount(owner[hit], minlength=len(lists)) > 0
        first[here] = np.where(known, best, np.nan)
        top[here] = np.where(known, among, np.nan)
        starts = pa.array(np.where(lengths > 0, ends - lengths, -1))
        firsts.append(flat.take(pc.if_else(pc.less(starts, 0), None, starts)))
        longest = max(longest, int(lengths.max(initial=0)))
        if len(classes) <= TOP:
            classes.update(pc.unique(normalised(pc.unique(flat))).drop_null().to_pylist())
    names = pa.chunked_array(firsts, pa.string()).combine_chunks()
    many = len(classes) > TOP
    enough = longest >= TOP and many
    return RankedAnswers(Right(first, top if enough else None), names, longest, many)


@dataclass(frozen=True)
class ScoredAnswers:
    """What came of class scores.

    Attributes:
        right: see :class:`Right`.
        classless: ``bool`` (m,): the label is none of the classes.
        classes: their names.
        guesses: ``int64`` (m,): place of the best class in the labels' vocabulary, -1 where it is
            none of them, -2 where there are no scores.
    """

    right: Right
    classless: Bool
    classes: pa.StringArray
    guesses: Int64


def right_scores(scores: ClassScores, rows: Int64, truth: Truth, path: str) -> ScoredAnswers:
    """Compare class scores with labels; a label that is no class is never right.

    Args:
        scores: of all rows of a file.
        rows: ``int64`` (m,), ascending: those that are asked for.
        truth: their labels.
        path: the file, for messages.

    Raises:
        VisleakError: a score is NaN, or classes and scores differ in number.
    """
    first, top = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    labelled = truth.labels.is_valid().to_numpy(zero_copy_only=False)
    members = names = label = None
    guesses = np.full(len(rows), -2, np.int64)
    for inside, here, block in _blocks_of(scores.blocks(), rows):
        values, there = block[0][inside], block[1][inside]
        if not there.any():
            continue
        if members is None or names is None or label is None:
            names = _class_names(scores, values.shape[1], path)
            members, distinct = _members(names)
            label = codes(truth.labels, distinct)
        _refuse_nan(values, there, rows[here], path)
        guesses[here] = np.where(there, truth.codes(names)[values.argmax(axis=1)], -2)
        known = there & (label[here] >= 0)
        best, among = np.zeros(len(inside)), np.zeros(len(inside))
        place = places(values[known], members[label[here][known]])
        best[known], among[known] = place < 1, place < TOP
        answered = there & labelled[here]
        first[here] = np.where(answered, best, np.nan)
        top[here] = np.where(answered, among, np.nan)
    if names is None or label is None:
        raise VisleakError(f"{path} has class scores for none of the images")
    enough = len(names) > TOP
    right = Right(first, top if enough else None)
    return ScoredAnswers(right, labelled & (label < 0), names, guesses)


def places(values: npt.NDArray[Any], members: Int64) -> Int64:
    """Return how many classes come before a class, ties in the order of classes.

    Args:
        values: (n, c) scores without NaN.
        members: ``int64`` (n, m): columns of the class that is asked for; the best place counts.

    >>> places(np.array([[0.2, 0.4, 0.4]]), np.array([[2]])).tolist()
    [1]
    """
    best = np.full(len(values), values.shape[1], dtype=np.int64)
    order = np.arange(values.shape[1])
    for column in members.T:
        own = np.take_along_axis(values, column[:, None], axis=1)
        before = (values > own).sum(axis=1)
        before += ((values == own) & (order < column[:, None])).sum(axis=1)
        np.minimum(best, before, out=best)
    return best


def _members(names: pa.Array) -> tuple[Int64, pa.Array]:
    """Return the columns of each distinct class, (classes, most of one name), and the classes."""
    plain = normalised(names)
    distinct = pc.unique(plain)
    code = codes(names, distinct)
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code, minlength=len(distinct))
    starts = np.cumsum(counts) - counts
    inside = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
    return order[starts[:, None] + inside], distinct


def _class_names(scores: ClassScores, width: int, path: str) -> pa.Array:
    """Return the names of the classes; their numbers where a file gives none."""
    if not width:
        raise VisleakError(f"{path}: its class scores are of no class")
    if scores.classes is None:
        return pa.array([str(number) for number in range(width)], pa.string())
    if len(scores.classes) != width or scores.classes.null_count:
        raise VisleakError(
            f"{path}: {len(scores.classes) - scores.classes.null_count:,} class names for"
            f" {width:,} class scores an image; each class needs a name"
        )
    return scores.classes


def _refuse_nan(values: npt.NDArray[Any], there: Bool, rows: Int64, path: str) -> None:
    wrong = np.isnan(values).any(axis=1) & there
    if wrong.any():
        raise VisleakError(
            f"{path}: row {rows[int(wrong.argmax())]} has a class score that is missing or NaN;"
            " leave out the row, or give all of its scores"
        )


def _blocks_of(blocks: Iterator[Any], rows: Int64) -> Iterator[tuple[Int64, slice, Any]]:
    """Yield blocks of rows with those of their rows that are asked for.

    Yields:
        Places in the block, the same as a slice of ``rows``, and the block: an array, or a tuple
        of arrays of one length.
    """
    start = 0
    for block in blocks:
        end = start + len(block[0] if isinstance(block, tuple) else block)
        low, high = np.searchsorted(rows, (start, end))
        if high > low:
            yield rows[low:high] - start, slice(int(low), int(high)), block
        start = end
