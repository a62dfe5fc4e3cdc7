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
        self.server.asked[path] += 1
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        for ending, status in switches.get("status", {}).items():
            if path.endswith(ending):
                times = switches.get("times", 1 << 30)
                if self.server.asked[path] <= times:
                    return self.failed(status)
        if path.endswith("/") or not switches.get("files", True):
            return super().do_GET()
        return self.served(path)

    def failed(self, status):
        body = b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def served(self, path):
        switches = self.server.switches
        try:
            with open(self.translate_path(path), "rb") as file:
                data = file.read()
        except OSError:
            return self.failed(404)
        start = 0
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if found and switches.get("ranges", True):
            start = int(found[1])
            if start >= len(data):
                return self.failed(416)
        return self.answered(path, data, start)

    def answered(self, path, data, start):
        switches = self.server.switches
        body = data[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if switches.get("tags", True):
            self.send_header("ETag", f'"{hash(data)}"')
        if switches.get("lengths", True):
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        broken = switches.get("breaks", {}).get(path)
        if broken and self.server.asked[path] <= broken[1]:
            body = body[: broken[0]]
            self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Ignore clients that close the connection."""


@contextlib.contextmanager
def running(handler, **attributes):
    """Run a server with some attributes; yield its address and the server."""
    server = Server(("127.0.0.1", 0), handler)
    vars(server).update(attributes)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def served(folder, **switches):
    """Serve a folder; yield its address and the server, whose ``switches`` may be changed.

    Switches: ``ranges`` (default yes), ``lengths``, ``tags``; ``status``: {ending: code} that is
    answered the first ``times`` times; ``breaks``: {path: (bytes, times)} after which the
    connection is cut.
    """
    handler = partial(Handler, directory=str(folder))
    return running(handler, switches=switches, asked=Counter(), seen=[])
