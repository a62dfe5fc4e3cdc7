"""Verdicts from annotations of Label Studio, on the tasks that ``export`` writes for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.verdicts.record import Verdict

#: Fields of a task's data that a verdict needs: content digests and names of both images.
DIGESTS: Final = ("query_digest", "reference_digest")
NAMES: Final = ("query_set", "query", "reference_set", "reference")

#: Name of the control whose choice is the verdict.
CONTROL: Final = "grade"

Node = Mapping[str, object]


def read_annotations(path: Path) -> tuple[Verdict, ...]:
    """Return the verdicts in a JSON export of Label Studio; skipped tasks have none."""
    try:
        tasks = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(tasks, list):
        raise VisleakError(
            f"{path} is not a JSON export of Label Studio: it must be a list of tasks"
        )
    found: list[Verdict] = []
    for number, task in enumerate(tasks, 1):
        try:
            found += _verdicts(task)
        except (KeyError, TypeError, AttributeError, UsageError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else error
            raise VisleakError(
                f"{path}, task {number}: {what}; export the tasks with visleak export --format"
                " labelstudio, and the annotations as JSON"
            ) from error
    return tuple(found)


def _verdicts(task: Node) -> Iterator[Verdict]:
    data = _node(task["data"])
    left, right = (_text(data[name]) for name in DIGESTS)
    about = {name: _text(data[name]) for name in NAMES}
    annotations = task["annotations"]
    if not isinstance(annotations, list):
        raise TypeError("its annotations must be a list")
    for annotation in map(_node, annotations):
        if annotation.get("was_cancelled"):
            continue
        time = annotation.get("updated_at") or annotation.get("created_at")
        stamp = {"time": time} if isinstance(time, str) else {}
        for judgment in _choices(annotation):
            who = _reviewer(annotation.get("completed_by"))
            yield Verdict.of(left, right, judgment, who, **about, **stamp)


def _choices(annotation: Node) -> Iterator[str]:
    results = annotation["result"]
    if not isinstance(results, list):
        raise TypeError("the result of an annotation must be a list")
    for result in map(_node, results):
        choices = _node(result.get("value")).get("choices")
        if result.get("from_name") == CONTROL and isinstance(choices, list) and choices:
            yield _text(choices[0])


def _reviewer(annotator: object) -> str:
    """Return the name of an annotator: Label Studio gives a number, or a record with an address."""
    if isinstance(annotator, Mapping):
        annotator = annotator.get("email") or annotator.get("id")
    return f"labelstudio-{annotator}" if isinstance(annotator, int) else _text(annotator)


def _node(value: object) -> Node:
    if not isinstance(value, Mapping):
        raise TypeError("it is not a task of Label Studio with annotations")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text was expected; got {value!r}")
    return value
