"""The one line for test suites: what passes, what fails, and what a failure says."""

import warnings

import cv2
import numpy as np
import pytest

import visleak
from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.export import export
from visleak.gating import LeakFound
from visleak.settings import Settings


@pytest.fixture(scope="module")
def data(tmp_path_factory, natural):
    """Two test images of three leak: a copy and a mirrored one."""
    root = tmp_path_factory.mktemp("asserted")
    small = {name: cv2.resize(picture, (64, 64)) for name, picture in natural.items()}
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        save(root / "train" / f"{name}.png", small[name])
    save(root / "test" / "copy.png", small["astronaut"])
    save(root / "test" / "mirrored.png", small["chelsea"][:, ::-1])
    save(root / "test" / "other.png", small["coins"])
    return root


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), pixels[..., ::-1])


def passes(*args, **options):
    return visleak.assert_no_leak(*args, **{"cache": None, "workers": 1, **options})


def failure(*args, **options):
    with pytest.raises(LeakFound) as found:
        passes(*args, **options)
    return str(found.value)


def test_a_leak_fails_and_names_the_worst_pairs(data):
    with pytest.raises(AssertionError) as found:
        passes(data / "test", data / "train")
    error = found.value
    assert isinstance(error, LeakFound)
    assert isinstance(error, VisleakError)
    headline, copy, mirrored, advice = str(error).splitlines()
    assert headline.startswith("2 of 3 test images (66.67 %, 95 % CI 20.77-93.85) have a near-dupl")
    assert headline.endswith(" in train; allowed 0.00 %")
    assert copy.startswith("  test copy.png = train astronaut.png: exact, probability 1.000, simil")
    assert mirrored.startswith("  test mirrored.png = train chelsea.png: near, probability ")
    assert "keep the audit with out=FOLDER, then visleak review FOLDER" in advice
    assert error.audit is not None
    assert error.audit.rate("near_or_exact").count == 2
    assert [each.rate.count for each in error.leaks] == [2]
    # pytest shows the line of the caller, and no frame of the package
    assert "visleak" not in [frame.path.parent.name for frame in found.traceback.filter(found)]
    passes(data / "test", data / "train", "exact", allowed=0.34)


def test_one_set_must_not_repeat_itself(natural):
    moon, coffee = (cv2.resize(natural[name], (64, 64)) for name in ("moon", "coffee"))
    message = failure([moon, moon, coffee])
    assert message.startswith("2 of 3 test images (66.67 %, 95 % CI 20.77-93.85) have")
    assert "elsewhere in the same set" in message.splitlines()[0]
    assert failure([moon], unreadable="ignore").startswith("test has no second image")


def test_pairs_of_a_baseline_pass(data, tmp_path):
    out = tmp_path / "out"
    message = failure(data / "test", data / "train", out=out)
    assert message.endswith(f"to review the images: visleak review {out}")
    passes(data / "test", data / "train", baseline=out)
    with pytest.raises(UsageError, match="is the output folder itself"):
        passes(data / "test", data / "train", baseline=out, out=out)
    (accepted,) = export(out, "accepted", tmp_path / "accepted.csv", grade="exact")
    message = failure(data / "test", data / "train", baseline=[accepted])
    assert message.startswith("1 of 3 test images (33.33 %, 95 % CI 6.15-79.23) has")
    assert "(1 more known from the baseline)" in message


def test_unreadable_images_are_reported(data, tmp_path):
    test = tmp_path / "test"
    pixels = cv2.imread(str(data / "test" / "other.png"))[..., ::-1]
    save(test / "other.png", pixels)
    (test / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    message = "of {} images could not be read, and were compared with nothing: test broken.png"
    # half of the test side was compared with nothing
    assert failure(test, data / "train").startswith(f"1 {message.format(6)}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        passes(test, data / "train", unreadable="ignore")
    for number in range(18):
        save(test / f"other{number}.png", pixels[number:])
    with pytest.warns(UserWarning, match=message.format(24)):
        passes(test, data / "train")
    assert failure(test, data / "train", unreadable="fail").startswith(f"1 {message.format(24)}")
    with pytest.raises(VisleakError, match="none of its 1 images could be read"):
        passes(data / "test", [test / "broken.png"], unreadable="ignore")


def test_missing_files_of_vectors_are_reported(tmp_path):
    rng = np.random.default_rng(0)
    for side, numbers in (("test", (0,)), ("train", (0, 1, 3))):
        (tmp_path / side).mkdir()
        for number in numbers:
            vectors = rng.standard_normal((5, 8)).astype(np.float32)
            np.save(tmp_path / side / f"img_emb_{number}.npy", vectors)
    sides = [f"emb:{tmp_path / side}?encoder=clip" for side in ("test", "train")]
    message = "1 of 4 files of train are missing, and were compared with nothing"
    assert failure(*sides, grade="hard").startswith(message)
    passes(*sides, grade="hard", unreadable="ignore")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grade": "nearly"}, "grade must be one of exact, near, similar, hard, soft; got 'nearl"),
        ({"allowed": 2}, "allowed must be a share between 0 and 1; got 2"),
        ({"unreadable": "no"}, "unreadable must be one of warn, ignore, fail; got 'no'"),
        ({"settings": Settings(verify=False)}, "grade 'near' needs verified pairs"),
        ({"grade": "hard", "encoder": "phash"}, "grade 'hard' was not measured: no thresholds"),
    ],
)
def test_wrong_arguments(options, message, data):
    assert message in refusal(UsageError, passes, data / "test", data / "train", **options)
