"""Names of many grammars: what they state is found, and what they do not state is not."""

from __future__ import annotations

import re
import string
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_groups import around, inferred, made_set, partition, strangers, walk

from visleak.formats.request import captured
from visleak.grouping.names import schemes

WORDS = st.text(string.ascii_letters, min_size=2, max_size=7)
ENDINGS = st.sampled_from([".jpg", ".png", ".jpeg", ""])
SEEDS = st.integers(0, 2**31)
FEW = settings(max_examples=8, deadline=None)


KINDS = ("{w}{r:03}", "{w}-{r}", "{r:05}{w}", "{w}_{r:02}_cam", "2019_{r:02}_{w}")


@st.composite
def recordings(draw):
    """Names of recordings and frames, and the recording of each."""
    count, length = draw(st.integers(2, 4)), draw(st.integers(12, 30))
    kind = draw(st.sampled_from(KINDS))
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


def groups_of(ids, truth):
    return {frozenset(np.array(ids)[truth == n].tolist()) for n in np.unique(truth)}


@FEW
@given(recordings(), SEEDS)
def test_recordings_of_any_grammar_are_found(made, seed):
    ids, truth = made
    vectors = walks(truth, seed)
    half = made_set(ids[::2], vectors[::2], "test", tested=True)
    rest = made_set(ids[1::2], vectors[1::2])
    _, believed = inferred(half, rest)
    assert [each.hypothesis.kind for each in believed] == ["recordings"]
    assert partition(believed[0], (half, rest)) == groups_of(ids, truth)


@FEW
@given(recordings(), SEEDS)
def test_shuffled_recordings_are_not_believed(made, seed):
    ids, truth = made
    vectors = walks(truth, seed)
    shuffled = np.random.default_rng(seed).permutation(len(ids))
    _, believed = inferred(made_set(ids, vectors[shuffled]))
    assert believed == []


@FEW
@given(recordings(), SEEDS)
def test_patterns_find_the_same_groups(made, seed):
    """The patterns that a report shows are those of ``--group`` and ``--frame``."""
    ids, truth = made
    vectors = walks(truth, seed)
    own = made_set(ids, vectors)
    _, (found,) = inferred(own)
    group, frame = (re.compile(each) for each in (found.hypothesis.group, found.hypothesis.frame))
    names = {}
    for id_, number in zip(ids, truth.tolist(), strict=True):
        names.setdefault(captured(group, id_), set()).add(number)
        assert captured(frame, id_).isdigit()
    assert all(len(numbers) == 1 for numbers in names.values())
    assert len(names) == len(set(truth.tolist()))


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
    _, none = inferred(made_set(ids, strangers(len(ids), seed)))
    assert none == []


@FEW
@given(
    SEEDS, st.sampled_from(["patient{s:05}/study1/view{k}", "sub-{s:02}_T1_{k}", "case_{s}_{k}"])
)
def test_subjects_named_by_a_word_are_found(seed, kind):
    truth = np.repeat(np.arange(1, 25), 4)
    ids = [kind.format(s=s, k=k % 4) + ".png" for k, s in enumerate(truth)]
    own = made_set(ids, around(truth, seed, spread=0.2))
    _, believed = inferred(own)
    assert groups_of(ids, truth) in [partition(each, (own,)) for each in believed]


NAMES = st.sampled_from(["number", "uuid", "word", "class", "date", "hash", "subject"])


def named(kind, count, rng):
    """Names that state nothing about the images."""
    makers = {
        "number": lambda n: f"{order[n]:06}.jpg",
        "uuid": lambda n: f"{uuid.UUID(bytes=rng.bytes(16))}.jpg",
        "word": lambda n: "".join(rng.choice(list("abcdefgh 123"), 9)) + f"{n}.jpg",
        "class": lambda n: f"class{n % 5}/{n:04}.jpg",
        "date": lambda n: f"IMG_20{n % 24:02}0{n % 9 + 1}11_1{n % 10}{n % 6}000_{n}.jpg",
        "hash": lambda n: f"{rng.bytes(8).hex()}.png",
        "subject": lambda n: f"patient{n // 3}_{n}.png",
    }
    order = rng.permutation(count)
    return [makers[kind](n) for n in range(count)]


@settings(max_examples=20, deadline=None)
@given(NAMES, SEEDS, st.integers(3, 120))
def test_groups_of_unrelated_images_are_not_believed(kind, seed, count):
    rng = np.random.default_rng(seed)
    ids = list(dict.fromkeys(named(kind, count, rng)))
    half = len(ids) // 2
    vectors = strangers(len(ids), seed)
    tested = made_set(ids[:half], vectors[:half], "test", tested=True)
    _, believed = inferred(tested, made_set(ids[half:], vectors[half:]))
    assert believed == []


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
    words = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op"]
    ids = [name.format(c=c, n=n, w=words[c]) for n, c in enumerate(truth)]
    labels = [f"label {c}" for c in truth] if labelled else None
    _, believed = inferred(made_set(ids, around(truth, 3), labels=labels))
    assert believed == []


def test_a_sorted_index_is_not_a_recording():
    """Lists sorted by shop or coil: neighbours are more similar, but few are most similar."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(4, 12, 60)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    _, believed = inferred(made_set([f"{n:03}.jpg" for n in range(len(truth))], around(truth, 5)))
    assert believed == []


def test_a_part_of_an_index_sorted_by_class_is_not_taken_for_shots():
    """The numbers begin late, as those of a camera do."""
    truth = np.repeat(np.arange(8), 45)
    ids = [f"{n:04}.jpg" for n in range(700, 700 + len(truth))]
    _, believed = inferred(made_set(ids, around(truth, 7)))
    assert believed == []


@pytest.mark.parametrize("size", [2, 3, 5])
def test_numbers_of_two_parts_in_a_list_sorted_by_class_are_not_subjects(size):
    truth = np.repeat(np.arange(8), 45)
    ids = [f"{n // size:05}_{n % size}.jpg" for n in range(len(truth))]
    _, believed = inferred(made_set(ids, around(truth, 7)))
    assert believed == []
    found, known = inferred(made_set(ids, around(np.arange(len(ids)) // size, 7)))
    assert [each.hypothesis.kind for each in known] == ["subjects"], found


@pytest.mark.parametrize("alike", [True, False])
def test_shots_of_a_camera_are_found(alike):
    """Two shots of each object; the camera counted others before."""
    truth = np.repeat(np.arange(60), 2)
    rng = np.random.default_rng(4)
    numbers = 5000 + np.cumsum(np.where(np.arange(120) % 2, 1, rng.integers(2, 30, 120)))
    ids = [f"{uuid.UUID(bytes=rng.bytes(16))}___RS {n}_final.jpg" for n in numbers]
    vectors = around(truth, 4) if alike else strangers(120, 4)
    _, believed = inferred(made_set(ids, vectors))
    assert [each.hypothesis.kind for each in believed] == (["shots"] if alike else [])


def test_schemes_of_nothing():
    assert schemes([]) == []
    assert schemes(["a"]) == []
