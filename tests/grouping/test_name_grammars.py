"""Names of many grammars: what they state is found, and what they do not state is not."""

import re
import string
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_groups import around, groups_of, inferred, made_set, partition, walk

from visleak.formats.request import captured

WORDS = st.text(string.ascii_letters, min_size=2, max_size=7)
ENDINGS = st.sampled_from([".jpg", ".png", ".jpeg", ""])
SEEDS = st.integers(0, 2**31)
FEW = settings(max_examples=8, deadline=None)


@st.composite
def recordings(draw):
    """Names of recordings and frames, and the recording of each."""
    count, length = draw(st.integers(2, 4)), draw(st.integers(12, 30))
    names = ["{w}{r:03}", "{w}-{r}", "{r:05}{w}", "{w}_{r:02}_cam", "2019_{r:02}_{w}"]
    kind = draw(st.sampled_from(names))
    joint = draw(st.sampled_from(["_", "-", "_frame", "_f", "/", "/frame_", "__img", "."]))
    tail = draw(st.sampled_from(["", "_rgb", "_left8bit", "-final"]))
    word, ending = draw(WORDS), draw(ENDINGS)
    start, step, width = draw(st.tuples(*(st.integers(*b) for b in ((0, 5000), (1, 40), (1, 8)))))
    ids, truth = [], []
    for number in range(1, count + 1):
        name = kind.format(w=word, r=number)
        for frame in range(length):
            ids.append(f"{name}{joint}{start + step * frame:0{width}}{tail}{ending}")
            truth.append(number)
    return ids, np.array(truth)


def walks(truth, seed):
    return np.concatenate([walk(int((truth == n).sum()), seed + n) for n in np.unique(truth)])


@FEW
@given(recordings(), SEEDS)
def test_recordings_of_any_grammar_are_found(made, seed):
    ids, truth = made
    vectors = walks(truth, seed)
    half = made_set(ids[::2], vectors[::2], "test", tested=True)
    rest = made_set(ids[1::2], vectors[1::2])
    _, (found,) = inferred(half, rest)
    assert found.hypothesis.kind == "recordings"
    assert partition(found, (half, rest)) == groups_of(ids, truth)
    # and by the patterns that a report shows for --group and --frame
    group, frame = (re.compile(each) for each in (found.hypothesis.group, found.hypothesis.frame))
    named = np.array([captured(group, id_) for id_ in ids])
    assert groups_of(ids, named) == groups_of(ids, truth)
    assert all(captured(frame, id_).isdigit() for id_ in ids)

    shuffled = np.random.default_rng(seed).permutation(len(ids))
    assert inferred(made_set(ids, vectors[shuffled]))[1] == []


SUFFIXES = st.sampled_from(
    ["_aug{n}", "-flip", "_transformed_{n}_", "_rot{n}0", " ({n})", "_hflip", "_crop_{n}", "_blur",
     "_jpg.rf.{h}", "_v{n}"]
)  # fmt: skip


@FEW
@given(SUFFIXES, WORDS, ENDINGS, SEEDS)
def test_augmented_copies_are_found(suffix, word, ending, seed):
    rng = np.random.default_rng(seed)
    numbers = rng.choice(90_000, 40, replace=False) + 10_000
    ids, truth = [], []
    for number in numbers.tolist():
        names = [f"{word}{number}{ending}"]
        if number % 3:
            text = suffix.format(n=number % 4, h=uuid.UUID(int=number).hex)
            names.append(f"{word}{number}{text}{ending}")
        ids += names
        truth += [number] * len(names)
    _, believed = inferred(made_set(ids, around(truth, seed, spread=0.1)))
    assert [each.hypothesis.kind for each in believed] == ["copies"]
    assert inferred(made_set(ids, around(range(len(ids)), seed)))[1] == []


#: Names that state nothing about the images.
NAMES = (
    lambda n, rng: f"{rng.integers(10**6):06}.jpg",
    lambda n, rng: f"{uuid.UUID(bytes=rng.bytes(16))}.jpg",
    lambda n, rng: "".join(rng.choice(list("abcdefgh 123"), 9)) + f"{n}.jpg",
    lambda n, rng: f"class{n % 5}/{n:04}.jpg",
    lambda n, rng: f"IMG_20{n % 24:02}0{n % 9 + 1}11_1{n % 10}{n % 6}000_{n}.jpg",
    lambda n, rng: f"{rng.bytes(8).hex()}.png",
    lambda n, rng: f"patient{n // 3}_{n}.png",
)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(NAMES), SEEDS, st.integers(3, 120))
def test_groups_of_unrelated_images_are_not_believed(named, seed, count):
    rng = np.random.default_rng(seed)
    ids = list(dict.fromkeys(named(n, rng) for n in range(count)))
    half = len(ids) // 2
    vectors = around(range(len(ids)), seed)
    tested = made_set(ids[:half], vectors[:half], "test", tested=True)
    assert inferred(tested, made_set(ids[half:], vectors[half:]))[1] == []


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        *("class{c}/{n:04}.jpg", "kind_{c}/kind_{c}_{n}.jpg", "spot{w}_{n}.png"),
        *("{c}_{n:04}.png", "class{c}_{n}.jpg", "n0{c}440764_{n}.JPEG"),
        # renamed, or saved from the web
        *("{w} ({n}).jpg", "class {c} ({n}).jpg", "{w}/images ({n}).jpg", "{w}/{w} ({n}).jpg"),
        *("{w}_crop{n}.png", "{w}_gray_{n}.png", "{w} - Copy ({n}).jpg"),
        *("{w}/r{n}_c{n}.png", "{w}/{w}_tile_{n}_{c}.png"),
    ],
)
def test_classes_are_not_groups(name, labelled):
    """Images of a class are more similar than others; the names of classes state no group."""
    truth = np.repeat(np.arange(8), 40)
    ids = [name.format(c=c, n=n, w="abcdefgh"[c] * 2) for n, c in enumerate(truth)]
    labels = [f"label {c}" for c in truth] if labelled else None
    assert inferred(made_set(ids, around(truth, 3), labels=labels))[1] == []


@pytest.mark.parametrize("first", [0, 700])
def test_a_list_that_is_sorted_is_not_a_recording(first):
    """By class, shop or coil: neighbours are more similar, but few are most similar; nor shots."""
    sizes = [45] * 8 if first else np.random.default_rng(5).integers(4, 12, 60)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    ids = [f"{n:04}.jpg" for n in range(first, first + len(truth))]
    assert inferred(made_set(ids, around(truth, 7 if first else 5)))[1] == []


@pytest.mark.parametrize("size", [2, 3, 5])
def test_numbers_of_two_parts_in_a_list_sorted_by_class_are_not_subjects(size):
    truth = np.repeat(np.arange(8), 45)
    ids = [f"{n // size:05}_{n % size}.jpg" for n in range(len(truth))]
    assert inferred(made_set(ids, around(truth, 7)))[1] == []
    named = [f"patient{n // size:05}/study1/view{n % size}.png" for n in range(len(truth))]
    for own in (ids, named):
        _, known = inferred(made_set(own, around(np.arange(len(own)) // size, 7)))
        assert [each.hypothesis.kind for each in known] == ["subjects"]


@pytest.mark.parametrize("alike", [True, False])
def test_shots_of_a_camera_are_found(alike):
    """Two shots of each object; the camera counted others before."""
    truth = np.repeat(np.arange(60), 2)
    rng = np.random.default_rng(4)
    numbers = 5000 + np.cumsum(np.where(np.arange(120) % 2, 1, rng.integers(2, 30, 120)))
    ids = [f"{uuid.UUID(bytes=rng.bytes(16))}___RS {n}_final.jpg" for n in numbers]
    vectors = around(truth, 4) if alike else around(range(120), 4)
    _, believed = inferred(made_set(ids, vectors))
    assert [each.hypothesis.kind for each in believed] == (["shots"] if alike else [])
