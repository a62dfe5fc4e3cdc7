"""CSV files in other encodings and with other marks than commas, wherever visleak reads them."""

import csv
import io

import pytest

from refusals import refusal
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.impact.predictions import read_predictions
from visleak.memorization.prompt_files import read_prompts
from visleak.verdicts.exchange import read_list


@pytest.mark.parametrize(
    ("encoding", "delimiter"),
    [
        ("utf-8", ","),
        ("utf-8", "|"),
        ("utf-8-sig", "\t"),
        ("utf-16", ","),
        ("utf-16", ";"),
        ("utf-32", ";"),
    ],
)
def test_tables_are_read_as_they_were_meant(tmp_path, picture, encoding, delimiter):
    def write(*rows):
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter).writerows(rows)
        path = tmp_path / "a.csv"
        path.write_bytes(text.getvalue().encode(encoding))
        return path

    picture(8, 8).save(tmp_path / "ä.png")
    images = open_images(write(("path", "label"), ("ä.png", "x, y; z")))
    assert images.ids.to_pylist() == ["ä.png"]
    assert images.labels.to_pylist() == ["x, y; z"]
    file = read_predictions(write(("id", "prediction", "score:a"), ("ä.png", "x, y; z", "0.5")))
    assert file.columns["prediction"].to_pylist() == ["x, y; z"]
    ((values, _),) = file.scores()
    assert values.tolist() == [[0.5]]
    (judged,), _ = read_list(write(("TestID", "TrainID", "Judgment"), ("ä;b", "c, d", "1")))
    assert (judged.test, judged.train) == ("ä;b", "c, d")
    found = read_prompts(write(("prompt", "source"), ("a cat, ä; b", "web")))
    assert found.texts == ("a cat, ä; b",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("path,label\na.png,x\n".encode("utf-16-le"), ("UTF-16", "byte order mark")),
        ("path,label\na.png,é\n".encode("latin-1"), ("UTF-8", "save it as UTF-8")),
        ("path,é\na.png,x\n".encode("latin-1"), ("UTF-8", "save it as UTF-8")),
        (b"\xff\xfep\x00a\x00t", ("UTF-16",)),
    ],
)
def test_what_is_not_sure_is_named(tmp_path, content, words):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    message = refusal(VisleakError, open_images, str(path))
    assert all(word in message for word in (str(path), *words)), message
