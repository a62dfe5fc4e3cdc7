"""``visleak review`` as a stranger meets it: its errors, its address, its end."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import webbrowser
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from calling import check_refused, refusals, run

from visleak.errors import MissingExtra, UsageError
from visleak.review.serving import bound, require_web, user_name
from visleak.verdicts import read_verdicts

pytest.importorskip("uvicorn", reason="the review app needs the extra web")


class Visitor:
    """A running review and a client that was let in."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "visleak", "review", str(folder), "--no-browser", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline() for _ in range(2)]
        link = re.search(r"http://(127\.0\.0\.1:\d+)/\?token=\S+", "".join(self.lines))
        assert link is not None, self.lines
        self.link, self.host = link[0], link[1]
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._open = urllib.request.build_opener(cookies).open

    def page(self) -> str:
        with self._open(self.link, timeout=30) as answer:
            return str(answer.read().decode())

    def judge(self, name: str, judgment: str) -> dict[str, Any]:
        data = json.dumps({"pairs": [name], "judgment": judgment}).encode()
        headers = {"Origin": f"http://{self.host}", "X-Visleak": "review"}
        headers |= {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.host}/api/judge", data, headers)
        with self._open(request, timeout=30) as answer:
            return json.loads(answer.read())

    def end(self, number: int) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def name_in(page: str) -> str:
    found = re.search(r'data-pair="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_ctrl_c_ends_it_and_prints_where_the_verdicts_are(folder):
    visitor = Visitor(folder, "--reviewer", "ada")
    assert re.match(r"\d+ pairs to review as ada; Ctrl-C ends it", visitor.lines[0])
    name = name_in(visitor.page())
    visitor.judge(name, "near")
    # on disk before the answer came
    assert [(v.judgment, v.reviewer) for v in read_verdicts(folder)] == [("near", "ada")]
    assert not (folder / "verdicts.csv").exists()
    code, out, err = visitor.end(signal.SIGINT)
    assert (code, err) == (0, "")
    assert out == f"1 pair judged; verdicts are in {folder / 'verdicts.csv'}\n"
    assert (folder / "verdicts.csv").read_text().count("near") == 1


def test_the_filter_of_the_command_line_is_where_it_begins(folder):
    visitor = Visitor(folder, "--grade", "near", "--candidates", "nearest")
    try:
        page = visitor.page()
        assert '<option value="near+" selected>' in page
        assert "one nearest reference" in page
    finally:
        visitor.end(signal.SIGINT)


def test_it_listens_to_this_machine_only(folder):
    listening = bound(0)
    assert listening.getsockname()[0] == "127.0.0.1"
    listening.close()


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
        port = taken.getsockname()[1]
        check_refused(f"review {folder} --no-browser --port {port}", f"port {port} of 127.0.0.1")
    finally:
        taken.close()


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra) as caught:
        require_web("visleak review")
    assert str(caught.value) == "visleak review needs an extra: pip install 'visleak[web]'"


def test_a_user_without_a_name(monkeypatch):
    def none() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", none)
    with pytest.raises(UsageError, match="give one with --reviewer"):
        user_name()


def test_the_browser_is_opened_with_a_token_of_its_own(folder, monkeypatch):
    import uvicorn

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda *url: opened.extend(url))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: sockets[0].getsockname())
    result = run("review", folder, code=0)
    printed = re.search(r"http://\S+", result.out)
    assert printed is not None
    assert len(opened) == 1
    assert opened[0].split("?")[0] == printed[0].split("?")[0]
    assert opened[0] != printed[0]
    assert "0 pairs judged" in result.out
