"""Settings of memorization: the arguments of its functions and the options of its commands.

Constants of Hong et al. 2024 ("MemBench") carry the scale of D that they are on: all that the paper
prints for its searches are on the squared scale, although its equation 4 is the norm itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from visleak.diffusion.model import Sampling
from visleak.errors import UsageError
from visleak.options import METHOD, OUTPUT, Options, option, share
from visleak.settings import VIEW_CHOICES

#: Panels of ``--help``.
MODEL: Final = "Model"
PROMPTS: Final = "Prompts"
SCORE: Final = "Trigger score D"
IMAGES: Final = "Images"
CLUSTERS: Final = "Clusters"
SEARCH: Final = "Search"
WORDS: Final = "Words"
BUDGET: Final = "Budget"
JUDGES: Final = "Measurements"
Norm = Literal["l2", "squared"]
Preset = Literal["paper", "paper-sd2", "official-code"]
#: The preset that follows the authors' code where it differs from the paper.
CODE: Final = "official-code"
#: Language model that the paper proposes words with.
LANGUAGE_MODEL: Final = "hub:google-bert/bert-base-uncased"
#: Commands whose results are folders; their tables share names, so that each needs its own. The
#: file that describes a folder is named like its command.
COMMANDS: Final = (
    *("detect", "search", "augment", "diversify", "extract", "trace", "compare", "dataset"),
    "benchmark",
)


def number_or(
    word: str, flag: str, kind: type[int] | type[float], least: float = -math.inf
) -> Callable[[str], str | float | None]:
    """Return what reads a finite number, or a word; the word ``none`` is ``None``."""
    what = "a whole number" if kind is int else "a number"
    what += "" if math.isinf(least) else f" from {least:g}"

    def parse(text: str) -> str | float | None:
        if text == word:
            return None if word == "none" else word
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not -math.inf < value < math.inf or value < least:
            raise UsageError(f"{flag} must be {what}, or {word}; got {text!r}")
        return value

    return parse


# -- the trigger score D --------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreSettings(Options):
    """What D is made of; stored next to every score and threshold."""

    noises: int = option(
        1, "Noises D is averaged over; each costs a pass per prompt, plus 1.", panel=SCORE, least=1
    )
    timestep: Literal["first"] | int = option(
        "first",
        "first: the sampler's first step (the paper); or a number, such as 999, which is the"
        " default of --preset official-code.",
        metavar="first|N",
        panel=SCORE,
        parse=number_or("first", "--timestep", int, 0),
    )
    steps: int = 50  #: of the sampler that ``"first"`` refers to
    output: Literal["raw", "epsilon"] = option(
        "raw",
        "raw: the network's output; epsilon: the noise it stands for (v-prediction).",
        "--score-output",
        panel=SCORE,
        choices=("raw", "epsilon"),
    )
    norm: Norm = option(
        "l2",
        "Which norm is called D: l2 (equation 4) or squared (the authors' code).",
        panel=SCORE,
        choices=("l2", "squared"),
    )
    seed: int = option(0, "Seed of all random numbers.", least=0)
    batch: int = option(16, "Rows per call of the network. On a GPU 128.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1:
            raise UsageError(f"steps must be 1 or more; got {self.steps}")
        whole = type(self.timestep) is int and 0 <= self.timestep < 1_000_000
        if self.timestep != "first" and not whole:
            raise UsageError(
                "timestep must be 'first' or a whole number from 0, such as 999; got"
                f" {self.timestep!r}"
            )

    def about(self) -> dict[str, object]:
        """Return what determines the scores, as plain data."""
        return {name: value for name, value in asdict(self).items() if name != "batch"}


@dataclass(frozen=True)
class SearchScore(ScoreSettings):
    """D of a search, whose constants are on the squared scale."""

    norm: Norm = option(
        "squared",
        "Which norm is called D: squared, which the constants of searches are on, or l2 (equation"
        " 4).",
        panel=SCORE,
        choices=("l2", "squared"),
    )


@dataclass(frozen=True)
class Analysis(Options, panel=SCORE):
    """What detection makes of the scores."""

    fpr: float = option(
        0.01,
        "Share of ordinary prompts that may reach the threshold.",
        metavar="RATE",
        above=0,
        below=1,
        parse=share,
    )
    bounded: bool = option(
        False,
        "Not the observed share but its 95 % upper bound is at most RATE (1% needs 299 ordinary"
        " prompts).",
    )
    threshold: float | None = option(
        None, "A threshold set before, by the same model and settings.", metavar="D", least=0
    )
    tokens: int = option(
        0, "Attribute D to the tokens of the K prompts of the largest D.", metavar="K", least=0
    )
    method: str = option(
        "gradient",
        "gradient (Wen et al. 2024), or leave-one-out (D without each word; any model).",
        "--tokens-by",
        choices=("gradient", "leave-one-out"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bounded and self.threshold is not None:
            raise UsageError(
                "--bounded sets a threshold by --fpr, --threshold gives one; choose one"
            )


# -- searches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanguageModel(Options, panel=WORDS):
    """The masked language model that proposes words, and which of its words are taken."""

    lm: str = option(
        LANGUAGE_MODEL,
        "Masked language model that proposes words: a folder, or hub:OWNER/NAME, which is fetched"
        " once.",
        metavar="LM",
    )
    banned: str | None = option(
        None,
        "Words that are never proposed: none, own (colours, landscapes: they raise D without"
        " memorization) or a file, one per line. Default: none; own with --preset official-code.",
        metavar="none|own|FILE",
    )


@dataclass(frozen=True)
class Budget(Options, panel=BUDGET):
    """What a search may spend; whichever limit is reached first ends it."""

    calls: int | None = option(
        None,
        "Passes of the diffusion network at most, all chains together; compare: per run of a"
        " method, images of its candidates not included.",
        "--max-calls",
        least=1,
    )
    seconds: float | None = option(
        None, "Seconds at most, over all runs of a search.", "--max-seconds", metavar="S", above=0
    )

    @property
    def unlimited(self) -> bool:
        """Whether nothing is limited."""
        return self.calls is None and self.seconds is None


_PRESET: Final = (
    "Constants, and what is done where the paper and the authors' code differ; see"
    " docs/memorization.md. Defaults shown are those of paper."
)


def _temperature(default: float) -> float:
    return option(
        default,
        "Temperature of the draw among them, softmax(D / K): lower is greedier. On the scale of D"
        " of the model: the default is of Stable Diffusion 1.",
        metavar="K",
        above=0,
    )


@dataclass(frozen=True)
class MoveSettings(Options, panel=SEARCH):
    """What Algorithms 1 and 2 share; see :class:`GibbsSettings`, :class:`AugmentSettings`."""

    preset: Preset = "paper"
    candidates: int = option(
        200, "Words that are tried at a position, the most probable.", metavar="Q", least=1
    )
    temperature: float = 0.1
    norm: Norm = "squared"

    @property
    def code(self) -> bool:
        """Whether the authors' code is followed."""
        return self.preset == CODE


@dataclass(frozen=True)
class GibbsSettings(MoveSettings):
    """Settings of Algorithm 1; Q is ``candidates``, K and kappa are on the scale of ``norm``.

    Where the code differs from the paper, the preset decides: the code returns the best of all
    scored candidates instead of the visited states, and always lets mask and present word be
    drawn, so that prompts may be shorter than n.
    """

    preset: Preset = option("paper", _PRESET, choices=("paper", CODE))
    length: int = option(8, "Word pieces of a prompt.", least=1)
    iterations: int = option(150, "Moves of a chain.", metavar="N", least=1)
    temperature: float = _temperature(0.1)
    kappa: float | None = option(
        5.0,
        "A chain ends after a round whose best has it; none: after one round. On the scale of D"
        " of the model, as --temperature.",
        metavar="D|none",
        parse=number_or("none", "--kappa", float),
    )
    rounds: int | None = option(
        10,
        "Rounds of a chain at most; none: until kappa or the budget.",
        metavar="N|none",
        least=1,
        parse=number_or("none", "--rounds", int),
    )
    keep: int = option(1000, "Prompts in bank.parquet, those of the highest D.", least=1)


@dataclass(frozen=True)
class AugmentSettings(MoveSettings):
    """Settings of Algorithm 2; Q is ``candidates``; K, kappa, floor are on the scale of ``norm``.

    The code stops a chain at s moves below kappa instead of above s, runs one chain per position
    from the trigger, and lets the trigger's and the present word be drawn.
    """

    preset: Preset = option("paper", _PRESET, choices=("paper", "paper-sd2", CODE))
    iterations: int = option(20, "Moves of a chain.", metavar="N", least=1)
    temperature: float = _temperature(1.5)
    kappa: float = option(3.0, "A chain that stays below it is stopped.", metavar="D")
    patience: int = option(3, "Moves in a row that may end below kappa.", metavar="S", least=1)
    repeats: int = option(1, "Runs of all chains for each trigger.", least=1)
    top: int | None = option(100, "Prompts kept of each trigger.", metavar="T", least=1)
    floor: float | None = option(None, "Drop prompts with a mean D below.", metavar="D")


#: Settings by preset. The paper prints those of Algorithm 1 for Stable Diffusion 1 only; the digit
#: of its n is lost in print, 8 is the code's. Its own example of Algorithm 2 (appendix C.2) and the
#: code take N = 50 rather than the 20 of table 6.
PRESETS: Final[Mapping[type, Mapping[str, Any]]] = MappingProxyType(
    {
        GibbsSettings: {"paper": GibbsSettings(), CODE: GibbsSettings(CODE, kappa=None, rounds=1)},
        AugmentSettings: {
            "paper": AugmentSettings(),
            "paper-sd2": AugmentSettings("paper-sd2", temperature=50.0, kappa=50.0),
            CODE: AugmentSettings(CODE, iterations=50, floor=5.0, repeats=100, top=None),
        },
    }
)


def preset_of(settings: MoveSettings) -> Any:
    """Return the settings of a preset."""
    return PRESETS[type(settings)][settings.preset]


def by_preset(settings: Any, given: Mapping[str, Any], norm: Norm | None = None) -> Any:
    """Return a preset's settings with those that were given."""
    preset = preset_of(settings)
    known = {each.name: getattr(settings, each.name) for each in fields(settings)}
    known = {name: value for name, value in known.items() if name in given and name != "norm"}
    missing = [f"--{name}" for name in ("temperature", "kappa") if name not in known]
    if norm not in (None, preset.norm) and missing:
        raise UsageError(
            f"--norm {norm} needs {' and '.join(missing)}: the preset's are on the {preset.norm}"
            " scale, and cannot be converted"
        )
    return replace(preset, **known, norm=norm or preset.norm)


@dataclass(frozen=True)
class DiversifySettings(Options):
    """What is picked of a bank of prompts (Algorithm 3)."""

    count: int = option(20, "Prompts to pick.", least=1)
    per_source: bool = option(
        False, "Pick N for each prompt of the column trigger, which augment writes (the paper)."
    )
    seed: int = option(0, "Seed of the first pick.", least=0)


# -- extraction and tracing -----------------------------------------------------------------------


@dataclass(frozen=True)
class ExtractSettings(Options, panel=CLUSTERS):
    """What candidate images are taken from (Hong et al. 2024, section 4)."""

    images: int = option(100, "Images per prompt.", panel=IMAGES, least=1, most=100_000)
    eps: float | None = option(
        None,
        "DBSCAN: distance (1 - similarity) of neighbours. Default: 0.5; pixels: 0.1; other"
        " encoders but SSCD: that of their soft threshold.",
        metavar="E",
        above=0,
        most=2,
    )
    min_samples: int = option(
        3, "DBSCAN: neighbours, itself counted, that make an image a core.", least=1
    )
    min_cluster: int = option(20, "Least images of a cluster.", least=1)
    seed: int = option(0, "Seed of the noises that images start from.", panel=IMAGES, least=0)
    paired: bool = option(
        True,
        "Other noises for each prompt; by default all share theirs.",
        "--own-noises",
        panel=IMAGES,
    )

    def refuse_small(self) -> None:
        """Refuse fewer images than a cluster has."""
        if self.min_cluster > self.images:
            raise UsageError(
                f"min_cluster must be at most the number of images ({self.images}), or no cluster"
                f" could be found; got {self.min_cluster}"
            )


@dataclass(frozen=True)
class TraceSettings(Options, panel=METHOD):
    """How generated images are compared with training images."""

    tau: float = option(
        0.7,
        "M_tau = 1 where the similarity to some training image is above X (definition 1).",
        metavar="X",
        least=-1,
        below=1,
    )
    kappa_share: float = option(
        0.5,
        "A prompt is in D_mem if more than RATE (0.5 or 50%) of its images have M_tau = 1; with"
        " --all.",
        metavar="RATE",
        least=0,
        below=1,
        parse=share,
    )
    similarity: str = option(
        "",
        "Encoder whose cosine tau belongs to: sscd:FILE (MemBench), or any other of --encoder."
        " Default: that of published fingerprints, else builtin.",
        metavar="ENCODER",
    )
    views: str = option(
        "none",
        "Views of the generated images that are compared: none (definition 1), mirror (for models"
        " trained with random flips) or all.",
        choices=VIEW_CHOICES,
    )
    layouts: bool = option(
        True,
        "Do not search for copies in other colours (one more pass over the sources).",
        "--no-layouts",
    )
    every: bool = option(
        False,
        "Trace all images of the extraction, not one per cluster, and report which prompts"
        " replicate (D_mem).",
        "--all",
        panel="Training images",
    )
    categories: Path | None = option(
        None,
        "What memorized images show: columns category (commercial product, human, artwork, other)"
        " and reference, image or prompt.",
        metavar="FILE.csv",
    )


# -- the benchmark of mitigations -----------------------------------------------------------------


@dataclass(frozen=True)
class BenchmarkSettings(Options, panel=JUDGES):
    """What images a benchmark makes, and which numbers are made of them."""

    images: int = option(10, "Images per trigger prompt.", panel=IMAGES, least=1, most=100_000)
    general_images: int = option(
        1, "Images per general prompt.", panel=IMAGES, least=1, most=100_000
    )
    sampling: Sampling = field(default_factory=Sampling)  #: steps, guidance, images per batch
    seed: int = option(0, "Seed of the noises that all methods share.", panel=IMAGES, least=0)
    deviation: str = option(
        "images",
        "Deviation of the aesthetic score in the tables: of images, of the means of prompts, or"
        " within a prompt; files have all.",
        "--std",
        choices=("images", "prompts", "within"),
    )
    sheets: bool = option(True, "Draw no sheet of the worst images.", "--no-sheets", panel=OUTPUT)
