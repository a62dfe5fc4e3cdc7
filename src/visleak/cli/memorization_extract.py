"""``visleak memorization extract``: candidate images of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from visleak.cli import edges
from visleak.cli.memorization_options import (
    FORMATS,
    MODEL,
    OUT,
    Device,
    Force,
    Json,
    Out,
    Precision,
    refuse_other_kind,
)
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.extraction import Extraction, ExtractSettings
    from visleak.memorization.model import Sampling

IMAGES: Final = "How images are made"
CLUSTERS: Final = "What counts as a cluster"

ModelOrNone = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="M",
        rich_help_panel=MODEL,
        show_default=False,
        help="A pipeline of diffusers: a folder, or hub:OWNER/NAME, which is fetched once.",
    ),
]
PromptFile = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        show_default=False,
        help=f"The prompts: {FORMATS}, such as prompts.parquet of search or scores.parquet of"
        " detect.",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="C",
        show_default=False,
        help="Column of the prompts in FILE.  \\[default: prompt, caption or text]",
    ),
]
Images = Annotated[
    int | None,
    typer.Option(
        "--images",
        metavar="N",
        rich_help_panel=IMAGES,
        show_default=False,
        help="Images a prompt.  \\[default: 100]",
    ),
]
Steps = Annotated[
    int, typer.Option("--steps", metavar="N", rich_help_panel=IMAGES, help="Steps of the sampler.")
]
Guidance = Annotated[
    float,
    typer.Option(
        "--guidance",
        metavar="G",
        rich_help_panel=IMAGES,
        help="Scale of classifier-free guidance; 1 is none and costs half.",
    ),
]
BatchOfImages = Annotated[
    int,
    typer.Option("--batch", metavar="N", rich_help_panel=IMAGES, help="Images made at a time."),
]
SeedOfImages = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        rich_help_panel=IMAGES,
        help="Of the noises images start from.",
    ),
]
OwnNoises = Annotated[
    bool,
    typer.Option(
        "--own-noises",
        rich_help_panel=IMAGES,
        help="Other noises for each prompt; by default all start from the same.",
    ),
]
Similarity = Annotated[
    str,
    typer.Option(
        "--similarity",
        metavar="S",
        rich_help_panel=CLUSTERS,
        help="builtin (fingerprint, confirmed by verification), sscd:FILE (MemBench), pixels"
        " (correlation at 32 x 32), or another encoder.",
    ),
]
Eps = Annotated[
    float | None,
    typer.Option(
        "--eps",
        metavar="E",
        rich_help_panel=CLUSTERS,
        show_default=False,
        help="DBSCAN: distance (1 - similarity) of neighbours.  \\[default: 0.5; pixels: 0.1; other"
        " encoders but SSCD: that of their soft threshold]",
    ),
]
MinSamples = Annotated[
    int,
    typer.Option(
        "--min-samples",
        metavar="N",
        rich_help_panel=CLUSTERS,
        help="DBSCAN: neighbours, itself counted, that make an image a core.",
    ),
]
MinCluster = Annotated[
    int | None,
    typer.Option(
        "--min-cluster",
        metavar="N",
        rich_help_panel=CLUSTERS,
        show_default=False,
        help="Least images of a cluster.  \\[default: 20]",
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        "--rule",
        metavar="R",
        rich_help_panel=CLUSTERS,
        help="Defaults of --images and --min-cluster: paper (100, 20) or code (50, and every"
        " cluster is kept, as MemBench's code does).",
    ),
]
Recluster = Annotated[
    bool,
    typer.Option(
        "--recluster",
        rich_help_panel=CLUSTERS,
        help="Only cluster the images in DIR anew: no model, no new image.",
    ),
]
NoPictures = Annotated[
    bool,
    typer.Option("--no-pictures", rich_help_panel=OUT, help="Draw no contact sheets of clusters."),
]


def extract(
    model: ModelOrNone = None,
    prompts: PromptFile = None,
    column: Column = None,
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
    out: Out = Path("visleak-extract"),
    no_pictures: NoPictures = False,
    device: Device = "auto",
    precision: Precision = "auto",
    batch: BatchOfImages = 8,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make many images of each prompt, and cluster those that come out nearly the same.

    A prompt whose images keep coming out the same may replay a training image: the middle image
    of each cluster is a candidate, which [bold]visleak memorization trace[/] looks up. Images are
    kept: a run that was stopped goes on, and other clusters need no new ones.
    """
    from visleak.memorization.extraction import ExtractSettings
    from visleak.memorization.model import Sampling

    refuse_other_kind(out, "extract")
    if rule not in ("paper", "code"):
        raise UsageError(f"--rule is paper or code; got {rule!r}")
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
        if any(given is not None for given in (model, prompts, column, images)):
            raise UsageError(
                f"--recluster takes the images that are in {out}; leave out --model, --prompts,"
                " --column and --images"
            )
        result = _reclustered(out, settings, how)
    else:
        sampling = Sampling(steps, guidance, batch)
        order = _Order(model, prompts, column, device, precision, force)
        result = order.carried_out(out, settings, sampling, how)
    _show(result, json=json)


class _Order:
    """What to make images of, and by which model."""

    def __init__(
        self,
        model: str | None,
        prompts: Path | None,
        column: str | None,
        device: str,
        precision: str,
        force: bool,
    ) -> None:
        if model is None or prompts is None:
            missing = "--model" if model is None else "--prompts"
            raise UsageError(f"{missing} is missing: give --model M and --prompts FILE")
        self._model, self._prompts, self._column = model, prompts, column
        self._device, self._precision, self._force = device, precision, force

    def carried_out(
        self, out: Path, settings: ExtractSettings, sampling: Sampling, how: dict[str, Any]
    ) -> Extraction:
        """Load, make images, cluster, write."""
        from visleak.cli.memorization_options import model_of
        from visleak.cli.progress import bars
        from visleak.memorization.extraction import extract as extracted
        from visleak.memorization.extraction import load_similarity
        from visleak.memorization.prompt_files import read_prompts

        # what is quick to refuse comes before the model is loaded
        texts = read_prompts(self._prompts, column=self._column).texts
        measure = load_similarity(how.pop("similarity"))
        with bars() as progress:
            progress("loading the model", 0, 0)
            model = model_of(self._model, self._device, self._precision)
            progress("loading the model", 1, 1)
            return extracted(
                model,
                texts,
                settings,
                out,
                similarity=measure,
                sampling=sampling,
                progress=progress,
                force=self._force,
                **how,
            )


def _reclustered(out: Path, settings: ExtractSettings, how: dict[str, Any]) -> Extraction:
    from visleak.cli.progress import bars
    from visleak.memorization.extraction import reclustered

    with bars() as progress:
        return reclustered(out, settings, progress=progress, **how)


def _show(result: Extraction, *, json: bool) -> None:
    """Print the summary, or the result's JSON as it was written."""
    from visleak.memorization.extraction.stored import RESULT, headline

    if json:
        edges.say((result.folder / RESULT).read_text(encoding="utf-8"))
        return
    lines = [headline(result)]
    for each in result.clusters[:10]:
        lines.append(f"  {each.size:,} of {each.images:,}  {edges.plain(each.prompt)[:100]}")
    if len(result.clusters) > 10:
        lines.append(f"  and {len(result.clusters) - 10:,} more in clusters.csv")
    about: Any = result.about
    lines.append(
        f"{result.images:,} images, {result.calls:,} passes of the network; similarity"
        f" {edges.plain(str(about['similarity']['name']))}; {edges.plain(str(result.folder))}"
    )
    edges.say("\n".join(lines) + "\n")
