"""The answers of the Hugging Face hub that fetching a model takes, from this machine."""

import contextlib
import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0" * 40


class Hub(BaseHTTPRequestHandler):
    """Serves the files of one repository, of any branch; ``asked`` holds the requests."""

    repository = ""
    files: dict[str, Path] = {}  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, body):
        path = unquote(self.path)
        self.asked.append(f"{self.command} {path}")
        if path.startswith(f"/api/models/{self.repository}/tree/"):
            listed = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": COMMIT}
                for name, file in self.files.items()
            ]
            return self._send(json.dumps(listed).encode(), body)
        if path.startswith(f"/api/models/{self.repository}"):
            there = [{"rfilename": name} for name in self.files]
            content = {"id": self.repository, "sha": COMMIT, "siblings": there}
            return self._send(json.dumps(content).encode(), body)
        for revision in (COMMIT, "main", "v2", "refs/pr/1"):
            file = path.removeprefix(f"/{self.repository}/resolve/{revision}/")
            if file in self.files:
                return self._send(self.files[file].read_bytes(), body)
        gated = "gated" in path
        self.send_response(403 if gated else 404)
        self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _send(self, content, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args):
        """Say nothing."""


@contextlib.contextmanager
def serving(patch, cache, repository, files):
    """Run a hub with one repository, whose files are cached in a folder."""
    for name, value in (("repository", repository), ("files", files), ("asked", [])):
        patch.setattr(Hub, name, value)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        no_hub(patch, cache, f"http://127.0.0.1:{server.server_port}")
        yield Hub
        server.shutdown()


def no_hub(patch, cache, address="http://127.0.0.1:9"):
    """Let the hub be somewhere else: by default where nothing answers."""
    import huggingface_hub.constants as constants

    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"):
        if name in os.environ:
            patch.delenv(name)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    patch.setattr(constants, "ENDPOINT", address)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
