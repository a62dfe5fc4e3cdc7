"""Images of prompts: made once, in batches that a kill does not change."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaying_model import ReplayingModel
from visleak.diffusion.model import Sampling
from visleak.errors import VisleakError
from visleak.memorization.extraction.images import ImageStore, Job, images_of, seeds_of

SAMPLING = Sampling(steps=4, guidance=7.5, batch=4)


def jobs(*prompts, count=5):
    return [Job(prompt, seed) for prompt in prompts for seed in range(count)]


class MixingModel(ReplayingModel):
    """A model whose images differ by place and batch; it dies after ``left`` batches."""

    left = -1

    def sample(self, conditioning, seeds, sampling):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        made = super().sample(conditioning, seeds, sampling)
        mark = np.uint8(sum(seeds) % 251)
        made[:, 0, 0, 0] = mark + np.arange(len(made), dtype=np.uint8)
        return made


def test_another_sampling_makes_other_images_and_another_batch_does_not(tmp_path):
    model, calls = ReplayingModel(), []
    with ImageStore(tmp_path) as store:
        for sampling in (SAMPLING, Sampling(4, 7.5, 2), Sampling(5, 7.5, 4), Sampling(4, 3.0, 4)):
            images_of(store, model, jobs("a"), sampling)
            calls.append(len(model.rows))
    assert calls == [2, 2, 4, 6]


@settings(max_examples=12)
@given(st.integers(0, 5), st.integers(1, 4), st.integers(1, 4))
def test_a_run_that_died_goes_on_to_the_same_images(tmp_path_factory, batches, count, batch):
    """Even those of a model that lets neighbours show: batches are cut alike."""
    sampling = Sampling(4, 7.5, batch)
    wanted = jobs("a", "b", "c", count=count)
    whole, broken = (tmp_path_factory.mktemp(name) for name in ("whole", "broken"))
    with ImageStore(whole) as store:
        expected = images_of(store, MixingModel(), wanted, sampling)
    model = MixingModel()
    model.left = batches
    with suppress(KeyboardInterrupt), ImageStore(broken) as store:
        images_of(store, model, wanted, sampling)
    model.left = -1
    with ImageStore(broken) as store:
        found = images_of(store, model, wanted, sampling)
    assert [each.digest for each in found] == [each.digest for each in expected]
    assert len(model.rows) == -(-len(wanted) // batch)


def test_what_went_or_does_not_fit_is_made_anew(tmp_path):
    model = ReplayingModel()
    with ImageStore(tmp_path) as store:
        found = images_of(store, model, jobs("a"), SAMPLING)
        (tmp_path / found[2].path).unlink()
        assert images_of(store, model, jobs("a"), SAMPLING)[2].digest == found[2].digest
        assert (tmp_path / found[2].path).is_file()
        store.keep_similarities("x", np.ones((5, 5)))
        # of another number of images
        assert store.similarities("x", 6) is None
    assert model.rows == [4, 4, 4]


@settings(max_examples=12)
@given(st.integers(0, 99), st.integers(1, 20), st.text(max_size=5))
def test_seeds_are_distinct_and_more_images_keep_them(seed, count, text):
    for prompt in (None, text):
        made = seeds_of(seed, count, prompt)
        assert len(set(made)) == count
        assert all(0 <= each < 2**31 for each in made)
        assert seeds_of(seed, count + 5, prompt)[:count] == made
    assert seeds_of(seed, count) != seeds_of(seed + 1, count)


def test_what_is_no_image_is_refused(tmp_path):
    class Wrong(ReplayingModel):
        def sample(self, conditioning, seeds, sampling):
            return np.zeros((4, 3, 8, 8), np.float32)

    with (
        ImageStore(tmp_path) as store,
        pytest.raises(VisleakError, match=r"replaying returned an array \(4, 3, 8, 8\) of float32"),
    ):
        images_of(store, Wrong(), jobs("a"), SAMPLING)
    assert not list(tmp_path.rglob("*.png"))
