"""Networks, losses, scores, rates and augmentations beside numbers worked out another way."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from visleak.formats import open_images
from visleak.training.data import SHARE, ImageData, hold_out, training_data
from visleak.training.plan import CYCLES, Plan
from visleak.training.run import agreement, by_neighbours, twin_rate

torch = pytest.importorskip("torch")

from visleak.training.networks import (  # noqa: E402
    TEMPERATURE,
    augmented,
    built,
    generator,
    instance_loss,
)


def test_plain_11_is_the_papers():
    """3 x 3 convolutions, each followed by ReLU, then batch norm; three poolings; 512 numbers."""
    network, head = built("plain-11", 10, 0)
    names = [type(layer).__name__ for layer in network]
    words = " ".join(names).replace("Conv2d ReLU BatchNorm2d", "C").replace("AvgPool2d", "P")
    assert words == "C C P C C C P C C C P C Average"
    convolutions = [layer for layer in network if isinstance(layer, torch.nn.Conv2d)]
    # nine convolutions, dense 512 and classes: eleven layers with weights
    widths = [layer.out_channels for layer in convolutions]
    assert widths == [64, 64, 128, 128, 128, 256, 256, 256, 512]
    assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
    assert [type(layer).__name__ for layer in head] == ["Linear", "ReLU", "BatchNorm1d", "Linear"]


def test_the_loss_of_instances_is_the_papers_sum():
    """Equation 1 of Chen et al., written as its loops."""
    rows = np.random.default_rng(0).normal(size=(10, 6))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    losses = []
    for i in range(10):
        twin = (i + 5) % 10
        alike = {k: np.exp(unit[i] @ unit[k] / TEMPERATURE) for k in range(10) if k != i}
        losses.append(-np.log(alike[twin] / sum(alike.values())))
    assert float(instance_loss(torch.from_numpy(rows))) == pytest.approx(np.mean(losses), rel=1e-5)


def test_neighbours_vote_as_scikit_learns():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(n, 8)) + 1 for n in (60, 40))
    reference, query = (np.float32(r / np.linalg.norm(r, axis=1, keepdims=True)) for r in rows)
    classes = rng.integers(0, 4, 60)
    for count in (5, 20, 100):
        weights = {"weights": lambda distance: 1 - distance, "metric": "cosine"}
        known = KNeighborsClassifier(min(count, 60), **weights).fit(reference, classes)
        found = by_neighbours(query, reference, classes, count)
        assert (found == known.predict(query)).all()


def test_twins_are_counted():
    rows = np.eye(6, dtype=np.float32)
    assert str(twin_rate(rows, rows)).startswith("6 of 6 ")
    assert twin_rate(rows, rows[[1, 0, 2, 3, 5, 4]]).count == 2
    assert agreement(np.array([1, 2, 2]), np.array([1, 2, 0])).count == 2


PLAN = Plan("plain-11", 32, 10, 1000, 6, 100, 0)


def test_the_short_schedule_rises_once_and_falls_to_nothing():
    rates = np.array([PLAN.rate(step) for step in range(PLAN.steps)])
    top = int(rates.argmax())
    assert top == round(0.2 * PLAN.steps) - 1
    assert rates[top] == pytest.approx(0.1 * 100 / 128)
    assert (np.diff(rates[: top + 1]) > 0).all()
    assert (np.diff(rates[top + 1 :]) < 0).all()
    assert 0 < rates[-1] < 0.01 * rates[top]


def test_the_papers_schedule_restarts_where_its_cycles_end():
    """Cosines from 0.1 to nothing over 12, 24, 48, 96 and 192 epochs."""
    plan = replace(PLAN, epochs=372, schedule="paper")
    per = plan.steps_per_epoch
    told = np.array([plan.rate(step) for step in range(plan.steps)])
    own = np.concatenate(
        [0.05 * (1 + np.cos(np.pi * np.arange(n * per) / (n * per))) for n in CYCLES]
    )
    np.testing.assert_allclose(told, own, atol=1e-12)
    restarts = np.flatnonzero(np.diff(told) > 0.05) + 1
    assert (restarts / per).tolist() == [12, 36, 84, 180]
    with pytest.raises(ValueError, match="after the last cycle"):
        plan.rate(plan.steps)


def test_whatever_decides_the_weights_is_in_the_key():
    others = {"network": "resnet", "side": 28, "classes": 0, "images": 999, "epochs": 7}
    others |= {"batch": 99, "seed": 1, "precision": "bf16", "schedule": "paper"}
    plans = [PLAN, *(replace(PLAN, **{name: value}) for name, value in others.items())]
    keys = {plan.key("data") for plan in plans} | {PLAN.key("other data")}
    assert len(keys) == len(plans) + 1


@given(st.lists(st.integers(0, 4), min_size=2, max_size=300), st.integers(0, 5))
def test_each_class_gives_its_share(classes, seed):
    numbers = np.unique(np.array(classes), return_inverse=True)[1].astype(np.int64)
    held = hold_out(numbers, np.arange(len(numbers)), seed)
    for number, size in enumerate(np.bincount(numbers)):
        wanted = max(int(SHARE * size), 1) if size > 1 else 0
        assert held[numbers == number].sum() == wanted


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 25)), min_size=1, max_size=200),
    st.integers(0, 5),
)
def test_no_group_straddles(rows, seed):
    classes, groups = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    classes = np.unique(classes, return_inverse=True)[1].astype(np.int64)
    held = hold_out(classes, groups, seed)
    assert not set(groups[held]) & set(groups[~held])
    assert set(classes[~held]) == set(classes)


def test_large_groups_are_held_out_whole():
    for groups, size in ((10, 10), (4, 25)):
        held = hold_out(np.zeros(100, np.int64), np.repeat(np.arange(groups), size), 0)
        assert held.sum() == size


def test_equal_pictures_and_groups_never_straddle():
    rng = np.random.default_rng(0)
    pictures = np.repeat(rng.integers(0, 256, (40, 4, 4, 3), np.uint8), 2, axis=0)
    labels = pa.array([f"class {number // 40}" for number in range(80)])
    groups = pa.array([None if n % 4 in (0, 3) else f"video {n // 4}" for n in range(80)])
    images = open_images(list(pictures), name="chained")
    for seed in range(5):
        material = ImageData(pictures, np.arange(80), 0, labels, groups)
        found = training_data(images, material, None, labels="auto", seed=seed, notify=print)
        held = found.evaluation
        assert len(held.rows) == 8
        assert not set(held.rows // 4) & set(found.rows // 4)
        assert sorted([*held.rows, *found.rows]) == list(range(80))
        assert (found.classes == found.rows // 40).all()
        assert (held.classes == held.rows // 40).all()


def test_what_has_no_label_is_left_out_and_said():
    pictures = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3), np.uint8)
    labels = pa.array([None if n % 10 == 0 else "ab"[n % 2] for n in range(40)])
    said = []
    images = open_images(list(pictures), name="some")
    material = ImageData(pictures, np.arange(40), 0, labels, None)
    found = training_data(images, material, None, labels="auto", seed=0, notify=said.append)
    assert said == ["4 images of some without a label: excluded"]
    rows = [*found.rows, *found.evaluation.rows]
    assert sorted(rows) == [n for n in range(40) if n % 10]


SHIFTS = Plan("plain-11", 16, 3, 100, 1, 10, 0)
CROPS = Plan("resnet", 96, 3, 100, 1, 10, 0)
VIEWS = Plan("plain-11", 16, 0, 100, 1, 10, 0)


def made(plan, pictures, *numbers):
    found = augmented(torch.from_numpy(pictures), plan, plan.side, generator(*numbers))
    return found.permute(0, 2, 3, 1).numpy()


def test_a_small_picture_is_mirrored_or_shifted_and_nothing_else():
    """Each is one of all 2 x 25 that numpy makes, to the bit; and many of these occur."""
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (16, 16, 3), np.uint8)
    padded = np.pad(picture, ((2, 2), (2, 2), (0, 0)), mode="reflect")
    shifted = [padded[y : y + 16, x : x + 16] for y in range(5) for x in range(5)]
    known = {each[:, ::step].tobytes() for each in shifted for step in (1, -1)}
    found = made(SHIFTS, np.repeat(picture[None], 200, axis=0), 7)
    seen = {each.astype(np.uint8).tobytes() for each in found}
    assert seen <= known
    assert len(seen) > 40


def test_crops_keep_the_stated_share_of_the_area():
    across = np.broadcast_to(np.linspace(0, 240, 96), (96, 96))
    ramp = np.stack([across, across.T, np.zeros((96, 96))], axis=-1).astype(np.uint8)
    found = made(CROPS, np.repeat(ramp[None], 300, axis=0), 3)
    area = np.prod(np.ptp(found[..., :2], axis=(1, 2)) / 240 * 96 / 95, axis=1)
    assert 0.33 < area.min() < 0.45
    assert 0.85 < area.max() < 1.03
    mirrored = found[:, 48, 0, 0] > found[:, 48, -1, 0]
    assert 100 < mirrored.sum() < 200
    assert (found[:, 0, 48, 1] < found[:, -1, 48, 1]).all()


def test_views_for_instances_also_change_in_colour():
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (300, 16, 16, 3), np.uint8)
    found = made(VIEWS, pictures, 1)
    assert found.min() >= 0
    assert found.max() <= 255
    grey = np.ptp(found, axis=3).max(axis=(1, 2)) < 1e-2
    assert 30 < grey.sum() < 90
