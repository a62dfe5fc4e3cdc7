"""The built wheel holds everything that an audit needs."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "-q")


def run(*command, cwd, **environment):
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


#: An address for links: a package index shows the README away from the files it links to.
HOME = "https://example.org/group/project"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    built = run(*PIP, "wheel", "--no-deps", "-w", folder, ROOT, cwd=folder, VISLEAK_REPOSITORY=HOME)
    if "hatchling" in built.stderr:
        pytest.skip("hatchling could not be installed")
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.slow
def test_an_audit_runs_from_the_wheel(wheel, tmp_path, picture, put):
    """Without the source tree: data files and entry points are in the wheel."""
    target = tmp_path / "installed"
    done = run(*PIP, "install", "--no-deps", "--target", target, wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for side, width in (("train", 48), ("test", 40)):
        put(f"data/{side}/a.png", picture(width, width))
    code = "import visleak, sys; print(visleak.__file__); from visleak.__main__ import main; main()"
    command = (sys.executable, "-c", code, "audit", "data", "-o", "out", "--cache", "off")
    done = run(*command, cwd=tmp_path, PYTHONPATH=str(target))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(target))
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_wheel_has_its_commit_and_links_that_lead_to_the_repository(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert f"Project-URL: Source, {HOME}\n" in metadata
    links = re.findall(r"\]\(([^)\s]+)\)", metadata)
    assert f"{HOME}/raw/HEAD/docs/leaks.png" in links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "visleak/commit.txt" in names
    assert not (ROOT / "src" / "visleak" / "commit.txt").exists()
