"""Verdicts do not depend on who found a pair: the built-in fingerprint measures it in any case."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from networks import Network
from working import Listed

from visleak import Settings
from visleak.auditing import audit
from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline import candidates
from visleak.pipeline.candidates import views_for
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import VIEWS, Pairs, Unreadable


class Everything(Network):
    """Finds any two images similar: as built-in similarities, all would be near."""

    name, digest, width = "everything", "everything-1", 76

    def forward(self, prepared):
        rows = np.full((len(prepared), self.width), 0.01, np.float32)
        rows[:, :75] = 0.2 * super().forward(prepared)
        rows[:, 75] = 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def blobs(count, seed):
    rng = np.random.default_rng(seed)
    rough = rng.integers(0, 256, (count, 5, 5, 3), np.uint8)
    return [cv2.resize(one, (32, 32), interpolation=cv2.INTER_CUBIC) for one in rough]


@pytest.fixture(scope="module")
def sets():
    """Return tiny images and training ones: three copies, changed or seen in a mirror."""
    test, train = blobs(14, 0), blobs(20, 1)
    train[3] = test[2]
    train[7] = test[5][:, ::-1].copy()
    train[9] = np.clip(test[8] * 0.8 + 20, 0, 255).astype(np.uint8)
    return open_images(test, name="test"), open_images(train, name="train")


def verdicts(found):
    ends = ("query_set", "query", "reference_set", "reference")
    values = ("grade", "probability", "transform")
    rows = found.pairs().to_pylist()
    return {tuple(row[n] for n in ends): tuple(row[n] for n in values) for row in rows}


def pairs_of(query, reference):
    blank, count = np.zeros(len(query), np.float32), len(query)
    views, total = np.zeros(count, np.int8), np.zeros(14, np.int64)
    return Pairs("test", "train", query, reference, blank, blank, views, total)


def test_a_verdict_depends_on_the_pair_alone(sets):
    own = audit(*sets, settings=Settings(local=False), cache=None, workers=1)
    other = audit(*sets, settings=Settings(local=False), encoder=Everything(), cache=None)
    expected, found = verdicts(own), verdicts(other)
    common = expected.keys() & found.keys()
    assert len(common) > 100
    assert all(found[pair] == expected[pair] for pair in common)
    assert own.rate("near_or_exact").count == other.rate("near_or_exact").count >= 3
    # while degrees are the encoder's own: it calls everything a leak
    assert other.rate("soft").count + other.rate("hard").count == 14
    assert other.rate("exact").count == 1


def test_similarities_are_those_of_the_built_in_fingerprint(sets, tmp_path, monkeypatch):
    """Oracle: pair by pair, the highest over all compared views."""
    builtin, encoder = load_encoder("builtin"), Everything()
    monkeypatch.setattr(candidates, "PAIRS", 2)
    query, reference = np.array([2, 5, 5, 9, 2]), np.array([3, 7, 0, 0, 19])
    with RunContext.at(tmp_path, 1, None) as place:
        material = {s.name: EncodedSet(s, fingerprint(s, encoder, place)) for s in sets}
        pairs = pairs_of(query, reference)
        made, plain, same = (
            candidates.reference_similarities([pairs], material, own, views, place)[0]
            for own, views in ((encoder, "all"), (encoder, "none"), (builtin, "all"))
        )
        whole = [np.array(fingerprint(images, builtin, place).matrix) for images in sets]
    assert same is pairs
    for n in range(5):
        left, right = whole[0][query[n]][None], whole[1][reference[n]].astype(np.float64)
        seen = [
            float(np.float32((builtin.view(left, view).astype(np.float64) @ right)[0]))
            for view in views_for(builtin, "all")
        ]
        assert made.similarity[n] == max(seen)
        assert made.view[n] == int(np.argmax(seen))
        assert plain.similarity[n] == seen[0]
    assert VIEWS[made.view[1]] == "mirror"
    assert (made.background > 0.1).all()


def test_images_that_are_gone_by_then(sets, tmp_path):
    encoder, items = Everything(), blobs(14, 0)
    items[5] = Unreadable("missing")
    with RunContext.at(tmp_path, 1, None) as place:
        material = {s.name: EncodedSet(s, fingerprint(s, encoder, place)) for s in sets}
        gone = replace(sets[0], opener=Listed(items))
        material["test"] = replace(material["test"], images=gone)
        pairs = pairs_of(np.array([2, 5, 9]), np.array([3, 7, 4]))
        with pytest.raises(ImagesLost) as error:
            candidates.reference_similarities([pairs], material, encoder, "all", place)
    assert error.value.name == "test"
    assert [(at, why.reason) for at, why in error.value.refused] == [(5, "gone")]
