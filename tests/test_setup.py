"""The papers say what is there: commands, options, links, names, columns, versions."""

import ast
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest
import typer.main

import visleak
from visleak.cli.app import app
from visleak.records import GRADES, REASONS, VIEWS
from visleak.settings import Settings
from visleak.storage import IMAGES_SCHEMA, PAIRS_SCHEMA

ROOT = Path(__file__).parents[1]
PAPERS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def shell_lines() -> Iterator[tuple[Path, list[str]]]:
    for paper in PAPERS:
        for block in blocks(paper.read_text("utf-8"), "sh"):
            for line in block.replace("\\\n", "").splitlines():
                if words := shlex.split(line, comments=True):
                    yield paper, words


def names_used(code: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that code takes from visleak."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("visleak"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("visleak"):
            yield ast.unparse(node.value), node.attr


def test_the_two_commands_come_first():
    commands = [words for paper, words in shell_lines() if paper.name == "README.md"]
    assert [words[:2] for words in commands[:2]] == [["make", "demo"], ["make", "test"]]


def test_make_targets_in_the_papers_exist():
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    asked = {words[1] for _, words in shell_lines() if words[0] == "make" and len(words) > 1}
    found = set(re.findall(r"`make ([a-z-]+)`", "".join(p.read_text("utf-8") for p in PAPERS)))
    assert asked | found <= targets
    assert {"demo", "test", "test-fast", "lint", "bench", "clean", "help"} <= targets


def test_commands_in_the_papers_have_known_verbs_and_options():
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    seen = 0
    for paper, words in shell_lines():
        if not words[0].endswith("visleak"):
            continue
        verb, *given = verbs[words[1]], *words[2:]
        if hasattr(verb, "commands"):
            verb, *given = verb.commands[given[0]], *given[1:]
        known = {name for part in verb.params for name in (*part.opts,)}
        unknown = [word for word in given if word.startswith("-") and word not in known]
        assert unknown == [], f"{paper.name}: {words}"
        seen += 1
    assert seen >= 6


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_relative_links_exist(paper):
    links = re.findall(r"\]\(([^)\s]+)\)", paper.read_text("utf-8"))
    inner = [link.partition("#")[0] for link in links if "://" not in link]
    assert [link for link in inner if link and not (paper.parent / link).exists()] == []


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_names_in_python_snippets_exist(paper):
    text = paper.read_text("utf-8")
    found = {name for block in blocks(text, "python") for name in names_used(block)}
    found |= {("visleak", name) for name in re.findall(r"`visleak\.(?!toml)(\w+)`", text)}
    rooms = {path.stem for path in (ROOT / "src" / "visleak").iterdir()}
    lost = [
        (module, name)
        for module, name in found
        if not hasattr(import_module(module), name) and name not in rooms
    ]
    assert lost == []


@pytest.mark.parametrize(
    "package",
    [each.name for each in iter_modules(visleak.__path__) if each.ispkg and each.name != "cli"],
)
def test_packages_list_their_public_names(package):
    """To those who complete names: neither imports of other libraries nor private names."""
    module = import_module(f"visleak.{package}")
    public = getattr(module, "__all__", [])
    # pytest adds names with @ to modules whose assertions it rewrites
    names = [n for n in dir(module) if not n.startswith(("__", "@")) and n != "annotations"]
    assert set(names) >= set(public)
    for name in names:
        value = getattr(module, name)
        home = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", "")
        assert not name.startswith("_")
        assert name in public or str(home).startswith("visleak."), name


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
    plain = Settings().as_dict()
    assert (plain["encoder"], plain["views"], plain["candidates"]) == ("", "all", "auto")


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


def test_files_that_the_checks_name_are_there():
    named = re.findall(r"\btests/[\w/]+\.py", (ROOT / ".ci" / "run").read_text("utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def made(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make in a folder."""
    env, command = {"PATH": os.environ["PATH"]}, ["make", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def clone(tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_old_python_is_refused_in_one_line(clone):
    old = script(clone / "old-python", "exit 1")
    done = made(clone, "demo", f"PYTHON={old}")
    assert done.returncode != 0
    found = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert found == [
        f"visleak needs Python 3.11 or newer; none found as: {old}."
        " Choose one: make PYTHON=/path/to/python3 ..."
    ]


def test_a_missing_venv_module_is_one_line(clone):
    """Debian ships Python without it."""
    bare = script(clone / "bare-python", 'case "$2" in *ensurepip*) exit 1;; esac; exit 0')
    done = made(clone, "demo", f"PYTHON={bare}")
    assert done.returncode != 0
    (found,) = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert found.startswith(f"{bare} cannot make virtual environments: install its venv package")


def test_help_lists_every_target(clone):
    done = made(clone)
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()][:2] == ["help", "demo"]
