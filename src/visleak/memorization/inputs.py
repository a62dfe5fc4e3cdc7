"""Inputs of the commands of memorization: models, lists of prompts, training images, judges.

What they name is read or loaded by their methods; nothing heavy is imported before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from visleak.errors import UsageError, VisleakError
from visleak.memorization.settings import (
    BUDGET,
    CLUSTERS,
    IMAGES,
    JUDGES,
    MODEL,
    PROMPTS,
    SEARCH,
    WORDS,
    number_or,
)
from visleak.options import METHOD, OUTPUT, SPEED, Options, argument, option

if TYPE_CHECKING:
    from visleak.diffusion.model import TokenModel
    from visleak.memorization.benchmark import Judges
    from visleak.memorization.prompts import Prompts
    from visleak.progress import Progress

#: Formats of `read_prompts`; listed here, because help must not load pyarrow.
FORMATS: Final = ".csv, .tsv, .txt, .jsonl, .json, .parquet or .pickle"


def column_option(file: str = "FILE") -> str | None:
    """Return an option for the column of the prompts in a file."""
    return option(
        None,
        f"Column of the prompts in {file}. Default: prompt, caption or text.",
        metavar="COLUMN",
        panel=PROMPTS,
    )


def similarity_option(help: str, panel: str) -> str:
    """Return an option for the similarity of generated images."""
    choices = "sscd:FILE (MemBench), pixels (correlation at 32 x 32), or another encoder."
    text = f"{help}: builtin (fingerprint, confirmed by verification), {choices}"
    return option("builtin", text, metavar="SIMILARITY", panel=panel)


def workers_option() -> int | None:
    """Return an option for the worker processes of a command without a cache."""
    return option(None, "Worker processes.", metavar="N", panel=SPEED, least=1)


#: Help of ``--model``.
PIPELINE: Final = "A diffusers pipeline: a folder, or hub:OWNER/NAME, which is fetched once."


@dataclass(frozen=True)
class Device(Options, panel=MODEL):
    """Where a model runs."""

    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.", metavar="DEVICE")
    precision: str = option(
        "auto", "Default: fp16 on a GPU, else fp32.", choices=("auto", "fp32", "fp16", "bf16")
    )

    def load(self, name: str, progress: Progress) -> TokenModel:
        """Return the model of a name."""
        from visleak import diffusion

        progress("loading the model", 0, 0)
        loaded = diffusion.load_model(name, device=self.device, precision=self.precision)
        progress("loading the model", 1, 1)
        return loaded


@dataclass(frozen=True)
class Model(Device):
    """The diffusion model."""

    model: str = option(..., PIPELINE, metavar="MODEL")


@dataclass(frozen=True)
class OptionalModel(Device):
    """The diffusion model of a command that can also run without one."""

    model: str | None = option(None, PIPELINE, metavar="MODEL")


@dataclass(frozen=True)
class PromptList(Options, panel=PROMPTS):
    """A list of prompts."""

    prompts: Path = option(
        ...,
        f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of detect; a"
        " column label names those that are memorized.",
        metavar="FILE",
    )
    column: str | None = column_option()

    def read(self) -> Prompts:
        """Return the prompts."""
        from visleak.memorization.prompt_files import read_prompts

        return read_prompts(self.prompts, column=self.column)


@dataclass(frozen=True)
class General(Options, panel=PROMPTS):
    """A list of ordinary prompts."""

    general: Path | None = option(
        None,
        "Ordinary prompts, such as COCO's captions, in any of these formats: they set the"
        " threshold of detect, and are the cost of a mitigation.",
        metavar="FILE",
    )
    general_column: str | None = column_option("the file of --general")

    def read(self) -> Prompts | None:
        """Return the prompts."""
        from visleak.memorization.prompt_files import read_prompts

        if self.general is None:
            if self.general_column is not None:
                raise UsageError("--general-column goes with --general FILE")
            return None
        try:
            return read_prompts(self.general, column=self.general_column)
        except VisleakError as error:
            # the column of this file has an option of its own
            raise type(error)(str(error).replace("--column", "--general-column")) from error


@dataclass(frozen=True)
class SearchOptions(Options, panel=SEARCH):
    """Further options of ``search``."""

    method: str = option(
        "gibbs",
        "gibbs (Algorithm 1), or random: strings of random words at the same cost; compare has"
        " more.",
        choices=("gibbs", "random"),
    )
    chains: int = option(
        5, "Independent chains, which share passes of the network (the paper: 200).", least=1
    )


@dataclass(frozen=True)
class Triggers(Options, panel=PROMPTS):
    """The prompts of ``augment``."""

    triggers: Path = option(
        ..., f"Prompts to begin with: {FORMATS}, such as prompts.parquet of search.", metavar="FILE"
    )
    column: str | None = column_option()


@dataclass(frozen=True)
class Compare(Options, panel=SEARCH):
    """Options of ``compare``."""

    source: tuple[str, ...] = option(
        ...,
        "Training images, any SOURCE: only what is verified there counts. May be repeated.",
        metavar="[NAME=]SOURCE",
        panel=IMAGES,
    )
    methods: str = option(
        "gibbs,random",
        "Of gibbs (Algorithm 1), random, greedy, conzic, zerocap, pez.",
        metavar="METHOD,...",
    )
    causal_lm: str | None = option(
        None,
        "Causal language model of zerocap, such as hub:openai-community/gpt2-medium: a folder, or"
        " hub:OWNER/NAME.",
        metavar="LM",
        panel=WORDS,
    )
    prompts: Path | None = option(
        None, f"The list that greedy scores: {FORMATS}.", metavar="FILE", panel=PROMPTS
    )
    column: str | None = column_option()
    length: int = option(8, "Words or tokens of a prompt.", least=1)
    candidates: int | None = option(
        None, "Words that are tried at a position. Default: 200, zerocap 512.", metavar="Q", least=1
    )
    temperature: float | None = option(
        None,
        "Of gibbs, softmax(D / K). Default: 0.1 of the squared norm, for Stable Diffusion 1 alone.",
        metavar="K",
    )
    iterations: int | str | None = option(
        None,
        "Moves of a chain, or paper: the number each method has there. Default: as many as the"
        " budget holds.",
        metavar="N|paper",
        parse=number_or("paper", "--iterations", int, 1),
    )
    beams: int = option(5, "Of zerocap.")
    chains: int = option(
        5, "Candidates of a method, at most (the paper: 200).", panel=BUDGET, least=1
    )
    seeds: int = option(
        1, "Runs of a method, from --seed on; two or more give intervals.", panel=BUDGET, least=1
    )
    images: int = option(100, "Images per candidate.", panel=IMAGES, least=1)
    similarity: str = similarity_option("Similarity by which clusters are made", IMAGES)
    eps: float | None = option(
        None,
        "DBSCAN: distance of neighbours. Default: the similarity's own.",
        metavar="E",
        panel=IMAGES,
    )
    min_cluster: int = option(20, "Least images of a cluster.", panel=IMAGES, least=1)
    workers: int | None = workers_option()

    @property
    def moves(self) -> int | Literal["budget"] | None:
        """Moves of a chain as methods take them; ``None``: the number of each in its paper."""
        if self.iterations is None:
            return "budget"
        return None if self.iterations == "paper" else int(self.iterations)

    @property
    def traced_by(self) -> str:
        """Network of traces: that of clusters, empty for the project's own fingerprint."""
        return self.similarity if self.similarity.startswith("sscd:") else ""

    def listed(self, methods: Sequence[str]) -> Prompts | None:
        """Return the list of the method greedy, if one is given."""
        from visleak.memorization.prompt_files import read_prompts

        if self.prompts is None:
            if self.column is not None:
                raise UsageError("--column goes with --prompts FILE")
            return None
        if "greedy" not in methods:
            raise UsageError("--prompts is for greedy; add greedy to --methods, or leave it out")
        return read_prompts(self.prompts, column=self.column)


@dataclass(frozen=True)
class Dataset(Options):
    """Options of ``dataset``."""

    prompts: tuple[Path, ...] = argument(
        (),
        f"Lists of prompts: {FORMATS}. Equal prompts are joined, with all they name. None with"
        " --trace: the traced prompts.",
        metavar="FILE",
    )
    column: str | None = column_option("the files")
    trace: tuple[Path, ...] = option(
        (),
        "A result of visleak memorization trace: its verified images make their prompts verified,"
        " and name their sources. May be repeated.",
        metavar="DIR",
    )
    verified_by: str | None = option(
        None, "Who verified a list, and how: its prompts that name an image enter.", metavar="TEXT"
    )
    unverified: bool = option(
        False, "Include unverified candidates; the file name and the datasheet state it."
    )


@dataclass(frozen=True)
class Extract(Options, panel=PROMPTS):
    """Further options of ``extract``."""

    prompts: Path | None = option(
        None,
        f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of detect.",
        metavar="FILE",
    )
    column: str | None = column_option()
    top: int | None = option(
        None,
        "Only the N prompts of the highest D, of a list that has it: what search, augment or"
        " detect wrote. Default: all.",
        least=1,
    )
    above_threshold_only: bool = option(
        False, "Only prompts that reached kappa (search, augment) or the threshold (detect)."
    )
    similarity: str = similarity_option("Similarity of images", CLUSTERS)
    recluster: bool = option(
        False, "Only cluster the images in DIR again, without a model.", panel=CLUSTERS
    )
    sheets: bool = option(True, "Draw no contact sheets of clusters.", "--no-sheets", panel=OUTPUT)


@dataclass(frozen=True)
class TraceOptions(Options):
    """Further options of ``trace``."""

    target: str = argument(
        ...,
        "Folder of visleak memorization extract, or any SOURCE of generated images.",
        metavar="EXTRACT_DIR|SOURCE",
    )
    source: tuple[str, ...] = option(
        (),
        "Training images: any SOURCE, or published fingerprints (emb:DIR), which verify nothing."
        " May be repeated.",
        metavar="[NAME=]SOURCE",
        panel="Training images",
    )
    unverified: bool = option(
        False, "No training set: list the images as unverified candidates.", panel="Training images"
    )
    fail_on: tuple[str, ...] = option(
        (),
        "Exit with 3 if more than RATE (0.01 or 1%, default 0) of the traced images count as"
        " memorized, or of any set are unreadable (default 5% where another gate is given). May"
        " be repeated.",
        metavar="GATE[=RATE]",
        panel=OUTPUT,
    )
    no_images: bool = option(False, "Put no images into the report.", panel=OUTPUT)
    device: str = option("cpu", "auto, cpu, cuda, cuda:N or mps.", metavar="DEVICE", panel=SPEED)


@dataclass(frozen=True)
class BenchmarkLists(General):
    """The prompts of ``benchmark``."""

    triggers: Path | None = option(
        None,
        f"Prompts that reproduce training images, with their sources: {FORMATS}, such as"
        " MemBench's SD1_final.csv.",
        metavar="FILE",
    )
    column: str | None = column_option("the file of --triggers")
    references: Path | None = option(
        None,
        "The memorized images: files named like a prompt's sources (name, name without ending, or"
        " the last part of an address). Nothing is fetched. Default: sources that are paths beside"
        " the list of triggers.",
        metavar="DIR",
    )
    reference_map: Path | None = option(
        None, "The same by a table with columns file and source (or prompt).", metavar="FILE.csv"
    )
    trigger_sample: int | None = option(
        None, "Number of trigger prompts, drawn by --seed. Default: all."
    )
    general_sample: int | None = option(None, "Number of general prompts. Default: all.")


@dataclass(frozen=True)
class Measures(Options, panel=JUDGES):
    """What generated images are measured with."""

    similarity: str = similarity_option("Similarity to the memorized images", JUDGES)
    clip: str | None = option(
        None,
        "CLIP score: a folder, OWNER/NAME on the hub, or open_clip:MODEL/WEIGHTS (MemBench:"
        " open_clip:ViT-g-14/laion2b_s12b_b42k).",
        metavar="CLIP",
    )
    aesthetic: Path | None = option(
        None,
        "Aesthetic score: weights of the linear head (sac+logos+ava1-l14-linearMSE.pth).",
        metavar="FILE",
    )
    aesthetic_clip: str | None = option(
        None, "CLIP that the head reads. Default: openai/clip-vit-large-patch14.", metavar="CLIP"
    )
    fid_reference: str | None = option(
        None,
        "Real images, which those of the trigger prompts are compared with as a set (FID and"
        " kernel distance).",
        metavar="SOURCE",
    )
    fid_features: str | None = option(
        None,
        "By whose features: inception:FILE (TorchScript), or an encoder such as dinov2.",
        metavar="FEATURES",
    )
    reference_source: str | None = option(
        None,
        "Images to search for the trigger prompts: the reference performance, which a method"
        " should come down to. Needs --clip.",
        metavar="SOURCE",
    )

    def refuse_halves(self) -> None:
        """Refuse what lacks its other half, before anything is loaded."""
        if (self.fid_reference is None) != (self.fid_features is None):
            raise UsageError(
                "distances need both --fid-reference SOURCE, the real images, and --fid-features F,"
                " such as inception:FILE or dinov2"
            )
        if self.reference_source is not None and self.clip is None:
            raise UsageError("--reference-source finds images by CLIP score: give --clip as well")
        if self.aesthetic_clip is not None and self.aesthetic is None:
            raise UsageError("--aesthetic-clip goes with --aesthetic FILE")

    def load(self, device: str, workers: int | None, progress: Progress) -> Judges:
        """Return the judges, their networks loaded."""
        from visleak.encoders.features import load_alignment, load_features
        from visleak.formats import open_image_set
        from visleak.memorization import metrics
        from visleak.memorization.benchmark import Judges, RealImages
        from visleak.memorization.extraction import load_similarity

        similarity = load_similarity(self.similarity)
        clip = None if self.clip is None else load_alignment(self.clip, device)
        aesthetic = real = source = None
        if self.aesthetic is not None:
            own = {} if self.aesthetic_clip is None else {"clip": self.aesthetic_clip}
            aesthetic = metrics.load_aesthetic(self.aesthetic, device=device, **own)
        if self.fid_reference is not None and self.fid_features is not None:
            features = load_features(self.fid_features, device=device)
            real = RealImages(open_image_set(self.fid_reference), features, progress)
        if self.reference_source is not None and clip is not None:
            source = metrics.FolderByPrompt(
                self.reference_source, clip, workers=workers, progress=progress
            )
        return Judges(similarity, clip, aesthetic, real, source)


@dataclass(frozen=True)
class BenchmarkOptions(Options, panel=OUTPUT):
    """Further options of ``benchmark``."""

    method: tuple[str, ...] = option(
        (),
        "rna:N, rta:N, wen:L or ren:C, options after a comma (wen:3,scope=batch). May be repeated;"
        " paper stands for all of table 3 (Stable Diffusion 1) or 5 (2). None is always included."
        " Default: paper; for other models none and rna, rta, ren of table 3, as far as the model"
        " can have them.",
        metavar="METHOD",
        panel=METHOD,
    )
    workers: int | None = workers_option()
    leaderboard: Path | None = option(
        None, "Add the rows to a leaderboard, a JSON file, created if need be.", metavar="FILE"
    )
    audit: Path | None = option(
        None, "An audit, such as traced/audit, whose report shows the result.", metavar="AUDIT_DIR"
    )
