"""Settings: one frozen record that refuses what cannot be meant."""

import json
from dataclasses import fields

import pytest

from refusals import refusal
from visleak.documents import as_plain, from_plain
from visleak.errors import UsageError
from visleak.settings import CHOSEN, Settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"views": ""}, "views must be one of none, mirror, all; got ''"),
        ({"hard": 1.5}, "hard must be from -1 to 1; got 1.5"),
        ({"soft": float("nan")}, "soft must be from -1 to 1; got nan"),
        ({"sample": -1}, "sample must be 0 or more; got -1"),
        ({"hard": 0.5, "soft": 0.8}, "hard (0.5) must not be below soft (0.8)"),
        ({"per_query": 0}, "per_query must be 1 or more; got 0"),
        ({"within_frames": 2**63}, "within_frames (--max-frame-gap) must be"),
        ({"within_seconds": float("nan")}, "within_seconds (--max-time-gap) must be"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    assert message in refusal(UsageError, Settings, **given)


def test_settings_travel_as_plain_values():
    """What a later version added is ignored; how near frames leak is stored where it was chosen."""
    given = Settings(hard=1.0, soft=-1.0, views="mirror", within=False, sample=7)
    assert Settings(**json.loads(json.dumps(given.as_dict()))) == given
    assert list(given.as_dict()) == [f.name for f in fields(Settings) if f.name not in CHOSEN]
    near = {"within_frames": 25, "within_seconds": 0.5}
    given = Settings(**near)
    assert given.as_dict() == Settings().as_dict() | near
    assert from_plain(Settings, {**as_plain(given), "added_later": 1}) == given
