"""``visleak memorization extract``: candidate images of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli.memorization_options import FORMATS, MODEL, OUT, option
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.extraction import Extraction, ExtractSettings
    from visleak.memorization.model import Sampling
    from visleak.memorization.prompt_files import Choice

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
    option("--recluster", "Only cluster the images in DIR anew: no model, no new image.", CLUSTERS),
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
    """Make many images of each prompt, and cluster those that come out nearly the same.

    A prompt whose images keep coming out the same may replay a training image: the middle image
    of each cluster is a candidate, which [bold]visleak memorization trace[/] looks up. Images are
    kept: a run that was stopped goes on, and other clusters need no new ones.
    """
    from visleak.memorization.extraction import ExtractSettings
    from visleak.memorization.model import Sampling
    from visleak.memorization.prompt_files import Choice

    shared.refuse_other_kind(out, "extract")
    if rule not in ("paper", "code"):
        raise UsageError(f"--rule is paper or code; got {rule!r}")
    if recluster:
        if reached or any(given is not None for given in (model, prompts, column, top, images)):
            raise UsageError(
                f"--recluster takes the images that are in {out}; leave out --model, --prompts,"
                " --column, --top, --reached and --images"
            )
        # what the least size of a cluster has to fit
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
    how: dict[str, Any] = {"similarity": similarity, "pictures": not no_pictures}
    if recluster:
        result = _reclustered(out, settings, how)
    else:
        sampling = Sampling(steps, guidance, batch)
        order = _Order(model, prompts, column, Choice(top, reached), device, precision, force)
        result = order.carried_out(out, settings, sampling, how)
    _show(result, json=json)


class _Order:
    """What to make images of, and by which model."""

    def __init__(
        self,
        model: str | None,
        prompts: Path | None,
        column: str | None,
        choice: Choice,
        device: str,
        precision: str,
        force: bool,
    ) -> None:
        if model is None or prompts is None:
            missing = "--model" if model is None else "--prompts"
            raise UsageError(f"{missing} is missing: give --model M and --prompts FILE")
        self._model, self._prompts, self._column = model, prompts, column
        self._choice = choice
        self._device, self._precision, self._force = device, precision, force

    def carried_out(
        self, out: Path, settings: ExtractSettings, sampling: Sampling, how: dict[str, Any]
    ) -> Extraction:
        """Load, make images, cluster, write."""
        from visleak.cli.progress import bars
        from visleak.memorization.extraction import extract as extracted
        from visleak.memorization.extraction import load_similarity
        from visleak.memorization.prompt_files import chosen, read_prompts, scores_of

        # what is quick to refuse comes before the model is loaded
        read = read_prompts(self._prompts, column=self._column)
        listed = chosen(read, self._prompts, self._choice)
        scores = scores_of(listed, self._prompts)
        measure = load_similarity(how.pop("similarity"))
        for line in listed.notes:
            edges.note(edges.plain(line))
        with bars() as progress:
            progress("loading the model", 0, 0)
            model = shared.model_of(self._model, self._device, self._precision)
            progress("loading the model", 1, 1)
            return extracted(
                model,
                listed.texts,
                settings,
                out,
                similarity=measure,
                sampling=sampling,
                scores=scores,
                progress=progress,
                force=self._force,
                **how,
            )


def _images_there(out: Path) -> int:
    """Return how many images of each prompt a folder holds.

    Raises:
        UsageError: it holds no finished extraction.
    """
    from visleak.memorization.extraction import read_extraction

    settings: Any = read_extraction(out).about["settings"]
    return int(settings["images"])


def _reclustered(out: Path, settings: ExtractSettings, how: dict[str, Any]) -> Extraction:
    from visleak.cli.progress import bars
    from visleak.memorization.extraction import reclustered

    with bars() as progress:
        return reclustered(out, settings, progress=progress, **how)


def _show(result: Extraction, *, json: bool) -> None:
    """Print the summary, or the result's JSON as it was written."""
    from visleak.memorization.extraction.stored import RESULT, cautions, headline

    if json:
        edges.say((result.folder / RESULT).read_text(encoding="utf-8"))
        return
    lines = [headline(result)]
    for each in result.clusters[:10]:
        lines.append(f"  {each.size:,} of {each.images:,}  {edges.plain(each.prompt)[:100]}")
    if len(result.clusters) > 10:
        lines.append(f"  and {len(result.clusters) - 10:,} more in clusters.csv")
    lines += (edges.plain(line) for line in cautions(result))
    for missed in result.unclustered[:10]:
        lines.append(f"  D {missed.d:.4g}  {edges.plain(missed.prompt)[:100]}")
    about: Any = result.about
    lines.append(
        f"{result.images:,} images, {result.calls:,} passes of the network; similarity"
        f" {edges.plain(str(about['similarity']['name']))}; {edges.plain(str(result.folder))}"
    )
    edges.say("\n".join(lines) + "\n")
