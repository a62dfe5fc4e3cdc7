"""The settings of an audit: one frozen record, stored with the result and part of every key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from visleak.errors import UsageError

SEARCHES: Final = ("exact", "faiss")
VIEW_CHOICES: Final = ("none", "mirror", "all")
CANDIDATE_RULES: Final = ("auto", "nearest", "best")
ANNOTATIONS: Final = ("auto", "used", "unused")
#: Probability from which a pair is ``near``, unless the caller sets another.
NEAR_AT: Final = 0.5
#: Seconds that no recording lasts.
LONGEST: Final = 1e9
#: Settings that are stored only where they are not the default.
CHOSEN: Final = ("within_frames", "within_seconds")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can change what an audit answers, and nothing else.

    How fast the answer comes (workers, cache, progress) is not here, because it never changes
    the answer.

    Attributes:
        encoder: text of the encoder; empty takes that of the embeddings, or ``builtin``.
        search: name of the search engine; all but ``exact`` may miss pairs, and say how many.
        hard, soft: thresholds on similarity; ``None`` takes the encoder's own.
        views: which views of a query are compared: ``none``, ``mirror`` or ``all``.
        candidates: ``auto`` (thresholds and best twenty; of embeddings that pass by, thresholds
            alone), ``best`` (thresholds and best twenty, of those too) or ``nearest`` (each
            query's one nearest).
        local: also take candidates that share local features (pictures of 96 pixels and more).
        within: also look for duplicates within each query set.
        verify: look at the pictures of the candidate pairs and grade them.
        near_at: probability from which a verified pair is ``near``, above 0 and below 1.
        annotations: ``used`` or ``unused`` overrides what the roles say about the modality.
        sample: audit this many queries, drawn with a fixed seed; 0 takes all.
        per_query: cap on the pairs kept for one query (the true count is kept beside).
        within_frames: frames of one recording that lie this far apart, or less, leak if one is
            tested and one trained with. Ten frames are a second of most driving data.
        within_seconds: the same where the time of a frame is known.

    >>> Settings(soft=0.9).soft
    0.9
    >>> Settings(views="some")
    Traceback (most recent call last):
    ...
    visleak.errors.UsageError: views must be one of none, mirror, all; got 'some'
    """

    encoder: str = ""
    search: str = "exact"
    hard: float | None = None
    soft: float | None = None
    views: str = "all"
    candidates: str = "auto"
    local: bool = True
    within: bool = True
    verify: bool = True
    near_at: float = NEAR_AT
    annotations: str = "auto"
    sample: int = 0
    per_query: int = 100
    within_frames: int = 10
    within_seconds: float = 1.0

    def __post_init__(self) -> None:
        choices: Mapping[str, tuple[str, ...]] = {
            "search": SEARCHES,
            "views": VIEW_CHOICES,
            "candidates": CANDIDATE_RULES,
            "annotations": ANNOTATIONS,
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
        for name in ("hard", "soft"):
            value = getattr(self, name)
            if value is not None and not -1.0 <= value <= 1.0:
                raise UsageError(f"{name} must be a similarity between -1 and 1; got {value}")
        if self.hard is not None and self.soft is not None and self.hard < self.soft:
            raise UsageError(
                f"hard ({self.hard}) must not be below soft ({self.soft}): similarity is higher"
                " when more alike"
            )
        if not 0.0 < self.near_at < 1.0:
            raise UsageError(
                f"near_at must be a probability above 0 and below 1; got {self.near_at}"
            )
        if self.near_at != NEAR_AT and not self.verify:
            raise UsageError(
                f"near_at ({self.near_at}) is for verified pairs; leave it out, or verify"
            )
        if self.sample < 0 or self.per_query < 1:
            raise UsageError("sample must be 0 or more and per_query 1 or more")
        if not (0 <= self.within_frames < 2**63 and 0.0 <= self.within_seconds < LONGEST):
            raise UsageError(
                "within_frames must be from 0 to below 2^63, and within_seconds from 0 to below"
                f" {LONGEST:,.0f}; got {self.within_frames} and {self.within_seconds}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, in the order of the attributes.

        How near frames leak stands there only where somebody chose it: most audits know no frames.
        """
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in CHOSEN or getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Settings:
        """Return stored settings; names that this version does not know are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: each for name, each in value.items() if name in known})
