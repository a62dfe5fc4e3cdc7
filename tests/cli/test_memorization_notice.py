"""What the verbs of memorization are for is said once to each user, and never in the way."""

import pytest
from calling import run

from visleak.cli.memorization import NOTICE
from visleak.storage.cache import default_folder


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """The cache folder of a user who has not been told."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("VISLEAK_CACHE", str(folder))
    return folder


def test_it_is_said_once(fresh, tmp_path):
    call = ("memorization", "dataset", tmp_path / "none.csv")
    first, second = run(*call), run(*call)
    assert first.err.splitlines()[0] == NOTICE
    assert NOTICE not in second.err
    assert len(second.err.splitlines()) == 1
    assert first.out == second.out == ""
    assert [each.name for each in fresh.iterdir()] == ["memorization-notice-1"]


def test_asking_for_help_says_nothing_and_uses_nothing_up(fresh):
    for call in (
        ("memorization",),
        ("memorization", "--help"),
        ("memorization", "dataset", "--help"),
    ):
        ran = run(*call)
        assert (ran.code, ran.err) == (0, "")
    assert not fresh.exists()


def test_a_file_in_the_place_of_the_folder_is_no_error(fresh):
    fresh.write_text("")
    assert default_folder() == fresh
    for _ in range(2):
        ran = run("memorization", "dataset")
        assert ran.code == 2
        assert NOTICE in ran.err
