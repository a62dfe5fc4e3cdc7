"""``visleak memorization extract``: candidate images of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from visleak.cli import edges
from visleak.cli import memorization_extract_options as its
from visleak.cli import memorization_options as shared
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.extraction import Extraction, ExtractSettings
    from visleak.memorization.model import Sampling
    from visleak.memorization.prompt_files import Choice


def extract(
    model: its.ModelOrNone = None,
    prompts: its.PromptFile = None,
    column: its.Column = None,
    top: its.Top = None,
    reached: its.Reached = False,
    images: its.Images = None,
    steps: its.Steps = 50,
    guidance: its.Guidance = 7.5,
    seed: its.SeedOfImages = 0,
    own_noises: its.OwnNoises = False,
    similarity: its.Similarity = "builtin",
    eps: its.Eps = None,
    min_samples: its.MinSamples = 3,
    min_cluster: its.MinCluster = None,
    rule: its.Rule = "paper",
    recluster: its.Recluster = False,
    out: shared.Out = Path("visleak-extract"),
    no_pictures: its.NoPictures = False,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    batch: its.BatchOfImages = 8,
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
