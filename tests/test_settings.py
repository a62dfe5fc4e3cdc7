"""Settings: one frozen record that refuses what cannot be meant."""

import dataclasses
import json

import pytest

from visleak.documents import as_plain, from_plain
from visleak.errors import UsageError
from visleak.settings import CHOSEN, Settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"search": "annoy"}, "search must be one of exact, faiss; got 'annoy'"),
        ({"views": ""}, "views must be one of none, mirror, all; got ''"),
        ({"candidates": "all"}, "candidates must be one of auto, nearest, best; got 'all'"),
        ({"annotations": "yes"}, "annotations must be one of auto, used, unused; got 'yes'"),
        ({"hard": 1.5}, "hard must be from -1 to 1; got 1.5"),
        ({"soft": float("nan")}, "soft must be from -1 to 1; got nan"),
        ({"hard": 0.5, "soft": 0.8}, "hard (0.5) must not be below soft (0.8)"),
        ({"sample": -1}, "sample must be 0 or more; got -1"),
        ({"per_query": 0}, "per_query must be 1 or more; got 0"),
    ],
)
def test_wrong_settings_are_refused(given, said):
    with pytest.raises(UsageError) as caught:
        Settings(**given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("bound", [-1.0, 1.0])
def test_the_bounds_of_similarity_are_allowed(bound):
    assert Settings(hard=bound, soft=bound).hard == bound


def test_settings_travel_as_plain_values():
    given = Settings(hard=0.9, soft=0.8, views="mirror", within=False, sample=7)
    assert Settings(**json.loads(json.dumps(given.as_dict()))) == given
    named = [field.name for field in dataclasses.fields(Settings)]
    assert list(given.as_dict()) == [name for name in named if name not in CHOSEN]


def test_how_near_frames_leak_is_stored_where_somebody_chose_it():
    given = Settings(within_frames=25, within_seconds=0.5)
    assert given.as_dict() == Settings().as_dict() | {"within_frames": 25, "within_seconds": 0.5}
    assert Settings(**given.as_dict()) == given


@pytest.mark.parametrize(
    "wrong", [{"within_frames": -1}, {"within_frames": 2**63}, {"within_seconds": float("nan")}]
)
def test_how_near_frames_leak_is_a_distance(wrong):
    with pytest.raises(UsageError, match=r"within_(frames|seconds) must be"):
        Settings(**wrong)


def test_settings_are_frozen_and_hashable():
    """They are part of keys."""
    assert len({Settings(), Settings(), Settings(sample=1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().sample = 3


def test_settings_are_stored_without_default_bounds_and_read_from_later_versions():
    """What a later version added is ignored; a bound on frames is stored where it was chosen."""
    assert "within_frames" not in as_plain(Settings())
    chosen = as_plain(Settings(within_frames=3))
    assert chosen["within_frames"] == 3
    assert from_plain(Settings, {**chosen, "added_later": 1}) == Settings(within_frames=3)
