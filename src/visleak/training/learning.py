"""``visleak train-encoder``: an encoder that has learnt a set's own pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import visleak
from visleak import pipeline
from visleak.auditing import workers_for
from visleak.encoders.libraries import library
from visleak.errors import VisleakError
from visleak.pipeline.workplace import Progress, Workplace
from visleak.records import ImageSet
from visleak.search.streaming_device import torch_device
from visleak.stats import Rate
from visleak.storage import claimed, free_file
from visleak.training.lessons import Lessons, counted, lessons_of
from visleak.training.material import Material, read_material, sizes_of
from visleak.training.plan import Plan
from visleak.training.wishes import Wishes, plan_for, shape_for

#: What the record in the json says it is, and the version of its layout.
KIND: Final = "visleak training"
SCHEMA: Final = 1

#: Pictures by which the ONNX file is compared with torch.
COMPARED: Final = 64


@dataclass(frozen=True)
class Trained:
    """A trained encoder on disk.

    Attributes:
        model: the ONNX file.
        recipe: its json.
        record: how it was trained and how well it does; stands in the json too.
    """

    model: Path
    recipe: Path
    record: dict[str, Any]

    @property
    def scores(self) -> dict[str, Rate]:
        """What was measured: name of a score to its rate."""
        return {name: Rate.from_dict(value) for name, value in self.record["scores"].items()}


def working_folder(out: Path) -> Path:
    """Return the folder beside a model in which its checkpoint is kept while it is trained."""
    return out.with_name(f".{out.name}.training")


def checkpoint_path(out: Path) -> Path:
    """Return the file from which a training that was stopped goes on."""
    return working_folder(out) / "checkpoint.pt"


def train_encoder(
    images: ImageSet,
    out: str | os.PathLike[str] = "model.onnx",
    *,
    test: ImageSet | None = None,
    wishes: Wishes | None = None,
    device: str = "auto",
    threads: int | None = None,
    progress: Progress = pipeline.silent,
    say: Callable[[str], None] = lambda text: None,
    force: bool = False,
) -> Trained:
    """Train a network on a set and write it as an encoder: ``onnx:FILE``.

    A training that was stopped goes on from its checkpoint, and ends with the same weights.

    Args:
        images: the set; its labels are learnt where it has any.
        out: the ONNX file; its json is written beside it.
        test: a set to ask about; without it a tenth of the other is held out for that.
        wishes: what the training is to be like; by default the usual for the set.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        threads: of the processor; by default one for each core. Another number changes the last
            bits of the weights.
        progress: is told how far it is.
        say: is told in words what was left out or decided.
        force: replace a model that is there.

    Raises:
        UsageError: an argument cannot be used, or ``out`` exists.
        MissingExtra: torch is not installed, or onnx.
        VisleakError: the set has too little in it, or the disk refuses.
    """
    torch = library("torch", "torch", "train-encoder")
    # torch exports with it, at the very end
    library("onnx", "torch", "train-encoder")
    target = Path(out)
    _refuse_existing(target, force)
    runs_on = torch_device(device) or "cpu"
    cores = workers_for(len(images), threads)
    folder = working_folder(target)
    with claimed(folder):
        try:
            with (
                Workplace.at(folder, cores, None, progress) as place,
                _threads(torch, threads),
            ):
                made = _trained(images, test, target, wishes or Wishes(), runs_on, place, say)
            checkpoint_path(target).unlink(missing_ok=True)
        finally:
            if not checkpoint_path(target).exists():
                shutil.rmtree(folder, ignore_errors=True)
    return made


def _refuse_existing(out: Path, force: bool) -> None:
    recipe = out.with_name(f"{out.name}.json")
    for path in (out, recipe):
        free_file(path, force=force)


@contextmanager
def _threads(torch: Any, threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trained(
    images: ImageSet,
    test: ImageSet | None,
    out: Path,
    wishes: Wishes,
    device: str,
    place: Workplace,
    say: Callable[[str], None],
) -> Trained:
    from visleak.training.asking import asked_about
    from visleak.training.course import train
    from visleak.training.learnt import scaling_of
    from visleak.training.onnx_file import deviation, recipe_path, write_model

    network, side = _shape(images, wishes)
    material = _read(images, side, place, say)
    asked = None if test is None else (test, _read(test, side, place, say))
    lessons = lessons_of(images, material, asked, labels=wishes.labels, seed=wishes.seed, say=say)
    if wishes.labels == "auto" and not lessons.by_class:
        say(f"{images.name} has no labels: the network learns to tell pictures apart")
    plan = plan_for(lessons, network, side, wishes, device)
    data = material.digest()
    learnt = train(
        plan,
        lessons.pictures,
        lessons.rows,
        lessons.classes if lessons.by_class else None,
        scaling=scaling_of(lessons.pictures, lessons.rows),
        key=plan.key(f"{data} {lessons.questions.kind}"),
        checkpoint=checkpoint_path(out),
        device=device,
        told=lambda done, total: place.progress("training", done, total),
        say=say,
    )
    scores = asked_about(
        learnt, lessons, lambda done, total: place.progress("asking the network", done, total)
    )
    compared = deviation(learnt, material.pictures[:COMPARED], place.scratch)
    record = {
        **_about(images, test, lessons, plan, data),
        "unreadable": material.unreadable + (asked[1].unreadable if asked else 0),
        "device": device,
        "scores": {name: rate.as_dict() for name, rate in scores.items()},
        "asked": lessons.questions.kind,
        "losses": [round(loss, 4) for loss in learnt.losses],
        "onnx_deviation": compared,
    }
    write_model(learnt, out, record)
    return Trained(out, recipe_path(out), record)


def _shape(images: ImageSet, wishes: Wishes) -> tuple[str, int]:
    """Return which network to train, and the side of its input."""
    if wishes.network != "auto" and wishes.side:
        return wishes.network, wishes.side
    return shape_for(sizes_of(images), wishes)


def _read(images: ImageSet, side: int, place: Workplace, say: Callable[[str], None]) -> Material:
    material = read_material(images, side, place)
    if material.unreadable:
        say(f"{counted(material.unreadable)} of {images.name} unreadable: left out")
    if not len(material):
        raise VisleakError(f"set {images.name!r}: no picture can be read")
    return material


def _about(
    images: ImageSet,
    test: ImageSet | None,
    lessons: Lessons,
    plan: Plan,
    data: str,
) -> dict[str, Any]:
    """Return the part of the record that does not depend on how the training went."""
    import torch

    from visleak.training.changes import described

    return {
        "kind": KIND,
        "schema": SCHEMA,
        "visleak": visleak.__version__,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "set": images.name,
        "test": None if test is None else test.name,
        "data": data,
        "objective": "classes" if lessons.by_class else "instances",
        "class_names": list(lessons.names) if lessons.by_class else [],
        "held_out": len(lessons.questions.rows) if test is None else 0,
        "changes": described(plan),
        "plan": plan.as_dict(),
    }
