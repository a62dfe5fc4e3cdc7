"""A data set of trigger prompts, as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PromptSet:
    """What a folder of a data set of prompts holds.

    Attributes:
        folder: with the table, ``datasheet.md`` and ``dataset.json``.
        table: name of the table: ``prompts.parquet`` or ``prompts-unverified.parquet``.
        prompts: how many there are.
        verified: how many of them are verified triggers.
        verified_by: how many were verified, by whom.
        labelled: how many have a label.
        scored: how many have a D.
        unnamed: how many name no image.
        images: distinct names of memorized images; one image may have several.
        groups: of prompts that share an image.
        effective: as many groups of one size would say as much.
        largest: prompts of the largest group.
        words: of a prompt: fewest, median, most.
        other_letters: prompts with letters beyond ASCII.
        candidates: there were before any were left out.
        left_out: how many were left out, by reason.
        model: that the prompts are triggers of, as plain data; empty where no list says.
        origins: files it was made of: name, sha256, verb, settings.
        notes: what a reader must know, a line each.
        answered: numbers of the questions of the datasheet that have an answer.
        day: it was made, as ``YYYY-MM-DD``.
        key: of everything that was asked but the day; equal keys are equal requests.
    """

    folder: Path
    table: str
    prompts: int
    verified: int
    verified_by: Mapping[str, int]
    labelled: int
    scored: int
    unnamed: int
    images: int
    groups: int
    effective: float
    largest: int
    words: tuple[int, int, int]
    other_letters: int
    candidates: int
    left_out: Mapping[str, int]
    model: Mapping[str, Any]
    origins: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    answered: tuple[int, ...]
    day: str
    key: str = ""
