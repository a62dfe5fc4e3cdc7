"""The papers say what is there: commands, options, links, names, columns, versions."""

import ast
import re
import shlex
import shutil
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

import visleak
from visleak.cli.app import app
from visleak.records import GRADES, REASONS, VIEWS
from visleak.storage import IMAGES_SCHEMA, PAIRS_SCHEMA

ROOT = Path(__file__).parents[1]
PAPERS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text("utf-8")


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def shell_lines():
    for paper in PAPERS:
        for block in blocks(paper.read_text("utf-8"), "sh"):
            for line in block.replace("\\\n", "").splitlines():
                if words := shlex.split(line, comments=True):
                    yield paper, words


def names_used(code):
    """Yield module and name of everything that code takes from visleak."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("visleak"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("visleak"):
            yield ast.unparse(node.value), node.attr


def test_make_targets_in_the_papers_exist():
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {words[1] for _, words in shell_lines() if words[0] == "make" and len(words) > 1}
    found = set(re.findall(r"`make ([a-z-]+)`", "".join(p.read_text("utf-8") for p in PAPERS)))
    assert {"demo", "test"} <= asked | found <= targets


def test_commands_in_the_papers_have_known_verbs_and_options():
    verbs, seen = typer.main.get_command(app).commands, 0
    for paper, words in shell_lines():
        if not words[0].endswith("visleak"):
            continue
        verb, *given = verbs[words[1]], *words[2:]
        if hasattr(verb, "commands"):
            verb, *given = verb.commands[given[0]], *given[1:]
        known = {name for part in verb.params for name in part.opts}
        unknown = [word for word in given if word.startswith("-") and word not in known]
        assert unknown == [], f"{paper.name}: {words}"
        seen += 1
    assert seen >= 6


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_relative_links_and_names_in_python_snippets_exist(paper):
    text = paper.read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    inner = [link.partition("#")[0] for link in links if "://" not in link]
    assert [link for link in inner if link and not (paper.parent / link).exists()] == []
    found = {name for block in blocks(text, "python") for name in names_used(block)}
    found |= {("visleak", name) for name in re.findall(r"`visleak\.(?!toml)(\w+)`", text)}
    rooms = {path.stem for path in (ROOT / "src" / "visleak").iterdir()}
    lost = [
        (module, name)
        for module, name in found
        if not hasattr(import_module(module), name) and name not in rooms
    ]
    assert lost == []


def test_every_column_and_word_is_explained():
    output = (ROOT / "docs" / "output.md").read_text("utf-8")
    concepts = (ROOT / "docs" / "concepts.md").read_text("utf-8")
    columns = (*PAIRS_SCHEMA.names, *IMAGES_SCHEMA.names, *VIEWS)
    assert [name for name in columns if f"`{name}`" not in output] == []
    assert [word for word in (*GRADES, *REASONS) if f"`{word}`" not in concepts] == []


def test_the_readme_and_the_changelog_are_of_this_version():
    assert ("visleak", "audit") in set(names_used("".join(blocks(README, "python"))))
    assert re.findall(r"^\| (\d+) \|", README, re.MULTILINE) == ["0", "1", "2", "3", "130"]
    version = re.sub(r"\.?(dev|rc|a|b)\d+$", "", visleak.__version__)
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_pinned_versions_cover_the_direct_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked, waiting = set(project["dependencies"]), list(extras["dev"])
    while waiting:
        text = waiting.pop()
        own = re.fullmatch(r"visleak\[(.+)\]", text)
        if own:  # an extra that asks for others of this project
            waiting += [each for extra in own[1].split(",") for each in extras[extra]]
        else:
            asked.add(text)
    names = {re.split(r"[<>=]", text)[0].lower() for text in asked}
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    assert names <= {name.lower() for name in re.findall(r"^([\w-]+)==", pins, re.MULTILINE)}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "visleak needs Python 3.11 or newer; none found as: "),
        # Debian ships Python without it
        (
            'case "$2" in *ensurepip*) exit 1;; esac',
            "cannot make virtual environments: install its",
        ),
    ],
)
def test_a_python_that_cannot_be_used_is_refused_in_one_line(tmp_path, script, said):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    command = ["make", "demo", f"PYTHON={python}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert said in line
    assert done.returncode != 0
