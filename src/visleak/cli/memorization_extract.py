"""``visleak memorization extract``: candidate images of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli.memorization_options import FORMATS, MODEL, OUT, option
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.prompts import Prompts, PromptScores

IMAGES: Final = "How images are made"
CLUSTERS: Final = "What counts as a cluster"

ModelOrNone = Annotated[
    str | None,
    option(
        "--model M",
        "A pipeline of diffusers: a folder, or hub:OWNER/NAME, which is fetched once.",
        MODEL,
    ),
]
PromptFile = Annotated[
    Path | None,
    option(
        "--prompts FILE",
        f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of detect.",
    ),
]
Column = Annotated[
    str | None,
    option("--column C", "Column of the prompts in FILE.", default="prompt, caption or text"),
]
Top = Annotated[
    int | None,
    option(
        "--top N",
        "Only the N prompts of the highest D, of a list that has it: what search, augment or"
        " detect wrote.",
        default="all",
        min=1,
    ),
]
Reached = Annotated[
    bool,
    option(
        "--reached", "Only prompts that reached kappa (search, augment) or the threshold (detect)."
    ),
]
Images = Annotated[int | None, option("--images N", "Images a prompt.", IMAGES, default="100")]
Steps = Annotated[int, option("--steps N", "Steps of the sampler.", IMAGES)]
Guidance = Annotated[
    float,
    option("--guidance G", "Scale of classifier-free guidance; 1 is none and costs half.", IMAGES),
]
BatchOfImages = Annotated[int, option("--batch N", "Images made at a time.", IMAGES)]
SeedOfImages = Annotated[int, option("--seed N", "Of the noises images start from.", IMAGES, min=0)]
OwnNoises = Annotated[
    bool,
    option(
        "--own-noises", "Other noises for each prompt; by default all start from the same.", IMAGES
    ),
]
Similarity = Annotated[
    str,
    option(
        "--similarity S",
        "builtin (fingerprint, confirmed by verification), sscd:FILE (MemBench; squeezed as"
        " by its code: sscd:FILE?resize=288x288), pixels (correlation at 32 x 32), or another"
        " encoder.",
        CLUSTERS,
    ),
]
Eps = Annotated[
    float | None,
    option(
        "--eps E",
        "DBSCAN: distance (1 - similarity) of neighbours.  \\[default: 0.5; pixels: 0.1; other"
        " encoders but SSCD: that of their soft threshold]",
        CLUSTERS,
    ),
]
MinSamples = Annotated[
    int,
    option(
        "--min-samples N",
        "DBSCAN: neighbours, itself counted, that make an image a core.",
        CLUSTERS,
    ),
]
MinCluster = Annotated[
    int | None, option("--min-cluster N", "Least images of a cluster.", CLUSTERS, default="20")
]
Rule = Annotated[
    str,
    option(
        "--rule R",
        "Defaults of --images and --min-cluster: paper (100, 20) or code (50, and every"
        " cluster is kept, as MemBench's code does).",
        CLUSTERS,
    ),
]
Recluster = Annotated[
    bool,
    option("--recluster", "Only cluster the images in DIR again, without a model.", CLUSTERS),
]
NoPictures = Annotated[bool, option("--no-pictures", "Draw no contact sheets of clusters.", OUT)]


def extract(
    model: ModelOrNone = None,
    prompts: PromptFile = None,
    column: Column = None,
    top: Top = None,
    reached: Reached = False,
    images: Images = None,
    steps: Steps = 50,
    guidance: Guidance = 7.5,
    seed: SeedOfImages = 0,
    own_noises: OwnNoises = False,
    similarity: Similarity = "builtin",
    eps: Eps = None,
    min_samples: MinSamples = 3,
    min_cluster: MinCluster = None,
    rule: Rule = "paper",
    recluster: Recluster = False,
    out: shared.Out = Path("visleak-extract"),
    no_pictures: NoPictures = False,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    batch: BatchOfImages = 8,
    force: shared.Force = False,
    json: shared.Json = False,
) -> None:
    """Generate many images of each prompt, and cluster those that are nearly the same.

    A prompt whose images keep coming out the same may reproduce a training image: the medoid of
    each cluster is a candidate, which [bold]visleak memorization trace[/] looks up. Images are
    kept: interrupted runs resume, and other clusters need no new images.
    """
    from visleak.cli.progress import bars
    from visleak.memorization.extraction import ExtractSettings, load_similarity, reclustered
    from visleak.memorization.extraction import extract as extracted
    from visleak.memorization.extraction.document import document
    from visleak.memorization.model import Sampling

    shared.refuse_other_kind(out, "extract")
    if rule not in ("paper", "code"):
        raise UsageError(f"--rule is paper or code; got {rule!r}")
    if recluster:
        if reached or any(given is not None for given in (model, prompts, column, top, images)):
            raise UsageError(
                f"--recluster takes the images that are in {out}; leave out --model, --prompts,"
                " --column, --top, --reached and --images"
            )
        # the least size of a cluster must fit
        images = _images_there(out)
    settings = ExtractSettings.by(
        "code" if rule == "code" else "paper",
        images=images,
        min_cluster=min_cluster,
        eps=eps,
        min_samples=min_samples,
        seed=seed,
        paired=not own_noises,
    )
    pictures = not no_pictures
    if recluster:
        with bars() as progress:
            result = reclustered(
                out, settings, similarity=similarity, pictures=pictures, progress=progress
            )
    else:
        # what is quick to refuse comes before the model is loaded
        name, listed, scores = _listed(model, prompts, column, top, reached=reached)
        measure = load_similarity(similarity)
        with bars() as progress:
            progress("loading the model", 0, 0)
            loaded = shared.model_of(name, device, precision)
            progress("loading the model", 1, 1)
            result = extracted(
                loaded,
                listed.texts,
                settings,
                out,
                similarity=measure,
                sampling=Sampling(steps, guidance, batch),
                scores=scores,
                pictures=pictures,
                progress=progress,
                force=force,
            )
    columns = ("prompt", "cluster", "size", "images", "cohesion")
    shared.say_result(document(result), result.folder / "extract.json", json=json, columns=columns)


def _listed(
    model: str | None, file: Path | None, column: str | None, top: int | None, *, reached: bool
) -> tuple[str, Prompts, PromptScores | None]:
    """Return the name of the model, and the prompts with their D.

    Raises:
        UsageError: one of them is missing.
    """
    from visleak.memorization.prompt_files import Choice, chosen, read_prompts, scores_of

    if model is None or file is None:
        missing = "--model" if model is None else "--prompts"
        raise UsageError(f"{missing} is missing: give --model M and --prompts FILE")
    listed = chosen(read_prompts(file, column=column), file, Choice(top, reached))
    scores = scores_of(listed, file)
    for line in listed.notes:
        edges.note(edges.plain(line))
    return model, listed, scores


def _images_there(out: Path) -> int:
    """Return how many images of each prompt a folder holds.

    Raises:
        UsageError: it holds no finished extraction.
    """
    from visleak.memorization.extraction import read_extraction

    return int(read_extraction(out).about["settings"]["images"])
