"""Settings: one frozen record that refuses what cannot be meant."""

import dataclasses
import json

import pytest

from refusals import refusal
from visleak.documents import as_plain, from_plain
from visleak.errors import UsageError
from visleak.settings import CHOSEN, Settings


@pytest.mark.parametrize(
    ("given", "message"),
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
        ({"within_frames": -1}, "within_frames (--max-frame-gap) must be"),
        ({"within_frames": 2**63}, "within_frames (--max-frame-gap) must be"),
        ({"within_seconds": float("nan")}, "within_seconds (--max-time-gap) must be"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    assert message in refusal(UsageError, Settings, **given)


def test_settings_travel_as_plain_values():
    given = Settings(hard=1.0, soft=-1.0, views="mirror", within=False, sample=7)
    assert Settings(**json.loads(json.dumps(given.as_dict()))) == given
    named = [field.name for field in dataclasses.fields(Settings)]
    assert list(given.as_dict()) == [name for name in named if name not in CHOSEN]


def test_how_near_frames_leak_is_stored_where_somebody_chose_it():
    """What a later version added is ignored."""
    given = Settings(within_frames=25, within_seconds=0.5)
    assert given.as_dict() == Settings().as_dict() | {"within_frames": 25, "within_seconds": 0.5}
    assert Settings(**given.as_dict()) == given
    assert from_plain(Settings, {**as_plain(given), "added_later": 1}) == given


def test_settings_are_frozen_and_hashable():
    assert len({Settings(), Settings(), Settings(sample=1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().sample = 3
