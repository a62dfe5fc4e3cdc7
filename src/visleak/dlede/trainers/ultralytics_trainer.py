"""``ultralytics:MODEL[?imgsz=640&batch=16&workers=4]``: the YOLO models of that package.

MODEL is a file of this machine, ``.pt`` or ``.yaml``, or an architecture of the package, such as
``yolov8n.yaml``, trained from scratch. Nothing is ever fetched. Each training runs in a process of
its own, offline, and writes into its own folder alone; a ``.pt`` file is read as weights, never
as code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from visleak.dlede.draw.split import Split
from visleak.dlede.train.runs import LOG
from visleak.dlede.train.trainer import Outcome, PreparedTrainer, TrainingFailed, TrainingTask
from visleak.dlede.trainers import TrainerRequest
from visleak.dlede.trainers.command import EPOCHS, GIVEN, OUT
from visleak.dlede.trainers.handover import (
    ImageSizes,
    check_boxes,
    check_folder,
    check_split,
    rows_by_name,
    write_yolo,
)
from visleak.dlede.trainers.metrics_files import read_json
from visleak.dlede.trainers.subprocesses import carry_out, last_line
from visleak.encoders.request import parse
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.pipeline.context import Progress

_PROCESS: Final = "visleak.dlede.trainers.ultralytics_process"

#: ``yolov8n.yaml`` is the architecture ``yolov8.yaml`` at the scale n.
_SCALE: Final = re.compile(r"(\d+)[nsmblxtc](?=[-.])")


@dataclass(frozen=True)
class UltralyticsTrainer:
    """Trains a model of Ultralytics; see the module.

    Attributes:
        name: on the command line.
        model: path, or name of an architecture of the package.
        imgsz: side of the square input in pixels.
        batch: images per step.
        workers: processes that read images, on a GPU; augmentation depends on their number.
        device: of torch, ``auto`` for the library's choice.
        threads: of torch on the processor.
        time_limit: time limit of a training run in seconds, or ``None``.
    """

    name: str
    model: str
    imgsz: int = 640
    batch: int = 16
    workers: int = 4
    device: str = "auto"
    threads: int = 1
    time_limit: float | None = None
    decides: tuple[str, ...] = ("map50", "f1")
    lower: tuple[str, ...] = ()

    def about(self) -> dict[str, Any]:
        """Return the options, the content of a model that is a file, and the library's version."""
        file = Path(self.model)
        content = file.read_bytes() if file.is_absolute() else self.model.encode()
        return {
            "model": file.name,
            "digest": hashlib.blake2b(content, digest_size=16).hexdigest(),
            "epochs": EPOCHS,
            "imgsz": self.imgsz,
            "batch": self.batch,
            "workers": self.workers,
            "ultralytics": version("ultralytics"),
        }

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """See that the library works, that it knows the model, and that there are boxes.

        Raises:
            VisleakError: one does not hold; one line.
        """
        check_split(split)
        check_boxes(split, self.name)
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "ultralytics.log"
        log.unlink(missing_ok=True)
        progress(f"looking at {Path(self.model).name}", 0, 1)
        try:
            _carry_out({"model": self.model}, folder, log, None)
        except TrainingFailed as error:
            raise VisleakError(last_line(log) or str(error)) from error
        progress(f"looking at {Path(self.model).name}", 1, 1)
        boxes = split.train_boxes
        relative = boxes is None or boxes.relative
        return PreparedUltralytics(self, None if relative else ImageSizes.of(split, progress))


@dataclass(frozen=True)
class PreparedUltralytics:
    """A model prepared for a split.

    Attributes:
        trainer: how it is trained.
        sizes: of the images, if boxes are in pixels.
    """

    trainer: UltralyticsTrainer
    sizes: ImageSizes | None

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Train and evaluate in a process of its own.

        Raises:
            TrainingFailed: it came to no result; its log says more.
        """
        folder = Path(os.path.abspath(folder))
        given, trainer = folder / GIVEN, self.trainer
        given.mkdir()
        job = {
            "model": trainer.model,
            "data": str(write_yolo(given, task, self.sizes)),
            "images": str(given / "test" / "images"),
            "out": str(folder / OUT),
            "folder": str(folder),
            "epochs": task.epochs or EPOCHS,
            "seed": task.seed,
            "imgsz": trainer.imgsz,
            "batch": trainer.batch,
            "workers": trainer.workers,
            "device": "" if trainer.device == "auto" else trainer.device,
        }
        limit = trainer.time_limit
        _carry_out(job, folder, folder / LOG, limit, threads=trainer.threads)
        if not (folder / OUT).is_file():
            raise TrainingFailed("it ended well and left no result")
        outcome = read_json(folder / OUT, rows_by_name(given, task.test), len(task.test))
        return Outcome(outcome.metrics, outcome.images, {"epochs": job["epochs"]})


def _carry_out(
    job: dict[str, Any], folder: Path, log: Path, limit: float | None, threads: int = 1
) -> None:
    """Run the process of a job; its settings lie in the folder."""
    path = folder / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    added = {
        "YOLO_CONFIG_DIR": str(folder / "settings"),
        "YOLO_OFFLINE": "true",
        "YOLO_AUTOINSTALL": "false",
        "ULTRALYTICS_SAFE_LOAD": "true",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(threads),
        "WANDB_MODE": "disabled",
    }
    (folder / "settings").mkdir(exist_ok=True)
    # -P: a file of the working folder must not take the place of a library
    command = [sys.executable, "-P", "-m", _PROCESS, str(path)]
    carry_out(command, log, limit=limit, environment={**os.environ, **added})


def ultralytics_trainer(request: TrainerRequest) -> UltralyticsTrainer:
    """Return the trainer of ``ultralytics:MODEL``.

    Raises:
        UsageError: there is no such model, or an option does not exist.
        MissingExtra: the library is not installed.
    """
    options = parse(request.text, "trainer")
    options.knows("imgsz", "batch", "workers")
    named = options.wanted_argument("FILE.yaml or FILE.pt")
    found = find_spec("ultralytics")
    try:
        version("ultralytics")
    except PackageNotFoundError as error:
        raise MissingExtra("yolo", "--trainer ultralytics") from error
    if found is None or found.origin is None:
        raise MissingExtra("yolo", "--trainer ultralytics")
    return UltralyticsTrainer(
        request.text,
        known_model(named, Path(found.origin).parent),
        imgsz=options.number("imgsz", 640, least=32),
        batch=options.number("batch", 16),
        workers=options.number("workers", 4, least=0),
        device=request.device,
        threads=request.threads,
        time_limit=request.time_limit,
    )


def known_model(named: str, package: Path) -> str:
    """Return the path of a model that is a file here, or the name of an architecture.

    Args:
        named: by the user.
        package: folder of the library.

    Raises:
        UsageError: it is neither; nothing is fetched.
    """
    if Path(named).suffix not in (".pt", ".yaml", ".yml"):
        raise UsageError(
            f"--trainer ultralytics: a model is a .pt or .yaml file, such as yolov8n.yaml; got"
            f" {named!r}"
        )
    if os.path.isfile(named):
        return os.path.abspath(named)
    models = {path.name for path in (package / "cfg" / "models").rglob("*.yaml")}
    if os.sep not in named and {named, _SCALE.sub(r"\1", named, count=1)} & models:
        return named
    raise UsageError(
        f"--trainer ultralytics: {named!r} is neither a file nor an architecture of the installed"
        " Ultralytics, and nothing is fetched; give the path of a .pt file, or an architecture to"
        " train from scratch, such as yolov8n.yaml"
    )
