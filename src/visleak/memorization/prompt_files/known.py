"""What a datasheet can say of a data set of prompts without asking anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import visleak
from visleak.memorization.prompt_files.records import PromptSet

#: What is done to every list.
_DONE: Final = (
    "Equal prompts were joined, with all images they name; spaces around them were removed;"
    " empty ones, and those that are labelled not memorized, were left out."
)


def known_answers(data: PromptSet) -> dict[int, str]:
    """Return what is known of a data set without asking anybody, by number of question."""
    unverified = data.verified < data.prompts
    kind = "candidates for trigger prompts" if unverified else "trigger prompts"
    answers = {
        1: f"To hold {kind} of a text-to-image model: prompts on which it replays images of its"
        " training, for auditing the model and for evaluating what is done against it.",
        5: f"Prompts: texts given to {_model(data)}.",
        6: _numbers(data),
        8: "The text of a prompt, names or addresses of memorized images where known, and figures."
        " No image is in it.",
        9: _labels(data),
        10: _missing(data),
        11: _relations(data),
        12: "None. Prompts of one group belong to one part, and intervals draw on groups.",
        13: _noise(data),
        14: _elsewhere(data),
        22: _acquired(data),
        35: _DONE,
        37: f"visleak {visleak.__version__} (visleak memorization dataset).",
        43: "Training generative models. It is for audits and for evaluating mitigation alone.",
    }
    if unverified:
        answers[42] = (
            f"{data.prompts - data.verified:,} of {data.prompts:,} prompts are unverified: nobody"
            " has shown that their images are copies. They must not be counted as memorized."
        )
    return answers


def _model(data: PromptSet) -> str:
    if not data.model:
        return "a text-to-image model, which no list names"
    # a path of somebody's machine is nobody's business
    name = str(data.model.get("name", "")).rstrip("/").rsplit("/", 1)[-1] or "a model"
    about = [
        f"{key} {data.model[key]}"
        for key in ("family", "prediction", "precision", "digest")
        if isinstance(data.model.get(key), str)
    ]
    return f"the model {name}" + (f" ({', '.join(about)})" if about else "")


def _numbers(data: PromptSet) -> str:
    verified = f"{data.verified:,} of them verified" if data.verified else "none of them verified"
    if data.verified == data.prompts:
        verified = "all verified"
    return (
        f"{data.prompts:,} prompts, {verified}; {data.images:,} names of memorized images. Prompts"
        f" have {_words(data.words)}; {data.other_letters:,} have letters beyond ASCII."
    )


def _words(counts: tuple[int, int, int]) -> str:
    """Return how many words prompts have.

    >>> _words((3, 4, 9)), _words((6, 6, 6)), _words((1, 1, 1))
    ('3 to 9 words, median 4', '6 words', '1 word')
    """
    fewest, median, most = counts
    if fewest == most:
        return f"{most:,} word{'s' * (most != 1)}"
    return f"{fewest:,} to {most:,} words, median {median:,}"


def _labels(data: PromptSet) -> str:
    by = "; ".join(f"{count:,} by {name}" for name, count in data.verified_by.items())
    said = (
        f"verified and verified_by say whether and by whom an image of a prompt was found"
        f" to be a copy: {by or 'none so far'}."
    )
    if data.labelled:
        said += f" label says so of {data.labelled:,} prompts."
    if data.scored:
        said += f" {data.scored:,} prompts have a D (d_l2, d_squared)."
    return said


def _missing(data: PromptSet) -> str:
    said = f"{data.unnamed:,} of {data.prompts:,} prompts name no memorized image."
    left = "; ".join(f"{count:,} {reason}" for reason, count in data.left_out.items())
    return said + (f" Left out of {data.candidates:,} candidates: {left}." if left else "")


def _relations(data: PromptSet) -> str:
    return (
        f"Yes: prompts that share a memorized image have one group. There are {data.groups:,},"
        f" the largest of {data.largest:,} prompts; they say as much as {data.effective:.1f} groups"
        f" of one size. Each prompt belongs to {_model(data)}."
    )


def _noise(data: PromptSet) -> str:
    said = "Prompts of one group are often variants of each other, by a word or two."
    return " ".join([said, *(f"{note}." for note in data.notes)])


def _elsewhere(data: PromptSet) -> str:
    if not data.images:
        return "It names no images."
    return (
        "Images are named, not included. Nothing guarantees that an address still answers; where"
        " several are known for one image, all are kept. The images have owners and terms of their"
        " own."
    )


def _acquired(data: PromptSet) -> str:
    parts = []
    for origin in data.origins:
        verb = f"visleak memorization {origin['verb']}" if origin["verb"] else "a list of others"
        parts.append(f"{origin['file']} ({verb}, SHA-256 {origin['sha256']})")
        if origin["settings"]:
            parts[-1] += " with " + ", ".join(
                f"{key} {value}" for key, value in _flat(origin["settings"])
            )
    return f"From {'; '.join(parts)}." if parts else "From prompts that were given by a program."


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return settings that are single values; a number of them says how a list was made."""
    return [
        (str(key), str(value)[:80])
        for key, value in settings.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ][:30]
