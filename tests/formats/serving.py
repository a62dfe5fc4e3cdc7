"""A web server for tests: with and without byte ranges, with files that fail on purpose."""

import contextlib
import re
import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; what the server's switches say goes wrong does."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        switches = self.server.switches
        path = self.path.partition("?")[0]
        self.server.asked[path] += self.command == "GET"
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        for ending, status in switches.get("status", {}).items():
            if path.endswith(ending) and self.server.asked[path] <= switches.get("times", 1 << 30):
                return self.answered(status, b"no")
        if path.endswith("/"):
            return super().do_GET()
        data = self.content(path)
        return self.answered(404, b"no") if data is None else self.served(path, data)

    def do_HEAD(self):
        self.do_GET()

    def content(self, path):
        try:
            with open(self.translate_path(path), "rb") as file:
                return file.read()
        except OSError:
            return None

    def served(self, path, data):
        switches, headers = self.server.switches, {}
        start, stop = 0, len(data)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if found and switches.get("ranges", True):
            start, stop = int(found[1]), min(stop, int(found[2] or stop) + 1)
            if start >= len(data):
                return self.answered(416, b"no")
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        if switches.get("tags", True):
            headers["ETag"] = f'"{hash(data)}"'
        body = data[start:stop]
        broken = switches.get("breaks", {}).get(path)
        cut = broken[0] if broken and self.server.asked[path] <= broken[1] else None
        status = 206 if len(body) < len(data) else 200
        return self.answered(status, body, headers, switches.get("lengths", True), cut)

    def answered(self, status, body, headers=(), length=True, cut=None):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if length:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = self.close_connection or not length or cut is not None
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body[:cut])


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Ignore clients that close the connection."""


@contextlib.contextmanager
def served(folder, handler=Handler, **switches):
    """Serve a folder; yield its address and the server, whose ``switches`` may be changed.

    ``ranges``, ``lengths``, ``tags``; ``status``: {ending: code}, the first ``times``; ``breaks``:
    {path: (bytes, times)} after which the connection is cut.
    """
    server = Server(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    server.switches, server.asked, server.seen = switches, Counter(), []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
