"""Settings of ``impact``, which are also options of the command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from visleak.errors import UsageError
from visleak.options import AUDIT_DIR, METHOD, Options, argument, option

PathText = str | os.PathLike[str]
FILES: Final = "Predictions"  # panels of `--help`
LEAKS: Final = "Leaks"
BOARD: Final = "Leaderboard"


@dataclass(frozen=True)
class ImpactSettings(Options, panel=LEAKS):
    """How an impact is measured."""

    metrics: tuple[str, ...] = option(
        (),
        "Metric to measure. Default: all in the files. May be repeated.",
        "--metric",
        metavar="METRIC",
        panel=FILES,
    )
    lower_is_better: tuple[str, ...] = option(
        (),
        "Metric of which lower is better, such as loss. May be repeated.",
        metavar="METRIC",
        panel=FILES,
    )
    allow_partial: bool = option(
        False, "Allow predictions that cover less than 95 % of the images.", panel=FILES
    )
    test_set: str | None = option(
        None, "The test set, if the audit has several.", "--set", metavar="NAME"
    )
    references: tuple[str, ...] = option(
        (),
        "Training set whose leaks count. Default: all. May be repeated.",
        "--reference",
        metavar="NAME",
    )
    reviewed_only: bool = option(False, "Count reviewed pairs only.")
    by_label: bool | None = option(
        None,
        "Separate leaked images whose copy has the same label from the others. Default: where"
        " labels are known.",
        "--by-label/--no-by-label",
    )
    difficulty: str | None = option(
        None,
        "Also compare leaked images with others of the same class and difficulty: a number per"
        " image that does not depend on any copy (larger is harder), or the built-in probe on"
        " fingerprints of the test images.",
        metavar="probe|FILE[#COLUMN]",
    )
    draws: int = option(
        1000, "Number of draws of random and class-matched images.", panel=METHOD, least=2
    )
    size: int | None = option(
        None,
        "Draw N images of every part (Ramos et al., table 4: --size 200 --draws 10).",
        panel=METHOD,
        least=1,
    )
    exact_p: bool = option(
        False,
        "Plain p-values of permutation tests, which are conservative, instead of mid-p.",
        panel=METHOD,
    )
    seed: int = option(0, "Random seed of all draws.", panel=METHOD, least=0)
    # name to a text file with one id per line: leaked images of another source
    subsets: Mapping[str, PathText] = field(default_factory=dict)


@dataclass(frozen=True)
class Inputs(Options):
    """Audits and prediction files."""

    folder: Path | None = argument(None, "An audit folder.", metavar=AUDIT_DIR)
    audit: tuple[str, ...] = option(
        (),
        "Several audits in one table instead of AUDIT_DIR, such as c10=audit-c10; predictions are"
        " then [AUDIT:][NAME=]FILE, such as c10:resnet=resnet.csv. May be repeated.",
        metavar="NAME=FOLDER",
        panel=FILES,
    )
    predictions: tuple[str, ...] = option(
        (),
        "A model's predictions by image id (.csv, .parquet, .npz): correct, prediction, class"
        " scores, or any metric per image. NAME is the model, by default the file's stem. May be"
        " repeated.",
        metavar="[NAME=]FILE",
        panel=FILES,
    )
    fair_predictions: tuple[str, ...] = option(
        (),
        "Its predictions on the fair test set that visleak replace wrote. May be repeated.",
        metavar="[NAME=]FILE",
        panel=FILES,
    )
    check: bool = option(
        False,
        "Only check whether the files fit the audit: ids off by one, shuffled rows, permuted class"
        " names, swapped files. Writes nothing; exits with 1 if one is in doubt.",
        panel=FILES,
    )
    subset: tuple[str, ...] = option(
        (),
        "Leaked images of your own, one id per line. May be repeated.",
        metavar="NAME=IDS.txt",
        panel=LEAKS,
    )

    def folders(self) -> Mapping[str, Path]:
        """Return the audit folders by name; one alone has an empty name."""
        if (self.folder is None) == (not self.audit):
            raise UsageError("give one audit folder, or several with --audit NAME=FOLDER")
        return named_folders("--audit", self.audit) if self.folder is None else {"": self.folder}

    def files(self, audits: Sequence[str]) -> dict[str, tuple[dict[str, Path], dict[str, Path]]]:
        """Return prediction files by model, of the test set and of its fair one, per audit."""
        own, fair = {"": list(self.predictions)}, {"": list(self.fair_predictions)}
        if "" not in audits:
            own = by_prefix("--predictions", self.predictions, audits)
            fair = by_prefix("--fair-predictions", self.fair_predictions, audits)
        found = {}
        for name in audits:
            if not (files := named_files("--predictions", own[name])):
                given = f"--predictions {name + ':' * bool(name)}[NAME=]FILE"
                raise UsageError(f"nothing to measure: give {given}, the predictions of a model")
            found[name] = (files, fair_files(fair[name], files))
        return found


@dataclass(frozen=True)
class Board(Options):
    """An entry of a leaderboard."""

    leaderboard: Path | None = option(
        None,
        "Add the model's error on the fair test set to this leaderboard; needs --fair-predictions,"
        " --framework, --code and --weights.",
        metavar="FILE.json",
        panel=BOARD,
    )
    framework: str = option("", "Framework of the model.", metavar="NAME", panel=BOARD)
    code: str = option("", "URL of its code.", metavar="URL", panel=BOARD)
    weights: str = option("", "URL of its weights.", metavar="URL", panel=BOARD)

    def refuse(self, fair: Mapping[str, Path]) -> None:
        """Refuse what cannot become an entry, before anything is computed."""
        from visleak.impact.leaderboard import check, read_leaderboard

        if (file := self.leaderboard) is None:
            if self.framework or self.code or self.weights:
                raise UsageError("--framework, --code and --weights need --leaderboard FILE.json")
            return
        if len(fair) != 1:
            raise UsageError(
                "--leaderboard adds one model: give --fair-predictions FILE of one model; got"
                f" {len(fair)}"
            )
        check(self.framework, self.code, self.weights)
        if file.is_dir():
            raise UsageError(f"--leaderboard: {file} is a folder; give a file, leaderboard.json")
        if file.exists():
            read_leaderboard(file)


def refuse_several(inputs: Inputs, settings: ImpactSettings, board: Board) -> None:
    """Refuse options that are about one audit only."""
    given = {
        "--set": settings.test_set,
        "--reference": settings.references,
        "--subset": inputs.subset,
        "--difficulty FILE": settings.difficulty not in (None, "probe"),
        "--leaderboard": board.leaderboard,
    }
    for flag, value in given.items():
        if value:
            raise UsageError(
                f"{flag} is about one audit; run visleak impact AUDIT_DIR for each of several"
            )
    board.refuse({})


def named_files(
    option: str, texts: Sequence[str], what: str = "model", *, needs_name: bool = False
) -> dict[str, Path]:
    """Take ``[NAME=]FILE`` apart; an argument whose part before ``=`` holds ``/`` is all FILE."""
    found: dict[str, Path] = {}
    for text in texts:
        name, rest = _parted(text)
        name = name or ("" if needs_name else Path(text).stem)
        if not name or not rest:
            form = "NAME=FILE" if needs_name else "[NAME=]FILE"
            raise UsageError(f"{option} is {form} with no part empty; got {text!r}")
        path = Path(rest)
        if not path.is_file():
            why = "does not exist"
            if path.exists():
                why = f"is {'a folder' if path.is_dir() else 'no plain file'}; give a file"
            if Path(text).is_file():
                why += f"; for the file {text} give ./{text}"
            raise UsageError(f"{option}: {path} {why}")
        if name in found:
            raise UsageError(
                f"two {what}s are called {name!r}; names must differ: {option} NAME={path}"
            )
        found[name] = path
    return found


def fair_files(texts: Sequence[str], predictions: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files of ``--fair-predictions``; one without a name is of the only model."""
    found = named_files("--fair-predictions", texts)
    if len(found) == len(predictions) == 1 and not _parted(texts[0])[0]:
        return dict(zip(predictions, found.values(), strict=True))
    for name, path in found.items():
        if name not in predictions:
            raise UsageError(
                f"--fair-predictions {path} is of {name!r}, which has no --predictions; models are"
                f" {', '.join(map(repr, predictions))}: use the same name,"
                f" --fair-predictions NAME={path}"
            )
    return found


def named_folders(option: str, texts: Sequence[str]) -> dict[str, Path]:
    """Take ``NAME=FOLDER`` apart; names are those of folders, too."""
    found: dict[str, Path] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        if not rest or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UsageError(
                f"{option} is NAME=FOLDER with a name of letters, digits, dots and dashes; got"
                f" {text!r}"
            )
        if not Path(rest).is_dir():
            raise UsageError(f"{option}: there is no folder {rest}")
        if name in found:
            raise UsageError(f"two folders are called {name!r}; names must differ: {option}")
        found[name] = Path(rest)
    return found


def by_prefix(option: str, texts: Sequence[str], names: Iterable[str]) -> dict[str, list[str]]:
    """Sort arguments by the name that they begin with, ``NAME:REST``, and take it off.

    >>> by_prefix("--fair", ["a:m=x.csv", "b:y.csv"], ["a", "b"])
    {'a': ['m=x.csv'], 'b': ['y.csv']}
    """
    found: dict[str, list[str]] = {name: [] for name in names}
    for text in texts:
        name, colon, rest = text.partition(":")
        if not colon or name not in found:
            every = ", ".join(f"{each}:" for each in found)
            raise UsageError(
                f"{option} must begin with the name of an audit, one of {every} where several are"
                f" given; got {text!r}"
            )
        found[name].append(rest)
    return found


def _parted(text: str) -> tuple[str, str]:
    """Return name and file of an argument; the name is empty where none is given.

    >>> _parted("a=b.csv"), _parted("runs/lr=0.1.csv"), _parted("b.csv")
    (('a', 'b.csv'), ('', 'runs/lr=0.1.csv'), ('', 'b.csv'))
    """
    name, equals, rest = text.partition("=")
    return (name, rest) if name and equals and "/" not in name else ("", text)
