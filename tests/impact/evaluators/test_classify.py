"""A classifier over a set: what is written, against loops of its own; bad files; the real one."""

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_classifiers as small
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.special import softmax
from sklearn.metrics import accuracy_score, top_k_accuracy_score

from visleak.errors import UsageError, VisleakError
from visleak.formats import open_image_set
from visleak.impact.evaluators.classification import NONE, classify, hits, ranked
from visleak.impact.evaluators.classifiers import Classifier, load_classifier

torch = pytest.importorskip("torch")
pytest.importorskip("torchmetrics")

DATA = os.environ.get("VISLEAK_DATA")


def test_answers_of_a_set(labelled, tmp_path, images, resnet):
    done = classify(images, resnet, tmp_path / "p.parquet")
    table = pq.read_table(done.file).to_pylist()
    files = [labelled / row["id"] for row in table]
    assert sorted(files) == sorted(labelled.rglob("*.png"))
    logits = small.directly(small.cifar_resnet(9), map(Image.open, files))
    names = sorted(place.name for place in labelled.iterdir())
    for row, outputs in zip(table, logits, strict=True):
        order = np.argsort(-outputs)
        assert row["predictions"] == [names[k] for k in order[:5]]
        assert row["prediction"] == names[order[0]]
        assert row["label"] == Path(row["id"]).parent.name
        likely = np.exp(outputs - outputs.max())
        assert row["confidence"] == pytest.approx(likely.max() / likely.sum(), abs=1e-4)
    right = [row["label"] == row["prediction"] for row in table]
    five = [row["label"] in row["predictions"] for row in table]
    assert (done.accuracy.count, done.accuracy.total) == (sum(right), 36)
    assert (done.top_5.count, done.top_5.total) == (sum(five), 36)
    assert 0 < sum(right) < sum(five) < 36


def test_what_made_the_predictions(tmp_path, images, resnet):
    object.__setattr__(images, "source", "https://me:secret@host/a.tar?sig=abc")
    done = classify(images, resnet, tmp_path / "p.parquet")
    about = json.loads(pq.read_schema(done.file).metadata[b"visleak"])
    assert (about["evaluator"], about["classes"]["count"]) == ("classify", 9)
    assert about["model"]["digest"] == load_classifier(resnet).digest
    assert about["set"]["source"] == "https://host/a.tar"
    assert (about["set"]["images"], about["set"]["unreadable"]) == (36, 0)


def test_bad_pictures_have_no_row(labelled, tmp_path, resnet):
    folder = tmp_path / "set"
    (folder / "moon").mkdir(parents=True)
    whole = (labelled / "moon" / "0.png").read_bytes()
    files = {"a.png": whole, "b.png": b"no picture", "c.png": whole, "d.png": whole[:200]}
    for name, content in files.items():
        (folder / "moon" / name).write_bytes(content)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(sorted(place.name for place in labelled.iterdir())))
    done = classify(open_image_set(str(folder)), resnet, tmp_path / "p.parquet", classes=names)
    assert pq.read_table(done.file)["id"].to_pylist() == ["moon/a.png", "moon/c.png"]
    assert (done.images, done.unreadable) == (2, 2)
    with done.unreadable_file.open(newline="") as lines:
        assert [row["id"] for row in csv.DictReader(lines)] == ["moon/b.png", "moon/d.png"]
    for name in ("a.png", "c.png"):
        (folder / "moon" / name).unlink()
    with pytest.raises(VisleakError, match=r"^none of the 2 images of set 'set' could be"):
        classify(open_image_set(str(folder)), resnet, tmp_path / "q.parquet", classes=names)
    assert not (tmp_path / "q.parquet").exists()


class Odd:
    """A network whose outputs are no numbers where an image is dark."""

    name, digest, enough, width, batch = "odd", "d", 0, 3, 4
    precision, device = "fp16", "cpu"

    def preparation(self, picture):
        return picture.pixels[:4, :4]

    def outputs(self, prepared):
        made = np.stack([each.mean(axis=(0, 1)) for each in prepared]).astype(np.float32)
        made[made.sum(axis=1) < 60] = np.nan
        return made


def grey(folder, *levels):
    folder.mkdir()
    for level in levels:
        Image.fromarray(np.full((8, 8, 3), level, np.uint8)).save(folder / f"{level}.png")
    return folder


def test_outputs_that_are_no_numbers(tmp_path):
    images = open_image_set(str(grey(tmp_path / "set", 10, 100, 200)))
    done = classify(images, Classifier(Odd(), {}), tmp_path / "p.csv")
    assert (done.images, done.unreadable) == (2, 1)
    assert "the model odd made no numbers of it in fp16; use --precision fp32" in (
        done.unreadable_file.read_text()
    )


def test_a_network_that_fails(tmp_path):

    class Failing(Odd):
        def outputs(self, prepared):
            raise RuntimeError("out of memory\nat line 3")

    images = open_image_set(str(grey(tmp_path / "set", 100)))
    with pytest.raises(VisleakError, match=r"^model odd ran out of memory on cpu with 1 images"):
        classify(images, Classifier(Failing(), {}), tmp_path / "p.csv")
    assert [each.name for each in tmp_path.iterdir()] == ["set"]


def test_a_set_without_labels(networks, labelled, tmp_path):
    folder = tmp_path / "flat"
    folder.mkdir()
    for number, file in enumerate(sorted(labelled.rglob("*.png"))[:5]):
        (folder / f"{number}.png").write_bytes(file.read_bytes())
    images = open_image_set(str(folder))
    assert images.labels is None
    done = classify(images, f"onnx:{networks}/r.onnx", tmp_path / "p.csv")
    assert (done.accuracy, done.top_5, done.rule) == (None, None, "the numbers of the outputs")
    rows = list(csv.DictReader(io.StringIO(done.file.read_text())))
    assert list(rows[0]) == ["id", "prediction", "confidence"]
    assert {row["prediction"] for row in rows} <= set("012345678")
    with pytest.raises(UsageError, match="--restrict needs labels, and set 'flat' has none"):
        classify(images, f"onnx:{networks}/r.onnx", tmp_path / "q.csv", restrict=True)
    with pytest.raises(UsageError, match="the scores of all classes need a"):
        classify(images, f"onnx:{networks}/r.onnx", tmp_path / "q.csv", scores=True)


def test_a_model_of_more_classes_than_the_set(labelled, tmp_path):
    names = ["moon", "cat", "brick", "dog", "grass", "fish"]
    folder, place = small.write_hf(tmp_path / "m", names), tmp_path / "set"
    place.mkdir()
    for name in names[::2]:
        (place / name).symlink_to(labelled / name)
    images = open_image_set(str(place))
    free = classify(images, f"hf:{folder}", tmp_path / "a.parquet", scores=True)
    bound = classify(images, f"hf:{folder}", tmp_path / "b.parquet", scores=True, restrict=True)
    a, b = (pq.read_table(each.file) for each in (free, bound))
    scores = np.array(a["scores"].to_pylist(), np.float32)
    assert [names[k] for k in scores.argmax(axis=1)] == a["prediction"].to_pylist()
    assert json.loads(a.schema.metadata[b"classes"]) == names
    assert set(a["prediction"].to_pylist()) - set(names[::2])
    own = scores[:, ::2]
    assert json.loads(b.schema.metadata[b"classes"]) == names[::2]
    np.testing.assert_array_equal(np.array(b["scores"].to_pylist(), np.float32), own)
    assert [names[2 * k] for k in own.argmax(axis=1)] == b["prediction"].to_pylist()
    likely = softmax(own.astype(float), axis=1).max(axis=1)
    np.testing.assert_allclose(b["confidence"], likely, rtol=1e-5)
    assert free.top_5 is not None
    assert bound.top_5 is None
    table = classify(images, f"hf:{folder}", tmp_path / "a.csv").file.read_text()
    among = [int(row["top-5"]) for row in csv.DictReader(io.StringIO(table))]
    assert sum(among) == free.top_5.count


def test_labels_that_the_model_lacks_count_as_wrong(labelled, tmp_path):
    folder = small.write_hf(tmp_path / "m", ["moon", "brick", "cat"])
    place = tmp_path / "set.csv"
    rows = [("moon", "moon"), ("brick", "brick"), ("grass", "grass"), ("coins", "")]
    lines = [f"{labelled}/{name}/{n}.png,{label}" for name, label in rows for n in range(2)]
    place.write_text("\n".join(["path,label", *lines]))
    done = classify(open_image_set(str(place)), f"hf:{folder}", tmp_path / "p.parquet")
    assert done.accuracy.total == 6
    assert done.accuracy.count <= 4
    assert done.notes == (
        "labels of the set that are not a class of the model: grass; their 2 images count as wrong",
        "images without a label, which are not counted: 2",
    )
    assert pq.read_table(done.file)["label"].null_count == 2


def test_a_second_run_takes_outputs_from_the_cache(tmp_path, monkeypatch, images, resnet):
    cache, calls = tmp_path / "cache", []
    forward = Classifier.forward

    def counted(self, prepared):
        calls.append(len(prepared))
        return forward(self, prepared)

    monkeypatch.setattr(Classifier, "forward", counted)
    files = [classify(images, resnet, tmp_path / f"{n}.parquet", cache=cache).file for n in (1, 2)]
    assert sum(calls) == 36
    assert files[0].read_bytes() == files[1].read_bytes()
    recipe = small.write_recipe(tmp_path / "half.json", std=[0.5, 0.5, 0.5])
    classify(images, f"{resnet}&prep={recipe}", tmp_path / "other.parquet", cache=cache)
    classify(images, resnet, tmp_path / "none.parquet")
    assert sum(calls) == 3 * 36


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="VISLEAK_DATA is not set: no trained network to run")
def test_a_published_network_on_cifar10(tmp_path):
    """500 test images; about 91.7 % are right."""
    weights = Path(DATA) / "models" / "resnet20-cifar10.th"
    table = pq.read_table(Path(DATA) / "cifar10" / "test.parquet").slice(0, 500)
    pq.write_table(table, tmp_path / "some.parquet")
    done = classify(
        open_image_set(str(tmp_path / "some.parquet"), label="label"),
        f"checkpoint:{weights}?arch=resnet20",
        tmp_path / "p.parquet",
    )
    assert done.rule == "the labels are numbers of outputs"
    assert 0.89 < done.accuracy.share < 0.95


def outputs(seed, images, classes):
    return np.random.default_rng(seed).normal(0, 3, (images, classes)).astype(np.float32)


@given(st.integers(0, 99), st.integers(1, 40), st.integers(2, 12))
def test_accuracy_and_top_5_by_two_libraries_and_by_hand(seed, images, classes):
    made = outputs(seed, images, classes)
    targets = np.random.default_rng(seed + 1).integers(0, classes, images)
    found = ranked(made, np.ones(classes, bool))
    right = hits(found.best, targets)
    assert right[:, 0].mean() == accuracy_score(targets, made.argmax(axis=1))
    if classes > 5:
        five = top_k_accuracy_score(targets, made, k=5, labels=np.arange(classes))
        assert right.any(axis=1).mean() == pytest.approx(five)
    for row, target in enumerate(targets):
        place = sorted(range(classes), key=lambda c, r=row: -made[r, c]).index(target)
        assert right[row].tolist() == [place == k for k in range(5)]


def test_equal_outputs_and_few_classes():
    found = ranked(np.array([[1, 2, 2]], np.float32), np.ones(3, bool))
    assert found.best.tolist() == [[1, 2, 0, NONE, NONE]]
    assert hits(found.best, np.array([-1])).tolist() == [[False] * 5]
    assert hits(found.best, np.array([0])).tolist() == [[False, False, True, False, False]]


def test_probabilities_are_taken_as_they_are():
    likely = softmax(outputs(1, 20, 7).astype(float), axis=1).astype(np.float32)
    found = ranked(likely, np.ones(7, bool))
    np.testing.assert_allclose(found.confidence, likely.max(axis=1), rtol=1e-6)
    nothing = np.array([[0, 0, 1]], np.float32)
    assert ranked(nothing, np.array([True, True, False])).confidence.tolist() == [0.5]
