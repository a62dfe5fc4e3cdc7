"""What a training leaves: our json, and YOLO's own files as its repositories write them."""

import json
import math

import numpy as np
import pytest

from refusals import refusal
from visleak.dlede.train import TrainingFailed
from visleak.dlede.trainers.command import read_json, read_yolo

ROWS = {"a.png": 0, "/data/a.png": 0, "b.png": 1}


def of_json(folder, content):
    path = folder / "metrics.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_json(path, ROWS, 2)


@pytest.mark.parametrize(
    ("given", "f1"),
    [
        ({"precision": 0.5, "recall": 1, "loss": 3.5e3}, 2 / 3),
        ({"precision": 0, "recall": 0, "map50": 0}, 0.0),
        # table 1 of the paper: means of .553 and .469 beside a mean F1 of .49
        ({"precision": 0.553, "recall": 0.469, "f1": 0.49, "map50": 0.486}, 0.49),
    ],
)
def test_any_numbers_are_metrics_and_a_given_f1_is_kept(tmp_path, given, f1):
    outcome = of_json(tmp_path, given)
    assert outcome.metrics == given | {"f1": pytest.approx(f1)}
    assert outcome.about == {"result": "metrics.json"}


def test_what_is_no_number_is_left_out_and_named(tmp_path):
    text = '{"map50": 0.5, "model": "yolo", "sizes": [1], "ap_small": NaN, "gone": null, "on": true'
    outcome = of_json(tmp_path, text + f', "about": {{}}, "huge": {10**400}}}')
    assert outcome.metrics == {"map50": 0.5}
    texts = {"model": "a text", "sizes": "a list", "ap_small": "NaN", "gone": "null", "on": "true"}
    more = {"about": "an object", "huge": "too large a number"}
    assert outcome.about["left_out"] == texts | more


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"map50": "0.6"}, "map50 is '0.6', a text; it must be a number from 0 to 1"),
        ('{"map50": NaN}', "map50 is NaN; it must be a number"),
        ({"map50": True}, "map50 is true; it must be a number"),
        ({"map50": 62.3}, "map50 is 62.3; it is a share from 0 to 1; percent are to be divided"),
        ({}, "metrics.json has no metric; it needs precision, recall, map50 and f1"),
        ([0.5], "metrics.json holds a list; it must be an object"),
        ('{"map50": 0.6, "f1"', "metrics.json cannot be read as json: "),
        ("[" * 100_000, "metrics.json cannot be read as json: "),
        ('{"a": ' + "9" * 5000 + "}", "metrics.json cannot be read as json: "),
        ({"map50": 0.5, "images": [1]}, '"images" must be {metric: {image: number}}'),
        ({"map50": 0.5, "images": {"f1": {"a.png": "1"}}}, '"images" must be {metric: {image:'),
        ({"map50": 0.5, "images": {"f1": {"c.png": 1}}}, "names 'c.png', which is neither id nor"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(tmp_path, content, text):
    assert text in refusal(TrainingFailed, of_json, tmp_path, content)


def test_images_are_found_by_id_and_by_path(tmp_path):
    images = {"f1": {"/data/a.png": 0.25, "b.png": None}, "found": {"b.png": 3}}
    outcome = of_json(tmp_path, {"map50": 0.5, "images": images})
    np.testing.assert_array_equal(outcome.images["f1"], [0.25, math.nan])
    np.testing.assert_array_equal(outcome.images["found"], [math.nan, 3])


def test_a_file_of_many_mebibytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.dlede.trainers.command.MAX_BYTES", 1 << 20)
    text = '{"map50": 0.5' + " " * (1 << 20) + "}"
    assert "is larger than 1 MiB" in refusal(TrainingFailed, of_json, tmp_path, text)


def padded(text, width, after=""):
    """Return rows of cells as YOLO's own files pad them."""
    lines = [after.join(f"{cell:>{width}}" for cell in line.split()) for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines)


#: Rows as train.py of WongKinYiu/yolov7 formats them.
YOLOV7 = padded(
    """98/99 10.9G 0.04123 0.01987 0.004321 0.06542 37 640 0.91 0.92 0.93 0.94 0.04 0.02 0.003
    99/99 10.9G 0.04123 0.01987 0.004321 0.06542 37 640 0.6899 0.6281 0.679 0.4123 0.041 0.02 0""",
    10,
)
#: utils/loggers of ultralytics/yolov5.
YOLOV5 = padded(
    """epoch train/box_loss metrics/precision metrics/recall metrics/mAP_0.5 metrics/mAP_0.5:0.95
    98 0.1 0.95 0.95 0.95 0.95
    99 0.02 0.6899 0.6281 0.679 0.4123""",
    *(20, ","),
)
ULTRALYTICS = (
    "epoch,time,train/box_loss,metrics/precision(B),metrics/recall(B),metrics/mAP50(B)"
    ",metrics/mAP50-95(B),val/box_loss,lr/pg0\n"
    "99,90.1,1.1,0.95,0.95,0.95,0.95,1.0,0.001\n"
    "100,91.2,1.1,0.6899,0.6281,0.679,0.4123,1.0,0.001\n"
)


@pytest.mark.parametrize(
    ("name", "text", "epoch"),
    [
        ("results.txt", YOLOV7, "99/99"),
        ("results.csv", YOLOV5, "99"),
        ("results.csv", ULTRALYTICS, "100"),
    ],
)
def test_the_last_epoch_counts_though_another_was_better(tmp_path, name, text, epoch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text(text)
    outcome = read_yolo(tmp_path)
    f1 = 2 * 0.6899 * 0.6281 / (0.6899 + 0.6281)
    assert outcome.metrics == pytest.approx(
        {"precision": 0.6899, "recall": 0.6281, "map50": 0.679, "map50_95": 0.4123, "f1": f1}
    )
    assert outcome.about == {"result": name, "epoch": epoch}


@pytest.mark.parametrize(
    ("names", "metrics"),
    [
        # of boxes, with masks beside them; and of a classifier
        ("metrics/mAP50(B),metrics/mAP50(M)", {"map50": 0.5}),
        ("metrics/accuracy_top1,metrics/accuracy_top5", {"accuracy": 0.5, "accuracy_top5": 0.9}),
    ],
)
def test_other_columns_of_ultralytics(tmp_path, names, metrics):
    (tmp_path / "results.csv").write_text(f"epoch,{names},val/loss\n1,0.5,0.9,0.7\n")
    assert read_yolo(tmp_path).metrics == metrics


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "it left no result: no results.txt or results.csv in "),
        ({"a/results.txt": YOLOV7, "b/results.csv": YOLOV5}, "it left 2 results, a/results.txt"),
        ({"results.txt": ""}, "results.txt does not end with a row of YOLOv7's: 15 columns"),
        ({"results.txt": YOLOV7[:-30]}, "results.txt does not end with a row of YOLOv7's"),
        ({"results.txt": YOLOV7.replace("0.679", "  abc")}, "map50 is 'abc', no number"),
        ({"results.csv": ""}, "has no column such as metrics/mAP50(B) or metrics/mAP_0.5; it has"),
        ({"results.csv": ULTRALYTICS[:-20]}, "results.csv does not end with a whole row"),
    ],
)  # fmt: skip
def test_what_is_no_result_of_yolo_is_refused_in_one_line(tmp_path, files, text):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert text in refusal(TrainingFailed, read_yolo, tmp_path)


def test_what_was_handed_over_is_no_result(tmp_path):
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "results.txt").write_text(YOLOV7)
    with pytest.raises(TrainingFailed, match="it left no result"):
        read_yolo(tmp_path, apart="given")
    assert read_yolo(tmp_path).metrics["map50"] == 0.679
