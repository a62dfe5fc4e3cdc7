"""Files of scores: what is read, and the one line that is said of what is not."""

import math

import numpy as np
import pytest

from refusals import refusal
from visleak.dlede.judge.scores import LIMIT, read_scores
from visleak.errors import UsageError, VisleakError


def written(folder, text, name="curve.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_repetitions_in_any_order_of_which_one_is_torn(tmp_path):
    text = "Repetition,f1,Step\n3,0.6,10\n1,0.5,0\n4,0.5,0\n3,0.52,0\n1,0.55,10\n"
    scores = read_scores(written(tmp_path, text))
    assert scores.repetitions == (1, 3, 4)
    assert np.array_equal(scores.of("f1")[:2], [[0.5, 0.55], [0.52, 0.6]])
    assert scores.complete((0, 10)).tolist() == [True, True, False]


def test_tabs_percent_signs_a_mark_of_utf8_and_empty_lines(tmp_path):
    text = "\ufeffstep\tf1\tloss\n\n0 %\t48.6%\t2.5\n10%\t 59.5 % \t1e0\n20.0\t\tnan\n"
    scores = read_scores(written(tmp_path, text, "curve.TSV"), lower=["loss"])
    assert np.allclose(scores.of("f1")[0], [0.486, 0.595, math.nan], equal_nan=True)
    assert np.allclose(scores.of("loss")[0], [2.5, 1.0, math.nan], equal_nan=True)
    assert scores.lower == frozenset({"loss"})


@pytest.mark.parametrize("name", ["f1", "F1-score", "mAP@0.5", "AP50", "Recall", "mIoU"])
def test_percent_without_a_sign_are_read_as_shares(tmp_path, name):
    text = f"step,{name},psnr\n0,48.6,30.5\n10,59.5,31\n20,100,0.5\n"
    scores = read_scores(written(tmp_path, text))
    assert scores.of(name)[0] == pytest.approx([0.486, 0.595, 1.0])
    assert scores.of("psnr").tolist() == [[30.5, 31, 0.5]]
    assert scores.rescaled == (name,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", " is empty: a file of scores has a column step, perhaps repetition, and metrics"),
        ("step,f1\n", " has no rows below its header: a file of scores has a column step,"),
        ("percent|f1\n0|.5\n", " has no column step, the percent of the test images that leak;"),
        ("step,f1,f1\n0,1,1\n", " has more than one column 'f1'; keep one"),
        ("step,f1,\n0,1,1\n", " has a column without a name; name it or remove it"),
        ("step,seconds\n0,1\n", " has no metric beside 'step', 'seconds'; add a column such as"),
        ("step,f1\n10,.5\n20,.6\n", " has no step 0, the run without leaks on purpose; its"),
        ("step,f1\n0,.5\n", " has only step 0; at least one with leaks is needed, too"),
        ("step,f1\n0,.5\n10,good\n", ", line 3, column 'f1': must be a number such as 0.486 or"),
        ("step,f1\n0,.5\n110,.6\n", ", line 3, column 'step': must be a whole number from 0 to"),
        ("step,repetition,f1\n0,,.5\n", ", line 2, column 'repetition': must be a whole number,"),
        ("step,f1\n0,.5\n10,.6\n10,.7\n", ", line 4, column 'step': step 10 is in line 3"),
        ("step,repetition,f1\n0,1,.5\n0,1,.6\n", ", line 3, column 'step': step 0 of repetition"),
        ("step,f1,note\n0,.5,\n10,.6,\n", ", column 'note' has no values; remove it"),
        ("step,f1\n0,48.6%\n10,59.5\n", "column 'f1': 59.5 is a percentage, and 0.486 in"),
        ("step,map50\n0,-0.1\n10,.5\n", "line 2, column 'map50': must be a share from 0 to 1"),
        ('step,"<img\nsrc=x>"\n0,1\n', " has a column '<img\\nsrc=x>'; name it by letters"),
    ],
)
def test_odd_files_give_one_line(tmp_path, text, said):
    path = written(tmp_path, text)
    assert said in refusal(VisleakError, read_scores, path)


def test_a_long_cell_is_cut_and_a_long_file_not_read(tmp_path):
    path = written(tmp_path, 'step,f1\n0,"' + "a\n" * 1000 + '"\n10,.5\n')
    assert len(refusal(VisleakError, read_scores, path)) < len(str(path)) + 200
    written(tmp_path, "step,f1\n" + "0,1\n" * (LIMIT // 4))
    assert "has more than 10 MiB" in refusal(VisleakError, read_scores, path)


def test_files_and_metrics_that_are_not_there(tmp_path):
    assert "there is no file of scores" in refusal(UsageError, read_scores, tmp_path / "no.csv")
    path = written(tmp_path, "step,f1,loss\n0,.5,1\n10,.6,1\n")
    assert "no metric 'los'; it has f1" in refusal(UsageError, read_scores, path, lower=["los"])
