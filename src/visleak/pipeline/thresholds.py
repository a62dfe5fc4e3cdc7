"""Where degrees begin: the encoder's own thresholds, a file of calibrated ones, or the caller's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.documents import read_document
from visleak.errors import UsageError, VisleakError
from visleak.records import Encoder
from visleak.settings import Settings

#: What a file of thresholds says it is, and the version of its layout.
KIND: Final = "visleak thresholds"
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where degrees begin."""

    # similarities; None where they are not known
    hard: float | None
    soft: float | None
    provenance: str  # where they come from, in words
    provisional: bool  # not yet calibrated at a stated error rate


def thresholds_of(
    encoder: Encoder, settings: Settings, calibrated: Mapping[str, Any] | None = None
) -> Thresholds:
    """Return the thresholds of a run; never those of another encoder."""
    own = calibrated or encoder.thresholds or {}
    hard = settings.hard if settings.hard is not None else own.get("hard")
    soft = settings.soft if settings.soft is not None else own.get("soft")
    if hard is not None and soft is not None and hard < soft:
        # one of the two was given and crosses the other, which is only a default
        hard, soft = (soft, soft) if settings.soft is not None else (hard, hard)
    if soft is None and hard is not None:
        # the one threshold there is: whatever reaches it is hard, and nothing is soft alone
        soft = hard
    given = [n for n in ("hard", "soft") if getattr(settings, n) is not None]
    provenance = str(own.get("provenance", "none: this encoder ships no thresholds"))
    if given:
        rest = "" if len(given) == 2 else f"; otherwise {provenance}"
        provenance = f"{' and '.join(given)} given by the caller{rest}"
    provisional = bool(own.get("provisional", False)) and len(given) < 2
    return Thresholds(hard, soft, provenance, provisional)


def read_thresholds(path: str | os.PathLike[str], encoder: Encoder) -> Mapping[str, Any]:
    """Return an encoder's entry of a file that ``visleak calibrate`` wrote."""
    content = _read(Path(path))
    encoders: Mapping[str, Any] = content["encoders"]
    found = encoders.get(encoder.digest)
    if found is None:
        held = ", ".join(
            f"{_name(entry)} ({str(digest)[:12]})" for digest, entry in encoders.items()
        )
        raise UsageError(
            f"{path} holds thresholds of {held or 'no encoder'}, not of {encoder.name}"
            f" ({encoder.digest[:12]}); thresholds of one encoder never serve another: run"
            f" `visleak calibrate S --encoder {encoder.name}`"
        )
    _check(path, found)
    return dict(found)


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise UsageError(f"thresholds {path} is not a file; `visleak calibrate` writes one")
    content = read_document(path, KIND, SCHEMA, "`visleak calibrate` writes files of thresholds")
    if not isinstance(content.get("encoders"), dict):
        raise VisleakError(f"{path} is damaged: it has no encoders; run `visleak calibrate` again")
    return content


def _name(entry: object) -> str:
    return str(entry.get("name", "an encoder")) if isinstance(entry, dict) else "an encoder"


def _check(path: str | os.PathLike[str], entry: object) -> None:
    """Refuse an entry that no similarity can be compared with."""
    values = [entry.get(name) for name in ("hard", "soft")] if isinstance(entry, dict) else [None]
    known = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(known) != len(values) or not -1.0 <= known[1] <= known[0] <= 1.0:
        raise VisleakError(
            f"{path} is damaged: hard and soft must be similarities with -1 <= soft <= hard <= 1;"
            " run `visleak calibrate` again"
        )
