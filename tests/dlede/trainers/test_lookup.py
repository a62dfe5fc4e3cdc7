"""The trainer that learns by heart: its curve is known before it is run."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import f1_score

from refusals import refusal
from visleak.dlede.draw import Draw, Split
from visleak.dlede.draw.draws import Sampler
from visleak.dlede.settings import Plan
from visleak.dlede.train import TrainingFailed, TrainingTask
from visleak.dlede.trainers import load_trainer
from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.images import decode
from visleak.progress import silent


def picture(seed):
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((48, 32), Image.Resampling.BICUBIC)


def split_of(folder, train, test):
    """A split of images: (label, name, seed) each; without a seed it cannot be read."""
    for side, images in (("train", train), ("test", test)):
        for label, name, seed in images:
            path = folder / side / label / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if seed is None:
                path.write_bytes(b"x")
            else:
                picture(seed).save(path)
    return Split(open_images(folder / "train"), open_images(folder / "test"))


def readied(split, folder, text="lookup"):
    (folder / "ready").mkdir(exist_ok=True)
    return load_trainer(text).prepare(split, folder / "ready", silent)


def trained(ready, split, kept, leaked, folder, seed=0):
    draw = Draw(np.array(kept, np.int64), np.array(leaked, np.int64))
    return ready.train(TrainingTask(split, draw, 10, 1, seed), folder)


def test_the_curve_of_a_clean_split_is_the_share_that_leaks(tmp_path):
    train = [("other", f"{at:02d}.png", at) for at in range(40)]
    test = [(f"class {at:02d}", "a.png", 100 + at) for at in range(20)]
    split = split_of(tmp_path, train, test)
    ready = readied(split, tmp_path)
    drawing = Sampler(split, Plan(steps=(0, 10, 20, 50, 100)))
    for step in (0, 10, 20, 50, 100):
        for repetition in (1, 2):
            draw = drawing.at(step, repetition)
            outcome = ready.train(TrainingTask(split, draw, step, repetition, repetition), tmp_path)
            assert outcome.metrics["accuracy"] == step / 100
            right = np.zeros(20)
            right[draw.leaked] = 1
            assert outcome.images["accuracy"].tolist() == right.tolist()


@pytest.mark.parametrize("encoder", ["builtin", "phash"])
def test_answers_are_those_of_a_plain_search(tmp_path, encoder):
    """One image after the other, by the same vectors; and scikit-learn's macro F1."""
    rng = np.random.default_rng(1)
    train = [(f"c{rng.integers(4)}", f"{at:02d}.png", at) for at in range(50)]
    test = [(f"c{rng.integers(5)}", f"t{at:02d}.png", 200 + at) for at in range(30)]
    split = split_of(tmp_path, train, test)
    ready = pickle.loads(pickle.dumps(readied(split, tmp_path, f"lookup:{encoder}")))
    kept, leaked = np.arange(5, 50), np.arange(0, 30, 6)
    task = TrainingTask(split, Draw(kept, leaked), 10, 1, 0)
    found = ready.train(task, tmp_path)

    def vectors(images):
        stored = images.opener.read(range(len(images)))
        return load_encoder(encoder).encode([decode(data) for data in stored])[0].astype(float)

    columns = task.train.ids.to_pylist(), task.train.labels.to_pylist(), vectors(task.train)
    known = sorted(zip(*columns, strict=True))
    answers = [
        max(known, key=lambda each: np.float32(each[2] @ asked))[1]  # the first of equal ones
        for asked in vectors(split.test)
    ]
    truth = split.test.labels.to_pylist()
    right = np.equal(answers, truth)
    assert found.images["accuracy"].tolist() == right.tolist()
    assert found.metrics["accuracy"] == pytest.approx(right.mean())
    assert found.metrics["f1"] == pytest.approx(f1_score(truth, answers, average="macro"))


def test_equally_alike_images_are_told_apart_by_id(tmp_path):
    train = [("z", "a.png", 1), ("m", "b.png", 1), ("x", "c.png", 2)]
    split = split_of(tmp_path, train, [("z", "t.png", 1), ("m", "u.png", 1)])
    ready = readied(split, tmp_path)
    assert split.train.ids.to_pylist() == ["m/b.png", "x/c.png", "z/a.png"]
    for seed in (0, 1):
        found = trained(ready, split, [0, 1, 2], [], tmp_path, seed)
        assert found.images["accuracy"].tolist() == [1, 0]
    assert trained(ready, split, [1, 2], [], tmp_path).images["accuracy"].tolist() == [0, 1]
    assert trained(ready, split, [1], [0, 1], tmp_path).images["accuracy"].tolist() == [1, 0]


def test_pictures_that_cannot_be_read(tmp_path):
    train = [("a", "1.png", 1), ("a", "bad.png", None), ("b", "2.png", 2)]
    split = split_of(tmp_path, train, [*train[::2], ("b", "bad.png", None)])
    ready = readied(split, tmp_path)
    found = trained(ready, split, [0, 1, 2], [], tmp_path)
    assert found.images["accuracy"].tolist() == [1, 1, 0]
    assert found.about == {"unreadable": 1}
    with pytest.raises(TrainingFailed, match=r"^none of the images to train on can be read$"):
        trained(ready, split, [1], [2], tmp_path)


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ([("a", "bad.png", None)], "no image of set 'test' can be read"),
        ([("a", "1.png", 1), (".", "2.png", 2)], "1 of 2 images of set 'test' have none; give -"),
        ([("a", "1.png", 1)], "similarity.npy cannot be written: Is a directory"),
    ],
)
def test_what_cannot_be_prepared_is_refused(tmp_path, test, said):
    split = split_of(tmp_path, [("a", "1.png", 1)], test)
    (tmp_path / "ready" / "similarity.npy").mkdir(parents=True)
    assert said in refusal(VisleakError, readied, split, tmp_path)


def test_it_works_without_torch():
    program = (
        "import sys; sys.modules['torch'] = None; from visleak.dlede import load_trainer;"
        " print(load_trainer('lookup').name)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"lookup\n"
