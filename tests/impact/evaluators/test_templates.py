"""Prompt templates: OpenAI's own, word for word, and files of templates."""

import hashlib

import pytest

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.zeroshot import load_templates

#: SHA-256 of the 80 lines of ``imagenet_templates``, joined by line feeds, as they stand in the
#: notebook of OpenAI's CLIP repository and in open_clip's ``OPENAI_IMAGENET_TEMPLATES``.
PUBLISHED = "4f976686fb651bb5803d4689dcd849f75efe0ef19a3c801355bc9a6f03c8a5af"


def test_openais_templates_are_the_published_ones():
    sentences = load_templates("openai").sentences
    assert len(sentences) == len(set(sentences)) == 80
    assert all(sentence.count("{}") == 1 for sentence in sentences)
    assert hashlib.sha256("\n".join(sentences).encode()).hexdigest() == PUBLISHED


def test_a_file_of_templates(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffa drawing of a {}.\r\n\r\n  das {}  \r\n".encode())
    mine = load_templates(str(path))
    assert mine.sentences == ("a drawing of a {}.", "das {}")
    assert mine.digest != load_templates("simple").digest
    assert "must be openai, simple or a text file" in refusal(UsageError, load_templates, "mine")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a {}.\na photo\n", "line 2: 'a photo' has no {} for the name of a class"),
        ("a {}.\n\na {}.\n", "line 3: 'a {}.' is also in line 1"),
        ("\n", "the file is empty; write one per line, such as a photo of a {}."),
    ],
)
def test_files_that_are_refused(tmp_path, content, said):
    path = tmp_path / "t.txt"
    path.write_text(content)
    message = refusal(VisleakError, load_templates, str(path))
    assert message.startswith(f"templates {path}")
    assert said in message
