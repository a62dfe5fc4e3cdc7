"""The process in which Ultralytics trains: ``python -m`` this module with a json of its job.

Ultralytics reads its environment and its settings when it is imported, and asks the network
for fonts, weights, updates and where to report to; here it finds none, and settings of its own.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any, Final

from visleak.encoders.libraries import library, said
from visleak.errors import VisleakError

WHO: Final = "trainer ultralytics"

#: Hosts that processes of one training reach each other by.
_HERE: Final = (None, "", "localhost", "127.0.0.1", "::1", socket.gethostname())

#: Confidence from which a box of a single image counts, as where Ultralytics predicts.
CONFIDENCE: Final = 0.25


def main(job: Path) -> int:
    """Do a job: inspect a model, or train it; return the exit code."""
    content = json.loads(job.read_text(encoding="utf-8"))
    _stay_offline()
    try:
        model = _model(content)
        if "data" in content:
            result = _trained(model, content)
            Path(content["out"]).write_text(json.dumps(result), encoding="utf-8")
    except VisleakError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _stay_offline() -> None:
    """Let no name of another host be found; weights and fonts are never fetched."""
    known = socket.getaddrinfo

    def found(host: Any, *others: Any, **named: Any) -> Any:
        if host in _HERE:
            return known(host, *others, **named)
        raise socket.gaierror(socket.EAI_NONAME, "visleak downloads nothing")

    socket.getaddrinfo = found


def _model(content: dict[str, Any]) -> Any:
    """Return the model as Ultralytics makes it.

    Raises:
        VisleakError: it is damaged, no detector, or cannot be read without running its code.
    """
    ultralytics = library("ultralytics", "yolo", WHO)
    library("torchvision", "yolo", WHO)
    # the library writes them into its settings file, which is the training's own
    settings = ultralytics.settings
    settings.update({name: False for name, value in dict(settings).items() if value is True})
    named = content["model"]
    if named.endswith(".pt") and not _reads_safely():
        raise VisleakError(
            f"{named}: this Ultralytics would run code in it; take a newer one with torch 2.6 or"
            " later, which read weights alone, or train from scratch with a .yaml"
        )
    try:
        model = ultralytics.YOLO(named)
    except Exception as error:  # what a damaged file raises is anybody's guess
        raise VisleakError(f"{named} is not a model of Ultralytics ({said(error)})") from error
    if model.task != "detect":
        raise VisleakError(f"{named} is a model for the task {model.task}; take one that detects")
    return model


def _reads_safely() -> bool:
    """Whether checkpoints are read as weights, not as code."""
    tasks = library("ultralytics.nn.tasks", "yolo", WHO)
    return bool(getattr(tasks, "SAFE_LOAD", False)) and bool(tasks._SafeLoad.SUPPORTED)


def _trained(model: Any, content: dict[str, Any]) -> dict[str, Any]:
    """Train and evaluate; return the metrics.

    Early stopping is off and only the last epoch is evaluated: to choose another one would be to
    choose on the test set.
    """
    shared = {"data": content["data"], "imgsz": content["imgsz"], "plots": False}
    shared |= {"project": content["folder"], "exist_ok": True, "device": content["device"] or None}
    metrics = model.train(
        **shared,
        name="run",
        epochs=content["epochs"],
        patience=content["epochs"] + 1,
        batch=content["batch"],
        workers=content["workers"],
        seed=content["seed"],
        deterministic=True,
        amp=False,
        val=False,
        cache=False,
    )
    result = shares(metrics.box)
    again = model.val(**shared, name="images", conf=CONFIDENCE, workers=0)
    images = Path(content["images"])
    single = getattr(again.box, "image_metrics", {})
    found = {str(images / name): values["f1"] for name, values in single.items()}
    return result | ({"images": {"f1": found}} if found else {})


def shares(box: Any) -> dict[str, float]:
    """Return the metrics of a validation.

    Precision, recall and F1 are means over classes at the confidence at which the mean of the
    classes' F1 is greatest: the number that YOLO prints beside its F1 curve. It is not
    ``2PR/(P+R)`` of the means.
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
