"""The documentation site: it builds without a warning, and its reference is complete."""

import html
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

import visleak
from visleak.cli.app import app

ROOT = Path(__file__).parents[1]


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
    """A heading for each."""
    text = (site / "reference" / "commands.html").read_text("utf-8")
    headings = {html.unescape(found) for found in re.findall(r'<h2 id="([^"]+)', text)}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    groups = {name: getattr(each, "commands", {"": each}) for name, each in commands.items()}
    wanted = {f"visleak-{name}-{own}".rstrip("-") for name, of in groups.items() for own in of}
    assert wanted <= headings
    page = (site / "reference" / "python.html").read_text("utf-8")
    # packages are described under the names that they hold
    names = [n for n in visleak.__all__ if not isinstance(getattr(visleak, n), ModuleType)]
    assert [name for name in names if f'.{name}"' not in page] == []


@pytest.mark.slow
def test_the_site_loads_nothing_from_other_hosts(site):
    """No script, style, font or image of the start page lies elsewhere."""
    text = (site / "index.html").read_text("utf-8")
    assert re.findall(r"(?:src|rel=\"stylesheet\" href)=\"https?://[^\"]+", text) == []
