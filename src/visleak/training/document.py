"""A trained encoder for people."""

from __future__ import annotations

from typing import Final

from visleak.quantities import counted
from visleak.reporting import Document
from visleak.training.encoder import TrainedEncoder

#: Names of the scores.
_SCORES: Final = {
    "accuracy": "accuracy",
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
