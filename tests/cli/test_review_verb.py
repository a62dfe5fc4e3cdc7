"""``visleak review`` as a stranger meets it: its errors, its address, its end."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
import webbrowser
from http.cookiejar import CookieJar

import pytest
from calling import check_refused, refusals, run

from visleak.errors import MissingExtra, UsageError
from visleak.review.serving import bound, require_web, user_name
from visleak.verdicts import read_verdicts

pytest.importorskip("uvicorn", reason="the review app needs the extra web")


def test_ctrl_c_ends_it_and_prints_where_the_verdicts_are(folder):
    command = [sys.executable, "-m", "visleak", "review", str(folder), "--no-browser"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    options = ["--reviewer", "ada", "--grade", "near", "--candidates", "nearest"]
    process = subprocess.Popen([*command, *options], **pipes)
    lines = [process.stdout.readline() for _ in range(2)]
    assert re.match(r"\d+ pairs to review as ada; Ctrl-C ends it", lines[0])
    ((host, query),) = re.findall(r"(http://127\.0\.0\.1:\d+)(/\?token=\S+)", "".join(lines))
    visitor = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with visitor.open(f"{host}{query}", timeout=30) as answer:
        page = answer.read().decode()
    # the filter of the command line is where it begins
    assert '<option value="near+" selected>' in page
    assert "one nearest reference" in page
    name = re.findall(r'data-pair="([^"]+)"', page)[0]
    verdict = json.dumps({"pairs": [name], "judgment": "near"}).encode()
    headers = {"Origin": host, "X-Visleak": "review", "Content-Type": "application/json"}
    visitor.open(urllib.request.Request(f"{host}/api/judge", verdict, headers), timeout=30).close()
    # on disk before the answer came
    assert [(v.judgment, v.reviewer) for v in read_verdicts(folder)] == [("near", "ada")]
    assert not (folder / "verdicts.csv").exists()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out == f"1 pair judged; verdicts are in {folder / 'verdicts.csv'}\n"
    assert (folder / "verdicts.csv").read_text().count("near") == 1


@refusals("""
    {audit} --grade soft -> grade must be one of exact, near, similar, different; got 'soft'
    {audit} --port 70000 -> port must be 0 (any that is free) to 65535; got 70000
    {audit} --reviewer '  ' -> a reviewer is called by one line of 1 to 100 characters
""")
def test_wrong_options(folder, arguments, words):
    check_refused(f"review --no-browser {arguments}", words, audit=folder)
    assert not (folder / "verdicts.sqlite").exists()


def test_a_port_that_is_taken(folder):
    taken = bound(0)
    try:
        host, port = taken.getsockname()
        assert host == "127.0.0.1"
        check_refused(f"review {folder} --no-browser --port {port}", f"port {port} of 127.0.0.1")
    finally:
        taken.close()


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match=r"needs an extra: pip install 'visleak\[web\]'"):
        require_web("visleak review")


def test_a_user_without_a_name(monkeypatch):
    def none():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", none)
    with pytest.raises(UsageError, match="give one with --reviewer"):
        user_name()


def test_the_browser_is_opened_with_a_token_of_its_own(folder, monkeypatch):
    import uvicorn

    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda *url: opened.extend(url))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: sockets[0].getsockname())
    result = run("review", folder, code=0)
    printed = re.search(r"http://\S+", result.out)
    assert printed is not None
    assert len(opened) == 1
    assert opened[0].split("?")[0] == printed[0].split("?")[0]
    assert opened[0] != printed[0]
    assert "0 pairs judged" in result.out
