"""``lookup[:ENCODER]``: memorizes, and answers with the label of the most similar image.

It trains nothing, and so shows in seconds what leaking does to a model that only remembers: the
same protocol, draws and rules, without a GPU and without chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import workers_for
from visleak.dlede.draw import Split
from visleak.dlede.train import Outcome, PreparedTrainer, TrainingFailed, TrainingTask
from visleak.dlede.trainers import TrainerRequest, label_metrics
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError, explaining
from visleak.pipeline.context import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.progress import Progress
from visleak.records import Encoder, Fingerprints, ImageSet, Int64

BLOCK: Final = 256  # test images that are compared at once; bounds the memory
SIMILARITY: Final = "similarity.npy"  # file of all similarities


def lookup_trainer(request: TrainerRequest) -> LookupTrainer:
    """Return the trainer of ``lookup`` or ``lookup:ENCODER``, such as ``lookup:phash``."""
    return LookupTrainer(request.text, load_encoder(request.argument or "builtin"))


class LookupTrainer:
    """One nearest neighbour by stored similarity; ties go to the smaller id.

    Neither the seed nor the number of epochs changes anything: repetitions differ by their draws.
    """

    decides = ("accuracy", "f1")
    lower = ()

    def __init__(self, name: str, encoder: Encoder) -> None:
        self.name = name
        self._encoder = encoder

    def about(self) -> Mapping[str, object]:
        """Return what its results depend on."""
        return {"encoder": self._encoder.name, "digest": self._encoder.digest}

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Compare every test image with every image that may be trained on, once."""
        sets = (split.train, split.test)
        truths = [_labels(images) for images in sets]
        names = pa.concat_arrays(truths).unique().sort()
        codes = [np.asarray(pc.index_in(each, value_set=names), np.int64) for each in truths]
        workers = workers_for(sum(map(len, sets)), None)
        with RunContext.at(folder, workers, None, progress) as place:
            prints = [fingerprint(images, self._encoder, place) for images in sets]
            for images, each in zip(sets, prints, strict=True):
                if not len(each):
                    raise VisleakError(f"no image of set {images.name!r} can be read")
            # by id, training first
            every = pa.concat_arrays([each.ids for each in prints])
            columns = np.argsort(pc.sort_indices(every).to_numpy())
            parts = np.split(columns, [len(prints[0])])
            places = [np.full(len(images), -1, np.int64) for images in sets]
            for of_set, each, part in zip(places, prints, parts, strict=True):
                of_set[each.rows] = part
            _compare(prints, columns, folder / SIMILARITY, progress)
        notes = tuple(filter(None, map(_unreadable, prints, sets)))
        (seen, tested), (train, test) = places, codes
        return Lookup(folder / SIMILARITY, seen, tested, train, test, prints[1].rows, notes)


@dataclass(frozen=True)
class Lookup:
    """All similarities of a split, and the labels."""

    similarity: Path  # .npy (readable test images, readable images of both sets by id)
    train_place: Int64  # column of each image of the set; -1 if unreadable
    test_place: Int64
    train_label: Int64  # train_label, test_label: int64, the label of each
    test_label: Int64
    queries: Int64  # int64, row in the test set of each row of similarities
    notes: tuple[str, ...] = ()  # lines on images that cannot be read

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Answer with the label of the most similar training image; the unreadable are wrong."""
        draw = task.draw
        column = np.concatenate([self.train_place[draw.kept], self.test_place[draw.leaked]])
        label = np.concatenate([self.train_label[draw.kept], self.test_label[draw.leaked]])
        known = np.flatnonzero(column >= 0)
        known = known[np.argsort(column[known])]
        if not len(known):
            raise TrainingFailed("none of the images to train on can be read")
        similarity = np.load(self.similarity, mmap_mode="r", allow_pickle=False)
        answer = np.full(len(self.test_label), -1, np.int64)
        for start in range(0, len(self.queries), BLOCK):
            # of equal ones the first: the smaller id
            nearest = similarity[start : start + BLOCK][:, column[known]].argmax(axis=1)
            answer[self.queries[start : start + BLOCK]] = label[known[nearest]]
        right = (answer == self.test_label).astype(np.float64)
        return Outcome(
            metrics=label_metrics(self.test_label, answer, predicted_classes=True),
            images={"accuracy": right},
            about={"unreadable": len(self.test_label) - len(self.queries)},
        )


def _unreadable(prints: Fingerprints, images: ImageSet) -> str:
    if not prints.problems:
        return ""
    first = prints.problems[0]
    return (
        f"{len(prints.problems):,} of {len(images):,} images of set {images.name!r} cannot be read,"
        f" such as {first.id!r} ({first.reason}); they are not learned, and count as wrong"
    )


def _labels(images: ImageSet) -> pa.StringArray:
    missing = len(images) if images.labels is None else images.labels.null_count
    if images.labels is None or missing:
        raise UsageError(
            f"trainer lookup answers with the one label of an image, and {missing:,} of"
            f" {len(images):,} images of set {images.name!r} have none; give --label COLUMN, or"
            " another trainer"
        )
    return images.labels


def _compare(prints: list[Fingerprints], columns: Int64, path: Path, progress: Progress) -> None:
    """Write the stored similarities of all test images to all images, see :class:`Lookup`."""
    known = np.empty((len(columns), prints[0].matrix.shape[1]))
    known[columns] = np.concatenate([each.matrix for each in prints])
    queries = prints[1].matrix
    shape = (len(queries), len(known))
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    # not through a memory map: a disk that is full must be an error, not a signal
    with explaining(f"{path} cannot be written", OSError), path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(queries), BLOCK):
            block = np.asarray(queries[start : start + BLOCK], np.float64)
            file.write((block @ known.T).astype("<f4").tobytes())
            progress("comparing", min(start + BLOCK, len(queries)), len(queries))
