"""Objects with one method: made encoders, or refused in one line."""

import importlib
import linecache
import re
import sys

import numpy as np
import pytest
from objects import Means

from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.records import DecodedImage


def shown(count=5):
    rng = np.random.default_rng(0)
    made = [rng.integers(0, 256, (10 + n, 20 - n, 3), np.uint8) for n in range(count)]
    return [DecodedImage(pixels, pixels.shape[1], pixels.shape[0]) for pixels in made]


def test_vectors_are_those_of_the_object_at_unit_length():
    encoder = load_encoder(Means())
    assert (encoder.name, encoder.width) == ("Means", 6)
    vectors, blank = encoder.encode(shown())
    raw = Means().encode([picture.pixels for picture in shown()])
    np.testing.assert_allclose(vectors, raw / np.linalg.norm(raw, axis=1)[:, None], rtol=1e-6)
    assert blank.tolist() == [False] * 5


def test_attributes_of_the_object_are_used():
    calls = []

    class Told(Means):
        name, digest, width, batch, enough = "told", "told-1", 6, 2, 64
        thresholds = {"hard": 0.9, "soft": 0.8, "provenance": "measured"}  # noqa: RUF012

        def encode(self, images):
            calls.append(len(images))
            return super().encode(images)

    encoder = load_encoder(Told())
    assert (encoder.name, encoder.digest, encoder.enough) == ("told", "told-1", 64)
    assert encoder.thresholds == Told.thresholds
    assert encoder.lasting
    assert calls == []
    encoder.encode(shown())
    assert calls == [2, 2, 1]


def test_the_digest_follows_data_and_class():
    digests = [load_encoder(thing).digest for thing in (Means(), Means(), Means(2.0))]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
    assert load_encoder(Means()).lasting

    class Local(Means):
        pass

    # a class inside a function cannot be pickled by name
    assert not load_encoder(Local()).lasting


def test_the_digest_follows_the_source(tmp_path, monkeypatch):
    """The object's pickle only names its class: an edited method must not meet old vectors."""
    monkeypatch.syspath_prepend(tmp_path)
    text = (
        "class Edited:\n    def encode(self, images):\n        return [[float({})]] * len(images)\n"
    )
    digests = []
    for constant in (1, 2, 1):
        (tmp_path / "edited_encoder.py").write_text(text.format(constant))
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "edited_encoder", raising=False)
        linecache.clearcache()
        monkeypatch.setattr("sys.dont_write_bytecode", True)
        module = importlib.import_module("edited_encoder")
        digests.append(load_encoder(module.Edited()).digest)
    assert digests[0] == digests[2] != digests[1]


def returning(made, **attributes):
    def encode(self, images):
        return made(images) if callable(made) else made

    return type("Odd", (), {"encode": encode, **attributes})()


NOT_FLOATS = "; it must return an array of floats, one row per image"


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (lambda images: np.ones(4), "an array (4,) for 1 images; it must be (1, width)"),
        (lambda images: np.ones((2, 4)), "an array (2, 4) for 1 images; it must be (1, width)"),
        (lambda images: np.ones((1, 0)), "an array (1, 0) for 1 images; it must be (1, width)"),
        (lambda images: np.ones((1, 4), int), f"int64{NOT_FLOATS}"),
        (lambda images: None, f"object{NOT_FLOATS}"),
    ],
)
def test_other_outputs_are_refused_at_once(made, line):
    with pytest.raises(VisleakError, match=rf"^encode of Odd returned {re.escape(line)}$"):
        load_encoder(returning(made))


def test_an_object_that_fails_is_refused_at_once():
    with pytest.raises(VisleakError, match=r"^encode of Odd failed on a grey image .*IndexError"):
        load_encoder(returning(lambda images: images[9]))


def test_vectors_of_another_width_are_refused():
    encoder = load_encoder(returning(lambda images: np.ones((len(images), 3 + len(images)))))
    line = "encode of Odd returned vectors of 5 numbers; they must be of 4, as before"
    with pytest.raises(VisleakError, match=f"^{re.escape(line)}$"):
        encoder.forward([picture.pixels for picture in shown(2)])


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        ({"digest": 3}, "encoder Odd: digest must be a text; got 3"),
        ({"width": 0}, "encoder Odd: width must be a whole number, 1 or more; got 0"),
        ({"thresholds": (0.9, 0.8)}, "encoder Odd: thresholds must hold hard and soft, simil"),
    ],
)
def test_invalid_attributes_are_refused(attributes, line):
    with pytest.raises(UsageError, match=f"^{re.escape(line)}"):
        load_encoder(returning(lambda images: np.ones((len(images), 4)), **attributes))


def test_other_objects_are_refused():
    with pytest.raises(UsageError, match=r"^the encoder is the class Means; give an object of it$"):
        load_encoder(Means)
    with pytest.raises(UsageError, match=r"the encoder object lacks encode, .* got a dict$"):
        load_encoder({})
    with pytest.raises(UsageError, match=r"^an encoder object takes no options here; got batch$"):
        load_encoder(Means(), batch=3)
