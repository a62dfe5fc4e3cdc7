"""A test set with its leaks, from an audit folder, and the scores of models on its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError, explaining
from visleak.records import Bool, Float64, Int8
from visleak.storage import IMAGES, AuditSummary, read_summary, read_table
from visleak.verdicts import read_verdicts
from visleak.verdicts.overlay import Level, leaks

#: Label of a test image against that of its most similar leaked training image.
RELATIONS: Final = ("same", "different", "unknown")

#: The leaks: name, the weakest grade or degree that counts, and whether images with a stronger one
#: are excluded. "Soft" of Ramos et al. (2025) includes hard leaks: here it is "hard or soft".
LEAKS: Final = (
    ("hard", Level("hard"), False),
    ("hard or soft", Level("soft"), False),
    ("soft only", Level("soft"), True),
    ("exact", Level("exact"), False),
    ("near or exact", Level("near"), False),
    ("near only", Level("near"), True),
    ("similar or closer", Level("similar"), False),
    ("similar only", Level("similar"), True),
)

_COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity"),
    *("degree", "grade", "label_relation", "coverage", "judged"),
)


@dataclass(frozen=True)
class Leak:
    """Which images of a test set leak, in one sense of the word."""

    name: str  # of :data:`LEAKS`, or of a user's list of ids
    leaked: Bool  # (n,), by image
    relation: Int8  # (n,): place in RELATIONS, -1 where an image does not leak

    def __post_init__(self) -> None:
        if self.leaked.ndim != 1 or self.leaked.shape != self.relation.shape:
            raise ValueError(
                f"leak {self.name!r}: leaked and relation must be columns of one length; got"
                f" {self.leaked.shape} and {self.relation.shape}"
            )
        if ((self.relation >= 0) & ~self.leaked).any():
            raise ValueError(f"leak {self.name!r}: an image that does not leak has a relation")

    @property
    def compared(self) -> bool:
        """Whether the label of any leaking image could be compared with its copy's."""
        return bool(((self.relation >= 0) & (self.relation != RELATIONS.index("unknown"))).any())


@dataclass(frozen=True)
class Benchmark:
    """The readable images of a test set, in the order of the audit, and how they leak."""

    name: str  # of the test set
    references: tuple[str, ...]  # names of the training sets whose leaks count
    ids: pa.StringArray  # (n,), unique
    labels: pa.StringArray | None  # (n,), or `None` if the set has none
    leaks: tuple[Leak, ...]  # each as long as `ids`
    judged: bool = False  # verdicts of reviewers are counted
    # (n,), larger is harder, NaN if it is not known; `None` where leaked images are not compared
    # with others of the same difficulty
    difficulty: Float64 | None = None

    def __post_init__(self) -> None:
        wrong = [leak.name for leak in self.leaks if len(leak.leaked) != len(self.ids)]
        others = [each for each in (self.labels, self.difficulty) if each is not None]
        if wrong or any(len(each) != len(self.ids) for each in others):
            raise ValueError(f"set {self.name!r}: all columns must have {len(self.ids)} rows")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Scores:
    """The scores of one model, image by image."""

    model: str  # its name
    # metric to (n,), in the order of the benchmark's images; NaN if the model has no prediction.
    # All metrics lack the same images
    values: Mapping[str, Float64]
    file: str = ""  # where they come from, as given
    unknown: int = 0  # predictions whose ids the benchmark lacks
    lower: frozenset[str] = frozenset()  # metrics of which lower is better, such as a loss
    doubts: tuple[str, ...] = ()  # why the file may be mixed up, see plausibility
    checked: tuple[str, ...] = ()  # what was compared with the labels to find that out
    notes: tuple[str, ...] = ()  # for readers of the scores, one line each

    def __post_init__(self) -> None:
        if not (columns := list(self.values.values())):
            raise ValueError(f"model {self.model!r} has no scores")
        answered = ~np.isnan(columns[0])
        if any(c.ndim != 1 or (~np.isnan(c) != answered).any() for c in columns):
            raise ValueError(f"model {self.model!r}: all metrics must score the same images")

    @property
    def answered(self) -> Bool:
        """Which images have a prediction, (n,)."""
        return np.asarray(~np.isnan(next(iter(self.values.values()))))

    def is_share(self, metric: str) -> bool:
        """Whether every score of a metric is 0 or 1, so that its mean is a share of images."""
        values = self.values[metric][self.answered]
        return bool(((values == 0) | (values == 1)).all())

    def in_percent(self, metric: str) -> bool:
        """Whether every score is between 0 and 1, so that tables show it times a hundred."""
        values = self.values[metric][self.answered]
        return bool(((values >= 0) & (values <= 1)).all())


def benchmark_of(
    folder: Path,
    test_set: str | None = None,
    references: Sequence[str] = (),
    *,
    judged_only: bool = False,
) -> Benchmark:
    """Return the test set of an audit and how its images leak, with the verdicts of reviewers.

    An image leaks if a pair with an image of a training set counts. Repeats within the test set
    are not leaks, and blank images have none; both stay in the benchmark.
    """
    summary = read_summary(folder)
    name, sides = _sides(summary, test_set, references)
    if judged_only and not read_verdicts(folder):
        raise UsageError(
            f"{folder} has no verdicts: leave --reviewed-only out, or judge pairs with `visleak"
            f" review {folder}`"
        )
    images = read_table(folder, IMAGES, ["set", "id", "label"], pc.equal(pc.field("set"), name))
    ids = images["id"].combine_chunks()
    labels = images["label"].combine_chunks()
    pairs = _pairs(folder, summary, name, sides, judged_only=judged_only)
    rates = next(total for total in summary.totals if total.query_set == name).rates
    measured = {"degree": rates.get("hard") and not judged_only, "grade": rates.get("near")}
    found = tuple(
        _leak(row, level, pairs, ids, alone=alone)
        for row, level, alone in LEAKS
        if measured[level.scale]
    )
    if not found:
        raise UsageError(
            f"{folder} has neither degrees nor grades for {name!r}: audit it again with an encoder"
            " that has thresholds, or with verification"
        )
    reviewed = bool(pc.any(pc.equal(pairs["judged"], "human")).as_py())
    known = labels if labels.null_count < len(labels) else None
    return Benchmark(name, sides, ids, known, found, judged=reviewed)


def with_subsets(
    benchmark: Benchmark, subsets: Mapping[str, str | Path]
) -> tuple[Benchmark, tuple[str, ...]]:
    """Return the benchmark with lists of ids as leaks of their own, and notes about the lists."""
    every, notes = list(benchmark.leaks), []
    unknown = RELATIONS.index("unknown")
    for name, path in subsets.items():
        if name in [leak.name for leak in every]:
            raise UsageError(f"subset {name!r}: the name is taken; choose another one")
        failed = f"subset {path} cannot be read as a text with one id per line"
        with explaining(failed, OSError, UnicodeDecodeError):
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        ids = dict.fromkeys(line.strip() for line in lines if line.strip())
        listed = pa.array(ids, pa.string())
        leaked = np.asarray(pc.is_in(benchmark.ids, listed).to_numpy(zero_copy_only=False))
        if not (found := int(leaked.sum())):
            example = f", such as {listed[0].as_py()!r}," if len(listed) else ""
            raise VisleakError(
                f"subset {name!r}: none of the {len(listed):,} ids of {path}{example} is one of"
                f" {benchmark.name!r}, such as {benchmark.ids[0].as_py()!r}"
            )
        if found < len(listed):
            notes.append(
                f"subset {name!r}: {len(listed) - found:,} of its {len(listed):,} ids are not"
                f" readable images of {benchmark.name!r}"
            )
        every.append(Leak(name, leaked, np.where(leaked, unknown, -1).astype(np.int8)))
    return replace(benchmark, leaks=tuple(every)), tuple(notes)


def sampled(folder: Path, benchmark: Benchmark) -> tuple[str, ...]:
    """Return a note where the audit is based on a sample of the test set."""
    own = next(each for each in read_summary(folder).sets if each.name == benchmark.name)
    audited = own.readable + own.unreadable
    if audited >= own.images:
        return ()
    return (
        f"the audit is based on a sample of {audited:,} of the {own.images:,} images of"
        f" {benchmark.name!r}: every number here is of these alone",
    )


def _sides(
    summary: AuditSummary, test_set: str | None, references: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the names of the test set and of its training sets."""
    against: dict[str, list[str]] = {}
    for each in summary.comparisons:
        if each.coverage != "within":
            against.setdefault(each.query_set, []).append(each.reference_set)
    if not against:
        raise UsageError(
            "this audit has no training side, which an impact needs: visleak audit --test SOURCE"
            " --train SOURCE"
        )
    if test_set is None and len(against) > 1:
        raise UsageError(
            f"this audit has several test sets: {', '.join(against)}; choose one with --set"
        )
    name = next(iter(against)) if test_set is None else test_set
    if name not in against:
        raise UsageError(f"the test set must be one of {', '.join(against)}; got {name!r}")
    there = against[name]
    for other in references:
        if other not in there:
            raise UsageError(f"{name!r} was compared with {', '.join(there)}; not with {other!r}")
    return name, tuple(dict.fromkeys(references)) or tuple(there)


def _pairs(
    folder: Path, summary: AuditSummary, name: str, references: Sequence[str], *, judged_only: bool
) -> pa.Table:
    """Return the pairs that may count, each image's most similar one first."""
    pairs = leaks(folder, summary, None, _COLUMNS)
    mine = pc.equal(pairs["query_set"], name)
    mine = pc.and_(mine, pc.is_in(pairs["reference_set"], pa.array(references, pa.string())))
    if judged_only:
        mine = pc.and_(mine, pc.fill_null(pc.equal(pairs["judged"], "human"), False))
    pairs = pairs.filter(mine)
    order = [("similarity", "descending"), ("reference_set", "ascending")]
    return pairs.take(pc.sort_indices(pairs, sort_keys=[*order, ("reference", "ascending")]))


def _leak(name: str, level: Level, pairs: pa.Table, ids: pa.Array, *, alone: bool) -> Leak:
    """Return which images leak at a level; ``alone``: those without a stronger pair."""
    own = pairs.filter(pc.is_in(pairs[level.scale], pa.array(level.names)))
    code = pc.index_in(own[level.scale], pa.array(level.names)).to_numpy()
    place = pc.index_in(own["query"].combine_chunks(), ids).to_numpy(zero_copy_only=False)
    place = place.astype(np.int64)
    relation = pc.index_in(own["label_relation"], pa.array(RELATIONS))
    relation = pc.fill_null(relation, RELATIONS.index("unknown")).to_numpy().astype(np.int8)
    leaked, kind = np.zeros(len(ids), np.bool_), np.full(len(ids), -1, np.int8)
    # written from the last row to the first: the relation of the most similar pair stays
    leaked[place], kind[place[::-1]] = True, relation[::-1]
    if alone:
        best = np.full(len(ids), len(level.names))
        np.minimum.at(best, place, code)
        leaked &= best == level.code
        kind[~leaked] = -1
    return Leak(name, leaked, kind)
