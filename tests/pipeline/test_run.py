"""The whole run: samples, thresholds, names, modality."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.auditing import audit
from visleak.encoders import load_encoder
from visleak.errors import UsageError
from visleak.images import open_images
from visleak.pipeline.run import thresholds_of
from visleak.settings import Settings


def pictures(count, seed):
    """Return random smooth pictures, all different."""
    rng = np.random.default_rng(seed)
    return [
        np.kron(rng.integers(0, 256, (6, 6, 3)), np.ones((8, 8, 1))).astype(np.uint8)
        for _ in range(count)
    ]


def test_a_sample_is_of_the_queries(tmp_path):
    """As many as asked for, the same each time, and repeats within are not claimed."""
    test, train = open_images(pictures(30, 0), name="a"), open_images(pictures(9, 1), name="b")
    runs = [
        audit(test, train, settings=Settings(sample=7), out=tmp_path / str(n), cache=None)
        for n in range(2)
    ]
    sampled = [r.images().filter(pa_equal(r.images()["set"], "a"))["id"].to_pylist() for r in runs]
    assert len(sampled[0]) == 7
    assert sampled[0] == sampled[1]
    assert "repeats within the test sets: not looked for" in runs[0].summary["skipped"]
    assert runs[0].rate().total == 7


def pa_equal(column, value):
    """Return where a column has a value."""
    import pyarrow.compute as pc

    return pc.equal(column, value)


def test_a_set_alone_is_compared_whole():
    """A sample compared with itself would miss nearly all repeats."""
    with pytest.raises(UsageError, match="a set alone is compared whole: leave --sample out"):
        audit(open_images(pictures(9, 0)), settings=Settings(sample=3), cache=None)


@pytest.mark.parametrize(
    ("settings", "hard", "soft", "provisional"),
    [
        (Settings(), None, None, False),
        (Settings(hard=0.99, soft=0.9), 0.99, 0.9, False),
        (Settings(hard=0.3), 0.3, 0.3, False),
        (Settings(soft=0.97), 0.97, 0.97, False),
    ],
)
def test_thresholds_are_given_or_the_encoders_own(settings, hard, soft, provisional):
    """A given threshold wins; the other one gives way where they would cross."""
    encoder = load_encoder()
    own = encoder.thresholds
    found = thresholds_of(encoder, settings)
    assert found.hard == (own["hard"] if hard is None else hard)
    assert found.soft == (own["soft"] if soft is None else soft)
    assert found.provisional is provisional


def test_labels_of_a_training_set_were_exposed():
    """Modality is full where the annotation was there in training, or as the caller says."""
    test, train = pictures(4, 0), pictures(4, 1)
    queries = open_images(list(zip(test, "abcd", strict=True)), name="q", roles=("benchmark",))
    labelled = open_images(list(zip(train, "abcd", strict=True)), name="r", roles=("training",))
    bare = open_images(train, name="r", roles=("training",))

    def modality(reference, annotations="auto"):
        settings = Settings(annotations=annotations, within=False)
        result = audit(queries, reference, settings=settings, cache=None)
        return result.summary["comparisons"][0]["modality"]

    assert modality(labelled) == "full"
    assert modality(labelled, "unused") == "image-only"
    assert modality(bare) == "image-only"
    assert modality(bare, "used") == "full"


def test_two_sets_of_one_name_are_refused():
    """Names are how everything later speaks of a set."""
    one, other = open_images(pictures(3, 0), name="x"), open_images(pictures(3, 1), name="x")
    with pytest.raises(UsageError, match="two sets are called 'x'"):
        audit([one, other], cache=None)
