"""Commands derived from settings: options, refusals, help, and what a command says and returns."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from visleak.cli import edges
from visleak.cli.command import Call, Reply, add, derived
from visleak.errors import UsageError
from visleak.options import AUDIT_DIR, Options, Printed, argument, build, keywords, leaves, option
from visleak.options import share as share_of

SEEN: list[object] = []


@dataclass(frozen=True)
class Columns(Options):
    id: str | None = option(None, "Column of ids.", metavar="COLUMN", panel="Data")


@dataclass(frozen=True)
class Sides(Options):
    columns: Columns
    name: str = argument(..., "A name.", metavar="NAME")
    test: tuple[str, ...] = option((), "Test images.", metavar="SOURCE", panel="Data")


@dataclass(frozen=True)
class Toy(Printed):
    views: str = option("all", "Views.", choices=("none", "all"), panel="Method")
    count: int = option(3, "How many.", "--count -n", metavar="N", least=1, most=9)
    verify: bool = option(True, "Skip verification.", "--no-verify")
    allowed: float = option(0.01, "Share.", metavar="RATE", parse=share_of)
    out: Path | None = option(None, "Folder.", "--output -o", metavar="DIR")
    internal: int = 7


def toy(sides: Sides, settings: Toy, call: Call) -> Reply:
    """Do nothing, in two sentences. This is the second."""
    SEEN[:] = [sides, settings, dict(call.given)]
    if sides.name == "stop":
        call.kept = "two files are kept"
        raise KeyboardInterrupt
    if sides.name == "mode":
        call.only_with("--mode", ["name", "json"])
    return Reply(
        ["a line", "[red]x\x1b[31m"],
        {"name": sides.name},
        notes=["a note"],
        warnings=["a complaint"] if sides.name == "bad" else [],
        files=[Path("written.csv")],
        code=3 if sides.name == "bad" else 0,
    )


@pytest.fixture
def run(capsys):
    app = typer.Typer(add_completion=False)
    app.callback()(lambda: None)
    add(app, toy, "NAME")

    def called(*arguments: str) -> tuple[int, str, str]:
        code = edges.run(typer.main.get_command(app), ["toy", *arguments])
        return code, *capsys.readouterr()

    return called


Run = Callable[..., tuple[int, str, str]]


def test_options_become_settings(run):
    code, out, err = run("x", "--test", "a", "--test", "b", "--id", "key", "--no-verify", "-n", "5",
                         "--allowed", "2%", "-o", "d")  # fmt: skip
    assert (code, err) == (0, "a note\n")
    assert out == "a line\n[red]x\\x1b[31m\nwritten.csv\n"
    settings = Toy(count=5, verify=False, allowed=0.02, out=Path("d"))
    assert SEEN[:2] == [Sides(Columns("key"), test=("a", "b"), name="x"), settings]
    assert SEEN[2] == {
        **{"name": "NAME", "test": "--test", "id": "--id", "verify": "--no-verify"},
        **{"count": "--count", "allowed": "--allowed", "out": "--output"},
    }
    run("x")
    assert [Sides(Columns(), name="x"), Toy(), {"name": "NAME"}] == SEEN


def test_json_and_exit_code(run):
    code, out, err = run("bad", "--json")
    assert (code, json.loads(out)) == (3, {"name": "bad"})
    assert err == "a note\nvisleak: a complaint\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("NAME", "missing")),
        (("x", "--veiws", "all"), ("--veiws", "did you mean --views")),
        (("x", "--views", "some"), ("views", "none, all", "some")),
        (("x", "-n", "0"), ("count", "from 1 to 9", "0")),
        (("x", "-n", "many"), ("--count", "integer")),
        (("x", "--allowed", "2"), ("share", "2")),
        (("x", "y"), ("y",)),
        (("mode", "--test", "a", "--json", "--id", "k"), ("--id, --test", "--mode")),
    ],
)
def test_a_wrong_command_line_is_one_line(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("visleak: ")
    assert [word for word in words if word.lower() not in err.lower()] == [], err


def test_an_interrupted_command_reports_what_is_kept(run):
    code, _, err = run("stop")
    assert (code, err) == (130, "visleak: interrupted; two files are kept\n")


def test_help_has_panels_metavars_and_defaults(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = run("--help")
    for words in ("Do nothing", "Data", "SOURCE", "Method", "none|all", "default: all", "Example"):
        assert words in out
    assert "bool" not in out
    assert "internal" not in out


def test_settings_check_themselves():
    with pytest.raises(UsageError, match="views must be one of none, all"):
        Toy(views="some")
    with pytest.raises(UsageError, match="count must be from 1 to 9"):
        Toy(count=10)
    assert keywords(Sides(Columns("key"), name="x"), Toy(out=None)) == {
        **{"id": "key", "name": "x", "test": (), "json": False, "views": "all", "count": 3},
        **{"verify": True, "allowed": 0.01, "internal": 7},
    }
    values = {field.name: field.default for field, _, _ in leaves(Toy)}
    assert build(Toy, values) == Toy()


def test_what_cannot_be_derived():
    def twice(one: Toy, other: Toy) -> Reply:
        return Reply()

    def bare(count: int) -> Reply:
        return Reply()

    for function in (twice, bare):
        with pytest.raises(TypeError):
            derived(function)


def test_an_unfinished_audit_is_mentioned(tmp_path, run, capsys):
    @dataclass(frozen=True)
    class Folder(Options):
        folder: Path = argument(..., "An audit.", metavar=AUDIT_DIR)

    def read(folder: Folder) -> Reply:
        return Reply(["read"])

    read.__annotations__ = {"folder": Folder, "return": Reply}
    app = typer.Typer(add_completion=False)
    app.callback()(lambda: None)
    add(app, read)
    (tmp_path / "audit.json").write_text('{"schema": 1, "unfinished": 2}')
    assert edges.run(typer.main.get_command(app), ["read", str(tmp_path)]) == 0
    assert "2 images could not be read again" in capsys.readouterr().err


def test_commands_load_nothing_heavy():
    code = (
        "import sys; from visleak.cli.app import app; import typer; typer.main.get_command(app);"
        "print([m for m in ('numpy', 'pyarrow', 'PIL', 'torch', 'cv2') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
