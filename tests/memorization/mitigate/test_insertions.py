"""Random numbers and tokens among the words of a prompt, against insertion done backwards."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mitigated_models import tiny
from smooth_model import SmoothModel

from tiny_pipelines import WORDS
from visleak.errors import UsageError
from visleak.memorization.extraction.images import Job
from visleak.memorization.mitigate import NumberAddition, TokenAddition, mitigation
from visleak.memorization.mitigate.method import vocabulary_size, with_insertions

PROMPT = "the red house on a hill"


@pytest.fixture(scope="module")
def model():
    return tiny("sd1")


def backwards(words, additions, places):
    """Return words with additions: the last insertion's place is final, those before fill up."""
    slots = [None] * (len(words) + len(additions))
    for addition, place in reversed(list(zip(additions, places, strict=True))):
        free = [at for at, each in enumerate(slots) if each is None]
        slots[free[place]] = addition
    rest = iter(words)
    return [next(rest) if each is None else each for each in slots]


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_insertions_are_those_of_an_algorithm_that_works_backwards(data):
    words = data.draw(st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=6))
    count = data.draw(st.integers(0, 6))
    additions = [str(number) for number in range(count)]
    places = [data.draw(st.integers(0, len(words) + number)) for number in range(count)]
    found = with_insertions(" ".join(words), additions, places)
    assert found == " ".join(backwards(words, additions, places))


def test_places_and_numbers_are_uniform():
    """Both within 4.5 standard deviations of what a fair draw gives."""
    drawn = 3000
    places, numbers = Counter(), []
    for number in range(drawn):
        words = NumberAddition(1).prompt_of(Job(f"word{number} b c", 0)).split(" ")
        (at,) = [place for place, word in enumerate(words) if word.isdecimal()]
        places[at] += 1
        numbers.append(int(words[at]))
    expected, spread = drawn / 4, np.sqrt(drawn * 3 / 16)
    assert sorted(places) == [0, 1, 2, 3]
    assert all(abs(count - expected) < 4.5 * spread for count in places.values())
    tenths = np.bincount(np.array(numbers) // 10_000, minlength=10)
    assert len(tenths) == 10
    assert (abs(tenths - drawn / 10) < 4.5 * np.sqrt(drawn * 0.09)).all()


@pytest.mark.parametrize(
    ("text", "different"),
    [
        *(("rna:3", 1), ("rta:3", 1), ("rta:3,tokens=words", 1)),
        *(("rna:3,draw=image", 6), ("rta:3,draw=image", 6)),
    ],
)
def test_images_of_a_prompt_share_a_draw_or_have_their_own(model, text, different):
    method = mitigation(text)
    made = [method.prompt_of(Job(PROMPT, seed), model) for seed in range(6)]
    assert len(set(made)) == different
    assert made == [method.prompt_of(Job(PROMPT, seed), model) for seed in range(6)]


def drawn_tokens(model, **options):
    drawn = Counter()
    for number in range(300):
        made = TokenAddition(2, **options).prompt_of(Job(f"Q{number}", 0), model).split(" ")
        drawn.update(word for word in made if not word.startswith("Q"))
    return drawn


def test_tokens_are_any_of_the_model_but_the_special_ones(model):
    drawn = drawn_tokens(model)
    assert set(drawn) == set(WORDS)
    expected = 600 / len(WORDS)
    assert all(abs(count - expected) < 4.5 * np.sqrt(expected) for count in drawn.values())
    # whole words are tokens that are themselves again
    assert set(drawn_tokens(model, tokens="words")) == set(WORDS) - {"!"}
    # T5's pieces of one letter are read as another token at the beginning of a word
    pieces = set(drawn_tokens(tiny("if"), tokens="words"))
    assert pieces <= set(WORDS)
    assert len(pieces) > 5


def test_tokens_need_a_model_that_has_some(model, monkeypatch):
    with pytest.raises(UsageError, match="rta draws tokens of the model: a model is needed"):
        TokenAddition(1).prompt_of(Job("a", 0))
    smooth = SmoothModel()
    with pytest.raises(UsageError, match="rta needs the tokens of a prompt, which smooth"):
        TokenAddition(1).prepared(smooth, [])
    smooth.token_table = lambda: np.zeros((7, 2))
    assert vocabulary_size(smooth) == 7
    monkeypatch.setattr(model, "token_texts", lambda ids: [""] * len(ids))
    with pytest.raises(UsageError, match=r"has no token that rta could put in \(tokens=any\)"):
        TokenAddition(1).prompt_of(Job("a", 0), model)
