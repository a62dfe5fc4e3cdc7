"""Which words no search should propose."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.proposals import (
    Vocabulary,
    banned_ids,
    is_stop_word,
    own_banned_words,
    read_banned_words,
    stop_ids,
    words_digest,
)


class Tokens:
    """What a vocabulary is made of."""

    all_special_ids = (0,)

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def get_vocab(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.texts)}


def test_stop_words_are_those_of_the_rule() -> None:
    """31 marks of ASCII punctuation (all but the full stop), as the authors' list has."""
    assert sum(is_stop_word(mark) for mark in string.punctuation) == 31
    stops = ("[unused0]", "[unused993]", "1", "007", "é", "##é", "東", "...", "½", "٣")
    assert all(map(is_stop_word, stops))
    assert not any(map(is_stop_word, (".", "the", "##s", "3d", "##1", "[unused", "..")))


@given(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1))
def test_words_of_letters_are_no_stop_words(word: str) -> None:
    assert not is_stop_word(word)


def test_ids_of_stop_and_banned_words() -> None:
    vocabulary = Vocabulary.of(Tokens("[PAD]", "red", "!", "7", "##s", "sea"), 8)
    assert stop_ids(vocabulary) == {2, 3}
    assert banned_ids(vocabulary, ["Red", "redsea", "sea"]) == {1, 5}
    # outputs of the network that no token stands for are no words
    assert vocabulary.special == {0, 6, 7}
    assert vocabulary.inner == {4}


def test_a_tokenizer_of_another_network_is_refused() -> None:
    with pytest.raises(VisleakError) as refused:
        Vocabulary.of(Tokens("a", "b", "c"), 2)
    assert str(refused.value) == (
        "the language model's tokenizer knows 1 tokens that the network does not, such as 'c'; they"
        " are of two models"
    )


def test_our_list_is_of_single_lower_case_words_each_once() -> None:
    words = own_banned_words()
    assert len(words) == len(set(words)) > 250
    assert all(word.isalpha() and word.islower() and word.isascii() for word in words)
    assert {"surf", "glacier", "violet", "logo", "icon", "texture", "background"} <= set(words)


def test_lists_are_read_from_files(tmp_path: Path) -> None:
    file = tmp_path / "banned.txt"
    file.write_bytes(b"\xef\xbb\xbfred\r\n# colours\r\nblue # sky\r\n\r\nred\r\n")
    assert read_banned_words(file) == ("red", "blue")
    assert words_digest(["red", "blue"]) == words_digest(["blue", "red", "red"])
    with pytest.raises(UsageError, match=r"--banned .*there is no such file; give a text file"):
        read_banned_words(tmp_path / "none.txt")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(
        VisleakError, match=r"cannot be read \(.*\); it is UTF-8 text, one word per"
    ):
        read_banned_words(file)
    with file.open("wb") as lines:
        lines.truncate(10_000_001)
    with pytest.raises(VisleakError, match=r"is over 10 MB; a list of words is shorter"):
        read_banned_words(file)
