"""``ultralytics:MODEL[?imgsz=640&batch=16&workers=4]``: the YOLO models of that package.

MODEL is a file of this machine, ``.pt`` or ``.yaml``, or an architecture of the package, such as
``yolov8n.yaml``, trained from scratch. Nothing is ever fetched; a ``.pt`` file is read as weights,
never as code. Each training run executes in a process of its own, ``python -m`` this module with a
JSON file, offline, and writes into its own folder alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

from visleak.dlede.draw import Split
from visleak.dlede.train import LOG, Outcome, PreparedTrainer, TrainingFailed, TrainingTask
from visleak.dlede.train.execution import last_line, run_command
from visleak.dlede.trainers import TrainerRequest
from visleak.dlede.trainers.command import EPOCHS, GIVEN, OUT, read_json
from visleak.dlede.trainers.handover import (
    ImageSizes,
    check_boxes,
    check_folder,
    check_split,
    rows_by_name,
    write_yolo,
)
from visleak.encoders.request import parse
from visleak.errors import MissingExtra, UsageError, VisleakError, brief
from visleak.lazy import library
from visleak.progress import Progress

if TYPE_CHECKING:
    from ultralytics import YOLO

Call = ParamSpec("Call")
Found = TypeVar("Found")

#: ``yolov8n.yaml`` is the architecture ``yolov8.yaml`` at the scale n.
_SCALE: Final = re.compile(r"(\d+)[nsmblxtc](?=[-.])")


@dataclass(frozen=True)
class Job:
    """What the process does: inspect a model, or train it if there is data."""

    model: str
    data: str = ""  # a YOLO data.yaml
    images: str = ""  # folder of the links to the test images
    out: str = ""  # the JSON to be written
    folder: str = ""  # of the training run
    epochs: int = 0
    seed: int = 0
    imgsz: int = 0
    batch: int = 0
    workers: int = 0
    device: str = ""


@dataclass(frozen=True)
class UltralyticsTrainer:
    """Trains a model of Ultralytics; see the module."""

    name: str  # on the command line
    model: str  # path, or name of an architecture of the package
    imgsz: int = 640  # side of the square input in pixels
    batch: int = 16
    workers: int = 4  # processes that read images, on a GPU; augmentation depends on their number
    device: str = "auto"
    threads: int = 1
    time_limit: float | None = None
    sizes: ImageSizes | None = None  # of the images of the split, if its boxes are in pixels
    decides: tuple[str, ...] = ("map50", "f1")
    lower: tuple[str, ...] = ()

    def about(self) -> dict[str, object]:
        """Return the options, the content of a model that is a file, and the library's version."""
        file = Path(self.model)
        content = file.read_bytes() if file.is_absolute() else self.model.encode()
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        options = {"imgsz": self.imgsz, "batch": self.batch, "workers": self.workers}
        named = {"model": file.name, "digest": digest, "epochs": EPOCHS}
        return {**named, **options, "ultralytics": version("ultralytics")}

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Check the library, the model and the boxes."""
        check_split(split)
        check_boxes(split, self.name)
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        log, step = folder / "ultralytics.log", f"checking {Path(self.model).name}"
        log.unlink(missing_ok=True)
        progress(step, 0, 1)
        try:
            _carry_out(Job(self.model), folder, log, None)
        except TrainingFailed as error:
            raise VisleakError(last_line(log) or str(error)) from error
        progress(step, 1, 1)
        boxes = split.train_boxes
        relative = boxes is None or boxes.relative
        return replace(self, sizes=None if relative else ImageSizes.of(split, progress))

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Train and evaluate in a process of its own."""
        folder = Path(os.path.abspath(folder))
        given, out = folder / GIVEN, folder / OUT
        given.mkdir()
        job = Job(
            self.model,
            data=str(write_yolo(given, task, self.sizes)),
            images=str(given / "test" / "images"),
            out=str(out),
            folder=str(folder),
            epochs=task.epochs or EPOCHS,
            seed=task.seed,
            imgsz=self.imgsz,
            batch=self.batch,
            workers=self.workers,
            device="" if self.device == "auto" else self.device,
        )
        _carry_out(job, folder, folder / LOG, self.time_limit, threads=self.threads)
        if not out.is_file():
            raise TrainingFailed("it ended well and left no result")
        outcome = read_json(out, rows_by_name(given, task.test), len(task.test))
        return Outcome(outcome.metrics, outcome.images, {"epochs": job.epochs})


def _carry_out(job: Job, folder: Path, log: Path, limit: float | None, threads: int = 1) -> None:
    """Run the process of a job with its settings in the folder."""
    path = folder / "job.json"
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")
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
    command = [sys.executable, "-P", "-m", ultralytics_trainer.__module__, str(path)]
    run_command(command, log, limit=limit, environment={**os.environ, **added})


def ultralytics_trainer(request: TrainerRequest) -> UltralyticsTrainer:
    """Return the trainer of ``ultralytics:MODEL``."""
    options = parse(request.text, "trainer")
    options.allow_only("imgsz", "batch", "workers")
    named = options.wanted_argument("FILE.yaml or FILE.pt")
    found = find_spec("ultralytics")
    try:
        version("ultralytics")
    except PackageNotFoundError:
        found = None
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
    """Return the path of a model that is a file here, or an architecture of the package."""
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


# -- the process in which Ultralytics trains ------------------------------------------------------

#: Hosts that processes of one training run reach each other by.
_HERE: Final = (None, "", "localhost", "127.0.0.1", "::1", socket.gethostname())
#: Confidence from which a box of a single image counts, as where Ultralytics predicts.
CONFIDENCE: Final = 0.25


def main(path: Path) -> int:
    """Do the job in a file; return the exit code."""
    job = Job(**json.loads(path.read_text(encoding="utf-8")))
    # weights, fonts and updates are never fetched
    socket.getaddrinfo = _only_here(socket.getaddrinfo)
    try:
        model = _model(job.model)
        if job.data:
            Path(job.out).write_text(json.dumps(_trained(model, job)), encoding="utf-8")
    except VisleakError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _only_here(known: Callable[Call, Found]) -> Callable[Call, Found]:
    def found(*args: Call.args, **named: Call.kwargs) -> Found:
        if (args[0] if args else named["host"]) in _HERE:
            return known(*args, **named)
        raise socket.gaierror(socket.EAI_NONAME, "visleak downloads nothing")

    return found


def _model(named: str) -> YOLO:
    """Return a detector; refuse what is damaged or cannot be read without running its code."""
    ultralytics = library("ultralytics", "yolo", "trainer ultralytics")
    library("torchvision", "yolo", "trainer ultralytics")
    # the library writes them into its settings file, which is the training run's own
    settings = ultralytics.settings
    settings.update({name: False for name, value in dict(settings).items() if value is True})
    tasks = library("ultralytics.nn.tasks", "yolo", "trainer ultralytics")
    safe = getattr(tasks, "SAFE_LOAD", False) and tasks._SafeLoad.SUPPORTED
    if named.endswith(".pt") and not safe:
        raise VisleakError(
            f"{named}: this Ultralytics would run code in it; take a newer one with torch 2.6 or"
            " later, which read weights alone, or train from scratch with a .yaml"
        )
    try:
        model = ultralytics.YOLO(named)
    except Exception as error:  # damaged files raise many kinds
        raise VisleakError(f"{named} is not a model of Ultralytics ({brief(error)})") from error
    if model.task != "detect":
        raise VisleakError(f"{named} is a model for the task {model.task}; take one that detects")
    return model


def _trained(model: YOLO, job: Job) -> dict[str, object]:
    """Train, evaluate the last epoch (to choose another is to choose on the test set), score."""
    shared = {"data": job.data, "imgsz": job.imgsz, "plots": False, "project": job.folder}
    shared |= {"exist_ok": True, "device": job.device or None}
    chosen = {"epochs": job.epochs, "batch": job.batch, "workers": job.workers, "seed": job.seed}
    fixed = {"patience": job.epochs + 1, "deterministic": True}
    fixed |= {"amp": False, "val": False, "cache": False}
    metrics = model.train(**shared, **chosen, **fixed, name="run")
    again = model.val(**shared, name="images", conf=CONFIDENCE, workers=0)
    single = getattr(again.box, "image_metrics", {})
    found = {str(Path(job.images) / name): values["f1"] for name, values in single.items()}
    return {**shares(metrics.box), **({"images": {"f1": found}} if found else {})}


class _Validation(Protocol):
    mp: float
    mr: float
    map50: float
    map: float
    f1: list[float]


def shares(box: _Validation) -> dict[str, float]:
    """Return the metrics of a validation.

    Precision, recall and F1 are means over classes at the confidence where the mean F1 is greatest,
    as YOLO prints them with its F1 curve; F1 is not ``2PR/(P+R)`` of the means.
    """
    f1 = [float(value) for value in box.f1]
    return {
        "precision": float(box.mp),
        "recall": float(box.mr),
        "map50": float(box.map50),
        "map50_95": float(box.map),
        "f1": sum(f1) / len(f1) if f1 else 0.0,
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
