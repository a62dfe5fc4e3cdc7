"""Files of prompts: those of the papers, and our own. Nothing they name is ever fetched."""

from visleak.memorization.prompt_files.dataset import write_prompts
from visleak.memorization.prompt_files.reading import read_prompts, read_values
from visleak.memorization.prompt_files.selection import (
    chosen,
    joined,
    prompts_of,
    provenance_of,
    scores_of,
    traced,
    vouched,
)

__all__ = [
    "chosen",
    "joined",
    "prompts_of",
    "provenance_of",
    "read_prompts",
    "read_values",
    "scores_of",
    "traced",
    "vouched",
    "write_prompts",
]
