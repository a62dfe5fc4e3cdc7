"""Pairs go to Label Studio as tasks, and its annotations come back as verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from visleak.errors import UsageError, VisleakError
from visleak.export import export
from visleak.verdicts import read_verdicts
from visleak.verdicts.exchange import import_verdicts


def annotated(tasks: list[dict], choices: list[str]) -> list[dict]:
    """Return tasks as Label Studio exports them, one choice each."""
    return [
        task
        | {
            "id": number,
            "annotations": [
                {
                    "completed_by": {"id": 3, "email": "ada@example.org"},
                    "was_cancelled": False,
                    "created_at": "2026-01-02T03:04:05.678901Z",
                    "result": [
                        {"from_name": "grade", "to_name": "query", "type": "choices",
                         "value": {"choices": [choice]}},
                    ],
                }
            ],
        }
        for number, (task, choice) in enumerate(zip(tasks, choices, strict=True), 1)
    ]  # fmt: skip


def test_pairs_return_as_verdicts(folder: Path, tmp_path: Path) -> None:
    tasks, interface = export(folder, "labelstudio", tmp_path / "tasks.json")
    written = json.loads(tasks.read_text())
    assert [task["predictions"][0]["result"][0]["value"]["choices"] for task in written] == [
        ["exact"],
        ["near"],
    ]
    assert all(task["data"]["query_image"].startswith("data:image/") for task in written)
    view = ElementTree.parse(interface).getroot()
    fields = {value[1:] for tag in view.iter() if (value := tag.get("value", "")).startswith("$")}
    assert fields <= written[0]["data"].keys()
    (tmp_path / "done.json").write_text(json.dumps(annotated(written, ["exact", "similar"])))
    found = import_verdicts(folder, tmp_path / "done.json")
    assert (found.added, found.unknown, found.reviewers) == (2, 0, ("ada@example.org",))
    assert [v.judgment for v in read_verdicts(folder)] == ["exact", "similar"]
    # again: nothing new
    assert import_verdicts(folder, tmp_path / "done.json").added == 0


def test_skipped_tasks_and_numbers_of_annotators(folder: Path, tmp_path: Path) -> None:
    tasks, _ = export(folder, "labelstudio", tmp_path / "tasks.json")
    done = annotated(json.loads(tasks.read_text()), ["near", "near"])
    done[0]["annotations"][0]["was_cancelled"] = True
    done[1]["annotations"][0]["completed_by"] = 7
    (tmp_path / "done.json").write_text(json.dumps(done))
    assert import_verdicts(folder, tmp_path / "done.json").reviewers == ("labelstudio-7",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "JSON"),
        ("{}", "list of tasks"),
        ("[7]", "task 1"),
        ('[{"data": {}}]', "query_digest"),
        ('[{"data": {"query_digest": 1}}]', "task 1"),
    ],
)
def test_other_files_are_refused_by_name(
    folder: Path, tmp_path: Path, text: str, named: str
) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(VisleakError, match=named) as error:
        import_verdicts(folder, tmp_path / "other.json")
    assert "other.json" in str(error.value)
    assert not read_verdicts(folder)


def test_an_unknown_grade_is_refused(folder: Path, tmp_path: Path) -> None:
    tasks, _ = export(folder, "labelstudio", tmp_path / "tasks.json")
    done = annotated(json.loads(tasks.read_text()), ["near", "maybe"])
    (tmp_path / "done.json").write_text(json.dumps(done))
    with pytest.raises(VisleakError, match=r"task 2.*maybe"):
        import_verdicts(folder, tmp_path / "done.json")
    tasks.unlink()
    with pytest.raises(UsageError, match=r"tasks\.xml"):
        export(folder, "labelstudio", tmp_path / "tasks.json")


def test_images_that_are_gone_are_named_and_nothing_is_written(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "test" / "1.png").unlink()
    with pytest.raises(VisleakError, match=r"1\.png of test"):
        export(folder, "labelstudio", tmp_path / "tasks.json")
    assert not list(tmp_path.glob("tasks*"))
