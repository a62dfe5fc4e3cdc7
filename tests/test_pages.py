"""The code of the pages runs: in order, page by page, in a folder that has the demo.

A block runs unless a comment before it states what it needs: ``<!-- not run: REASON -->``. Blocks
that take seconds, and need none before them, are marked ``<!-- slow -->``.
"""

import html
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import typer.main

import visleak
from visleak.cli import main
from visleak.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
NOTEBOOKS = sorted(ROOT.glob("docs/**/*.ipynb"))
BLOCK = re.compile(
    r"(?:^<!-- ([^\n]+) -->\n)?^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
REASONS = ("data", "network", "time", "a model", "a cluster", "a browser", "another program")


class Block(NamedTuple):
    """A piece of code of a page; ``mark`` is the comment before it."""

    mark: str
    language: str
    code: str


def blocks(page):
    return [Block(*found) for found in BLOCK.findall(page.read_text("utf-8"))]


#: Folder that pages name in place of a reader's own -> how its images are named. Both splits hold
#: the images of the demo; groups of two images, half of which are on both sides.
STAND_INS = {
    "photos": lambda split, number: f"{split}/{number:04d}",
    "scans": lambda split, number: (
        f"{split}/patient{number // 2 + 4 * (split == 'test'):02d}_{number % 2}"
    ),
    "frames": lambda split, number: f"{split}/drive_{number // 8:02d}/frame_{number:04d}",
}


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """A small demo, the same set of other names, their audit, and a cache: made once."""
    place = tmp_path_factory.mktemp("pages")
    sys.path.insert(0, str(ROOT / "examples"))
    with pytest.MonkeyPatch.context() as patch:
        import demo

        for name, value in (("TRAINING", 18), ("CLEAN", 6), ("EACH", 1)):
            patch.setattr(demo, name, value)
        demo.build(place / "demo")
        (place / "demo/test/coffee/broken.jpg").unlink()  # 1 of 24: more than gates allow
        patch.setenv("VISLEAK_CACHE", str(place / "cache"))
        patch.chdir(place)
        run(["audit", "demo/", "-o", "demo/audit", "-q"], 0)
    sys.path.remove(str(ROOT / "examples"))
    for folder, named in STAND_INS.items():
        for split in ("train", "test"):
            for number, image in enumerate(sorted((place / "demo" / split).rglob("*.jpg"))):
                target = place / folder / f"{named(split, number)}{image.suffix}"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(image, target)
    return place


def run(arguments, code):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code, shlex.join(arguments)


def run_shell(code):
    """Run commands of visleak in this process, which is faster, and others in a shell."""
    for line in code.replace("\\\n", "").splitlines():
        command, _, comment = re.sub(r"(?:^|\s)#", "\n#", line, count=1).partition("\n#")
        plain = not re.search(r"[|<>$`;&*]", command)
        words = shlex.split(command)
        stated = re.search(r"exit code (\d+)", comment)
        expected = int(stated[1]) if stated else 0
        if words[:1] == ["visleak"] and plain:
            run(words[1:], expected)
        elif words:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(line, shell=True, check=False, env={**os.environ, "PATH": path})
            assert done.returncode == expected, line


def run_python(code, page, names):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*could not be read", UserWarning)
        exec(compile(code, str(page), "exec"), names)


@pytest.fixture
def folder(stored, tmp_path, monkeypatch):
    for name in ("demo", *STAND_INS):
        shutil.copytree(stored / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISLEAK_CACHE", str(stored / "cache"))
    monkeypatch.setenv("VISLEAK_WORKERS", "1")  # no processes to start
    return tmp_path


def run_page(page, mark):
    names = {"__name__": "page"}
    for block in (each for each in blocks(page) if each.mark == mark):
        if block.language == "sh":
            run_shell(block.code)
        else:
            run_python(block.code, page, names)


def _named(page):
    return str(page.relative_to(ROOT))


def test_marks_state_a_known_reason():
    marks = {(page.name, block.mark) for page in PAGES for block in blocks(page) if block.mark}
    known = {"slow", *(f"not run: {reason}" for reason in REASONS)}
    assert [mark for mark in sorted(marks) if mark[1] not in known] == []


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(not b.mark for b in blocks(p))], ids=_named
)
def test_code_of_a_page_runs(page, folder):
    run_page(page, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.mark == "slow" for b in blocks(p))], ids=_named
)
def test_slow_code_of_a_page_runs(page, folder):
    run_page(page, "slow")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=_named)
def test_a_notebook_runs(notebook, folder):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    run_python("\n".join(code), notebook, {"__name__": "page"})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed")
    clone = tmp_path_factory.mktemp("site") / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), clone], check=True)
    done = subprocess.run(
        [sys.executable, "docs/site.py"], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return clone / "build" / "site"


@pytest.mark.slow
def test_the_reference_names_every_command_and_public_name(site):
    text = (site / "reference" / "commands.html").read_text("utf-8")
    headings = {html.unescape(found) for found in re.findall(r'<h2 id="([^"]+)', text)}
    commands = typer.main.get_command(app).commands
    groups = {name: getattr(each, "commands", {"": each}) for name, each in commands.items()}
    wanted = {f"visleak-{name}-{own}".rstrip("-") for name, of in groups.items() for own in of}
    assert wanted <= headings
    page = (site / "reference" / "python.html").read_text("utf-8")
    # packages are described under the names that they hold
    names = [n for n in visleak.__all__ if not isinstance(getattr(visleak, n), ModuleType)]
    assert [name for name in names if f'.{name}"' not in page] == []
    # no script, style, font or image of the start page lies elsewhere
    text = (site / "index.html").read_text("utf-8")
    assert re.findall(r"(?:src|rel=\"stylesheet\" href)=\"https?://[^\"]+", text) == []
