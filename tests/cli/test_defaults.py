"""Defaults of options from files and the environment, help, completion and suggestions."""

from pathlib import Path

import pytest
from calling import check_refused, refusals, run

from visleak.auditing import Audit


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder.parent


def test_defaults_of_a_project(dataset, project, monkeypatch):
    """The command line comes before the environment, that before the table of a command."""
    (project / "pyproject.toml").write_text("""
[tool.visleak]
workers = 1
no-images = true

[tool.visleak.audit]
fail-on = ["near", "unreadable=20%"]
near-at = 0.7
views = "none"
output = "leaks"
no-verify = false
""")
    assert f"defaults from {project / 'pyproject.toml'}" in run("audit", dataset, code=3).err
    found = Audit(Path("leaks")).summary.settings
    assert (found.views, found.near_at, found.verify) == ("none", 0.7, True)
    assert "data:image/png" not in (Path("leaks") / "report.html").read_text()
    monkeypatch.setenv("VISLEAK_AUDIT_VIEWS", "mirror")
    monkeypatch.setenv("VISLEAK_FAIL_ON", "near=90% unreadable=20%")
    ran = run("audit", dataset)
    # the audit before is kept
    assert (ran.code, "kept in leaks.previous" in ran.err) == (0, True)
    assert Audit(Path("leaks")).summary.settings.views == "mirror"
    assert run("audit", dataset, "--views", "none", "-q", "-o", "other").code == 0
    assert Audit(Path("other")).summary.settings.views == "none"


def test_a_file_of_its_own_comes_first(audited, project):
    (project / "pyproject.toml").write_text("[tool.visleak]\nnonsense = 1\n")
    (project / "visleak.toml").write_text('[export]\nformat = "csv"\noutput = "pairs.csv"\n')
    assert run("export", audited).code == 0
    assert Path("pairs.csv").exists()


@refusals("""
    fail_on = 1 -> 'fail_on' is not an option or a command; did you mean 'fail-on'?
    [audti] -> 'audti' is not an option or a command; did you mean 'audit'?
    [audit]%viws = "none" -> audit has no option 'viws'; did you mean 'views'?
    [audit]%views = ["none"] -> views must be a text or number; got ['none']
    [audit]%no-verify = "yes" -> no-verify must be true or false; got 'yes'
    audit = 1 -> audit must be a table of options
    [audit -> cannot be read as TOML
""")
def test_mistakes_in_a_file_are_named(dataset, project, arguments, words):
    (project / "visleak.toml").write_text(arguments.replace("%", "\n"))
    check_refused(f"audit {dataset}", words, code=1 if "TOML" in words else 2)


def test_a_wrong_default_of_the_environment_is_called_one(dataset, monkeypatch):
    monkeypatch.setenv("VISLEAK_WORKERS", "many")
    check_refused(f"audit {dataset}", "by a default of the project's file or of a variable")
    check_refused(f"audit {dataset} --workers few", "for '--workers': Input should be a valid")


def test_help_of_a_command():
    for words in (("export",), ("memorization", "detect")):
        assert run("help", *words).out == run(*words, "--help").out
    assert run("help").out == run("--help").out
    assert "did you mean 'audit'" in run("help", "adit").err.lower()
