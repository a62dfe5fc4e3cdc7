"""What a training leaves: our json, and YOLO's own files as its repositories write them."""

import json
import math

import numpy as np
import pytest

from refusals import refusal
from visleak.dlede.train import TrainingFailed
from visleak.dlede.trainers.command import f1_of, read_json, read_yolo

ROWS = {"a.png": 0, "/data/a.png": 0, "b.png": 1}


def of_json(folder, content):
    path = folder / "metrics.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_json(path, ROWS, 2)


def said(folder, content):
    with pytest.raises(TrainingFailed) as caught:
        of_json(folder, content)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_any_numbers_are_metrics(tmp_path):
    outcome = of_json(tmp_path, {"precision": 0.5, "recall": 1, "map50": 0.25, "loss": 3.5e3})
    assert outcome.metrics == {
        "precision": 0.5, "recall": 1.0, "map50": 0.25, "loss": 3500.0, "f1": 2 / 3,
    }  # fmt: skip
    assert outcome.about == {"result": "metrics.json"}


def test_f1_that_is_given_is_kept_though_it_is_not_that_of_precision_and_recall(tmp_path):
    # table 1 of the paper: means of .553 and .469 beside a mean F1 of .49
    given = {"precision": 0.553, "recall": 0.469, "f1": 0.49, "map50": 0.486}
    assert of_json(tmp_path, given).metrics == given


def test_what_is_no_number_is_left_out_and_named(tmp_path):
    text = '{"map50": 0.5, "model": "yolo", "sizes": [1], "ap_small": NaN, "gone": null, "on": true'
    outcome = of_json(tmp_path, text + f', "about": {{}}, "huge": {10**400}}}')
    assert outcome.metrics == {"map50": 0.5}
    assert outcome.about["left_out"] == {
        "model": "a text", "sizes": "a list", "ap_small": "NaN", "gone": "null", "on": "true",
        "about": "an object", "huge": "too large a number",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"map50": "0.6"}, "map50 is '0.6', a text; it must be a number from 0 to 1"),
        ('{"map50": NaN}', "map50 is NaN; it must be a number"),
        ({"map50": True}, "map50 is true; it must be a number"),
        ({"map50": [0.5]}, "map50 is a list; it must be a number"),
        ({"map50": 62.3}, "map50 is 62.3; it is a share from 0 to 1; percent are to be divided"),
        ({"map50": 1e9}, "map50 is 1e+09; it is a share from 0 to 1"),
        ({}, "metrics.json has no metric; it needs precision, recall, map50 and f1"),
        ([0.5], "metrics.json holds a list; it must be an object"),
        ("0.5", "metrics.json holds 0.5; it must be an object"),
        ('{"map50": 0.6, "f1"', "metrics.json cannot be read as json: "),
        ("[" * 100_000, "metrics.json cannot be read as json: "),
        ('{"a": ' + "9" * 5000 + "}", "metrics.json cannot be read as json: "),
        ({"map50": 0.5, "images": [1]}, '"images" must be {metric: {image: number}}'),
        ({"map50": 0.5, "images": {"f1": {"a.png": "1"}}}, '"images" must be {metric: {image:'),
        ({"map50": 0.5, "images": {"f1": {"c.png": 1}}}, "names 'c.png', which is neither id nor"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(tmp_path, content, text):
    assert text in said(tmp_path, content)


def test_images_are_found_by_id_and_by_path(tmp_path):
    images = {"f1": {"/data/a.png": 0.25, "b.png": None}, "found": {"b.png": 3}}
    outcome = of_json(tmp_path, {"map50": 0.5, "images": images})
    np.testing.assert_array_equal(outcome.images["f1"], [0.25, math.nan])
    np.testing.assert_array_equal(outcome.images["found"], [math.nan, 3])


def test_a_file_of_many_mebibytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.dlede.trainers.command.MAX_BYTES", 1 << 20)
    text = '{"map50": 0.5' + " " * (1 << 20) + "}"
    assert said(tmp_path, text) == "metrics.json is larger than 1 MiB"


def yolov7_row(epoch, results):
    """Return a row as train.py of WongKinYiu/yolov7 formats it."""
    losses = (0.04123, 0.01987, 0.004321, 0.06542)
    row = ("%10s" * 2 + "%10.4g" * 6) % (epoch, "10.9G", *losses, 37, 640)
    return row + "%10.4g" * 7 % results + "\n"


YOLOV7 = (
    yolov7_row("98/99", (0.91, 0.92, 0.93, 0.94, 0.04, 0.02, 0.003))
    + yolov7_row("99/99", (0.6899, 0.6281, 0.679, 0.4123, 0.04102, 0.0213, 0.003211))
)  # fmt: skip

#: utils/loggers of ultralytics/yolov5: padded to twenty characters.
YOLOV5_NAMES = [
    "epoch", "train/box_loss", "train/obj_loss", "train/cls_loss", "metrics/precision",
    "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95", "val/box_loss", "val/obj_loss",
    "val/cls_loss", "x/lr0", "x/lr1", "x/lr2",
]  # fmt: skip


def yolov5_csv(*rows):
    head = ("%20s," * len(YOLOV5_NAMES) % tuple(YOLOV5_NAMES)).rstrip(",") + "\n"
    return head + "".join(("%20.5g," * len(row) % row).rstrip(",") + "\n" for row in rows)


YOLOV5 = yolov5_csv(
    (98, 0.1, 0.1, 0.1, 0.95, 0.95, 0.95, 0.95, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01),
    (99, 0.02, 0.01, 0.001, 0.6899, 0.6281, 0.679, 0.4123, 0.04, 0.02, 0.003, 3e-4, 3e-4, 3e-4),
)
ULTRALYTICS = (
    "epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/precision(B),metrics/recall(B)"
    ",metrics/mAP50(B),metrics/mAP50-95(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1"
    ",lr/pg2\n"
    "99,90.1,1.1,1.2,1.3,0.95,0.95,0.95,0.95,1.0,1.0,1.0,0.001,0.001,0.001\n"
    "100,91.2,1.1,1.2,1.3,0.6899,0.6281,0.679,0.4123,1.0,1.0,1.0,0.001,0.001,0.001\n"
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


def test_boxes_count_where_masks_stand_beside_them(tmp_path):
    (tmp_path / "results.csv").write_text("epoch,metrics/mAP50(B),metrics/mAP50(M)\n1,0.5,0.9\n")
    assert read_yolo(tmp_path).metrics == {"map50": 0.5}


def test_a_classifier_of_ultralytics(tmp_path):
    (tmp_path / "results.csv").write_text(
        "epoch,time,train/loss,metrics/accuracy_top1,metrics/accuracy_top5,val/loss\n"
        "5,4.2,0.8,0.75,0.95,0.7\n"
    )
    assert read_yolo(tmp_path).metrics == {"accuracy": 0.75, "accuracy_top5": 0.95}


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "it left no result: no results.txt or results.csv in "),
        ({"a/results.txt": YOLOV7, "b/results.csv": YOLOV5}, "it left 2 results, a/results.txt"),
        ({"results.txt": ""}, "results.txt does not end with a row of YOLOv7's: 15 columns"),
        ({"results.txt": YOLOV7[:-30]}, "results.txt does not end with a row of YOLOv7's"),
        ({"results.txt": YOLOV7.replace("0.679", "  abc")}, "map50 is 'abc', no number"),
        ({"results.csv": ""}, "has no column such as metrics/mAP50(B) or metrics/mAP_0.5; it has"),
        ({"results.csv": "epoch,loss\n1,2\n"}, "or metrics/mAP_0.5; it has epoch, loss"),
        ({"results.csv": ULTRALYTICS[:-20]}, "results.csv does not end with a whole row"),
        ({"results.csv": ULTRALYTICS.replace("0.679", "62.3")}, "map50 is 62.3; it is a share"),
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


def test_f1_of_nothing_found_is_zero():
    assert f1_of(0.0, 0.0) == 0.0
    assert f1_of(1.0, 0.5) == pytest.approx(2 / 3)
