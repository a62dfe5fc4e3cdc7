"""Images of prompts: made once, in batches that a kill does not change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaying_model import ReplayingModel
from visleak.diffusion.model import Sampling
from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.memorization.extraction.images import ImageStore, Job, calls_of, images_of, seeds_of

SAMPLING = Sampling(steps=4, guidance=7.5, batch=4)


def jobs(*prompts: str, count: int = 5) -> list[Job]:
    return [Job(prompt, seed) for prompt in prompts for seed in range(count)]


class Killed(Exception):
    """Stands for a kill."""


class DyingModel(ReplayingModel):
    """Dies after so many batches."""

    def dies_after(self, batches: int) -> DyingModel:
        self.left = batches
        return self

    def sample(self, conditioning, seeds, sampling):
        if not self.left:
            raise Killed
        self.left -= 1
        return super().sample(conditioning, seeds, sampling)


class MixingModel(ReplayingModel):
    """A model whose images differ by their place in the batch and by the others in it.

    No model should; but rounding does so, and a resumed run must not show it.
    """

    def sample(self, conditioning, seeds, sampling):
        made = super().sample(conditioning, seeds, sampling)
        mark = np.uint8(sum(seeds) % 251)
        made[:, 0, 0, 0] = mark + np.arange(len(made), dtype=np.uint8)
        return made


def test_each_image_is_the_models_and_named_by_its_content(tmp_path: Path) -> None:
    model = ReplayingModel()
    wanted = jobs("a", "b")
    with ImageStore(tmp_path) as store:
        found = images_of(store, model, wanted, SAMPLING)
        for job, stored in zip(wanted, found, strict=True):
            assert (stored.prompt, stored.seed) == (job.prompt, job.seed)
            assert np.array_equal(store.pixels(stored.digest), model.image(job.prompt, job.seed))
            data = (tmp_path / stored.path).read_bytes()
            assert content_digest(data).hex() == stored.digest
            assert stored.path == f"images/{stored.digest[:2]}/{stored.digest}.png"


def test_nothing_is_made_twice(tmp_path: Path) -> None:
    model = ReplayingModel()
    with ImageStore(tmp_path) as store:
        first = images_of(store, model, jobs("a", "b"), SAMPLING)
        calls = len(model.rows)
    with ImageStore(tmp_path) as store:
        assert images_of(store, model, jobs("a", "b"), SAMPLING) == first
        assert images_of(store, model, [Job("a", 0)] * 3, SAMPLING) == [first[0]] * 3
    assert len(model.rows) == calls


def test_an_image_costs_its_share_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what filled the batch up, nor what was there already and was made along."""

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    class TickingModel(ReplayingModel):
        def sample(self, conditioning, seeds, sampling):
            clock.now += 0.25 * len(seeds)
            return super().sample(conditioning, seeds, sampling)

    clock = Clock()
    monkeypatch.setattr("visleak.memorization.extraction.images.time", clock)
    with ImageStore(tmp_path) as store:
        images_of(store, TickingModel(), jobs("a", count=5), SAMPLING)
        found = images_of(store, TickingModel(), jobs("a", count=7), SAMPLING)
    assert [each.seconds for each in found] == [0.25] * 7


@pytest.mark.parametrize(
    ("change", "made"), [({"steps": 5}, True), ({"guidance": 3.0}, True), ({"batch": 2}, False)]
)
def test_another_sampling_makes_other_images_and_another_batch_does_not(
    tmp_path: Path, change: dict, made: bool
) -> None:
    model = ReplayingModel()
    with ImageStore(tmp_path) as store:
        images_of(store, model, jobs("a"), SAMPLING)
        calls = len(model.rows)
        other = Sampling(**{"steps": 4, "guidance": 7.5, "batch": 4, **change})
        images_of(store, model, jobs("a"), other)
    assert (len(model.rows) > calls) == made


@pytest.mark.parametrize("field", ["digest", "precision"])
def test_another_model_makes_other_images(tmp_path: Path, field: str) -> None:
    model = ReplayingModel()
    with ImageStore(tmp_path) as store:
        images_of(store, model, jobs("a"), SAMPLING)
        setattr(model, field, "other")
        calls = len(model.rows)
        images_of(store, model, jobs("a"), SAMPLING)
    assert len(model.rows) == 2 * calls


@settings(max_examples=12)
@given(st.integers(0, 5), st.integers(1, 4), st.integers(1, 4))
def test_a_run_that_died_goes_on_to_the_same_images(
    tmp_path_factory: pytest.TempPathFactory, batches: int, count: int, batch: int
) -> None:
    """Even those of a model that lets neighbours show: batches are cut alike."""
    sampling = Sampling(4, 7.5, batch)
    wanted = jobs("a", "b", "c", count=count)
    whole, broken = (tmp_path_factory.mktemp(name) for name in ("whole", "broken"))
    with ImageStore(whole) as store:
        expected = images_of(store, MixingModel(), wanted, sampling)

    class Both(DyingModel, MixingModel):
        pass

    model = Both().dies_after(batches)
    with ImageStore(broken) as store:
        try:
            images_of(store, model, wanted, sampling)
        except Killed:
            # what was made before is there: at most one batch is lost
            assert len(list(broken.rglob("*.png"))) <= batches * batch
    model.dies_after(-1)
    with ImageStore(broken) as store:
        found = images_of(store, model, wanted, sampling)
    assert [each.digest for each in found] == [each.digest for each in expected]
    assert len(model.rows) == -(-len(wanted) // batch)


def test_an_image_whose_file_went_is_made_anew(tmp_path: Path) -> None:
    model = ReplayingModel()
    with ImageStore(tmp_path) as store:
        found = images_of(store, model, jobs("a"), SAMPLING)
        (tmp_path / found[2].path).unlink()
        assert images_of(store, model, jobs("a"), SAMPLING)[2].digest == found[2].digest
        assert (tmp_path / found[2].path).is_file()
    assert model.rows == [4, 4, 4]


def test_equal_images_are_stored_once(tmp_path: Path) -> None:
    class Constant(ReplayingModel):
        def image(self, prompt: str, seed: int) -> np.ndarray:
            return np.zeros((8, 8, 3), np.uint8)

    with ImageStore(tmp_path) as store:
        found = images_of(store, Constant(), jobs("a", "b"), SAMPLING)
    assert len({each.digest for each in found}) == 1
    assert len(list(tmp_path.rglob("*.png"))) == 1


@settings(max_examples=12)
@given(st.integers(0, 99), st.integers(1, 20), st.text(max_size=5))
def test_seeds_are_distinct_and_more_images_keep_them(seed: int, count: int, text: str) -> None:
    for prompt in (None, text):
        made = seeds_of(seed, count, prompt)
        assert len(set(made)) == count
        assert all(0 <= each < 2**31 for each in made)
        assert seeds_of(seed, count + 5, prompt)[:count] == made
    assert seeds_of(seed, count) != seeds_of(seed + 1, count)


def test_passes_of_the_network_are_those_that_a_model_makes() -> None:
    assert calls_of(3, Sampling(10, 7.5, 4)) == 60
    assert calls_of(3, Sampling(10, 1.0, 4)) == 30
    # pipelines of diffusers guide above 1 only
    assert calls_of(3, Sampling(10, 0.5, 4)) == 30


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    class Wrong(ReplayingModel):
        def sample(self, conditioning, seeds, sampling):
            return np.zeros((4, 3, 8, 8), np.float32)

    with ImageStore(tmp_path) as store, pytest.raises(VisleakError) as error:
        images_of(store, Wrong(), jobs("a"), SAMPLING)
    assert str(error.value) == (
        "model replaying returned an array (4, 3, 8, 8) of float32 for 4 prompts; it must be uint8"
        " (prompts, height, width, 3)"
    )
    assert not list(tmp_path.rglob("*.png"))
