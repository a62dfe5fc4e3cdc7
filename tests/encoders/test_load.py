"""Encoders by name, and objects that are one."""

from __future__ import annotations

import pytest

from visleak.encoders import ENCODERS, load_encoder
from visleak.errors import UsageError

PARTS = ("name", "digest", "width", "enough", "views", "thresholds", "cohort", "encode", "view")


class Whole:
    """An object with every part of an encoder."""

    name, digest, width, enough, views = "mine", "mine-1", 3, 0, 1
    thresholds = cohort = None

    def encode(self, pictures):
        raise NotImplementedError

    def view(self, vectors, view):
        raise NotImplementedError


@pytest.mark.parametrize("name", ENCODERS)
def test_every_named_encoder_has_every_part(name: str) -> None:
    """Whatever the table names keeps the protocol."""
    encoder = load_encoder(name)
    assert encoder.name == name
    assert [part for part in PARTS if not hasattr(encoder, part)] == []


def test_an_encoder_object_is_passed_on() -> None:
    """Anybody's encoder is as good as a named one."""
    encoder = Whole()
    assert load_encoder(encoder) is encoder


@pytest.mark.parametrize("part", PARTS)
def test_an_object_that_lacks_a_part_is_refused(part: str) -> None:
    """Else it would fail in the middle of an audit, by AttributeError."""
    lacking = type("Lacking", (), {p: getattr(Whole, p) for p in PARTS if p != part})()
    with pytest.raises(UsageError, match=rf"^the encoder object lacks {part}$"):
        load_encoder(lacking)


def test_an_unknown_name_is_refused() -> None:
    """The message lists what there is."""
    with pytest.raises(UsageError, match=r"^encoder must be one of builtin.*; got 'clip2'$"):
        load_encoder("clip2")
