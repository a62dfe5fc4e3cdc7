import io
import re
import sys
import time
from types import SimpleNamespace

import pytest
from calling import check_refused, refused, run

from visleak.progress import display_for, steps


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO, "xterm"), (Terminal, "dumb")])
def test_lines_off_a_terminal(monkeypatch, stream, term, clock):
    """A short run is silent; a long one has a line per step and one every 30 seconds."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("visleak.progress.PATIENCE", 10.0)
    lines = []
    with steps(display_for(stream(), lines.append)) as progress:
        progress("listing images", 0, 0)
        progress.expect([("reading a",), ("reading b",), ("checking", "screening")])
        progress("reading a", 0, 2_000)
        assert lines == []
        for second in range(1, 81):
            clock[0] = float(second)
            progress("reading a", 20 * second, 2_000)
        clock[0] = 81.0
        progress("screening pairs", 0, 5)
        progress("screening pairs", 5, 5)
        progress("writing\x1b[31m", 0, 0)
    assert lines == [
        "step 2 of 4: reading a: 200 of 2,000, 20 images/s, 1:30 left",
        "step 2 of 4: reading a: 800 of 2,000, 20 images/s, 1:00 left",
        "step 2 of 4: reading a: 1,400 of 2,000, 20 images/s, 30 s left",
        "step 4 of 4: screening pairs",
        r"writing\x1b[31m",
    ]


def test_steps_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with steps(display_for(sys.stderr, print)) as progress:
        progress("listing", 0, 0)
        progress("listing", 1, 1)
        progress("reading [red]x\x1b[31m\n", 0, 2_000)
        progress("reading [red]x\x1b[31m\n", 2_000, 2_000)
        progress("reading [red]x\x1b[31m\n", 500, 2_000)
    text = sys.stderr.getvalue()
    assert r"reading [red]x\x1b[31m\n" in text
    assert "500 of 2,000" in text


def test_a_bar_in_a_notebook(monkeypatch):
    """One output per run, renewed; names are escaped."""
    shown = []
    handle = SimpleNamespace(update=shown.append)

    def display(html, display_id):
        shown.append(html)
        return handle

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    fake = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    with steps(display_for(io.StringIO(), print)) as progress:
        progress("reading <b>", 0, 10)
        progress("reading <b>", 10, 10)
    first, last, gone = shown
    assert "reading &lt;b&gt;" in first
    assert 'value="10" max="10"' in last
    assert gone == ""


def test_quiet_verbose_and_log_file(dataset, tmp_path):
    log = tmp_path / "run.log"
    given = ("audit", dataset, "-o", tmp_path / "out", "--no-verify", "--no-images")
    ran = run(*given, "-q", "--log-file", log)
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    assert " of 6 test images" in ran.out
    text = log.read_text()
    assert f"INFO visleak audit {dataset}" in text
    assert re.search(r"INFO step 3 of \d: reading test", text)
    ran = run(*given, "--force", "-v")
    assert re.search(r"^step 3 of \d: reading test$", ran.err, re.MULTILINE)
    assert run(*given, "-q").err == ""  # "reused" is a note
    gone = tmp_path / "none"
    code, message = refused("audit", gone, "-q", "--log-file", log)
    assert code == 2
    assert f"ERROR {message}" in log.read_text()
    check_refused(f"audit {dataset} -q -v", "either --quiet or --verbose")
    check_refused(f"audit {dataset} --log-file {tmp_path}", "cannot be written")
