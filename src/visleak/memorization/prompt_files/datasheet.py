"""The datasheet of a data set of prompts: what is known, and what nobody has answered."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import visleak
from visleak.errors import UsageError, VisleakError
from visleak.markup import markdown_cell
from visleak.memorization.prompt_files.known import known_answers
from visleak.memorization.prompt_files.questions import COUNT, SECTIONS
from visleak.memorization.prompt_files.records import PromptSet

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
        raise VisleakError(f"answers {path} are no TOML: {said}") from error
    answers = {}
    for key, value in content.items():
        match = _KEY.fullmatch(key)
        if match is None or int(match[1]) > COUNT:
            raise UsageError(
                f"answers {path}: keys are q1 to q{COUNT}, numbers of questions in datasheet.md;"
                f" got {key[:40]!r}"
            )
        if not isinstance(value, str) or not value.strip():
            raise VisleakError(f"answers {path}: {key} is a text that says something")
        answers[int(match[1])] = value
    return answers


def datasheet(data: PromptSet, answers: Mapping[int, str]) -> str:
    """Return the datasheet as Markdown.

    Args:
        data: what is known.
        answers: of people, by number of question; they stand before what is known.
    """
    known = known_answers(data)
    title = "Trigger prompts" if data.verified == data.prompts else "Unverified candidate prompts"
    lines = [
        f"# Datasheet: {title}",
        "",
        f"{markdown_cell(data.table)}, made on {data.day} with visleak {visleak.__version__}."
        f" {len(data.answered)} of {COUNT} questions are answered; the others say so. The questions"
        ' are those of "Datasheets for Datasets" (Gebru et al. 2021), in short.',
    ]
    for section, first, questions in SECTIONS:
        lines += ["", f"## {section}"]
        for number, question in enumerate(questions, first):
            lines += ["", f"**Q{number}. {question}**", ""]
            said = [*_paragraphs(answers.get(number, "")), *_paragraphs(known.get(number, ""))]
            lines += said or [
                f'*not answered: `q{number} = "..."` in the file given with `--answers`*'
            ]
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
