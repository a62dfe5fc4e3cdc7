"""Options of ``visleak memorization search`` and ``augment``, and what they make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli.memorization_options import option
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.model import TokenModel
    from visleak.memorization.search.driver import Budget, Progress
    from visleak.memorization.search.proposals import MaskedLanguageModel, Rules
    from visleak.pipeline.workplace import Progress as Bar

WORDS: Final = "The words"
SEARCH: Final = "The search"
SPENT: Final = "What it may cost"

LanguageModel = Annotated[
    str | None,
    option(
        "--lm LM",
        "Masked language model that proposes words: a folder, or hub:OWNER/NAME.",
        WORDS,
        default="hub:google-bert/bert-base-uncased, fetched once",
    ),
]


def banned_option(usual: str) -> Any:
    """Return ``--banned`` of a verb whose own list is as usual says."""
    return option(
        "--banned F",
        "Words that are never proposed: none, own (colours, landscapes: they raise D without"
        " memorization) or a file, one per line.",
        WORDS,
        default=f"{usual}",
    )


#: Where the language model's proposals are the paper's, and where its authors' code's.
_CODE: Final = "with --preset official-code"

Banned = Annotated[str | None, banned_option(f"none; {_CODE} own")]
Timestep = Annotated[
    str | None,
    option(
        "--timestep T",
        "first: the sampler's first step; or a number.  \\[default: by preset; paper first,"
        " official-code 999]",
        shared.SCORE,
        callback=shared.checked_timestep,
    ),
]
Norm = Annotated[
    str | None,
    option(
        "--norm NORM",
        "Scale of D, K and kappa: l2 or squared.  \\[default: squared, as the presets' values"
        " are; another asks for --temperature and --kappa]",
        shared.SCORE,
        callback=shared.checked_norm,
    ),
]
Iterations = Annotated[
    int | None,
    option(
        "--iterations N",
        "Moves of a chain.",
        SEARCH,
        default="by preset; paper 150 for search, 20 for augment",
        min=1,
    ),
]
CandidateCount = Annotated[
    int | None,
    option(
        "--candidates Q",
        "Words that are tried at a position, the most probable.",
        SEARCH,
        default="200",
        min=1,
    ),
]
Temperature = Annotated[
    float | None,
    option(
        "--temperature K",
        "Of the draw among them, softmax(D / K): lower is greedier. On the scale of D of the"
        " model: the default is of Stable Diffusion 1.  \\[default: by preset; paper 0.1 for"
        " search, 1.5 for augment]",
        SEARCH,
    ),
]
Calls = Annotated[
    int | None,
    option(
        "--calls N", "Passes of the diffusion network at most, all chains together.", SPENT, min=1
    ),
]
Seconds = Annotated[
    float | None,
    option("--seconds S", "Seconds at most, over all runs of a resumed search.", SPENT),
]


def refuse_other_norm(norm: str | None, preset: str, **given: object) -> None:
    """Refuse a norm that is not the preset's without values on its scale.

    Raises:
        UsageError: one is missing.
    """
    if norm in (None, preset):
        return
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if missing:
        raise UsageError(
            f"--norm {norm} needs {' and '.join(missing)}: the preset's are on the {preset} scale,"
            " and cannot be converted"
        )


def language_model_of(text: str | None, rules: Rules, model: TokenModel) -> MaskedLanguageModel:
    """Return the language model that ``--lm`` names, beside the diffusion model."""
    from visleak.memorization.search.proposals import DEFAULT, load_language_model

    return load_language_model(text or DEFAULT, rules=rules, device=model.device)


def budget_of(calls: int | None, seconds: float | None) -> Budget:
    """Return what ``--calls`` and ``--seconds`` allow."""
    from visleak.memorization.search.driver import Budget

    return Budget(calls, seconds)


def told(bar: Bar, step: str, calls: int | None) -> Callable[[Progress], None]:
    """Return what shows a search's progress, with the highest D so far."""
    last = [""]

    def say(progress: Progress) -> None:
        best = progress.best
        # a bar has one name for its life: the best so far is told in lines of its own
        if best is not None and best.prompt and best.prompt != last[0]:
            last[0] = best.prompt
            bar(f"highest D so far {best.score:.4g}: {best.prompt[:60]}", 0, 0)
        if calls is not None:
            bar(step, min(progress.calls, calls), calls)
        else:
            bar(step, progress.done, progress.total or 0)

    return say


@contextmanager
def kept_if_interrupted(out: Path) -> Iterator[None]:
    """Report what is kept when a search is interrupted.

    Raises:
        Stopped: in place of the interruption.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        word, code = edges.verdict(error)
        raise edges.Stopped(
            f"{word}; finished steps are kept in {out}; the same command resumes",
            code,
        ) from error
