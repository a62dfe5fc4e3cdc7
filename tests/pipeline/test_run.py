"""The whole run: samples, thresholds, names, modality."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from PIL import Image

from visleak.auditing import audit
from visleak.encoders import load_encoder
from visleak.errors import UsageError
from visleak.formats import open_images
from visleak.pipeline.run import thresholds_of
from visleak.settings import Settings


def pictures(count, seed):
    """Return random smooth images, all different."""
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
    first, second = (r.images().filter(pc.field("set") == "a")["id"].to_pylist() for r in runs)
    assert len(first) == 7
    assert first == second
    assert "repeats within the test sets: not searched" in runs[0].summary.as_dict()["skipped"]
    assert runs[0].rate().total == 7


def test_a_sample_is_told_as_an_estimate(tmp_path):
    """Size of the sample, the interval of the share in all, and how many of all that is."""
    shown = pictures(60, 0)
    test = open_images(shown, name="a")
    train = open_images([*shown[::3], *pictures(9, 1)], name="b")
    found = audit(test, train, settings=Settings(sample=20), out=tmp_path / "s", cache=None)
    rate = found.rate()
    least, most = rate.expected
    assert rate.population == 60
    assert found.headline == (
        f"estimate from a sample of 20 of 60 a images: {rate.count} ({100 * rate.share:.2f} %,"
        f" {rate.interval}) have a near-duplicate or exact copy in b, so {least} to {most} of all"
    )
    whole = audit(test, train, settings=Settings(sample=60), out=tmp_path / "w", cache=None)
    assert least <= whole.rate().count <= most
    assert whole.rate().count >= 20
    assert whole.rate().population is None
    assert whole.headline.startswith(f"{whole.rate().count} of 60 a images (")


def test_unreadable_images_are_no_part_of_what_a_sample_stands_for(tmp_path):
    """Of those that were not drawn nobody knows; of those drawn it is known."""
    shown = pictures(40, 0)
    (tmp_path / "test").mkdir()
    for n, pixels in enumerate(shown):
        path = tmp_path / "test" / f"{n:02}.png"
        if n % 4:
            Image.fromarray(pixels).save(path)
        else:
            path.write_bytes(b"words")
    test, train = open_images(tmp_path / "test", name="a"), open_images(shown[:9], name="b")
    found = audit(test, train, settings=Settings(sample=20), out=tmp_path / "out", cache=None)
    lost = len(found.unreadable())
    assert lost
    assert (found.rate().total, found.rate().population) == (20 - lost, 40 - lost)


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
        return result.summary.as_dict()["comparisons"][0]["modality"]

    assert modality(labelled) == "full"
    assert modality(labelled, "unused") == "image-only"
    assert modality(bare) == "image-only"
    assert modality(bare, "used") == "full"


def test_two_sets_of_one_name_are_refused():
    one, other = open_images(pictures(3, 0), name="x"), open_images(pictures(3, 1), name="x")
    with pytest.raises(UsageError, match="two sets are called 'x'"):
        audit([one, other], cache=None)
