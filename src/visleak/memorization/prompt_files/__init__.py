"""Files of prompts: those of the papers, and our own. Nothing they name is ever fetched."""

from visleak.memorization.prompt_files.choosing import Choice, chosen, provenance_of, scores_of
from visleak.memorization.prompt_files.datasheet import PromptSet, read_answers
from visleak.memorization.prompt_files.reading import read_prompts, read_values
from visleak.memorization.prompt_files.verifying import joined, prompts_of, traced, vouched
from visleak.memorization.prompt_files.writing import write_prompts

__all__ = [
    "Choice",
    "PromptSet",
    "chosen",
    "joined",
    "prompts_of",
    "provenance_of",
    "read_answers",
    "read_prompts",
    "read_values",
    "scores_of",
    "traced",
    "vouched",
    "write_prompts",
]
