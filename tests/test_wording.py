"""The vocabulary: words that neither sources nor pages use, with what to write in their place."""

import re
from pathlib import Path

import visleak

SOURCES = Path(visleak.__file__).parent
REPOSITORY = Path(__file__).parents[1]

#: Patterns of words, and the better word. A pattern matches whole words, and identifiers in parts.
WORDS = {
    r"pictures?": "image (or pixels, figure)",
    r"nobody|whoever|everybody": "a sentence about the thing",
    r"alike(?:ness)?": "similar, similarity; both",
    r"cannot be had|could not be had": "could not be loaded",
    r"(?<!there )(?:is|are) no(?! longer| more| less| fewer| such|\.)": "is not a, has no",
    r"by heart": "memorized",
    r"goes on|go on|going on": "continues, resumes",
    r"trainings": "training runs",
    r"anew|over again": "again",
    r"told from chance": "significant",
    r"yardsticks?": "reference similarity",
    r"shel(?:f|ves)": "store",
    r"crews?": "executor, workers",
    r"workplaces?": "context",
    r"afar": "remote",
    r"desks?": "context",
    r"wishes": "options",
    r"makeup|besides": "composition; also",
    r"lets? go|left alone|is no use": "reject, ignore",
    r"belongs? together": "connected",
    r"looked at|looks? at": "verify, read",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"\w+s an? (?:image|query|line|step|set|second|page|worker|file) (?:each|apiece)": "per",
}
FORBIDDEN = re.compile(
    "|".join(f"(?P<w{n}>(?<![a-z])(?:{word})(?![a-z]))" for n, word in enumerate(WORDS))
)

#: Phrases in which such a word is the right one: names of files, keys and options that users have,
#: and terms of others.
ALLOWED = re.compile(
    r"""picture in picture|["']pictures["']|"img", "picture",|`pictures?`|`pictures=`"""
    r"""|pictures\.rgb|`\w+_pictures`|--no-pictures|`trainings`|`makeup(?:\.csv)?`|`alike`"""
)


def texts():
    sources = (path for path in SOURCES.rglob("*") if path.suffix in {".py", ".j2", ".js", ".css"})
    return sorted([*sources, *REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def found_in(text):
    """Yield line, word and better word of each word that is not to be used."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in FORBIDDEN.finditer(ALLOWED.sub("", line.lower())):
            yield number, match.group(), list(WORDS.values())[int(match.lastgroup[1:])]


def test_plain_words_are_used():
    lines = [
        f"{path.relative_to(REPOSITORY)}:{number}: {word!r}; write: {better}"
        for path in texts()
        for number, word, better in found_in(path.read_text("utf-8"))
    ]
    assert not lines, f"{len(lines)} words\n" + "\n".join(lines)
