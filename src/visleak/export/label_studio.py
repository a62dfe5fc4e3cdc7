"""Pairs to judge as tasks of Label Studio."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from visleak.export.pairs_to_judge import PairToJudge, pairs_to_judge
from visleak.reporting.gallery import Detail, thumb
from visleak.storage import replacing_text
from visleak.verdicts.label_studio import CONTROL, DIGESTS, NAMES

#: The labelling interface of the project that the tasks are imported into.
INTERFACE: Final = """<View>
  <Header value="$caption"/>
  <View style="display: flex; gap: 1em">
    <Image name="query" value="$query_image"/>
    <Image name="reference" value="$reference_image"/>
  </View>
  <Choices name="grade" toName="query" choice="single" showInline="true" required="true">
    <Choice value="exact"/>
    <Choice value="near"/>
    <Choice value="similar"/>
    <Choice value="different"/>
  </Choices>
</View>
"""

#: How finely images are stored in tasks: long side in pixels, and bytes.
DETAIL: Final = Detail(512, 40_000)


def interface_path(out: Path) -> Path:
    """Return where the labelling interface of a file of tasks goes."""
    return out.with_suffix(".xml")


def write_tasks(
    folder: Path, out: Path, grade: str | None, query_set: str | None
) -> tuple[Path, ...]:
    """Write the pairs of a test set with small copies of their images, the likeliest leaks first.

    The automatic grade is a prediction. A file beside it, ``.xml`` in place of the suffix, is the
    labelling interface.
    """
    with replacing_text(out) as lines:
        lines.write("[")
        for number, pair in enumerate(pairs_to_judge(folder, grade, query_set)):
            lines.write(f"{',' if number else ''}\n{json.dumps(_task(pair))}")
        lines.write("\n]\n")
    with replacing_text(interface_path(out)) as lines:
        lines.write(INTERFACE)
    return out, interface_path(out)


def _task(pair: PairToJudge) -> dict[str, object]:
    """Return the task of a pair: what shows its images, and the automatic grade."""
    row = pair.row
    shown = [thumb(image, DETAIL.side, DETAIL).uri for image in pair.images]
    choice = {"choices": [row["grade"]]}
    predicted = {"from_name": CONTROL, "to_name": "query", "type": "choices", "value": choice}
    return {
        "data": {
            "caption": pair.caption,
            "query_image": shown[0],
            "reference_image": shown[1],
            **dict(zip(DIGESTS, pair.digests, strict=True)),
            **{name: row[name] for name in NAMES},
        },
        "predictions": [
            {"model_version": "visleak", "score": row["probability"], "result": [predicted]}
        ],
    }
