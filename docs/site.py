"""Build the documentation site into build/site: `make site`.

The pages keep their places in the repository, so that their links hold on both sides. The
reference of the command line is written from the commands, that of Python from the docstrings.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import typer.main

import visleak
from visleak.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
#: What pages show or link to, beside the pages themselves.
FILES = ("docs", "examples", "benchmarks")
SUFFIXES = {".ipynb", ".md", ".png", ".jpg", ".svg", ".json", ".toml", ".sh", ".py"}


def main() -> None:
    """Collect the pages, write the reference, build the site."""
    shutil.rmtree(PAGES, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", "*.md", "LICENSE", *FILES],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        source, target = ROOT / name, PAGES / name
        if source.name == "LICENSE" or source.suffix in SUFFIXES:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    reference = PAGES / "reference"
    reference.mkdir()
    (reference / "commands.md").write_text("\n".join(commands_page()), "utf-8")
    (reference / "python.md").write_text("\n".join(python_page()), "utf-8")
    (PAGES / "docs" / "benchmarks.md").write_text("\n".join(benchmarks_page()), "utf-8")
    for notebook in sorted((ROOT / "docs").rglob("*.ipynb")):
        page = (PAGES / notebook.relative_to(ROOT)).with_suffix(".md")
        page.write_text("\n".join(notebook_page(notebook)), "utf-8")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"],
        check=False, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    sys.exit(built.returncode)


def commands_page() -> Iterator[str]:
    """Yield the lines of the reference of the command line."""
    yield "# Command line\n"
    yield "`visleak COMMAND --help` prints the same.\n"
    yield from _commands(typer.main.get_command(app), "visleak")


def _commands(group: Any, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        elif not command.hidden:
            yield from _command(command, f"{path} {name}")


def _command(command: Any, path: str) -> Iterator[str]:
    yield f"## {path}\n"
    yield f"{(command.help or '').strip()}\n"
    if command.epilog:
        _, _, example = command.epilog.partition(": ")
        yield f"```sh\n{example}\n```\n"
    yield "| option | meaning |"
    yield "|---|---|"
    for part in command.params:
        names = ", ".join(part.opts) if part.param_type_name == "option" else ""
        words = " ".join(word for word in (names, part.metavar or "") if word)
        default = part.default
        shown = getattr(part, "show_default", False) and default not in (None, False, (), [])
        told = f" Default: `{default}`." if shown else ""
        yield f"| `{_cell(words or part.name)}` | {_cell(getattr(part, 'help', '') or '')}{told} |"
    yield ""


def _cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def python_page() -> Iterator[str]:
    """Yield the lines of the reference of the Python interface."""
    yield "# Python\n"
    for name in visleak.__all__:
        member = getattr(visleak, name)
        if not isinstance(member, ModuleType):
            yield f"::: {member.__module__}.{name}\n"


def benchmarks_page() -> Iterator[str]:
    """Yield the lines of the list of measurements: what each script measures, where and when."""
    yield "# Benchmarks\n"
    yield "Scripts print the figures of these pages and store them with machine, versions and date."
    yield "`make bench` measures again.\n"
    yield "| measurement | date | machine | figures |"
    yield "|---|---|---|---|"
    for script in sorted((ROOT / "benchmarks").glob("*.py")):
        stored = script.with_suffix(".json")
        if stored.is_file():
            about = ast.get_docstring(ast.parse(script.read_text("utf-8"))) or script.stem
            record = json.loads(stored.read_text("utf-8"))
            machine = record.get("machine", {})
            place = f"{machine['cores']} cores" if "cores" in machine else ""
            name = f"[{stored.name}](../benchmarks/{stored.name})"
            title = _cell(about.splitlines()[0])
            yield f"| {title} | {record.get('date', '')} | {place} | {name} |"
    yield ""


def notebook_page(notebook: Path) -> Iterator[str]:
    """Yield the lines of a notebook as a page."""
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        yield ""
    yield f"[Download this notebook]({notebook.name})"


if __name__ == "__main__":
    main()
