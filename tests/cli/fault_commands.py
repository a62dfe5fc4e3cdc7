"""Every command on a small set, for tests in which a read or a write of it fails."""

import csv
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer
from calling import run
from PIL import Image

from visleak.cli.app import app
from visleak.errors import VisleakError
from visleak.storage import write_text

_HERE = "--workers 1 --cache off"
_AUDITED = f"--test data/test --train data/train {_HERE}"
_SMALL = "--length 3 --iterations 5 --candidates 4 --norm l2 --temperature 0.3 --kappa 1"
_IMAGES = "--images 6 --min-cluster 3 --steps 1 --batch 6"

#: What every command is run with. The first words are those of the command; a variant follows a
#: colon. ``out`` is where it writes, the other names are those of :func:`inputs`.
COMMANDS: Mapping[str, str] = {
    "audit": f"{_AUDITED} -o out",
    "encode": f"data/train -o out {_HERE}",
    "report": "audit -o out.html",
    "show": "audit cat/a.jpg -o out.png",
    "find": f"data/test/cat/a.jpg --against data/train {_HERE}",
    "same": "data/test/cat/a.jpg data/train/cat/a.png",
    "export": "audit --format csv -o out",
    "diff": "audit audit -o out.csv",
    "purge": "audit --remove-from train -o out --format copy --apply",
    "purge:link": "audit --remove-from train -o out --format link --apply",
    "stats": "audit -o out",
    "verdicts": "audit import verdicts.csv --reviewer Ada",
    "robustness": f"data/train --conditions jpeg-30,collage --no-verify -o out {_HERE}",
    "robustness:verify": f"data/train --conditions jpeg-30 -o out {_HERE}",
    "calibrate": f"data/train --fpr 1e-1 --conditions jpeg-30 -o out.json {_HERE}",
    "train-encoder": "many -o out.onnx --epochs 1 --batch 2 --size 16 --threads 1",
    "split": f"data/train --ratios train=0.5,test=0.5 -o out --format copy --apply {_HERE}",
    "replace": f"audit --pool pool --select auto -o out --format copy --apply {_HERE}",
    "evaluate classify": f"data/train --model checkpoint:w.pt?arch=resnet20 -o out.csv {_HERE}",
    "evaluate zeroshot": f"data/test --model clip:clip -o out.csv --device cpu {_HERE}",
    "evaluate retrieve": "data/test --model clip:clip --captions captions.csv -o out.csv"
    f" --device cpu {_HERE}",
    "evaluate retrieve:stored": "--images images.npy --texts texts.npy -o out.csv",
    "impact": "audit --predictions predictions.csv -o out",
    "dlede": "--test many_test --train many --trainer lookup --steps 50,100 --repetitions 2"
    f" -o out {_HERE}",
    "memorization detect": "--model m --prompts prompts.csv --general general.txt -o out",
    "memorization search": f"--model m --chains 2 {_SMALL} -o out",
    "memorization augment": "--model m --triggers words.txt --iterations 2 --candidates 3"
    " --patience 2 --top 4 --norm l2 --temperature 0.3 --kappa 1 -o out",
    "memorization diversify": "--model m --prompts words.txt --count 2 -o out",
    "memorization extract": f"--model m --prompts prompts.csv --similarity pixels {_IMAGES} -o out",
    "memorization trace": f"data/test --source data/train -o out {_HERE}",
    "memorization compare": "--model m --methods greedy --prompts linear.txt --source data/train"
    f" --max-calls 60 --chains 1 --length 2 --guidance 1 {_IMAGES} --workers 1 -o out",
    "memorization dataset": "prompts.csv --verified-by Ada --trace traced -o out",
    "memorization benchmark": "--model m --triggers triggers.csv --references memorized --images 2"
    " --steps 1 --batch 8 --method rna:1 --similarity pixels -o out",
    "check": "audit --images",
}

#: Commands without a result of their own, and why nothing is run here.
OTHERS: Mapping[str, str] = {
    "review": "a server; tests/review has lost and changed images, and what it writes is a verdict",
    "doctor": "reports on the installation",
    "help": "prints pages that ship with the package",
}

#: Commands that read the files of :func:`networks`.
NETWORKS = ("evaluate classify", "evaluate zeroshot", "evaluate retrieve")

#: Commands that take seconds.
SLOW = ("audit", "impact", "dlede", "train-encoder", "robustness:verify", "memorization trace")

#: Files that say that a result is not finished, or that a folder is visleak's.
MARKS = ("unfinished.json", ".visleak.lock", ".shard_0000.json", "study.log", "log.txt")

#: What differs from run to run: how long something took, when it was, and how often it was tried.
MOVING = (
    (
        re.compile(
            rb'"(timings|seconds|took|created|time|date|attempts)": (\{[^}]*\}|"[^"]*"|[0-9.e-]+)'
        ),
        b"-",
    ),
    (re.compile(rb"[0-9.,]+ (m?s|seconds?|images/s)\b"), b"-"),
    (re.compile(rb"20\d\d-\d\d-\d\d[T ][0-9:.+Z]+"), b"-"),
)
TEXTS = (".json", ".html", ".md", ".csv", ".svg", ".tex", ".txt")


def names_of(group, before=""):
    """Yield the words of every command of a command line."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from names_of(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def every_command():
    return list(names_of(typer.main.get_command(app)))


def picture(seed, side=120):
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side))


def inputs(root):
    """Write what the commands read, but models; audit it."""
    named = {
        0: ("data/train/cat/a.png", "data/test/cat/a.jpg"),
        1: ("data/train/dog/b.png", "data/test/dog/b.jpg"),
        2: ("data/test/cat/c.png",),
        3: ("data/train/dog/d.png",),
        **{4 + seed: (f"pool/{('cat', 'dog')[seed % 2]}/{seed}.jpg",) for seed in range(4)},
        **{20 + seed: (f"many/{'cd'[seed % 2]}/{seed}.png",) for seed in range(18)},
        **{40 + seed: (f"many_test/{'cd'[seed % 2]}/{seed}.png",) for seed in range(4)},
    }
    for seed, names in named.items():
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            picture(seed).save(root / name)
    texts = {
        "verdicts.csv": "TestID,TrainID,Judgment\ncat/a.jpg,cat/a.png,0\n",
        "captions.csv": "id,caption\ncat/a.jpg,a cat\ndog/b.jpg,a dog\ncat/c.png,another cat\n",
        "predictions.csv": "id,correct\ncat/a.jpg,1\ndog/b.jpg,0\ncat/c.png,1\n",
        "prompts.csv": 'prompt,label,urls\nhouse 6,1,a.png\n"cat, 9",1,b.png\nplain 0.5,0,\n',
        "general.txt": "".join(f"ordinary {number / 100}\n" for number in range(120)),
        "words.txt": "ant bee cat\neel dog\n",
        "linear.txt": "ant bee\ncow dog\nfox gnu\n",
    }
    for name, text in texts.items():
        write_text(root / name, text)
    import painting_model as painting

    painting.planted(root / "memorized")
    with (root / "triggers.csv").open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines).writerows(
            [("prompt", "urls"), *zip(painting.TRIGGERS, painting.SOURCES, strict=True)]
        )
    vectors = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    np.save(root / "images.npy", vectors)
    np.save(root / "texts.npy", vectors + 0.1)
    assert ran_in(root, "audit", "audit").code == 0
    with pytest.MonkeyPatch.context() as patch:
        world("memorization extract", patch)
        assert ran_in(root, "memorization extract", "extracted").code == 0
    traced = ("memorization", "trace", root / "extracted", "--source", root / "memorized")
    assert run(*traced, "-o", root / "traced", *_HERE.split()).code == 0
    return root


def networks(root):
    """Write the small networks that some commands read."""
    torch = pytest.importorskip("torch")
    from toy_clip import make_clip
    from visleak.impact.evaluators.checkpoints import CifarResNet

    torch.manual_seed(0)
    torch.save(CifarResNet(3, 2).state_dict(), root / "w.pt")
    make_clip(root / "clip")


def ran_in(root, name, out="out", *more):
    """Run a command on the inputs in a folder."""
    places = "|".join([*(re.escape(path.name) for path in root.iterdir()), "out"])
    place = re.compile(rf"^(checkpoint:|clip:)?({places})(?=[/?.]|$)")
    given = [place.sub(rf"\g<1>{root}/\g<2>", word) for word in shlex.split(COMMANDS[name])]
    given = [re.sub(r"/out(?=\.|$)", f"/{out}", word) for word in given]
    return run(*name.partition(":")[0].split(), *given, *more)


def not_sendable(_):
    """Keep training runs in the process in which files fail."""
    raise VisleakError("trains in this process")


def world(name, patch):
    """Put small models in the place of those that a command of ``memorization`` loads."""
    from visleak import diffusion
    from visleak.memorization.search import proposals

    made: Callable[[], object]
    if name == "memorization detect":
        from closed_form import ClosedForm

        made = ClosedForm
    elif name == "memorization extract":
        from replaying_model import ReplayingModel

        made = lambda: ReplayingModel({"house 6": (0, 1.0)})  # noqa: E731
    elif name == "memorization benchmark":
        from painting_model import PaintingModel

        made = PaintingModel
    elif name == "memorization compare":
        from linear_model import linear_model

        made = linear_model
    else:
        from toy_prompt_models import FiveProposer, FiveWords

        made = FiveWords
        patch.setattr(proposals, "load_language_model", lambda *given, **how: FiveProposer())
    patch.setattr(diffusion, "load_model", lambda *given, **how: made())


@dataclass(frozen=True)
class Scene:
    """A command in a folder of its own."""

    name: str
    root: Path
    kept: Path  # where the inputs are as they were

    def set(self):
        """Begin anew."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.kept, self.root)

    def run(self, *more):
        return ran_in(self.root, self.name, "out", *more)

    def contents(self):
        """Return the files in the folder, without what moves in them."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_file() and path.suffix != ".sqlite" and path.name not in MARKS:
                data = path.read_bytes()
                if path.suffix in TEXTS and name.startswith(("out", "audit")):
                    for pattern, same in MOVING:
                        data = pattern.sub(same, data)
                found[name] = data
        return found

    def results(self):
        """Return the contents without those of earlier results, which are kept aside."""
        return {name: data for name, data in self.contents().items() if ".previous" not in name}


def most(name):
    """Return how many positions of a command fail, about; VISLEAK_FAULTS=all takes every one."""
    if os.environ.get("VISLEAK_FAULTS") == "all":
        return sys.maxsize
    return 1 if name in SLOW else 3


def chosen(count, few):
    """Return some of many positions: the last two, and others from the first on."""
    return sorted({*range(0, count, max(1, -(-count // few))), *range(count)[-2:]})
