"""Which words no search should propose."""

from __future__ import annotations

from pathlib import Path

import pytest

from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.proposals import (
    Rules,
    own_banned_words,
    read_banned_words,
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
    one, other = Rules(banned=("red", "blue")), Rules(banned=("blue", "red", "red"))
    assert one.about() == other.about() == Rules().banning(str(file)).about() | {"banned": "none"}
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
