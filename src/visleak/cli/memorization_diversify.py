"""``visleak memorization diversify``: prompts of a bank that say different things."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli import memorization_search_options as own
from visleak.cli.memorization_options import option


def diversify(
    model: shared.ModelName,
    prompts: Annotated[
        Path,
        option(
            "--prompts FILE",
            f"The bank: {shared.FORMATS}, such as prompts.parquet of augment.",
            own.SEARCH,
        ),
    ],
    column: Annotated[
        str | None,
        option(
            "--column C",
            "Column of the prompts in FILE.",
            own.SEARCH,
            default="prompt, caption or text",
        ),
    ] = None,
    count: Annotated[int, option("--count N", "Prompts to pick.", own.SEARCH, min=1)] = 20,
    per_source: Annotated[
        bool,
        option(
            "--per-source",
            "Pick N for each prompt of the column trigger, which augment writes (the paper).",
            own.SEARCH,
        ),
    ] = False,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    out: shared.Out = Path("visleak-diversify"),
    json: shared.Json = False,
    force: shared.Force = False,
) -> None:
    """Pick prompts that are far from one another in the model's text encoder (Algorithm 3).

    Writes diversify.json and prompts.parquet, prompts.csv.
    """
    from visleak.cli.progress import bars
    from visleak.memorization.prompt_files import read_prompts, read_values
    from visleak.memorization.search.run import TRIGGER, diversify_into, document

    shared.refuse_other_kind(out, "diversify")
    listed = read_prompts(prompts, column=column)
    # a prompt that was made from several triggers has a row for each
    triggers = read_values(prompts, TRIGGER, column=column) if per_source else ()
    with bars() as progress:
        progress("loading the model", 0, 0)
        loaded = shared.model_of(model, device, precision)
        progress("loading the model", 1, 1)
        made = diversify_into(
            loaded,
            listed,
            out,
            count=count,
            per_source=per_source,
            triggers=triggers,
            seed=seed,
            force=force,
            say=edges.note,
        )
    shared.say_result(document("diversify", made), out / "diversify.json", json=json, rows=20)
