"""``visleak train-encoder``: an encoder that has learnt a set's own pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import visleak
from visleak import pipeline
from visleak.auditing import workers_for
from visleak.encoders.libraries import library
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.folder import claimed
from visleak.pipeline.workplace import Progress, Workplace
from visleak.records import ImageSet, Int64
from visleak.search.streaming_device import torch_device
from visleak.stats import Rate
from visleak.training.lessons import Lessons, counted, lessons_of
from visleak.training.material import Material, Sizes, read_material, sizes_of
from visleak.training.plan import CYCLES, NETWORKS, PRECISIONS, SCHEDULES, Plan, usual_epochs
from visleak.training.scores import NEIGHBOURS, agreeing, by_neighbours, twins_found

#: What the record in the json says it is, and the version of its layout.
KIND: Final = "visleak training"
SCHEMA: Final = 1

#: Pictures of at most this short side are small; as is what is square and of this side.
SMALL: Final = 48
SMALL_SQUARE: Final = 64

#: Side of the input where nobody says.
PLAIN_SIDE: Final = 32
RESIDUAL_SIDE: Final = 128
LEAST_SIDE, MOST_SIDE = 16, 512

#: Pictures a step where nobody says: classes, instances; fewer of a small set.
BATCHES: Final = (128, 256)
LEAST_BATCH: Final = 16
STEPS: Final = 16

#: Pictures asked about by two views, and pictures that may vote, at most.
TWINS: Final = 2_000
VOTERS: Final = 50_000

#: Pictures by which the ONNX file is compared with torch.
COMPARED: Final = 64


@dataclass(frozen=True)
class Wishes:
    """What somebody asked of a training; ``None`` and ``auto`` leave it to the set.

    Attributes:
        epochs, batch, side: whole numbers.
        seed: of weights, order, changes and what is held out.
        labels: ``auto`` or ``none``.
        network: ``auto``, ``plain-11`` or ``resnet``.
        schedule: ``short`` or ``paper``.
        precision: ``auto``, ``fp32`` or ``bf16``.

    Raises:
        UsageError: one of them cannot be.
    """

    epochs: int | None = None
    batch: int | None = None
    side: int | None = None
    seed: int = 0
    labels: str = "auto"
    network: str = "auto"
    schedule: str = "short"
    precision: str = "auto"

    def __post_init__(self) -> None:
        choices = {
            "labels": ("auto", "none"),
            "network": ("auto", *NETWORKS),
            "schedule": SCHEDULES,
            "precision": ("auto", *PRECISIONS),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise UsageError(
                    f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}"
                )
        limits = {"epochs": (1, 10_000), "batch": (2, 65_536), "side": (LEAST_SIDE, MOST_SIDE)}
        for name, (least, most) in {**limits, "seed": (0, 2**32 - 1)}.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                shown = "size" if name == "side" else name
                raise UsageError(f"{shown} must lie between {least} and {most:,}; got {value:,}")
        if self.schedule == "paper" and self.epochs not in (None, sum(CYCLES)):
            raise UsageError(
                f"the schedule paper has {sum(CYCLES)} epochs; leave the epochs out, or take the"
                " schedule short"
            )


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
    wishes: Wishes = Wishes(),
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
        wishes: what the training is to be like.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        threads: of the processor; by default one for each core. Another number changes the last
            bits of the weights.
        progress: is told how far it is.
        say: is told in words what was left out or decided.
        force: replace a model that is there.

    Raises:
        UsageError: an argument cannot be used, or ``out`` exists.
        MissingExtra: torch is not installed.
        VisleakError: the set has too little in it, or the disk refuses.
    """
    torch = library("torch", "torch", "train-encoder")
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
                made = _trained(images, test, target, wishes, runs_on, place, say)
            checkpoint_path(target).unlink(missing_ok=True)
        finally:
            if not checkpoint_path(target).exists():
                shutil.rmtree(folder, ignore_errors=True)
    return made


def _refuse_existing(out: Path, force: bool) -> None:
    recipe = out.with_name(f"{out.name}.json")
    if out.is_dir():
        raise UsageError(f"the output {out} is a folder; choose a file with -o FILE")
    for path in (out, recipe):
        if path.exists() and not force:
            raise UsageError(
                f"{path} exists; choose another file with -o FILE, or --force replaces it"
            )


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
    from visleak.training.course import scaling_of, train
    from visleak.training.onnx_file import deviation, recipe_path, write_model

    network, side = _shape(images, wishes)
    material = _read(images, side, place, say)
    asked = None if test is None else (test, _read(test, side, place, say))
    if wishes.labels == "auto" and material.labels is None:
        say(f"{images.name} has no labels: the network learns to tell pictures apart")
    lessons = lessons_of(images, material, asked, labels=wishes.labels, seed=wishes.seed, say=say)
    plan = _plan(lessons, network, side, wishes, device)
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
        told=lambda done, total: place.progress(f"training, {plan.epochs} epochs", done, total),
        say=say,
    )
    scores = _scores(learnt, lessons, place)
    compared = deviation(learnt, material.pictures[:COMPARED], place.scratch)
    record = {
        **_about(images, test, material, lessons, plan, data),
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


def shape_for(sizes: Sizes, wishes: Wishes) -> tuple[str, int]:
    """Return the network and the side for pictures of some sizes.

    >>> shape_for(Sizes(32.0, 32), Wishes()), shape_for(Sizes(375.0, 0), Wishes())
    (('plain-11', 32), ('resnet', 128))
    >>> shape_for(Sizes(28.0, 28), Wishes()), shape_for(Sizes(40.0, 0), Wishes(network="resnet"))
    (('plain-11', 28), ('resnet', 32))
    """
    own = sizes.square if LEAST_SIDE <= sizes.square <= SMALL_SQUARE else 0
    small = bool(own) or sizes.short <= SMALL
    if wishes.side:
        small = wishes.side <= SMALL_SQUARE
    network = wishes.network
    if network == "auto":
        network = "plain-11" if small else "resnet"
    usual = PLAIN_SIDE if small or network == "plain-11" else RESIDUAL_SIDE
    return network, wishes.side or own or usual


def _read(images: ImageSet, side: int, place: Workplace, say: Callable[[str], None]) -> Material:
    material = read_material(images, side, place)
    if material.unreadable:
        say(f"{counted(material.unreadable)} of {images.name} unreadable: left out")
    if not len(material):
        raise VisleakError(f"set {images.name!r}: no picture can be read")
    return material


def _plan(lessons: Lessons, network: str, side: int, wishes: Wishes, device: str) -> Plan:
    count = len(lessons.rows)
    usual = BATCHES[0] if lessons.by_class else BATCHES[1]
    batch = wishes.batch or min(max(count // STEPS, LEAST_BATCH), usual)
    epochs = wishes.epochs or usual_epochs(count)
    precision = wishes.precision
    if precision == "auto":
        precision = "bf16" if halves_are_fast(device) else "fp32"
    return Plan(
        network,
        side,
        len(lessons.names) if lessons.by_class else 0,
        count,
        sum(CYCLES) if wishes.schedule == "paper" else epochs,
        min(batch, count),
        wishes.seed,
        wishes.schedule,
        precision,
    )


def halves_are_fast(device: str) -> bool:
    """Whether a device multiplies bfloat16 by instructions of its own."""
    if device.startswith("cuda"):
        import torch

        return bool(torch.cuda.is_bf16_supported())
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:  # another system: nobody tells
        return False
    return "avx512_bf16" in words or "amx_bf16" in words


def _scores(learnt: Any, lessons: Lessons, place: Workplace) -> dict[str, Rate]:
    """Ask the network; return what it got right."""
    asked = lessons.questions
    if not len(asked.rows):
        return {}

    def told(done: int, total: int) -> None:
        place.progress("asking the network", done, total)

    if lessons.by_class and asked.classes is not None:
        found = learnt.classes(asked.pictures[asked.rows], told)
        return {"accuracy": agreeing(found, asked.classes)}
    some = asked.pictures[asked.rows[:: max(1, len(asked.rows) // TWINS)][:TWINS]]
    scores = {"views": twins_found(learnt.views(some, 0), learnt.views(some, 1))}
    voters = _voters(lessons)
    if asked.classes is not None and lessons.classes is not None and len(voters):
        reference = learnt.vectors(lessons.pictures[lessons.rows[voters]], told)
        query = learnt.vectors(asked.pictures[asked.rows])
        found = by_neighbours(query, reference, lessons.classes[voters])
        scores[f"{NEIGHBOURS} nearest"] = agreeing(found, asked.classes)
    return scores


def _voters(lessons: Lessons) -> Int64:
    """Return places of the lessons whose class is known, spread over them."""
    if lessons.classes is None:
        return np.empty(0, np.int64)
    known = np.flatnonzero(lessons.classes >= 0)
    return known[:: -(-len(known) // VOTERS) or 1]


def _about(
    images: ImageSet,
    test: ImageSet | None,
    material: Material,
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
