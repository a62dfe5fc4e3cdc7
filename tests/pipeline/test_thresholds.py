"""Thresholds come from the right place, and never from another encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.comparison import KIND, SCHEMA, read_thresholds, thresholds_of
from visleak.settings import Settings

ENTRY = {"name": "builtin", "hard": 0.9375, "soft": 0.75, "provenance": "measured on doves"}


def written(path: Path, entry: object = None, digest: str | None = None, **extra: Any) -> Path:
    digest = digest or load_encoder().digest
    content = {"kind": KIND, "schema": SCHEMA, "encoders": {digest: entry or ENTRY}} | extra
    path.write_text(json.dumps(content))
    return path


def test_a_file_comes_before_what_ships_and_the_caller_before_the_file(tmp_path: Path) -> None:
    """Three places, one order."""
    encoder = load_encoder()
    entry = read_thresholds(written(tmp_path / "t.json"), encoder)
    found = thresholds_of(encoder, Settings(), entry)
    assert (found.hard, found.soft, found.provenance) == (0.9375, 0.75, "measured on doves")
    assert not found.provisional
    mixed = thresholds_of(encoder, Settings(hard=0.97), entry)
    assert (mixed.hard, mixed.soft) == (0.97, 0.75)
    assert mixed.provenance == "hard given by the caller; otherwise measured on doves"
    assert thresholds_of(encoder, Settings()).hard == encoder.thresholds["hard"]


def test_provisional_thresholds_stay_so_until_both_are_given() -> None:
    """An encoder may ship values that nobody has calibrated."""
    rough = {**ENTRY, "provisional": True}
    encoder = load_encoder()
    assert thresholds_of(encoder, Settings(), rough).provisional
    assert thresholds_of(encoder, Settings(hard=0.95), rough).provisional
    assert not thresholds_of(encoder, Settings(hard=0.95, soft=0.9), rough).provisional


def test_another_encoders_thresholds_are_refused(tmp_path: Path) -> None:
    """A similarity of 0.9 means another thing to every encoder."""
    path = written(tmp_path / "t.json", {**ENTRY, "name": "clip"}, digest="c0ffee" * 4)
    said = (
        rf"holds thresholds of clip \(c0ffeec0ffee\), not of builtin \({load_encoder().digest[:12]}"
    )
    with pytest.raises(UsageError, match=said):
        read_thresholds(path, load_encoder())


def test_an_audit_uses_the_file(tmp_path: Path, natural: dict[str, np.ndarray]) -> None:
    """Its thresholds and where they come from stand in the summary, and it is another audit."""
    folder = tmp_path / "set"
    folder.mkdir()
    for name in ("coffee", "moon"):
        Image.fromarray(natural[name]).save(folder / f"{name}.png")
    out = tmp_path / "out"
    visleak.audit(folder, folder, out=out, cache=None)
    path = written(tmp_path / "t.json")
    with pytest.raises(UsageError, match="another audit"):
        visleak.audit(folder, folder, out=out, cache=None, thresholds=path)
    result = visleak.audit(folder, folder, out=out, cache=None, thresholds=path, force=True)
    found = result.summary.as_dict()["thresholds"]
    assert {name: found[name] for name in ("hard", "soft", "provenance")}.items() <= ENTRY.items()
    again = visleak.audit(folder, folder, out=out, cache=None, thresholds=path)
    assert again.reused


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (None, UsageError, "is not a file; `visleak calibrate` writes one"),
        ("{", VisleakError, "cannot be read"),
        ("[]", VisleakError, 'does not say "kind": "visleak thresholds"; `visleak calibrate`'),
        ('{"kind": "audit"}', VisleakError, 'does not say "kind"'),
        (f'{{"kind": "{KIND}", "schema": 99}}', VisleakError, "has layout 99, this visleak reads"),
        (f'{{"kind": "{KIND}", "schema": 1}}', VisleakError, "is damaged: it has no encoders"),
    ],
)
def test_what_is_no_file_of_thresholds_is_refused(
    tmp_path: Path, text: str | None, kind: type[VisleakError], said: str
) -> None:
    path = tmp_path / "t.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(kind) as caught:
        read_thresholds(path, load_encoder())
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "values", [{"hard": 0.5, "soft": 0.6}, {"hard": 1.5}, {"hard": "0.9"}, {"soft": None}]
)
def test_thresholds_that_cannot_be_are_refused(tmp_path: Path, values: dict[str, object]) -> None:
    """A file that somebody edited must not turn every pair into a leak."""
    path = written(tmp_path / "t.json", ENTRY | values)
    with pytest.raises(VisleakError, match="hard and soft must be similarities with -1 <= soft"):
        read_thresholds(path, load_encoder())
