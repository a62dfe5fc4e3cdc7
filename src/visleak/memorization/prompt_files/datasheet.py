"""The datasheet of a data set of prompts (Gebru et al. 2021): known and missing answers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import visleak
from visleak.errors import UsageError, VisleakError
from visleak.markup import markdown_cell

#: Questions that visleak answers, in short, by their number in appendix I of MemBench (Hong et al.
#: 2024), which has the 59 of the preprint. Others are listed where a person answers them.
QUESTIONS: Final[Mapping[int, str]] = {
    1: "For what purpose was the data set made?",
    5: "What are the instances?",
    6: "How many are there, of each kind?",
    8: "What does each instance consist of?",
    9: "Does each have a label or target?",
    10: "Is anything missing from instances?",
    11: "Are relations between instances made explicit?",
    12: "Are there recommended splits?",
    13: "Are there errors, noise or redundancies?",
    14: "Does it stand for itself, or rely on external resources?",
    22: "How was the data acquired?",
    35: "What was done to the data?",
    37: "Is the software available?",
    42: "Can anything in it do harm in later uses?",
    43: "What must it not be used for?",
    48: "Under which licence or terms is it distributed?",
}

COUNT: Final = 59


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
        1: f"To hold {kind} of a text-to-image model: prompts for which it reproduces training"
        " images, for auditing the model and for evaluating mitigations.",
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
            f"{data.prompts - data.verified:,} of {data.prompts:,} prompts are unverified: their"
            " images are not shown to be copies. They must not be counted as memorized."
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


#: A larger file of answers is none.
MOST_BYTES: Final = 1 << 20

_KEY: Final = re.compile(r"q([1-9][0-9]?)")


def read_answers(path: Path) -> dict[int, str]:
    """Return the answers of a TOML file: ``q48 = "CC BY 4.0"``, a line or text each.

    Raises:
        UsageError: there is no such file, or a key is no question.
        VisleakError: it is no TOML, or an answer is no text.
    """
    if not path.is_file():
        raise UsageError(f"answers {path}: there is no such file")
    if path.stat().st_size > MOST_BYTES:
        raise VisleakError(f"answers {path} are longer than {MOST_BYTES:,} bytes")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())[:200]
        raise VisleakError(f"answers {path} are not TOML: {said}") from error
    answers = {}
    for key, value in content.items():
        match = _KEY.fullmatch(key)
        if match is None or int(match[1]) > COUNT:
            raise UsageError(
                f"answers {path}: keys are q1 to q{COUNT}, numbers of the questions of a datasheet;"
                f" got {key[:40]!r}"
            )
        if not isinstance(value, str) or not value.strip():
            raise VisleakError(f"answers {path}: {key} is a text that says something")
        answers[int(match[1])] = value
    return answers


def datasheet(data: PromptSet, answers: Mapping[int, str]) -> str:
    """Return the datasheet as Markdown: the questions that have an answer.

    Args:
        data: what is known.
        answers: of people, by number of question; they come before what is known.
    """
    known = known_answers(data)
    title = "Trigger prompts" if data.verified == data.prompts else "Unverified candidate prompts"
    lines = [
        f"# Datasheet: {title}",
        "",
        f"{markdown_cell(data.table)}, made on {data.day} with visleak {visleak.__version__}."
        f" {len(data.answered)} of the {COUNT} questions of "
        '"Datasheets for Datasets" (Gebru et al. 2021) are answered. Answer others in a TOML file,'
        ' `q48 = "..."`, and give it with `--answers`.',
    ]
    for number in sorted({*known, *answers}):
        question = QUESTIONS.get(number, f"Question {number}")
        lines += ["", f"**Q{number}. {question}**", ""]
        lines += [*_paragraphs(answers.get(number, "")), *_paragraphs(known.get(number, ""))]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """Return a text of anybody as lines of Markdown in which nothing is markup."""
    found: list[str] = []
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.strip():
            # quoted: no paragraph can begin a heading, a list or a rule of the page
            found += [*([">"] if found else []), f"> {_safe(part)}"]
    return found


def _safe(text: str) -> str:
    """Return a text as one line that begins neither a list nor a rule."""
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", markdown_cell(" ".join(text.split())))
