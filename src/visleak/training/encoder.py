"""``visleak train-encoder``: an encoder trained on the images of a set."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import visleak
from visleak import pipeline
from visleak.auditing import workers_for
from visleak.devices import torch_device
from visleak.errors import VisleakError
from visleak.lazy import library
from visleak.pipeline.context import RunContext
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.rates import Rate
from visleak.records import ImageSet
from visleak.reporting import Document
from visleak.storage import claimed, free_file
from visleak.training.data import ImageData, read_images, sizes_of, training_data
from visleak.training.plan import plan_for, shape_for
from visleak.training.settings import EncoderSettings

KIND: Final = "visleak training"  # kind of the record in the JSON, and the version of its layout
SCHEMA: Final = 1
COMPARED: Final = 64  # images by which the ONNX file is compared with torch


@dataclass(frozen=True)
class TrainedEncoder:
    """A trained encoder on disk."""

    model: Path  # the ONNX file
    recipe: Path  # its JSON
    record: dict[str, Any]  # its training and scores, as in the JSON

    @property
    def scores(self) -> dict[str, Rate]:
        """Name of a score to its rate."""
        return {name: Rate.from_dict(value) for name, value in self.record["scores"].items()}


def working_folder(out: Path) -> Path:
    """Return the folder next to a model that holds its checkpoint during training."""
    return out.with_name(f".{out.name}.training")


def checkpoint_path(out: Path) -> Path:
    """Return the file from which an interrupted training resumes."""
    return working_folder(out) / "checkpoint.pt"


def train_encoder(
    images: ImageSet,
    out: str | os.PathLike[str] = "model.onnx",
    *,
    test: ImageSet | None = None,
    settings: EncoderSettings | None = None,
    device: str = "auto",
    threads: int | None = None,
    progress: Progress = pipeline.silent,
    notify: Callable[[str], None] = lambda text: None,
    force: bool = False,
) -> TrainedEncoder:
    """Train a network on a set and write it as an encoder: ``onnx:FILE``.

    An interrupted training resumes from its checkpoint, and ends with the same weights.

    Args:
        images: the set; its labels are learned if it has any.
        out: the ONNX file; its JSON is written next to it.
        test: a set to evaluate on; by default a tenth of the other is held out.
        settings: of the training; by default the usual for the set.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        threads: of the processor; by default one per core. Another number changes the last bits of
            the weights.
        progress: called with the progress.
        notify: called with notes on what was excluded or decided.
        force: replace an existing model.

    Raises:
        UsageError: an argument cannot be used, or ``out`` exists.
        MissingExtra: torch or onnx is not installed.
        VisleakError: the set is too small, or the disk refuses.
    """
    library("torch", "torch", "train-encoder")
    # torch exports with it, at the very end
    library("onnx", "torch", "train-encoder")
    from visleak.training.networks import deterministic

    target = Path(out)
    for path in (target, target.with_name(f"{target.name}.json")):
        free_file(path, force=force)
    runs_on = torch_device(device) or "cpu"
    cores = workers_for(len(images), threads)
    folder = working_folder(target)
    with claimed(folder):
        try:
            with RunContext.at(folder, cores, None, progress) as place, deterministic(threads):
                chosen = settings or EncoderSettings()
                made = _trained(images, test, target, chosen, runs_on, place, notify)
            checkpoint_path(target).unlink(missing_ok=True)
        finally:
            if not checkpoint_path(target).exists():
                shutil.rmtree(folder, ignore_errors=True)
    return made


def _trained(
    images: ImageSet,
    test: ImageSet | None,
    out: Path,
    settings: EncoderSettings,
    device: str,
    place: RunContext,
    notify: Callable[[str], None],
) -> TrainedEncoder:
    import torch

    from visleak.training.networks import described
    from visleak.training.run import (
        deviation,
        evaluated,
        recipe_path,
        scaling_of,
        train,
        write_model,
    )

    kind, side = settings.network, settings.size or 0
    if kind == "auto" or not side:
        kind, side = shape_for(sizes_of(images), settings)
    data = _read(images, side, place, notify)
    tested = None if test is None else (test, _read(test, side, place, notify))
    material = training_data(
        images, data, tested, labels=settings.labels, seed=settings.seed, notify=notify
    )
    by_class, evaluated_on = material.by_class, material.evaluation.kind
    if settings.labels == "auto" and not by_class:
        notify(f"{images.name} has no labels: the network learns to distinguish images")
    plan = plan_for(material, kind, side, settings, device)
    digest = data.digest()
    network = train(
        plan,
        material.images,
        material.rows,
        material.classes if by_class else None,
        scaling=scaling_of(material.images, material.rows),
        key=plan.key(f"{digest} {evaluated_on}"),
        checkpoint=checkpoint_path(out),
        device=device,
        progress=partial(place.progress, "training"),
        notify=notify,
    )
    scores = evaluated(network, material, partial(place.progress, "evaluating"))
    record = {
        "kind": KIND,
        "schema": SCHEMA,
        "visleak": visleak.__version__,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "set": images.name,
        "test": None if test is None else test.name,
        "data": digest,
        "objective": "classes" if by_class else "instances",
        "class_names": list(material.names) if by_class else [],
        "held_out": len(material.evaluation.rows) if test is None else 0,
        "changes": described(plan),
        "plan": plan.as_dict(),
        "unreadable": data.unreadable + (tested[1].unreadable if tested else 0),
        "device": device,
        "scores": {name: rate.as_dict() for name, rate in scores.items()},
        "asked": evaluated_on,
        "losses": [round(loss, 4) for loss in network.losses],
        "onnx_deviation": deviation(network, data.images[:COMPARED], place.scratch),
    }
    write_model(network, out, record)
    return TrainedEncoder(out, recipe_path(out), record)


def _read(
    images: ImageSet, side: int, place: RunContext, notify: Callable[[str], None]
) -> ImageData:
    data = read_images(images, side, place)
    if data.unreadable:
        notify(f"{counted(data.unreadable, 'image')} of {images.name} unreadable: excluded")
    if not len(data):
        raise VisleakError(f"set {images.name!r}: no image can be read")
    return data


#: Names of the scores.
_SCORES: Final = {
    "views": "two views of an image found among all",
    "20 nearest": "accuracy of the 20 nearest",
}


def document(made: TrainedEncoder) -> Document:
    """Return the training and the scores."""
    record, plan = made.record, made.record["plan"]
    what = f"{plan['classes']:,} classes" if plan["classes"] else "images apart from each other"
    headline = (
        f"{plan['network']} at {plan['side']} pixels: {what}, learned from {plan['pictures']:,}"
        f" images of {record['set']} in {counted(plan['epochs'], 'epoch')}"
    )
    test = record["test"] or "held-out part"
    lines = [f"  {_SCORES.get(name, name)}, {test}: {r}" for name, r in made.scores.items()]
    if not made.scores:
        lines.append("  nothing could be held out: give --test SOURCE to measure the accuracy")
    lines += [f"{made.model}, {made.recipe}", f"use it with --encoder onnx:{made.model}"]
    return Document("Trained encoder", headline, tuple(lines))
