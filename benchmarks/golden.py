"""Record the outputs of visleak's commands, and compare them after a change of code.

    python benchmarks/golden.py record                 # writes benchmarks/golden/RUN.json[.gz]
    python benchmarks/golden.py compare                # exit code 1 on any difference
    python benchmarks/golden.py compare --renames renames.json --exact --skip-sentences

All runs use the command line on the small sets of :mod:`golden_inputs`. Parquet, CSV and JSON files
are kept as values by column (JSON: by the path of the key); images as digests; figures, Markdown,
LaTeX and HTML by name only. The values are valid for the versions in ``constraints.txt`` and for
processors of the recorded kind: on others OpenCV and torch round the last digits differently. The
digests of the inputs are recorded too and compared first.

``--renames`` names a JSON file ``{"files": {OLD: NEW}, "keys": {OLD: NEW}}``: paths of files or
folders, and columns or JSON keys, in one file as ``FILE:KEY`` or in all of them as ``KEY``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import golden_inputs
from golden_values import Values, differences, values_of
from record import visleak_command

#: Where the recorded values are.
HERE = Path(__file__).with_suffix("")

#: Bytes from which a file is compressed.
LARGE = 100_000

#: Differences of a run that are printed.
SHOWN = 10


@dataclass(frozen=True)
class Run:
    """Commands whose outputs are kept.

    Attributes:
        commands: arguments of visleak; ``{speed}`` is replaced by the number of workers.
        outputs: files and folders that are kept.
        needs: modules without which the run is skipped.
    """

    commands: tuple[str, ...]
    outputs: tuple[str, ...]
    needs: tuple[str, ...] = ()


TINY = "--test inputs/tiny/test --train inputs/tiny/train"
MODEL = "--model inputs/pipeline --prompts inputs/prompts.csv --device cpu"
RUNS: Final[Mapping[str, Run]] = {
    "audit": Run(("audit inputs/photos --group '/(\\d)\\.\\w+$/' -o audit {speed}",), ("audit",)),
    "tiny": Run((f"audit {TINY} -o tiny {{speed}}",), ("tiny",)),
    "unverified": Run(
        (
            "audit inputs/photos --no-verify --hard 0.9 --soft 0.5 --views mirror"
            " --group '/(\\d)\\.\\w+$/' --frame '/(\\d+)\\.\\w+$/' -o unverified {speed}",
        ),
        ("unverified",),
    ),
    "embeddings": Run(
        (
            "encode inputs/tiny/train -o vectors {speed}",
            "audit --test inputs/tiny/test --train emb:vectors -o passing {speed}",
        ),
        ("vectors", "passing"),
    ),
    "study": Run(("audit --config inputs/sets.toml -o study {speed}",), ("study",)),
    "robustness": Run(
        ("robustness inputs/photos/test --conditions paper --queries 6 -o robustness {speed}",),
        ("robustness",),
    ),
    "calibrate": Run(
        (
            "calibrate inputs/photos/test --fpr 1e-3 --conditions paper --queries 8"
            " -o thresholds.json {speed}",
        ),
        ("thresholds.json",),
    ),
    "impact": Run(
        ("impact audit --predictions inputs/model.csv --difficulty probe --draws 200 -o impact",),
        ("impact",),
    ),
    "dlede": Run(
        (
            "dlede --scores inputs/curve.csv --chance accuracy=10% -o curve",
            "dlede inputs/tiny --trainer lookup --repetitions 3 --allow-proved-leak -o lookup"
            " {speed}",
        ),
        ("curve", "lookup"),
    ),
    "memorization": Run(
        (
            f"memorization detect {MODEL} --general inputs/general.csv --tokens 2 -o detect",
            f"memorization extract {MODEL} --images 6 --steps 2 --batch 6 --min-cluster 2"
            " --similarity pixels --eps 0.88 -o extract",
        ),
        ("detect", "extract"),
        ("torch", "diffusers", "transformers"),
    ),
    "purge": Run(("purge audit --remove-from test --format copy --apply -o purge",), ("purge",)),
    "split": Run(
        (
            "split all=inputs/tiny/train --ratios train=0.7,test=0.3 --stratify label"
            " --tolerance 10% --format copy --apply -o split {speed}",
            "split --repair audit --keep-sizes --apply -o fixed {speed}",
        ),
        ("split", "fixed"),
    ),
    "replace": Run(
        (
            "replace tiny --pool inputs/tiny/pool --select auto --allow-missing --apply"
            " -o replace {speed}",
        ),
        ("replace", "tiny/replacements.csv"),
    ),
    "verdicts": Run(
        (
            "audit inputs/photos -o judged {speed}",
            "verdicts judged import inputs/judged.csv --reviewer Ada --json",
            "stats judged --grade similar -o counts --json",
            "export judged --format csv -o export/pairs.csv",
            "export judged --format cifair -o export/cifair.csv",
            "export judged --format ids -o export/ids.txt",
            "export judged --format accepted -o export/accepted.csv",
            "diff audit judged -o changes.csv --json",
        ),
        ("judged/verdicts.csv", "counts", "export", "changes.csv"),
    ),
}


def carried_out(run: Run, name: str, folder: Path, workers: int, cache: Path) -> dict[str, Values]:
    """Run the commands of a run in a folder with the inputs; return their values by file."""
    speed = f"--workers {workers}"
    environment = {
        **os.environ,
        "VISLEAK_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    printed = folder / "printed" / name
    printed.mkdir(parents=True)
    for command in run.commands:
        arguments = shlex.split(command.replace("{speed}", speed))
        done = subprocess.run(
            [*visleak_command(), *arguments],
            cwd=folder, env=environment, check=False, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{name}: visleak {command} ended with {done.returncode}:\n{done.stderr}")
        if "--json" in arguments:
            verb = "-".join(word for word in arguments[:3] if word.isalpha())
            (printed / f"{verb}.json").write_text(done.stdout, encoding="utf-8")
    return values_of(folder, (*run.outputs, f"printed/{name}"))


def recorded(name: str) -> dict[str, Any] | None:
    """Return the recorded values of a run, if there are any."""
    for path, opened in ((HERE / f"{name}.json", open), (HERE / f"{name}.json.gz", gzip.open)):
        if path.exists():
            with opened(path, "rt", encoding="utf-8") as file:
                content: dict[str, Any] = json.load(file)
            return content
    return None


def keep(name: str, content: Mapping[str, Any]) -> None:
    """Write the values of a run, one line per column; compressed if large."""
    HERE.mkdir(exist_ok=True)
    for path in HERE.glob(f"{name}.json*"):
        path.unlink()
    text = _lines(content, depth=4) + "\n"
    if len(text) < LARGE:
        (HERE / f"{name}.json").write_text(text, encoding="utf-8")
    else:  # without name and time, so that equal values have equal bytes
        packed = gzip.compress(text.encode(), mtime=0)
        (HERE / f"{name}.json.gz").write_bytes(packed)


def _lines(value: Any, depth: int) -> str:
    """Return JSON with one line per entry down to a depth."""
    if depth == 0 or not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    inner = (f"{json.dumps(key)}: {_lines(each, depth - 1)}" for key, each in value.items())
    return "{\n" + ",\n".join(inner) + "\n}"


def main() -> int:
    """Record or compare; return the exit code."""
    options = _options()
    renames = json.loads(options.renames.read_text("utf-8")) if options.renames else {}
    changed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        golden_inputs.build(folder / "inputs")
        missing = [module for module in RUNS["memorization"].needs if not find_spec(module)]
        if not missing:
            golden_inputs.build_pipeline(folder / "inputs")
        for name in ("inputs", *RUNS):
            if name in RUNS and missing and RUNS[name].needs:
                print(f"{name:<14} skipped: needs {', '.join(missing)}, not installed here")
                continue
            values = _values(name, folder, options)
            if options.verb == "record":
                commands = RUNS[name].commands if name in RUNS else ()
                keep(name, {"commands": commands, "files": values})
                print(f"{name:<14} recorded: {len(values)} files", flush=True)
            else:
                changed += _report(name, values, renames, options)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{spent.ru_utime + spent.ru_stime:.0f} CPU seconds")
    return int(changed > 0)


def _values(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Values]:
    if name == "inputs":
        found = golden_inputs.digests(folder / "inputs")
        return {file: {"digest": value} for file, value in found.items() if "pipeline" not in file}
    cache = options.cache.resolve() if options.cache else folder / "cache"
    return carried_out(RUNS[name], name, folder, options.workers, cache)


def _report(
    name: str, values: Mapping[str, Values], renames: Mapping[str, Any], options: argparse.Namespace
) -> int:
    """Print the differences of a run from its recorded values; return their number."""
    before = recorded(name)
    if before is None:
        print(f"{name:<14} never recorded: python benchmarks/golden.py record")
        return 1
    found = differences(
        before["files"], values, renames,
        exact=options.exact, sentences=not options.skip_sentences,
    )  # fmt: skip
    print(f"{name:<14} {f'{len(found)} differences' if found else 'equal'}", flush=True)
    for line in found[:SHOWN]:
        print(f"  {line}")
    if len(found) > SHOWN:
        print(f"  and {len(found) - SHOWN} more")
    return len(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("record", "compare"), nargs="?", default="compare")
    parser.add_argument("--workers", type=int, default=2, help="processes of each command")
    parser.add_argument("--cache", type=Path, help="cache folder to keep; else a new one")
    parser.add_argument("--folder", type=Path, help="new folder for what the commands write")
    parser.add_argument("--renames", type=Path, help="JSON file of names changed on purpose")
    parser.add_argument("--exact", action="store_true", help="allow fractions no tolerance")
    parser.add_argument(
        "--skip-sentences", action="store_true", help="do not compare texts of five words and more"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
